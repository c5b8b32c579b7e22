//! Keeps SIGSYS unblocked and handled by us, while the program believes what it set.
//!
//! If SIGSYS is blocked when a call is dispatched, the kernel kills the process. So its bit is
//! taken out of every mask that the program hands to the kernel and put back into every mask that
//! it reads; its handler for SIGSYS is kept here and called for signals that are not ours.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::Call;
use super::thread::Thread;
use crate::lock::Lock;
use crate::sys::{self, copy_in, nr};

/// `struct kernel_sigaction` (asm/signal.h).
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SYS_BIT: u64 = 1 << (k::SIGSYS - 1);
const MASK_BYTES: u64 = 8;

/// What the process, and not a thread, has.
struct Kept {
    /// The program's action for SIGSYS.
    sigsys: Action,
    /// Signals whose `sa_mask` the program gave with SIGSYS in it.
    in_mask_of: u64,
}

static KEPT: Lock<Kept> = Lock::new(Kept {
    sigsys: Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 },
    in_mask_of: 0,
});

/// The program has installed a handler that can run between any two instructions.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// The program's action for SIGSYS. Signals must be blocked.
fn kept_action() -> Action {
    KEPT.with(|kept| kept.sigsys)
}

/// In a forked child: what was held is free.
pub(super) fn in_new_process() {
    KEPT.break_open();
}

/// Signals that only the running instruction can raise, at its own address.
const SYNCHRONOUS: [u32; 5] = [k::SIGSEGV, k::SIGBUS, k::SIGILL, k::SIGFPE, k::SIGTRAP];

/// True once a signal handler may interrupt the program anywhere.
pub(super) fn has_async_handlers() -> bool {
    HANDLERS.load(Relaxed)
}

pub(super) fn set_action(signal: i32, action: Option<&Action>) -> sys::Result<Action> {
    let mut old = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let new = action.map_or(core::ptr::null(), core::ptr::from_ref);
    let args = [signal as u64, new as u64, &raw mut old as u64, MASK_BYTES, 0, 0];
    // SAFETY: both point to live actions, or null; handlers are the program's or ours.
    sys::check(unsafe { sys::raw(nr::RT_SIGACTION, args) })?;
    Ok(old)
}

/// Takes SIGSYS over from the program, with what it inherited: its action, and the mask.
pub(super) fn keep_sigsys(thread: &Thread, action: Action) {
    undisturbed(|mask| {
        KEPT.with(|kept| kept.sigsys = action);
        thread.blocked.set(has_sigsys(mask));
        ((), without_sigsys(mask))
    });
}

/// Gives SIGSYS back to the program, when interception ends.
pub(super) fn restore_sigsys(thread: &Thread) {
    undisturbed(|mask| {
        let action = kept_action();
        let _ = set_action(k::SIGSYS as i32, Some(&action));
        ((), mask)
    });
    restore_mask(thread);
}

/// Gives this thread the mask that it believes it has.
pub(super) fn restore_mask(thread: &Thread) {
    if thread.blocked.get() {
        let mask = SYS_BIT;
        let args = [k::SIG_BLOCK.into(), &raw const mask as u64, 0, MASK_BYTES, 0, 0];
        // SAFETY: reads the eight bytes of `mask`.
        unsafe { sys::raw(nr::RT_SIGPROCMASK, args) };
    }
}

/// `mask` with SIGSYS as the program believes it to be.
pub(super) fn as_believed(thread: &Thread, mask: u64) -> u64 {
    if thread.blocked.get() { mask | SYS_BIT } else { mask & !SYS_BIT }
}

/// SIGSYS is in `mask`.
pub(super) fn has_sigsys(mask: u64) -> bool {
    mask & SYS_BIT != 0
}

/// `mask` as the kernel may have it.
pub(super) fn without_sigsys(mask: u64) -> u64 {
    mask & !SYS_BIT
}

/// The program's action for SIGSYS, if that is to ignore it. Signals must be blocked.
pub(super) fn ignores_sigsys() -> Option<Action> {
    Some(kept_action()).filter(|action| action.handler == SIG_IGN)
}

/// A SIGSYS that is no dispatched call goes where the program wants it.
pub(super) fn forward_sigsys(thread: Option<&Thread>, info: u64, context: u64) {
    let action = undisturbed(|mask| (kept_action(), mask));
    if let Some(thread) = thread.filter(|t| t.blocked.get())
        && action.handler != SIG_IGN
    {
        thread.pending.set(true);
        return;
    }
    match action.handler {
        SIG_IGN => {}
        SIG_DFL => {
            let _ = set_action(k::SIGSYS as i32, Some(&action));
            raise_sigsys();
        }
        handler => {
            if action.flags & u64::from(k::SA_RESETHAND) != 0 {
                undisturbed(|mask| (KEPT.with(|kept| kept.sigsys.handler = SIG_DFL), mask));
            }
            // SAFETY: the program installed this address as its handler for this signal, and gets
            // the arguments that the kernel gave us.
            let handler: extern "C" fn(i32, u64, u64) = unsafe { core::mem::transmute(handler) };
            handler(k::SIGSYS as i32, info, context);
        }
    }
}

/// A mask that the program restores from a frame, as the kernel may have it.
pub(super) fn as_restored(thread: &Thread, mask: u64) -> u64 {
    if has_sigsys(mask) {
        thread.blocked.set(true);
    }
    without_sigsys(mask)
}

/// rt_sigpending as the program means it.
pub(super) fn sigpending(call: &Call) -> i64 {
    let ret = call.perform();
    if ret == 0 && call.thread.pending.get() && call.args[1] == MASK_BYTES {
        // SAFETY: the kernel has just written eight bytes there.
        unsafe { *(call.args[0] as *mut u64) |= SYS_BIT };
    }
    ret
}

/// In a forked child that runs natively: SIGSYS is as the program left it. The mask to run with.
pub(super) fn in_child(thread: &Thread, mask: u64) -> u64 {
    KEPT.break_open();
    let action = kept_action();
    let _ = set_action(k::SIGSYS as i32, Some(&action));
    as_believed(thread, mask)
}

/// Sends this process a SIGSYS that is not a dispatched call.
fn raise_sigsys() {
    // SAFETY: kill(2) of this process with a signal that it was sent before.
    unsafe { sys::raw(nr::KILL, [sys::getpid().into(), k::SIGSYS.into(), 0, 0, 0, 0]) };
}

/// Does `work` while no handler can run: between two calls of ours SIGSYS may then be blocked.
fn undisturbed<T>(work: impl FnOnce(u64) -> (T, u64)) -> T {
    let mask = sys::set_mask(!0);
    let (result, mask) = work(mask);
    sys::set_mask(mask);
    result
}

/// rt_sigaction as the program means it. The kernel reads and writes the program's structures;
/// what it made of them is put right before any handler can run.
pub(super) fn sigaction(call: &Call) -> i64 {
    let [signal, new, old, ..] = call.args;
    undisturbed(|mask| (sigaction_undisturbed(call, signal as u32, new, old), mask))
}

fn sigaction_undisturbed(call: &Call, signal: u32, new: u64, old: u64) -> i64 {
    // A vfork child has actions of its own, but not memory to keep them in; it will exec soon.
    let own_memory = call.thread.lent.get().is_none();
    let ours = if signal == k::SIGSYS {
        // The program is to find what it left there.
        let kept_action = kept_action();
        set_action(signal as i32, Some(&kept_action)).ok()
    } else {
        None
    };
    let ret = call.perform();
    let bit = 1u64.checked_shl(signal.wrapping_sub(1)).unwrap_or(0);
    if let Some(ours) = ours {
        if let Ok(now) = set_action(signal as i32, Some(&ours))
            && own_memory
        {
            KEPT.with(|kept| kept.sigsys = now);
        }
        return ret;
    }
    if ret != 0 {
        return ret;
    }
    if old != 0 && KEPT.with(|kept| kept.in_mask_of & bit != 0) {
        // SAFETY: the kernel has just written a whole Action there.
        unsafe { (*(old as *mut Action)).mask |= SYS_BIT };
    }
    if new != 0
        && let Ok(now) = set_action(signal as i32, None)
    {
        let with_sys = has_sigsys(now.mask);
        if with_sys {
            let mask = without_sigsys(now.mask);
            let _ = set_action(signal as i32, Some(&Action { mask, ..now }));
        }
        if own_memory {
            let in_mask = if with_sys { bit } else { 0 };
            KEPT.with(|kept| kept.in_mask_of = (kept.in_mask_of & !bit) | in_mask);
            if now.handler > SIG_IGN && !SYNCHRONOUS.contains(&signal) {
                HANDLERS.store(true, Relaxed);
            }
        }
    }
    ret
}

/// rt_sigprocmask as the program means it. SIGSYS is never blocked, not for a moment: what this
/// unblocks may be delivered before it returns, and its handler makes calls.
pub(super) fn sigprocmask(call: &Call) -> i64 {
    let [how, new, old, size, ..] = call.args;
    let thread = call.thread;
    let believed = thread.blocked.get();
    let mut given = 0u64;
    let mut args = call.args;
    if size == MASK_BYTES && new != 0 {
        given = match copy_in(new) {
            Ok(mask) => mask,
            Err(errno) => return refused(call, errno),
        };
        let with_sys = has_sigsys(given);
        thread.blocked.set(match how as u32 {
            k::SIG_BLOCK => believed || with_sys,
            k::SIG_UNBLOCK => believed && !with_sys,
            k::SIG_SETMASK => with_sys,
            _ => believed,
        });
        given = without_sigsys(given);
        args[1] = &raw const given as u64;
    }
    // SAFETY: the program's call, its mask replaced by a copy that lives until the call returns.
    let ret = unsafe { sys::raw(call.nr, args) };
    let _ = given;
    if ret == 0 && old != 0 && believed {
        // SAFETY: the kernel has just written eight bytes there.
        unsafe { *(old as *mut u64) |= SYS_BIT };
    }
    if !thread.blocked.get() && thread.pending.take() {
        raise_sigsys();
    }
    ret
}

/// The mask in force, as the kernel has it.
pub(super) fn current_mask() -> u64 {
    let mut mask = 0u64;
    let args = [k::SIG_BLOCK.into(), 0, &raw mut mask as u64, MASK_BYTES, 0, 0];
    // SAFETY: only reads the mask, into eight bytes of ours.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, args) };
    mask
}

/// Calls that set a mask for their own duration. A handler that interrupts them still has it.
pub(super) const MASK_CALLS: [u64; 5] =
    [nr::RT_SIGSUSPEND, nr::PPOLL, nr::PSELECT6, nr::EPOLL_PWAIT, nr::EPOLL_PWAIT2];

/// Makes one of [`MASK_CALLS`] with SIGSYS taken out of its mask.
pub(super) fn with_temporary_mask(call: &Call) -> i64 {
    let mut args = call.args;
    let mut size = 0;
    let (slot, mask_at) = match call.nr {
        nr::RT_SIGSUSPEND => (0, args[0]),
        nr::PPOLL => (3, args[3]),
        nr::PSELECT6 if args[5] == 0 => (5, 0),
        // The sixth argument points to {mask, bytes of it} (select(2)).
        nr::PSELECT6 => match copy_in::<[u64; 2]>(args[5]) {
            Ok(given) => {
                size = given[1];
                (5, given[0])
            }
            Err(errno) => return refused(call, errno),
        },
        _ => (4, args[4]),
    };
    if mask_at == 0 {
        return call.perform();
    }
    let mask = match copy_in::<u64>(mask_at) {
        Ok(mask) => mask,
        Err(errno) => return refused(call, errno),
    };
    if !has_sigsys(mask) && call.thread.pending.take() {
        // One that was kept is delivered now, as it would have been in the call.
        let believed = call.thread.blocked.replace(false);
        raise_sigsys();
        call.thread.blocked.set(believed);
        return sys::fail(sys::EINTR);
    }
    let mask = without_sigsys(mask);
    let pair = [&raw const mask as u64, size];
    args[slot] = if call.nr == nr::PSELECT6 { &raw const pair as u64 } else { pair[0] };
    // SAFETY: the program's call, its mask replaced by a copy that lives until the call returns.
    unsafe { sys::raw(call.nr, args) }
}

/// The mask could not be copied. A bad address is the program's; if we may not copy at all (a
/// filter around us) the call is made as it stands.
fn refused(call: &Call, errno: sys::Errno) -> i64 {
    if errno.0 == sys::EFAULT { sys::fail(errno.0) } else { call.perform() }
}
