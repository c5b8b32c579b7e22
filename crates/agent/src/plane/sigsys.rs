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

/// The front of `siginfo_t`.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
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
    note_thread();
    if is_the_planes(call.nr) {
        return of_the_plane(&call, site, context);
    }
    // SAFETY: this is the armed thread; the depth is a byte that nested handlers leave as it was.
    let depth = unsafe { arch::RUNAHEAD_DEPTH.get() };
    if *depth != 0 && !abandoned(&call) {
        context.set_result(call.perform());
        return;
    }
    if let Some(again) = patch::note(site, call.nr) {
        context.resume_at(again);
        return;
    }
    if !is_interesting(call.nr) {
        context.set_result(call.perform());
        return;
    }
    *depth = 1;
    // SAFETY: the depth is ours, so the agent's stack is free and `call` is the only frame.
    let verdict = unsafe {
        *arch::RUNAHEAD_ENTRY_SP.get() = call.stack;
        arch::dispatch_on_agent_stack(&mut call)
    };
    *depth = 0;
    let Verdict { ret, native } = verdict;
    context.set_result(if native != 0 { call.perform() } else { ret });
}

/// A program that jumps out of a signal handler leaves the depth behind; its stack then lies above
/// the point where it entered the agent.
fn abandoned(call: &Call) -> bool {
    // SAFETY: the armed thread; the reference ends here.
    call.stack > unsafe { *arch::RUNAHEAD_ENTRY_SP.get() }
}

fn of_the_plane(call: &Call, site: u64, context: &mut Context) {
    match call.nr {
        // SAFETY: the program asks for it with this very stack pointer.
        nr::RT_SIGRETURN => unsafe { arch::sigreturn(call.stack) },
        nr::CLONE | nr::FORK | nr::VFORK | nr::CLONE3 => clone::follow(call, site, context),
        nr::RT_SIGACTION => context.set_result(masks::sigaction(call)),
        nr::RT_SIGPROCMASK => {
            let ret = masks::sigprocmask(call);
            context.mask = masks::current_mask();
            context.set_result(ret);
        }
        nr::SIGALTSTACK => {
            let ret = call.perform();
            if ret == 0 && call.args[0] != 0 {
                // SAFETY: the kernel has just read the three words of the program's stack_t there.
                context.stack = unsafe { (call.args[0] as *const [u64; 3]).read_unaligned() };
            }
            context.set_result(ret);
        }
        nr::ARCH_PRCTL => {
            context.set_result(call.perform());
            note_thread();
        }
        _ => context.set_result(masks::with_temporary_mask(call)),
    }
}
