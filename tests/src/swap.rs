//! Memory that is swapped out to a slow disk.

use runahead_testbed::Swap;

use crate::{Fixture, root};

/// A file of `bytes` on the fixture's disk that memory is swapped out to; the error is the reason to skip.
pub fn on(fixture: &Fixture, bytes: u64) -> Result<Swap, String> {
    root()?;
    let mut swap = None;
    fixture.change(|dir| swap = Some(Swap::on(dir, bytes).map_err(|e| e.to_string())));
    swap.expect("it is called once")
}
