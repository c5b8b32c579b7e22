//! Helpers that the tests of this crate share.

use proptest::test_runner::{Config, RngSeed};
pub(crate) use runahead_harness::seed;

/// Random cases from `RUNAHEAD_SEED`, or from a new seed; it is printed, so that a failure can be
/// repeated.
pub(crate) fn config(cases: u32) -> Config {
    let seed = seed();
    let rng_seed = RngSeed::Fixed(seed);
    Config { rng_seed, failure_persistence: None, ..Config::with_cases(cases) }
}
