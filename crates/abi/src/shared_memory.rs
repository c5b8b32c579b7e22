//! Layout of the memory file, with the writer of each part.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

use runahead_estimators::access_identity::{Parents, Piece};
use runahead_estimators::access_spread::Spread;
use runahead_estimators::directory_entries::Entries;
use runahead_estimators::exemplars::Exemplars;
use runahead_estimators::touched_blocks::Touched;
use runahead_estimators::value_predictor::{Choice, Sites};

use crate::hint_log::HintLog;
use crate::hint_record::DISCLOSED;
use crate::record_ring::Ring;

/// Rings for runners. Run `n` writes ring `1 + n % RUNNER_RINGS`; ring 0 is the target's.
pub const RUNNER_RINGS: usize = 4;
/// Statuses kept; run `n` writes status `n % RUN_SLOTS`.
pub const RUN_SLOTS: usize = 64;

/// Reason that a run of a shadow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RunEnd {
    /// The run has not ended.
    Running = 0,
    /// Waits at the horizon for the target.
    Paused = 1,
    /// The program would exit here.
    Exit = 2,
    /// A call that cannot be answered without an effect or a wait.
    Call = 3,
    /// The target has moved on to a later sync.
    Superseded = 4,
    /// The target is further than the shadow.
    Overtaken = 5,
    /// The sandbox could not be put up; nothing was run.
    Unsafe = 6,
    /// The run was killed: by a fault on a guessed value, most likely.
    Fault = 7,
    /// The run went on for long and met nothing that the target has not had.
    Dry = 8,
}

impl RunEnd {
    /// Converts the stored value; an unknown one is [`RunEnd::Running`].
    pub fn from_raw(raw: u32) -> Self {
        use RunEnd::*;
        [Paused, Exit, Call, Superseded, Overtaken, Unsafe, Fault, Dry]
            .into_iter()
            .find(|e| *e as u32 == raw)
            .unwrap_or(Running)
    }
}

/// State of one run. The runner writes it; the supervisor reads it, the target only `accesses`.
#[repr(C, align(64))]
pub struct RunStatus {
    /// Run number; 0 while the slot is free.
    pub run: AtomicU32,
    /// A [`RunEnd`].
    pub end: AtomicU32,
    /// Accesses made since the sync.
    pub accesses: AtomicU64,
    /// Answers that were guessed and decide where the shadow goes.
    pub steering: AtomicU64,
    /// Choices of the run for missing data, by site: [`Choice::to_raw`]; 0: none.
    pub choices: [AtomicU32; CHOICES],
}

/// Templates before the newest that are remembered.
pub const OLDER: usize = 3;
/// Sites whose choices one run tells.
pub const CHOICES: usize = 8;

impl RunStatus {
    /// Choice at site `number`.
    pub fn choice(&self, number: usize) -> Option<Choice> {
        self.choices().find(|choice| choice.site == number)
    }

    /// Choices of the run.
    pub fn choices(&self) -> impl Iterator<Item = Choice> {
        self.choices.iter().filter_map(|choice| Choice::from_raw(choice.load(Relaxed)))
    }

    /// Stores a choice in place of the one for its site, or in a free slot.
    pub fn note_choice(&self, choice: Choice) {
        let is_its = |place: &&AtomicU32| {
            Choice::from_raw(place.load(Relaxed)).is_none_or(|old| old.site == choice.site)
        };
        if let Some(place) = self.choices.iter().find(is_its) {
            place.store(choice.to_raw(), Relaxed);
        }
    }
}

/// Counters and words of one process and its shadows. The doc of each field names its writer.
#[repr(C, align(64))]
pub struct Control {
    /// [`crate::ABI_VERSION`]; the supervisor, once.
    pub version: AtomicU32,
    /// The target: number of the newest sync; shadows of older ones end themselves.
    pub sync: AtomicU32,
    /// A template: the sync whose descriptors it has given up. The target waits for it (bounded).
    pub handshake: AtomicU32,
    /// The target: templates that it has made.
    pub made: AtomicU32,
    /// Templates: count of those that have released all that they held, and end.
    pub gone: AtomicU32,
    /// The target: count of templates that it has waited for in vain. They were killed, or come
    /// late.
    pub given_up: AtomicU32,
    /// The supervisor: count of templates that it has waited for in vain, longer than the target.
    pub lost: AtomicU32,
    /// The supervisor: number of the newest run asked for. Templates wait on it (futex).
    pub run_request: AtomicU32,
    /// The sync whose template shall make run `run_request`; the supervisor or the target.
    pub run_sync: AtomicU32,
    /// The supervisor: not 0 when a sync at the next stall is worth while.
    pub want_sync: AtomicU32,
    /// Producers add one and wake; the supervisor's dispatcher waits on it (futex).
    pub doorbell: AtomicU32,
    /// The dispatcher: not 0 while it sleeps, so that producers know whether to wake it.
    pub sleeping: AtomicU32,
    /// The target: process of the newest template.
    pub template_pid: AtomicU32,
    /// The target: processes of some before it, which may not have ended yet.
    pub older_pids: [AtomicU32; OLDER],
    /// The supervisor: hints that wait for a worker; runners pause above a limit.
    pub queued: AtomicU32,
    /// The supervisor: share of the prefetcher's operations on names that had a request of their
    /// own at the storage, in 1,024ths; 0: no operations yet.
    pub own_requests: AtomicU32,
    /// The supervisor: share of the prefetcher's reads of data that had a request of their own at
    /// the storage, in 1,024ths.
    pub own_reads: AtomicU32,
    /// The supervisor: not 0 while the storage serves one request at a time, and what the target
    /// waits for is left to it.
    pub single_server: AtomicU32,
    /// The supervisor: time of a request that waits for no other, in microseconds, on the device
    /// that is waited for most; 0: unknown.
    pub service_us: AtomicU32,
    /// The supervisor: threads of all processes of the session that wait for storage at once.
    pub session_waits: AtomicU32,
    /// The supervisor: the part of the machine's processors that is busy, in 1,024ths.
    pub session_busy: AtomicU32,
    /// Target or supervisor: not 0 when speculation has been given up for good.
    pub stopped: AtomicU32,

    /// The target: accesses made since its start.
    pub accesses: AtomicU64,
    /// The target: `accesses` at the newest sync.
    pub accesses_at_sync: AtomicU64,
    /// The supervisor: how many accesses a runner may be ahead; 0: no more shadows.
    pub horizon: AtomicU64,
    /// The supervisor: bytes prefetched and not used yet.
    pub bytes_ahead: AtomicU64,
    /// The supervisor: limit on `bytes_ahead`.
    pub bytes_budget: AtomicU64,

    /// The target: stalls that a shadow had foreseen.
    pub stalls_foreseen: AtomicU64,
    /// The target: stalls that none had.
    pub stalls_unforeseen: AtomicU64,
    /// The target: time in foreseen stalls, in time-stamp ticks.
    pub stall_ticks_foreseen: AtomicU64,
    /// The target: time in unforeseen stalls, in time-stamp ticks.
    pub stall_ticks_unforeseen: AtomicU64,
    /// The target: a device on which it has waited in a call that was hoped to need no more than
    /// memory: major number shifted left by 32, and minor.
    pub waited_device: AtomicU64,
    /// The target: time of that wait, in time-stamp ticks; the supervisor takes it out.
    pub waited_ticks: AtomicU64,
    /// The target: completed syncs.
    pub syncs: AtomicU64,
    /// The target: time spent in them, in time-stamp ticks.
    pub sync_ticks: AtomicU64,
    /// The supervisor: mean time of a sync in this session, in time-stamp ticks; 0: there was none.
    pub usual_sync_ticks: AtomicU64,
    /// Templates: processor time of shadows that have ended, in microseconds.
    pub shadow_cpu_us: AtomicU64,
    /// Runners: hints issued.
    pub hints_issued: AtomicU64,
    /// The target, and for mapped files the supervisor: hints whose access came.
    pub hints_used: AtomicU64,
    /// The writers of `hints_used`: hints of shadows whose access came. Other hints were guesses,
    /// or disclosed.
    pub shadow_hints_used: AtomicU64,
    /// The writers of `hints_used`: hints of shadows for data whose access came.
    pub shadow_data_used: AtomicU64,
    /// Runners: names that directories told.
    pub names_told: AtomicU64,
    /// Runners: names that directories told and the program then looked up.
    pub names_used: AtomicU64,
    /// Runners: directories among the names that directories told.
    pub directories_told: AtomicU64,
    /// Runners: directories among the names that directories told, which the program then read.
    pub directories_used: AtomicU64,
    /// The target: call sites patched.
    pub sites_patched: AtomicU64,
    /// The target: calls that came through a signal.
    pub traps: AtomicU64,
    /// Runners, in tests: planted effects that the kernel refused.
    pub planted_refused: AtomicU64,
    /// Runners, in tests: planted effects that it did not. Never anything but 0.
    pub planted_done: AtomicU64,
    /// The target: hints whose data had been fetched, and was evicted before the target used it.
    pub hints_lost: AtomicU64,
    /// The supervisor: private pages of the process (4 KiB, anonymous) less its page faults at the
    /// time of the count ([`Control::tell_pages`]). A fork of the process copies the page tables of
    /// these.
    pub pages: AtomicI64,
    /// The supervisor: most private pages with which the process has shadows, as its control group
    /// has no room for more; 0: no limit ([`Control::tell_most`]).
    pub pages_most: AtomicU64,
    /// The target: page faults that have waited, of those that `stalls_unforeseen` counts.
    pub stalled_faults: AtomicU64,
    /// The target: syncs that left its large memory out of the fork.
    pub syncs_mirrored: AtomicU64,
    /// The target: not 0 once it has mapped a large file that was not in memory, or its faults have
    /// waited. No call shows what it uses from then on.
    pub mapped_cold: AtomicU32,
    /// The supervisor: not 0 while some of the process's memory is swapped out.
    pub swapped: AtomicU32,
    /// The target: accesses that it should have told (`agent_config::tell::ALL`), and could not.
    pub untold: AtomicU64,
}

impl Control {
    /// Stores the target's count of private pages, by the supervisor. At the count the target had
    /// had `faults` that needed no device (proc_pid_stat(5)).
    pub fn tell_pages(&self, pages: u64, faults: u64) {
        self.pages.store(pages.wrapping_sub(faults) as i64, Relaxed);
    }

    /// Private pages of the target after `faults`: one more for each fault since they were counted.
    pub fn pages_at(&self, faults: u64) -> u64 {
        self.pages.load(Relaxed).saturating_add_unsigned(faults).max(0) as u64
    }

    /// Stores the most private pages that the target may have for a copy, by the supervisor;
    /// `None`: any number.
    pub fn tell_most(&self, most: Option<u64>) {
        self.pages_most.store(most.map_or(0, |most| most.max(1)), Relaxed);
    }

    /// True if there is room for a copy of the target as it is now. `faults` returns its page
    /// faults, and is not called without a limit.
    pub fn has_room(&self, faults: impl FnOnce() -> u64) -> bool {
        match self.pages_most.load(Relaxed) {
            0 => true,
            most => self.pages_at(faults()) <= most,
        }
    }

    /// Templates that may still hold files, of those that the target waits for. Less than 0: a
    /// template came that had been given up.
    pub fn shadows_left(&self) -> i32 {
        self.not_gone(&self.given_up)
    }

    /// Templates that may still hold a file system, those that the target waits for no longer among
    /// them.
    pub fn shadows_alive(&self) -> i32 {
        self.not_gone(&self.lost)
    }

    /// Templates that have not said that they end, less those that are not waited for.
    fn not_gone(&self, not_waited_for: &AtomicU32) -> i32 {
        let gone = self.gone.load(Acquire).wrapping_add(not_waited_for.load(Relaxed));
        self.made.load(Relaxed).wrapping_sub(gone) as i32
    }

    /// Marks the templates that are left as lost: the supervisor, which waits longest, has given up
    /// on them.
    pub fn waits_no_longer(&self) {
        let left = self.shadows_alive().max(0);
        self.lost.fetch_add(left as u32, Relaxed);
    }
}

/// Private pages with which a process with one thread has its large memory kept out of forks: to
/// copy their page tables takes some 0.6 ms.
pub const MIRRORED_PAGES: u64 = 16 << 10;

/// Contents of the shared memory file.
#[repr(C, align(4096))]
pub struct Shared {
    /// Words and counters.
    pub control: Control,
    /// Statuses of recent runs.
    pub runs: [RunStatus; RUN_SLOTS],
    /// Hints on their way to the supervisor.
    pub rings: [Ring; 1 + RUNNER_RINGS],
    /// Accesses that were foreseen, and the progress of their prefetch.
    pub log: HintLog,
    /// Entries that directories listed.
    pub entries: Entries,
    /// Parents of directories.
    pub parents: Parents,
    /// Values that reads have returned, by call site.
    pub sites: Sites,
    /// Blocks of shared mappings that runs have used.
    pub touched: Touched,
    /// Spread of accesses over each file.
    pub spread: Spread,
    /// Whole files that were read.
    pub exemplars: Exemplars,
}

const _: () = assert!(offset_of!(Shared, control) == 0);
const _: () = assert!(size_of::<RunStatus>() == 64);
const _: () = assert!(size_of::<Shared>().is_multiple_of(4096));

impl Shared {
    /// The status slot of a run.
    pub fn run(&self, run: u32) -> &RunStatus {
        &self.runs[run as usize % RUN_SLOTS]
    }

    /// Marks `piece` as accessed by the program. Returns true if it had been hinted: then it is
    /// counted as used.
    pub fn touch(&self, piece: impl Into<Piece>, is_data: bool) -> bool {
        let Some(run) = self.log.touch(piece) else { return false };
        self.was_used(run);
        let control = &self.control;
        control.hints_used.fetch_add(1, Relaxed);
        if (1..DISCLOSED).contains(&run) {
            control.shadow_hints_used.fetch_add(1, Relaxed);
            control.shadow_data_used.fetch_add(u64::from(is_data), Relaxed);
        }
        true
    }

    /// Credits the choices of run `run`, one of whose hints was used.
    fn was_used(&self, run: u32) {
        let status = self.run(run);
        if status.run.load(Relaxed) == run {
            status.choices().for_each(|choice| self.sites.get(choice.site).was_used(choice));
        }
    }

    /// The ring that a run writes.
    pub fn ring(&self, run: u32) -> &Ring {
        match run {
            0 | DISCLOSED.. => &self.rings[0],
            n => &self.rings[1 + n as usize % RUNNER_RINGS],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::SeqCst;

    fn control() -> Control {
        // SAFETY: atomics throughout, for which all-zero bytes are a valid value.
        unsafe { core::mem::zeroed() }
    }

    /// Only the time of the count matters, not the time at which the target reads it.
    #[test]
    fn a_process_that_has_grown_since_its_pages_were_counted_is_known_by_its_faults() {
        let control = control();
        control.tell_pages(2_000, 2_100);
        assert_eq!((control.pages_at(2_100), control.pages_at(9_100)), (2_000, 9_000));
        control.tell_pages(3_000, 9_100);
        assert_eq!(control.pages_at(9_101), 3_001, "they were taken back meanwhile");
        assert_eq!(control.pages_at(0), 0);
    }

    #[test]
    fn a_process_may_grow_until_two_of_it_have_no_room() {
        let control = control();
        control.tell_pages(2_000, 2_100);
        assert!(control.has_room(|| unreachable!("nobody asked")));
        control.tell_most(Some(3_000));
        assert!(control.has_room(|| 3_100) && !control.has_room(|| 3_101));
        control.tell_most(Some(0));
        assert!(!control.has_room(|| 2_100), "none is not no limit");
        control.tell_most(None);
        assert!(control.has_room(|| 1 << 40));
    }

    #[test]
    fn shadows_left_are_those_that_have_not_said_otherwise() {
        let control = control();
        assert_eq!(control.shadows_left(), 0);
        control.made.store(3, SeqCst);
        control.gone.store(1, SeqCst);
        assert_eq!(control.shadows_left(), 2);
        control.given_up.fetch_add(2, SeqCst);
        assert_eq!(control.shadows_left(), 0);
        control.gone.fetch_add(1, SeqCst);
        assert_eq!(control.shadows_left(), -1, "one was only late");
        control.given_up.fetch_add(u32::MAX, SeqCst);
        control.made.fetch_add(1, SeqCst);
        assert_eq!(control.shadows_left(), 1);
    }

    #[test]
    fn what_the_target_waits_for_no_longer_may_still_be_alive() {
        let control = control();
        control.made.store(2, SeqCst);
        control.given_up.store(2, SeqCst);
        assert_eq!((control.shadows_left(), control.shadows_alive()), (0, 2));
        control.gone.fetch_add(1, SeqCst);
        assert_eq!(control.shadows_alive(), 1);
        control.waits_no_longer();
        assert_eq!(control.shadows_alive(), 0, "it was killed, and will never say so");
        control.waits_no_longer();
        control.made.fetch_add(1, SeqCst);
        assert_eq!(control.shadows_alive(), 1);
    }
}
