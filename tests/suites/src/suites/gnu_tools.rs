//! GNU command-line tools, each test a shell or Perl script of its own: thousands of processes.

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE};

const TOOL: Suite = Suite {
    script: include_str!("../../prepare/gnu.sh"),
    command: |unit, _, _| command(".", unit),
    limit: 120,
    writes: true,
    ..SUITE
};

pub static GREP: Suite = Suite {
    name: "grep",
    about: "GNU grep's tests (`make check`)",
    command: |unit, _, _| command("tests", unit),
    quick: true,
    slow: "grep-dev-null-out",
    ..TOOL
};

pub static SED: Suite =
    Suite { name: "sed", about: "GNU sed's tests (`make check`)", quick: true, ..TOOL };

pub static COREUTILS: Suite =
    Suite { name: "coreutils", about: "GNU coreutils' tests (`make check`)", ..TOOL };

fn command(dir: &str, unit: &str) -> Command {
    let tests = format!("TESTS={unit}");
    let format = Format::Automake { stem: format!("tree/{dir}/{}", stem(unit)) };
    // -s: make's own lines are not part of what is tested.
    Command::new(&["make", "-s", "check-TESTS", &tests], format!("{TREE}/{dir}"), format)
}

/// Name that automake gives a test's report, without `.trs`.
fn stem(unit: &str) -> &str {
    let known = [".sh", ".pl", ".xpl"];
    known.iter().find_map(|extension| unit.strip_suffix(extension)).unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_named_after_tests() {
        let stem = |unit| match command("tests", unit).format {
            Format::Automake { stem } => stem,
            _ => unreachable!(),
        };
        assert_eq!(stem("backref"), "tree/tests/backref");
        assert_eq!(stem("misc/nice.sh"), "tree/tests/misc/nice");
        assert_eq!(stem("rm/fail-eperm.xpl"), "tree/tests/rm/fail-eperm");
        assert_eq!(stem("misc/cut.pl"), "tree/tests/misc/cut");
    }
}
