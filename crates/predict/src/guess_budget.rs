//! Account of all guesses of a session: admits one more guess if earlier ones have paid for it.
//!
//! No hint asks for a guess, so the guesses before it pay for it ([`Account`], in nanoseconds).
//!
//! - Cost: the processor time of its operations, weighted by how long programs wait for a processor
//!   meanwhile, at least [`SPARE`]; and the time to transfer its bytes.
//! - Gain when it is used: the requests that a guess of its kind makes on average, each of which
//!   would have been a wait. Names come by the block, so most make no request.
//!
//! A guess that is not admitted waits in the queue. It begins once the account affords it, and is
//! dropped with its client.
//!
//! Invariant: the invariant of [`Account`], for any number of directories and clients.
//!
//! The account is here and not in `admission`, because the scheduler of `prefetch` asks it before
//! each guess, and `admission` depends on `prefetch`.

use std::time::Duration;

use runahead_estimators::Account;

use crate::file_guesses::{GuessKind, KINDS, Tally};

/// Allowed loss before any guess was used: 1 % of half a second.
const GRACE: Duration = Duration::from_millis(5);
/// Assumed length of a wait until one was measured.
const WAIT: Duration = Duration::from_millis(1);
/// Part of its time that an idle processor costs: it shares caches and power with those that are
/// busy.
const SPARE: f64 = 0.25;
/// Cost of a transferred byte in nanoseconds: while storage of 250 MB/s transfers it, others wait.
const BYTE_NS: f64 = 4.0;
/// Sixteenths of the waits that may be spent on trials. Trials run beside the program, not in its
/// time.
const TRIED: i64 = 4;
/// Shortest mean wait at which files are scanned for names: a scan takes some tenths of a
/// millisecond.
const SCAN: Duration = Duration::from_millis(2);
/// Weight of the newest sample of how long programs wait for a processor.
const ALPHA: f64 = 0.5;
/// Assumed cost of an operation until one was measured.
const COST: Duration = Duration::from_micros(50);

/// Resources that operations of a worker used.
#[derive(Clone, Copy, Default, Debug)]
pub struct Used {
    /// Operations that had a request of their own at the storage. Data that others have requested,
    /// or that lies in the same block, needs none.
    pub requests: u64,
    /// Time of a processor.
    pub processor: Duration,
}

/// Account of the guesses of one session.
pub struct GuessBudget {
    account: Account,
    booked: Tally,
    /// Requests of operations, by kind of guess.
    requests: [u64; KINDS],
    /// Mean processor time of an operation, in nanoseconds.
    cost: i64,
    /// Operations that were begun and are not over.
    under_way: i64,
    /// Time that programs wait for a processor, per processor time that we use; at most 1.
    contention: f64,
    /// Number of unforeseen waits, and their sum.
    waits: (u64, Duration),
}

impl Default for GuessBudget {
    fn default() -> Self {
        Self::new()
    }
}

impl GuessBudget {
    /// Account with the grace and nothing else.
    pub fn new() -> Self {
        GuessBudget {
            account: Account::new(nanoseconds(GRACE)),
            booked: Tally::default(),
            requests: [0; KINDS],
            cost: nanoseconds(COST),
            under_way: 0,
            contention: 1.0,
            waits: (0, Duration::ZERO),
        }
    }

    /// Mean length of a wait, in nanoseconds.
    fn wait(&self) -> i64 {
        let (count, time) = self.waits;
        nanoseconds(if count == 0 { WAIT } else { time / count.min(u32::MAX.into()) as u32 })
    }

    /// Adds `count` unforeseen waits of programs, which took `time` together.
    pub fn waited(&mut self, count: u64, time: Duration) {
        // What processes tell may be anything.
        self.waits = (self.waits.0.saturating_add(count), self.waits.1.saturating_add(time));
        self.account.waited(nanoseconds(time).saturating_mul(TRIED));
    }

    /// Books the use of guesses.
    pub fn book(&mut self, now: &Tally) {
        if *now == self.booked {
            return;
        }
        let wait = self.wait();
        let before = std::mem::replace(&mut self.booked, *now);
        for kind in 0..KINDS {
            let used = now.used[kind].saturating_sub(before.used[kind]) as i64;
            if used > 0 {
                let requests = self.requests[kind] as i64;
                let spared = (used.saturating_mul(requests).saturating_mul(wait))
                    / (now.begun[kind] as i64).max(1);
                self.account.spared(spared, wait);
            }
        }
    }

    /// True if waits are so long that scanning a file costs little beside one.
    pub fn scans(&self) -> bool {
        self.waits.0 > 0 && self.wait() >= nanoseconds(SCAN)
    }

    /// True if one more operation may begin.
    pub fn admits(&self) -> bool {
        self.account.affords((self.under_way + 1) * self.cost)
    }

    /// An operation begins.
    pub fn begin(&mut self) {
        self.under_way += 1;
    }

    /// Notes how long a program waited for a processor, per processor time that we used meanwhile.
    pub fn contended(&mut self, part: f64) {
        self.contention += ALPHA * (part.clamp(0.0, 1.0) - self.contention);
    }

    /// Books an operation that has ended, with its processor time, requests and bytes.
    pub fn end(&mut self, of: GuessKind, processor: Duration, requests: u64, bytes: u64) {
        let transfer = bytes as f64 * BYTE_NS;
        let cost = processor.as_nanos() as f64 * self.contention.max(SPARE) + transfer;
        let cost = cost as i64;
        self.under_way -= 1;
        self.cost += (cost - self.cost) / 16;
        self.account.spent(cost);
        self.requests[of as usize] += requests;
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);

    /// Operations of 50 us, each with a request, until no more are admitted.
    fn spend(admission: &mut GuessBudget, tally: &mut Tally) -> u64 {
        let before = tally.begun[GuessKind::Data as usize];
        while admission.admits() {
            admission.begin();
            admission.end(GuessKind::Data, 50 * US, 1, 0);
            tally.begun[GuessKind::Data as usize] += 1;
        }
        tally.begun[GuessKind::Data as usize] - before
    }

    #[test]
    fn unused_guesses_end_with_the_allowed_loss() {
        let (mut admission, mut tally) = (GuessBudget::new(), Tally::default());
        assert_eq!(spend(&mut admission, &mut tally), 100);
        // And go on as the program waits: a quarter of 500 us pays for two.
        admission.waited(40, 40 * 500 * US);
        assert_eq!(spend(&mut admission, &mut tally), 100);
    }

    #[test]
    fn guesses_that_are_used_pay_for_more() {
        let (mut admission, mut tally) = (GuessBudget::new(), Tally::default());
        spend(&mut admission, &mut tally);
        admission.waits = (3, 15 * MS);
        tally.used[GuessKind::Data as usize] = 10;
        admission.book(&tally);
        assert_eq!(spend(&mut admission, &mut tally), 1_000, "10 waits of 5 ms, less nothing");
        tally.used[GuessKind::Data as usize] += 100_000;
        admission.book(&tally);
        assert_eq!(spend(&mut admission, &mut tally), 3_200, "not more is put by");
    }

    #[test]
    fn names_that_share_a_request_spare_that_one_together() {
        let (mut admission, mut tally) = (GuessBudget::new(), Tally::default());
        for n in 0..100 {
            admission.begin();
            admission.end(GuessKind::Names, 50 * US, u64::from(n % 20 == 0), 0);
        }
        tally.begun[GuessKind::Names as usize] = 100;
        assert!(!admission.admits());
        admission.waits = (1, 500 * US);
        tally.used[GuessKind::Names as usize] = 40;
        admission.book(&tally);
        assert_eq!(spend(&mut admission, &mut tally), 20, "40 names in 2 blocks: 1 ms");
    }

    #[test]
    fn an_idle_processor_costs_a_quarter() {
        let (mut admission, mut tally) = (GuessBudget::new(), Tally::default());
        (0..100).for_each(|_| admission.contended(0.0));
        assert!((385..=400).contains(&spend(&mut admission, &mut tally)));
        (0..100).for_each(|_| admission.contended(f64::INFINITY));
        admission.waited(40, 40 * 500 * US);
        assert!((99..=101).contains(&spend(&mut admission, &mut tally)));
    }

    #[test]
    fn what_is_under_way_counts() {
        let mut admission = GuessBudget::new();
        let begun = (0..).take_while(|_| {
            let admits = admission.admits();
            admission.begin();
            admits
        });
        assert_eq!(begun.count(), 100);
    }
}
