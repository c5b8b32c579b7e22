//! Differences that runahead made.
//!
//! Invariant: only a case whose native runs all agree can differ. If its native runs do not agree
//! it is flaky, regardless of its runs under runahead.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::results::test_cases::Status;
use crate::unit_run::Half;
use crate::written_files::WrittenDigests;

/// The end of the unit, compared as if it were a case.
const END: &str = "(the unit's end)";
/// The outputs of the unit, if they are compared.
const OUTPUT: &str = "(its output)";
/// The files that it left, if they are compared.
const FILES: &str = "(its files)";

/// Result of the comparison of a unit's runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Cases that runahead changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Cases whose native runs do not agree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flaky: Vec<String>,
}

/// A case whose native runs agree, and whose runs under runahead do not agree with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub case: String,
    /// Its outcome in each native run.
    pub native: String,
    /// Its outcomes in the runs under runahead.
    pub ahead: Vec<String>,
}

impl Difference {
    /// Returns the number of runs in which it differed, and that of all runs.
    pub fn times(&self) -> (usize, usize) {
        (self.ahead.iter().filter(|ahead| **ahead != self.native).count(), self.ahead.len())
    }
}

/// Compares native runs with those under runahead.
pub fn compare(native: &[Half], ahead: &[Half]) -> Verdict {
    let mut names: BTreeSet<&str> = BTreeSet::from([END, OUTPUT, FILES]);
    names.extend(native.iter().chain(ahead).flat_map(|half| half.cases.keys().map(String::as_str)));
    let mut verdict = Verdict::default();
    for name in names {
        let of =
            |halves: &[Half]| halves.iter().map(|half| outcome(half, name)).collect::<Vec<_>>();
        let (native, ahead) = (of(native), of(ahead));
        let Some(first) = native.first() else { continue };
        if native.iter().any(|other| other != first) {
            verdict.flaky.push(name.to_owned());
        } else if ahead.iter().any(|other| other != first) {
            let native = first.clone();
            verdict.differences.push(Difference { case: name.to_owned(), native, ahead });
        }
    }
    verdict
}

fn outcome(half: &Half, name: &str) -> String {
    let written = |of: fn(&WrittenDigests) -> &String| half.written.as_ref().map(of).cloned();
    let found = match name {
        END => Some(half.end.to_string()),
        OUTPUT => written(|written| &written.output),
        FILES => written(|written| &written.files),
        _ => half.cases.get(name).map(Status::to_string),
    };
    found.unwrap_or_else(|| "is absent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::test_cases::Status::*;
    use crate::unit_run::{End, RunaheadStats};

    fn half(end: End, cases: &[(&str, Status)]) -> Half {
        let cases = cases.iter().map(|(name, status)| ((*name).to_owned(), *status)).collect();
        Half {
            end,
            cases,
            written: None,
            seconds: 0.0,
            requests: 0,
            ahead: RunaheadStats::default(),
        }
    }

    #[test]
    fn same_failures_are_the_same() {
        let both = [half(End::Exit(1), &[("a", Pass), ("b", Fail)])];
        assert_eq!(compare(&both, &both), Verdict::default());
    }

    #[test]
    fn cases_and_ends_and_absences_differ() {
        let native = [half(End::Exit(0), &[("a", Pass), ("b", Pass)])];
        let ahead = [half(End::TimedOut, &[("a", Fail), ("c", Pass)])];
        let verdict = compare(&native, &ahead);
        let found: Vec<_> = verdict.differences.iter().map(|d| d.case.as_str()).collect();
        assert_eq!(found, [END, "a", "b", "c"]);
        assert_eq!(verdict.differences[2].ahead, ["is absent"]);
        assert_eq!(verdict.differences[3].native, "is absent");
        assert!(verdict.flaky.is_empty());
    }

    #[test]
    fn outputs_are_compared_if_they_were_read() {
        let of = |output: &str| {
            let written = WrittenDigests { output: output.into(), files: "f".into() };
            Half { written: Some(written), ..half(End::Exit(0), &[]) }
        };
        assert_eq!(compare(&[of("a")], &[of("a")]), Verdict::default());
        assert_eq!(compare(&[of("a")], &[of("b")]).differences[0].case, OUTPUT);
        assert_eq!(compare(&[of("a"), of("b")], &[of("c"), of("d")]).flaky, [OUTPUT]);
    }

    #[test]
    fn native_disagreement_is_flaky_and_no_difference() {
        let of = |status| half(End::Exit(0), &[("a", status), ("b", Pass)]);
        let verdict = compare(&[of(Pass), of(Fail), of(Pass)], &[of(Fail), of(Fail), of(Fail)]);
        assert_eq!(verdict.flaky, ["a"]);
        assert!(verdict.differences.is_empty());
    }

    #[test]
    fn a_difference_now_and_then_is_counted() {
        let of = |status| half(End::Exit(0), &[("a", status)]);
        let verdict = compare(&[of(Pass), of(Pass)], &[of(Pass), of(Error)]);
        assert_eq!(verdict.differences[0].times(), (1, 2));
    }
}
