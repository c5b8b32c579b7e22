//! The suite that tests the harness: units whose outcome is known.

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE};

pub static PLANTED: Suite = Suite {
    name: "planted",
    about: "units that a false runahead breaks, to see that it is found",
    script: include_str!("../../prepare/planted.sh"),
    command: |unit, _, _| Command::new(&[&format!("./{unit}")], TREE, Format::Tap),
    limit: 5,
    writes: true,
    slow: "slow",
    unplanted: &[("cold", "for the sake of the harness's own tests")],
    ..SUITE
};
