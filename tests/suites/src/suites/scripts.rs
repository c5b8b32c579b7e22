//! Scripts that are mostly pipes, a configure script and a build, each of which writes the same every time.

use super::{Command, Suite, TREE, WORK, argv};
use crate::results::Format;

/// See the module's text.
pub static SCRIPTS: Suite = Suite {
    name: "scripts",
    about: "scripts of pipes, a configure script, a build by `make -j2`: what they write",
    script: include_str!("../../prepare/scripts.sh"),
    command: |unit, _, _| Command {
        argv: argv(&["sh", &format!("{TREE}/check"), unit]),
        dir: WORK.into(),
        env: Vec::new(),
        format: Format::Status,
    },
    limit: 300,
    writes: false,
    grows: None,
    quick: false,
    slow: &["build", "configure"],
    unplanted: &[],
};
