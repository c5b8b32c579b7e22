//! Writing code that may be running: stubs, and jumps to them.

use core::ops::Range;
use core::sync::atomic::{AtomicU16, Ordering::SeqCst, fence};

use linux_raw_sys::general as k;

use crate::address_range::AddressRange;
use crate::address_space;
use crate::arch::{self, ABSENT, INT3, LONG_JUMP, PAGE_BYTES, RUN_UP, STUB_BYTES, Window};
use crate::policy;
use crate::sys::{self, Place, nr};

pub(super) const PAGE: u64 = PAGE_BYTES as u64;
/// A jump reaches 2 GiB; stub pages are sought within this distance, on either side.
const REACH: u64 = 0x7000_0000;
/// Two bytes within one of these, aligned, are stored and fetched at once. Intel promises it of a
/// cache line (volume 3, 9.1.1), of which it fetches sixteen bytes at a time; AMD of eight bytes,
/// and its processors that have `rdfsbase`, without which nothing is patched, handle sixteen.
const AT_ONCE: u64 = 16;

#[derive(Clone, Copy)]
struct Page {
    at: u64,
    used: usize,
}

/// The pages that hold stubs.
pub(super) struct Stubs([Page; 16]);

impl Stubs {
    pub const fn new() -> Self {
        Stubs([Page { at: 0, used: 0 }; 16])
    }

    /// A free place for a stub, near enough to `site`.
    pub fn slot(&mut self, site: u64) -> Option<u64> {
        let fits = |p: &Page| {
            p.at != 0 && p.at.abs_diff(site) < REACH && p.used + STUB_BYTES <= PAGE_BYTES
        };
        let page = match self.0.iter().position(fits) {
            Some(index) => &mut self.0[index],
            None => {
                let free = self.0.iter_mut().find(|p| p.at == 0)?;
                *free = Page { at: new_page(site)?, used: 0 };
                free
            }
        };
        let slot = page.at + page.used as u64;
        page.used += STUB_BYTES;
        Some(slot)
    }

    /// Gives back the place that [`Stubs::slot`] has returned last.
    pub fn give_back(&mut self, slot: u64) {
        let page = self.0.iter_mut().find(|p| p.at == slot & !(PAGE - 1));
        if let Some(page) = page.filter(|p| p.at + p.used as u64 == slot + STUB_BYTES as u64) {
            page.used -= STUB_BYTES;
        }
    }

    /// Address where the stub at `address` continues, if there is one.
    pub fn return_of(&self, address: u64) -> Option<u64> {
        const RETURN: u64 = STUB_BYTES as u64 - 8;
        let is_stub = |p: &&Page| p.at != 0 && (p.at..p.at + p.used as u64).contains(&address);
        let page = self.0.iter().find(is_stub)?;
        let stub = address - (address - page.at) % STUB_BYTES as u64;
        // SAFETY: a stub of ours, written before the jump that leads to it.
        Some(unsafe { ((stub + RETURN) as *const u64).read_volatile() })
    }

    /// Range of the lowest of them between `at` and `end`.
    pub fn lowest(&self, at: u64, end: u64) -> Option<AddressRange> {
        let pages = self.0.iter().filter(|p| p.at != 0 && at < p.at + PAGE && p.at < end);
        pages.map(|p| AddressRange::of_bytes(p.at, PAGE)).min()
    }

    /// `address` is in one of them.
    pub fn contain(&self, address: u64) -> bool {
        self.0.iter().any(|p| p.at != 0 && (p.at..p.at + PAGE).contains(&address))
    }
}

/// A new page within reach of `site`.
fn new_page(site: u64) -> Option<u64> {
    if !address_space::is_busy(site) {
        return map_near(site);
    }
    // What is below a library may have been the program's a moment ago.
    if address_space::near().abs_diff(site) < REACH {
        address_space::map_near_page().ok()
    } else {
        None
    }
}

/// A new page below `site`, where a library's or the program's own growth does not need it: far
/// below, or just below a program that lies at the bottom.
fn map_near(site: u64) -> Option<u64> {
    const FAR: u64 = 16 << 20;
    const NEAR: u64 = 64 << 10;
    let base = site & !(PAGE - 1);
    let far = (1..REACH / FAR).map(|n| n * FAR);
    let near = (1..FAR / NEAR).map(|n| n * NEAR);
    far.chain(near)
        .filter_map(|distance| base.checked_sub(distance))
        .filter(|at| *at > 1 << 16)
        // SAFETY: nothing is replaced.
        .find_map(|at| unsafe { sys::map_private(Place::IfFree(at), PAGE) }.ok())
}

/// Writes code with `write`, all of it in the page of `at`, where execution may be going on only in
/// ways that the module's text allows.
pub(super) fn write(at: u64, write: impl FnOnce(*mut u8)) -> Option<()> {
    let page = at & !(PAGE - 1);
    let writable = k::PROT_READ | k::PROT_WRITE | k::PROT_EXEC;
    // SAFETY: makes a page of code writable for a moment and executable again; callers see to it
    // that what is written lies in it and may be.
    unsafe {
        sys::protect(page, PAGE, writable).ok()?;
        write(at as *mut u8);
        sys::protect(page, PAGE, k::PROT_READ | k::PROT_EXEC).ok()?;
    }
    Some(())
}

/// True if the program may write to the page itself. Such code is its own to change, and to take
/// the right away would be seen. Tried with an addition of 0, by the kernel (futex(2)).
pub(super) fn is_writable(page: u64) -> bool {
    const ADD_NOTHING: u64 = 1 << 28;
    const WORD: u64 = 4;
    if !policy::will_write(page, WORD) {
        return true;
    }
    let private = core::sync::atomic::AtomicU32::new(0);
    let wake = u64::from(k::FUTEX_WAKE_OP | k::FUTEX_PRIVATE_FLAG);
    let args = [private.as_ptr() as u64, wake, 0, 0, page, ADD_NOTHING];
    // SAFETY: adds 0 to an aligned word of the page; no thread waits at either address.
    let ret = unsafe { sys::raw(nr::FUTEX, args) };
    ret != sys::fail(sys::EFAULT)
}

/// Copies the code of `page`, and what is around it. `None` if it can only be executed.
pub(super) fn copy_window(window: &mut Window, page: u64) -> Option<()> {
    let start = page - RUN_UP as u64;
    if sys::copy_bytes(start, window).is_ok() {
        return Some(());
    }
    let (before, rest) = window.split_at_mut(RUN_UP);
    let (code, behind) = rest.split_at_mut(PAGE_BYTES);
    for (at, part) in [(start, before), (page + PAGE, behind)] {
        if sys::copy_bytes(at, part).is_err() {
            part.fill(ABSENT);
        }
    }
    sys::copy_bytes(page, code).ok()?;
    Some(())
}

pub(super) fn put(at: *mut u8, code: &[u8]) {
    for (i, byte) in code.iter().enumerate() {
        // SAFETY: called within `write`; volatile because it will be executed.
        unsafe { at.add(i).write_volatile(*byte) };
    }
}

/// The two bytes at `at` can be replaced while others execute them.
pub(super) fn can_replace_at_once(at: u64) -> bool {
    at % AT_ONCE < AT_ONCE - 1
}

/// Replaces two bytes in one store.
pub(super) fn replace_two(at: *mut u8, bytes: [u8; 2]) {
    let value = u16::from_le_bytes(bytes);
    if (at as usize).is_multiple_of(2) {
        // SAFETY: called within `write`, aligned.
        unsafe { AtomicU16::from_ptr(at.cast()) }.store(value, SeqCst);
    } else {
        // SAFETY: called within `write`. One instruction, which is why it is volatile.
        unsafe { core::ptr::write_volatile(at.cast::<Unaligned>(), Unaligned(value)) };
    }
    fence(SeqCst);
}

#[repr(C, packed)]
struct Unaligned(u16);

/// Writes a long jump into padding that is never executed, with [`INT3`] in the rest of the
/// padding. Then writes the short jump at `site`, in the same page, that leads to it.
pub(super) fn write_by_padding(
    site: u64,
    short: [u8; 2],
    padding: Range<u64>,
    jump: &[u8; LONG_JUMP],
    has_threads: bool,
) -> Option<()> {
    let mut code = [INT3; 16];
    let code = code.get_mut(..(padding.end - padding.start) as usize)?;
    code[..LONG_JUMP].copy_from_slice(jump);
    write(padding.start, |at| {
        put(at, code);
        if has_threads {
            synchronise();
        }
        replace_two(site as *mut u8, short);
        if has_threads {
            synchronise();
        }
    })
}

/// Replaces an instruction of five bytes by a jump while others may execute it: see the module's
/// text.
pub(super) fn replace_in_steps(at: *mut u8, jump: &[u8; LONG_JUMP]) {
    replace_two(at, arch::JUMP_TO_ITSELF);
    synchronise();
    // SAFETY: the other bytes of the place.
    put(unsafe { at.add(2) }, &jump[2..]);
    synchronise();
    replace_two(at, [jump[0], jump[1]]);
    synchronise();
}

const MEMBARRIER_SYNC_CORE: u64 = 1 << 5;
const MEMBARRIER_REGISTER_SYNC_CORE: u64 = 1 << 6;

/// Every thread of this process executes a serialising instruction before it goes on.
pub(super) fn synchronise() {
    // SAFETY: membarrier(2) takes numbers.
    unsafe { sys::raw(nr::MEMBARRIER, [MEMBARRIER_SYNC_CORE, 0, 0, 0, 0, 0]) };
}

/// Asks for [`synchronise`], which some kernels do not have.
pub(super) fn can_synchronise() -> bool {
    // SAFETY: as above.
    unsafe { sys::raw(nr::MEMBARRIER, [MEMBARRIER_REGISTER_SYNC_CORE, 0, 0, 0, 0, 0]) == 0 }
}
