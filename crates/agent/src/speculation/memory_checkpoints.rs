//! Program memory at each checkpoint: by a mirror, where the kernel tracks dirty pages
//! ([`super::memory_mirror`]), else by copies before the first store ([`super::write_faults`]).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::memory_mirror::Mirror;
use super::writable_regions::Region;
use super::{userfault_fd, write_faults};
use crate::session::Session;
use crate::sys::{self, Errno, PAGE};

/// End of the program's heap (brk(2)) when it was last recorded.
static PROGRAM_BREAK: AtomicU64 = AtomicU64::new(0);

/// Records the end of the heap and returns the one recorded before.
pub fn swap_program_break(end: u64) -> u64 {
    PROGRAM_BREAK.swap(end, Relaxed)
}

/// Mechanism that saves memory.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Tracking {
    /// Initial value: no mechanism is chosen yet.
    Unknown = 0,
    Mirrored,
    WriteFaults,
}

/// Saved program memory. All-zero is valid and empty.
pub struct Memory {
    tracking: Tracking,
    mirror: Mirror,
    /// True if the known regions are current: no mapping has changed since they were read.
    regions_are_current: bool,
}

impl Memory {
    /// Marks the known regions as outdated: a mapping may have changed.
    pub fn invalidate_regions(&mut self) {
        self.regions_are_current = false;
    }

    /// Discards the range between the new and the old end of the heap, except the page in which it
    /// still ends. `above` is the larger of the two.
    pub fn note_heap_end(&mut self, end: u64, above: u64) {
        let end = end.next_multiple_of(PAGE);
        self.note_discarded(end, above.saturating_sub(end));
    }

    /// Discards the saved contents of a range that was unmapped, emptied, or mapped anew.
    pub fn note_discarded(&mut self, at: u64, len: u64) {
        self.invalidate_regions();
        match self.tracking {
            Tracking::WriteFaults => write_faults::note_discarded(at, len),
            _ => self.mirror.note_discarded(at, len),
        }
    }

    /// Marks dirty-page tracking as unreliable: pages have moved, with or without their tracking
    /// state.
    pub fn note_moved(&mut self) {
        self.invalidate_regions();
        self.mirror.note_moved();
    }

    /// Resets the state in a forked child.
    pub fn in_child(&mut self) {
        self.mirror.in_child();
        write_faults::in_child();
        self.tracking = Tracking::Unknown;
        self.invalidate_regions();
    }

    /// Returns the region that holds `at`.
    fn region(&self, at: u64) -> Option<Region> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::region(at),
            _ => self.mirror.region(at),
        }
    }

    /// True if writable memory is known at `at`. Stacks grow without a call.
    pub fn covers(&self, at: u64) -> bool {
        self.region(at).is_some()
    }

    /// Copies `to.len()` bytes from the program's memory; EFAULT if some of them do not exist.
    pub fn read(&self, at: u64, to: &mut [u8]) -> sys::Result<()> {
        let end = at.checked_add(to.len() as u64).ok_or(Errno(sys::EFAULT))?;
        // A truncated file loses pages without a call.
        let is_there = self.region(at).is_some_and(|region| end <= region.end && !region.is_file);
        if !is_there || !self.regions_are_current {
            return sys::copy_bytes(at, to);
        }
        // SAFETY: the range is writable: no mapping has changed since the regions were read, and a
        // thread that changes one needs this lock. Other threads may store meanwhile; then the
        // bytes are those that write(2) would have written.
        unsafe { core::ptr::copy(at as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Disables checkpoints: the program uses userfaultfd(2) itself, and memory can have only one.
    pub fn disable(&mut self) {
        self.mirror.disable();
        write_faults::disable();
        self.invalidate_regions();
    }

    /// Saves memory for a new checkpoint. No other thread writes meanwhile. ENOSPC: no room for
    /// what an earlier checkpoint needs, so there is no new one; earlier ones stay.
    pub fn save(&mut self, session: &Session, is_another: bool) -> sys::Result<()> {
        if self.tracking == Tracking::Unknown {
            self.tracking = if userfault_fd::is_refused()? {
                Tracking::WriteFaults
            } else {
                Tracking::Mirrored
            };
        }
        match self.tracking {
            Tracking::WriteFaults => write_faults::save(session, self.regions_are_current)?,
            _ => {
                if !self.regions_are_current {
                    self.mirror.follow_regions(session, is_another)?;
                    self.regions_are_current = true;
                }
                self.mirror.save(is_another)?;
            }
        }
        self.regions_are_current = true;
        Ok(())
    }

    /// Returns the end of the undo log for the checkpoints before the latest.
    pub fn mark(&self) -> u64 {
        match self.tracking {
            Tracking::WriteFaults => write_faults::mark(),
            _ => self.mirror.undo.end(),
        }
    }

    /// Drops log entries before `mark`.
    pub fn forget_until(&mut self, mark: u64) {
        match self.tracking {
            Tracking::WriteFaults => write_faults::forget_until(mark),
            _ => self.mirror.undo.forget_until(mark),
        }
    }

    /// Drops log entries of pages that were unmapped for good, before any checkpoint that is left.
    pub fn forget_pages(&mut self, at: u64, len: u64) {
        match self.tracking {
            Tracking::WriteFaults => write_faults::forget_pages(at, len),
            _ => self.mirror.undo.forget_pages(at, len),
        }
    }

    /// Restores memory as of the checkpoint at which the log ended at `mark`. No other thread
    /// writes meanwhile. All that was mapped then is still mapped.
    pub fn restore(&mut self, mark: u64) -> sys::Result<()> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::restore(mark),
            _ => self.mirror.restore(mark),
        }
    }

    /// Protects memory again after a restore, for an earlier checkpoint. No other thread writes
    /// meanwhile.
    pub fn reprotect(&mut self) -> sys::Result<()> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::reprotect(),
            _ => Ok(()),
        }
    }

    /// Ends the last checkpoint. No other thread writes meanwhile.
    pub fn end(&mut self) -> sys::Result<()> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::end(),
            _ => Ok(()),
        }
    }
}
