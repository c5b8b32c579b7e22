//! A target that means harm: it writes whatever it likes to the memory that it shares with us.
//!
//! The supervisor neither ends nor hangs nor grows without bound, and reads for a process only what
//! that process may read itself.

mod memory;
mod random;
mod rights;
mod socket;
mod target;

use std::time::{Duration, Instant};

/// Waits until it is `done`; false if that does not come.
fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !done() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    done()
}

/// RUNAHEAD_FULL is set: everything at length.
fn is_full() -> bool {
    std::env::var_os("RUNAHEAD_FULL").is_some_and(|v| v != "0")
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") * 4096
}

/// Nonsense has not filled the memory of this process, which had so much `before`.
#[track_caller]
fn assert_bounded(before: u64) {
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "it grew by {} MiB", grown >> 20);
}
