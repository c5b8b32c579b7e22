//! Calls that change what is mapped, as far as memory that is followed is concerned.

use linux_raw_sys::general as k;

use super::memory_checkpoints::Memory;
use super::{checkpoint, program_break};
use crate::plane::{Call, patch};
use crate::sys::nr;

/// `call` may have changed what is mapped.
pub fn note(call: &Call, result: i64) {
    /// Advice after which pages hold what they held at first (madvise(2)).
    const EMPTIES: [u32; 3] = [k::MADV_DONTNEED, k::MADV_REMOVE, k::MADV_DONTNEED_LOCKED];
    if (-4095..0).contains(&result) {
        return;
    }
    let ([at, len, third, ..], result) = (call.args, result as u64);
    let dropped = |at, len| checkpoint::note_change(|memory| memory.note_discarded(at, len));
    // What the program shares with others is not to be patched.
    match call.nr {
        nr::MMAP if call.args[3] as u32 & k::MAP_SHARED != 0 => patch::note_shared(result, len),
        nr::MREMAP if patch::is_any_shared(at, len.max(1)) => patch::note_shared(result, third),
        _ => {}
    }
    match call.nr {
        nr::MUNMAP => dropped(at, len),
        // It grows without a call, and what is followed would not be all of it.
        nr::MMAP if call.args[3] as u32 & k::MAP_GROWSDOWN != 0 => checkpoint::disable(),
        nr::MADVISE if EMPTIES.contains(&(third as u32)) => dropped(at, len),
        nr::MMAP => dropped(result, len),
        nr::MREMAP if result == at => dropped(at + len.min(third), len.abs_diff(third)),
        nr::MREMAP => {
            dropped(at, len);
            checkpoint::note_change(Memory::note_moved);
        }
        nr::BRK => {
            let before = program_break::note_end(result).max(result);
            checkpoint::note_change(|memory| memory.note_heap_end(result, before));
        }
        nr::MPROTECT | nr::SHMAT | nr::SHMDT | nr::PKEY_MPROTECT => dropped(0, 0),
        _ => {}
    }
}
