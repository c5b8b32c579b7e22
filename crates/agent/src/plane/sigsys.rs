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
    if *depth != 0 {
        return perform(&call, context);
    }
    if let Some(again) = patch::note(site, call.nr) {
        return context.resume_at(again);
    }
    if !is_interesting(call.nr) {
        return perform(&call, context);
    }
    *depth = 1;
    // SAFETY: the depth is ours, so the agent's stack is free and `call` is the only frame.
    let verdict = unsafe { arch::dispatch_on_agent_stack(&mut call) };
    *depth = 0;
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
        // SAFETY: the program asks for it with this very stack pointer.
        nr::RT_SIGRETURN => unsafe { arch::sigreturn(call.stack) },
        nr::CLONE | nr::FORK | nr::VFORK | nr::CLONE3 => clone::follow(call, site, context),
        nr::EXECVE | nr::EXECVEAT => context.set_result(masks::exec(call)),
        nr::RT_SIGACTION => context.set_result(masks::sigaction(call)),
        nr::RT_SIGPROCMASK => {
            let ret = masks::sigprocmask(call);
            context.mask = masks::current_mask();
            context.set_result(ret);
        }
        // Its answer depends on the stack that it is asked from.
        nr::SIGALTSTACK => clone::from_the_program(site, context),
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
