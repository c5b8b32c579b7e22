//! Hot call sites jump to the agent instead of trapping.
//!
//! A site is patched when it has trapped often ([`trap_counts`]) and only in a way that no
//! instruction pointer can be caught in:
//! - *number before*: the jump replaces the move of the call's number, the call itself stays where
//!   it is. A thread between the two, or one that jumps to the call, traps as before.
//! - *by padding*: the two bytes of the call become a short jump, which leads to a long one, in
//!   padding that is never executed. No thread can stand between the two bytes; one that is in the
//!   kernel returns behind them, where nothing has changed.
//! - *run before*: the jump replaces the front of an instruction some way before the call. The stub
//!   has a copy of all from there to the call, with distances from the instruction pointer adapted
//!   (`arch/x86_64/movable_code.rs`). What follows that instruction stays: others may stand there.
//! - *compare after*: the jump replaces the call and what follows. Someone who stands behind the
//!   call would return into the middle of it: another thread, or a signal handler's caller. So this
//!   shape is used only while the program has one thread and no handler that could have interrupted
//!   it there, and no policy will have it go on from where it was once ([`keep_frames`]).
//!
//! While other threads may be fetching the bytes that change, two of them are stored at once. A
//! long jump in padding is there before the short one leads to it. A long jump in place of an
//! instruction comes in three steps: a jump to itself, two bytes, holds threads that come; then the
//! rest is written; then the first two bytes. After each step every processor that runs a thread of
//! ours is made to forget what it has fetched (membarrier(2), `SYNC_CORE`). Where the kernel has no
//! such call, nothing is patched under threads. Others may fork meanwhile: what a child finds half
//! done it completes.
//!
//! A call leaves the flags alone and a patched one does not, so code that reads them behind the
//! call is not patched; nor is code that the program may write to.
//!
//! The idea of relocating the comparison is rr's, that of leaving the call in place gVisor's; a
//! short jump to a long one in padding is how Windows is patched while it runs.

mod code_writer;
mod shared_code;
#[cfg(test)]
mod tests;
mod trap_counts;

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::signal_actions;
use crate::address_range::AddressRange;
use crate::arch::{self, ABSENT, Code, LONG_JUMP, RUN_UP, SiteShape, Window};
use crate::policy::Event;
use crate::spin_lock::Lock;
use crate::sys::nr;
use crate::sys::{has_threads, note_threads};
use code_writer::{PAGE, Stubs};
use shared_code::SharedRanges;
use trap_counts::TrapCounts;

#[repr(C)]
struct State {
    enabled: bool,
    /// True if processors can be made to forget what they have fetched (membarrier(2)); `None`
    /// while it has not been tried.
    synchronises: Option<bool>,
    /// Site that is being replaced in steps, and its jump: a child that is forked meanwhile has it
    /// half done.
    under_way: Option<(u64, [u8; LONG_JUMP])>,
    /// Function that returns the address that stubs call.
    entry: fn() -> u64,
    stubs: Stubs,
    trap_counts: TrapCounts,
    /// The code around the site that is being patched. (Too large for the stacks of programs.)
    window: Window,
}

static STATE: Lock<State> = Lock::new(State::new(arch::entry));

impl State {
    const fn new(entry: fn() -> u64) -> Self {
        let (trap_counts, stubs) = (TrapCounts::new(), Stubs::new());
        let window = [ABSENT; size_of::<Window>()];
        State {
            enabled: false,
            synchronises: None,
            trap_counts,
            stubs,
            window,
            under_way: None,
            entry,
        }
    }
}

static KEEPS_FRAMES: AtomicBool = AtomicBool::new(false);

/// The policy keeps frames of threads, to which they may go back; or not any more.
pub fn keep_frames(keeps: bool) {
    KEEPS_FRAMES.store(keeps, Relaxed);
}

static SHARED: SharedRanges = SharedRanges::new();

/// The program shares `len` bytes from `at` with others: no code there is patched.
pub fn note_shared(at: u64, len: u64) {
    SHARED.note(at, at.saturating_add(len).next_multiple_of(PAGE));
}

/// Something in `len` bytes from `at` is.
pub fn is_any_shared(at: u64, len: u64) -> bool {
    SHARED.touch(at, at.saturating_add(len))
}

/// Allows patching, or forbids it, as a shadow does.
pub fn enable(allowed: bool) {
    STATE.try_with(|state| state.enabled = allowed);
}

/// The program is about to have a second thread.
pub(super) fn another_thread() {
    if !note_threads(true) {
        // With one thread the kernel registers us at once, with more it waits for some
        // milliseconds. (Where calls are reported nothing is patched.)
        STATE.try_with(|state| {
            state.enabled && !crate::interception_state::reports() && synchronises(state)
        });
    }
}

/// Resets the state in a forked child, which has one thread.
pub(super) fn in_new_process() {
    STATE.break_open();
    note_threads(false);
    STATE.try_with(|state| {
        // A child may not inherit the registration with the kernel.
        state.synchronises = None;
        if let Some((at, jump)) = state.under_way.take() {
            let _ = code_writer::write(at, |at| code_writer::put(at, &jump));
        }
    });
}

/// Range of the lowest page of stubs between `at` and `end`.
pub fn stubs_from(at: u64, end: u64) -> Option<AddressRange> {
    STATE.try_with(|state| state.stubs.lowest(at, end)).flatten()
}

/// A call was trapped at `site`: whether that is so often the case that the site is to be patched.
pub(super) fn is_hot(site: u64) -> bool {
    crate::policy::count(Event::Trapped);
    STATE.try_with(|state| state.enabled && state.trap_counts.note(site)) == Some(true)
}

/// Patches a site. Then the call is to be made again from the address returned: what is behind the
/// old one may be the middle of the jump. Signals must be blocked.
pub(super) fn patch_site(site: u64, number: u64) -> Option<u64> {
    let again = STATE.try_with(|state| patch(state, site, number)).flatten();
    if again.is_some() {
        crate::policy::count(Event::Patched);
    }
    again
}

/// Calls that must stay traps: they need the frame of the signal, or end the program's image.
pub(super) fn never(number: u64) -> bool {
    crate::plane_calls::is_the_planes(number) && !crate::plane_calls::is_checked(number)
        || matches!(number, nr::EXECVE | nr::EXIT | nr::EXIT_GROUP | nr::PTRACE)
}

/// Patches the site; where execution enters the patch.
fn patch(state: &mut State, site: u64, number: u64) -> Option<u64> {
    let page = site & !(PAGE - 1);
    // The page of an instruction that has just been executed is there; the next may not be.
    if never(number)
        || state.stubs.contain(site)
        || site - page + 2 > PAGE
        || is_any_shared(page, PAGE)
        || code_writer::is_writable(page)
    {
        return None;
    }
    let threads = has_threads();
    if threads && !synchronises(state) {
        return None;
    }
    let State { window, stubs, entry, .. } = state;
    code_writer::copy_window(window, page)?;
    let start = page - RUN_UP as u64;
    let (at, address) = ((site - start) as usize, |offset: u16| start + u64::from(offset));
    let stub_return = |end: usize, distance: i32| {
        let stub = (start + end as u64).wrapping_add_signed(distance.into());
        Some(stubs.return_of(stub)?.wrapping_sub(start) as usize)
    };
    let code = Code::new(window, &stub_return);
    let shape = SiteShape::of(&code, at, number).find(|shape| match *shape {
        SiteShape::NumberBefore { len } | SiteShape::RunBefore { len } => {
            u64::from(len) <= site - page
                && (!threads || code_writer::can_replace_at_once(site - u64::from(len)))
        }
        SiteShape::ByPadding { .. } => !threads || code_writer::can_replace_at_once(site),
        SiteShape::CompareAfter => {
            let is_alone = !threads && !signal_actions::has_async_handlers();
            is_alone && !KEEPS_FRAMES.load(Relaxed) && site - page + LONG_JUMP as u64 <= PAGE
        }
    })?;
    let slot = stubs.slot(site)?;
    let Some(stub) = arch::stub(shape, number, (start, at), window, (slot, entry())) else {
        stubs.give_back(slot);
        return None;
    };
    code_writer::write(slot, |at| code_writer::put(at, &stub))?;
    let entered = match shape {
        SiteShape::NumberBefore { len } => replace_front(state, site - u64::from(len), slot)?,
        SiteShape::RunBefore { len } => {
            replace_front(state, site - u64::from(len), slot)?;
            // Whether this call came by way of the instructions is not known.
            site
        }
        SiteShape::ByPadding { from, end } => {
            let short = arch::short_jump(at, from.into())?;
            let jump = arch::jump(address(from), slot)?;
            let padding = address(from)..address(end);
            code_writer::write_by_padding(site, short, padding, &jump, threads)?;
            site
        }
        SiteShape::CompareAfter => {
            let jump = arch::jump(site, slot)?;
            code_writer::write(site, |at| code_writer::put(at, &jump))?;
            site
        }
    };
    state.trap_counts.forget(site);
    Some(entered)
}

/// Replaces the front of the instruction at `from`.
fn replace_front(state: &mut State, from: u64, stub: u64) -> Option<u64> {
    let jump = arch::jump(from, stub)?;
    if has_threads() {
        state.under_way = Some((from, jump));
        code_writer::write(from, |at| code_writer::replace_in_steps(at, &jump))?;
        state.under_way = None;
    } else {
        code_writer::write(from, |at| code_writer::put(at, &jump))?;
    }
    Some(from)
}

fn synchronises(state: &mut State) -> bool {
    *state.synchronises.get_or_insert_with(code_writer::can_synchronise)
}
