//! Wake-ups between the two sides of a process's shared memory: agents and prefetcher wake the
//! dispatcher by the doorbell, the dispatcher wakes the shadow by asking for a run.
//!
//! Invariant: a writer that rings after the dispatcher has read the bell either sees that it
//! sleeps, or keeps it from falling asleep.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use runahead_abi::{Control, Shared};
use rustix::thread::futex::{self, Flags, Timespec};

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
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    let _ = futex::wait(&control.doorbell, Flags::empty(), bell, timeout.as_ref());
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
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}
