//! Repeatable randomness: a seed that is printed, and can be given again.

/// A small generator (splitmix64).
pub struct Seed(u64);

impl Seed {
    /// `RUNAHEAD_SEED`, or a new one; printed, so that a failure can be repeated.
    pub fn new() -> Self {
        Seed(runahead_harness::seed())
    }

    /// Generator of a known seed.
    pub fn of(seed: u64) -> Self {
        Seed(seed)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}

impl Default for Seed {
    fn default() -> Self {
        Self::new()
    }
}
