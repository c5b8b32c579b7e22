//! Violations that the comparison must catch.

use std::collections::BTreeMap;

use runahead_tests::{End, Outcome};

use crate::confined_runs::{Seen, difference};

fn seen() -> Seen {
    let outcome =
        Outcome { end: End::Exit(0), stdout: b"out\n".to_vec(), stderr: b"complaint\n".to_vec() };
    Seen { outcome, files: BTreeMap::from([("file".into(), "contents".into())]) }
}

#[test]
fn each_kind_of_difference_is_detected() {
    let changes: [fn(&mut Seen); 8] = [
        |s| s.outcome.end = End::Exit(125),
        |s| s.outcome.end = End::Signal(9),
        |s| s.outcome.stdout.clear(),
        |s| s.outcome.stdout.extend(b"more"),
        |s| s.outcome.stderr = b"complaint\nrunahead: something else\n".to_vec(),
        |s| s.outcome.stderr = b"complaint\nrunahead: running natively: late\n".to_vec(),
        |s| {
            s.outcome
                .stderr
                .splice(0..0, *b"runahead: running natively: x\nanother\n")
                .for_each(drop)
        },
        |s| _ = s.files.insert("file".into(), "other".into()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut other = seen();
        change(&mut other);
        assert!(difference(&seen(), &other).is_some(), "change {number} is not seen");
    }
}

#[test]
fn documented_warnings_are_no_difference() {
    assert_eq!(difference(&seen(), &seen()), None);
    let mut other = seen();
    other.outcome.stderr = b"runahead: running natively: why\ncomplaint\n".to_vec();
    assert_eq!(difference(&seen(), &other), None);
}
