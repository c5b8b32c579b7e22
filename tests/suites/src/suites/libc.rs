//! musl's libc-test, with musl: programs linked both ways.

use super::{Command, Suite, TREE, argv};
use crate::results::Format;

/// See the module's text.
pub static LIBC_TEST: Suite = Suite {
    name: "libc-test",
    about: "musl's libc-test (`functional`, `regression`), with waits forced into those linked dynamically",
    script: include_str!("../../prepare/libc.sh"),
    command: |unit, _, _| Command {
        argv: argv(&[&format!("./{unit}.exe")]),
        dir: TREE.to_owned(),
        env: vec![("LD_PRELOAD", format!("{TREE}/waits.so"))],
        format: Format::Status,
    },
    limit: 60,
    writes: false,
    grows: None,
    quick: false,
    slow: &[],
    unplanted: &[],
};
