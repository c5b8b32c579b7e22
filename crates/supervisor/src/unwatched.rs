//! Which programs need not be followed for a while (`abi::unwatched`): those that start nothing, were started often of late, and did
//! not wait when they were followed, while nobody in the session waits.
//!
//! What speaks for a program is never older than [`RECENT`], and holds for [`WHILE`]; then one of its starts is followed
//! again. So whoever starts a program now and then (at a shell's prompt, say) has it followed each time, and a loop whose
//! programs come to data that is not in memory is noticed after a few of them. As soon as a process that is followed
//! waits, everything is, until there has been no wait for [`CALM`].

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;
use nix::unistd::Pid;
use runahead_abi::device_number;
use runahead_abi::unwatched::ProgramKey;

use crate::waits::Waits;

/// So many starts of a program must have been followed within [`RECENT`].
const OFTEN: u32 = 8;
/// See the module's text.
const RECENT: Duration = Duration::from_secs(5);
/// See the module's text.
const WHILE: Duration = Duration::from_millis(250);
/// See the module's text.
const CALM: Duration = Duration::from_millis(500);
/// Programs that are remembered at most.
const PROGRAMS_MAX: usize = 1024;

/// What is known of a program.
struct Known {
    /// It executes others, of which nothing is known when it starts.
    starts_others: bool,
    /// Starts that were followed since then.
    followed: (u32, Instant),
}

/// See the module's text.
pub struct Unwatched {
    waits: Arc<Waits>,
    /// `None`: everything is followed.
    known: Option<Mutex<HashMap<ProgramKey, Known>>>,
}

impl Unwatched {
    /// Nothing is known yet, or everything is to be followed.
    pub fn new(waits: Arc<Waits>, follow_all: bool) -> Self {
        Unwatched { waits, known: (!follow_all).then(Mutex::default) }
    }

    /// The program at `place` (`O_PATH`) is about to be followed, into which `process` turns itself.
    pub fn executes(&self, process: Pid, place: &OwnedFd) {
        if self.known.is_none() {
            return;
        }
        if let Some(parent) = key(&format!("/proc/{process}/exe")) {
            self.change(parent, |known| known.starts_others = true);
        }
        let Some(program) = key(&format!("/proc/self/fd/{}", place.as_raw_fd())) else { return };
        let now = Instant::now();
        let is_quiet = self.change(program, |known| {
            let (count, since) = known.followed;
            let is_over = now.duration_since(since) > RECENT;
            known.followed = if is_over { (1, now) } else { (count.saturating_add(1), since) };
            !known.starts_others && known.followed.0 > OFTEN
        });
        if is_quiet == Some(true) && self.waits.is_calm(CALM) {
            self.waits.leave_unwatched(program, WHILE);
        }
    }

    /// `process` waits.
    pub fn waits(&self, process: Pid) {
        if self.known.is_none() {
            return;
        }
        self.waits.watch_all();
        if let Some(program) = key(&format!("/proc/{process}/exe")) {
            self.change(program, |known| known.followed = (0, Instant::now()));
        }
    }

    fn change<T>(&self, program: ProgramKey, change: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let mut all = self.known.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PROGRAMS_MAX && !all.contains_key(&program) {
            all.clear();
        }
        let new = || Known { starts_others: false, followed: (0, Instant::now()) };
        Some(change(all.entry(program).or_insert_with(new)))
    }
}

/// That of the file at `path`, if it can be told. No server is asked, who may not answer.
fn key(path: &str) -> Option<ProgramKey> {
    let path = CString::new(path).ok()?;
    // SAFETY: zero is valid for it.
    let mut it: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, what) = (libc::AT_STATX_DONT_SYNC, libc::STATX_INO);
    // SAFETY: a string, and a place for the answer.
    let told = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, what, &mut it) };
    let device = device_number(it.stx_dev_major, it.stx_dev_minor);
    (told == 0).then(|| ProgramKey::new(device, it.stx_ino))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    use runahead_abi::AgentConfig;

    use super::*;
    use crate::memory;

    fn unwatched(follow_all: bool) -> Unwatched {
        let file = memory::agent_file().expect("memory for a file");
        let front = memory::fill(&file, &[0; AgentConfig::CHANGES_IN], &[]).expect("room in it");
        Unwatched::new(Arc::new(Waits::new(front, 1000)), follow_all)
    }

    /// A program, and a process that starts it, or waits: this one.
    struct Starts(OwnedFd, ProgramKey);

    impl Starts {
        fn of(path: &str) -> Self {
            let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
            Starts(file.expect("it is there").into(), key(path).expect("it is there"))
        }

        fn often(&self, unwatched: &Unwatched) -> bool {
            (0..=OFTEN).for_each(|_| unwatched.executes(Pid::this(), &self.0));
            unwatched.waits.is_unwatched(self.1)
        }
    }

    #[test]
    fn who_starts_often_and_waits_for_nothing_is_left_unwatched() {
        let (all, shell) = (unwatched(false), Starts::of("/bin/sh"));
        unwatched(true).executes(Pid::this(), &shell.0);
        assert!(!shell.often(&unwatched(true)), "all are to be followed");
        all.executes(Pid::this(), &shell.0);
        assert!(!all.waits.is_unwatched(shell.1), "once is not often");
        assert!(shell.often(&all));
        // This program waits: everybody is followed, and it has to begin anew.
        all.waits(Pid::this());
        assert!(!all.waits.is_unwatched(shell.1));
        all.executes(Pid::this(), &shell.0);
        assert!(all.waits.is_unwatched(shell.1), "but what is known of others stays known");
        // Somebody else has waited of late.
        all.waits.watch_all();
        all.waits.waited(7, Duration::from_millis(1));
        assert!(!shell.often(&all));
    }

    #[test]
    fn who_starts_others_is_always_followed() {
        let (all, ourselves) = (unwatched(false), Starts::of("/proc/self/exe"));
        // (It is itself that starts it.)
        assert!(!ourselves.often(&all));
    }
}
