//! What a session did, for people and for scripts.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use runahead_abi::Shared;
use runahead_prefetch::PrefetchStats;
use serde::Serialize;

use crate::shadows::Collected;

/// A number of events and the time they took.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Timed {
    /// How many.
    pub count: u64,
    /// In all, in seconds.
    pub seconds: f64,
}

/// See the module's text. Times are in seconds.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// Layout of this record; grows when fields change meaning.
    pub version: u32,
    /// From the start of the command to its end.
    pub elapsed_seconds: f64,
    /// Why the command ran without the agent, if it did.
    pub native: Option<String>,
    /// Waits for storage that a shadow had hinted before.
    pub stalls_foreseen: Timed,
    /// Waits that none had.
    pub stalls_unforeseen: Timed,
    /// Times a shadow was made a copy of the target, and what that took of the target's time.
    pub syncs: Timed,
    /// Runs of shadows, repetitions included.
    pub runs: u64,
    /// Distinct accesses that shadows disclosed.
    pub hints_issued: u64,
    /// Those that the target then made.
    pub hints_used: u64,
    /// Those that it did not.
    pub hints_wasted: u64,
    /// File data read ahead, in bytes.
    pub bytes_prefetched: u64,
    /// Most prefetches under way at once.
    pub peak_in_flight: u64,
    /// Processor time of shadows.
    pub shadow_cpu_seconds: f64,
    /// Calls that reached the agent through a signal.
    pub traps: u64,
    /// Call sites patched so that they need none.
    pub sites_patched: u64,
    /// Planted effects, in tests: (refused by the kernel, not refused).
    #[serde(skip)]
    pub planted: (u64, u64),
}

impl Stats {
    pub(crate) fn collect(
        shared: &Shared,
        prefetch: &PrefetchStats,
        shadows: &Collected,
        elapsed: Duration,
        ticks_per_us: u64,
        native: Option<String>,
    ) -> Self {
        let c = &shared.control;
        let seconds = |ticks: u64| ticks as f64 / ticks_per_us.max(1) as f64 / 1e6;
        let timed = |count: u64, ticks: u64| Timed { count, seconds: seconds(ticks) };
        let (issued, used) = (c.hints_issued.load(Relaxed), c.hints_used.load(Relaxed));
        Stats {
            version: 1,
            elapsed_seconds: elapsed.as_secs_f64(),
            native,
            stalls_foreseen: timed(
                c.stalls_foreseen.load(Relaxed),
                c.stall_ticks_foreseen.load(Relaxed),
            ),
            stalls_unforeseen: timed(
                c.stalls_unforeseen.load(Relaxed),
                c.stall_ticks_unforeseen.load(Relaxed),
            ),
            syncs: timed(c.syncs.load(Relaxed), c.sync_ticks.load(Relaxed)),
            runs: c.run_request.load(Relaxed).into(),
            hints_issued: issued,
            hints_used: used,
            hints_wasted: issued.saturating_sub(used),
            bytes_prefetched: prefetch.bytes,
            peak_in_flight: prefetch.peak_in_flight as u64,
            shadow_cpu_seconds: shadows.cpu.as_secs_f64(),
            traps: c.traps.load(Relaxed),
            sites_patched: c.sites_patched.load(Relaxed),
            planted: (c.planted_refused.load(Relaxed), c.planted_done.load(Relaxed)),
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |t: &Timed| t.seconds * 1e3;
        writeln!(f, "runahead: {:.3} s elapsed", self.elapsed_seconds)?;
        if let Some(why) = &self.native {
            return writeln!(f, "  ran natively: {why}");
        }
        let (foreseen, other) = (&self.stalls_foreseen, &self.stalls_unforeseen);
        writeln!(
            f,
            "  stalls    {:>8}   {:>9.1} ms   ({} foreseen, {:.1} ms; {} not, {:.1} ms)",
            foreseen.count + other.count,
            ms(foreseen) + ms(other),
            foreseen.count,
            ms(foreseen),
            other.count,
            ms(other),
        )?;
        writeln!(
            f,
            "  syncs     {:>8}   {:>9.1} ms   ({} runs of shadows, {:.1} ms of processor time)",
            self.syncs.count,
            ms(&self.syncs),
            self.runs,
            self.shadow_cpu_seconds * 1e3,
        )?;
        writeln!(
            f,
            "  hints     {:>8}   {} used, {} wasted",
            self.hints_issued, self.hints_used, self.hints_wasted,
        )?;
        writeln!(
            f,
            "  prefetch  {:>8.1} MiB, at most {} at once",
            self.bytes_prefetched as f64 / f64::from(1 << 20),
            self.peak_in_flight,
        )?;
        if foreseen.count + other.count == 0 {
            writeln!(f, "  nothing stalled: all that it read was in memory")?;
        }
        Ok(())
    }
}
