//! Whether the target can afford a sync: what syncs cost it, against what it has waited and what they
//! have spared it.
//!
//! A sync costs its fork, which grows with the memory that the process has of its own, the pages
//! that the target stores to afterwards, each of which the kernel copies, and the processor time of the shadow. All is
//! counted in ticks.
//! - The part of a fork that is no longer than the wait it is made in is free, as far as nobody else is kept from working:
//!   the busier the other threads of the process are, the more of it counts ([`Crowd`]).
//! - Threads that wait at once wait once: what one of them would be spared the others wait all the same. As far as
//!   they do nothing else, though, all there is to lose is what nobody wants.
//! - What is beyond, the copies, and what shadows have computed, are booked on an [`Account`], which has no grace: what can
//!   be tried for nothing, in waits that are long enough, is what there is before anything is known.
//!   (Before the first sync hints are the supervisor's own, which needs none for them.)
//! - A used hint spares a part of a wait only: names and attributes come by the block, so that one
//!   wait brings dozens. How large that part is is told by the prefetcher, for names and for data: by how many of
//!   its operations had to ask the storage for something.
//! - What the next one will cost is told by what former ones took, and by the memory there is and what
//!   they cost by the page.
//!
//! Invariant: syncs cost the target no more than what they spare it, a sixteenth of its waits, and what
//! the last of them costs beyond what was expected of it.

use runahead_abi::cost_account::{Account, MOST};

use super::concurrency::Concurrency;

/// What the first sync of a session is taken to cost, in microseconds.
const FIRST_SYNC_US: i64 = 1_000;
/// What the first sync is taken to have cost at most, in microseconds: it may have lost its processor.
const FIRST_SYNC_US_MAX: i64 = 4_000;
/// A shadow that has cost so many waits more than there was is ended: it had time to be of use.
const OVERDRAFT_WAITS: i64 = 8;
/// What shadows have computed since the last look counts up to so much, in microseconds.
const SHADOW_CPU_US_MAX: u64 = 1_000_000;
/// Hints that were used since the last look count up to so many.
const USED_HINTS_MAX: u64 = 1 << 16;
/// A wait, until one has been measured, in microseconds.
const DEFAULT_WAIT_US: i64 = 1_000;
/// One page that is copied after a fork, in microseconds: a fault, a page to be had and filled.
const PAGE_COPY_US: i64 = 3;
/// What a sync is taken to cost until one has been measured, in pages to the microsecond: a fifth of it
/// the fork, the rest copies of one page in fifteen.
const PAGES_PER_US: i64 = 4;
/// So many pages cost nothing worth counting: what any program has.
const SMALL_PAGES: i64 = 1_024;

/// What is known at a stall.
#[derive(Clone, Copy, Default)]
pub(super) struct SyncInputs {
    /// Pages of the process's own.
    pub own_pages: u64,
    /// Page faults that needed no device, since the process began (getrusage(2)).
    pub minor_faults: u64,
    /// Hints of shadows that were used, since the process joined.
    pub hints_used: u64,
    /// Processor time of shadows that have ended, in microseconds.
    pub shadows_us: u64,
    /// What a sync has taken in other processes of the session, in ticks; 0: there was none.
    pub usual_sync_ticks: u64,
    /// Mean of the unforeseen stalls, in ticks, if there were any.
    pub mean_wait: Option<u64>,
    /// Hints of shadows for data that were used, since the process joined.
    pub data_hints_used: u64,
    /// Of 1,024 operations of the prefetcher with names, those that had a request of their own; 0: not known.
    pub own_requests: u32,
    /// Of 1,024 reads of the prefetcher, those that had a request of their own; 0: not known.
    pub own_reads: u32,
    pub concurrency: Concurrency,
}

impl SyncInputs {
    /// What was spared if each of so many names and so much data that were foreseen would have taken a `mean_wait`.
    fn spared(&self, names: i64, data: i64, wait: i64) -> i64 {
        let part = |count: i64, own: u32| match own {
            0 => count * wait,
            own => count * wait / 1024 * i64::from(own.min(1024)),
        };
        part(names, self.own_requests) + part(data, self.own_reads)
    }
}

/// See the module's text.
pub(super) struct SyncBudget {
    /// In ticks.
    account: Account,
    ticks_per_us: i64,
    has_begun: bool,
    /// What a sync costs for each 1,024 pages, in ticks.
    ticks_per_1024_pages: i64,
    has_synced: bool,
    /// The newest sync: its fork, the pages there were, and those of them that were copied.
    fork_ticks: i64,
    pages: i64,
    copied_pages: i64,
    /// What forks took of late.
    usual_fork_ticks: i64,
    /// At the last look.
    faults: u64,
    used: u64,
    used_data: u64,
    shadows_us: u64,
}

impl SyncBudget {
    pub(super) const fn new() -> Self {
        SyncBudget {
            account: Account::new(0),
            ticks_per_us: 1,
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
            shadows_us: 0,
        }
    }

    /// A process that has just begun, or one that is new by a fork.
    pub(super) fn begin(&mut self, ticks_per_us: u64, seen: &SyncInputs) {
        let per_us = ticks_per_us.max(1) as i64;
        *self = SyncBudget {
            ticks_per_us: per_us,
            has_begun: true,
            ticks_per_1024_pages: 1024 * per_us / PAGES_PER_US,
            faults: seen.minor_faults,
            used: seen.hints_used,
            used_data: seen.data_hints_used,
            shadows_us: seen.shadows_us,
            ..SyncBudget::new()
        };
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Accounts for what came to pass since the last look. False: the shadow costs more than it gains,
    /// and has for some time.
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
        let computed =
            seen.shadows_us.saturating_sub(self.shadows_us).min(SHADOW_CPU_US_MAX) as i64;
        self.shadows_us = seen.shadows_us;
        // At once: a look may come late, and what was spared pays for what was done in the same time.
        let gained = seen.spared(names, data, wait);
        match gained - (copied * PAGE_COPY_US + computed) * self.ticks_per_us {
            net @ 0.. => self.account.spared(net, wait),
            net => self.account.spent(-net),
        }
        self.account.balance() >= -OVERDRAFT_WAITS * wait
    }

    /// So many unforeseen stalls: whether a sync is to be made in the last.
    pub(super) fn affords(&mut self, seen: &SyncInputs, stalls: u64) -> bool {
        let wait = self.shared_wait(seen);
        self.update_rate();
        (0..stalls.min(MOST as u64)).for_each(|_| self.account.waited(wait));
        let usual = match (self.has_synced, seen.usual_sync_ticks) {
            (true, _) => self.usual_fork_ticks,
            (false, 0) => FIRST_SYNC_US * self.ticks_per_us,
            (false, others) => others.min(i64::MAX as u64 >> 16) as i64,
        };
        let cost = self.expected_cost(seen.own_pages as i64).max(usual);
        // (The first shows what it costs: what is not known is not charged.)
        let free = if self.has_synced { self.free_ticks(seen) } else { self.wait_ticks(seen) };
        self.account.affords(cost.saturating_sub(free))
    }

    /// A sync was made, which took `fork_ticks` ticks.
    pub(super) fn note_sync(&mut self, seen: &SyncInputs, fork: u64) {
        self.pages = seen.own_pages as i64;
        self.copied_pages = 0;
        self.has_synced = true;
        self.fork_ticks = fork as i64;
        // One that lost its processor meanwhile says little of the next.
        self.usual_fork_ticks = match self.usual_fork_ticks {
            0 => self.fork_ticks.min(FIRST_SYNC_US_MAX * self.ticks_per_us),
            usual => (3 * usual + self.fork_ticks.min(2 * usual)) / 4,
        };
        self.account.spent((self.fork_ticks - self.free_ticks(seen)).max(0));
    }

    /// What the newest sync has cost for each page, in place of what was believed, by half.
    fn update_rate(&mut self) {
        let pages = core::mem::take(&mut self.pages);
        if pages > SMALL_PAGES {
            let cost = self.fork_ticks + self.copied_pages * PAGE_COPY_US * self.ticks_per_us;
            self.ticks_per_1024_pages =
                (self.ticks_per_1024_pages + cost.saturating_mul(1024) / pages) / 2;
        }
    }

    fn expected_cost(&self, pages: i64) -> i64 {
        (pages - SMALL_PAGES).max(0).saturating_mul(self.ticks_per_1024_pages) / 1024
    }

    /// The part of a fork that costs nothing.
    fn free_ticks(&self, seen: &SyncInputs) -> i64 {
        match seen.concurrency.waiting_threads {
            // (What a single thread has computed it does not compute while it waits.)
            0 | 1 => self.wait_ticks(seen),
            _ => {
                self.wait_ticks(seen) / 1024
                    * i64::from(1024 - seen.concurrency.busy_processors.min(1024))
            }
        }
    }

    /// What the process waits when one of its threads does.
    fn shared_wait(&self, seen: &SyncInputs) -> i64 {
        let Concurrency { waiting_threads: wait, busy_processors: busy } = seen.concurrency;
        let others = i64::from(wait.saturating_sub(1)) * i64::from(busy.min(1024));
        self.wait_ticks(seen).saturating_mul(1024) / (1024 + others)
    }

    fn wait_ticks(&self, seen: &SyncInputs) -> i64 {
        seen.mean_wait.map_or(DEFAULT_WAIT_US * self.ticks_per_us, |ticks| {
            ticks.min(i64::MAX as u64 >> 16) as i64
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use runahead_abi::cost_account::TRY;

    use super::*;

    const PER_US: u64 = 2_000;
    const WAIT_US: u64 = 2_000;

    fn seen(pages: u64) -> SyncInputs {
        SyncInputs { own_pages: pages, mean_wait: Some(WAIT_US * PER_US), ..SyncInputs::default() }
    }

    fn begun(pages: u64) -> (SyncBudget, SyncInputs) {
        let mut balance = SyncBudget::new();
        let seen = seen(pages);
        balance.begin(PER_US, &seen);
        (balance, seen)
    }

    /// Stalls until a sync is afforded, at most `most`.
    fn stalls(balance: &mut SyncBudget, seen: &SyncInputs, most: u32) -> Option<u32> {
        (1..=most).find(|_| balance.affords(seen, 1))
    }

    #[test]
    fn a_small_program_affords_its_first_syncs_and_a_large_one_waits() {
        let (mut small, seen) = begun(2_000);
        assert_eq!(stalls(&mut small, &seen, 10), Some(1));
        let (mut large, seen) = begun(3 << 18);
        let first = stalls(&mut large, &seen, 10_000).expect("it is tried at some time");
        // 196 ms are expected; a sixteenth of 2 ms is put by for each stall.
        assert!((1_200..1_800).contains(&first), "{first}");
    }

    #[test]
    fn copies_are_paid_for_once_each() {
        let (mut balance, mut seen) = begun(20_000);
        // 4.7 ms are expected, in waits of 2.
        let first = stalls(&mut balance, &seen, 100);
        assert!(first.is_some_and(|first| (20..25).contains(&first)), "{first:?}");
        balance.note_sync(&seen, 1_500 * PER_US);
        let before = balance.account.balance();
        seen.minor_faults = 7_000;
        assert!(!balance.update(&seen), "21 ms of copies in a wait of 2");
        let copies = 7_000 * PAGE_COPY_US * PER_US as i64;
        assert_eq!(balance.account.balance(), before - copies);
        seen.minor_faults = 1_000_000;
        balance.update(&seen);
        assert_eq!(balance.account.balance(), before - 20 * copies / 7, "no page is copied twice");
        // What all pages cost is half of what is expected of the next.
        assert!(stalls(&mut balance, &seen, 100).is_none());
        assert!(stalls(&mut balance, &seen, 10_000).is_some(), "but it is tried again");
    }

    #[test]
    fn what_was_spared_without_a_sync_pays_for_none() {
        let (mut balance, mut seen) = begun(3 << 16);
        seen.hints_used = 1_000;
        assert!(balance.update(&seen) && !balance.affords(&seen, 1), "49 ms in a wait of 2");
    }

    /// A fork takes twice as long as a wait, as on a fast disk.
    fn dear_forks(own_requests: u32) -> u32 {
        let (mut balance, mut seen) = begun(500);
        seen.own_requests = own_requests;
        let mut syncs = 0;
        for _ in 0..1_000 {
            seen.hints_used += 4;
            balance.update(&seen);
            if balance.affords(&seen, 1) {
                syncs += 1;
                balance.note_sync(&seen, 2 * WAIT_US * PER_US);
            }
        }
        syncs
    }

    #[test]
    fn hints_spare_as_many_waits_as_they_have_requests() {
        // Four used hints for each stall would spare four waits; one in twenty has a request: a fifth of one.
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
                balance.note_sync(&seen, 2 * WAIT_US * PER_US);
            }
            // What the first will take nobody knows.
            let most = -(u64::from(syncs == 1) as i64) * (WAIT_US * PER_US) as i64;
            assert!(balance.account.balance() >= most, "only what has been put by is spent");
        }
        assert!((50..70).contains(&syncs), "a sixteenth of the waits: {syncs}");
    }

    #[test]
    fn a_fork_that_lost_its_processor_does_not_keep_the_next_from_being_made() {
        let (mut balance, mut seen) = begun(500);
        assert!(balance.affords(&seen, 1));
        balance.note_sync(&seen, 1_000 * PER_US);
        balance.note_sync(&seen, 200_000 * PER_US);
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
            balance.note_sync(&seen, WAIT_US * PER_US);
            stalls(&mut balance, &seen, 1_000)
        };
        assert_eq!(next(Concurrency { waiting_threads: 1, busy_processors: 1024 }), Some(1));
        assert_eq!(next(Concurrency { waiting_threads: 8, busy_processors: 0 }), Some(1));
        // It owes one, and is to have another, for each of which eight threads are to wait sixteen times.
        let busy = next(Concurrency { waiting_threads: 8, busy_processors: 1024 });
        assert!(busy.is_some_and(|next| (250..260).contains(&next)), "{busy:?}");
        let half = next(Concurrency { waiting_threads: 8, busy_processors: 512 });
        assert!(half.is_some_and(|next| (60..80).contains(&next)), "{half:?}");
    }

    #[test]
    fn what_is_spared_pays_for_more() {
        let (mut balance, mut seen) = begun(3 << 16);
        assert!(stalls(&mut balance, &seen, 10_000).is_some());
        balance.note_sync(&seen, 20_000 * PER_US);
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

    /// Whatever the program does, syncs and what their shadows compute cost no more than what they spare, a part of the
    /// waits, and what one sync costs beyond what was expected, its shadow included, and one wait.
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
            // Of shadows that compute much, some, or nothing; each of them ends at some time.
            let computes = [0, 500, 20_000][below(3) as usize];
            let mut left = 0;
            // Hints that are of no use, hardly any, or much.
            let most_used = [1, 5, 200][below(3) as usize];
            let wait = WAIT_US * PER_US;
            let (mut cost, mut gain, mut worst) = (0u64, 0, 0);
            for _ in 0..2_000 {
                let used = if below(8) == 0 { below(most_used) } else { 0 };
                let copied = if below(4) == 0 { below(pages / 8 + 1) } else { 0 };
                (seen.hints_used, seen.minor_faults) =
                    (seen.hints_used + used, seen.minor_faults + copied);
                let open = (balance.pages - balance.copied_pages).max(0) as u64;
                let copies = copied.min(open) * PAGE_COPY_US as u64 * PER_US;
                let computed = below(left + 1);
                left -= computed;
                seen.shadows_us += computed;
                seen.usual_sync_ticks = below(2) * below(50_000) * PER_US;
                balance.update(&seen);
                let shadow = computed * PER_US;
                (cost, gain) = (cost + copies + shadow, gain + used * wait + wait / TRY as u64);
                if balance.affords(&seen, 1) {
                    let fork = below(pages + 1) * PER_US / 10;
                    balance.note_sync(&seen, fork);
                    // The one before it ends: what it has not computed it never will.
                    left = below(computes + 1);
                    cost += fork.saturating_sub(wait);
                    let copies = pages * PAGE_COPY_US as u64 * PER_US;
                    worst = worst.max(fork + copies + left * PER_US);
                }
            }
            // One that is expected to take less than the wait it is made in is made with as much overdrawn.
            let most = gain + worst + wait;
            assert!(cost <= most, "{pages} pages: {cost} for {gain}, at worst {worst}");
        }
    }
}
