//! Private state that calls of a speculative process have changed, and how each change is taken back or made for good.
//!
//! Private is what no other process can see: descriptors of files that this process alone has open, their offsets, and its
//! memory. What cannot be taken back (memory that is given up, a descriptor's last close) is not done before it is committed.

use linux_raw_sys::general as k;

use super::descriptor_table::DESCRIPTORS;
use super::memory_checkpoints::Memory;
use super::thread_states::{THREADS, Threads};
use super::{descriptor_table, program_break, target_prefetch};
use crate::sys::{self, Errno, Fd, nr};

/// Changes that can be open at once.
const CHANGES: usize = 4096;
/// Where descriptors are kept that the program has closed: programs look there late, and the kernel's table is mostly as large.
pub const KEPT_FROM: u64 = 200;

/// A change.
#[derive(Clone, Copy)]
pub enum Change {
    /// This was opened.
    Opened(Fd),
    /// This was closed, and is open as `kept`.
    Closed { fd: Fd, kept: Fd, flags: u32 },
    /// The offset was this before.
    Offset { fd: Fd, was: u64 },
    /// This memory is new.
    Mapped { at: u64, len: u64 },
    /// This memory is not wanted any more.
    Unmapped { at: u64, len: u64 },
    /// The heap ended here before.
    Break(u64),
    /// This child was made.
    Forked(u32),
    /// The thread, which is the only one, believed this to be its mask of signals before.
    Mask(u64),
}

/// See the module's text. Positions only grow. All-zero is valid, and empty.
pub struct Journal {
    changes: [Option<Change>; CHANGES],
    first: u64,
    end: u64,
    /// Checkpoints so far; and at which of them the offset of each descriptor was last noted.
    interval: u32,
    offset_recorded_at: [u32; DESCRIPTORS],
}

impl Journal {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether another change can be noted, by each thread that is about to make one.
    pub fn has_room(&self) -> bool {
        self.end - self.first + (THREADS as u64) < CHANGES as u64
    }

    /// Notes a change that was just made. (There [is room](Self::has_room).)
    pub fn record(&mut self, change: Change) {
        self.changes[self.end as usize % CHANGES] = Some(change);
        self.end += 1;
    }

    /// A checkpoint has been taken, or gone back to.
    pub fn begin_interval(&mut self) {
        self.interval += 1;
    }

    /// The offset of `fd` is about to change. False: it cannot be noted.
    pub fn record_offset(&mut self, fd: Fd) -> bool {
        let interval = self.interval;
        let Some(noted) = self.offset_recorded_at.get_mut(fd as usize) else { return false };
        if *noted == interval {
            return true;
        }
        let Ok(was) = sys::lseek(fd, 0, k::SEEK_CUR) else { return false };
        *noted = interval;
        if !self.has_room() {
            return false;
        }
        self.record(Change::Offset { fd, was });
        true
    }

    /// Closes `fd`, so that it can be opened again as it is. False: it cannot be.
    pub fn close(&mut self, fd: Fd) -> bool {
        let kept = |flags: u64| {
            let kept = sys::fcntl(fd, k::F_DUPFD_CLOEXEC, KEPT_FROM)?;
            sys::close(fd)?;
            Ok::<_, Errno>((kept as Fd, flags as u32))
        };
        let Ok((kept, flags)) = sys::fcntl(fd, k::F_GETFD, 0).and_then(kept) else { return false };
        self.record(Change::Closed { fd, kept, flags });
        true
    }

    /// Takes back all changes from `mark` on, the last first.
    pub fn roll_back(&mut self, mark: u64, memory: &mut Memory, threads: &mut Threads) {
        while self.end > mark {
            self.end -= 1;
            match self.changes[self.end as usize % CHANGES].take() {
                Some(Change::Opened(fd)) => {
                    let _ = sys::close(fd);
                    descriptor_table::invalidate(fd);
                    descriptor_table::set_private(fd, false);
                    target_prefetch::forget(fd);
                }
                Some(Change::Closed { fd, kept, flags }) => {
                    let cloexec = if flags & k::FD_CLOEXEC != 0 { k::O_CLOEXEC } else { 0 };
                    let _ = sys::dup3(kept, fd, cloexec);
                    let _ = sys::close(kept);
                    descriptor_table::invalidate(fd);
                    descriptor_table::set_private(fd, true);
                    target_prefetch::forget(fd);
                }
                Some(Change::Offset { fd, was }) => drop(sys::lseek(fd, was as i64, k::SEEK_SET)),
                Some(Change::Mapped { at, len }) => unmap(memory, at, len),
                Some(Change::Break(was)) => {
                    // SAFETY: asks where it ends.
                    let now = unsafe { sys::raw(nr::BRK, [0; 6]) } as u64;
                    // SAFETY: what is behind that never was.
                    let _ = unsafe { sys::raw(nr::BRK, [was, 0, 0, 0, 0, 0]) };
                    program_break::note_end(was);
                    memory.note_heap_end(was, now);
                }
                Some(Change::Forked(child)) => kill_and_reap(child),
                Some(Change::Mask(was)) => threads.set_believed_mask(was),
                Some(Change::Unmapped { .. }) | None => {}
            }
        }
        self.begin_interval();
    }

    /// All changes before `mark` are there to stay.
    pub fn commit_until(&mut self, mark: u64, memory: &mut Memory) {
        while self.first < mark {
            match self.changes[self.first as usize % CHANGES].take() {
                Some(Change::Closed { kept, .. }) => drop(sys::close(kept)),
                Some(Change::Unmapped { at, len }) => {
                    unmap(memory, at, len);
                    memory.forget_pages(at, len);
                }
                _ => {}
            }
            self.first += 1;
        }
    }

    /// In a forked child: nothing is open. What its parent keeps it need not keep.
    pub fn in_child(&mut self) {
        for n in self.first..self.end {
            if let Some(Change::Closed { kept, .. }) = self.changes[n as usize % CHANGES].take() {
                let _ = sys::close(kept);
            }
        }
        (self.first, self.end) = (0, 0);
    }
}

fn unmap(memory: &mut Memory, at: u64, len: u64) {
    // SAFETY: the program has asked for it, or goes back to before it was mapped.
    let _ = unsafe { sys::unmap(at, len) };
    memory.note_discarded(at, len);
}

/// This child has never been: it ends, and is collected, and nobody hears of that.
fn kill_and_reap(child: u32) {
    // SAFETY: a child of ours, which nobody else has collected: that waits.
    let _ = unsafe { sys::raw(nr::KILL, [child.into(), k::SIGKILL.into(), 0, 0, 0, 0]) };
    let wait = |child: u64, flags: u32| {
        // SAFETY: writes nothing.
        unsafe { sys::raw(nr::WAIT4, [child, 0, flags.into(), 0, 0, 0]) }
    };
    while wait(child.into(), k::__WALL) == sys::fail(sys::EINTR) {}
    // (The signal may be another child's, too, that has ended meanwhile: then it stays.)
    const ALL: u64 = 0;
    let mut told = [0u64; 16];
    let flags = k::WEXITED | k::WSTOPPED | k::WCONTINUED | k::WNOHANG | k::WNOWAIT;
    let args = [ALL, 0, told.as_mut_ptr() as u64, flags.into(), 0, 0];
    // SAFETY: writes a siginfo_t.
    let result = unsafe { sys::raw(nr::WAITID, args) };
    if result != 0 || told[0] == 0 {
        let (set, at_once) = (1u64 << (k::SIGCHLD - 1), [0u64; 2]);
        let args = [&raw const set as u64, 0, at_once.as_ptr() as u64, 8, 0, 0];
        // SAFETY: reads a mask and a timespec.
        let _ = unsafe { sys::raw(nr::RT_SIGTIMEDWAIT, args) };
    }
}
