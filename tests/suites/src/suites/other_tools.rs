//! Programs with test suites of their own make.

use crate::results::report_format::Format;
use crate::results::word_lines::Words;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE, WORK};

const TOOL: Suite = Suite { script: include_str!("../../prepare/tools.sh"), writes: true, ..SUITE };

pub static GIT: Suite = Suite {
    name: "git",
    about: "git's tests (`t/`)",
    script: include_str!("../../prepare/git.sh"),
    command: |unit, _, _| {
        let root = format!("--root={WORK}/trash");
        let command = in_dir("t", &["sh", unit, &root, "--no-bin-wrappers"], Format::Tap);
        // Results go beside the trash.
        command.env("TEST_OUTPUT_DIRECTORY", WORK)
    },
    ..TOOL
};

/// bash: each unit compares what a script writes with what it should.
pub static BASH: Suite = Suite {
    name: "bash",
    about: "bash's tests (`tests/run-*`)",
    command: |unit, _, _| {
        in_dir("tests", &["sh", unit], Format::Status)
            .env("THIS_SH", format!("{TREE}/bash"))
            .env("BUILD_DIR", TREE)
            .env("BASH_TSTOUT", format!("{WORK}/tmp/out"))
            .env("PATH", format!("{TREE}/tests:{TREE}:/usr/local/bin:/usr/bin:/bin"))
    },
    unplanted: &[(
        "run-read",
        "gives a read a tenth of a millisecond, and prints whether that was enough",
    )],
    ..TOOL
};

pub static MAKE: Suite = Suite {
    name: "make",
    about: "GNU make's tests (`run_make_tests.pl`)",
    command: |unit, _, _| {
        let words = ["perl", "-I.", "run_make_tests.pl", "-make", "../make", unit];
        in_dir("tests", &words, Format::Status)
    },
    ..TOOL
};

pub static TAR: Suite = Suite {
    name: "tar",
    about: "GNU tar's tests (`testsuite`)",
    command: |unit, _, _| {
        in_dir("tests", &["sh", "./testsuite", unit], Format::Words(Words::Autotest))
    },
    ..TOOL
};

pub static BUSYBOX: Suite = Suite {
    name: "busybox",
    about: "BusyBox's tests (`runtest`)",
    command: |unit, _, _| {
        in_dir("testsuite", &["sh", "./runtest", unit], Format::Words(Words::DejaGnu))
            .env("bindir", TREE)
    },
    ..TOOL
};

/// Redis: a server and its clients.
pub static REDIS: Suite = Suite {
    name: "redis",
    about: "Redis's tests (`runtest --single`)",
    command: |unit, _, _| {
        let words = ["sh", "./runtest", "--single", unit, "--clients", "1"];
        in_dir(".", &words, Format::Words(Words::Redis))
    },
    ..TOOL
};

/// libuv: an event loop, with threads that read.
pub static LIBUV: Suite = Suite {
    name: "libuv",
    about: "libuv's tests (`uv_run_tests`)",
    command: |unit, _, _| in_dir("build", &["./uv_run_tests", unit], Format::Tap),
    limit: 60,
    ..TOOL
};

pub static UTIL_LINUX: Suite = Suite {
    name: "util-linux",
    about: "util-linux's tests (`tests/ts/*/*`)",
    command: |unit, _, _| {
        let (dir, name) = unit.split_once('/').unwrap_or((".", unit));
        let script = format!("./{name}");
        let words = ["bash", &script, "--srcdir=../../..", "--builddir=../../.."];
        in_dir(&format!("tests/ts/{dir}"), &words, Format::Words(Words::UtilLinux))
    },
    ..TOOL
};

/// stress-ng: a little of each stressor, verified.
pub static STRESS_NG: Suite = Suite {
    name: "stress-ng",
    about: "stress-ng's stressors (`--verify`), with waits forced into them",
    script: include_str!("../../prepare/stress.sh"),
    command: |unit, _, _| {
        let (stressor, ops) = (format!("--{unit}"), format!("--{unit}-ops"));
        let program = format!("{TREE}/stress-ng");
        let stress = [program.as_str(), "--verify", &stressor, "1", &ops, "20"];
        let words = [&stress[..], &["--timeout", "4", "--temp-path", WORK]].concat();
        Command::new(&words, WORK, Format::Status).with_waits()
    },
    writes: false,
    limit: 60,
    ..TOOL
};

fn in_dir(dir: &str, words: &[&str], format: Format) -> Command {
    // Some results are written where errors are.
    let words = [&["sh", "-c", "exec \"$0\" \"$@\" 2>&1"], words].concat();
    Command::new(&words, format!("{TREE}/{dir}"), format)
}
