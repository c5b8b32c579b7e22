//! What the tests of this crate share.

/// `RUNAHEAD_SEED`, or a new one; printed.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("repeat with RUNAHEAD_SEED={seed}");
    seed
}
