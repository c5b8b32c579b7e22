//! Commands in containers, with a container runtime's own rules: its profile of system calls, few
//! tasks, little memory, an ordinary user. The same commands run in the same containers, with and
//! without runahead.

use std::fs;
use std::path::Path;
use std::process::Command;

use runahead_tests::{
    End, Fixture, Outcome, available, fixture, installed, number, root, runahead, scratch,
};
use serde_json::Value;

const IMAGE: &str = "runahead-tests";
/// Applets of BusyBox that the image has, besides its shell.
const APPLETS: [&str; 8] = ["sh", "cat", "md5sum", "sleep", "seq", "id", "grep", "find"];
/// Podman, so that it needs neither a service nor a registry, nor a driver of the kernel's.
const PODMAN: [&str; 8] = [
    "podman",
    "--runtime",
    "runc",
    "--cgroup-manager",
    "cgroupfs",
    "--storage-driver",
    "vfs",
    "--log-level=error",
];

fn possible() -> Result<(), String> {
    root()?;
    installed("podman")?;
    installed("runc")?;
    fs::metadata("/bin/busybox").map_err(|e| format!("/bin/busybox (busybox-static): {e}"))?;
    Ok(())
}

fn podman() -> Command {
    let mut command = Command::new(PODMAN[0]);
    command.args(&PODMAN[1..]);
    command
}

fn mode(bits: u32) -> fs::Permissions {
    <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(bits)
}

/// Makes the image: a shell, and runahead.
fn import() {
    let root = scratch().join("image");
    for dir in ["bin", "tmp", "data", "out"] {
        fs::create_dir_all(root.join(dir)).expect("the scratch directory is ours");
    }
    // What is mounted there takes its mode from the image, whatever `--tmpfs` says.
    fs::set_permissions(root.join("tmp"), mode(0o1777)).expect("it is ours");
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("it can be read");
    fs::copy(runahead(), root.join("bin/runahead")).expect("it can be read");
    for name in APPLETS {
        let _ = std::os::unix::fs::symlink("busybox", root.join("bin").join(name));
    }
    let archive = scratch().join("image.tar");
    let tar = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status();
    assert!(tar.expect("tar is installed").success());
    let import = podman().args(["import", "--quiet"]).arg(&archive).arg(IMAGE).output();
    let import = import.expect("podman can be run");
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
}

/// Runs `script` in a container with `options`, behind `front`, from a cold disk.
fn run(fixture: &Fixture, out: &Path, options: &[&str], front: &[&str], script: &str) -> Outcome {
    fixture.reset();
    let (data, out) = (fixture.dir().display(), out.display());
    let (data, out) = (format!("--volume={data}:/data:ro"), format!("--volume={out}:/out"));
    let mut argv = PODMAN.to_vec();
    argv.extend(["run", "--rm", "--network=none", "--ulimit=nofile=1024:1024", &data, &out]);
    argv.push("--ulimit=nproc=4096:4096");
    argv.extend(options);
    argv.extend([IMAGE]);
    argv.extend(front);
    argv.extend(["/bin/sh", "-c", script]);
    fixture.run(&argv).run()
}

#[test]
fn commands_in_containers_do_as_without() {
    let (Some(()), Some(fixture)) = (available(possible()), available(fixture())) else { return };
    import();
    let version = podman()
        .args([
            "run",
            "--rm",
            "--network=none",
            "--ulimit=nofile=1024:1024",
            "--ulimit=nproc=4096:4096",
        ])
        .args([IMAGE, "/bin/runahead", "--version"])
        .output()
        .expect("podman can be run");
    let said = || String::from_utf8_lossy(&version.stderr).into_owned();
    let starts = version.status.success().then_some(());
    // It needs a runahead without libraries (`make build`), and control groups.
    if available(starts.ok_or_else(|| format!("runahead in a container: {}", said()))).is_none() {
        return;
    }
    let out = scratch().join("out");
    fs::create_dir_all(&out).expect("the scratch directory is ours");
    fs::set_permissions(&out, mode(0o777)).expect("it is ours");

    let one_by_one = "id; for f in /data/many/*; do md5sum $f; done; exit 7";
    let crowd = "for n in $(seq 60); do cat /data/many/$(($n % 30 + 10)) >/tmp/$n & done; wait; \
                 cat /tmp/* | md5sum";
    let walk = "find /data -name '*[13]' -exec grep -c e {} + | md5sum";
    let limits: [(&str, &[&str]); 4] = [
        ("the runtime's own", &[]),
        ("few tasks", &["--pids-limit=100"]),
        ("little memory", &["--memory=64m"]),
        (
            "an ordinary user, few tasks, little memory",
            &["--user=1000", "--pids-limit=100", "--memory=64m", "--tmpfs=/tmp:mode=1777"],
        ),
    ];
    for (name, options) in limits {
        for script in [one_by_one, crowd, walk] {
            let plain = run(&fixture, &out, options, &[], script);
            assert!(matches!(plain.end, End::Exit(0 | 7)), "{name}, natively: {plain:?}");
            assert_eq!(plain.complaints(), "", "{name}, natively: {script}");
            let stats = out.join("stats.json");
            let _ = fs::remove_file(&stats);
            let front = ["/bin/runahead", "run", "--stats=json:/out/stats.json", "--"];
            let ahead = run(&fixture, &out, options, &front, script);
            let told = |it: &Outcome| (it.end, it.text(), it.complaints());
            assert_eq!(told(&ahead), told(&plain), "{name}: {script}");
            let stats = fs::read(&stats).expect("statistics were written");
            let stats: Value = serde_json::from_slice(&stats).expect("they are JSON");
            let syncs = number(&stats, "syncs/count");
            eprintln!("{name}: {syncs} shadows");
            // A crowd that takes the tasks there are leaves none for shadows.
            let room = script == one_by_one || !options.contains(&"--pids-limit=100");
            assert!(syncs > 0 || !room, "{name}: {script}: no shadows: {stats:#}");
        }
    }
    let _ = podman().args(["rmi", "--force", IMAGE]).output();
}
