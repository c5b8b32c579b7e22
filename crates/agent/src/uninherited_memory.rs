//! Large memory that a sync does not copy.
//!
//! A fork takes time for each page of the process, and the process then pays for each page that it
//! stores to. So large private memory of a large process is excluded from the fork
//! (`MADV_DONTFORK`, madvise(2)): the target's pages are never write-protected. The shadow fetches
//! what it touches from the target, through an inherited descriptor of `/proc/self/mem`
//! (`shadow/target_mirror.rs`). What it fetches may be newer than the sync, and torn, which only
//! costs accuracy.
//!
//! Invariant: a child of the program's own finds all of its parent's memory. Memory is excluded
//! only in a process with one thread, which is here, and only for the moment of the fork. Memory
//! that the program itself keeps from its children (`targets/dontfork_regions.rs`) is kept from
//! them again afterwards.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::agent_config::without;
use runahead_abi::shared_memory::MIRRORED_PAGES;

use crate::plane::{self, AddressRange};
use crate::process_maps;
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Fd};
use crate::thread_owned::Owned;

/// Size from which mappings are excluded, in bytes: fetching smaller ones page by page takes longer
/// than copying them.
const MAPPING_BYTES_MIN: u64 = 1 << 20;
/// Bytes on either side of the thread pointer that are always copied. The kernel stores there when
/// it moves a thread to another processor (rseq(2)), without running a fault handler; it may be
/// part of a large mapping.
const THREAD_BYTES: u64 = 64 << 10;
/// Most mappings that are excluded.
const MAPPINGS_MAX: usize = 128;

/// Memory excluded from the newest sync.
pub(crate) struct UninheritedMemory {
    list: [AddressRange; MAPPINGS_MAX],
    count: usize,
    from: TargetMemory,
}

/// Descriptors by which a shadow reads the target's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TargetMemory {
    /// `/proc/self/mem` (proc_pid_mem(5)).
    pub memory: Fd,
    /// `/proc/self/pagemap` (proc_pid_pagemap(5)), if some of the memory is swapped out.
    pub pages: Option<Fd>,
}

// SAFETY: zeroes, like all of it; placed at the end of the image so that small statics share pages.
#[unsafe(link_section = ".bss.large")]
static UNINHERITED: Owned<UninheritedMemory> = Owned::new(UninheritedMemory {
    list: [AddressRange::EMPTY; MAPPINGS_MAX],
    count: 0,
    from: TargetMemory { memory: 0, pages: None },
});

/// Memory that this shadow has not inherited, and the descriptors to read it.
///
/// # Safety
/// In a new shadow, before it has given up its descriptors, or later; with no other
/// reference to it in use.
pub(crate) unsafe fn of_shadow() -> (&'static [AddressRange], TargetMemory) {
    // SAFETY: passed on to the caller.
    let kept_out = unsafe { UNINHERITED.get() };
    (&kept_out.list[..kept_out.count], kept_out.from)
}

/// Descriptors of the target's memory, which a shadow must keep; `None` if all memory was
/// inherited.
///
/// # Safety
/// As for [`of_shadow`].
pub(crate) unsafe fn target_memory() -> Option<TargetMemory> {
    // SAFETY: passed on to the caller.
    let (list, from) = unsafe { of_shadow() };
    (!list.is_empty()).then_some(from)
}

/// True if a process with so many pages of its own should exclude its large memory.
pub(crate) fn is_worth_excluding(session: &Session, pages: u64) -> bool {
    let least = if session.is_without(without::COPIES) { 0 } else { MIRRORED_PAGES };
    (pages >= least || is_swapped(session))
        && !session.is_without(without::MIRRORS)
        && !plane::has_threads()
}

/// True if some of the process's memory is swapped out: inheriting it would mean waiting for it.
fn is_swapped(session: &Session) -> bool {
    session.is_joined() && session.shared().control.swapped.load(Relaxed) != 0
}

/// Excludes large memory from the fork to come. The thread's stack pointer is `stack`, and it holds
/// the lock of syncs. Returns false if nothing is excluded.
pub(crate) fn exclude_from_fork(session: &Session, stack: u64) -> bool {
    // SAFETY: the one thread of the process.
    let kept_out = unsafe { UNINHERITED.get() };
    kept_out.count = 0;
    let open = |path: &core::ffi::CStr| {
        sys::openat2(AT_FDCWD, path.as_ptr() as u64, k::O_RDONLY | k::O_CLOEXEC, 0, 0)
    };
    let Ok(memory) = open(c"/proc/thread-self/mem") else { return false };
    let pages = is_swapped(session).then(|| open(c"/proc/thread-self/pagemap").ok()).flatten();
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
            kept_out.add(AddressRange::new(start, of_thread.start.clamp(start, end)));
            kept_out.add(AddressRange::new(of_thread.end.clamp(start, end), end));
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

/// Includes the memory again, in the target, after the fork.
pub(crate) fn include_again() {
    // SAFETY: the one thread of the process.
    let kept_out = unsafe { UNINHERITED.get() };
    kept_out.advise(k::MADV_DOFORK);
    kept_out.count = 0;
    kept_out.from.close();
}

impl TargetMemory {
    /// The descriptors.
    pub(crate) fn descriptors(self) -> impl Iterator<Item = Fd> {
        [self.memory].into_iter().chain(self.pages)
    }

    fn close(self) {
        self.descriptors().for_each(|fd| _ = sys::close(fd));
    }
}

impl UninheritedMemory {
    /// Adds a mapping, if it is large and there is room.
    fn add(&mut self, range: AddressRange) {
        if range.bytes() >= MAPPING_BYTES_MIN && self.count < MAPPINGS_MAX {
            self.list[self.count] = range;
            self.count += 1;
        }
    }

    fn advise(&self, advice: u32) {
        for range in &self.list[..self.count] {
            // SAFETY: decides only whether the fork to come copies it.
            let _ = unsafe { sys::advise(range.start, range.bytes(), advice) };
        }
    }
}
