//! Repeatable randomness.

use std::time::{SystemTime, UNIX_EPOCH};

/// `RUNAHEAD_SEED`, or a new one; printed, so that a failure can be repeated.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("repeat with RUNAHEAD_SEED={seed}");
    seed
}
