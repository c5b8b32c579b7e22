//! Reports of suites, case by case.

pub mod report_format;
pub mod test_cases;
pub mod word_lines;

mod automake_trs;
mod go_test;
mod junit_xml;
mod tap;
