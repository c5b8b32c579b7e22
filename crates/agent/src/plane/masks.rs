//! Keeps SIGSYS unblocked and handled by us, while the program believes what it set.
//!
//! If SIGSYS is blocked when a call is dispatched, the kernel kills the process. So its bit is
//! taken out of every mask that the program hands to the kernel and put back into every mask that
//! it reads; its handler for SIGSYS is kept here and called for signals that are not ours.

use linux_raw_sys::general as k;

use super::Call;
use crate::owned::Owned;
use crate::sys::{self, nr};

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

struct Kept {
    /// The program's action for SIGSYS.
    sigsys: Action,
    /// The program believes that SIGSYS is blocked.
    blocked: bool,
    /// One arrived while it was.
    pending: bool,
    /// Signals whose `sa_mask` the program gave with SIGSYS in it.
    in_mask_of: u64,
    /// The program has installed a handler that can run between any two instructions.
    handlers: bool,
}

static KEPT: Owned<Kept> = Owned::new(Kept {
    sigsys: Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 },
    blocked: false,
    pending: false,
    in_mask_of: 0,
    handlers: false,
});

fn kept() -> &'static mut Kept {
    // SAFETY: on the armed thread; callers use the reference for one statement at a time.
    unsafe { KEPT.get() }
}

/// Signals that only the running instruction can raise, at its own address.
const SYNCHRONOUS: [u32; 5] = [k::SIGSEGV, k::SIGBUS, k::SIGILL, k::SIGFPE, k::SIGTRAP];

/// True once a signal handler may interrupt the program anywhere.
pub(super) fn has_async_handlers() -> bool {
    kept().handlers
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
pub(super) fn keep_sigsys(action: Action) {
    kept().sigsys = action;
    let mask = current_mask();
    kept().blocked = mask & SYS_BIT != 0;
    sys::set_mask(mask & !SYS_BIT);
}

/// Gives SIGSYS back to the program, when interception ends.
pub(super) fn restore_sigsys() {
    let action = kept().sigsys;
    let _ = set_action(k::SIGSYS as i32, Some(&action));
    if kept().blocked {
        let mask = SYS_BIT;
        let args = [k::SIG_BLOCK.into(), &raw const mask as u64, 0, MASK_BYTES, 0, 0];
        // SAFETY: reads the eight bytes of `mask`.
        unsafe { sys::raw(nr::RT_SIGPROCMASK, args) };
    }
}

/// A SIGSYS that is no dispatched call goes where the program wants it.
pub(super) fn forward_sigsys(info: u64, context: u64) {
    let action = kept().sigsys;
    if kept().blocked && action.handler != SIG_IGN {
        kept().pending = true;
        return;
    }
    match action.handler {
        SIG_IGN => {}
        SIG_DFL => {
            let _ = set_action(k::SIGSYS as i32, Some(&action));
            raise_sigsys();
        }
        handler => {
            // SAFETY: the program installed this address as its handler for this signal, and gets
            // the arguments that the kernel gave us.
            let handler: extern "C" fn(i32, u64, u64) = unsafe { core::mem::transmute(handler) };
            handler(k::SIGSYS as i32, info, context);
        }
    }
}

/// A mask that the program restores from a frame, as the kernel may have it.
pub(super) fn as_restored(mask: u64) -> u64 {
    if mask & SYS_BIT != 0 {
        kept().blocked = true;
    }
    mask & !SYS_BIT
}

/// rt_sigpending as the program means it.
pub(super) fn sigpending(call: &Call) -> i64 {
    let ret = call.perform();
    if ret == 0 && kept().pending && call.args[1] == MASK_BYTES {
        // SAFETY: the kernel has just written eight bytes there.
        unsafe { *(call.args[0] as *mut u64) |= SYS_BIT };
    }
    ret
}

/// In a forked child, which runs natively: SIGSYS is as the program left it. The mask to run with.
pub(super) fn in_child(mask: u64) -> u64 {
    let action = kept().sigsys;
    let _ = set_action(k::SIGSYS as i32, Some(&action));
    if kept().blocked { mask | SYS_BIT } else { mask }
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
    let ours = if signal == k::SIGSYS {
        // The program is to find what it left there.
        let kept_action = kept().sigsys;
        set_action(signal as i32, Some(&kept_action)).ok()
    } else {
        None
    };
    let ret = call.perform();
    let bit = 1u64.checked_shl(signal.wrapping_sub(1)).unwrap_or(0);
    if let Some(ours) = ours {
        if let Ok(now) = set_action(signal as i32, Some(&ours)) {
            kept().sigsys = now;
        }
        return ret;
    }
    if ret != 0 {
        return ret;
    }
    let state = kept();
    if old != 0 && state.in_mask_of & bit != 0 {
        // SAFETY: the kernel has just written a whole Action there.
        unsafe { (*(old as *mut Action)).mask |= SYS_BIT };
    }
    if new != 0
        && let Ok(now) = set_action(signal as i32, None)
    {
        let with_sys = now.mask & SYS_BIT != 0;
        if with_sys {
            let _ = set_action(signal as i32, Some(&Action { mask: now.mask & !SYS_BIT, ..now }));
        }
        state.in_mask_of = (state.in_mask_of & !bit) | if with_sys { bit } else { 0 };
        state.handlers |= now.handler > SIG_IGN && !SYNCHRONOUS.contains(&signal);
    }
    ret
}

/// rt_sigprocmask as the program means it: the kernel sees the mask with SIGSYS in it as the
/// program believes it to be, and afterwards it is taken out again.
pub(super) fn sigprocmask(call: &Call) -> i64 {
    let ret = undisturbed(|mask| {
        let believed = if kept().blocked { mask | SYS_BIT } else { mask & !SYS_BIT };
        sys::set_mask(believed);
        let ret = call.perform();
        let now = sys::set_mask(!0);
        kept().blocked = now & SYS_BIT != 0;
        (ret, now & !SYS_BIT)
    });
    if !kept().blocked && core::mem::take(&mut kept().pending) {
        raise_sigsys();
    }
    ret
}

/// execve and execveat: the new program inherits what this one believes of SIGSYS.
pub(super) fn exec(call: &Call) -> i64 {
    super::before_child();
    undisturbed(|mask| {
        let action = kept().sigsys;
        let ours = match action.handler {
            SIG_IGN => set_action(k::SIGSYS as i32, Some(&action)).ok(),
            _ => None,
        };
        sys::set_mask(if kept().blocked { mask | SYS_BIT } else { mask });
        let ret = call.perform();
        let now = sys::set_mask(!0);
        if let Some(ours) = ours {
            let _ = set_action(k::SIGSYS as i32, Some(&ours));
        }
        (ret, now & !SYS_BIT)
    })
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
        Ok(mask) => mask & !SYS_BIT,
        Err(errno) => return refused(call, errno),
    };
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

/// Reads program memory that may not be there: the kernel does it, and says EFAULT.
pub(super) fn copy_in<T: Copy>(from: u64) -> sys::Result<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    copy(from, value.as_mut_ptr() as u64, size_of::<T>())?;
    // SAFETY: the kernel has copied all of it, and T is plain data in this module's uses.
    Ok(unsafe { value.assume_init() })
}

/// `theirs` is program memory, `ours` is memory of the agent.
fn copy(theirs: u64, ours: u64, len: usize) -> sys::Result<()> {
    let (local, remote) = ([ours, len as u64], [theirs, len as u64]);
    let args = [sys::getpid().into(), &raw const local as u64, 1, &raw const remote as u64, 1, 0];
    // SAFETY: process_vm_readv(2) with one range each side; the kernel checks `theirs`.
    match sys::check(unsafe { sys::raw(k::__NR_process_vm_readv.into(), args) }) {
        Ok(copied) if copied == len as u64 => Ok(()),
        Ok(_) => Err(sys::Errno(sys::EFAULT)),
        Err(errno) => Err(errno),
    }
}
