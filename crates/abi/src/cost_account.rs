//! What one kind of speculation costs, against what it spares: whether it may do more.
//!
//! Fraser & Chang (2003, section 6.1) weigh cost and benefit of each shadow after the fact. Here both are booked as they
//! come about, in time, and nothing is begun that the balance does not cover:
//!
//! | booked | when |
//! |---|---|
//! | grace | once: what may be lost before anything is known |
//! | a wait that was spared | when what was fetched is used |
//! | a [`TRY`]th of a wait | when the program waits for something nobody foresaw: what did not pay is tried again, ever more rarely |
//! | what was done | when it is over: the program's time, and processor time as if it were the program's |
//!
//! Two have an account: the shadows of a process (`agent/src/targets/sync_budget.rs`, in ticks), and guesses
//! (`predict/src/guess_budget.rs`, in nanoseconds).
//!
//! Invariant: what was spent never exceeds the grace, what was spared, a [`TRY`]th of the waits, and what the last thing
//! done cost beyond what was expected of it.

/// Part of a wait that may be spent on finding out whether speculation pays.
pub const TRY: i64 = 16;
/// Waits that have been spared count up to so many: what paid once may not do so any more.
pub const MOST: i64 = 32;

/// See the module's text. Any one unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    balance: i64,
}

impl Account {
    /// With so much to be lost before anything is known.
    pub const fn new(grace: i64) -> Self {
        Account { balance: grace }
    }

    /// What may be spent; less than 0: overdrawn.
    pub const fn balance(&self) -> i64 {
        self.balance
    }

    /// So much waiting was spared, where a wait takes `wait`.
    pub fn spared(&mut self, time: i64, wait: i64) {
        let most = self.balance.max(MOST.saturating_mul(wait));
        self.balance = self.balance.saturating_add(time).min(most);
    }

    /// The program has waited that long for something nobody foresaw.
    pub fn waited(&mut self, wait: i64) {
        self.balance = self.balance.saturating_add(wait / TRY);
    }

    /// So much was spent.
    pub fn spent(&mut self, time: i64) {
        self.balance = self.balance.saturating_sub(time);
    }

    /// Whether something may be begun that is expected to cost so much.
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
        /// Whatever is booked in whatever order, by somebody who asks before.
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
