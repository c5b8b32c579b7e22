//! Which programs need not be followed for a while (`abi::unwatched`): those that were started often of late, and when they were followed
//! neither waited nor lasted, while nobody in the session waits.
//!
//! A program that starts nothing is told by its file. One that starts others (a shell, `git`) takes all of them along,
//! and is a hundred programs in one: it is told by its file and what it is called to do ([`ProgramKey::called`]).
//!
//! What speaks for a program is never older than [`RECENT`], and holds for [`SPELL`]; then one of its starts is followed
//! again. So whoever starts a program now and then (at a shell's prompt, say) has it followed each time, and a loop whose
//! programs come to data that is not in memory is noticed after a few of them. As soon as a process that is followed
//! waits, everything is, until there has been no wait for [`CALM`].

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use runahead_abi::device_number;
use runahead_abi::unwatched::ProgramKey;

use crate::waits::Waits;

/// So many starts of a program must have been followed, each within [`RECENT`] of the one before.
const OFTEN: u32 = 3;
/// See the module's text. Longer than any spell, or no second one would ever follow.
const RECENT: Duration = Duration::from_secs(2);
/// See the module's text: the first, and as it grows with each start that is followed in between, the longest.
const SPELL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// See the module's text.
const CALM: Duration = Duration::from_millis(500);
/// Whoever is there after so long lasts, and might come to wait.
const BRIEF: Duration = Duration::from_millis(100);
/// Programs that are remembered at most.
const PROGRAMS_MAX: usize = 1024;

/// What is known of a program.
struct Known {
    /// It executes others, of which nothing is known when it starts.
    starts_others: bool,
    /// Starts that were followed, without a longer pause than [`RECENT`].
    followed: u32,
    /// The newest of them.
    newest: Option<(Pid, Instant)>,
    /// How long it is to be left alone next.
    spell: Duration,
}

impl Known {
    fn new() -> Self {
        Known { starts_others: false, followed: 0, newest: None, spell: SPELL.0 }
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.newest.is_some_and(|(_, since)| now.duration_since(since) <= RECENT)
    }

    /// `process` turns itself into it: for how long others that do need not be followed.
    fn starts(&mut self, process: Pid, now: Instant) -> Option<Duration> {
        let lasts = self.newest.is_some_and(|(process, since)| {
            now.duration_since(since) > BRIEF && kill(process, None) != Err(Errno::ESRCH)
        });
        if lasts || !self.is_recent(now) {
            (self.followed, self.spell) = (0, SPELL.0);
        }
        self.followed += 1;
        self.newest = Some((process, now));
        if self.followed <= OFTEN {
            return None;
        }
        let spell = self.spell;
        self.spell = SPELL.1.min(2 * spell);
        Some(spell)
    }
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

    /// The program at `place` (`O_PATH`) is about to be followed, into which `process` turns itself; what was to be executed, and how, is
    /// `called`.
    pub fn executes(&self, process: Pid, place: &OwnedFd, called: Option<ProgramKey>) {
        if self.known.is_none() {
            return;
        }
        if let Some(parent) = key(&format!("/proc/{process}/exe")) {
            self.change(parent, |known| known.starts_others = true);
        }
        let Some(program) = key(&format!("/proc/self/fd/{}", place.as_raw_fd())) else { return };
        let now = Instant::now();
        let starts_others = self.change(program, |known| known.starts_others) == Some(true);
        let told_by = if starts_others { called } else { Some(program) };
        let Some(told_by) = told_by else { return };
        if let Some(spell) = self.change(told_by, |known| known.starts(process, now)).flatten()
            && self.waits.is_calm(CALM)
        {
            self.waits.leave_unwatched(told_by, spell);
        }
    }

    /// Somebody waits: who starts has to prove itself anew.
    pub fn waits(&self) {
        let Some(known) = &self.known else { return };
        self.waits.watch_all();
        let mut all = known.lock().unwrap_or_else(PoisonError::into_inner);
        all.values_mut().for_each(|known| known.followed = 0);
    }

    fn change<T>(&self, program: ProgramKey, change: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let mut all = self.known.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PROGRAMS_MAX && !all.contains_key(&program) {
            let now = Instant::now();
            all.retain(|_, known| known.starts_others || known.is_recent(now));
            if all.len() >= PROGRAMS_MAX {
                all.clear();
            }
        }
        Some(change(all.entry(program).or_insert_with(Known::new)))
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

        fn called(&self, first: &[u8]) -> ProgramKey {
            self.1.called(first, b"")
        }

        /// Starts it often, called in this way; whether it, or what is called so, is then left unwatched.
        fn often(&self, unwatched: &Unwatched, first: &[u8]) -> bool {
            let called = self.called(first);
            (0..=OFTEN).for_each(|_| unwatched.executes(Pid::this(), &self.0, Some(called)));
            [self.1, called].into_iter().any(|key| unwatched.waits.is_unwatched(key))
        }
    }

    #[test]
    fn who_starts_often_and_waits_for_nothing_is_left_unwatched() {
        let (all, shell) = (unwatched(false), Starts::of("/bin/sh"));
        assert!(!shell.often(&unwatched(true), b""), "all are to be followed");
        all.executes(Pid::this(), &shell.0, None);
        assert!(!all.waits.is_unwatched(shell.1), "once is not often");
        assert!(shell.often(&all, b""));
        // Somebody waits: everybody is followed, and has to begin anew.
        all.waits();
        assert!(!all.waits.is_unwatched(shell.1));
        all.executes(Pid::this(), &shell.0, None);
        assert!(!all.waits.is_unwatched(shell.1));
        assert!(shell.often(&all, b""));
        // Somebody has waited of late.
        all.waits.watch_all();
        all.waits.waited(7, Duration::from_millis(1));
        assert!(!shell.often(&all, b""));
    }

    #[test]
    fn who_starts_others_is_told_by_what_it_is_called_to_do() {
        let (all, ourselves) = (unwatched(false), Starts::of("/proc/self/exe"));
        // (It is itself that starts it.)
        assert!(ourselves.often(&all, b"status"));
        assert!(!all.waits.is_unwatched(ourselves.1));
        assert!(all.waits.is_unwatched(ourselves.called(b"status")));
        assert!(!all.waits.is_unwatched(ourselves.called(b"clone")));
        (0..=OFTEN).for_each(|_| all.executes(Pid::this(), &ourselves.0, None));
        assert!(!all.waits.is_unwatched(ourselves.1), "nobody says how");
    }

    #[test]
    fn who_lasts_or_starts_now_and_then_is_followed() {
        let (mut known, begin) = (Known::new(), Instant::now());
        let (there, gone) = (Pid::this(), Pid::from_raw(i32::MAX));
        let mut after = |process, pause: Duration, starts: u32| {
            let told = (1..=starts).map(|n| known.starts(process, begin + n * pause));
            told.last().flatten()
        };
        let (brief, long) = (BRIEF / 2, RECENT + BRIEF);
        assert_eq!(after(gone, 2 * BRIEF, OFTEN), None);
        let grown = after(gone, 2 * BRIEF, OFTEN + 2);
        assert!(grown > Some(SPELL.0) && grown <= Some(SPELL.1), "{grown:?}");
        assert_eq!(after(gone, 2 * BRIEF, 100), Some(SPELL.1), "but not without end");
        assert_eq!(after(gone, long, 100), None, "now and then");
        assert_eq!(after(there, 2 * BRIEF, 100), None, "it is still there");
        assert!(after(there, brief, 100).is_some(), "for a moment yet");
    }

    #[test]
    fn programs_that_start_others_are_not_forgotten_for_many_calls() {
        let (all, ourselves) = (unwatched(false), Starts::of("/proc/self/exe"));
        for n in 0..3 * PROGRAMS_MAX as u64 {
            let called = ourselves.called(&n.to_le_bytes());
            all.executes(Pid::this(), &ourselves.0, Some(called));
        }
        let known = all.known.as_ref().map(|known| known.lock().map(|known| known.len()));
        assert!(known.is_some_and(|len| len.is_ok_and(|len| len <= PROGRAMS_MAX)));
        assert!(ourselves.often(&all, b"status"));
    }
}
