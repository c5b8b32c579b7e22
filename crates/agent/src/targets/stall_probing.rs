//! Whether calls are worth trying without waiting, and what counts as a stall.
//!
//! A probe costs up to a microsecond on calls that take half of one, so a program that finds
//! everything in memory must not pay it. Calls are probed for [`PROBES`] calls after each stall, and
//! for [`PROBES_FOR_OTHERS`] when another process is heard to have stalled; in between they are made as
//! they stand, with a look at the clock. The threads of
//! a process share one pace, and lose a count to each other now and then.
//!
//! A process in which nothing has stalled, nor met anything that was foreseen, for [`QUIET_CALLS`] calls
//! *rests*: of the calls that need not be seen (the policy says which), a thread makes
//! [`Pace::calls_to_skip`] without us, then one that is timed as before. A stall in that one, or in any
//! call that is always seen, ends the rest.
//!
//! A wait of less than [`SHORT_WAIT_US`] is too short to gain from: to wake whoever would read ahead takes as long. While
//! waits like that take more of a process's time than longer ones ([`WaitLengths`]), as on a local SSD, none is a stall. (Where
//! something is read ahead for it, waits are short because of that, and all are stalls.)

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Calls probed after a stall. A stall that comes when probing has ceased is only timed, and costs
/// one missed sync.
const PROBES: u32 = 512;
/// Calls probed when others have stalled of late: loading a program and its libraries takes some fifty.
const PROBES_FOR_OTHERS: u32 = 160;
/// A call that took longer than this waited for storage or for a processor.
const STALL_US_MIN: u64 = 50;
/// Calls without a stall after which a process rests: long after probing has ceased.
const QUIET_CALLS: u32 = 2048;
/// Fewest calls that go by unseen before one is looked at; the most are three times as many, less
/// one. So a sixteenth of our price is left, and so many stalls may be missed when a rest ends.
const SKIP_MIN: u64 = 8;
/// Samples without a stall, after which a rest is deep: of some 32,000 calls.
const QUIET_SAMPLES: u32 = 2048;
/// So many times as many calls go by unseen in a deep rest. (Whatever opens files is seen all the same.)
const DEEP_SKIP_FACTOR: u64 = 4;
/// Calls that are seen one after the other, and told exactly, when one took long and may have been a stall.
const EXACT_CALLS: u32 = 16;
/// Reading from memory runs at no less than this many bytes in a microsecond.
const COPY_BYTES_PER_US: u64 = 1024;
/// See the module's text.
pub(super) const SHORT_WAIT_US: u64 = 300;

/// How long waits are of late.
struct WaitLengths {
    /// Microseconds spent in short waits and in long ones.
    short_us: AtomicU32,
    long_us: AtomicU32,
}

impl WaitLengths {
    /// What one wait says at most: it may have been slow.
    const CAP_US: u64 = 4_000;
    /// Of older ones only so much counts.
    const WINDOW_US: u32 = 16_000;

    /// A call took so long, in microseconds, and has slept so many times: once for each request, most likely. It may
    /// have been `runnable_us` of that that it waited for a processor.
    fn add(&self, us: u64, sleeps: u32, runnable_us: impl FnOnce() -> u64) {
        let one = us / u64::from(sleeps.max(1));
        let one = match one {
            ..SHORT_WAIT_US => one,
            _ => us.saturating_sub(runnable_us()) / u64::from(sleeps.max(1)),
        };
        let (kind, other) = if one < SHORT_WAIT_US {
            (&self.short_us, &self.long_us)
        } else {
            (&self.long_us, &self.short_us)
        };
        let sum = kind.load(Relaxed) + us.min(Self::CAP_US) as u32;
        kind.store(sum, Relaxed);
        if sum > Self::WINDOW_US {
            kind.store(sum / 2, Relaxed);
            other.store(other.load(Relaxed) / 2, Relaxed);
        }
    }

    fn are_short(&self) -> bool {
        self.short_us.load(Relaxed) > self.long_us.load(Relaxed)
    }
}

/// See the module's text.
pub struct StallProbing {
    probes: AtomicU32,
    /// Up to when others stall, as far as was heard.
    heard_until: AtomicU64,
    /// Calls that a stall of the recent past makes suspicious.
    suspect_calls: AtomicU32,
    /// Calls since the last stall, up to [`QUIET_CALLS`], and then samples, up to [`QUIET_SAMPLES`].
    quiet_calls: AtomicU32,
    /// Calls of which it is to be told exactly whether they wait.
    exact_calls: AtomicU32,
    wait_lengths: WaitLengths,
    /// This process has rested, or one of its parents had.
    has_sampled: AtomicBool,
}

impl StallProbing {
    pub(super) const fn new() -> Self {
        StallProbing {
            probes: AtomicU32::new(0),
            heard_until: AtomicU64::new(0),
            suspect_calls: AtomicU32::new(0),
            quiet_calls: AtomicU32::new(0),
            exact_calls: AtomicU32::new(0),
            wait_lengths: WaitLengths { short_us: AtomicU32::new(0), long_us: AtomicU32::new(0) },
            has_sampled: AtomicBool::new(false),
        }
    }

    /// A new process. What it has from its parent was not all seen if that had rested.
    pub(super) fn reset(&self) {
        self.probes.store(0, Relaxed);
        self.heard_until.store(0, Relaxed);
        self.suspect_calls.store(0, Relaxed);
        self.quiet_calls.store(0, Relaxed);
    }

    /// Some device is slow up to `until` (`abi::slow`).
    pub fn hear_of_stalls(&self, until: u64, now: impl FnOnce() -> u64) {
        // Mostly it is nothing new.
        if self.heard_until.load(Relaxed) != until {
            self.heard_until.store(until, Relaxed);
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
    pub fn has_stalled_lately(&self) -> bool {
        self.suspect_calls.load(Relaxed) > 0
    }

    /// A suspect turned out not to stall: suspicion fades quickly.
    pub fn clear_suspicion(&self) {
        self.suspect_calls.store(self.suspect_calls.load(Relaxed) / 2, Relaxed);
    }

    /// A call found its data in memory.
    pub fn note_hit(&self) {
        for count in [&self.probes, &self.suspect_calls, &self.exact_calls] {
            // Mostly nothing changes, and threads need not share the line to write.
            if let Some(fewer) = count.load(Relaxed).checked_sub(1) {
                count.store(fewer, Relaxed);
            }
        }
    }

    /// A call took long of late, and may have been a stall.
    pub fn needs_exact_timing(&self) -> bool {
        self.exact_calls.load(Relaxed) > 0
    }

    /// A call of which samples are enough has been made: how many of its thread's next may go by
    /// unseen. Which one is seen is to be in no step with what the program does, so `chance` decides.
    pub fn calls_to_skip(&self, chance: impl FnOnce() -> u64) -> u64 {
        if self.needs_exact_timing() {
            return 0;
        }
        let quiet = self.quiet_calls.load(Relaxed);
        let is_deep = quiet >= QUIET_CALLS + QUIET_SAMPLES;
        if !is_deep {
            self.quiet_calls.store(quiet + 1, Relaxed);
        }
        if quiet < QUIET_CALLS {
            return 0;
        }
        if !self.has_sampled.load(Relaxed) {
            self.has_sampled.store(true, Relaxed);
        }
        let least = if is_deep { DEEP_SKIP_FACTOR * SKIP_MIN } else { SKIP_MIN };
        least + chance() % (2 * least)
    }

    /// Waits of this process are too short to gain from.
    pub fn waits_are_short(&self) -> bool {
        self.wait_lengths.are_short()
    }

    /// Nothing has stalled for long.
    pub fn is_sampling(&self) -> bool {
        self.quiet_calls.load(Relaxed) >= QUIET_CALLS
    }

    /// Calls of this process have gone by unseen, at some time.
    pub fn has_sampled(&self) -> bool {
        self.has_sampled.load(Relaxed)
    }

    /// Something that was foreseen has come: to be seen is worth while.
    pub fn note_use(&self) {
        self.quiet_calls.store(0, Relaxed);
    }

    /// Something stalls.
    pub fn note_stall(&self) {
        self.quiet_calls.store(0, Relaxed);
        self.probes.store(PROBES, Relaxed);
        self.suspect_calls.store(PROBES, Relaxed);
    }

    /// A call took `ticks` for `bytes`: true if that was a stall. `slept` tells, and is asked only
    /// if it took long, how often the thread has certainly given up its processor: one that was merely
    /// pushed off it has not stalled. `runnable_us`: how long it has waited for one lately.
    pub fn note_duration(
        &self,
        ticks: u64,
        bytes: u64,
        ticks_per_us: u64,
        slept: impl FnOnce() -> SleepEvidence,
        runnable_us: impl FnOnce() -> u64,
    ) -> bool {
        let allowed = STALL_US_MIN + bytes / COPY_BYTES_PER_US;
        let is_long = ticks > allowed * ticks_per_us;
        let slept = if is_long { slept() } else { SleepEvidence::Never };
        let stalled = match slept {
            SleepEvidence::Never => false,
            SleepEvidence::Helped => true,
            SleepEvidence::AtMost(times) | SleepEvidence::Times(times) => {
                self.wait_lengths.add(ticks / ticks_per_us, times, runnable_us);
                !self.wait_lengths.are_short()
            }
        };
        if stalled {
            self.note_stall();
            return true;
        }
        self.note_hit();
        if is_long && !matches!(slept, SleepEvidence::Times(_)) {
            self.exact_calls.store(EXACT_CALLS, Relaxed);
        }
        false
    }
}

/// What a call that took long is known to have done meanwhile.
pub enum SleepEvidence {
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
        let pace = StallProbing::new();
        assert!(!pace.probing());
        pace.hear_of_stalls(1000, || 1001);
        assert!(!pace.probing(), "that is over");
        pace.hear_of_stalls(2000, || 1001);
        for _ in 0..PROBES_FOR_OTHERS {
            assert!(pace.probing());
            assert!(!pace.note_duration(10, 0, 2000, || unreachable!(), || unreachable!()));
        }
        assert!(!pace.probing() && !pace.has_stalled_lately());
        assert!(
            !pace.note_duration(600 * 2000, 1 << 20, 2000, || SleepEvidence::Times(1), || 0),
            "a megabyte may take a millisecond"
        );
        assert!(
            !pace.note_duration(60 * 2000, 0, 2000, || SleepEvidence::Never, || 0),
            "another program had the processor"
        );
        assert!(pace.note_duration(600 * 2000, 0, 2000, || SleepEvidence::Times(1), || 0));
        assert!(pace.probing() && pace.has_stalled_lately());
    }

    fn quiet_call(pace: &StallProbing) -> u64 {
        assert!(!pace.note_duration(10, 0, 2000, || unreachable!(), || unreachable!()));
        pace.calls_to_skip(|| 5)
    }

    fn resting() -> StallProbing {
        let pace = StallProbing::new();
        assert!((0..QUIET_CALLS).all(|_| quiet_call(&pace) == 0));
        assert!(pace.is_sampling() && !pace.has_sampled());
        assert_eq!(quiet_call(&pace), SKIP_MIN + 5);
        pace
    }

    #[test]
    fn a_quiet_process_rests_until_something_stalls() {
        let pace = resting();
        assert!(
            !pace.note_duration(60 * 2000, 0, 2000, || SleepEvidence::Never, || 0)
                && pace.is_sampling(),
            "pushed off"
        );
        assert!((1..EXACT_CALLS).all(|_| quiet_call(&pace) == 0), "or perhaps not");
        assert!(quiet_call(&pace) > 0);
        assert!(pace.note_duration(600 * 2000, 0, 2000, || SleepEvidence::Times(1), || 0));
        assert!(!pace.is_sampling() && pace.probing());
        assert!((0..QUIET_CALLS).all(|_| quiet_call(&pace) == 0));
        assert!(!pace.probing() && quiet_call(&pace) > 0);
    }

    #[test]
    fn it_does_not_rest_while_something_foreseen_comes() {
        let pace = resting();
        pace.note_use();
        assert_eq!(quiet_call(&pace), 0);
    }

    #[test]
    fn a_child_starts_awake_and_knows_what_its_parent_did() {
        let pace = resting();
        pace.reset();
        assert!(!pace.is_sampling() && !pace.probing() && pace.has_sampled());
        pace.hear_of_stalls(2000, || 1000);
        assert!(pace.probing());
    }

    fn waits(pace: &StallProbing, us: u64, sleeps: u32, runnable_us: u64) -> bool {
        pace.note_duration(us * 2000, 0, 2000, || SleepEvidence::Times(sleeps), || runnable_us)
    }

    #[test]
    fn short_waits_are_no_stalls_until_long_ones_take_more_time() {
        let pace = StallProbing::new();
        assert!((0..100).all(|_| !waits(&pace, 150, 1, 0)));
        assert!(pace.waits_are_short() && !pace.probing());
        assert!(!waits(&pace, 900, 6, 0), "six requests, one after the other");
        let stalls = (0..20).filter(|_| waits(&pace, 5_000, 1, 0)).count();
        assert!((1..20).contains(&stalls) && !pace.waits_are_short(), "{stalls}");
        assert!(waits(&pace, 150, 1, 0), "one short wait changes nothing");
    }

    #[test]
    fn waiting_for_a_processor_is_no_stall() {
        let pace = StallProbing::new();
        assert!((0..100).all(|_| !waits(&pace, 5_000, 1, 4_900)));
        let pace = StallProbing::new();
        assert!((0..100).all(|_| waits(&pace, 5_000, 1, 1_000)), "the rest was storage");
    }

    #[test]
    fn where_something_is_read_ahead_short_waits_are_stalls_too() {
        let pace = StallProbing::new();
        assert!((0..9).all(|_| pace.note_duration(
            150 * 2000,
            0,
            2000,
            || SleepEvidence::Helped,
            || unreachable!()
        )));
        assert!(!pace.waits_are_short());
    }

    /// Whatever comes: nothing goes by unseen within [`QUIET_CALLS`] calls after a stall or a use, and
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
        let (pace, mut since) = (StallProbing::new(), 0);
        for _ in 0..200_000 {
            match next() % 5000 {
                0 => pace.note_stall(),
                1 => pace.note_use(),
                2 => assert!(pace.note_duration(
                    600 * 2000,
                    0,
                    2000,
                    || SleepEvidence::Times(1),
                    || 0
                )),
                3 => pace.reset(),
                _ => {
                    let unseen = pace.calls_to_skip(&mut next);
                    let least = if since < QUIET_CALLS + QUIET_SAMPLES {
                        SKIP_MIN
                    } else {
                        DEEP_SKIP_FACTOR * SKIP_MIN
                    };
                    let expected = if since < QUIET_CALLS { 0..1 } else { least..3 * least };
                    assert!(expected.contains(&unseen), "{unseen} after {since}");
                    since += 1;
                    continue;
                }
            }
            since = 0;
        }
    }
}
