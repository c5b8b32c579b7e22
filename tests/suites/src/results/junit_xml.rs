//! The XML that CPython's regrtest writes (`--junit-xml`).

use crate::results::test_cases::{Cases, Status, enter};

/// Returns the cases of a report.
pub fn cases(text: &str) -> Cases {
    let mut cases = Cases::new();
    let Ok(document) = roxmltree::Document::parse(text) else { return cases };
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let has = |tag: &str| case.children().any(|child| child.has_tag_name(tag));
        let status = match () {
            () if has("error") => Status::Error,
            () if has("failure") => Status::Fail,
            () if has("skipped") => Status::Skip,
            // Only an expected failure has an output.
            () if has("output") => Status::ExpectedFail,
            () if case.attribute("outcome") == Some("UNEXPECTED_SUCCESS") => Status::UnexpectedPass,
            () => Status::Pass,
        };
        enter(&mut cases, case.attribute("name").unwrap_or("(no name)"), status);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_result_is_read() {
        let text = r#"<testsuites tests="5"><testsuite>
            <testcase name="a" status="run" result="completed" time="0.1" />
            <testcase name="b"><failure type="X">why</failure></testcase>
            <testcase name="c"><error>why</error></testcase>
            <testcase name="d"><skipped>not here</skipped></testcase>
            <testcase name="e"><output>why</output></testcase>
            <testcase name="a"><failure/></testcase>
            </testsuite></testsuites>"#;
        let cases = cases(text);
        let of = |name: &str| cases.get(name).copied();
        assert_eq!(of("a"), Some(Status::Pass));
        assert_eq!(of("a (no. 2)"), Some(Status::Fail));
        assert_eq!(of("b"), Some(Status::Fail));
        assert_eq!(of("c"), Some(Status::Error));
        assert_eq!(of("d"), Some(Status::Skip));
        assert_eq!(of("e"), Some(Status::ExpectedFail));
        assert_eq!(cases.len(), 6);
    }

    #[test]
    fn an_empty_report_has_no_cases() {
        assert!(cases("").is_empty());
        assert!(cases("<testsuites><testcase name='a'>").is_empty());
    }
}
