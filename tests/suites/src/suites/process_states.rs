//! Tests of debuggers and checkpointers, without these: programs whose state is hard to keep.

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE, WORK};

const STATES: Suite = Suite {
    command: |unit, _, _| {
        let check = format!("{TREE}/check");
        Command::new(&["sh", &check, unit], WORK, Format::Status)
    },
    limit: 20,
    ..SUITE
};

pub static RR: Suite = Suite {
    name: "rr",
    about: "rr's tests (`src/test`), without rr",
    script: include_str!("../../prepare/rr.sh"),
    ..STATES
};

pub static ZDTM: Suite = Suite {
    name: "zdtm",
    about: "CRIU's tests (`test/zdtm/static`), without CRIU",
    script: include_str!("../../prepare/zdtm.sh"),
    ..STATES
};
