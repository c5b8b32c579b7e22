//! The signal by which dispatch delivers a call.
//!
//! The handler runs wherever the program was: on its stack or its alternate one. It must not be
//! blocked when a call is dispatched (the kernel kills the process), so it does not block itself
//! and `masks` keeps it out of every mask.

use linux_raw_sys::general as k;

use super::{Call, Verdict, clone, is_interesting, is_the_planes, masks, note_thread, patch};
use crate::arch::{self, Context};
use crate::sys::{self, nr};

/// `si_code` of a dispatched call (asm-generic/siginfo.h).
const SYS_USER_DISPATCH: i32 = 2;

/// `si_arch` of a 64-bit call (linux/audit.h).
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// `siginfo_t` of a SIGSYS (sigaction(2)).
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    call_address: u64,
    call: i32,
    arch: u32,
}

/// Puts our handler in place of the program's, which `masks` keeps.
pub(super) fn install() -> sys::Result<()> {
    let handler: extern "C" fn(i32, *const Info, *mut Context) = on_signal;
    let action = masks::Action {
        handler: handler as usize as u64,
        flags: (k::SA_SIGINFO | k::SA_RESTORER | k::SA_NODEFER | k::SA_ONSTACK).into(),
        restorer: arch::restorer(),
        mask: 0,
    };
    let old = masks::set_action(k::SIGSYS as i32, Some(&action))?;
    masks::keep_sigsys(old);
    Ok(())
}

extern "C" fn on_signal(_signal: i32, info: *const Info, context: *mut Context) {
    // SAFETY: the kernel passes both, live until we return.
    let (info, context) = unsafe { (&*info, &mut *context) };
    if info.code != SYS_USER_DISPATCH {
        masks::forward_sigsys(
            core::ptr::from_ref(info) as u64,
            core::ptr::from_mut(context) as u64,
        );
        return;
    }
    let mut call = context.call();
    let site = context.after() - 2;
    if info.arch != AUDIT_ARCH_X86_64 {
        // The 32-bit entry (int 0x80), which only the program itself can use.
        super::retire();
        return context.resume_at(site);
    }
    note_thread();
    if is_the_planes(call.nr) {
        return of_the_plane(&call, site, context);
    }
    // SAFETY: this is the armed thread; the depth is a byte that nested handlers leave as it was.
    let depth = unsafe { arch::RUNAHEAD_DEPTH.get() };
    if *depth != 0 || on_alternate_stack(&call) {
        return perform(&call, context);
    }
    if let Some(again) = patch::note(site, call.nr) {
        return context.resume_at(again);
    }
    if !is_interesting(call.nr) {
        return perform(&call, context);
    }
    *depth = 1;
    // Our own frame lies on the program's alternate stack, if it has one, and the kernel takes that
    // to be free while we are on the agent's. No signal may be delivered there meanwhile.
    // SAFETY: the armed thread; the reference ends here.
    let exposed = unsafe { *arch::RUNAHEAD_ALTSTACK.get() } != [1, 0];
    let mask = exposed.then(|| sys::set_mask(!0));
    // SAFETY: the depth is ours, so the agent's stack is free and `call` is the only frame.
    let verdict = unsafe { arch::dispatch_on_agent_stack(&mut call) };
    *depth = 0;
    if let Some(mask) = mask {
        sys::set_mask(mask);
    }
    match verdict {
        Verdict { ret, native: 0 } => {
            context.set_result(ret);
            keep_mask(context);
        }
        // Interception was given up: the program makes the call itself, and any later one, so that
        // what it is about to set up (a filter, say) is not in the way of our own return.
        _ if super::is_retired() => context.resume_at(site),
        _ => perform(&call, context),
    }
}

/// The program is on its alternate stack (see the entry code in `arch`).
fn on_alternate_stack(call: &Call) -> bool {
    // SAFETY: the armed thread; the reference ends here.
    let [first, end] = unsafe { *arch::RUNAHEAD_ALTSTACK.get() };
    (first..=end).contains(&call.stack)
}

/// Remembers where the program's alternate stack is about to be (sigaltstack(2)).
fn note_alternate_stack(call: &Call) {
    const DISABLED: u64 = 2;
    if call.args[0] == 0 || on_alternate_stack(call) {
        return;
    }
    // SAFETY: as above. Whoever sets a stack that cannot be read gets an error from the kernel.
    let place = unsafe { arch::RUNAHEAD_ALTSTACK.get() };
    match masks::copy_in::<[u64; 3]>(call.args[0]) {
        Ok([_, flags, _]) if flags & DISABLED != 0 => *place = [1, 0],
        Ok([first, _, bytes]) => *place = [first, first.saturating_add(bytes)],
        // Not to be known (a filter around us): nothing can be told apart any more.
        Err(errno) if errno.0 != sys::EFAULT => super::retire(),
        Err(_) => {}
    }
}

/// Makes the call as it stands.
fn perform(call: &Call, context: &mut Context) {
    context.set_result(call.perform());
    keep_mask(context);
}

/// A handler that ran meanwhile may have changed the mask for good (in the frame that it returned
/// through); returning from our signal must not set the old one again.
fn keep_mask(context: &mut Context) {
    context.mask = masks::current_mask();
}

fn of_the_plane(call: &Call, site: u64, context: &mut Context) {
    match call.nr {
        nr::RT_SIGRETURN => {
            // SAFETY: the program asks for it with this very stack pointer, at which the kernel
            // finds the frame; where there is none, both it and we fault.
            unsafe {
                let frame = &mut *(call.stack as *mut Context);
                frame.mask = masks::as_restored(frame.mask);
                arch::sigreturn(call.stack)
            }
        }
        nr::CLONE | nr::FORK | nr::VFORK | nr::CLONE3 => clone::follow(call, site, context),
        nr::EXECVE | nr::EXECVEAT => context.set_result(masks::exec(call)),
        nr::RT_SIGPENDING => context.set_result(masks::sigpending(call)),
        nr::RT_SIGACTION => context.set_result(masks::sigaction(call)),
        nr::RT_SIGPROCMASK => {
            let ret = masks::sigprocmask(call);
            context.mask = masks::current_mask();
            context.set_result(ret);
        }
        // Its answer depends on the stack that it is asked from.
        nr::SIGALTSTACK => {
            note_alternate_stack(call);
            clone::from_the_program(site, context);
        }
        nr::ARCH_PRCTL => {
            context.set_result(call.perform());
            note_thread();
        }
        _ => {
            context.set_result(masks::with_temporary_mask(call));
            keep_mask(context);
        }
    }
}
