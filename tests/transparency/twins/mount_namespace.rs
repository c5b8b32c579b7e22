//! Runs a test in a process with a mount namespace of its own.
//!
//! The disk is made cold by mounting it anew. A copy of the mount in another namespace, as of a
//! container that starts at that moment, would keep it warm.

use std::os::unix::process::CommandExt;
use std::process::Command;

const MARK: &str = "RUNAHEAD_TWINS_APART";

/// Runs `body`, which is the test called `name`, in a new process of this binary. Without root the
/// body runs here, and skips.
pub fn run(name: &str, body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() || runahead_tests::root().is_err() {
        return body();
    }
    let _apart = runahead_tests::apart();
    let words = runahead_tests::same_binary(&[name]);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env(MARK, "1");
    // SAFETY: two system calls between fork and exec, with constant arguments.
    unsafe { command.pre_exec(leave) };
    let status = command.status().expect("a test binary starts");
    assert!(status.success(), "{name}: {status}; it has said above what differs");
}

fn leave() -> std::io::Result<()> {
    // SAFETY: a flag; constant strings, and no data.
    let failed = unsafe {
        libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_SLAVE,
                std::ptr::null(),
            ) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
