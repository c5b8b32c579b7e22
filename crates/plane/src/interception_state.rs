//! State of interception in this process: who sees calls, and if it has been given up.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use crate::address_range::AddressRange;

/// The policy sees all calls ([`Interest::Every`](crate::Interest::Every)).
pub(crate) static SEES_ALL: AtomicBool = AtomicBool::new(false);
/// A policy that reports lets some calls go by ([`crate::set_routes`]). Read by the entry code.
pub(crate) static SKIPS_REPORTS: AtomicBool = AtomicBool::new(false);
/// The policy is a [`ReportingPolicy`](crate::ReportingPolicy).
pub(crate) static REPORTS: AtomicBool = AtomicBool::new(false);
/// Interception has been given up.
pub(crate) static RETIRED: AtomicBool = AtomicBool::new(false);
/// The policy has ended, and threads are still intercepted for their signal masks.
pub(crate) static STANDS_DOWN: AtomicBool = AtomicBool::new(false);
/// Threads are being sent the signal that takes their dispatch off.
pub(crate) static CALLING_OFF: AtomicBool = AtomicBool::new(false);
/// First address of the agent's code, and its end.
pub(crate) static TEXT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// PID of this process, stored at the start and in each child.
pub(crate) static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The policy sees all calls, the plane's own among them.
pub(crate) fn sees_all() -> bool {
    SEES_ALL.load(Relaxed)
}

/// The policy is told of every call and its result.
pub(crate) fn reports() -> bool {
    REPORTS.load(Relaxed)
}

/// Some calls go by unreported ([`crate::set_routes`]).
pub(crate) fn skips_reports() -> bool {
    SKIPS_REPORTS.load(Relaxed)
}

/// Interception has been given up.
pub(crate) fn is_retired() -> bool {
    RETIRED.load(Relaxed)
}

/// The policy has ended, and threads are still intercepted.
pub(crate) fn stands_down() -> bool {
    STANDS_DOWN.load(Relaxed)
}

/// Range of the agent's code, whose calls Syscall User Dispatch lets through.
pub(crate) fn text() -> AddressRange {
    AddressRange { start: TEXT[0].load(Relaxed), end: TEXT[1].load(Relaxed) }
}

/// True if the agent's code is at that address.
pub(crate) fn is_ours(address: u64) -> bool {
    text().contains(address)
}
