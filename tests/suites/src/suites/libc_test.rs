//! musl's libc-test, with musl: programs linked both ways.

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE};

pub static LIBC_TEST: Suite = Suite {
    name: "libc-test",
    about: "musl's libc-test (`functional`, `regression`), with waits forced into those linked dynamically",
    script: include_str!("../../prepare/libc.sh"),
    command: |unit, _, _| {
        Command::new(&[&format!("./{unit}.exe")], TREE, Format::Status).with_waits()
    },
    limit: 60,
    ..SUITE
};
