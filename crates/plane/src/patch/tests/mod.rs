//! Tests of patching, on code that is made for them and on code that is there.
//!
//! What may crash runs in a forked child, which tells by a shared page how far it came.

extern crate std;

mod fuzz;
mod generate;
mod guest_code;
mod site_survey;
mod threads;

use core::sync::atomic::{AtomicU64, Ordering::*};
use std::prelude::rust_2024::String;
use std::{env, eprintln, format, process, time};

use linux_raw_sys::general as k;

use crate::sys::{self, nr};

/// Random numbers (splitmix64).
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// `RUNAHEAD_SEED`, or a new one; printed.
fn seed() -> u64 {
    let given = env::var("RUNAHEAD_SEED").ok().and_then(|text| text.parse().ok());
    let now = time::SystemTime::now().duration_since(time::UNIX_EPOCH);
    let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("repeat with RUNAHEAD_SEED={seed}");
    seed
}

/// Report of a child to its parent.
#[derive(Default)]
#[repr(C)]
struct ChildReport {
    case: AtomicU64,
    /// Sites patched: number before, by padding, compare after; those that were not; run before.
    shapes: [AtomicU64; 5],
    calls_by_stub: AtomicU64,
    calls_by_trap: AtomicU64,
    /// Kind of the difference; 0: none.
    difference: AtomicU64,
    details: [AtomicU64; 4],
}

impl ChildReport {
    fn differs(&self, what: u64, details: [u64; 4]) -> ! {
        self.difference.store(what, SeqCst);
        for (at, detail) in self.details.iter().zip(details) {
            at.store(detail, SeqCst);
        }
        sys::exit(3)
    }
}

// SAFETY: as the C library declares them. It readies its allocator for the child of a fork; another
// lock that some thread held can only make the child hang, which `alarm` ends.
unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn alarm(seconds: u32) -> u32;
}

/// Memory that parent and child share, for a while of the test.
fn shared() -> &'static ChildReport {
    let flags = u64::from(k::MAP_SHARED | k::MAP_ANONYMOUS);
    let args = [0, 4096, u64::from(k::PROT_READ | k::PROT_WRITE), flags, u64::MAX, 0];
    // SAFETY: a new mapping, zeroed, which is a valid ChildReport, and is never unmapped.
    unsafe {
        let at = sys::check(sys::raw(nr::MMAP, args)).unwrap();
        &*(at as *const ChildReport)
    }
}

/// Exit status of a child in which the test itself failed.
const PANICKED: i32 = 101;

/// Runs `work` in a child of its own; what went wrong there.
fn in_child(
    report: &'static ChildReport,
    seconds: u32,
    work: impl FnOnce(&'static ChildReport),
) -> Result<(), String> {
    let child = fork();
    assert!(child >= 0, "no process to be had");
    if child == 0 {
        alarm(seconds);
        let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| work(report)));
        sys::exit(if result.is_ok() { 0 } else { PANICKED });
    }
    let mut status = 0i32;
    let args = [child as u64, &raw mut status as u64, 0, 0, 0, 0];
    // SAFETY: writes the status of our child.
    assert_eq!(unsafe { sys::raw(nr::WAIT4, args) }, child.into());
    if status == 0 {
        return Ok(());
    }
    let (signal, code) = (status & 0x7f, status >> 8 & 0xff);
    assert_ne!(code, PANICKED, "the test itself is wrong; its message is above");
    Err(format!(
        "process {}, case {}: signal {signal}, exit {code}, difference {}, {:x?}",
        process::id(),
        report.case.load(SeqCst),
        report.difference.load(SeqCst),
        report.details
    ))
}
