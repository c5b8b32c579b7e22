//! Shadows get past data that is missing: a program that checks what it reads is foreseen.

use runahead_tests::{Link, available, fixture};

/// Keys in the table (`table_lookups.c`).
const KEYS: u64 = 192;

/// Each row is checked by its kind and its key, and a wrong one ends the program. Only a shadow
/// that stands in for a missing row reaches the next.
#[test]
fn table_lookups_are_foreseen_past_missing_rows() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|_| {
        let made = fixture.run_program("table_lookups", Link::Dynamic, &["make", "table"]).run();
        assert_eq!(made.text(), "");
    });
    // On a busy machine a shadow may be late.
    let used = |_| {
        let case =
            fixture.program_with("table_lookups", &["read", "table"], |case| case.with_shadow());
        assert!(case.outcome.text().starts_with("sum "), "{:?}", case.outcome);
        case.stats["hints_used"].as_u64().unwrap_or(0)
    };
    let best = (0..3).map(used).max().unwrap_or(0);
    assert!(best >= KEYS / 2, "of {KEYS} rows {best} were foreseen");
}
