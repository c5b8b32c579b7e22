//! Processes that may read less than the supervisor.

use std::os::unix::fs::PermissionsExt;

use rustix::io::Errno;
use rustix::process::{Pid, geteuid};

use crate::eventually;
use crate::fake_target::Target;

fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        assert!(std::env::var_os("RUNAHEAD_SKIP_NONE").is_none(), "would be skipped: needs root");
        eprintln!("skipped: needs root, to make a process of another user");
    }
    root
}

/// Commands that run `sleep` with fewer rights, or in another namespace.
const LESS: [&[&str]; 6] = [
    &["setpriv", "--reuid=65534", "--clear-groups", "sleep", "60"],
    &["setpriv", "--regid=65534", "--clear-groups", "sleep", "60"],
    &["setpriv", "--groups=65534", "sleep", "60"],
    &["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search", "sleep", "60"],
    &["unshare", "--mount", "sleep", "60"],
    &["unshare", "--user", "sleep", "60"],
];

/// True if the process executes `sleep`.
fn is_asleep(pid: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim() == "sleep"
}

#[test]
fn files_that_a_process_may_not_read_are_not_read_for_it() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "for root").expect("ours");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("ours");
    let path = secret.to_str().expect("plain");
    // A process with the supervisor's rights has its hints followed: the test can detect a read.
    let mut same = Target::new(&["sleep", "60"]);
    let seen = same.join().expect("it has our rights");
    same.go_on();
    assert!(eventually(|| is_asleep(same.pid())));
    assert!(seen.hint(path, 0));
    assert!(
        eventually(|| same.submitted() == 1),
        "the test sees nothing: {:?}",
        same.common.admission.degraded.all()
    );
    for less in LESS {
        let mut target = Target::new(less);
        let seen = target.join().expect("it has our rights");
        target.go_on();
        assert!(eventually(|| is_asleep(target.pid())), "{less:?} does not run");
        assert!(seen.hint(path, 0));
        assert!(eventually(|| seen.shared().rings[0].is_empty()), "{less:?}: not looked at");
        assert!(
            eventually(|| !target.common.admission.degraded.all().is_empty()),
            "{less:?}: nobody says so"
        );
        assert_eq!(target.submitted(), 0, "read for {less:?}");
        // The refusal is permanent, and the process may not join either.
        seen.hint(path, 1);
        assert!(eventually(|| seen.shared().rings[2].is_empty()));
        assert_eq!(target.submitted(), 0, "read for {less:?}");
        assert_eq!(target.join().err(), Some(Errno::PERM), "{less:?} may join");
    }
}
