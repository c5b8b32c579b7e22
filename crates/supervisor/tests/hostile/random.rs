//! Random numbers from a printed seed, so that a failure can be repeated.

/// splitmix64
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|s| s.parse().ok());
        let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
        let seed = given.unwrap_or(now);
        eprintln!("repeat with RUNAHEAD_SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Value at an edge of arithmetic, or any other.
    pub fn word(&mut self) -> u64 {
        const ODD: [u64; 8] = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 32, 1 << 31, 4100];
        match self.next() % 3 {
            0 => ODD[self.next() as usize % ODD.len()],
            1 => self.next() % 4096,
            _ => self.next(),
        }
    }
}
