//! End of the program's heap (brk(2)).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static END: AtomicU64 = AtomicU64::new(0);

/// Records the end of the heap and returns the one recorded before.
pub fn note_end(end: u64) -> u64 {
    END.swap(end, Relaxed)
}
