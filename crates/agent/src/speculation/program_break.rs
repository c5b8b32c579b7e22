//! Where the program's heap ends (brk(2)).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static END: AtomicU64 = AtomicU64::new(0);

/// It ends here now; where it ended when that was last noted.
pub fn note_end(end: u64) -> u64 {
    END.swap(end, Relaxed)
}
