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

use super::concurrency::Crowd;

/// What the first sync of a session is taken to cost, in microseconds.
const FIRST_US: i64 = 1_000;
/// What the first sync is taken to have cost at most, in microseconds: it may have lost its processor.
const FIRST_MOST_US: i64 = 4_000;
/// A shadow that has cost so many waits more than there was is ended: it had time to be of use.
const PATIENCE: i64 = 8;
/// What shadows have computed since the last look counts up to so much, in microseconds.
const MOST_US: u64 = 1_000_000;
/// Hints that were used since the last look count up to so many.
const MOST_USED: u64 = 1 << 16;
/// A wait, until one has been measured, in microseconds.
const WAIT_US: i64 = 1_000;
/// One page that is copied after a fork, in microseconds: a fault, a page to be had and filled.
const COPY_US: i64 = 3;
/// What a sync is taken to cost until one has been measured, in pages to the microsecond: a fifth of it
/// the fork, the rest copies of one page in fifteen.
const PAGES_PER_US: i64 = 4;
/// So many pages cost nothing worth counting: what any program has.
const SMALL: i64 = 1_024;

/// What is known at a stall.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// Pages of the process's own.
    pub pages: u64,
    /// Page faults that needed no device, since the process began (getrusage(2)).
    pub faults: u64,
    /// Hints of shadows that were used, since the process joined.
    pub used: u64,
    /// Processor time of shadows that have ended, in microseconds.
    pub shadows_us: u64,
    /// What a sync has taken in other processes of the session, in ticks; 0: there was none.
    pub usual_sync: u64,
    /// Mean of the unforeseen stalls, in ticks, if there were any.
    pub wait: Option<u64>,
    /// Hints of shadows for data that were used, since the process joined.
    pub used_data: u64,
    /// Of 1,024 operations of the prefetcher with names, those that had a request of their own; 0: not known.
    pub own_requests: u32,
    /// Of 1,024 reads of the prefetcher, those that had a request of their own; 0: not known.
    pub own_reads: u32,
    pub crowd: Crowd,
}

impl Seen {
    /// What was spared if each of so many names and so much data that were foreseen would have taken a `wait`.
    fn spared(&self, names: i64, data: i64, wait: i64) -> i64 {
        let part = |count: i64, own: u32| match own {
            0 => count * wait,
            own => count * wait / 1024 * i64::from(own.min(1024)),
        };
        part(names, self.own_requests) + part(data, self.own_reads)
    }
}

/// See the module's text.
pub(super) struct Balance {
    /// In ticks.
    account: Account,
    per_us: i64,
    begun: bool,
    /// What a sync costs for each 1,024 pages, in ticks.
    rate: i64,
    has_synced: bool,
    /// The newest sync: its fork, the pages there were, and those of them that were copied.
    fork: i64,
    pages: i64,
    copied: i64,
    /// What forks took of late.
    usual: i64,
    /// At the last look.
    faults: u64,
    used: u64,
    used_data: u64,
    shadows_us: u64,
}

impl Balance {
    pub(super) const fn new() -> Self {
        Balance {
            account: Account::new(0),
            per_us: 1,
            begun: false,
            rate: 0,
            has_synced: false,
            fork: 0,
            pages: 0,
            copied: 0,
            usual: 0,
            faults: 0,
            used: 0,
            used_data: 0,
            shadows_us: 0,
        }
    }

    /// A process that has just begun, or one that is new by a fork.
    pub(super) fn begin(&mut self, ticks_per_us: u64, seen: &Seen) {
        let per_us = ticks_per_us.max(1) as i64;
        *self = Balance {
            per_us,
            begun: true,
            rate: 1024 * per_us / PAGES_PER_US,
            faults: seen.faults,
            used: seen.used,
            used_data: seen.used_data,
            shadows_us: seen.shadows_us,
            ..Balance::new()
        };
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Accounts for what came to pass since the last look. False: the shadow costs more than it gains,
    /// and has for some time.
    pub(super) fn look(&mut self, seen: &Seen) -> bool {
        let wait = self.wait(seen);
        let since = |now: u64, before: u64| match self.has_synced {
            true => now.saturating_sub(before).min(MOST_USED) as i64,
            false => 0,
        };
        let data = since(seen.used_data, self.used_data);
        let names = (since(seen.used, self.used) - data).max(0);
        (self.used, self.used_data) = (seen.used, seen.used_data);
        let faults = seen.faults.saturating_sub(self.faults) as i64;
        self.faults = seen.faults;
        // Each page is copied once; other faults are the program's own.
        let copied = faults.min(self.pages - self.copied).max(0);
        self.copied += copied;
        let computed = seen.shadows_us.saturating_sub(self.shadows_us).min(MOST_US) as i64;
        self.shadows_us = seen.shadows_us;
        // At once: a look may come late, and what was spared pays for what was done in the same time.
        let gained = seen.spared(names, data, wait);
        match gained - (copied * COPY_US + computed) * self.per_us {
            net @ 0.. => self.account.spared(net, wait),
            net => self.account.spent(-net),
        }
        self.account.balance() >= -PATIENCE * wait
    }

    /// So many unforeseen stalls: whether a sync is to be made in the last.
    pub(super) fn affords(&mut self, seen: &Seen, stalls: u64) -> bool {
        let wait = self.wait_of_all(seen);
        self.learn();
        (0..stalls.min(MOST as u64)).for_each(|_| self.account.waited(wait));
        let usual = match (self.has_synced, seen.usual_sync) {
            (true, _) => self.usual,
            (false, 0) => FIRST_US * self.per_us,
            (false, others) => others.min(i64::MAX as u64 >> 16) as i64,
        };
        let cost = self.expected(seen.pages as i64).max(usual);
        // (The first shows what it costs: what is not known is not charged.)
        let free = if self.has_synced { self.free(seen) } else { self.wait(seen) };
        self.account.affords(cost.saturating_sub(free))
    }

    /// A sync was made, which took `fork` ticks.
    pub(super) fn made(&mut self, seen: &Seen, fork: u64) {
        self.pages = seen.pages as i64;
        self.copied = 0;
        self.has_synced = true;
        self.fork = fork as i64;
        // One that lost its processor meanwhile says little of the next.
        self.usual = match self.usual {
            0 => self.fork.min(FIRST_MOST_US * self.per_us),
            usual => (3 * usual + self.fork.min(2 * usual)) / 4,
        };
        self.account.spent((self.fork - self.free(seen)).max(0));
    }

    /// What the newest sync has cost for each page, in place of what was believed, by half.
    fn learn(&mut self) {
        let pages = core::mem::take(&mut self.pages);
        if pages > SMALL {
            let cost = self.fork + self.copied * COPY_US * self.per_us;
            self.rate = (self.rate + cost.saturating_mul(1024) / pages) / 2;
        }
    }

    fn expected(&self, pages: i64) -> i64 {
        (pages - SMALL).max(0).saturating_mul(self.rate) / 1024
    }

    /// The part of a fork that costs nothing.
    fn free(&self, seen: &Seen) -> i64 {
        match seen.crowd.wait {
            // (What a single thread has computed it does not compute while it waits.)
            0 | 1 => self.wait(seen),
            _ => self.wait(seen) / 1024 * i64::from(1024 - seen.crowd.busy.min(1024)),
        }
    }

    /// What the process waits when one of its threads does.
    fn wait_of_all(&self, seen: &Seen) -> i64 {
        let Crowd { wait, busy } = seen.crowd;
        let others = i64::from(wait.saturating_sub(1)) * i64::from(busy.min(1024));
        self.wait(seen).saturating_mul(1024) / (1024 + others)
    }

    fn wait(&self, seen: &Seen) -> i64 {
        seen.wait.map_or(WAIT_US * self.per_us, |ticks| ticks.min(i64::MAX as u64 >> 16) as i64)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use runahead_abi::cost_account::TRY;

    use super::*;

    const PER_US: u64 = 2_000;
    const WAIT_US: u64 = 2_000;

    fn seen(pages: u64) -> Seen {
        Seen { pages, wait: Some(WAIT_US * PER_US), ..Seen::default() }
    }

    fn begun(pages: u64) -> (Balance, Seen) {
        let mut balance = Balance::new();
        let seen = seen(pages);
        balance.begin(PER_US, &seen);
        (balance, seen)
    }

    /// Stalls until a sync is afforded, at most `most`.
    fn stalls(balance: &mut Balance, seen: &Seen, most: u32) -> Option<u32> {
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
        balance.made(&seen, 1_500 * PER_US);
        let before = balance.account.balance();
        seen.faults = 7_000;
        assert!(!balance.look(&seen), "21 ms of copies in a wait of 2");
        let copies = 7_000 * COPY_US * PER_US as i64;
        assert_eq!(balance.account.balance(), before - copies);
        seen.faults = 1_000_000;
        balance.look(&seen);
        assert_eq!(balance.account.balance(), before - 20 * copies / 7, "no page is copied twice");
        // What all pages cost is half of what is expected of the next.
        assert!(stalls(&mut balance, &seen, 100).is_none());
        assert!(stalls(&mut balance, &seen, 10_000).is_some(), "but it is tried again");
    }

    #[test]
    fn what_was_spared_without_a_sync_pays_for_none() {
        let (mut balance, mut seen) = begun(3 << 16);
        seen.used = 1_000;
        assert!(balance.look(&seen) && !balance.affords(&seen, 1), "49 ms in a wait of 2");
    }

    /// A fork takes twice as long as a wait, as on a fast disk.
    fn dear_forks(own_requests: u32) -> u32 {
        let (mut balance, mut seen) = begun(500);
        seen.own_requests = own_requests;
        let mut syncs = 0;
        for _ in 0..1_000 {
            seen.used += 4;
            balance.look(&seen);
            if balance.affords(&seen, 1) {
                syncs += 1;
                balance.made(&seen, 2 * WAIT_US * PER_US);
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
            balance.look(&seen);
            if balance.affords(&seen, 1) {
                syncs += 1;
                balance.made(&seen, 2 * WAIT_US * PER_US);
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
        balance.made(&seen, 1_000 * PER_US);
        balance.made(&seen, 200_000 * PER_US);
        seen.used = 1_000;
        (0..7).for_each(|_| {
            seen.used += 1_000;
            balance.look(&seen);
        });
        assert!(balance.affords(&seen, 1), "what was spared has made up for it");
        assert!(balance.usual <= 1_250 * PER_US as i64);
    }

    #[test]
    fn forks_of_a_pool_are_paid_for_as_far_as_it_is_busy_and_its_waits_count_once() {
        let next = |crowd| {
            let (mut balance, mut seen) = begun(500);
            seen.crowd = crowd;
            assert!(balance.affords(&seen, 1), "what it costs is not known");
            balance.made(&seen, WAIT_US * PER_US);
            stalls(&mut balance, &seen, 1_000)
        };
        assert_eq!(next(Crowd { wait: 1, busy: 1024 }), Some(1));
        assert_eq!(next(Crowd { wait: 8, busy: 0 }), Some(1));
        // It owes one, and is to have another, for each of which eight threads are to wait sixteen times.
        let busy = next(Crowd { wait: 8, busy: 1024 });
        assert!(busy.is_some_and(|next| (250..260).contains(&next)), "{busy:?}");
        let half = next(Crowd { wait: 8, busy: 512 });
        assert!(half.is_some_and(|next| (60..80).contains(&next)), "{half:?}");
    }

    #[test]
    fn what_is_spared_pays_for_more() {
        let (mut balance, mut seen) = begun(3 << 16);
        assert!(stalls(&mut balance, &seen, 10_000).is_some());
        balance.made(&seen, 20_000 * PER_US);
        seen.used = 100;
        assert!(balance.look(&seen));
        assert!(balance.affords(&seen, 1), "32 waits of 2 ms against 20 ms");
        seen.used = u64::MAX / 2;
        balance.look(&seen);
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
                (seen.used, seen.faults) = (seen.used + used, seen.faults + copied);
                let open = (balance.pages - balance.copied).max(0) as u64;
                let copies = copied.min(open) * COPY_US as u64 * PER_US;
                let computed = below(left + 1);
                left -= computed;
                seen.shadows_us += computed;
                seen.usual_sync = below(2) * below(50_000) * PER_US;
                balance.look(&seen);
                let shadow = computed * PER_US;
                (cost, gain) = (cost + copies + shadow, gain + used * wait + wait / TRY as u64);
                if balance.affords(&seen, 1) {
                    let fork = below(pages + 1) * PER_US / 10;
                    balance.made(&seen, fork);
                    // The one before it ends: what it has not computed it never will.
                    left = below(computes + 1);
                    cost += fork.saturating_sub(wait);
                    let copies = pages * COPY_US as u64 * PER_US;
                    worst = worst.max(fork + copies + left * PER_US);
                }
            }
            // One that is expected to take less than the wait it is made in is made with as much overdrawn.
            let most = gain + worst + wait;
            assert!(cost <= most, "{pages} pages: {cost} for {gain}, at worst {worst}");
        }
    }
}
