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
    /// Signals whose `sa_mask` the program gave with SIGSYS in it.
    in_mask_of: u64,
    /// The program has installed a handler that can run between any two instructions.
    handlers: bool,
}

static KEPT: Owned<Kept> = Owned::new(Kept {
    sigsys: Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 },
    blocked: false,
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

pub(super) fn keep_sigsys(action: Action) {
    kept().sigsys = action;
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
    match action.handler {
        SIG_IGN => {}
        SIG_DFL => {
            let _ = set_action(k::SIGSYS as i32, Some(&action));
            // SAFETY: sends this process the signal that it was to die of.
            unsafe { sys::raw(nr::KILL, [sys::getpid().into(), k::SIGSYS.into(), 0, 0, 0, 0]) };
        }
        handler => {
            // SAFETY: the program installed this address as its handler for this signal, and gets
            // the arguments that the kernel gave us.
            let handler: extern "C" fn(i32, u64, u64) = unsafe { core::mem::transmute(handler) };
            handler(k::SIGSYS as i32, info, context);
        }
    }
}

/// rt_sigaction as the program means it.
pub(super) fn sigaction(call: &Call) -> i64 {
    let [signal, new, old, size, ..] = call.args;
    if size != MASK_BYTES || signal == 0 || signal > 64 {
        return call.perform();
    }
    if signal == k::SIGSYS.into() {
        return sigaction_sigsys(new, old);
    }
    let bit = 1u64 << (signal - 1);
    let mut args = call.args;
    let mut given = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    if new != 0 {
        given = match copy_in(new) {
            Ok(action) => action,
            Err(errno) => return sys::fail(errno.0),
        };
    }
    let with_sys = given.mask & SYS_BIT != 0;
    let changed = Action { mask: given.mask & !SYS_BIT, ..given };
    if new != 0 {
        args[1] = &raw const changed as u64;
    }
    // SAFETY: the program's call, with its struct replaced by a copy.
    let ret = unsafe { sys::raw(call.nr, args) };
    if ret != 0 {
        return ret;
    }
    let state = kept();
    if old != 0 && state.in_mask_of & bit != 0 {
        // SAFETY: the kernel has just written a whole Action there.
        unsafe { (*(old as *mut Action)).mask |= SYS_BIT };
    }
    if new != 0 {
        state.in_mask_of = state.in_mask_of & !bit | if with_sys { bit } else { 0 };
        let catches = changed.handler > SIG_IGN;
        state.handlers |= catches && !SYNCHRONOUS.contains(&(signal as u32));
    }
    ret
}

fn sigaction_sigsys(new: u64, old: u64) -> i64 {
    let before = kept().sigsys;
    if new != 0 {
        match copy_in(new) {
            Ok(action) => kept().sigsys = action,
            Err(errno) => return sys::fail(errno.0),
        }
    }
    if old != 0 {
        return copy_out(&before, old);
    }
    0
}

/// rt_sigprocmask as the program means it.
pub(super) fn sigprocmask(call: &Call) -> i64 {
    let [how, new, old, size, ..] = call.args;
    if size != MASK_BYTES {
        return call.perform();
    }
    let mut args = call.args;
    let mut given = 0u64;
    if new != 0 {
        given = match copy_in(new) {
            Ok(mask) => mask,
            Err(errno) => return sys::fail(errno.0),
        };
    }
    let names_sys = given & SYS_BIT != 0;
    let mask = given & !SYS_BIT;
    if new != 0 {
        args[1] = &raw const mask as u64;
    }
    // SAFETY: the program's call, with its mask replaced by a copy.
    let ret = unsafe { sys::raw(call.nr, args) };
    if ret != 0 {
        return ret;
    }
    let was_blocked = kept().blocked;
    if new != 0 {
        kept().blocked = match how as u32 {
            k::SIG_BLOCK => was_blocked || names_sys,
            k::SIG_UNBLOCK => was_blocked && !names_sys,
            _ => names_sys,
        };
    }
    if old != 0 && was_blocked {
        // SAFETY: the kernel has just written eight bytes there.
        unsafe { *(old as *mut u64) |= SYS_BIT };
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
            Err(errno) => return sys::fail(errno.0),
        },
        _ => (4, args[4]),
    };
    if mask_at == 0 {
        return call.perform();
    }
    let mask = match copy_in::<u64>(mask_at) {
        Ok(mask) => mask & !SYS_BIT,
        Err(errno) => return sys::fail(errno.0),
    };
    let pair = [&raw const mask as u64, size];
    args[slot] = if call.nr == nr::PSELECT6 { &raw const pair as u64 } else { pair[0] };
    // SAFETY: the program's call, its mask replaced by a copy that lives until the call returns.
    unsafe { sys::raw(call.nr, args) }
}

/// Reads program memory that may not be there: the kernel does it, and says EFAULT.
fn copy_in<T: Copy>(from: u64) -> sys::Result<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    copy(from, value.as_mut_ptr() as u64, size_of::<T>(), nr_process_vm_readv())?;
    // SAFETY: the kernel has copied all of it, and T is plain data in this module's uses.
    Ok(unsafe { value.assume_init() })
}

fn copy_out<T: Copy>(value: &T, to: u64) -> i64 {
    let from = core::ptr::from_ref(value) as u64;
    match copy(to, from, size_of::<T>(), k::__NR_process_vm_writev.into()) {
        Ok(()) => 0,
        Err(errno) => sys::fail(errno.0),
    }
}

const fn nr_process_vm_readv() -> u64 {
    k::__NR_process_vm_readv as u64
}

/// `theirs` is program memory, `ours` is memory of the agent.
fn copy(theirs: u64, ours: u64, len: usize, call: u64) -> sys::Result<()> {
    let (local, remote) = ([ours, len as u64], [theirs, len as u64]);
    let args = [sys::getpid().into(), &raw const local as u64, 1, &raw const remote as u64, 1, 0];
    // SAFETY: process_vm_readv(2) or writev with one range each side; the kernel checks `theirs`.
    match sys::check(unsafe { sys::raw(call, args) }) {
        Ok(copied) if copied == len as u64 => Ok(()),
        _ => Err(sys::Errno(sys::EFAULT)),
    }
}
