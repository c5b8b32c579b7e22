//! Sends hints to the supervisor.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use runahead_abi::hint_record::Header;
use runahead_abi::{HintKind, Shared};
use runahead_estimators::Identity;

use crate::sys;

/// A hint to be sent.
#[derive(Clone, Copy)]
pub struct Hint<'a> {
    /// Kind of access that is expected.
    pub kind: HintKind,
    /// Object of the access.
    pub object: Identity,
    /// First byte, for data.
    pub offset: u64,
    /// Bytes, for data.
    pub length: u64,
    /// Flags of `runahead_abi::hint_record`.
    pub flags: u32,
    /// Absolute name of the object.
    pub path: &'a [u8],
}

impl<'a> Hint<'a> {
    /// A hint for an object as a whole, or for its name.
    pub fn whole(kind: HintKind, object: Identity, flags: u32, path: &'a [u8]) -> Self {
        Hint { kind, object, offset: 0, length: 0, flags, path }
    }
}

/// Sends `hint` of `run` and wakes the supervisor. `run` is 0, or a run of disclosures, in the
/// target. Returns false if the ring is full.
pub fn send(shared: &Shared, run: u32, position: u64, hint: &Hint<'_>) -> bool {
    let sent = push_hint(shared, run, position, hint);
    ring_bell(shared);
    sent
}

/// Sends a hint without waking the supervisor, which finds the record when it wakes for something
/// else. Wakes it only if the ring is full.
pub fn send_quietly(shared: &Shared, run: u32, position: u64, hint: &Hint<'_>) {
    if !push_hint(shared, run, position, hint) {
        ring_bell(shared);
    }
}

fn push_hint(shared: &Shared, run: u32, position: u64, hint: &Hint<'_>) -> bool {
    let header = Header {
        kind: hint.kind as u32,
        run,
        position,
        key: hint.object.raw(),
        offset: hint.offset,
        length: hint.length,
        flags: hint.flags,
        path_len: hint.path.len() as u32,
    };
    shared.ring(run).push(&[header.as_bytes(), hint.path])
}

/// Wakes the supervisor's dispatcher if it sleeps.
pub fn ring_bell(shared: &Shared) {
    let control = &shared.control;
    // Sequentially consistent on both sides: either the dispatcher sees the new count before it
    // sleeps, or this thread sees that it sleeps.
    control.doorbell.fetch_add(1, SeqCst);
    if control.sleeping.load(SeqCst) != 0 {
        control.sleeping.store(0, Relaxed);
        sys::futex_wake(&control.doorbell);
    }
}
