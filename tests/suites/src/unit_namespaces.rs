//! Namespaces in which a unit runs, as a user without rights.
//!
//! Nothing that a unit does reaches the machine or the unit beside it: it has its own processes
//! (all of them end with it), its own network, which is a loopback, its own `/tmp` and `/dev/shm`,
//! and the slow disk at `/mnt`. Only stock programs are used for this, so that the command line can
//! be pasted into a shell.

use std::path::Path;

use crate::suites::suite_definition::{Command, WORK};

/// Shows `$0` at `/mnt` and unmounts all slow disks in this namespace, which began with a copy of
/// every mount: as long as a copy is left, that disk cannot be unmounted and made cold.
pub const AT_MNT: &str = "mount --bind \"$0\" /mnt || exit 125
mounts=$(cat /proc/mounts)
while read -r device at kind rest; do
    case $kind$device in
    ext4/dev/loop* | fuse.runahead-testbed*) [ \"$at\" = /mnt ] || umount -l \"$at\" ;;
    esac
done <<END
$mounts
END
";

/// The first process of the namespaces. It stays, to reap orphans: the tested program
/// must not be process 1, for which the kernel has rules of its own.
const FIRST: &str = "mount -t tmpfs -o mode=1777 tmpfs /tmp &&
mount -t tmpfs -o mode=1777 tmpfs /dev/shm && ip link set lo up || exit 125
ulimit -c 0
\"$@\"
exit $?";

/// Returns `argv` in namespaces where `disk` is `/mnt`, with root's rights.
fn as_root(disk: &Path, argv: &[String]) -> Vec<String> {
    let outer = [
        // Ends with the harness, after any end of it.
        "setpriv",
        "--pdeathsig=KILL",
        "setsid",
        "--wait",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--ipc",
        "--net",
        "--kill-child",
        "--",
        "sh",
        "-c",
    ];
    let mut all: Vec<String> = outer.map(str::to_owned).to_vec();
    all.push(format!("{AT_MNT}{FIRST}"));
    all.push(disk.to_string_lossy().into_owned());
    all.extend_from_slice(argv);
    all
}

/// Returns the command line that runs `command` on `disk`, behind `prefix` (runahead with its
/// options, or nothing).
pub fn argv(disk: &Path, command: &Command, prefix: &[String]) -> Vec<String> {
    let inner = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", "env", "-i"];
    let mut all: Vec<String> = inner.map(str::to_owned).to_vec();
    all.push(format!("--chdir={}", command.dir));
    let usual = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned()),
        ("HOME", WORK.to_owned()),
        ("TMPDIR", format!("{WORK}/tmp")),
        ("USER", "nobody".to_owned()),
        ("LOGNAME", "nobody".to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("LC_ALL", "C.UTF-8".to_owned()),
    ];
    // The later of two wins.
    all.extend(usual.iter().chain(&command.env).map(|(name, value)| format!("{name}={value}")));
    all.extend_from_slice(prefix);
    all.extend_from_slice(&command.argv);
    as_root(disk, &all)
}
