//! Scripts that are mostly pipes, a configure script and a build, each of which writes the same
//! every time.

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE, WORK};

pub static SCRIPTS: Suite = Suite {
    name: "scripts",
    about: "scripts of pipes, a configure script, a build by `make -j2`: what they write",
    script: include_str!("../../prepare/scripts.sh"),
    command: |unit, _, _| {
        Command::new(&["sh", &format!("{TREE}/check"), unit], WORK, Format::Status)
    },
    slow: "build configure",
    ..SUITE
};
