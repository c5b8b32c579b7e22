//! The Test Anything Protocol, as Perl's tests speak it.

use crate::results::test_cases::{Cases, Status, enter};

/// Returns the cases of a report: by the place in it, since descriptions may hold addresses and
/// times.
pub fn cases(text: &str) -> Cases {
    let mut cases = Cases::new();
    let mut n = 0;
    for line in text.lines() {
        let (passed, rest) = match (line.strip_prefix("not ok"), line.strip_prefix("ok")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => {
                plan(line, &mut cases);
                continue;
            }
        };
        // "okay" is no result.
        if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
            continue;
        }
        n += 1;
        // A description may hold the sign, too, as in "[perl #1234]".
        let directive = |word: &str| {
            let mut after =
                rest.split('#').skip(1).map(|text| text.trim_start().to_ascii_lowercase());
            after.any(|text| text.starts_with(word))
        };
        let status = match passed {
            _ if directive("skip") => Status::Skip,
            true if directive("todo") => Status::UnexpectedPass,
            false if directive("todo") => Status::ExpectedFail,
            true => Status::Pass,
            false => Status::Fail,
        };
        enter(&mut cases, &format!("{n:06}"), status);
    }
    cases
}

/// `1..0` skips everything.
fn plan(line: &str, cases: &mut Cases) {
    let nothing = line.strip_prefix("1..0").is_some_and(|rest| !rest.starts_with(char::is_numeric));
    if nothing {
        enter(cases, "(all)", Status::Skip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_result_is_read() {
        let text = "1..8\nok 1 - a\nnot ok 2 - b\n# ok 3\nok 3 # SKIP why\nnot ok 4 - [#4] # TODO d\n\
                    ok 5 - e # todo f\nok\nokay\n    ok 1 - of a subtest\nnot ok 7\tx\nok 8 # skip: see #9";
        let found: Vec<_> = cases(text).into_values().collect();
        use Status::*;
        assert_eq!(found, [Pass, Fail, Skip, ExpectedFail, UnexpectedPass, Pass, Fail, Skip]);
        assert_eq!(cases("1..0 # Skip: no threads\n").into_values().collect::<Vec<_>>(), [Skip]);
        assert!(cases("1..01").is_empty() && cases("").is_empty());
    }
}
