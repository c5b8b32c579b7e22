//! Effect of mapping calls on the memory that is followed.

use linux_raw_sys::general as k;

use super::memory_checkpoints::Memory;
use super::{checkpoint, memory_checkpoints};
use crate::plane::{Call, patch};
use crate::sys::nr;

/// Updates the memory state after `call`, which may have changed a mapping.
pub fn note(call: &Call, result: i64) {
    /// Advice after which pages have their initial contents again (madvise(2)).
    const EMPTIES: [u32; 3] = [k::MADV_DONTNEED, k::MADV_REMOVE, k::MADV_DONTNEED_LOCKED];
    if (-4095..0).contains(&result) {
        return;
    }
    let ([at, len, third, ..], result) = (call.args, result as u64);
    let dropped = |at, len| checkpoint::note_change(|memory| memory.note_discarded(at, len));
    // Code that the program shares with other processes must not be patched.
    match call.nr {
        nr::MMAP if call.args[3] as u32 & k::MAP_SHARED != 0 => patch::note_shared(result, len),
        nr::MREMAP if patch::is_any_shared(at, len.max(1)) => patch::note_shared(result, third),
        _ => {}
    }
    match call.nr {
        nr::MUNMAP => dropped(at, len),
        // Such a mapping grows without a call, so the followed range would be incomplete.
        nr::MMAP if call.args[3] as u32 & k::MAP_GROWSDOWN != 0 => checkpoint::disable(),
        nr::MADVISE if EMPTIES.contains(&(third as u32)) => dropped(at, len),
        nr::MMAP => dropped(result, len),
        nr::MREMAP if result == at => dropped(at + len.min(third), len.abs_diff(third)),
        nr::MREMAP => {
            dropped(at, len);
            checkpoint::note_change(Memory::note_moved);
        }
        nr::BRK => {
            let before = memory_checkpoints::swap_program_break(result).max(result);
            checkpoint::note_change(|memory| memory.note_heap_end(result, before));
        }
        nr::MPROTECT | nr::SHMAT | nr::SHMDT | nr::PKEY_MPROTECT => dropped(0, 0),
        _ => {}
    }
}
