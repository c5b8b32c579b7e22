//! Budget of syncs: weighs what they cost the target against its waits and what they have spared
//! it.
//!
//! Of the decision whether a wait is worth a fork, this file has the arithmetic; it reads no clock
//! and shares no memory.
//!
//! A sync costs its fork, which grows with the process's own memory; a copy of each page that the
//! target stores to afterwards; and the processor time of the shadow. All costs are in ticks.
//! - The part of a fork that is no longer than its wait is free, as far as no other thread is kept
//!   from working: the busier the other threads are, the more of it counts ([`Concurrency`]).
//! - Threads that wait at the same time wait once: sparing one of them its wait leaves the others
//!   waiting. As far as they do nothing else, only idle time is lost.
//! - The rest of the fork, the copies and the shadows' processor time are booked on an [`Account`],
//!   which starts at zero: waits that are long enough pay for trials. Before the first sync hints
//!   are the supervisor's own, which need no account.
//! - A used hint spares only a part of a wait. Names and attributes come by the block, so one wait
//!   brings dozens. The prefetcher supplies that part, for names and for data: the share of its
//!   operations that had to ask the storage.
//! - The cost of the next sync is predicted from former ones, and from the memory there is and the
//!   cost per page.
//!
//! Invariant: syncs cost the target at most what they spare it, a sixteenth of its waits, and the
//! excess of the last sync over its expected cost.

use runahead_estimators::cost_account::{Account, MOST};
use runahead_estimators::{Micros, TickRate, Ticks};

use super::concurrency::Concurrency;

/// Assumed cost of the first sync of a session.
const FIRST_SYNC: Micros = Micros(1_000);
/// Most that the first sync counts as having cost: it may have lost its processor.
const FIRST_SYNC_MAX: Micros = Micros(4_000);
/// Overdraft, in waits, at which a shadow is ended: it had time to be of use.
const OVERDRAFT_WAITS: i64 = 8;
/// Most processor time of shadows that counts between two updates.
const SHADOW_CPU_MAX: Micros = Micros(1_000_000);
/// Most used hints that count between two updates.
const USED_HINTS_MAX: u64 = 1 << 16;
/// Assumed length of a wait until one has been measured.
const DEFAULT_WAIT: Micros = Micros(1_000);
/// Cost of one page copy after a fork: a fault, an allocation and the copy.
const PAGE_COPY: Micros = Micros(3);
/// Assumed speed of a sync until one has been measured, in pages per microsecond: a fifth of the
/// time is the fork, the rest copies of one page in fifteen.
const PAGES_PER_US: u64 = 4;
/// Pages that cost nothing worth counting: any program has them.
const SMALL_PAGES: i64 = 1_024;

/// Inputs known at a stall.
#[derive(Clone, Copy, Default)]
pub(super) struct SyncInputs {
    /// Pages of the process's own memory.
    pub own_pages: u64,
    /// Page faults without I/O since the process began (getrusage(2)).
    pub minor_faults: u64,
    /// Used hints of shadows since the process joined.
    pub hints_used: u64,
    /// Processor time of shadows that have ended.
    pub shadow_cpu: Micros,
    /// Usual time of a sync in other processes of the session; 0: none yet.
    pub usual_sync: Ticks,
    /// Mean of the unforeseen stalls, if there were any.
    pub mean_wait: Option<Ticks>,
    /// Used data hints of shadows since the process joined.
    pub data_hints_used: u64,
    /// Operations with names, of 1,024 of the prefetcher, that had a request of their own; 0:
    /// unknown.
    pub own_requests: u32,
    /// Reads, of 1,024 of the prefetcher, that had a request of their own; 0: unknown.
    pub own_reads: u32,
    pub concurrency: Concurrency,
}

impl SyncInputs {
    /// Ticks that `names` and `data` hints have spared, if each would have taken a wait of `wait`
    /// ticks.
    fn spared(&self, names: i64, data: i64, wait: i64) -> i64 {
        let part = |count: i64, own: u32| match own {
            0 => count * wait,
            own => count * wait / 1024 * i64::from(own.min(1024)),
        };
        part(names, self.own_requests) + part(data, self.own_reads)
    }
}

/// State of the budget.
pub(super) struct SyncBudget {
    /// Balance in ticks.
    account: Account,
    rate: TickRate,
    has_begun: bool,
    /// Cost of a sync for each 1,024 pages, in ticks.
    ticks_per_1024_pages: i64,
    has_synced: bool,
    /// The newest sync: its fork in ticks, the pages there were, and how many of them were copied
    /// since.
    fork_ticks: i64,
    pages: i64,
    copied_pages: i64,
    /// Recent mean of forks, in ticks.
    usual_fork_ticks: i64,
    /// Inputs at the last update.
    faults: u64,
    used: u64,
    used_data: u64,
    shadow_cpu: Micros,
}

impl SyncBudget {
    pub(super) const fn new() -> Self {
        SyncBudget {
            account: Account::new(0),
            rate: TickRate::ONE,
            has_begun: false,
            ticks_per_1024_pages: 0,
            has_synced: false,
            fork_ticks: 0,
            pages: 0,
            copied_pages: 0,
            usual_fork_ticks: 0,
            faults: 0,
            used: 0,
            used_data: 0,
            shadow_cpu: Micros(0),
        }
    }

    /// Starts the budget of a process that has begun, or is new by a fork.
    pub(super) fn begin(&mut self, rate: TickRate, seen: &SyncInputs) {
        *self = SyncBudget {
            rate,
            has_begun: true,
            ticks_per_1024_pages: signed(Micros(1024).to_ticks(rate) / PAGES_PER_US),
            faults: seen.minor_faults,
            used: seen.hints_used,
            used_data: seen.data_hints_used,
            shadow_cpu: seen.shadow_cpu,
            ..SyncBudget::new()
        };
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Accounts for costs and gains since the last update. Returns false if the shadow has cost
    /// more than it gains for some time.
    pub(super) fn update(&mut self, seen: &SyncInputs) -> bool {
        let wait = self.wait_ticks(seen);
        let since = |now: u64, before: u64| match self.has_synced {
            true => now.saturating_sub(before).min(USED_HINTS_MAX) as i64,
            false => 0,
        };
        let data = since(seen.data_hints_used, self.used_data);
        let names = (since(seen.hints_used, self.used) - data).max(0);
        (self.used, self.used_data) = (seen.hints_used, seen.data_hints_used);
        let faults = seen.minor_faults.saturating_sub(self.faults) as i64;
        self.faults = seen.minor_faults;
        // Each page is copied once; other faults are the program's own.
        let copied = faults.min(self.pages - self.copied_pages).max(0);
        self.copied_pages += copied;
        let computed = seen.shadow_cpu.saturating_sub(self.shadow_cpu).min(SHADOW_CPU_MAX);
        self.shadow_cpu = seen.shadow_cpu;
        // Gains and costs are booked together: an update may come late, and what was spared pays
        // for what was done in the same time.
        let gained = seen.spared(names, data, wait);
        match gained - self.ticks_in(PAGE_COPY * copied as u64 + computed) {
            net @ 0.. => self.account.spared(net, wait),
            net => self.account.spent(-net),
        }
        self.account.balance() >= -OVERDRAFT_WAITS * wait
    }

    /// Books `stalls` unforeseen stalls. Returns true if a sync is affordable in the last of them.
    pub(super) fn affords(&mut self, seen: &SyncInputs, stalls: u64) -> bool {
        let wait = self.shared_wait(seen);
        self.update_rate();
        (0..stalls.min(MOST as u64)).for_each(|_| self.account.waited(wait));
        let usual = match (self.has_synced, seen.usual_sync) {
            (true, _) => self.usual_fork_ticks,
            (false, Ticks(0)) => self.ticks_in(FIRST_SYNC),
            (false, others) => signed(others),
        };
        let cost = self.expected_cost(seen.own_pages as i64).max(usual);
        // The first sync is free in its wait: it shows what it costs, and unknown costs are not
        // charged.
        let free = if self.has_synced { self.free_ticks(seen) } else { self.wait_ticks(seen) };
        self.account.affords(cost.saturating_sub(free))
    }

    /// Books a sync that took `fork`.
    pub(super) fn note_sync(&mut self, seen: &SyncInputs, fork: Ticks) {
        self.pages = seen.own_pages as i64;
        self.copied_pages = 0;
        self.has_synced = true;
        self.fork_ticks = fork.0 as i64;
        // A fork that lost its processor meanwhile says little about the next.
        self.usual_fork_ticks = match self.usual_fork_ticks {
            0 => self.fork_ticks.min(self.ticks_in(FIRST_SYNC_MAX)),
            usual => (3 * usual + self.fork_ticks.min(2 * usual)) / 4,
        };
        self.account.spent((self.fork_ticks - self.free_ticks(seen)).max(0));
    }

    /// Updates the cost per page by half from the newest sync.
    fn update_rate(&mut self) {
        let pages = core::mem::take(&mut self.pages);
        if pages > SMALL_PAGES {
            let cost = self.fork_ticks + self.ticks_in(PAGE_COPY * self.copied_pages as u64);
            self.ticks_per_1024_pages =
                (self.ticks_per_1024_pages + cost.saturating_mul(1024) / pages) / 2;
        }
    }

    fn expected_cost(&self, pages: i64) -> i64 {
        (pages - SMALL_PAGES).max(0).saturating_mul(self.ticks_per_1024_pages) / 1024
    }

    /// Ticks of a fork that cost nothing.
    fn free_ticks(&self, seen: &SyncInputs) -> i64 {
        match seen.concurrency.waiting_threads {
            // A single thread computes nothing while it waits.
            0 | 1 => self.wait_ticks(seen),
            _ => {
                self.wait_ticks(seen) / 1024
                    * i64::from(1024 - seen.concurrency.busy_processors.min(1024))
            }
        }
    }

    /// Ticks that the process waits when one of its threads does.
    fn shared_wait(&self, seen: &SyncInputs) -> i64 {
        let Concurrency { waiting_threads: wait, busy_processors: busy } = seen.concurrency;
        let others = i64::from(wait.saturating_sub(1)) * i64::from(busy.min(1024));
        self.wait_ticks(seen).saturating_mul(1024) / (1024 + others)
    }

    fn wait_ticks(&self, seen: &SyncInputs) -> i64 {
        seen.mean_wait.map_or(self.ticks_in(DEFAULT_WAIT), signed)
    }

    fn ticks_in(&self, time: Micros) -> i64 {
        signed(time.to_ticks(self.rate))
    }
}

/// Ticks as the account counts them, limited so that their products with counts do not overflow.
fn signed(time: Ticks) -> i64 {
    time.0.min(i64::MAX as u64 >> 16) as i64
}

#[cfg(test)]
mod tests {
    extern crate std;
    use runahead_estimators::cost_account::TRY;

    use super::*;

    const PER_US: u64 = 2_000;
    const WAIT_US: u64 = 2_000;

    fn seen(pages: u64) -> SyncInputs {
        SyncInputs {
            own_pages: pages,
            mean_wait: Some(Ticks(WAIT_US * PER_US)),
            ..SyncInputs::default()
        }
    }

    fn begun(pages: u64) -> (SyncBudget, SyncInputs) {
        let mut balance = SyncBudget::new();
        let seen = seen(pages);
        balance.begin(TickRate::new(PER_US), &seen);
        (balance, seen)
    }

    /// Number of stalls until a sync is affordable, at most `most`.
    fn stalls(balance: &mut SyncBudget, seen: &SyncInputs, most: u32) -> Option<u32> {
        (1..=most).find(|_| balance.affords(seen, 1))
    }

    #[test]
    fn a_small_program_affords_its_first_syncs_and_a_large_one_waits() {
        let (mut small, seen) = begun(2_000);
        assert_eq!(stalls(&mut small, &seen, 10), Some(1));
        let (mut large, seen) = begun(3 << 18);
        let first = stalls(&mut large, &seen, 10_000).expect("it is tried at some time");
        // 196 ms are expected; a sixteenth of 2 ms is saved at each stall.
        assert!((1_200..1_800).contains(&first), "{first}");
    }

    #[test]
    fn copies_are_paid_for_once_each() {
        let (mut balance, mut seen) = begun(20_000);
        // 4.7 ms are expected, in waits of 2.
        let first = stalls(&mut balance, &seen, 100);
        assert!(first.is_some_and(|first| (20..25).contains(&first)), "{first:?}");
        balance.note_sync(&seen, Ticks(1_500 * PER_US));
        let before = balance.account.balance();
        seen.minor_faults = 7_000;
        assert!(!balance.update(&seen), "21 ms of copies in a wait of 2");
        let copies = (7_000 * PAGE_COPY.0 * PER_US) as i64;
        assert_eq!(balance.account.balance(), before - copies);
        seen.minor_faults = 1_000_000;
        balance.update(&seen);
        assert_eq!(balance.account.balance(), before - 20 * copies / 7, "no page is copied twice");
        // The expected cost of the next sync includes half of what copying all pages cost.
        assert!(stalls(&mut balance, &seen, 100).is_none());
        assert!(stalls(&mut balance, &seen, 10_000).is_some(), "but it is tried again");
    }

    #[test]
    fn savings_before_the_first_sync_do_not_pay_for_one() {
        let (mut balance, mut seen) = begun(3 << 16);
        seen.hints_used = 1_000;
        assert!(balance.update(&seen) && !balance.affords(&seen, 1), "49 ms in a wait of 2");
    }

    /// Syncs in 1,000 stalls whose fork takes twice as long as a wait, as on a fast disk.
    fn dear_forks(own_requests: u32) -> u32 {
        let (mut balance, mut seen) = begun(500);
        seen.own_requests = own_requests;
        let mut syncs = 0;
        for _ in 0..1_000 {
            seen.hints_used += 4;
            balance.update(&seen);
            if balance.affords(&seen, 1) {
                syncs += 1;
                balance.note_sync(&seen, Ticks(2 * WAIT_US * PER_US));
            }
        }
        syncs
    }

    #[test]
    fn hints_spare_as_many_waits_as_they_have_requests() {
        // Four used hints for each stall would spare four waits; one in twenty has a request: a
        // fifth of one.
        assert_eq!((dear_forks(0), dear_forks(1024)), (1_000, 1_000));
        assert!((150..350).contains(&dear_forks(51)), "{}", dear_forks(51));
    }

    #[test]
    fn forks_that_take_longer_than_waits_are_paid_for_before_they_are_made() {
        let (mut balance, seen) = begun(500);
        let mut syncs = 0;
        for _ in 0..1_000 {
            balance.update(&seen);
            if balance.affords(&seen, 1) {
                syncs += 1;
                balance.note_sync(&seen, Ticks(2 * WAIT_US * PER_US));
            }
            // The cost of the first sync is unknown.
            let most = -(u64::from(syncs == 1) as i64) * (WAIT_US * PER_US) as i64;
            assert!(balance.account.balance() >= most, "only what has been put by is spent");
        }
        assert!((50..70).contains(&syncs), "a sixteenth of the waits: {syncs}");
    }

    #[test]
    fn a_fork_that_lost_its_processor_does_not_keep_the_next_from_being_made() {
        let (mut balance, mut seen) = begun(500);
        assert!(balance.affords(&seen, 1));
        balance.note_sync(&seen, Ticks(1_000 * PER_US));
        balance.note_sync(&seen, Ticks(200_000 * PER_US));
        seen.hints_used = 1_000;
        (0..7).for_each(|_| {
            seen.hints_used += 1_000;
            balance.update(&seen);
        });
        assert!(balance.affords(&seen, 1), "what was spared has made up for it");
        assert!(balance.usual_fork_ticks <= 1_250 * PER_US as i64);
    }

    #[test]
    fn forks_of_a_pool_are_paid_for_as_far_as_it_is_busy_and_its_waits_count_once() {
        let next = |crowd| {
            let (mut balance, mut seen) = begun(500);
            seen.concurrency = crowd;
            assert!(balance.affords(&seen, 1), "what it costs is not known");
            balance.note_sync(&seen, Ticks(WAIT_US * PER_US));
            stalls(&mut balance, &seen, 1_000)
        };
        assert_eq!(next(Concurrency { waiting_threads: 1, busy_processors: 1024 }), Some(1));
        assert_eq!(next(Concurrency { waiting_threads: 8, busy_processors: 0 }), Some(1));
        // The budget owes one wait and has to save another, for each of which eight threads must
        // wait sixteen times.
        let busy = next(Concurrency { waiting_threads: 8, busy_processors: 1024 });
        assert!(busy.is_some_and(|next| (250..260).contains(&next)), "{busy:?}");
        let half = next(Concurrency { waiting_threads: 8, busy_processors: 512 });
        assert!(half.is_some_and(|next| (60..80).contains(&next)), "{half:?}");
    }

    #[test]
    fn savings_pay_for_further_syncs() {
        let (mut balance, mut seen) = begun(3 << 16);
        assert!(stalls(&mut balance, &seen, 10_000).is_some());
        balance.note_sync(&seen, Ticks(20_000 * PER_US));
        seen.hints_used = 100;
        assert!(balance.update(&seen));
        assert!(balance.affords(&seen, 1), "32 waits of 2 ms against 20 ms");
        seen.hints_used = u64::MAX / 2;
        balance.update(&seen);
        assert!(
            balance.account.balance() <= (MOST + 1) * (WAIT_US * PER_US) as i64,
            "not more is put by"
        );
    }

    /// Syncs and the processor time of their shadows never cost more than they spare, plus a part
    /// of the waits, plus the excess of one sync (with its shadow) over its expected cost, plus one
    /// wait.
    #[test]
    fn costs_are_bounded_by_gains_and_waits() {
        let seed = std::env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut random = seed.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
        std::eprintln!("repeat with RUNAHEAD_SEED={random}");
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % n
        };
        for _ in 0..50 {
            let pages = below(1 << 20);
            let (mut balance, mut seen) = begun(pages);
            // Shadows compute much, some, or nothing; each of them ends at some time.
            let computes = [0, 500, 20_000][below(3) as usize];
            let mut left = 0;
            // Hints are of no use, of hardly any, or of much.
            let most_used = [1, 5, 200][below(3) as usize];
            let wait = WAIT_US * PER_US;
            let (mut cost, mut gain, mut worst) = (0u64, 0, 0);
            for _ in 0..2_000 {
                let used = if below(8) == 0 { below(most_used) } else { 0 };
                let copied = if below(4) == 0 { below(pages / 8 + 1) } else { 0 };
                (seen.hints_used, seen.minor_faults) =
                    (seen.hints_used + used, seen.minor_faults + copied);
                let open = (balance.pages - balance.copied_pages).max(0) as u64;
                let copies = copied.min(open) * PAGE_COPY.0 * PER_US;
                let computed = below(left + 1);
                left -= computed;
                seen.shadow_cpu.0 += computed;
                seen.usual_sync = Ticks(below(2) * below(50_000) * PER_US);
                balance.update(&seen);
                let shadow = computed * PER_US;
                (cost, gain) = (cost + copies + shadow, gain + used * wait + wait / TRY as u64);
                if balance.affords(&seen, 1) {
                    let fork = below(pages + 1) * PER_US / 10;
                    balance.note_sync(&seen, Ticks(fork));
                    // The shadow before it ends without computing what was left.
                    left = below(computes + 1);
                    cost += fork.saturating_sub(wait);
                    let copies = pages * PAGE_COPY.0 * PER_US;
                    worst = worst.max(fork + copies + left * PER_US);
                }
            }
            // A sync that is expected to take less than its wait may be made with as much
            // overdrawn.
            let most = gain + worst + wait;
            assert!(cost <= most, "{pages} pages: {cost} for {gain}, at worst {worst}");
        }
    }
}
