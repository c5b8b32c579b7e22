//! Hostile targets: they write arbitrary bytes to the memory that they share with the supervisor.
//!
//! The supervisor must not exit, hang or grow without bound. For a process it reads only files that
//! the process may read itself.

mod fake_target;
mod memory;
mod random;
mod read_rights;
mod socket;

use std::time::{Duration, Instant};

/// Waits until `done` returns true; false after 10 seconds.
fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !done() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    done()
}

/// True if RUNAHEAD_FULL is set: tests take long.
fn is_full() -> bool {
    std::env::var_os("RUNAHEAD_FULL").is_some_and(|v| v != "0")
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") * 4096
}

/// Asserts that this process, which had `before` bytes resident, did not grow by 256 MiB.
#[track_caller]
fn assert_bounded(before: u64) {
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "it grew by {} MiB", grown >> 20);
}
