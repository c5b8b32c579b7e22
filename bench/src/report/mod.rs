//! Results: kept as JSON, reduced to a verdict, rendered as tables and documents.

pub mod command_text;
pub mod json_results;
pub mod machine;
pub mod markdown_document;
pub mod row_summary;
pub mod run_report;
pub mod tables;
