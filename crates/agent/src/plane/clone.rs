//! Children and threads. A plain fork is made where its signal has brought us: the child has a copy
//! of the frame. Where parent and child share memory, or the child gets a stack of its own, the
//! call is made from the agent's text with the program's own registers and stack, and goes straight
//! back to the program in both.
//!
//! Dispatch is off in the child by the kernel's rule. A forked child also finds the "alive" mark
//! wiped; a vfork child shares the parent's memory, so the mark is cleared before and set again by
//! the parent's way back (the trampolines in `arch`).

use linux_raw_sys::general as k;

use super::{Call, before_child, masks, patch, retire, set_alive};
use crate::arch::{self, CLONE_SITES, Context};
use crate::owned::Owned;
use crate::sys::{self, nr};

/// Call sites that have a trampoline, by index.
static SITES: Owned<[u64; CLONE_SITES]> = Owned::new([0; CLONE_SITES]);

/// Sends the program through the trampoline of its call site.
pub(super) fn follow(call: &Call, site: u64, context: &mut Context) {
    let flags = match call.nr {
        nr::FORK => 0,
        nr::VFORK => k::CLONE_VM | k::CLONE_VFORK,
        nr::CLONE => call.args[0] as u32,
        // struct clone_args begins with the flags; one that cannot be read is the kernel's to refuse.
        _ => match masks::copy_in::<u64>(call.args[0]) {
            Ok(flags) => flags as u32,
            Err(errno) if errno.0 == sys::EFAULT => 0,
            // Not to be known (a filter around us): a thread is what asks for most care.
            Err(_) => k::CLONE_VM | k::CLONE_SETTLS,
        },
    };
    let shares_memory = flags & k::CLONE_VM != 0;
    let waits = flags & k::CLONE_VFORK != 0;
    if shares_memory && !waits && flags & k::CLONE_SETTLS == 0 {
        // Nothing would tell the new thread from this one.
        retire();
        return context.resume_at(site);
    }
    if shares_memory && !waits {
        patch::another_thread();
    } else {
        before_child();
    }
    let own_stack = call.nr == nr::CLONE && call.args[1] != 0 || call.nr == nr::CLONE3;
    if !shares_memory && !own_stack {
        // The child has a copy of this very frame, and returns from the signal as we do.
        let ret = call.perform();
        context.set_result(ret);
        if ret == 0 {
            context.mask = masks::in_child(context.mask);
        }
        return;
    }
    from_the_program(site, context);
    if shares_memory && waits && context.after() != site {
        set_alive(false);
    }
}

/// Has the call made with the program's own registers and stack, by the trampoline of its site.
pub(super) fn from_the_program(site: u64, context: &mut Context) {
    match trampoline(site) {
        Some(index) => context.resume_at(arch::clone_site(index)),
        None => {
            // Too many sites to follow: the program makes the call itself, and every later one.
            retire();
            context.resume_at(site);
        }
    }
}

fn trampoline(site: u64) -> Option<usize> {
    // SAFETY: the armed thread, in the signal handler; both references end here.
    let (sites, returns) = unsafe { (SITES.get(), arch::RUNAHEAD_CLONE_RETURN.get()) };
    let index = sites.iter().position(|&s| s == site || s == 0)?;
    sites[index] = site;
    returns[index] = site + 2;
    Some(index)
}
