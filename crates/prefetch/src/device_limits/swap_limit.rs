//! Limit on the swapped memory that is fetched at a time.
//!
//! A thread that fetches a page into a full control group first has to evict another page, and to
//! write it if it has been changed. While reads take longer than a few milliseconds the kernel
//! throttles such writes (`wbt_lat_usec`, Documentation/ABI/stable/sysfs-block). All threads that
//! fetch then stand in line for them, the target's last. Some reads take as long as ever then, and
//! some many times that. So the mean tells, and not the quartile that a
//! [`Limit`](crate::concurrency_limit::Limit) goes by: while the mean is above [`MOST`] times the
//! quartile, less is fetched at a time.

use std::time::Duration;

/// Multiple of the usual latency above which less is fetched at a time.
const MOST: u32 = 2;
/// Pages that are fetched at a time at least, at first, and at most. (With the least, programs that
/// change all that they have are no slower than without us.)
const LEAST: usize = 4;
const FIRST: usize = 8;
const LIMIT: usize = 64;
/// A page counts as one in so many; the limit changes after as many at least.
const WEIGHT: u32 = 16;

/// Limit of reads of swapped memory.
#[derive(Debug)]
pub(super) struct SwapLimit {
    limit: usize,
    mean: Duration,
    /// Lower quartile of the latency of reads.
    quartile: Duration,
    pages: usize,
}

impl SwapLimit {
    pub(super) const fn new() -> Self {
        let (mean, quartile) = (Duration::ZERO, Duration::ZERO);
        SwapLimit { limit: FIRST, mean, quartile, pages: 0 }
    }

    /// Pages to be fetched at a time.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// A page came after `latency`.
    pub(super) fn sample(&mut self, latency: Duration) {
        if self.mean.is_zero() {
            (self.mean, self.quartile) = (latency, latency);
        }
        self.mean = (self.mean * (WEIGHT - 1) + latency) / WEIGHT;
        // Three steps down for one up: it comes to rest where three of four are above.
        let step = self.quartile / (4 * WEIGHT);
        match latency < self.quartile {
            true => self.quartile -= 3 * step,
            false => self.quartile += step,
        }
        self.pages += 1;
        if self.pages >= self.limit.max(WEIGHT as usize) {
            self.pages = 0;
            self.limit = match self.mean > self.quartile * MOST {
                true => (self.limit / 2).max(LEAST),
                false => (self.limit + self.limit / 4).min(LIMIT),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(reclaim: &mut SwapLimit, pages: usize, ms: impl Fn(usize) -> u64) -> usize {
        (0..pages).for_each(|n| reclaim.sample(Duration::from_millis(ms(n))));
        reclaim.limit()
    }

    #[test]
    fn lines_for_writes_show_in_the_mean() {
        let mut reclaim = SwapLimit::new();
        assert_eq!(after(&mut reclaim, 1_000, |n| 4 + n as u64 % 3), LIMIT);
        // Most take as long as ever, a few very long.
        let throttled = |n| if n % 5 == 0 { 200 } else { 5 };
        assert_eq!(after(&mut reclaim, 1_000, throttled), LEAST);
        assert_eq!(after(&mut reclaim, 1_000, |_| 5), LIMIT, "it is over");
    }

    #[test]
    fn a_slower_device_is_no_line() {
        let mut reclaim = SwapLimit::new();
        let _ = after(&mut reclaim, 500, |_| 1);
        assert_eq!(after(&mut reclaim, 2_000, |_| 20), LIMIT);
    }
}
