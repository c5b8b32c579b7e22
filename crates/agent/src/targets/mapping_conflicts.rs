//! Calls that map or unmap memory of the agent's ([`address_space`]).
//!
//! The program can know such an address only from a list of its mappings, or by chance. Space that
//! is only reserved is given to it. Where memory is in use, a wrong result is not acceptable: the
//! process goes on natively and the call is made as it stands. Only the code that it is running, or
//! that calls pass through, cannot be given up: the call then fails. Unmapping memory that the
//! program does not know of does nothing.

use linux_raw_sys::general as k;

use super::call_outcome::Outcome;
use super::privilege_changes::stop_policy;
use super::target_state::Target;
use crate::address_space;
use crate::plane::{self, Call};
use crate::session::Session;
use crate::sys::{self, PAGE, nr};

/// `SHM_RND` and `SHM_REMAP` of shmat(2), and `IPC_STAT` of shmctl(2).
const SHM_RND: u64 = 0o20000;
const SHM_REMAP: u64 = 0o40000;
const IPC_STAT: u64 = 2;

/// Range of the lowest memory of ours between `at` and `end`.
fn own_memory_from(session: &Session, at: u64, end: u64) -> Option<plane::AddressRange> {
    session.first_owned(at, end).into_iter().chain(plane::patch::stubs_from(at, end)).min()
}

impl Target {
    /// Makes way for a mapping that replaces `len` bytes from `at`. Returns the outcome of the call
    /// if the place cannot be given up.
    fn replace_range(&self, session: &'static Session, at: u64, len: u64) -> Option<Outcome> {
        let end = at.saturating_add(len);
        if !at.is_multiple_of(PAGE) || len == 0 {
            return None;
        }
        if session.overlaps_image(at, end) || plane::patch::stubs_from(at, end).is_some() {
            return Some(Outcome::Answer(sys::fail(sys::ENOMEM)));
        }
        if address_space::make_way(at, end) {
            return None;
        }
        plane::retire_all_threads();
        Some(stop_policy(session))
    }

    /// Gives up reserved space that the program wants only if it is free.
    fn make_way(&self, at: u64, len: u64) {
        if at.is_multiple_of(PAGE) {
            address_space::make_way(at, at.saturating_add(len));
        }
    }

    /// Makes way for a mapping at an address that the program has chosen.
    pub(super) fn map_fixed(&self, session: &'static Session, call: &Call) -> Option<Outcome> {
        let [at, len, _, flags, ..] = call.args;
        let flags = flags as u32;
        if flags & k::MAP_FIXED_NOREPLACE != 0 {
            self.make_way(at, len);
            return None;
        }
        if flags & k::MAP_FIXED != 0 { self.replace_range(session, at, len) } else { None }
    }

    pub(super) fn mremap(&self, session: &'static Session, call: &Call) -> Outcome {
        let [at, old, new, flags, to, _] = call.args;
        self.dontfork.forget_memory(at, old);
        self.fault_watch.note_growth(session, new.saturating_sub(old));
        if flags as u32 & k::MREMAP_FIXED == 0 {
            return Outcome::Native;
        }
        self.dontfork.forget_memory(to, new);
        self.replace_range(session, to, new).unwrap_or(Outcome::Native)
    }

    pub(super) fn shmat(&self, session: &'static Session, call: &Call) -> Outcome {
        let [id, at, flags, ..] = call.args;
        if at == 0 {
            return Outcome::Native;
        }
        // struct shmid64_ds: 48 bytes of struct ipc64_perm, then the size.
        let mut segment = [0u64; 16];
        // SAFETY: shmctl(2) writes 112 bytes.
        let known =
            unsafe { sys::raw(nr::SHMCTL, [id, IPC_STAT, segment.as_mut_ptr() as u64, 0, 0, 0]) };
        if known < 0 {
            return Outcome::Native;
        }
        let at = if flags & SHM_RND != 0 { at & !(PAGE - 1) } else { at };
        if flags & SHM_REMAP == 0 {
            self.make_way(at, segment[6]);
            return Outcome::Native;
        }
        self.replace_range(session, at, segment[6]).unwrap_or(Outcome::Native)
    }

    pub(super) fn munmap(&self, session: &'static Session, call: &Call) -> Outcome {
        let [at, len, ..] = call.args;
        self.dontfork.forget_memory(at, len);
        let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE));
        let Some(end) = end.filter(|_| at.is_multiple_of(PAGE)) else { return Outcome::Native };
        if own_memory_from(session, at, end).is_none() {
            return Outcome::Native;
        }
        // Unmap the parts around the agent's memory.
        let mut from = at;
        while from < end {
            let plane::AddressRange { start: ours, end: behind } =
                own_memory_from(session, from, end)
                    .unwrap_or(plane::AddressRange::of_bytes(end, 0));
            if from < ours {
                // SAFETY: the program asked for it, and none of it is ours.
                let unmapped = unsafe { sys::unmap(from, ours - from) };
                if let Err(errno) = unmapped {
                    return Outcome::Answer(sys::fail(errno.0));
                }
            }
            from = behind;
        }
        Outcome::Answer(0)
    }
}
