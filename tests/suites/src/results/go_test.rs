//! Output of a Go test program with `-test.v`.

use crate::results::test_cases::{Cases, Status, enter};

/// Mark on a line of the testing package itself, since Go 1.20.
const MARK: char = '\u{16}';

/// Returns the cases of a report, tests within tests included.
pub fn cases(text: &str) -> Cases {
    let marked = text.contains(MARK);
    let mut cases = Cases::new();
    for line in text.lines() {
        // A test may have printed something before, without ending its line.
        let line = match (marked, line.rsplit_once(MARK)) {
            (true, Some((_, own))) => own,
            (true, None) => continue,
            (false, _) => line,
        };
        let Some(result) = line.trim_start().strip_prefix("--- ") else { continue };
        let Some((status, rest)) = result.split_once(": ") else { continue };
        let status = match status {
            "PASS" => Status::Pass,
            "FAIL" => Status::Fail,
            "SKIP" => Status::Skip,
            _ => continue,
        };
        let name = rest.split_whitespace().next().unwrap_or("(no name)");
        enter(&mut cases, name, status);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_lines_alone_count_where_there_are_any() {
        let text = "\u{16}=== RUN   TestA\n--- PASS: TestPrinted (0.00s)\nunfinished\u{16}--- PASS: TestA \
                    (0.01s)\n\u{16}    --- SKIP: TestA/sub (0.00s)\n\u{16}--- FAIL: TestB (1.00s)\n";
        let cases = cases(text);
        assert_eq!(cases.len(), 3);
        assert_eq!(cases["TestA"], Status::Pass);
        assert_eq!(cases["TestA/sub"], Status::Skip);
        assert_eq!(cases["TestB"], Status::Fail);
    }

    #[test]
    fn older_releases_mark_nothing() {
        let cases = cases(
            "=== RUN   TestA\n    --- PASS: TestA/x (0.00s)\n--- FAIL: TestA (0.00s)\nFAIL\n",
        );
        assert_eq!(cases["TestA"], Status::Fail);
        assert_eq!(cases["TestA/x"], Status::Pass);
    }
}
