//! Reports of one line for each case, which a word tells apart from other lines.

use crate::results::test_cases::{Cases, Status, enter};

/// Suites by the words of their reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// The Linux Test Project's, anywhere in a line: `open01.c:50: TPASS: …`, and the older
    /// `open01    1  TPASS  :  …`.
    Ltp,
    /// DejaGnu's and BusyBox's, first in a line: `PASS: …`.
    DejaGnu,
    /// Redis's, first in a line: `[ok]: …`.
    Redis,
    /// autotest's (tar), last in a line that begins with a number: `  1: name   ok`.
    Autotest,
    /// util-linux's, last in a line: `cal: year  ... OK`.
    UtilLinux,
}

/// Returns the cases of a report: by the place in it, since texts may hold addresses and times.
pub fn cases(words: Words, text: &str) -> Cases {
    let mut cases = Cases::new();
    for status in text.lines().filter_map(|line| status(words, line)) {
        let name = format!("{:06}", cases.len() + 1);
        enter(&mut cases, &name, status);
    }
    cases
}

fn status(words: Words, line: &str) -> Option<Status> {
    let first = |known: &[(&str, Status)]| {
        known.iter().find(|(word, _)| line.starts_with(word)).map(|(_, status)| *status)
    };
    match words {
        Words::Ltp => line.split([' ', ':']).find_map(|word| match word {
            "TPASS" => Some(Status::Pass),
            "TFAIL" => Some(Status::Fail),
            "TCONF" => Some(Status::Skip),
            "TBROK" | "TWARN" => Some(Status::Error),
            _ => None,
        }),
        Words::DejaGnu => first(&[
            ("PASS:", Status::Pass),
            ("FAIL:", Status::Fail),
            ("SKIPPED:", Status::Skip),
            ("UNTESTED:", Status::Skip),
        ]),
        Words::Redis => first(&[
            ("[ok]:", Status::Pass),
            ("[err]:", Status::Fail),
            ("[exception]:", Status::Error),
            ("[skip]:", Status::Skip),
            ("[ignore]:", Status::Skip),
        ]),
        Words::Autotest => {
            let (number, _) = line.split_once(": ")?;
            number.trim().parse::<u32>().ok()?;
            let known = [
                (" FAILED (", Status::Fail),
                (" skipped", Status::Skip),
                (" expected failure", Status::ExpectedFail),
            ];
            let known =
                known.iter().find(|(text, _)| line.contains(text)).map(|(_, status)| *status);
            known.or_else(|| line.trim_end().ends_with(" ok").then_some(Status::Pass))
        }
        Words::UtilLinux => {
            let (_, result) = line.rsplit_once("... ")?;
            let known = [("OK", Status::Pass), ("FAILED", Status::Fail), ("SKIPPED", Status::Skip)];
            known.iter().find(|(word, _)| result.starts_with(word)).map(|(_, status)| *status)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Status::*;

    #[test]
    fn results_are_told_from_other_lines() {
        let of = |words, text| cases(words, text).into_values().collect::<Vec<_>>();
        let ltp = "tst_test.c:1: TINFO: LTP\na.c:2: TPASS: b\nabort 3  TFAIL  :  c: TPASS\na.c:4: TCONF: d";
        assert_eq!(of(Words::Ltp, ltp), [Pass, Fail, Skip]);
        assert_eq!(
            of(Words::DejaGnu, "PASS: a\n + PASS: b\nFAIL: c\nUNTESTED: d"),
            [Pass, Fail, Skip]
        );
        assert_eq!(of(Words::Redis, "[ok]: a (1 ms)\nok\n[err]: b in tests/c"), [Pass, Fail]);
        let tar =
            "  1: tar version  ok\n## 1: ok\n  2: b   FAILED (b.at:12)\n  3: c  skipped (c.at:1)";
        assert_eq!(of(Words::Autotest, tar), [Pass, Fail, Skip]);
        assert_eq!(
            of(Words::Autotest, "  3: c    skipped\n 4: d expected failure"),
            [Skip, ExpectedFail]
        );
        let util = "   cal: year   ... OK\n a: b ... FAILED (a/b)\n c: d ... SKIPPED (no e)";
        assert_eq!(of(Words::UtilLinux, util), [Pass, Fail, Skip]);
    }
}
