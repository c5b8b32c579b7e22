//! How the two sides of a process's shared memory wake each other: agents and prefetcher the
//! dispatcher, by the doorbell, and the dispatcher the shadow, by asking for a run.
//!
//! Invariant: whoever rings after the dispatcher has read the bell either sees that it sleeps, or
//! keeps it from falling asleep.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use nix::libc;
use runahead_abi::{Control, Shared};

/// Wakes the dispatcher, as the agents do.
pub fn ring(shared: &Shared) {
    let control = &shared.control;
    control.doorbell.fetch_add(1, SeqCst);
    if control.sleeping.load(SeqCst) != 0 {
        control.sleeping.store(0, Relaxed);
        wake(&control.doorbell);
    }
}

/// Sleeps until the bell is no longer what it was when it read `bell`, and at most for `timeout`.
pub fn sleep_until_rung(control: &Control, bell: u32, timeout: Option<Duration>) {
    control.sleeping.store(1, SeqCst);
    // A producer that came before this store changed the bell, and the kernel sees that.
    futex(&control.doorbell, libc::FUTEX_WAIT, bell, timeout);
    control.sleeping.store(0, Relaxed);
}

/// Has the template start another run.
pub fn request_run(control: &Control) {
    control.run_request.fetch_add(1, SeqCst);
    wake(&control.run_request);
}

/// Makes every shadow that the process has end itself; the number of the sync that takes over.
pub fn supersede(control: &Control) -> u32 {
    let sync = control.sync.fetch_add(1, SeqCst).wrapping_add(1);
    control.run_sync.store(sync, Relaxed);
    request_run(control);
    sync
}

/// Wakes all who sleep on `word`.
fn wake(word: &AtomicU32) {
    futex(word, libc::FUTEX_WAKE, i32::MAX as u32, None);
}

fn futex(word: &AtomicU32, op: i32, value: u32, timeout: Option<Duration>) {
    let spec = timeout
        .map(|t| libc::timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a word of shared memory that stays mapped, and a timeout that lives through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, spec) };
}
