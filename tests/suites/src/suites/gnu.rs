//! GNU command-line tools, each test a shell or Perl script of its own: thousands of processes.

use super::{Command, Suite, TREE, argv};
use crate::results::Format;

const SCRIPT: &str = include_str!("../../prepare/gnu.sh");

/// grep.
pub static GREP: Suite = Suite {
    name: "grep",
    about: "GNU grep's tests (`make check`)",
    script: SCRIPT,
    command: |unit, _, _| command("tests", unit),
    limit: 120,
    writes: true,
    grows: None,
    quick: true,
    slow: &["grep-dev-null-out"],
    unplanted: &[],
};

/// sed.
pub static SED: Suite = Suite {
    name: "sed",
    about: "GNU sed's tests (`make check`)",
    script: SCRIPT,
    command: |unit, _, _| command(".", unit),
    limit: 120,
    writes: true,
    grows: None,
    quick: true,
    slow: &[],
    unplanted: &[],
};

/// coreutils.
pub static COREUTILS: Suite = Suite {
    name: "coreutils",
    about: "GNU coreutils' tests (`make check`)",
    script: SCRIPT,
    command: |unit, _, _| command(".", unit),
    limit: 120,
    writes: true,
    grows: None,
    quick: false,
    slow: &[],
    unplanted: &[],
};

fn command(dir: &str, unit: &str) -> Command {
    Command {
        // -s: make's own lines are not part of what is tested.
        argv: argv(&["make", "-s", "check-TESTS", &format!("TESTS={unit}")]),
        dir: format!("{TREE}/{dir}"),
        env: Vec::new(),
        format: Format::Automake { stem: format!("tree/{dir}/{}", stem(unit)) },
    }
}

/// What automake calls a test's report, without `.trs`.
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
