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
enum How {
    /// That was not looked at yet.
    Unknown = 0,
    Mirrored,
    WriteFaults,
}

/// See the module's text. All-zero is valid, and knows nothing.
pub struct Memory {
    how: How,
    mirror: Mirror,
    /// Mappings are as they were when they were looked at.
    is_settled: bool,
}

impl Memory {
    /// Mappings may change.
    pub fn unsettle(&mut self) {
        self.is_settled = false;
    }

    /// The heap ended at `above`, or ends at `end`: what lies between has gone, but for the page in which it still ends.
    pub fn heap_dropped(&mut self, end: u64, above: u64) {
        let end = end.next_multiple_of(PAGE);
        self.dropped(end, above.saturating_sub(end));
    }

    /// What lay there has gone.
    pub fn dropped(&mut self, at: u64, len: u64) {
        self.unsettle();
        match self.how {
            How::WriteFaults => write_faults::dropped(at, len),
            _ => self.mirror.dropped(at, len),
        }
    }

    /// Pages have moved, and what says that they were written may have or not.
    pub fn moved(&mut self) {
        self.unsettle();
        self.mirror.moved();
    }

    /// In a forked child, which has nothing of it.
    pub fn in_child(&mut self) {
        self.mirror.in_child();
        write_faults::in_child();
        self.how = How::Unknown;
        self.unsettle();
    }

    /// The piece that holds `at`.
    fn region(&self, at: u64) -> Option<Region> {
        match self.how {
            How::WriteFaults => write_faults::region(at),
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
        if !is_there || !self.is_settled {
            return sys::copy_bytes(at, to);
        }
        // SAFETY: the program can write there, as nothing was unmapped since that was looked at, nor can be just now: that takes
        // who has this. Other threads may be writing there, and get what write(2) would have written.
        unsafe { core::ptr::copy(at as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// The program looks after its own memory by userfaultfd(2), and there can be one of us.
    pub fn give_up(&mut self) {
        self.mirror.give_up();
        write_faults::give_up();
        self.unsettle();
    }

    /// Keeps what it holds. Nobody else writes meanwhile. ENOSPC: there is no room for what another checkpoint before this one needs, and
    /// no checkpoint; those before it stay.
    pub fn keep(&mut self, session: &Session, is_another: bool) -> sys::Result<()> {
        if self.how == How::Unknown {
            self.how = if userfault_fd::is_refused()? { How::WriteFaults } else { How::Mirrored };
        }
        match self.how {
            How::WriteFaults => write_faults::keep(session, self.is_settled)?,
            _ => {
                if !self.is_settled {
                    self.mirror.look(session, is_another)?;
                    self.is_settled = true;
                }
                self.mirror.keep(is_another)?;
            }
        }
        self.is_settled = true;
        Ok(())
    }

    /// Where what is noted for the checkpoints before the latest ends.
    pub fn mark(&self) -> u64 {
        match self.how {
            How::WriteFaults => write_faults::mark(),
            _ => self.mirror.undo.end(),
        }
    }

    /// What was noted before `mark` is not wanted any more.
    pub fn forget_until(&mut self, mark: u64) {
        match self.how {
            How::WriteFaults => write_faults::forget_until(mark),
            _ => self.mirror.undo.forget_until(mark),
        }
    }

    /// These pages have been given up for good: by what was done before any of the checkpoints that are left.
    pub fn forget_pages(&mut self, at: u64, len: u64) {
        match self.how {
            How::WriteFaults => write_faults::forget_pages(at, len),
            _ => self.mirror.undo.forget_pages(at, len),
        }
    }

    /// Puts back what was written since the checkpoint at which the notes ended at `mark`. Nobody else writes meanwhile, and all that
    /// was mapped then is still mapped.
    pub fn put_back(&mut self, mark: u64) -> sys::Result<()> {
        match self.how {
            How::WriteFaults => write_faults::put_back(mark),
            _ => self.mirror.put_back(mark),
        }
    }

    /// It was put back, and there is an earlier checkpoint. Nobody else writes meanwhile.
    pub fn go_on(&mut self) -> sys::Result<()> {
        match self.how {
            How::WriteFaults => write_faults::go_on(),
            _ => Ok(()),
        }
    }

    /// There is no checkpoint any more. Nobody else writes meanwhile.
    pub fn end(&mut self) -> sys::Result<()> {
        match self.how {
            How::WriteFaults => write_faults::end(),
            _ => Ok(()),
        }
    }
}
