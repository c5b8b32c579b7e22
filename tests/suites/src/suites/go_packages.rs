//! Tests of Go's standard library, one unit for each package, with `-short` as Go's own `all.bash`
//! has it.

use std::path::Path;

use crate::results::report_format::Format;
use crate::suites::suite_definition::{Command, SUITE, Suite, TREE, WORK};

pub static GO: Suite = Suite {
    name: "go",
    about: "Go's standard library (`go test -short`), compiled beforehand",
    script: include_str!("../../prepare/go.sh"),
    command,
    limit: 600,
    grows: Some("gocache"),
    slow: SLOW,
    ..SUITE
};

fn command(unit: &str, version: &str, _tree: &Path) -> Command {
    let program = format!("{TREE}/tests/{}.test", unit.replace('/', "-"));
    let words = [&program, verbose(version), "-test.short", "-test.timeout=20m"];
    Command::new(&words, format!("{TREE}/go/src/{unit}"), Format::Go)
        .env("GOROOT", format!("{TREE}/go"))
        .env("GOCACHE", format!("{WORK}/gocache"))
        .env("GOPATH", format!("{WORK}/gopath"))
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("PATH", format!("{TREE}/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"))
}

/// Option for a report. Since 1.20 results can be told from what tests print themselves.
fn verbose(version: &str) -> &'static str {
    let minor = version.strip_prefix("Go 1.").and_then(|rest| rest.split('.').next());
    match minor.and_then(|minor| minor.parse::<u32>().ok()) {
        Some(minor) if minor < 20 => "-test.v",
        _ => "-test.v=test2json",
    }
}

const SLOW: &str = "go/build internal/godebug internal/testenv net net/http os runtime runtime/pprof \
    runtime/trace syscall time";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_releases_know_only_v() {
        assert_eq!(verbose("Go 1.19.8"), "-test.v");
        assert_eq!(verbose("Go 1.20"), "-test.v=test2json");
        assert_eq!(verbose("Go 1.26.1"), "-test.v=test2json");
        assert_eq!(verbose("Go 2.0"), "-test.v=test2json");
    }
}
