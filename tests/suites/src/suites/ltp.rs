//! The Linux Test Project: its tests of system calls, and Open POSIX's.

use super::{Command, Suite, TREE, argv};
use crate::results::{Format, Words};

const SCRIPT: &str = include_str!("../../prepare/ltp.sh");

/// System calls.
pub static LTP: Suite = Suite {
    name: "ltp",
    about: "The Linux Test Project's system calls, with waits forced into them",
    script: SCRIPT,
    command: |unit, _, _| {
        let line = format!("exec 2>&1; . {TREE}/units/{unit}");
        let path = format!("{TREE}/testcases/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        let mut command = command(&line, TREE.to_owned());
        command.env.extend([
            ("LTPROOT", TREE.to_owned()),
            ("PATH", path),
            ("KCONFIG_SKIP_CHECK", "1".into()),
            ("LTP_TIMEOUT_MUL", "3".into()),
        ]);
        Command { format: Format::Words(Words::Ltp), ..command }
    },
    limit: 60,
    writes: false,
    grows: None,
    quick: false,
    slow: &[],
    unplanted: &[],
};

/// Open POSIX: each test says by its status whether it passed.
pub static OPEN_POSIX: Suite = Suite {
    name: "open-posix",
    about: "Open POSIX's conformance tests, with waits forced into them",
    script: SCRIPT,
    command: |unit, _, _| {
        let (dir, name) = unit.rsplit_once('/').unwrap_or((".", unit));
        command(&format!("exec ./{name}.run-test 2>&1"), format!("{TREE}/{dir}"))
    },
    limit: 60,
    writes: false,
    grows: None,
    quick: false,
    slow: &[],
    unplanted: &[],
};

fn command(line: &str, dir: String) -> Command {
    Command {
        argv: argv(&["sh", "-c", line]),
        dir,
        env: vec![("LD_PRELOAD", format!("{TREE}/waits.so"))],
        format: Format::Status,
    }
}
