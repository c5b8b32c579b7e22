//! Tests of Go's standard library, one unit for each package, with `-short` as Go's own `all.bash`
//! has it.

use std::path::Path;

use super::{Command, Suite, TREE, WORK, argv};
use crate::results::Format;

/// See the module's text.
pub static GO: Suite = Suite {
    name: "go",
    about: "Go's standard library (`go test -short`), compiled beforehand",
    script: include_str!("../../prepare/go.sh"),
    command,
    limit: 600,
    writes: false,
    grows: Some("gocache"),
    quick: false,
    slow: SLOW,
    unplanted: &[],
};

fn command(unit: &str, version: &str, _tree: &Path) -> Command {
    let program = format!("{TREE}/tests/{}.test", unit.replace('/', "-"));
    let path = format!("{TREE}/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    Command {
        argv: argv(&[&program, verbose(version), "-test.short", "-test.timeout=20m"]),
        dir: format!("{TREE}/go/src/{unit}"),
        env: vec![
            ("GOROOT", format!("{TREE}/go")),
            ("GOCACHE", format!("{WORK}/gocache")),
            ("GOPATH", format!("{WORK}/gopath")),
            ("GOPROXY", "off".into()),
            ("GOTOOLCHAIN", "local".into()),
            ("PATH", path),
        ],
        format: Format::Go,
    }
}

/// Since 1.20 results can be told from what tests print themselves.
fn verbose(version: &str) -> &'static str {
    let minor = version.strip_prefix("Go 1.").and_then(|rest| rest.split('.').next());
    match minor.and_then(|minor| minor.parse::<u32>().ok()) {
        Some(minor) if minor < 20 => "-test.v",
        _ => "-test.v=test2json",
    }
}

/// More than five seconds here.
const SLOW: &[&str] = &[
    "go/build",
    "internal/godebug",
    "internal/testenv",
    "net",
    "net/http",
    "os",
    "runtime",
    "runtime/pprof",
    "runtime/trace",
    "syscall",
    "time",
];

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
