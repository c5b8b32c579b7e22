//! Perl's core tests, one unit for each file of `t/`.

use std::path::Path;

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE, argv};

pub static PERL: Suite = Suite {
    name: "perl",
    about: "Perl's core tests (`t/TEST`), built with threads",
    script: include_str!("../../prepare/perl.sh"),
    command,
    limit: 120,
    writes: true,
    slow: "comp/utf.t io/crlf_through.t io/pipe.t io/through.t op/alarm.t op/fork.t op/sselect.t",
    ..SUITE
};

/// Starts a test as `t/TEST` does: basic ones with nothing, the others with options to find the
/// library, and all with the switches of their first line, some of which perl requires here.
fn command(unit: &str, _version: &str, tree: &Path) -> Command {
    let mut words = argv(&["./perl"]);
    if !["base/", "cmd/", "comp/"].iter().any(|basic| unit.starts_with(basic)) {
        words.extend(argv(&["-I..", "-MTestInit"]));
    }
    let text = std::fs::read(tree.join("t").join(unit)).unwrap_or_default();
    let first = text.split(|b| *b == b'\n').next().unwrap_or_default();
    words.extend(switches(&String::from_utf8_lossy(first)));
    words.push(unit.to_owned());
    let command = Command::new(&[], format!("{TREE}/t"), Format::Tap).env("PERL_CORE", "1");
    Command { argv: words, ..command }
}

/// Returns the switches in `#!./perl -w`.
fn switches(line: &str) -> Vec<String> {
    let after = line.strip_prefix("#!").and_then(|line| line.split_once("perl"));
    let words = after.map_or("", |(_, rest)| rest).split_whitespace();
    words.take_while(|word| word.starts_with('-')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_those_of_the_first_line() {
        assert_eq!(switches("#!./perl -w"), ["-w"]);
        assert_eq!(switches("#!./perl -T -w # taint"), ["-T", "-w"]);
        assert_eq!(switches("#!perl"), [""; 0]);
        assert_eq!(switches("# perl -w"), [""; 0]);
    }

    #[test]
    fn basic_tests_need_no_library() {
        let first = |unit| command(unit, "", Path::new("/nonexistent")).argv;
        assert_eq!(first("base/if.t"), ["./perl", "base/if.t"]);
        assert_eq!(first("op/fork.t"), ["./perl", "-I..", "-MTestInit", "op/fork.t"]);
    }
}
