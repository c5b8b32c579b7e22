//! The Linux Test Project: its tests of system calls, and Open POSIX's.

use crate::results::report_format::Format;
use crate::results::word_lines::Words;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE};

/// Tests of system calls.
pub static LTP: Suite = Suite {
    name: "ltp",
    about: "The Linux Test Project's system calls, with waits forced into them",
    command: |unit, _, _| {
        let line = format!("exec 2>&1; . {TREE}/units/{unit}");
        let path = format!("{TREE}/testcases/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        Command::new(&["sh", "-c", &line], TREE, Format::Words(Words::Ltp))
            .with_waits()
            .env("LTPROOT", TREE)
            .env("PATH", path)
            .env("KCONFIG_SKIP_CHECK", "1")
            .env("LTP_TIMEOUT_MUL", "3")
    },
    ..TOOL
};

/// Tests of Open POSIX, each of which says by its status whether it passed.
pub static OPEN_POSIX: Suite = Suite {
    name: "open-posix",
    about: "Open POSIX's conformance tests, with waits forced into them",
    command: |unit, _, _| {
        let (dir, name) = unit.rsplit_once('/').unwrap_or((".", unit));
        let line = format!("exec ./{name}.run-test 2>&1");
        Command::new(&["sh", "-c", &line], format!("{TREE}/{dir}"), Format::Status).with_waits()
    },
    ..TOOL
};

const TOOL: Suite = Suite { script: include_str!("../../prepare/ltp.sh"), limit: 60, ..SUITE };
