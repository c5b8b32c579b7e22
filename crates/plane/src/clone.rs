//! Children and threads. A plain fork is made where its signal has brought us: the child has a copy
//! of the frame. Where parent and child share memory, or the child gets a stack of its own, the
//! call is made from the agent's text with the program's own registers and stack (a trampoline),
//! and goes straight back to the program in both, by way of [`runahead_after_clone`].
//!
//! Dispatch is off in the child by the kernel's rule, and comes on again there:
//! - a forked child finds its thread in its copy of memory, and nothing else of the session;
//! - a thread moves into a spare place;
//! - a vfork child borrows its parent's thread while the parent waits. Only the plane's own calls
//!   are looked at there: the child shares memory, but not descriptors, with its parent.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering::*};

use linux_raw_sys::general as k;

use super::alternate_stack::{self, Altstack};
use super::thread::{self, Thread};
use super::{
    call_reporting, exec, kernel_signals, patch, policy, program_faults, signal_masks, thread_stop,
    trampolines,
};
use crate::arch::{self, Context};
use crate::intercepted_call::Call;
use crate::interception_end::{retire, retire_all_threads, retire_this};
use crate::interception_state::{PROCESS, is_retired, stands_down};
use crate::sys::{self, nr};

/// The thread that forks: the one that the child has.
static FORKING: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
/// The alternate stack of the thread that forks, which the child has.
static ALTERNATE_IN_PARENT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Sends the program through the trampoline of its call site. (Where it retires instead, the mask
/// to go on with is the caller's to see to.)
pub(super) fn follow(call: &Call, site: u64, context: &mut Context) {
    let thread = call.thread;
    thread.makes.set(call.nr);
    if thread.lent.get().is_some() {
        // A vfork child with a child of its own: both go on natively.
        return go_on_natively(thread, site, context);
    }
    let flags = match call.nr {
        nr::FORK => 0,
        nr::VFORK => k::CLONE_VM | k::CLONE_VFORK,
        nr::CLONE => call.args[0] as u32,
        // struct clone_args begins with the flags; one that cannot be read is the kernel's to
        // refuse.
        _ => match sys::copy_in::<u64>(call.args[0]) {
            Ok(flags) => flags as u32,
            Err(errno) if errno.0 == sys::EFAULT => 0,
            // Not to be known (a filter around us): a thread is what asks for most care.
            Err(_) => k::CLONE_VM | k::CLONE_SETTLS,
        },
    };
    if flags & k::CLONE_THREAD == 0
        && let Some(policy) = policy::events()
    {
        policy.before_child();
    }
    let shares_memory = flags & k::CLONE_VM != 0;
    let waits = flags & k::CLONE_VFORK != 0;
    let tells_apart = arch::tells_threads_apart() && flags & k::CLONE_SETTLS != 0;
    if shares_memory && !waits && !tells_apart {
        // Nothing would tell the new thread from this one.
        retire();
        return context.resume_at(site);
    }
    if shares_memory && !waits {
        signal_masks::makes_a_thread(thread);
        patch::another_thread();
        if !thread::expect_thread() {
            retire_all_threads();
            return context.resume_at(site);
        }
        thread.expects.set(true);
    }
    let own_stack = call.nr == nr::CLONE && call.args[1] != 0 || call.nr == nr::CLONE3;
    if !shares_memory && !own_stack {
        return fork_here(call, context);
    }
    if !shares_memory {
        let words = thread.alternate.get().words();
        ALTERNATE_IN_PARENT.iter().zip(words).for_each(|(at, word)| at.store(word, Relaxed));
        thread::prepare_spare();
    }
    from_the_program(call.thread, site, context);
}

/// A vfork child goes on natively, from `site`, and its parent does not.
pub(super) fn go_on_natively(thread: &Thread, site: u64, context: &mut Context) {
    thread::disarm_dispatch();
    context.mask = signal_masks::in_native_borrower(thread, context.mask);
    context.stack = thread.alternate.get().words();
    context.resume_at(site);
}

/// A child that has a copy of this very frame, and returns from the signal as we do.
fn fork_here(call: &Call, context: &mut Context) {
    let thread = call.thread;
    let mask = sys::set_mask(!0);
    let ret = call.perform();
    context.set_result(ret);
    if ret != 0 {
        call_reporting::plane_call_returned(call.nr, ret);
    }
    let ends = ret == 0 && stands_down();
    if ends {
        // Of several threads this is the only one here: nothing is left to be kept from it.
        thread::forget_others(thread);
        retire_this();
    }
    if ends || ret == 0 && !is_retired() && !start_in_child(thread) {
        context.mask = signal_masks::in_child(thread, context.mask);
    }
    sys::set_mask(mask);
}

/// A forked child, with `thread` for its only one: interception goes on here.
fn start_in_child(thread: &'static Thread) -> bool {
    PROCESS.store(sys::getpid(), Relaxed);
    signal_masks::in_new_process();
    program_faults::in_new_process();
    patch::in_new_process();
    trampolines::in_new_process();
    thread_stop::in_new_process();
    thread::forget_others(thread);
    if let Some(policy) = policy::events() {
        policy.in_child();
    }
    note_that_memory_is_ours();
    signal_masks::take_again(thread);
    thread.move_in() && thread.arm().is_ok()
}

/// The thread of a process that was forked by the agent itself.
pub(super) fn survivor() -> Option<&'static Thread> {
    // SAFETY: set from a static reference, or null.
    unsafe { FORKING.load(Relaxed).as_ref() }
}

/// Remembers which thread is about to be forked by the agent.
pub fn note_forking(thread: &'static Thread) {
    FORKING.store(core::ptr::from_ref(thread).cast_mut(), Relaxed);
}

/// Has a clone made with the program's own registers and stack, by the trampoline of its site.
fn from_the_program(thread: &'static Thread, site: u64, context: &mut Context) {
    let mask = sys::set_mask(!0);
    let index = trampolines::of_clones(site);
    sys::set_mask(mask);
    go_by(index.map(arch::clone_site), thread, site, context);
}

fn go_by(trampoline: Option<u64>, thread: &'static Thread, site: u64, context: &mut Context) {
    match trampoline {
        Some(address) => context.resume_at(address),
        None => {
            // Too many sites to follow: the program makes the call itself, and every later one.
            retire();
            thread.disarm();
            context.resume_at(site);
        }
    }
}

/// A mark on the pages that the kernel clears in a forked child: while it stands, memory is that of
/// [`PROCESS`].
fn mark() -> &'static AtomicU8 {
    // SAFETY: the last byte of the table, of which no slot in use is part; an atomic byte.
    unsafe { &*arch::RUNAHEAD_THREADS.as_ptr().cast::<AtomicU8>().add(arch::THREADS_BYTES - 1) }
}

/// Sets the [`mark`], which the kernel clears in a forked child.
pub(super) fn note_that_memory_is_ours() {
    mark().store(1, Relaxed);
}

/// After a clone from a trampoline, on the agent's stack of `thread`, whose depth is held.
///
/// `thread` is the caller's own, or the spare place in a child that is in no table yet.
pub(crate) extern "C" fn runahead_after_clone(thread: *const Thread, result: i64) {
    // SAFETY: the entry code passes a thread from the table, or the spare one that it has taken.
    let thread: &'static Thread = unsafe { &*thread };
    if thread.is_spare() {
        adopt(thread, 0);
        thread::expected_came();
        return thread.depth.set(0);
    }
    if thread.expects.take() && result < 0 {
        thread::expected_came();
    }
    if result == 0 {
        // A vfork child: its parent waits. The depth stays, so that no policy is asked, but for one
        // that wants to be.
        thread.lend(signal_masks::action_to_lend());
        signal_masks::take_again(thread);
        let _ = thread::arm_dispatch();
        if policy::events().is_some_and(|policy| policy.sees_borrowers()) {
            thread.depth.set(0);
        }
        return;
    }
    thread.take_back();
    exec::give_memory_back(thread);
    call_reporting::plane_call_returned(thread.makes.get(), result);
    thread.depth.set(0);
}

/// Lets this thread move into a spare place: a new thread, one that the plane had not heard of, or
/// the only one of a forked child. `stack` is where the program is. False: it goes on natively.
pub(super) fn adopt(thread: &'static Thread, stack: u64) -> bool {
    let mask = sys::set_mask(!0);
    let moved = move_in(thread, stack, mask);
    if moved {
        thread::prepare_spare();
        sys::set_mask(kernel_signals::without_sigsys(mask));
    } else {
        // It is on this place's stack that we are, so it cannot be given to anyone else: it is
        // lost.
        sys::set_mask(mask);
    }
    moved
}

fn move_in(thread: &'static Thread, stack: u64, mask: u64) -> bool {
    if is_retired() {
        return false;
    }
    if sys::getpid() != PROCESS.load(Relaxed) {
        // Another process that shares our memory is none of ours.
        if mark().load(Relaxed) != 0 {
            return false;
        }
        thread.blocked.set(kernel_signals::has_sigsys(mask) || signal_masks::new_threads_block());
        let words = ALTERNATE_IN_PARENT.each_ref().map(|word| word.load(Relaxed));
        thread.alternate.set(Altstack::from_words(words));
        thread.take_signals();
        return start_in_child(thread);
    }
    thread.alternate.set(alternate_stack::of_kernel());
    if thread.alternate.get().holds(stack) {
        return false;
    }
    thread.blocked.set(kernel_signals::has_sigsys(mask) || signal_masks::new_threads_block());
    let moved = thread.move_in() && thread.arm().is_ok();
    if moved {
        thread.take_signals();
        if let Some(policy) = policy::events() {
            policy.thread_begins();
        }
    } else {
        // As in `expect_thread`: all or none.
        retire_all_threads();
    }
    moved
}
