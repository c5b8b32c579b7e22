//! Repeatable randomness: a seed that is printed, and can be given again.

/// A small generator (splitmix64).
pub struct Seed(u64);

impl Seed {
    /// `RUNAHEAD_SEED`, or a new one; printed, so that a failure can be repeated.
    pub fn new() -> Self {
        let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|s| s.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |t| t.as_nanos() as u64)
        });
        eprintln!("repeat with RUNAHEAD_SEED={seed}");
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
