//! Hot call sites jump to the agent instead of trapping.
//!
//! A site is patched when it has trapped [`HOT`] times (a trap costs 1 µs, a patch some 10 µs) and
//! only in a way that no instruction pointer can be caught in:
//! - *number before*: the jump replaces the move of the call's number, the call itself stays where
//!   it is. Whoever stands between the two, or jumps to the call, traps as before.
//! - *compare after*: the jump replaces the call and what follows. Someone who stands behind the
//!   call would return into the middle of it: another thread, or a signal handler's caller. So
//!   this shape is used only while the program has one thread and no handler that could have
//!   interrupted it there.
//!
//! The idea of relocating the comparison is rr's, that of leaving the call in place gVisor's.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;

use super::masks;
use crate::arch::{self, SITE_AFTER, SITE_BEFORE, STUB_BYTES, SiteShape};
use crate::owned::Owned;
use crate::session;
use crate::sys::{self, nr};

/// Traps after which a site is worth patching.
const HOT: u16 = 8;
const SITES: usize = 256;
const PAGE: u64 = 4096;
/// A jump reaches 2 GiB; stub pages are sought within this distance, on either side.
const REACH: u64 = 0x7000_0000;

#[derive(Clone, Copy)]
struct Seen {
    site: u64,
    traps: u16,
}

#[derive(Clone, Copy)]
struct StubPage {
    at: u64,
    used: usize,
}

struct State {
    /// `rdfsbase` may be used, so that stubs can tell threads apart.
    possible: bool,
    enabled: bool,
    threads: bool,
    seen: [Seen; SITES],
    pages: [StubPage; 16],
}

static STATE: Owned<State> = Owned::new(State {
    possible: false,
    enabled: false,
    threads: false,
    seen: [Seen { site: 0, traps: 0 }; SITES],
    pages: [StubPage { at: 0, used: 0 }; 16],
});

/// Allows patching; not called where stubs could not tell threads apart.
pub fn enable() {
    // SAFETY: the armed thread, at start.
    let state = unsafe { STATE.get() };
    (state.possible, state.enabled) = (true, true);
}

/// Whether stubs, and with them the instructions that they need, can be used here.
pub(super) fn is_possible() -> bool {
    // SAFETY: the armed thread; ends here.
    unsafe { STATE.get() }.possible
}

/// Leaves code as it is, as a shadow does.
pub fn disable() {
    // SAFETY: the armed thread, not in `note`.
    unsafe { STATE.get() }.enabled = false;
}

/// The program is about to have a second thread: no code is changed under it from here on.
pub(super) fn another_thread() {
    // SAFETY: the armed thread, in the signal handler; ends here.
    unsafe { STATE.get() }.threads = true;
}

pub(super) fn has_threads() -> bool {
    // SAFETY: the armed thread; ends here.
    unsafe { STATE.get() }.threads
}

/// A call was trapped at `site`; patches it when it is hot. Then the call is to be made again from
/// the address returned: what is behind the old one may be the middle of the jump.
pub(super) fn note(site: u64, number: u64) -> Option<u64> {
    // SAFETY: the armed thread, in the signal handler, not nested: the only reference.
    let state = unsafe { STATE.get() };
    if let Some(session) = session::get() {
        session.shared.control.traps.fetch_add(1, Relaxed);
    }
    if !state.enabled || state.threads {
        return None;
    }
    let seen = &mut state.seen[(site >> 1) as usize % SITES];
    if seen.site != site {
        *seen = Seen { site, traps: 0 };
    }
    seen.traps = seen.traps.saturating_add(1);
    if seen.traps != HOT {
        return None;
    }
    let again = patch(state, site, number)?;
    if let Some(session) = session::get() {
        session.shared.control.sites_patched.fetch_add(1, Relaxed);
    }
    Some(again)
}

/// Calls that must stay traps: they need the frame of the signal, or end the program's image.
fn never(number: u64) -> bool {
    super::is_the_planes(number) || matches!(number, nr::EXECVE | nr::EXIT | nr::EXIT_GROUP)
}

/// Patches the site; where execution enters the patch.
fn patch(state: &mut State, site: u64, number: u64) -> Option<u64> {
    // The shapes look at a few bytes around the call; they must not cross into a page that may not
    // be mapped.
    let (first, last) = (site - SITE_BEFORE as u64, site + SITE_AFTER as u64 - 1);
    if never(number) || first / PAGE != last / PAGE {
        return None;
    }
    // SAFETY: the page that holds the instruction which has just been executed.
    let around = unsafe { (first as *const [u8; SITE_BEFORE + SITE_AFTER]).read_unaligned() };
    let shape = arch::site_shape(&around, number)?;
    let from = match shape {
        SiteShape::NumberBefore { len } => site - u64::from(len),
        SiteShape::CompareAfter if masks::has_async_handlers() => return None,
        SiteShape::CompareAfter => site,
    };
    let slot = stub_slot(state, site)?;
    let jump = arch::jump(from, slot)?;
    let code = arch::stub(shape, number, site, &around);
    write_code(slot, &code)?;
    write_code(from, &jump)?;
    Some(from)
}

/// A free place for a stub, near enough to `site`.
fn stub_slot(state: &mut State, site: u64) -> Option<u64> {
    let fits = |p: &StubPage| {
        p.at != 0 && p.at.abs_diff(site) < REACH && p.used + STUB_BYTES <= PAGE as usize
    };
    let page = match state.pages.iter().position(fits) {
        Some(index) => &mut state.pages[index],
        None => {
            let free = state.pages.iter_mut().find(|p| p.at == 0)?;
            *free = StubPage { at: map_near(site)?, used: 0 };
            free
        }
    };
    let slot = page.at + page.used as u64;
    page.used += STUB_BYTES;
    Some(slot)
}

/// A new page below `site`, where a library's or the program's own growth does not need it.
fn map_near(site: u64) -> Option<u64> {
    const STEP: u64 = 16 << 20;
    let base = site & !(PAGE - 1);
    (1..REACH / STEP)
        .filter_map(|n| base.checked_sub(n * STEP))
        .take_while(|at| *at > 1 << 16)
        .find_map(|at| sys::map_private_at(at, PAGE as usize).ok())
}

/// Writes code where execution may be going on only in ways that the module's text allows.
fn write_code(at: u64, code: &[u8]) -> Option<()> {
    let page = at & !(PAGE - 1);
    let writable = k::PROT_READ | k::PROT_WRITE | k::PROT_EXEC;
    // SAFETY: makes a page of code writable for a moment and executable again; `code` lies within
    // the one page (stubs are aligned, sites were checked); volatile because it will be executed.
    unsafe {
        sys::protect(page, PAGE, writable).ok()?;
        for (i, byte) in code.iter().enumerate() {
            (at as *mut u8).add(i).write_volatile(*byte);
        }
        sys::protect(page, PAGE, k::PROT_READ | k::PROT_EXEC).ok()?;
    }
    Some(())
}
