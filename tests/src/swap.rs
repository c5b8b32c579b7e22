//! Memory that is swapped out to a slow disk.

use runahead_testbed::Swap;

use crate::{Fixture, root};

/// Swaps memory out to a file of `bytes` on the fixture's disk; the error is the reason to skip.
pub fn on(fixture: &Fixture, bytes: u64) -> Result<Swap, String> {
    root()?;
    let mut swap = None;
    fixture.change(|dir| swap = Some(Swap::on(dir, bytes).map_err(|e| e.to_string())));
    swap.expect("it is called once")
}
