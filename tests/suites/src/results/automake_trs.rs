//! The `.trs` file that automake's test driver writes for each test.

use crate::results::test_cases::{Cases, Status, enter};

/// Returns the cases of a report: one, or several if the driver is TAP's.
pub fn cases(text: &str) -> Cases {
    let mut cases = Cases::new();
    for line in text.lines() {
        let Some(result) = line.strip_prefix(":test-result:") else { continue };
        let status = match result.split_whitespace().next() {
            Some("PASS") => Status::Pass,
            Some("FAIL") => Status::Fail,
            Some("SKIP") => Status::Skip,
            Some("XFAIL") => Status::ExpectedFail,
            Some("XPASS") => Status::UnexpectedPass,
            _ => Status::Error,
        };
        enter(&mut cases, "(the test)", status);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_nothing_else_are_read() {
        let text = ":test-result: SKIP\n:global-test-result: SKIP\n:recheck: no\n";
        assert_eq!(cases(text).into_values().collect::<Vec<_>>(), [Status::Skip]);
        assert_eq!(cases(":test-result: ERROR").into_values().next(), Some(Status::Error));
        assert!(cases("").is_empty());
    }
}
