//! Decides which calls are tried without waiting, and what counts as a stall.
//!
//! Of the decision whether a wait is worth a fork, this file has the first part: the detection of
//! waits that are long enough to gain from.
//!
//! A probe costs up to a microsecond on calls that take half of one, so a program that finds
//! everything in memory must not pay it. Calls are probed for [`PROBES`] calls after each stall,
//! and for [`PROBES_FOR_OTHERS`] after another process is heard to have stalled. In between they
//! are made as they stand and timed. The threads of a process share this state and occasionally
//! lose a count to each other.
//!
//! A process samples its calls after [`QUIET_CALLS`] calls without a stall or a use of a hint. Of
//! the calls that need not be seen (the policy says which), a thread then makes
//! [`StallProbing::calls_to_skip`] unseen, and the next one is timed as before. A stall in that
//! one, or in any call that is always seen, ends sampling.
//!
//! A wait of less than [`SHORT_WAIT`] is too short to gain from: waking the prefetcher takes as
//! long. While such waits take more of a process's time than longer ones ([`WaitLengths`]), as on a
//! local SSD, none is a stall. Where data is read ahead for the process, waits are short because of
//! that, and all are stalls.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use runahead_estimators::{Micros, TickRate, Ticks};

/// Calls probed after a stall. A stall that comes when probing has ceased is only timed, and costs
/// one missed sync.
const PROBES: u32 = 512;
/// Calls probed after another process has stalled: loading a program and its libraries takes some
/// fifty.
const PROBES_FOR_OTHERS: u32 = 160;
/// Time beyond which a call has waited for storage or for a processor.
const STALL_MIN: Micros = Micros(50);
/// Calls without a stall after which sampling begins: long after probing has ceased.
const QUIET_CALLS: u32 = 2048;
/// Sampling interval: 8 to 23 calls are skipped, at random. So a sixteenth of the cost is left, and
/// so many stalls may be missed when sampling ends.
const SKIP_MIN: u64 = 8;
/// Samples without a stall after which sampling becomes deep: some 32,000 calls.
const QUIET_SAMPLES: u32 = 2048;
/// Factor of the sampling interval in deep sampling. Calls that open files are seen all the same.
const DEEP_SKIP_FACTOR: u64 = 4;
/// Consecutive calls that are seen and measured exactly after one that took long and may have been
/// a stall.
const EXACT_CALLS: u32 = 16;
/// Lower bound of the speed of reads from memory, in bytes per microsecond.
const COPY_BYTES_PER_US: u64 = 1024;
/// Wait below which there is nothing to gain.
pub(super) const SHORT_WAIT: Micros = Micros(300);

/// Lengths of recent waits.
struct WaitLengths {
    /// Microseconds spent in short waits and in long ones.
    short_us: AtomicU32,
    long_us: AtomicU32,
}

impl WaitLengths {
    /// Most that one wait counts: it may have been exceptionally slow.
    const CAP: Micros = Micros(4_000);
    /// Sum at which both sums are halved, so that older waits fade.
    const WINDOW: Micros = Micros(16_000);

    /// Adds a call that took `time` and slept `sleeps` times: most likely once for each request.
    /// `runnable` of that may have been a wait for a processor.
    fn add(&self, time: Micros, sleeps: u32, runnable: impl FnOnce() -> Micros) {
        let mut one = time / u64::from(sleeps.max(1));
        if one >= SHORT_WAIT {
            one = time.saturating_sub(runnable()) / u64::from(sleeps.max(1));
        }
        let (kind, other) = if one < SHORT_WAIT {
            (&self.short_us, &self.long_us)
        } else {
            (&self.long_us, &self.short_us)
        };
        let sum = kind.load(Relaxed) + time.min(Self::CAP).0 as u32;
        kind.store(sum, Relaxed);
        if Micros(sum.into()) > Self::WINDOW {
            kind.store(sum / 2, Relaxed);
            other.store(other.load(Relaxed) / 2, Relaxed);
        }
    }

    fn are_short(&self) -> bool {
        self.short_us.load(Relaxed) > self.long_us.load(Relaxed)
    }
}

/// State of probing and sampling, shared by the threads of a process.
pub struct StallProbing {
    probes: AtomicU32,
    /// Time-stamp until which another process's stalls make a device slow, as last heard.
    heard_until_ticks: AtomicU64,
    /// Calls that a recent stall makes suspicious.
    suspect_calls: AtomicU32,
    /// Calls since the last stall, up to [`QUIET_CALLS`], and then samples, up to
    /// [`QUIET_SAMPLES`].
    quiet_calls: AtomicU32,
    /// Calls still to be measured exactly.
    exact_calls: AtomicU32,
    wait_lengths: WaitLengths,
    /// True if this process, or one of its parents, has sampled calls.
    has_sampled: AtomicBool,
}

impl StallProbing {
    pub(super) const fn new() -> Self {
        StallProbing {
            probes: AtomicU32::new(0),
            heard_until_ticks: AtomicU64::new(0),
            suspect_calls: AtomicU32::new(0),
            quiet_calls: AtomicU32::new(0),
            exact_calls: AtomicU32::new(0),
            wait_lengths: WaitLengths { short_us: AtomicU32::new(0), long_us: AtomicU32::new(0) },
            has_sampled: AtomicBool::new(false),
        }
    }

    /// Resets the state in a new process. What it inherits was not all seen if its parent has
    /// sampled.
    pub(super) fn reset(&self) {
        self.probes.store(0, Relaxed);
        self.heard_until_ticks.store(0, Relaxed);
        self.suspect_calls.store(0, Relaxed);
        self.quiet_calls.store(0, Relaxed);
    }

    /// Hears that some device is slow until `until` (`estimators::slow_devices`).
    pub fn hear_of_stalls(&self, until: Ticks, now: impl FnOnce() -> Ticks) {
        // Mostly it is nothing new.
        if self.heard_until_ticks.load(Relaxed) != until.0 {
            self.heard_until_ticks.store(until.0, Relaxed);
            if until > now() {
                self.probes.fetch_max(PROBES_FOR_OTHERS, Relaxed);
            }
        }
    }

    /// True if calls are to be tried without waiting.
    pub fn probing(&self) -> bool {
        self.probes.load(Relaxed) > 0
    }

    /// True if a call has stalled of late. Calls that cannot be tried without waiting (reading a
    /// directory) are expected to stall only then.
    pub fn has_stalled_lately(&self) -> bool {
        self.suspect_calls.load(Relaxed) > 0
    }

    /// Halves the number of suspicious calls: a suspect did not stall.
    pub fn clear_suspicion(&self) {
        self.suspect_calls.store(self.suspect_calls.load(Relaxed) / 2, Relaxed);
    }

    /// Notes that a call found its data in memory.
    pub fn note_hit(&self) {
        for count in [&self.probes, &self.suspect_calls, &self.exact_calls] {
            // Mostly nothing changes, and threads need not share the cache line to write.
            if let Some(fewer) = count.load(Relaxed).checked_sub(1) {
                count.store(fewer, Relaxed);
            }
        }
    }

    /// True if a recent call took long and may have been a stall.
    pub fn needs_exact_timing(&self) -> bool {
        self.exact_calls.load(Relaxed) > 0
    }

    /// Number of the thread's next calls that may go by unseen, after a call that may be sampled.
    /// `chance` makes it random, so that samples do not follow a pattern of the program.
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

    /// True if the waits of this process are too short to gain from.
    pub fn waits_are_short(&self) -> bool {
        self.wait_lengths.are_short()
    }

    /// True if nothing has stalled for long, so that calls are sampled.
    pub fn is_sampling(&self) -> bool {
        self.quiet_calls.load(Relaxed) >= QUIET_CALLS
    }

    /// True if calls of this process have ever gone by unseen.
    pub fn has_sampled(&self) -> bool {
        self.has_sampled.load(Relaxed)
    }

    /// Notes the use of a hint: calls need to be seen.
    pub fn note_use(&self) {
        self.quiet_calls.store(0, Relaxed);
    }

    /// Notes a stall.
    pub fn note_stall(&self) {
        self.quiet_calls.store(0, Relaxed);
        self.probes.store(PROBES, Relaxed);
        self.suspect_calls.store(PROBES, Relaxed);
    }

    /// Notes that a call took `time` for `bytes`. Returns true if that was a stall.
    ///
    /// `slept` is called only if it took long. It tells how often the thread has certainly given up
    /// its processor: a thread that was merely preempted has not stalled. `runnable` is its recent
    /// wait for a processor.
    // The image would have a copy of it for each kind of call.
    #[inline(never)]
    pub fn note_duration(
        &self,
        time: Ticks,
        bytes: u64,
        rate: TickRate,
        slept: impl FnOnce() -> SleepEvidence,
        runnable: impl FnOnce() -> Micros,
    ) -> bool {
        let allowed = STALL_MIN + Micros(bytes / COPY_BYTES_PER_US);
        let is_long = time > allowed.to_ticks(rate);
        let slept = if is_long { slept() } else { SleepEvidence::Never };
        let stalled = match slept {
            SleepEvidence::Never => false,
            SleepEvidence::Helped => true,
            SleepEvidence::AtMost(times) | SleepEvidence::Times(times) => {
                self.wait_lengths.add(time.to_micros(rate), times, runnable);
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

/// Knowledge of what a call that took long has done meanwhile.
pub enum SleepEvidence {
    /// The call had a processor all the time, or waited for one.
    Never,
    /// The call slept in a process for which data is read ahead: the length of waits without that
    /// is unknown.
    Helped,
    /// The call slept; the thread has slept this many times since the last measurement.
    AtMost(u32),
    /// The call slept this many times.
    Times(u32),
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const RATE: TickRate = TickRate::new(2000);

    #[test]
    fn probing_ends_without_stalls_and_resumes_with_one() {
        let pace = StallProbing::new();
        assert!(!pace.probing());
        let (long, short) = (Micros(600).to_ticks(RATE), Micros(60).to_ticks(RATE));
        pace.hear_of_stalls(Ticks(1000), || Ticks(1001));
        assert!(!pace.probing(), "that is over");
        pace.hear_of_stalls(Ticks(2000), || Ticks(1001));
        for _ in 0..PROBES_FOR_OTHERS {
            assert!(pace.probing());
            assert!(!pace.note_duration(Ticks(10), 0, RATE, || unreachable!(), || unreachable!()));
        }
        assert!(!pace.probing() && !pace.has_stalled_lately());
        assert!(
            !pace.note_duration(long, 1 << 20, RATE, || SleepEvidence::Times(1), || Micros(0)),
            "a megabyte may take a millisecond"
        );
        assert!(
            !pace.note_duration(short, 0, RATE, || SleepEvidence::Never, || Micros(0)),
            "another program had the processor"
        );
        assert!(waits(&pace, 600, 1, 0));
        assert!(pace.probing() && pace.has_stalled_lately());
    }

    fn quiet_call(pace: &StallProbing) -> u64 {
        assert!(!pace.note_duration(Ticks(10), 0, RATE, || unreachable!(), || unreachable!()));
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
    fn a_quiet_process_samples_until_a_call_stalls() {
        let (pace, short) = (resting(), Micros(60).to_ticks(RATE));
        assert!(
            !pace.note_duration(short, 0, RATE, || SleepEvidence::Never, || Micros(0))
                && pace.is_sampling(),
            "pushed off"
        );
        assert!((1..EXACT_CALLS).all(|_| quiet_call(&pace) == 0), "or perhaps not");
        assert!(quiet_call(&pace) > 0);
        assert!(waits(&pace, 600, 1, 0));
        assert!(!pace.is_sampling() && pace.probing());
        assert!((0..QUIET_CALLS).all(|_| quiet_call(&pace) == 0));
        assert!(!pace.probing() && quiet_call(&pace) > 0);
    }

    #[test]
    fn sampling_ends_when_a_hint_is_used() {
        let pace = resting();
        pace.note_use();
        assert_eq!(quiet_call(&pace), 0);
    }

    #[test]
    fn a_child_starts_awake_and_knows_what_its_parent_did() {
        let pace = resting();
        pace.reset();
        assert!(!pace.is_sampling() && !pace.probing() && pace.has_sampled());
        pace.hear_of_stalls(Ticks(2000), || Ticks(1000));
        assert!(pace.probing());
    }

    fn waits(pace: &StallProbing, us: u64, sleeps: u32, runnable_us: u64) -> bool {
        let (time, runnable) = (Micros(us).to_ticks(RATE), Micros(runnable_us));
        pace.note_duration(time, 0, RATE, || SleepEvidence::Times(sleeps), || runnable)
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
            Micros(150).to_ticks(RATE),
            0,
            RATE,
            || SleepEvidence::Helped,
            || unreachable!()
        )));
        assert!(!pace.waits_are_short());
    }

    /// No call goes by unseen within [`QUIET_CALLS`] calls after a stall or a use. Later some
    /// always do, in bounded numbers.
    #[test]
    fn no_call_is_skipped_soon_after_a_stall() {
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
                2 => assert!(waits(&pace, 600, 1, 0)),
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
