//! The calls about actions and masks, as the program means them.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::{set_sigsys_action, sigsys_action};
use crate::intercepted_call::Call;
use crate::kernel_signals::{
    Action, MASK_BYTES, SIG_IGN, SYNCHRONOUS, SYS_BIT, bit_of, current_mask, has_sigsys,
    set_action, undisturbed, without_sigsys,
};
use crate::signal_actions::{
    ANY_HANDLERS, ASKS_FOR_STACK, GivenAction, HANDLED, HANDLERS, IN_MASK_OF, ON_STACK, PROGRAMS,
    changed,
};
use crate::sys::{self, copy_in, nr};
use crate::temporary_masks::refused;
use crate::{program_faults, signal_handlers};

/// rt_sigaction as the program means it. What the kernel made of it is put right before any handler
/// can run here.
pub(crate) fn sigaction(call: &Call) -> i64 {
    let work = || sigaction_undisturbed(call);
    undisturbed(|mask| (program_faults::with_programs(call.args[0] as u32, work), mask))
}

fn note_handler(handler: u64) {
    if handler > SIG_IGN {
        ANY_HANDLERS.store(true, Relaxed);
    }
}

fn note_async_handler(signal: u32, action: &Action) {
    if action.handler > SIG_IGN && !SYNCHRONOUS.contains(&signal) {
        HANDLERS.store(true, Relaxed);
    }
}

/// True if rt_sigaction or rt_sigprocmask means the same to the kernel as to the program: SIGSYS is
/// in neither the new nor the old value. Called before it is made, on the agent's stack.
pub(crate) fn can_go_by(call: &Call) -> bool {
    let [first, new, _, size, ..] = call.args;
    if size != MASK_BYTES {
        // The kernel refuses it.
        return true;
    }
    if call.nr == nr::RT_SIGPROCMASK {
        return !call.thread.blocked.get()
            && (new == 0
                || first as u32 == k::SIG_UNBLOCK
                || copy_in::<u64>(new).is_ok_and(|mask| !has_sigsys(mask)));
    }
    let signal = first as u32;
    if signal == k::SIGSYS || changed() & bit_of(signal) != 0 {
        return false;
    }
    if new == 0 {
        return true;
    }
    let Ok(action) = copy_in::<Action>(new) else { return false };
    action.handler <= SIG_IGN && !has_sigsys(action.mask)
}

fn sigaction_undisturbed(call: &Call) -> i64 {
    let [signal, new, old, size, ..] = call.args;
    let (thread, signal) = (call.thread, signal as u32);
    if signal == k::SIGSYS {
        // The program is to find what it left there.
        let Ok(ours) = set_action(signal as i32, Some(&sigsys_action(Some(thread)))) else {
            return call.perform();
        };
        let ret = call.perform();
        if let Ok(now) = set_action(signal as i32, Some(&ours)) {
            note_handler(now.handler);
            set_sigsys_action(Some(thread), now);
        }
        return ret;
    }
    let mut args = call.args;
    let mut given = None;
    if size == MASK_BYTES && new != 0 {
        given = match copy_in::<Action>(new) {
            Ok(action) => Some(action),
            Err(errno) => return refused(call, errno),
        };
    }
    // Before it can run. (That of a vfork child counts, too: it would find us in the same memory.)
    given.iter().for_each(|action| note_handler(action.handler));
    // A vfork child has actions of its own, but not memory to keep them in; it will exec soon.
    let own_memory = thread.lent.get().is_none();
    let with_sys = given.is_some_and(|action| has_sigsys(action.mask));
    let bit = bit_of(signal);
    let slot = PROGRAMS.get(signal as usize);
    let before = GivenAction::of(signal);
    let mut replaced = given;
    let mut handled = false;
    if let Some(action) = &mut replaced {
        action.mask = without_sigsys(action.mask);
        if let (Some(slot), true) = (slot, action.handler > SIG_IGN) {
            if own_memory {
                set_bit(&ON_STACK, bit, action.flags & ASKS_FOR_STACK != 0);
                slot.store(action.handler, Relaxed);
                action.handler = signal_handlers::address();
                action.flags |= ASKS_FOR_STACK;
                handled = true;
            } else {
                // The kernel's alternate stack is none of the program's.
                action.flags &= !ASKS_FOR_STACK;
            }
        }
        args[1] = core::ptr::from_ref(action) as u64;
    }
    // SAFETY: the program's call, its action replaced by a copy that lives until the call returns.
    let ret = unsafe { sys::raw(call.nr, args) };
    if ret != 0 {
        if let (Some(slot), true) = (slot, handled) {
            slot.store(before.handler, Relaxed);
            set_bit(&ON_STACK, bit, before.on_stack);
        }
        return ret;
    }
    if old != 0 {
        // SAFETY: the kernel has just written a whole Action there.
        let seen = unsafe { &mut *(old as *mut Action) };
        if own_memory || seen.handler == signal_handlers::address() {
            *seen = before.restore(*seen, signal_handlers::address());
        }
    }
    if let (Some(given), true) = (given, own_memory) {
        set_bit(&IN_MASK_OF, bit, with_sys);
        set_bit(&HANDLED, bit, handled);
        note_async_handler(signal, &given);
    }
    ret
}

fn set_bit(of: &AtomicU64, bit: u64, set: bool) {
    match set {
        true => of.fetch_or(bit, Relaxed),
        false => of.fetch_and(!bit, Relaxed),
    };
}

/// rt_sigprocmask as the program means it: the result, and the mask with which the program is to go
/// on if there is another now. The return from our signal sets it: what it unblocks is then
/// delivered where the program is, and not inside of us.
pub(crate) fn sigprocmask(call: &Call) -> (i64, Option<u64>) {
    let [how, new, old, size, ..] = call.args;
    let thread = call.thread;
    let believed = thread.blocked.get();
    if size != MASK_BYTES {
        return (call.perform(), None);
    }
    let mut given = None;
    if new != 0 {
        given = match copy_in::<u64>(new) {
            Ok(mask) => Some(mask),
            Err(errno) if errno.0 == sys::EFAULT => return (sys::fail(errno.0), None),
            Err(_) => {
                let ret = call.perform();
                return (ret, Some(current_mask()));
            }
        };
        if how as u32 > k::SIG_SETMASK {
            return (sys::fail(sys::EINVAL), None);
        }
    }
    let mut ret = 0;
    if old != 0 {
        let args = [k::SIG_BLOCK.into(), 0, old, MASK_BYTES, 0, 0];
        // SAFETY: the kernel writes the mask where the program wants it, or fails.
        ret = unsafe { sys::raw(call.nr, args) };
        if ret == 0 && believed {
            // SAFETY: the kernel has just written eight bytes there.
            unsafe { *(old as *mut u64) |= SYS_BIT };
        }
    }
    let Some(given) = given else { return (ret, None) };
    // Nothing is delivered from here on until we return.
    let mask = thread.as_believed(sys::set_mask(!0));
    let mask = match how as u32 {
        k::SIG_BLOCK => mask | given,
        k::SIG_UNBLOCK => mask & !given,
        _ => given,
    };
    thread.blocked.set(has_sigsys(mask));
    (ret, Some(if thread.has_left() { mask } else { without_sigsys(mask) }))
}
