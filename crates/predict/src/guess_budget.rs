//! Whether one more guess is admitted: the account of all guesses of a session.
//!
//! Nobody asked for a guess, so each is paid for by those before it ([`Account`], in nanoseconds). It costs the processor
//! time that its operations took, as far as the program had to wait for a processor meanwhile, and a part of it
//! ([`SPARE`]) where one was idle; and the time that its bytes take on their way. When it is used, it has spared the requests that a guess of its kind makes on
//! average (names come by the block, so that most make none), each of which would have been a wait.
//!
//! What is not admitted waits in the queue, and is begun once something earned it; with its client it goes.
//!
//! Invariant: that of [`Account`], whatever is guessed in however many places and for however many clients.
//!
//! It is here and not in `admission`, because the scheduler of `prefetch` asks it before each guess,
//! and `admission` depends on `prefetch`.

use std::time::Duration;

use runahead_abi::Account;

use crate::file_guesses::{KINDS, Of, Tally};

/// What may be lost before a guess has been used: 1 % of half a second.
const GRACE: Duration = Duration::from_millis(5);
/// What a wait is taken to be until there was one.
const WAIT: Duration = Duration::from_millis(1);
/// Part of its time that an idle processor costs: it shares caches and power with those that are busy.
const SPARE: f64 = 0.25;
/// What it costs that a byte is transferred, in nanoseconds: storage that brings 250 MB in a second brings less for others
/// meanwhile.
const BYTE_NS: f64 = 4.0;
/// So many sixteenths of a wait go into trying: what is tried is done beside the program, and not in its time.
const TRIED: i64 = 4;
/// Where waits are shorter, files are not looked through for names: that takes some tenths of a millisecond for each.
const SCAN: Duration = Duration::from_millis(2);
/// Weight of the newest sample of how long programs wait for a processor.
const ALPHA: f64 = 0.5;
/// What an operation is taken to cost until one has been measured.
const COST: Duration = Duration::from_micros(50);

/// What operations of a worker took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Used {
    /// Operations that had a request of their own at the storage: what others have asked for, or what lies in the
    /// same block, comes without.
    pub requests: u64,
    /// Time of a processor.
    pub processor: Duration,
}

/// See the module's text.
pub struct Admission {
    account: Account,
    booked: Tally,
    /// Requests of operations, by kind of guess.
    requests: [u64; KINDS],
    /// Mean processor time of an operation, in nanoseconds.
    cost: i64,
    /// Operations that were begun and are not over.
    under_way: i64,
    /// How long programs wait for a processor, as a part of what we use of it; at most 1.
    contention: f64,
    /// Waits that nobody foresaw, and what they took in all.
    waits: (u64, Duration),
}

impl Admission {
    /// Account with the grace and nothing else.
    pub fn new() -> Self {
        Admission {
            account: Account::new(nanoseconds(GRACE)),
            booked: Tally::default(),
            requests: [0; KINDS],
            cost: nanoseconds(COST),
            under_way: 0,
            contention: 1.0,
            waits: (0, Duration::ZERO),
        }
    }

    /// What a wait takes.
    fn wait(&self) -> i64 {
        let (count, time) = self.waits;
        nanoseconds(if count == 0 { WAIT } else { time / count.min(u32::MAX.into()) as u32 })
    }

    /// Programs have waited `count` times more for something nobody foresaw.
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

    /// Whether waits are so long that to look through a file is little beside one.
    pub fn scans(&self) -> bool {
        self.waits.0 > 0 && self.wait() >= nanoseconds(SCAN)
    }

    /// Whether one more operation may be begun.
    pub fn admits(&self) -> bool {
        self.account.affords((self.under_way + 1) * self.cost)
    }

    /// An operation begins.
    pub fn begin(&mut self) {
        self.under_way += 1;
    }

    /// A program has waited for a processor for so long, as a part of what we used meanwhile.
    pub fn contended(&mut self, part: f64) {
        self.contention += ALPHA * (part.clamp(0.0, 1.0) - self.contention);
    }

    /// One is over. It took so much of a processor, had so many requests, and brought so many bytes.
    pub fn end(&mut self, of: Of, processor: Duration, requests: u64, bytes: u64) {
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
    fn spend(admission: &mut Admission, tally: &mut Tally) -> u64 {
        let before = tally.begun[Of::Data as usize];
        while admission.admits() {
            admission.begin();
            admission.end(Of::Data, 50 * US, 1, 0);
            tally.begun[Of::Data as usize] += 1;
        }
        tally.begun[Of::Data as usize] - before
    }

    #[test]
    fn guesses_that_nobody_uses_end_with_the_grace() {
        let (mut admission, mut tally) = (Admission::new(), Tally::default());
        assert_eq!(spend(&mut admission, &mut tally), 100);
        // And go on as the program waits: a quarter of 500 us pays for two.
        admission.waited(40, 40 * 500 * US);
        assert_eq!(spend(&mut admission, &mut tally), 100);
    }

    #[test]
    fn guesses_that_are_used_pay_for_more() {
        let (mut admission, mut tally) = (Admission::new(), Tally::default());
        spend(&mut admission, &mut tally);
        admission.waits = (3, 15 * MS);
        tally.used[Of::Data as usize] = 10;
        admission.book(&tally);
        assert_eq!(spend(&mut admission, &mut tally), 1_000, "10 waits of 5 ms, less nothing");
        tally.used[Of::Data as usize] += 100_000;
        admission.book(&tally);
        assert_eq!(spend(&mut admission, &mut tally), 3_200, "not more is put by");
    }

    #[test]
    fn names_that_share_a_request_spare_that_one_together() {
        let (mut admission, mut tally) = (Admission::new(), Tally::default());
        for n in 0..100 {
            admission.begin();
            admission.end(Of::Names, 50 * US, u64::from(n % 20 == 0), 0);
        }
        tally.begun[Of::Names as usize] = 100;
        assert!(!admission.admits());
        admission.waits = (1, 500 * US);
        tally.used[Of::Names as usize] = 40;
        admission.book(&tally);
        assert_eq!(spend(&mut admission, &mut tally), 20, "40 names in 2 blocks: 1 ms");
    }

    #[test]
    fn an_idle_processor_costs_a_quarter() {
        let (mut admission, mut tally) = (Admission::new(), Tally::default());
        (0..100).for_each(|_| admission.contended(0.0));
        assert!((385..=400).contains(&spend(&mut admission, &mut tally)));
        (0..100).for_each(|_| admission.contended(f64::INFINITY));
        admission.waited(40, 40 * 500 * US);
        assert!((99..=101).contains(&spend(&mut admission, &mut tally)));
    }

    #[test]
    fn what_is_under_way_counts() {
        let mut admission = Admission::new();
        let begun = (0..).take_while(|_| {
            let admits = admission.admits();
            admission.begin();
            admits
        });
        assert_eq!(begun.count(), 100);
    }
}
