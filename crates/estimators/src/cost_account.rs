//! Account of one kind of speculation: its costs against the waits that it spares. The balance
//! decides if it may do more.
//!
//! Fraser & Chang (2003, section 6.1) weigh cost and benefit of each shadow after the fact. Here
//! both are booked as they occur, in time, and only what the balance covers is begun:
//!
//! - the grace, once: it may be lost before anything is known;
//! - a wait that was spared, when fetched data is used;
//! - a [`TRY`]th of a wait, when the program waits for unforeseen data: what did not pay is tried
//!   again, ever more rarely;
//! - the cost, when the work is over: the program's time, and processor time as if it were the
//!   program's.
//!
//! Two mechanisms have an account: the shadows of a process (`agent/src/targets/sync_budget.rs`, in
//! ticks), and guesses (`prefetch/src/guess_budget.rs`, in nanoseconds).
//!
//! Invariant: the sum spent never exceeds the grace, the spared waits, a [`TRY`]th of the other
//! waits, and the excess of the last cost over its estimate.

/// Divisor of a wait: this part may be spent on finding out if speculation pays.
pub const TRY: i64 = 16;
/// Most spared waits that the balance keeps: what paid once may not do so any more.
pub const MOST: i64 = 32;

/// An account, in any one unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    balance: i64,
}

impl Account {
    /// Opens an account with `grace`, which may be lost before anything is known.
    pub const fn new(grace: i64) -> Self {
        Account { balance: grace }
    }

    /// Time that may be spent; less than 0: overdrawn.
    pub const fn balance(&self) -> i64 {
        self.balance
    }

    /// Books `time` of spared waiting, where a wait takes `wait`.
    pub fn spared(&mut self, time: i64, wait: i64) {
        let most = self.balance.max(MOST.saturating_mul(wait));
        self.balance = self.balance.saturating_add(time).min(most);
    }

    /// Books a wait of the program for unforeseen data.
    pub fn waited(&mut self, wait: i64) {
        self.balance = self.balance.saturating_add(wait / TRY);
    }

    /// Books spent time.
    pub fn spent(&mut self, time: i64) {
        self.balance = self.balance.saturating_sub(time);
    }

    /// True if work of this expected cost may begin.
    pub fn affords(&self, expected: i64) -> bool {
        expected <= self.balance
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_paid_long_ago_does_not_pay_for_ever() {
        let mut account = Account::new(0);
        account.spared(1_000_000, 10);
        assert_eq!(account.balance(), MOST * 10);
        account.spared(i64::MAX, i64::MAX);
        assert_eq!(account.balance(), i64::MAX, "nothing overflows");
        account.spared(5, 1);
        account.spent(i64::MAX);
        account.spent(i64::MAX);
        assert!(account.balance() < 0 && !account.affords(0));
    }

    proptest! {
        /// Checks the invariant for bookings in any order, by a caller who asks before each.
        #[test]
        fn what_is_spent_is_bounded(
            grace in 0i64..10_000,
            events in prop::collection::vec((0u8..3, 0i64..5_000, 0i64..20_000), 0..300),
        ) {
            let mut account = Account::new(grace);
            let (mut income, mut spent, mut excess) = (grace, 0, 0);
            for (what, time, cost) in events {
                match what {
                    0 => {
                        account.spared(time, time);
                        income += time;
                    }
                    1 => {
                        account.waited(time);
                        income += time / TRY;
                    }
                    _ if account.affords(time) => {
                        account.spent(cost);
                        spent += cost;
                        excess = (cost - time).max(0);
                    }
                    _ => {}
                }
                prop_assert!(spent <= income + excess, "{} for {} and {}", spent, income, excess);
            }
        }
    }
}
