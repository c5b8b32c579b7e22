//! History of the syncs of a process: which stalls are worth another sync.

use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::agent_config::without;
use runahead_abi::{Control, RunEnd};
use runahead_estimators::{Micros, TickRate, Ticks};

use super::child_stalls::ChildStalls;
use super::concurrency::{Concurrency, ConcurrencyMeter};
use super::run_requests::supersede;
use super::sync_budget::{SyncBudget, SyncInputs};
use crate::session::Session;
use crate::sys;
use crate::time_stamp::ticks;
use crate::uninherited_memory;

/// Multiple of the last sync's cost that must pass before the next one.
const SYNC_SPACING: u64 = 4;
/// Upper bound of a wait for storage, as a multiple of the time of a request that does not queue.
const QUEUED_WAIT_FACTOR: u64 = 2;
/// Used hints per waiting fault from which a shadow counts as foreseeing what comes.
const HINTS_PER_FAULT: u64 = 4;

/// History of the syncs of a process, from which it is decided which stalls are worth another.
pub(crate) struct SyncHistory {
    pub(super) last_end: Ticks,
    pub(super) last_cost: Ticks,
    pub(super) budget: SyncBudget,
    /// True if the supervisor is gone, or shadows cannot be made.
    pub(super) is_disabled: bool,
    /// True while a shadow exists that was not told to end.
    pub(super) has_shadow: bool,
    /// True if the newest shadow has been asked for another run.
    pub(super) has_rerun: bool,
    /// Mean wait of a page fault, if the thread waits for faults now; 0: it waits for calls.
    pub(super) fault_wait: Ticks,
    /// True once a sync was considered because of page faults.
    has_synced_for_faults: bool,
    /// Hints issued and used at the last check of faults.
    hints_issued: u64,
    hints_used: u64,
    concurrency: ConcurrencyMeter,
}

impl SyncHistory {
    pub(super) const fn new() -> Self {
        SyncHistory {
            last_end: Ticks(0),
            last_cost: Ticks(0),
            budget: SyncBudget::new(),
            is_disabled: false,
            has_shadow: false,
            has_rerun: false,
            fault_wait: Ticks(0),
            has_synced_for_faults: false,
            hints_issued: 0,
            hints_used: 0,
            concurrency: ConcurrencyMeter::new(),
        }
    }

    /// True if a shadow foresees most of what comes. `faults` have waited since the last call. A
    /// shadow that is at work with results gets `turn` to get ahead.
    pub(super) fn shadow_foresees(&mut self, session: &Session, faults: u64, turn: Ticks) -> bool {
        let control = &session.shared().control;
        let (issued, used) = (control.hints_issued.load(Relaxed), control.hints_used.load(Relaxed));
        let issued_before = core::mem::replace(&mut self.hints_issued, issued);
        let used_before = core::mem::replace(&mut self.hints_used, used);
        if used.saturating_sub(used_before) > HINTS_PER_FAULT * faults {
            return true;
        }
        let run = session.shared().run(control.run_request.load(Relaxed));
        let end = RunEnd::from_raw(run.end.load(Relaxed));
        let is_at_work = matches!(end, RunEnd::Running | RunEnd::Paused);
        is_at_work && issued > issued_before && ticks().wrapping_sub(self.last_end) < turn
    }

    /// True if a sync is worth while now.
    pub(super) fn is_due(
        &mut self,
        session: &'static Session,
        children: &ChildStalls,
        stalls: u64,
    ) -> bool {
        let control = &session.shared().control;
        // The supervisor sets the horizon to 0 where there is no memory for shadows.
        if control.horizon.load(Relaxed) == 0 || control.stopped.load(Relaxed) != 0 {
            return false;
        }
        if self.is_disabled || ticks().wrapping_sub(self.last_end) < self.last_cost * SYNC_SPACING {
            return false;
        }
        // Uses by children show in no log of this process.
        let open =
            control.hints_issued.load(Relaxed).saturating_sub(control.hints_used.load(Relaxed));
        let warm = children.take_warm_execs().min(open);
        control.hints_used.fetch_add(warm, Relaxed);
        control.shadow_hints_used.fetch_add(warm, Relaxed);
        let waited = Ticks(control.stall_ticks_unforeseen.load(Relaxed));
        self.concurrency.sample(ticks(), waited, session.tick_rate());
        let seen = self.observe(session);
        // The cost of shadows for calls says nothing about those for faults.
        let is_first = self.fault_wait > Ticks(0)
            && !core::mem::replace(&mut self.has_synced_for_faults, true);
        if is_first || !self.budget.has_begun() {
            self.budget.begin(session.tick_rate(), &seen);
        }
        if !self.budget.update(&seen) && core::mem::take(&mut self.has_shadow) {
            supersede(control);
        }
        self.budget.affords(&seen, stalls)
    }

    /// Inputs for the budget as they are now.
    pub(super) fn observe(&self, session: &Session) -> SyncInputs {
        let control = &session.shared().control;
        let concurrency = match session.is_without(without::CONCURRENCY) {
            true => Concurrency::default(),
            false => self.concurrency.current().combined_with(Concurrency::of_session(control)),
        };
        let mut seen = budget_inputs(control, concurrency, session.tick_rate());
        if uninherited_memory::is_worth_excluding(session, seen.own_pages) {
            // Such a sync copies little.
            seen.own_pages = 0;
        }
        match self.fault_wait {
            Ticks(0) => seen,
            wait => SyncInputs { mean_wait: Some(wait), ..seen },
        }
    }
}

/// True if there is memory for a shadow of this process, which has had `faults` minor faults, or if
/// a shadow needs no copy.
pub(super) fn has_room(session: &Session, faults: u64) -> bool {
    let control = &session.shared().control;
    control.has_room(|| faults)
        || uninherited_memory::is_worth_excluding(session, control.pages_at(faults))
}

/// Inputs for the budget, from the counters that are shared with the supervisor.
fn budget_inputs(control: &Control, concurrency: Concurrency, rate: TickRate) -> SyncInputs {
    let faults = sys::minor_faults();
    let waited = Ticks(control.stall_ticks_unforeseen.load(Relaxed));
    // A shell does not wait for storage itself; the programs that it starts do.
    let service = match control.service_us.load(Relaxed) {
        0 => None,
        us => Some(Micros(us.into()).to_ticks(rate)),
    };
    SyncInputs {
        own_pages: control.pages_at(faults),
        minor_faults: faults,
        hints_used: control.shadow_hints_used.load(Relaxed),
        shadow_cpu: Micros(control.shadow_cpu_us.load(Relaxed)),
        usual_sync: Ticks(control.usual_sync_ticks.load(Relaxed)),
        mean_wait: match (waited.mean_of(control.stalls_unforeseen.load(Relaxed)), service) {
            // The rest of the time was spent waiting for a processor.
            (Some(mean), Some(service)) => Some(mean.min(service * QUEUED_WAIT_FACTOR)),
            (mean, service) => mean.or(service),
        },
        data_hints_used: control.shadow_data_used.load(Relaxed),
        own_requests: control.own_requests.load(Relaxed),
        own_reads: control.own_reads.load(Relaxed),
        concurrency,
    }
}
