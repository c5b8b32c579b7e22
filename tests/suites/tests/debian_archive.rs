//! The scripts download the newest version that the archive has, also if its lists name one
//! that its pool does not hold: tests of the scripts' functions with a planted archive.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use runahead_harness::write_program;
use runahead_tests::{available, installed, root};

const COMMON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/prepare/common.sh");

/// Lists as a mirror has them: not in order, of other things as well.
const LISTS: &str = "#!/bin/sh
[ \"$1 $2\" = 'madison tool' ] || exit 1
cat <<END
      tool | 1.36-7+deb12u3 | http://archive bookworm/main amd64 Packages
      tool | 1.36-9 | http://archive bookworm/main Sources
      tool | 1.36-10+deb12u4 | http://archive-security bookworm-security/main Sources
      tool | 1.36-10 | http://archive bookworm-updates/main Sources
      tool | 1.36-10 | http://archive bookworm/main Sources
END
";

/// A pool that holds the versions of `$HELD`. What is downloaded before it fails is left behind.
const POOL: &str = "#!/bin/sh
for word; do last=$word; done
echo \"asked for $last\" >&2
version=${last#*=}
mkdir tool-1.36
echo \"from $version\" >tool-1.36/README
tar -cJf tool_1.36.orig.tar.xz tool-1.36
echo \"$version\" >>versions
for held in $HELD; do [ \"$held\" != \"$version\" ] || exit 0; done
echo \"E: Failed to fetch tool_$version.dsc  404  Not Found\" >&2
exit 100
";

/// Has the scripts download the source of `tool` from a pool that holds `held`; `/mnt` is `dir`.
fn download(dir: &Path, held: &str) -> Output {
    let bin = dir.join("bin");
    fs::create_dir(&bin).expect("the directory is ours");
    for (name, text) in [("apt-cache", LISTS), ("apt-get", POOL)] {
        write_program(&bin.join(name), text, 0o755).expect("the directory is ours");
    }
    let usual = std::env::var("PATH").unwrap_or_default();
    Command::new("unshare")
        .args(["--mount", "--", "sh", "-c"])
        .arg("mount --bind \"$0\" /mnt && . \"$1\" && source tool /mnt/tree")
        .arg(dir)
        .arg(COMMON)
        .env("PATH", format!("{}:{usual}", bin.display()))
        .env("HELD", held)
        // The scripts have made their configuration already.
        .env("APT_CONFIG", "/dev/null")
        .output()
        .expect("unshare can be run")
}

fn possible() -> Result<(), String> {
    root()?;
    installed("unshare")?;
    installed("xz")
}

/// Returns the file that was unpacked, and the versions that were asked for.
fn unpacked(held: &str) -> (String, Vec<String>) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let output = download(dir.path(), held);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = |name: &str| {
        let text = fs::read_to_string(dir.path().join(name));
        text.unwrap_or_else(|e| panic!("{name}: {e}\n{said}")).trim().to_owned()
    };
    assert_eq!(text("version"), "tool 1.36");
    // Of versions that could not be had nothing is left.
    assert_eq!(text("download/versions").lines().count(), 1, "{said}");
    let asked = said.lines().filter_map(|line| line.strip_prefix("asked for "));
    (text("tree/README"), asked.map(str::to_owned).collect())
}

#[test]
fn the_newest_version_is_taken() {
    let Some(()) = available(possible()) else { return };
    let (readme, asked) = unpacked("1.36-9 1.36-10 1.36-10+deb12u4");
    assert_eq!(readme, "from 1.36-10+deb12u4");
    assert_eq!(asked, ["tool=1.36-10+deb12u4"]);
}

#[test]
fn one_that_the_pool_has_replaced_is_passed_over() {
    let Some(()) = available(possible()) else { return };
    let (readme, asked) = unpacked("1.36-9 1.36-10");
    assert_eq!(readme, "from 1.36-10");
    assert_eq!(asked, ["tool=1.36-10+deb12u4", "tool=1.36-10"]);
}

#[test]
fn nothing_to_be_had_is_said() {
    let Some(()) = available(possible()) else { return };
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    // A binary package of this version would do no good.
    let output = download(dir.path(), "1.36-7+deb12u3");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("asked for ").count(), 3, "each version once: {said}");
    assert!(said.lines().last().is_some_and(|line| line.contains("no version of tool")), "{said}");
    assert!(!dir.path().join("version").exists(), "{said}");
}
