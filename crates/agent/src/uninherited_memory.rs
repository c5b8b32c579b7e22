//! Large memory that a sync does not copy.
//!
//! A fork takes time for each page that a process has, and the process then pays for each that it stores to. So where it
//! has much, its large private memory is kept out of the fork (`MADV_DONTFORK`, madvise(2)): the target's pages are never
//! write-protected, and the shadow fetches what it touches from the target, through a descriptor of `/proc/self/mem` that
//! it inherits (`shadow/target_mirror.rs`). What it fetches may be newer than the sync, and torn: a shadow's loss.
//!
//! Invariant: a child of the program's own finds all of its parent's memory. Only where the process has one thread, which is here,
//! is anything kept out, and only for the moment of the fork; what the program keeps from its children itself
//! (`targets/dontfork_regions.rs`) is kept from them again afterwards.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::agent_config::without;
use runahead_abi::shared_memory::MIRRORED_PAGES;

use crate::plane;
use crate::process_maps;
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Fd};
use crate::thread_owned::Owned;

/// Smaller mappings are copied: to fetch them page by page takes longer.
const MAPPING_BYTES_MIN: u64 = 1 << 20;
/// On either side of the thread pointer so much is copied at least: the kernel stores there by itself when it moves a thread to another
/// processor (rseq(2)), and waits for no fault handler; it may be part of a mapping that is large.
const THREAD_BYTES: u64 = 64 << 10;
/// Mappings that are kept out at most.
const MAPPINGS_MAX: usize = 128;

/// What was kept out of the newest sync.
pub(crate) struct UninheritedMemory {
    list: [(u64, u64); MAPPINGS_MAX],
    count: usize,
    from: TargetMemory,
}

/// By which a shadow reads the target's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TargetMemory {
    /// `/proc/self/mem` (proc_pid_mem(5)).
    pub memory: Fd,
    /// `/proc/self/pagemap` (proc_pid_pagemap(5)), if some of it is swapped out.
    pub pages: Option<Fd>,
}

// SAFETY: zeroes, like all of it. (At its end, so that the small ones share pages.)
#[unsafe(link_section = ".bss.large")]
static UNINHERITED: Owned<UninheritedMemory> = Owned::new(UninheritedMemory {
    list: [(0, 0); MAPPINGS_MAX],
    count: 0,
    from: TargetMemory { memory: 0, pages: None },
});

/// In a shadow: what it has not inherited, as first addresses and ends, and from where it is read.
///
/// # Safety
/// In a new shadow, before it has given up its descriptors, or later; with no other reference to it in use.
pub(crate) unsafe fn of_shadow() -> (&'static [(u64, u64)], TargetMemory) {
    // SAFETY: passed on to the caller.
    let kept_out = unsafe { UNINHERITED.get() };
    (&kept_out.list[..kept_out.count], kept_out.from)
}

/// In a shadow: from where the target's memory is read, whose descriptors are to be kept; `None`: all was inherited.
///
/// # Safety
/// As for [`of_shadow`].
pub(crate) unsafe fn target_memory() -> Option<TargetMemory> {
    // SAFETY: passed on to the caller.
    let (list, from) = unsafe { of_shadow() };
    (!list.is_empty()).then_some(from)
}

/// Whether a process with so many pages of its own has its large memory kept out.
pub(crate) fn is_worth_excluding(session: &Session, pages: u64) -> bool {
    let least = if session.is_without(without::COPIES) { 0 } else { MIRRORED_PAGES };
    (pages >= least || is_swapped(session))
        && !session.is_without(without::MIRRORS)
        && !plane::has_threads()
}

/// Some of the process's memory is swapped out: what is inherited of that would be waited for.
fn is_swapped(session: &Session) -> bool {
    session.is_joined() && session.shared().control.swapped.load(Relaxed) != 0
}

/// Keeps large memory out of the fork to come, in a thread whose stack pointer is `stack` and which holds the lock of syncs.
/// False: nothing is kept out.
pub(crate) fn exclude_from_fork(session: &Session, stack: u64) -> bool {
    // SAFETY: the one thread of the process.
    let kept_out = unsafe { UNINHERITED.get() };
    kept_out.count = 0;
    let open = |path: &core::ffi::CStr| {
        sys::openat2(AT_FDCWD, path.as_ptr() as u64, k::O_RDONLY | k::O_CLOEXEC, 0, 0)
    };
    let Ok(memory) = open(c"/proc/self/mem") else { return false };
    let pages = is_swapped(session).then(|| open(c"/proc/self/pagemap").ok()).flatten();
    kept_out.from = TargetMemory { memory, pages };
    let here = core::ptr::from_ref(&memory) as u64;
    let of_thread = plane::thread::pointer() & !(THREAD_BYTES - 1);
    let of_thread =
        of_thread.saturating_sub(THREAD_BYTES)..of_thread.saturating_add(2 * THREAD_BYTES);
    let listed = process_maps::each::<4>(|mapping, name| {
        let (start, end) = (mapping.start, mapping.end);
        let holds = |at| (start..end).contains(&at);
        let is_private =
            mapping.writable && mapping.readable && !mapping.shared && mapping.inode == 0;
        let is_plain = name.is_empty() || name == b"[hea";
        if is_private
            && is_plain
            && !holds(stack)
            && !holds(here)
            && session.first_owned(start, end).is_none()
        {
            kept_out.add(start, of_thread.start.clamp(start, end));
            kept_out.add(of_thread.end.clamp(start, end), end);
        }
        Ok(())
    });
    if listed.is_err() || kept_out.count == 0 {
        kept_out.count = 0;
        kept_out.from.close();
        return false;
    }
    kept_out.advise(k::MADV_DONTFORK);
    true
}

/// In the target, after the fork.
pub(crate) fn include_again() {
    // SAFETY: the one thread of the process.
    let kept_out = unsafe { UNINHERITED.get() };
    kept_out.advise(k::MADV_DOFORK);
    kept_out.count = 0;
    kept_out.from.close();
}

impl TargetMemory {
    /// Its descriptors.
    pub(crate) fn descriptors(self) -> impl Iterator<Item = Fd> {
        [self.memory].into_iter().chain(self.pages)
    }

    fn close(self) {
        self.descriptors().for_each(|fd| _ = sys::close(fd));
    }
}

impl UninheritedMemory {
    /// One more, if it is large and there is room.
    fn add(&mut self, start: u64, end: u64) {
        if end - start >= MAPPING_BYTES_MIN && self.count < MAPPINGS_MAX {
            self.list[self.count] = (start, end);
            self.count += 1;
        }
    }

    fn advise(&self, advice: u32) {
        for &(start, end) in &self.list[..self.count] {
            // SAFETY: decides only whether the fork to come copies it.
            let _ = unsafe { sys::advise(start, end - start, advice) };
        }
    }
}
