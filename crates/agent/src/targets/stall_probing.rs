//! Whether calls are worth trying without waiting, and what counts as a stall.
//!
//! A probe costs up to a microsecond on calls that take half of one, so a program that finds
//! everything in memory must not pay it. Calls are probed for [`PROBES`] calls after each stall, and
//! for [`PROBES_FOR_OTHERS`] when another process is heard to have stalled; in between they are made as
//! they stand, with a look at the clock. The threads of
//! a process share one pace, and lose a count to each other now and then.
//!
//! A process in which nothing has stalled, nor met anything that was foreseen, for [`QUIET`] calls
//! *rests*: of the calls that need not be seen (the policy says which), a thread makes
//! [`Pace::unseen`] without us, then one that is timed as before. A stall in that one, or in any
//! call that is always seen, ends the rest.
//!
//! A wait of less than [`SHORT_US`] is too short to gain from: to wake whoever would read ahead takes as long. While
//! waits like that take more of a process's time than longer ones ([`Waits`]), as on a local SSD, none is a stall. (Where
//! something is read ahead for it, waits are short because of that, and all are stalls.)

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Calls probed after a stall. A stall that comes when probing has ceased is only timed, and costs
/// one missed sync.
const PROBES: u32 = 512;
/// Calls probed when others have stalled of late: loading a program and its libraries takes some fifty.
const PROBES_FOR_OTHERS: u32 = 160;
/// A call that took longer than this waited for storage or for a processor.
const STALL_US: u64 = 50;
/// Calls without a stall after which a process rests: long after probing has ceased.
const QUIET: u32 = 2048;
/// Fewest calls that go by unseen before one is looked at; the most are three times as many, less
/// one. So a sixteenth of our price is left, and so many stalls may be missed when a rest ends.
const UNSEEN: u64 = 8;
/// Samples without a stall, after which a rest is deep: of some 32,000 calls.
const SAMPLES_QUIET: u32 = 2048;
/// So many times as many calls go by unseen in a deep rest. (Whatever opens files is seen all the same.)
const DEEP: u64 = 4;
/// Calls that are seen one after the other, and told exactly, when one took long and may have been a stall.
const DOUBTED: u32 = 16;
/// Reading from memory runs at no less than this many bytes in a microsecond.
const COPY_BYTES_PER_US: u64 = 1024;
/// See the module's text.
pub(super) const SHORT_US: u64 = 300;

/// How long waits are of late.
struct Waits {
    /// Microseconds spent in short waits and in long ones.
    short: AtomicU32,
    long: AtomicU32,
}

impl Waits {
    /// What one wait says at most: it may have been slow.
    const CAP_US: u64 = 4_000;
    /// Of older ones only so much counts.
    const WINDOW_US: u32 = 16_000;

    /// A call took so long, in microseconds, and has slept so many times: once for each request, most likely. It may
    /// have been `runnable_us` of that that it waited for a processor.
    fn add(&self, us: u64, sleeps: u32, runnable_us: impl FnOnce() -> u64) {
        let one = us / u64::from(sleeps.max(1));
        let one = match one {
            ..SHORT_US => one,
            _ => us.saturating_sub(runnable_us()) / u64::from(sleeps.max(1)),
        };
        let (kind, other) =
            if one < SHORT_US { (&self.short, &self.long) } else { (&self.long, &self.short) };
        let sum = kind.load(Relaxed) + us.min(Self::CAP_US) as u32;
        kind.store(sum, Relaxed);
        if sum > Self::WINDOW_US {
            kind.store(sum / 2, Relaxed);
            other.store(other.load(Relaxed) / 2, Relaxed);
        }
    }

    fn are_short(&self) -> bool {
        self.short.load(Relaxed) > self.long.load(Relaxed)
    }
}

/// See the module's text.
pub struct Pace {
    probes: AtomicU32,
    /// Up to when others stall, as far as was heard.
    heard: AtomicU64,
    /// Calls that a stall of the recent past makes suspicious.
    suspects: AtomicU32,
    /// Calls since the last stall, up to [`QUIET`], and then samples, up to [`SAMPLES_QUIET`].
    quiet: AtomicU32,
    /// Calls of which it is to be told exactly whether they wait.
    doubts: AtomicU32,
    waits: Waits,
    /// This process has rested, or one of its parents had.
    rested: AtomicBool,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Pace {
            probes: AtomicU32::new(0),
            heard: AtomicU64::new(0),
            suspects: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
            doubts: AtomicU32::new(0),
            waits: Waits { short: AtomicU32::new(0), long: AtomicU32::new(0) },
            rested: AtomicBool::new(false),
        }
    }

    /// A new process. What it has from its parent was not all seen if that had rested.
    pub(super) fn start(&self) {
        self.probes.store(0, Relaxed);
        self.heard.store(0, Relaxed);
        self.suspects.store(0, Relaxed);
        self.quiet.store(0, Relaxed);
    }

    /// Some device is slow up to `until` (`abi::slow`).
    pub fn hear(&self, until: u64, now: impl FnOnce() -> u64) {
        // Mostly it is nothing new.
        if self.heard.load(Relaxed) != until {
            self.heard.store(until, Relaxed);
            if until > now() {
                self.probes.fetch_max(PROBES_FOR_OTHERS, Relaxed);
            }
        }
    }

    /// Calls are to be tried without waiting.
    pub fn probing(&self) -> bool {
        self.probes.load(Relaxed) > 0
    }

    /// Something has stalled of late. What cannot be tried without waiting (reading a directory)
    /// is expected to stall only then.
    pub fn stalling(&self) -> bool {
        self.suspects.load(Relaxed) > 0
    }

    /// A suspect turned out not to stall: suspicion fades quickly.
    pub fn cleared(&self) {
        self.suspects.store(self.suspects.load(Relaxed) / 2, Relaxed);
    }

    /// A call found its data in memory.
    pub fn hit(&self) {
        for count in [&self.probes, &self.suspects, &self.doubts] {
            // Mostly nothing changes, and threads need not share the line to write.
            if let Some(fewer) = count.load(Relaxed).checked_sub(1) {
                count.store(fewer, Relaxed);
            }
        }
    }

    /// A call took long of late, and may have been a stall.
    pub fn doubts(&self) -> bool {
        self.doubts.load(Relaxed) > 0
    }

    /// A call of which samples are enough has been made: how many of its thread's next may go by
    /// unseen. Which one is seen is to be in no step with what the program does, so `chance` decides.
    pub fn unseen(&self, chance: impl FnOnce() -> u64) -> u64 {
        if self.doubts() {
            return 0;
        }
        let quiet = self.quiet.load(Relaxed);
        let is_deep = quiet >= QUIET + SAMPLES_QUIET;
        if !is_deep {
            self.quiet.store(quiet + 1, Relaxed);
        }
        if quiet < QUIET {
            return 0;
        }
        if !self.rested.load(Relaxed) {
            self.rested.store(true, Relaxed);
        }
        let least = if is_deep { DEEP * UNSEEN } else { UNSEEN };
        least + chance() % (2 * least)
    }

    /// Waits of this process are too short to gain from.
    pub fn waits_are_short(&self) -> bool {
        self.waits.are_short()
    }

    /// Nothing has stalled for long.
    pub fn rests(&self) -> bool {
        self.quiet.load(Relaxed) >= QUIET
    }

    /// Calls of this process have gone by unseen, at some time.
    pub fn has_rested(&self) -> bool {
        self.rested.load(Relaxed)
    }

    /// Something that was foreseen has come: to be seen is worth while.
    pub fn used(&self) {
        self.quiet.store(0, Relaxed);
    }

    /// Something stalls.
    pub fn stalled(&self) {
        self.quiet.store(0, Relaxed);
        self.probes.store(PROBES, Relaxed);
        self.suspects.store(PROBES, Relaxed);
    }

    /// A call took `ticks` for `bytes`: true if that was a stall. `slept` tells, and is asked only
    /// if it took long, how often the thread has certainly given up its processor: one that was merely
    /// pushed off it has not stalled. `runnable_us`: how long it has waited for one lately.
    pub fn took(
        &self,
        ticks: u64,
        bytes: u64,
        ticks_per_us: u64,
        slept: impl FnOnce() -> Slept,
        runnable_us: impl FnOnce() -> u64,
    ) -> bool {
        let allowed = STALL_US + bytes / COPY_BYTES_PER_US;
        let is_long = ticks > allowed * ticks_per_us;
        let slept = if is_long { slept() } else { Slept::Never };
        let stalled = match slept {
            Slept::Never => false,
            Slept::Helped => true,
            Slept::AtMost(times) | Slept::Times(times) => {
                self.waits.add(ticks / ticks_per_us, times, runnable_us);
                !self.waits.are_short()
            }
        };
        if stalled {
            self.stalled();
            return true;
        }
        self.hit();
        if is_long && !matches!(slept, Slept::Times(_)) {
            self.doubts.store(DOUBTED, Relaxed);
        }
        false
    }
}

/// What a call that took long is known to have done meanwhile.
pub enum Slept {
    /// The call had a processor all the time, or waited for one.
    Never,
    /// The call slept in a process that is read ahead for: how long waits are without that is not to be seen.
    Helped,
    /// The call slept, and the thread has slept so many times since it was last looked at.
    AtMost(u32),
    /// The call slept so many times.
    Times(u32),
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn probing_ends_without_stalls_and_resumes_with_one() {
        let pace = Pace::new();
        assert!(!pace.probing());
        pace.hear(1000, || 1001);
        assert!(!pace.probing(), "that is over");
        pace.hear(2000, || 1001);
        for _ in 0..PROBES_FOR_OTHERS {
            assert!(pace.probing());
            assert!(!pace.took(10, 0, 2000, || unreachable!(), || unreachable!()));
        }
        assert!(!pace.probing() && !pace.stalling());
        assert!(
            !pace.took(600 * 2000, 1 << 20, 2000, || Slept::Times(1), || 0),
            "a megabyte may take a millisecond"
        );
        assert!(
            !pace.took(60 * 2000, 0, 2000, || Slept::Never, || 0),
            "another program had the processor"
        );
        assert!(pace.took(600 * 2000, 0, 2000, || Slept::Times(1), || 0));
        assert!(pace.probing() && pace.stalling());
    }

    fn quiet_call(pace: &Pace) -> u64 {
        assert!(!pace.took(10, 0, 2000, || unreachable!(), || unreachable!()));
        pace.unseen(|| 5)
    }

    fn resting() -> Pace {
        let pace = Pace::new();
        assert!((0..QUIET).all(|_| quiet_call(&pace) == 0));
        assert!(pace.rests() && !pace.has_rested());
        assert_eq!(quiet_call(&pace), UNSEEN + 5);
        pace
    }

    #[test]
    fn a_quiet_process_rests_until_something_stalls() {
        let pace = resting();
        assert!(
            !pace.took(60 * 2000, 0, 2000, || Slept::Never, || 0) && pace.rests(),
            "pushed off"
        );
        assert!((1..DOUBTED).all(|_| quiet_call(&pace) == 0), "or perhaps not");
        assert!(quiet_call(&pace) > 0);
        assert!(pace.took(600 * 2000, 0, 2000, || Slept::Times(1), || 0));
        assert!(!pace.rests() && pace.probing());
        assert!((0..QUIET).all(|_| quiet_call(&pace) == 0));
        assert!(!pace.probing() && quiet_call(&pace) > 0);
    }

    #[test]
    fn it_does_not_rest_while_something_foreseen_comes() {
        let pace = resting();
        pace.used();
        assert_eq!(quiet_call(&pace), 0);
    }

    #[test]
    fn a_child_starts_awake_and_knows_what_its_parent_did() {
        let pace = resting();
        pace.start();
        assert!(!pace.rests() && !pace.probing() && pace.has_rested());
        pace.hear(2000, || 1000);
        assert!(pace.probing());
    }

    fn waits(pace: &Pace, us: u64, sleeps: u32, runnable_us: u64) -> bool {
        pace.took(us * 2000, 0, 2000, || Slept::Times(sleeps), || runnable_us)
    }

    #[test]
    fn short_waits_are_no_stalls_until_long_ones_take_more_time() {
        let pace = Pace::new();
        assert!((0..100).all(|_| !waits(&pace, 150, 1, 0)));
        assert!(pace.waits_are_short() && !pace.probing());
        assert!(!waits(&pace, 900, 6, 0), "six requests, one after the other");
        let stalls = (0..20).filter(|_| waits(&pace, 5_000, 1, 0)).count();
        assert!((1..20).contains(&stalls) && !pace.waits_are_short(), "{stalls}");
        assert!(waits(&pace, 150, 1, 0), "one short wait changes nothing");
    }

    #[test]
    fn waiting_for_a_processor_is_no_stall() {
        let pace = Pace::new();
        assert!((0..100).all(|_| !waits(&pace, 5_000, 1, 4_900)));
        let pace = Pace::new();
        assert!((0..100).all(|_| waits(&pace, 5_000, 1, 1_000)), "the rest was storage");
    }

    #[test]
    fn where_something_is_read_ahead_short_waits_are_stalls_too() {
        let pace = Pace::new();
        assert!((0..9).all(|_| pace.took(
            150 * 2000,
            0,
            2000,
            || Slept::Helped,
            || unreachable!()
        )));
        assert!(!pace.waits_are_short());
    }

    /// Whatever comes: nothing goes by unseen within [`QUIET`] calls after a stall or a use, and
    /// later always something does, of bounded length.
    #[test]
    fn nothing_goes_by_unseen_soon_after_a_stall() {
        let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut random = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
        std::eprintln!("repeat with RUNAHEAD_SEED={random}");
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        let (pace, mut since) = (Pace::new(), 0);
        for _ in 0..200_000 {
            match next() % 5000 {
                0 => pace.stalled(),
                1 => pace.used(),
                2 => assert!(pace.took(600 * 2000, 0, 2000, || Slept::Times(1), || 0)),
                3 => pace.start(),
                _ => {
                    let unseen = pace.unseen(&mut next);
                    let least = if since < QUIET + SAMPLES_QUIET { UNSEEN } else { DEEP * UNSEEN };
                    let expected = if since < QUIET { 0..1 } else { least..3 * least };
                    assert!(expected.contains(&unseen), "{unseen} after {since}");
                    since += 1;
                    continue;
                }
            }
            since = 0;
        }
    }
}
