//! Faults of a runner: brings lazy memory ([`lazy_regions`]). Any other fault ends the run, without
//! a line in the kernel's log.
//!
//! The memory that the program shares with others may be large (a database's buffers), and a run
//! uses little of it. So the template moves it elsewhere, makes it read-only, and seals it
//! (mseal(2), Linux 6.10). In its place is private memory. Blocks that earlier runs have used and
//! that the target changes are copied at the sync; the rest has no contents at first. Mapped files
//! are handled by [`mapped_pages`](super::mapped_pages).
//!
//! Invariant: a shared mapping that a runner can read is sealed: no call of the program's or the
//! agent's can make it writable again.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::Shared;
use runahead_abi::agent_config::without;
use runahead_estimators::touched_blocks;

use super::lazy_regions::{self, ContentSource, LazyRegion};
use super::target_mirror::{self, FetchResult};
use super::{mapped_pages, runner};
use crate::arch::{self, Context};
use crate::session;
use crate::sys::{self, nr};

/// Size from which shared mappings are moved, in bytes; smaller ones are copied at once.
pub(super) const MOVED_BYTES_MIN: u64 = 256 << 10;
/// Bytes that one fault brings. Divides [`MOVED_BYTES_MIN`], so that no two blocks overlap.
const BLOCK_BYTES: u64 = 8 << 10;

/// True while a buffer is touched that the call overwrites: its contents need not be as they were
/// at the sync.
static IS_OVERWRITTEN: AtomicBool = AtomicBool::new(false);

/// True if the kernel supports mseal(2), so that memory can be moved away.
pub(super) fn can_move() -> bool {
    sys::seal(0, 0).is_ok()
}

/// Moves the readable shared mapping at `at` away, to be copied as it is used. Called in a
/// template, once for each mapping.
///
/// # Safety
/// The program's memory in this process's copy, without a reference to it in use.
pub(super) unsafe fn move_away(at: u64, len: u64) -> sys::Result<()> {
    // SAFETY: the one thread of a new process.
    let regions = unsafe { lazy_regions::of_this_shadow() };
    if !regions.has_room() {
        return Err(sys::Errno(sys::ENOMEM));
    }
    let from = sys::map_anywhere(len as usize)?;
    // SAFETY: a mapping of ours is replaced, then what the caller promised.
    unsafe {
        sys::move_pages(at, len, from)?;
        sys::replace_with_private(at, len, k::PROT_NONE)?;
        sys::protect(from, len, k::PROT_READ)?;
    }
    sys::seal(from, len)?;
    regions.add(LazyRegion { at, end: at + len, source: ContentSource::Moved(from) })
}

/// Copies the blocks that earlier runs have used and other processes change. Called in a template,
/// after all mappings were moved.
pub(super) fn bring_touched(shared: &Shared) {
    shared.touched.each(|at| {
        let region = region_at(at)?;
        match region.source {
            ContentSource::Moved(_) => bring_moved(&region, at).map(BroughtBlock::fingerprint),
            // With swapped memory there is none to spare for blocks that may stay unused.
            ContentSource::Target(from) if from.pages.is_some() => None,
            ContentSource::Target(from) => target_mirror::bring_unit(&region, from, at)
                .map(|unit| BroughtBlock::from(unit).fingerprint()),
            ContentSource::File(_) => None,
        }
    });
}

/// Lazy region around `at`.
fn region_at(at: u64) -> Option<LazyRegion> {
    // SAFETY: the one thread of a shadow, which holds no reference to them while the program's
    // memory is touched.
    unsafe { lazy_regions::of_this_shadow() }.find(at)
}

/// Signals of faults.
pub(super) const FAULT_SIGNALS: [u32; 6] =
    [k::SIGSEGV, k::SIGBUS, k::SIGILL, k::SIGFPE, k::SIGTRAP, k::SIGABRT];

/// Installs the fault handler in this process; runners inherit it.
pub(super) fn install_handlers() -> sys::Result<()> {
    let handler: extern "C" fn(i32, *const SignalInfo, *const Context) = on_fault;
    // Run on the agent's stack: that of the program may be small, or full.
    let flags = u64::from(k::SA_SIGINFO | k::SA_RESTORER | k::SA_NODEFER | k::SA_ONSTACK);
    // The kernel's structure: handler, flags, restorer, mask.
    let action = [handler as usize as u64, flags, arch::restorer(), 0];
    for signal in FAULT_SIGNALS {
        let args = [signal.into(), action.as_ptr() as u64, 0, 8, 0, 0];
        // SAFETY: sets an action from a live array; the handler is the agent's.
        sys::check(unsafe { sys::raw(nr::RT_SIGACTION, args) })?;
    }
    Ok(())
}

/// Beginning of the kernel's `siginfo_t` for a fault (sigaction(2)).
#[repr(C)]
struct SignalInfo {
    signal: i32,
    error: i32,
    code: i32,
    _unused: i32,
    at: u64,
}

/// Code of a SIGSEGV for a mapping without this access.
const SEGV_ACCERR: i32 = 2;

extern "C" fn on_fault(signal: i32, info: *const SignalInfo, context: *const Context) {
    // SAFETY: the kernel's record of the signal, and its frame.
    let (info, context) = unsafe { (&*info, &*context) };
    let at = info.at;
    let region = (signal as u32 == k::SIGSEGV).then(|| region_at(at)).flatten();
    let Some(region) = region else { runner::end_run_at_fault() };
    let fault = mapped_pages::PageFault {
        at,
        is_first: info.code == SEGV_ACCERR,
        stack: context.stack_pointer(),
    };
    let block = match region.source {
        ContentSource::File(part) => {
            return mapped_pages::bring(&region, part, fault)
                .unwrap_or_else(|| runner::end_run_at_fault());
        }
        ContentSource::Target(from) => match target_mirror::bring_from_target(&region, from, fault)
        {
            Some(FetchResult::Unit(unit)) => Some(unit.into()),
            Some(FetchResult::Other) => return,
            None => None,
        },
        ContentSource::Moved(_) => bring_moved(&region, at),
    };
    let Some(block) = block else { runner::end_run_at_fault() };
    if !IS_OVERWRITTEN.load(Relaxed)
        && let Some(session) = session::get()
        && !session.is_without(without::TOUCHED)
    {
        session.shared().touched.note(block.at, block.unit, block.fingerprint());
    }
}

/// Block that one fault has brought.
struct BroughtBlock {
    at: u64,
    len: u64,
    /// Bytes of a whole block.
    unit: u64,
}

impl BroughtBlock {
    fn fingerprint(self) -> u64 {
        // SAFETY: memory that was just filled, aligned as a page is; this thread is in here.
        touched_blocks::print_of(unsafe {
            core::slice::from_raw_parts(self.at as *const u64, self.len as usize / 8)
        })
    }
}

/// Copies the block around `at` of a region that was moved away.
fn bring_moved(region: &LazyRegion, at: u64) -> Option<BroughtBlock> {
    let ContentSource::Moved(from) = region.source else { return None };
    let offset = (at - region.at) / BLOCK_BYTES * BLOCK_BYTES;
    let len = BLOCK_BYTES.min(region.end - region.at - offset);
    let to = region.at + offset;
    // SAFETY: memory of the program's that has no contents yet. If the program has put something
    // else there, it is a shadow's loss.
    unsafe {
        sys::protect(to, len, k::PROT_READ | k::PROT_WRITE).ok()?;
        core::ptr::copy_nonoverlapping((from + offset) as *const u8, to as *mut u8, len as usize);
    }
    Some(BroughtBlock { at: to, len, unit: BLOCK_BYTES })
}

impl From<target_mirror::FetchedUnit> for BroughtBlock {
    fn from(target_mirror::FetchedUnit { at, len }: target_mirror::FetchedUnit) -> Self {
        BroughtBlock { at, len, unit: target_mirror::UNIT_BYTES }
    }
}

/// Touches `len` bytes at `at`, which the call is about to overwrite. The kernel's own accesses do
/// not run the fault handler.
pub(super) fn touch_buffer(at: u64, len: u64) {
    use crate::sys::PAGE;
    IS_OVERWRITTEN.store(len >= PAGE, Relaxed);
    let pages = (at..at.saturating_add(len)).step_by(PAGE as usize);
    for byte in pages.chain(len.checked_sub(1).map(|last| at + last)) {
        // SAFETY: memory of the program's that it named itself; where there is none, the run ends.
        unsafe {
            let byte = byte as *mut u8;
            byte.write_volatile(byte.read_volatile());
        }
    }
    IS_OVERWRITTEN.store(false, Relaxed);
}

/// Touches a buffer like [`touch_buffer`], if some of it is lazy.
pub(super) fn touch_lazy_buffer(at: u64, len: u64) {
    // SAFETY: the one thread of a shadow; the reference ends here.
    if unsafe { lazy_regions::of_this_shadow() }.overlap(&(at..at.saturating_add(len))) {
        touch_buffer(at, len);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const LEN: u64 = 1 << 20;

    /// Runs `work` in a process of its own, as its changes cannot be undone. Returns its result, or
    /// `None`.
    fn apart(work: impl FnOnce() -> u64) -> Option<u64> {
        match sys::fork_with_pidfd().ok()? {
            None => sys::exit(work() as i32),
            Some((pid, _)) => {
                let mut status = 0u32;
                let args = [pid.into(), &raw mut status as u64, k::__WALL.into(), 0, 0, 0];
                // SAFETY: wait4(2) writes four bytes of ours.
                let ended = unsafe { sys::raw(nr::WAIT4, args) };
                (ended == i64::from(pid) && status & 0x7f == 0).then_some(u64::from(status >> 8))
            }
        }
    }

    fn shared() -> *mut u8 {
        // SAFETY: nothing is replaced.
        let at = unsafe { sys::map_family(sys::Place::Anywhere, LEN) }.expect("memory") as *mut u8;
        // SAFETY: new memory of that length.
        unsafe { core::slice::from_raw_parts_mut(at, LEN as usize) }.fill(7);
        at
    }

    /// Number of ways that succeed in making a mapping writable again, or in replacing it.
    fn attacks(from: u64) -> u64 {
        let write = k::PROT_READ | k::PROT_WRITE;
        // SAFETY: each is refused, or has hit memory of this test alone.
        let tries = unsafe {
            [
                sys::protect(from, LEN, write),
                sys::protect(from + 4096, 4096, write),
                sys::replace_with_private(from, LEN, write),
                sys::move_pages(from, LEN, from + (1 << 40)),
                call_munmap(from),
            ]
        };
        tries.iter().filter(|result| result.is_ok()).count() as u64
    }

    unsafe fn call_munmap(from: u64) -> sys::Result<u64> {
        // SAFETY: passed on to the caller.
        sys::check(unsafe { sys::raw(nr::MUNMAP, [from, LEN, 0, 0, 0, 0]) })
    }

    #[test]
    fn moved_memory_cannot_be_written_and_is_copied_as_it_is_used() {
        if !can_move() {
            std::println!("skipped: this kernel has no mseal(2)");
            return;
        }
        let memory = shared();
        let failed = apart(|| {
            // SAFETY: the one thread of a new process, and its own copy of the mapping.
            let moved = unsafe {
                if move_away(memory as u64, LEN).is_err() {
                    return 100;
                }
                region_at(memory as u64)
            };
            let Some(moved) = moved else { return 100 };
            let ContentSource::Moved(from) = moved.source else { return 100 };
            let successes = attacks(from);
            if successes > 0 {
                return successes;
            }
            let second = memory as u64 + 3 * BLOCK_BYTES;
            if bring_moved(&moved, second + 77).map(|block| block.at) != Some(second)
                || region_at(memory as u64 - 1).is_some()
            {
                return 101;
            }
            // SAFETY: the block was just brought.
            unsafe {
                if *((second + 77) as *const u8) != 7 {
                    return 102;
                }
                *((second + 77) as *mut u8) = 9;
            }
            0
        });
        assert_eq!(failed, Some(0), "up to 5: so many ways to write were left");
        // SAFETY: as filled above; no other thread has it.
        let kept = unsafe { core::slice::from_raw_parts(memory, LEN as usize) };
        assert!(kept.iter().all(|&byte| byte == 7), "a store in the other process was seen here");
    }

    /// Without the seal the attacks work, so the test above would notice them.
    #[test]
    fn without_a_seal_it_can_be_written() {
        let memory = shared();
        let successes = apart(|| {
            // SAFETY: memory of this test, in its own process.
            let _ = unsafe { sys::protect(memory as u64, LEN, k::PROT_READ) };
            attacks(memory as u64)
        });
        assert!(successes >= Some(3), "{successes:?}");
    }
}
