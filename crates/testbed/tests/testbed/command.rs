//! The command: exit codes, one sentence on stderr, and an ordinary user's share from start to end.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use runahead_testbed::{Disk, Share};

use crate::test_helpers::alone;

const EXE: &str = env!("CARGO_BIN_EXE_runahead-testbed");

fn testbed(args: &[&str]) -> Output {
    Command::new(EXE).args(args).output().unwrap()
}

fn assert_fails(args: &[&str], code: i32, mentions: &str) {
    let output = testbed(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(text.contains(mentions), "{args:?}: {text}");
    if code == 1 {
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    }
}

#[test]
fn wrong_command_lines_exit_with_2() {
    assert_fails(&["disk", "up", "--latency", "fast", "/tmp"], 2, "fast");
    assert_fails(&["disk", "up", "--latency", "5", "/tmp"], 2, "unit");
    assert_fails(&["disk", "up", "--size=-3", "/tmp"], 2, "--size");
    assert_fails(&["disk", "up", "--size", "4KiB", "/tmp"], 2, "16 MiB");
    assert_fails(&["disk", "up", "--parallel", "1000", "/tmp"], 2, "128");
    assert_fails(&["disk", "up", "--spindles", "0", "/tmp"], 2, "spindles");
    assert_fails(&["disk", "up", "--spindles", "2", "--stripe", "100", "/tmp"], 2, "stripe");
    assert_fails(&["disk", "up", "--stripe", "64KiB", "/tmp"], 2, "--spindles");
    assert_fails(&["share", "up", "--jitter", "200%", "/tmp", "/tmp"], 2, "200%");
    assert_fails(&[], 2, "Usage");
}

#[test]
fn impossible_things_exit_with_1_and_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    for args in [["stats", path], ["cold", path]] {
        assert_fails(&args, 1, "nothing is up");
    }
    assert_fails(&["disk", "down", path], 1, "nothing is up");
    assert_fails(&["delay", path, "on"], 1, "nothing is up");
    assert_fails(&["stats", "/no/such/place"], 1, "not a directory");
}

#[test]
fn a_share_through_the_command() {
    crate::need!(Share::probe());
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    let (source, dir) = (temp.path().join("source"), temp.path().join("share"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(source.join("f"), "x").unwrap();
    let (source, dir) = (source.to_str().unwrap(), dir.to_str().unwrap());
    let ok = |args: &[&str]| {
        let output = testbed(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    ok(&["share", "up", "--latency", "5ms", source, dir]);
    assert_fails(&["disk", "down", dir], 2, "share down");
    std::fs::read(Path::new(dir).join("f")).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&ok(&["stats", "--json", "--reset", dir])).unwrap();
    assert_eq!(json["reads"], 1);
    ok(&["cold", dir]);
    std::fs::read(Path::new(dir).join("f")).unwrap();
    assert!(ok(&["stats", dir]).contains("reads            1 "));
    // A reader that is gone before it is written to, and one that is full.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let reset = ["stats", "--reset", dir];
    let output = Command::new(EXE).args(reset).stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(ok(&["stats", dir]).contains("reads            0 "));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(EXE).args(reset).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"), "{output:?}");
    ok(&["delay", dir, "off"]);
    assert!(ok(&["stats", dir]).contains("delay            off"));
    ok(&["share", "down", dir]);
    assert_fails(&["stats", dir], 1, "nothing is up");
}

/// Runs a script in a mount namespace of its own, which ends with it: an empty directory is `$1`,
/// this program `$2`.
fn in_a_mount_namespace(script: &str) {
    let temp = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(temp.path())
        .arg(EXE)
        .output();
    let output = match output {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: unshare(1) is not installed");
            return;
        }
        other => other.unwrap(),
    };
    assert!(output.status.success(), "{output:?}");
}

/// Runs in a mount namespace of its own, where every user can open /dev/fuse as on an ordinary
/// system.
#[test]
fn an_ordinary_user_has_shares_too() {
    crate::need!(Share::probe());
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become an ordinary user; the other tests ran as one");
        return;
    }
    let script = r#"
        set -e
        cd "$1"
        mount --make-rprivate /
        mknod fuse c 10 229
        chmod 666 fuse
        mount --bind fuse /dev/fuse
        chmod 755 .
        cp "$2" testbed
        mkdir source share
        echo content > source/file
        chown -R 65534:65534 source share
        exec setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_RUNTIME_DIR sh -ec '
            ./testbed share up --latency 5ms source share
            trap "./testbed share down share" EXIT
            grep -q content share/file
            ./testbed stats --reset share | grep -q "reads            1 "
            grep -q content share/file
            ./testbed stats --reset share | grep -q "reads            0 "
            ./testbed cold share
            grep -q content share/file
            ./testbed stats --reset share | grep -q "reads            1 "
            umask 0333
            echo read-only > share/made
            grep -q read-only source/made
            ! ./testbed cold
            ! ./testbed disk up share
        '
    "#;
    in_a_mount_namespace(script);
}

/// Servers of this program.
fn servers() -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let exe = Path::new(EXE).canonicalize().unwrap();
    pids.filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|at| at == exe))
        .collect()
}

/// No process can reach it any more. A server that is killed as the last process of that namespace
/// would have to answer the requests by which the kernel then unmounts its disk.
#[test]
fn a_disk_ends_with_the_mount_namespace_that_it_was_made_in() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let before = servers();
    let script = r#"set -e
        mount --make-rprivate /
        cd "$1"
        mkdir disk
        "$2" disk up --size 64MiB disk
        echo changed > disk/file
        readlink /proc/[0-9]*/exe | grep -c "^$(readlink -f "$2")$""#;
    in_a_mount_namespace(script);
    let until = Instant::now() + Duration::from_secs(20);
    while servers().iter().any(|server| !before.contains(server)) {
        assert!(Instant::now() < until, "the server is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}
