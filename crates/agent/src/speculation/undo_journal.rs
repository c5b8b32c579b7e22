//! Journal of private state that calls of a speculative process have changed: undoes each change,
//! or makes it permanent.
//!
//! Private state is what no other process can see: descriptors of files that only this process has
//! open, their offsets, and its memory. A change that cannot be undone, such as an unmap or a
//! descriptor's last close, is delayed until it is committed.

use linux_raw_sys::general as k;

use super::descriptor_table::DESCRIPTORS;
use super::memory_checkpoints::Memory;
use super::thread_states::{THREADS, Threads};
use super::{descriptor_table, memory_checkpoints, target_prefetch};
use crate::sys::{self, Errno, Fd, nr};

/// Limit of changes that are journaled at once.
const CHANGES: usize = 4096;
/// Lowest number for duplicates of descriptors that the program has closed. Programs rarely use
/// numbers this high, and the kernel's table is mostly as large.
pub const KEPT_FROM: u64 = 200;

/// A change of private state.
#[derive(Clone, Copy)]
pub enum Change {
    /// Descriptor that was opened.
    Opened(Fd),
    /// Descriptor that was closed, and is still open as `kept`.
    Closed { fd: Fd, kept: Fd, flags: u32 },
    /// Offset before the change.
    Offset { fd: Fd, was: u64 },
    /// Memory that was mapped.
    Mapped { at: u64, len: u64 },
    /// Memory to unmap at commit.
    Unmapped { at: u64, len: u64 },
    /// Program break before the change.
    Break(u64),
    /// Child that was forked.
    Forked(u32),
    /// Signal mask that the process's only thread believed to have before.
    Mask(u64),
}

/// Ring of changes. Positions only grow. All-zero is valid and empty.
pub struct Journal {
    changes: [Option<Change>; CHANGES],
    first: u64,
    end: u64,
    /// Number of checkpoints so far; and for each descriptor, the checkpoint at which its offset
    /// was last recorded.
    interval: u32,
    offset_recorded_at: [u32; DESCRIPTORS],
}

impl Journal {
    /// Returns the position after the last change.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True if each thread that is about to make a change can still record one.
    pub fn has_room(&self) -> bool {
        self.end - self.first + (THREADS as u64) < CHANGES as u64
    }

    /// Records a change that was just made. There [is room](Self::has_room).
    pub fn record(&mut self, change: Change) {
        self.changes[self.end as usize % CHANGES] = Some(change);
        self.end += 1;
    }

    /// Starts a new interval: a checkpoint was taken or restored.
    pub fn begin_interval(&mut self) {
        self.interval += 1;
    }

    /// Records the offset of `fd`, which is about to change. Returns false if it cannot.
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

    /// Closes `fd` so that a rollback can reopen it unchanged. Returns false if it cannot.
    pub fn close(&mut self, fd: Fd) -> bool {
        let kept = |flags: u64| {
            let kept = sys::duplicate_above(fd, KEPT_FROM)?;
            sys::close(fd)?;
            Ok::<_, Errno>((kept, flags as u32))
        };
        let Ok((kept, flags)) = sys::descriptor_flags(fd).and_then(kept) else { return false };
        self.record(Change::Closed { fd, kept, flags });
        true
    }

    /// True if a descriptor that the program has closed is still open.
    pub fn keeps_descriptors(&self) -> bool {
        let changes = (self.first..self.end).map(|n| &self.changes[n as usize % CHANGES]);
        changes.flatten().any(|change| matches!(change, Change::Closed { .. }))
    }

    /// Undoes all changes from `mark` on, the last first.
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
                    // SAFETY: queries the program break.
                    let now = unsafe { sys::raw(nr::BRK, [0; 6]) } as u64;
                    // SAFETY: the heap above that point never existed for the program.
                    let _ = unsafe { sys::raw(nr::BRK, [was, 0, 0, 0, 0, 0]) };
                    memory_checkpoints::swap_program_break(was);
                    memory.note_heap_end(was, now);
                }
                Some(Change::Forked(child)) => kill_and_reap(child),
                Some(Change::Mask(was)) => threads.set_believed_mask(was),
                Some(Change::Unmapped { .. }) | None => {}
            }
        }
        self.begin_interval();
    }

    /// Makes all changes before `mark` permanent.
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

    /// Empties the journal in a forked child, and closes the descriptors that only its parent
    /// needs.
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
    // SAFETY: the program asked for it, or is rolled back to before the mapping.
    let _ = unsafe { sys::unmap(at, len) };
    memory.note_discarded(at, len);
}

/// Kills and reaps a child that never existed for the program, and removes its SIGCHLD.
fn kill_and_reap(child: u32) {
    // SAFETY: an unreaped child of this process: calls that would reap it wait.
    let _ = unsafe { sys::raw(nr::KILL, [child.into(), k::SIGKILL.into(), 0, 0, 0, 0]) };
    let wait = |child: u64, flags: u32| {
        // SAFETY: writes nothing.
        unsafe { sys::raw(nr::WAIT4, [child, 0, flags.into(), 0, 0, 0]) }
    };
    while wait(child.into(), k::__WALL) == sys::fail(sys::EINTR) {}
    // The pending SIGCHLD may also be that of another child that has ended meanwhile. Then it
    // stays.
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
