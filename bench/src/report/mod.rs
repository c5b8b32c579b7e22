//! Results: kept as JSON, reduced to a verdict, rendered as tables and documents.

pub mod command_text;
pub mod document;
pub mod machine;
pub mod results;
pub mod runs;
pub mod summary;
pub mod tables;
