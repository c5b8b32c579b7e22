//! Large mappings of files that a process has made of late, and what it may have waited in their
//! page faults. [`mapped_usage`](super::mapped_usage) records their use.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;
use runahead_estimators::{Identity, Micros, TickRate, Ticks};

use super::page_residency::PageSource;
use super::stall_probing::SHORT_WAIT;
use crate::descriptor_names::NAMES;
use crate::path_text;
use crate::plane::{self, signal_block};
use crate::spin_lock::Lock;
use crate::sys::{self, Fd};
use crate::time_stamp::ticks;

/// Page faults that a process has waited for when it joins.
pub(super) const JOIN_FAULTS: u64 = 32;
/// Large mappings that are remembered.
const LARGE_MAPPINGS: usize = 16;
/// Longest file name of a remembered mapping, in bytes.
const NAME_MAX: usize = 248;

/// The most recent large mappings of files, and the start of the process.
pub(super) struct LargeMappings {
    mappings: Lock<[LargeMapping; LARGE_MAPPINGS]>,
    next: AtomicU64,
    /// Time-stamp of the start of the process.
    process_start_ticks: AtomicU64,
}

/// A large mapping of a file.
#[derive(Clone, Copy)]
pub(super) struct LargeMapping {
    /// First address; 0: unused entry.
    start: u64,
    /// File offset at which the mapping begins, in bytes.
    pub(super) offset: u64,
    /// Identity of the file.
    file: Identity,
    /// True if the file is this user's, so that mincore(2) tells the truth.
    is_own: bool,
    name: [u8; NAME_MAX],
    name_len: usize,
}

impl LargeMapping {
    const fn none() -> Self {
        LargeMapping {
            start: 0,
            offset: 0,
            file: Identity::ROOT,
            is_own: false,
            name: [0; NAME_MAX],
            name_len: 0,
        }
    }

    /// Identity and name by which the supervisor knows the file.
    pub(super) fn file(&self) -> (Identity, &[u8]) {
        (self.file, &self.name[..self.name_len])
    }

    /// Source that knows which pages of the mapping are present.
    pub(super) fn pages(&self) -> Option<PageSource> {
        match plane::has_threads() {
            // Another thread could notice a descriptor.
            true => self.is_own.then_some(PageSource::Cached),
            false => PageSource::of_this_process().ok(),
        }
    }
}

impl LargeMappings {
    pub(super) const fn new() -> Self {
        let all = Lock::new([const { LargeMapping::none() }; LARGE_MAPPINGS]);
        LargeMappings {
            mappings: all,
            next: AtomicU64::new(0),
            process_start_ticks: AtomicU64::new(0),
        }
    }

    /// Sets the time-stamp of the process's start.
    pub(super) fn start(&self, now: Ticks) {
        self.process_start_ticks.store(now.0, Relaxed);
    }

    /// Releases the lock in a forked child.
    pub(super) fn start_in_child(&self) {
        self.mappings.break_open();
    }

    /// Remembers that the file `fd` was mapped at `at`, from `offset`.
    pub(super) fn note(&self, at: u64, fd: Fd, offset: u64) {
        let mut text = [0u8; PATH_MAX + 1];
        let Some(len) = path_text::directory(fd, &mut text) else { return };
        let owner = sys::statx_fd(fd, k::STATX_UID).map(|stat| stat.stx_uid);
        let user = sys::users().map(|[_, user, _]| user);
        let is_own = user == Ok(0) || owner == user;
        let file = NAMES.identity(fd);
        self.add(
            LargeMapping { start: at, offset, file, is_own, ..LargeMapping::none() },
            &text[..len],
        );
    }

    fn add(&self, mut large: LargeMapping, name: &[u8]) {
        let Some(room) = large.name.get_mut(..name.len()) else { return };
        room.copy_from_slice(name);
        large.name_len = name.len();
        let place = self.next.fetch_add(1, Relaxed) as usize % LARGE_MAPPINGS;
        // A signal handler that jumps away must not leave the lock held.
        let mask = signal_block::begin();
        self.mappings.try_with(|all| all[place] = large);
        signal_block::end(mask);
    }

    /// Takes the mapping that begins at `at` out of the list. Signals are blocked.
    pub(super) fn take(&self, at: u64) -> Option<LargeMapping> {
        self.mappings.try_with(|all| {
            let found = all.iter_mut().find(|large| large.start == at)?;
            let large = *found;
            found.start = 0;
            Some(large)
        })?
    }

    /// Lower bound of what this process has waited in page faults.
    pub(super) fn waited(&self, rate: TickRate) -> Micros {
        let (faults, busy_us) = sys::process_major_faults();
        let start = Ticks(self.process_start_ticks.load(Relaxed));
        let elapsed = ticks().saturating_sub(start).to_micros(rate);
        least_wait(faults, elapsed.saturating_sub(Micros(busy_us)))
    }
}

/// Lower bound of the wait in `faults` page faults of a process that was idle for `idle`; 0 if
/// they were few or too short to gain from.
fn least_wait(faults: u64, idle: Micros) -> Micros {
    if faults >= JOIN_FAULTS && idle / faults >= SHORT_WAIT {
        SHORT_WAIT * faults
    } else {
        Micros(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_in_faults_are_counted_if_many_and_long() {
        assert_eq!(least_wait(JOIN_FAULTS, SHORT_WAIT * JOIN_FAULTS), SHORT_WAIT * JOIN_FAULTS);
        assert_eq!(
            least_wait(JOIN_FAULTS, Micros(1 << 40)),
            SHORT_WAIT * JOIN_FAULTS,
            "the rest may be sleep"
        );
        assert_eq!(least_wait(JOIN_FAULTS - 1, Micros(1 << 40)), Micros(0), "a few");
        assert_eq!(least_wait(3_000, Micros(SHORT_WAIT.0 - 1) * 3_000), Micros(0), "a fast device");
        assert_eq!(least_wait(0, Micros(1 << 40)), Micros(0));
    }

    #[test]
    fn large_mappings_are_remembered_once() {
        let (mapped, file) = (LargeMappings::new(), Identity::ROOT.join(b"/x"));
        let note = |start, name: &[u8]| {
            mapped.add(LargeMapping { start, offset: 7, file, ..LargeMapping::none() }, name);
        };
        note(0x2000, b"/x");
        let large = mapped.take(0x2000).expect("noted");
        assert_eq!((large.file(), large.offset), ((file, &b"/x"[..]), 7));
        assert!(mapped.take(0x2000).is_none());
        note(0x3000, &[b'/'; NAME_MAX + 1]);
        assert!(mapped.take(0x3000).is_none(), "nobody could say of what it is");
        (1..100).for_each(|n| note(n << 30, b"/x"));
        assert_eq!((1..100).filter(|n| mapped.take(n << 30).is_some()).count(), LARGE_MAPPINGS);
        note(99 << 30, b"/x");
        assert!(mapped.take(99 << 30).is_some(), "the newest are kept");
    }
}
