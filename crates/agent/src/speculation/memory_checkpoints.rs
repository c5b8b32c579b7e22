//! The program's private memory as it was at each checkpoint: by a mirror, where the kernel notes what is written
//! ([`super::memory_mirror`]); where it does not, by copies that are made before the first store ([`super::write_faults`]).

use super::memory_mirror::Mirror;
use super::writable_regions::Region;
use super::{userfault_fd, write_faults};
use crate::session::Session;
use crate::sys::{self, Errno};

const PAGE: u64 = 4096;

/// How it is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Tracking {
    /// That was not looked at yet.
    Unknown = 0,
    Mirrored,
    WriteFaults,
}

/// See the module's text. All-zero is valid, and knows nothing.
pub struct Memory {
    tracking: Tracking,
    mirror: Mirror,
    /// Mappings are as they were when they were looked at.
    regions_are_current: bool,
}

impl Memory {
    /// Mappings may change.
    pub fn invalidate_regions(&mut self) {
        self.regions_are_current = false;
    }

    /// The heap ended at `above`, or ends at `end`: what lies between has gone, but for the page in which it still ends.
    pub fn note_heap_end(&mut self, end: u64, above: u64) {
        let end = end.next_multiple_of(PAGE);
        self.note_discarded(end, above.saturating_sub(end));
    }

    /// What lay there has gone.
    pub fn note_discarded(&mut self, at: u64, len: u64) {
        self.invalidate_regions();
        match self.tracking {
            Tracking::WriteFaults => write_faults::note_discarded(at, len),
            _ => self.mirror.note_discarded(at, len),
        }
    }

    /// Pages have moved, and what says that they were written may have or not.
    pub fn note_moved(&mut self) {
        self.invalidate_regions();
        self.mirror.note_moved();
    }

    /// In a forked child, which has nothing of it.
    pub fn in_child(&mut self) {
        self.mirror.in_child();
        write_faults::in_child();
        self.tracking = Tracking::Unknown;
        self.invalidate_regions();
    }

    /// The piece that holds `at`.
    fn region(&self, at: u64) -> Option<Region> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::region(at),
            _ => self.mirror.region(at),
        }
    }

    /// Whether memory that the program can write is known to be there. (Stacks grow without a call.)
    pub fn covers(&self, at: u64) -> bool {
        self.region(at).is_some()
    }

    /// Copies as many bytes as `to` has from the program's memory; EFAULT if they are not all there.
    pub fn read(&self, at: u64, to: &mut [u8]) -> sys::Result<()> {
        let end = at.checked_add(to.len() as u64).ok_or(Errno(sys::EFAULT))?;
        // (Pages of a file can go without a call, where that is cut short.)
        let is_there = self.region(at).is_some_and(|region| end <= region.end && !region.is_file);
        if !is_there || !self.regions_are_current {
            return sys::copy_bytes(at, to);
        }
        // SAFETY: the program can write there, as nothing was unmapped since that was looked at, nor can be just now: that takes
        // who has this. Other threads may be writing there, and get what write(2) would have written.
        unsafe { core::ptr::copy(at as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// The program looks after its own memory by userfaultfd(2), and there can be one of us.
    pub fn disable(&mut self) {
        self.mirror.disable();
        write_faults::disable();
        self.invalidate_regions();
    }

    /// Keeps what it holds. Nobody else writes meanwhile. ENOSPC: there is no room for what another checkpoint before this one needs, and
    /// no checkpoint; those before it stay.
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

    /// Where what is noted for the checkpoints before the latest ends.
    pub fn mark(&self) -> u64 {
        match self.tracking {
            Tracking::WriteFaults => write_faults::mark(),
            _ => self.mirror.undo.end(),
        }
    }

    /// What was noted before `mark` is not wanted any more.
    pub fn forget_until(&mut self, mark: u64) {
        match self.tracking {
            Tracking::WriteFaults => write_faults::forget_until(mark),
            _ => self.mirror.undo.forget_until(mark),
        }
    }

    /// These pages have been given up for good: by what was done before any of the checkpoints that are left.
    pub fn forget_pages(&mut self, at: u64, len: u64) {
        match self.tracking {
            Tracking::WriteFaults => write_faults::forget_pages(at, len),
            _ => self.mirror.undo.forget_pages(at, len),
        }
    }

    /// Puts back what was written since the checkpoint at which the notes ended at `mark`. Nobody else writes meanwhile, and all that
    /// was mapped then is still mapped.
    pub fn restore(&mut self, mark: u64) -> sys::Result<()> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::restore(mark),
            _ => self.mirror.restore(mark),
        }
    }

    /// It was put back, and there is an earlier checkpoint. Nobody else writes meanwhile.
    pub fn reprotect(&mut self) -> sys::Result<()> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::reprotect(),
            _ => Ok(()),
        }
    }

    /// There is no checkpoint any more. Nobody else writes meanwhile.
    pub fn end(&mut self) -> sys::Result<()> {
        match self.tracking {
            Tracking::WriteFaults => write_faults::end(),
            _ => Ok(()),
        }
    }
}
