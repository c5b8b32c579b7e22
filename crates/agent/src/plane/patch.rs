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
//! While other threads may be fetching the bytes that change, they change in three steps: a jump to
//! itself, two bytes stored at once, holds whoever comes; then the rest is written; then the first
//! two bytes. After each step every processor that runs a thread of ours is made to forget what it
//! has fetched (membarrier(2), `SYNC_CORE`). Where the kernel has no such call, nothing is patched
//! under threads.
//!
//! The idea of relocating the comparison is rr's, that of leaving the call in place gVisor's.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

use linux_raw_sys::general as k;

use super::masks;
use crate::arch::{self, SITE_AFTER, SITE_BEFORE, STUB_BYTES, SiteShape};
use crate::lock::Lock;
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
    enabled: bool,
    /// Processors can be made to forget what they have fetched; `None` while nobody has asked.
    synchronises: Option<bool>,
    seen: [Seen; SITES],
    pages: [StubPage; 16],
}

static STATE: Lock<State> = Lock::new(State {
    enabled: false,
    synchronises: None,
    seen: [Seen { site: 0, traps: 0 }; SITES],
    pages: [StubPage { at: 0, used: 0 }; 16],
});

static THREADS: AtomicBool = AtomicBool::new(false);

/// Allows patching, or forbids it, as a shadow does.
pub fn enable(allowed: bool) {
    STATE.try_with(|state| state.enabled = allowed);
}

/// The program is about to have a second thread.
pub(super) fn another_thread() {
    THREADS.store(true, Relaxed);
}

pub(super) fn has_threads() -> bool {
    THREADS.load(Relaxed)
}

/// In a forked child, which has one thread.
pub(super) fn in_new_process() {
    STATE.break_open();
    THREADS.store(false, Relaxed);
}

/// A call was trapped at `site`; patches it when it is hot. Then the call is to be made again from
/// the address returned: what is behind the old one may be the middle of the jump.
pub(super) fn note(site: u64, number: u64) -> Option<u64> {
    session::counters().traps.fetch_add(1, Relaxed);
    let hot = STATE.try_with(|state| {
        let seen = &mut state.seen[(site >> 1) as usize % SITES];
        if seen.site != site {
            *seen = Seen { site, traps: 0 };
        }
        seen.traps = seen.traps.saturating_add(1);
        state.enabled && seen.traps == HOT
    });
    if hot != Some(true) {
        return None;
    }
    // A handler of the program's that came to the site now would wait there for us.
    let mask = sys::set_mask(!0);
    let again = STATE.try_with(|state| patch(state, site, number)).flatten();
    sys::set_mask(mask);
    if again.is_some() {
        session::counters().sites_patched.fetch_add(1, Relaxed);
    }
    again
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
        SiteShape::CompareAfter if masks::has_async_handlers() || has_threads() => return None,
        SiteShape::CompareAfter => site,
    };
    let slot = stub_slot(state, site)?;
    let jump = arch::jump(from, slot)?;
    let code = arch::stub(shape, number, site, &around);
    write_code(slot, |at| put(at, &code))?;
    if !has_threads() {
        write_code(from, |at| put(at, &jump))?;
    } else if synchronises(state) && from % CACHE_LINE < CACHE_LINE - 1 {
        write_code(from, |at| replace_under_threads(at, &jump))?;
    } else {
        return None;
    }
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

/// Two bytes within one of these are stored, and fetched, at once.
const CACHE_LINE: u64 = 64;

/// Writes code with `write`, where execution may be going on only in ways that the module's text
/// allows.
fn write_code(at: u64, write: impl FnOnce(*mut u8)) -> Option<()> {
    let page = at & !(PAGE - 1);
    let writable = k::PROT_READ | k::PROT_WRITE | k::PROT_EXEC;
    // SAFETY: makes a page of code writable for a moment and executable again; what is written lies
    // within the one page (stubs are aligned, sites were checked).
    unsafe {
        sys::protect(page, PAGE, writable).ok()?;
        write(at as *mut u8);
        sys::protect(page, PAGE, k::PROT_READ | k::PROT_EXEC).ok()?;
    }
    Some(())
}

fn put(at: *mut u8, code: &[u8]) {
    for (i, byte) in code.iter().enumerate() {
        // SAFETY: called by `write_code`; volatile because it will be executed.
        unsafe { at.add(i).write_volatile(*byte) };
    }
}

fn replace_under_threads(at: *mut u8, jump: &[u8; 5]) {
    let store = |bytes: [u8; 2]| {
        // SAFETY: called by `write_code`; both bytes lie in one cache line, so that an unaligned
        // store is seen whole by whoever fetches them.
        unsafe { at.cast::<u16>().write_unaligned(u16::from_le_bytes(bytes)) };
        core::sync::atomic::fence(SeqCst);
        synchronise();
    };
    store(arch::JUMP_TO_ITSELF);
    // SAFETY: the other bytes of the place.
    put(unsafe { at.add(2) }, &jump[2..]);
    synchronise();
    store([jump[0], jump[1]]);
}

const MEMBARRIER_SYNC_CORE: u64 = 1 << 5;
const MEMBARRIER_REGISTER_SYNC_CORE: u64 = 1 << 6;

/// Every thread of this process executes a serialising instruction before it goes on.
fn synchronise() {
    // SAFETY: membarrier(2) takes numbers.
    unsafe { sys::raw(nr::MEMBARRIER, [MEMBARRIER_SYNC_CORE, 0, 0, 0, 0, 0]) };
}

fn synchronises(state: &mut State) -> bool {
    *state.synchronises.get_or_insert_with(|| {
        // SAFETY: as above.
        unsafe { sys::raw(nr::MEMBARRIER, [MEMBARRIER_REGISTER_SYNC_CORE, 0, 0, 0, 0, 0]) == 0 }
    })
}
