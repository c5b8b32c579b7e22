//! Statistics of a session, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use runahead_abi::Control;
use runahead_admission::degradation_counts::UNDER_OTHER_RULES;
use runahead_admission::session_totals::SessionTotals;
use runahead_estimators::{Micros, TickRate, Ticks};
use runahead_prefetch::{KIND_NAMES, PrefetchStats};
use runahead_speculation::Counts;
use serde::Serialize;

use runahead_history::session::HistoryStats;

/// A number of events and the time they took.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Timed {
    /// Number of events.
    pub count: u64,
    /// Sum of their durations, in seconds.
    pub seconds: f64,
}

/// Guesses of one kind.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Guesses {
    /// Number of guesses that were begun.
    pub begun: u64,
    /// Number of these that the program came to afterwards.
    pub used: u64,
}

impl From<(u64, u64)> for Guesses {
    fn from((begun, used): (u64, u64)) -> Self {
        Guesses { begun, used }
    }
}

/// Counts of a program's own predictions.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Speculations {
    /// Predictions that were begun.
    pub begun: u64,
    /// Predictions that were right.
    pub committed: u64,
    /// Predictions that were wrong.
    pub failed: u64,
    /// Predictions that were rolled back with an earlier one, or never settled.
    pub neither: u64,
    /// Predictions that were refused.
    pub refused: u64,
    /// Number of times that a process came to depend on another's speculation.
    pub depended: u64,
    /// Number of those begun with copies before the first store, where userfaultfd(2) is refused.
    pub by_write_faults: u64,
}

impl From<Counts> for Speculations {
    fn from(
        Counts { opened, committed, failed, refused, depended, by_write_faults: unnoted }: Counts,
    ) -> Self {
        let neither = opened.saturating_sub(committed).saturating_sub(failed);
        let by_write_faults = unnoted;
        let begun = opened;
        Speculations { begun, committed, failed, neither, refused, depended, by_write_faults }
    }
}

/// Costs and gains of prefetching beside time.
#[derive(Debug, Default, Clone, Serialize)]
pub struct MemoryStats {
    /// Bytes that may be prefetched and not used yet, at the latest check; 0: no process stalled.
    pub budget_bytes: u64,
    /// Most bytes that were hinted and not used yet at one time.
    pub peak_bytes_ahead: u64,
    /// Hints that the target passed without using them. It may have used them later.
    pub hints_overdue: u64,
    /// Hints whose data was fetched, but evicted before the target used it.
    pub hints_lost: u64,
}

/// Statistics of a session. Times are in seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Version of this record's layout; grows when a field changes its meaning.
    pub version: u32,
    /// Time from the command's start to its end.
    pub elapsed_seconds: f64,
    /// Reason that the command ran without the agent, if it did.
    pub native: Option<String>,
    /// Facilities that were missing, and how many times each.
    pub lost: BTreeMap<String, u64>,
    /// Reasons that a process's shadows were stopped for a while, and how many times each.
    pub stopped: BTreeMap<String, u64>,
    /// Costs of prefetching.
    pub memory: MemoryStats,
    /// Programs that the agent was in, the command included.
    pub programs: u64,
    /// Processes that stalled.
    pub processes_stalled: u64,
    /// Waits for storage that a shadow had hinted before.
    pub stalls_foreseen: Timed,
    /// Waits for storage that no shadow had hinted.
    pub stalls_unforeseen: Timed,
    /// Number of these stalls that were page faults.
    pub stalled_faults: u64,
    /// Syncs (a shadow was made a copy of the target), and the time that they took from the target.
    pub syncs: Timed,
    /// Number of these syncs that left the target's large memory out of the fork, to be fetched on
    /// demand.
    pub syncs_mirrored: u64,
    /// Runs of shadows, repetitions included.
    pub runs: u64,
    /// Distinct accesses that shadows disclosed.
    pub hints_issued: u64,
    /// Number of hints that the target then used.
    pub hints_used: u64,
    /// Number of hints that it did not use.
    pub hints_wasted: u64,
    /// File data read ahead, in bytes.
    pub bytes_prefetched: u64,
    /// Bytes of swapped memory that were fetched for programs.
    pub bytes_unswapped: u64,
    /// Guesses, by kind.
    pub guesses: BTreeMap<&'static str, Guesses>,
    /// Processor time of the prefetcher's workers.
    pub prefetch_cpu_seconds: f64,
    /// Most prefetches in flight at one time.
    pub peak_in_flight: u64,
    /// Processor time of shadows.
    pub shadow_cpu_seconds: f64,
    /// Calls that reached the agent through a signal, in processes that stalled.
    pub traps: u64,
    /// Call sites that were patched so that they need no signal, in processes that stalled.
    pub sites_patched: u64,
    /// Results of recording and replaying, if there was any.
    pub history: Option<HistoryStats>,
    /// Results of the program's own predictions, if it made any.
    pub speculations: Option<Speculations>,
    /// Effects that tests planted and the kernel refused.
    #[serde(skip)]
    pub planted_refused: u64,
    /// Effects that tests planted and the kernel did not refuse.
    #[serde(skip)]
    pub planted_done: u64,
}

/// Number of events, and the sum of their durations.
#[derive(Debug, Default, Clone, Copy)]
struct Durations {
    count: u64,
    time: Ticks,
}

/// Sums over the processes of a session.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Counts; the times below are not in it.
    counts: Stats,
    foreseen: Durations,
    unforeseen: Durations,
    syncs: Durations,
    shadow_cpu: Micros,
}

impl Totals {
    /// Adds a process that has ended.
    pub fn add(&mut self, c: &Control) {
        // The process wrote the numbers, so they may be anything.
        let plus = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        let add = |sum: &mut Durations, count: &AtomicU64, ticks: &AtomicU64| {
            plus(&mut sum.count, count.load(Relaxed));
            plus(&mut sum.time.0, ticks.load(Relaxed));
        };
        add(&mut self.foreseen, &c.stalls_foreseen, &c.stall_ticks_foreseen);
        add(&mut self.unforeseen, &c.stalls_unforeseen, &c.stall_ticks_unforeseen);
        add(&mut self.syncs, &c.syncs, &c.sync_ticks);
        plus(&mut self.shadow_cpu.0, c.shadow_cpu_us.load(Relaxed));
        let counts = &mut self.counts;
        counts.processes_stalled += 1;
        plus(&mut counts.syncs_mirrored, c.syncs_mirrored.load(Relaxed));
        plus(&mut counts.stalled_faults, c.stalled_faults.load(Relaxed));
        plus(&mut counts.planted_refused, c.planted_refused.load(Relaxed));
        plus(&mut counts.planted_done, c.planted_done.load(Relaxed));
        plus(&mut counts.runs, c.run_request.load(Relaxed).into());
        plus(&mut counts.hints_issued, c.hints_issued.load(Relaxed));
        plus(&mut counts.hints_used, c.hints_used.load(Relaxed));
        plus(&mut counts.traps, c.traps.load(Relaxed));
        plus(&mut counts.sites_patched, c.sites_patched.load(Relaxed));
        plus(&mut counts.memory.hints_lost, c.hints_lost.load(Relaxed));
    }

    /// Adds the counts of the whole session.
    pub(crate) fn add_ledger(&mut self, ledger: &SessionTotals) {
        self.counts.stopped = ledger.stops.all();
        let memory = &mut self.counts.memory;
        memory.budget_bytes = ledger.budget.latest();
        memory.peak_bytes_ahead = ledger.budget.peak();
        memory.hints_overdue = ledger.overdue.load(Relaxed);
    }
}

impl Stats {
    /// Statistics of a command that runs natively from its start, in place of this process.
    pub fn of_native(why: String) -> Self {
        Stats::new(
            Totals::default(),
            &PrefetchStats::default(),
            Duration::ZERO,
            TickRate::ONE,
            0,
            Some(why),
            BTreeMap::new(),
        )
    }

    pub(crate) fn new(
        totals: Totals,
        prefetch: &PrefetchStats,
        elapsed: Duration,
        rate: TickRate,
        programs: u64,
        native: Option<String>,
        lost: BTreeMap<String, u64>,
    ) -> Self {
        let timed = |Durations { count, time }| {
            let seconds = time.0 as f64 / rate.ticks_per_us() as f64 / 1e6;
            Timed { count, seconds }
        };
        let Totals { counts, foreseen, unforeseen, syncs, shadow_cpu } = totals;
        Stats {
            version: 2,
            elapsed_seconds: elapsed.as_secs_f64(),
            programs,
            native,
            lost,
            stalls_foreseen: timed(foreseen),
            stalls_unforeseen: timed(unforeseen),
            syncs: timed(syncs),
            hints_wasted: counts.hints_issued.saturating_sub(counts.hints_used),
            bytes_prefetched: prefetch.bytes,
            bytes_unswapped: prefetch.swapped_bytes,
            guesses: KIND_NAMES.into_iter().zip(prefetch.guessed.map(Guesses::from)).collect(),
            prefetch_cpu_seconds: prefetch.processor.as_secs_f64(),
            peak_in_flight: prefetch.peak_in_flight as u64,
            shadow_cpu_seconds: shadow_cpu.0 as f64 / 1e6,
            ..counts
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
        if self.programs > 1 {
            writeln!(
                f,
                "  programs  {:>8}   ({} processes stalled)",
                self.programs, self.processes_stalled
            )?;
        }
        let (foreseen, other) = (&self.stalls_foreseen, &self.stalls_unforeseen);
        writeln!(
            f,
            "  stalls    {:>8}   {:>9.1} ms   ({} foreseen, {:.1} ms; {} not, {:.1} ms)",
            foreseen.count.saturating_add(other.count),
            ms(foreseen) + ms(other),
            foreseen.count,
            ms(foreseen),
            other.count,
            ms(other),
        )?;
        if self.stalled_faults > 0 {
            writeln!(
                f,
                "  faults    {:>8}   of these in page faults: of mapped files, or memory that was swapped out",
                self.stalled_faults
            )?;
        }
        writeln!(
            f,
            "  syncs     {:>8}   {:>9.1} ms   ({} runs of shadows, {:.1} ms of processor time)",
            self.syncs.count,
            ms(&self.syncs),
            self.runs,
            self.shadow_cpu_seconds * 1e3,
        )?;
        if self.syncs_mirrored > 0 {
            writeln!(
                f,
                "  mirrored  {:>8}   of these without a copy of large memory, which came as it was touched",
                self.syncs_mirrored,
            )?;
        }
        writeln!(
            f,
            "  hints     {:>8}   {} used, {} wasted",
            self.hints_issued, self.hints_used, self.hints_wasted,
        )?;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "  prefetch  {:>8.1} MiB, at most {} at once",
            mebibytes(self.bytes_prefetched),
            self.peak_in_flight,
        )?;
        if self.bytes_unswapped > 0 {
            let swapped = mebibytes(self.bytes_unswapped);
            writeln!(f, "  swap      {swapped:>8.1} MiB of memory were fetched from there")?;
        }
        if let Some(of) = self.speculations {
            let Speculations { begun, committed, failed, neither, refused, depended, .. } = of;
            writeln!(
                f,
                "  predicted {begun:>8}   ({committed} right, {failed} wrong, {neither} taken back with those; {refused} refused; {depended} times another process came to depend on one)"
            )?;
            if of.by_write_faults > 0 {
                writeln!(
                    f,
                    "            {:>8}   of these where userfaultfd(2) is refused: memory is copied before the first store",
                    of.by_write_faults
                )?;
            }
        }
        for (why, times) in &self.stopped {
            writeln!(f, "  stopped   {times:>8}   times a process's shadow: {why}")?;
        }
        if let Some(history) = &self.history {
            write!(f, "{history}")?;
        }
        for (what, times) in &self.lost {
            writeln!(f, "  lost      {times:>8}   times: {what}")?;
        }
        let is_known = |what: &String| {
            let could_not = ["could not join", "no process could join"];
            !could_not.iter().any(|text| what.contains(text)) && what != UNDER_OTHER_RULES
        };
        if self.processes_stalled == 0 && !self.lost.keys().all(is_known) {
            writeln!(f, "  what stalled is not known: see what was lost")?;
        } else if foreseen.count == 0 && other.count == 0 && self.hints_used == 0 {
            writeln!(
                f,
                "  nothing that is followed stalled (RUNAHEAD=0, direct reads and io_uring are not followed)"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_unknown_if_no_process_could_join() {
        let text = |lost: &[&str], processes| {
            let counts = Stats { processes_stalled: processes, ..Stats::default() };
            let totals = Totals { counts, ..Totals::default() };
            let lost = lost.iter().map(|what| (what.to_string(), 1)).collect();
            let nothing = PrefetchStats::default();
            Stats::new(totals, &nothing, Duration::ZERO, TickRate::ONE, 1, None, lost).to_string()
        };
        assert!(text(&[], 0).contains("nothing that is followed stalled"));
        assert!(!text(&[], 0).contains("all that it read"), "direct reads may have waited");
        assert!(
            text(&["a program ran natively: it is strange"], 0)
                .contains("nothing that is followed stalled")
        );
        for lost in [
            "a process could not join (EAGAIN)",
            "no process could join (EMFILE)",
            UNDER_OTHER_RULES,
        ] {
            let unknown = text(&[lost], 0);
            assert!(unknown.contains("not known") && !unknown.contains("nothing"), "{unknown}");
            assert!(!text(&[lost], 1).contains("not known"), "one could");
        }
    }
}
