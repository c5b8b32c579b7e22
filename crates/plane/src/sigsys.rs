//! The SIGSYS by which dispatch delivers a call, and others.
//!
//! The handler runs on the thread's stack for signals (`alternate_stack`): the program's needs no
//! room, and its alternate one is not touched. The kernel kills the process if SIGSYS is blocked
//! when a call is dispatched. So the handler does not block it, and `signal_masks` keeps it out of
//! every mask.

use super::dispatch_signal::{SYS_USER_DISPATCH, SigsysInfo};
use super::native_calls::{
    has_held_signals, keep_changed_mask, keep_mask, keep_mask_if_left, made_by_the_program,
    perform, takes_its_stack,
};
use super::thread::{self, Thread};
use super::{
    call_reporting, clone, exec, kernel_signals, patch, policy, sent_signals, sigaltstack_call,
    signal_handlers, signal_masks, sigsys_forwarding, temporary_masks, thread_stop,
};
use crate::arch::{self, Context, pkeys};
use crate::call_routing::{is_asked_first, is_interesting, is_unseen};
use crate::intercepted_call::Call;
use crate::interception_end::{leave_for_good, retire};
use crate::interception_state::{is_ours, is_retired, reports, sees_all, skips_reports};
use crate::plane_calls::{is_checked, is_the_planes};
use crate::policy::Verdict;
use crate::sys::{self, nr};

/// Request of ptrace(2) by which a process asks to be traced.
const PTRACE_TRACEME: u64 = 0;

/// `si_arch` of a 64-bit call (linux/audit.h).
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// Our handler, entered by way of [`pkeys`].
pub(crate) extern "C" fn runahead_signal(
    _signal: i32,
    info: *const SigsysInfo,
    context: *mut Context,
) {
    // SAFETY: the kernel passes both, live until we return.
    let (info, context) = unsafe { (&*info, &mut *context) };
    if reports() {
        context.note_bases();
    }
    if info.code != SYS_USER_DISPATCH {
        other(info, context);
    } else {
        // SAFETY: this signal's own frame.
        let rights = unsafe { pkeys::Rights::of(context) };
        answer(info, context);
        // SAFETY: the same.
        unsafe { rights.leave(context) };
    }
    if reports() {
        context.set_bases();
    }
    if is_retired()
        && let Some(thread) = thread::current().filter(|thread| !thread.armed.get())
    {
        context.stack = thread.alternate.get().words();
    }
}

/// A SIGSYS that is no call.
fn other(info: &SigsysInfo, context: &mut Context) {
    let thread = thread::current();
    let carried = u64::from(info.call as u32) | u64::from(info.arch) << 32;
    let is_sent = |what| info.code == kernel_signals::SI_QUEUE && carried == what;
    let is_to_stop = is_sent(sent_signals::STOP);
    let is_poked = carried == sent_signals::POKE
        && (info.code == kernel_signals::SI_QUEUE || info.code == kernel_signals::SI_TIMER);
    let called_off = is_sent(sent_signals::CALL_OFF) && is_retired();
    let mask = sys::set_mask(!0);
    // First, as what is lost may be the call behind one that was made, of which the policy has not
    // been told.
    if let Some(thread) = thread {
        make_a_lost_call_again(thread, context);
    }
    match called_off {
        // It is not to come again.
        true => call_reporting::interrupted(thread, context),
        false => call_reporting::stopped(thread, context),
    }
    if let Some(thread) = thread {
        if is_to_stop {
            thread_stop::arrive(thread, context);
        }
        if is_poked
            && !is_retired()
            && let Some(policy) = policy::events()
        {
            match is_ours(context.after()) {
                true => policy.poke_missed(),
                false => policy.poked(context),
            }
        }
    }
    if is_sent(sent_signals::END) {
        return asked_to_end(context, mask);
    }
    if is_to_stop || is_poked {
        // The return from our signal sets the mask, which may be another now.
        return;
    }
    if let Some(thread) = thread.filter(|_| !called_off) {
        call_reporting::before_a_signal(thread, context);
    }
    sys::set_mask(if reports() { context.mask } else { mask });
    match thread {
        Some(thread) if called_off => {
            leave_for_good(thread);
            keep_mask(context);
        }
        _ if called_off => {}
        _ => {
            let at = core::ptr::from_ref(info) as u64;
            sigsys_forwarding::forward(thread, info.code, at, context);
        }
    }
}

/// Another process asks for the end of interception. `mask` is the thread's, and all signals are
/// blocked.
fn asked_to_end(context: &mut Context, mask: u64) {
    if is_retired() {
        return;
    }
    if let Some(policy) = policy::events() {
        policy.asked_to_end();
    }
    if is_retired() {
        sys::set_mask(thread::current().map_or(mask, |thread| thread.as_believed(mask)));
        keep_mask(context);
    }
}

/// A call that was dispatched.
fn answer(info: &SigsysInfo, context: &mut Context) {
    let thread = thread::current();
    let site = context.after() - 2;
    let Some(thread) = thread else {
        // Dispatch is on for a thread that has lost its place: never again.
        thread::disarm_dispatch();
        return context.resume_at(site);
    };
    if is_retired() {
        leave_for_good(thread);
        if call_reporting::is_trap(site) {
            keep_mask(context);
            return call_reporting::finish(thread, context, false);
        }
        return natively(site, context);
    }
    if info.arch != AUDIT_ARCH_X86_64 {
        // The 32-bit entry (int 0x80), which only the program itself can use.
        if reports() && call_reporting::is_not_to_be_lost_yet(thread, site, context) {
            return;
        }
        retire();
        return natively(site, context);
    }
    if call_reporting::is_trap(site) {
        return call_reporting::returned(thread, context);
    }
    let mut call = context.call(thread);
    if call.nr == nr::PTRACE && call.args[0] == PTRACE_TRACEME && thread.lent.get().is_some() {
        // A tracer would see our signals, and the child must wait for it meanwhile.
        return clone::go_on_natively(thread, site, context);
    }
    let is_undisturbed = || thread.depth.get() == 0;
    if reports() {
        if skips_reports()
            && is_undisturbed()
            && !is_the_planes(call.nr)
            && patch::is_hot(site)
            && let Some(again) = patch(&call, site)
        {
            context.resume_at(again);
            return keep_mask_if_left(thread, context);
        }
        if is_undisturbed() && !is_the_planes(call.nr) {
            if is_unseen(call.nr) {
                return perform(&call, site, context);
            }
            if is_asked_first(call.nr) && dispatch(&mut call, site, context) {
                return;
            }
        }
        return reported(&call, site, context);
    }
    if is_the_planes(call.nr) {
        if is_checked(call.nr)
            && is_undisturbed()
            && patch::is_hot(site)
            && let Some(again) = patch(&call, site)
        {
            context.resume_at(again);
            return keep_mask_if_left(thread, context);
        }
        return of_the_plane(&call, site, context);
    }
    // A policy that sees all has its say of the others.
    let is_seen = sees_all() && call.nr != nr::MUNMAP;
    if !is_seen && takes_its_stack(&call) {
        // A thread that is about to end does, and a coroutine what is below it: a patched site
        // would need that.
        return perform(&call, site, context);
    }
    if !is_undisturbed() {
        return perform(&call, site, context);
    }
    if patch::is_hot(site)
        && let Some(again) = patch(&call, site)
    {
        context.resume_at(again);
        return keep_mask_if_left(thread, context);
    }
    if !is_interesting(call.nr) {
        return perform(&call, site, context);
    }
    dispatch(&mut call, site, context);
}

/// A call that was dispatched, for a policy that all are reported to.
fn reported(call: &Call, site: u64, context: &mut Context) {
    // A handler may have jumped out of the asking.
    call.thread.is_asking.set(false);
    if temporary_masks::MASK_CALLS.contains(&call.nr) || !is_the_planes(call.nr) {
        return call_reporting::answer(call, site, context);
    }
    let is_exec = matches!(call.nr, nr::EXECVE | nr::EXECVEAT) && call.thread.lent.get().is_none();
    if is_exec && !thread_stop::keep_others_from_stopping() {
        keep_mask(context);
        context.resume_at(site);
        return thread_stop::wait(call.thread, context);
    }
    if !call_reporting::plane_call(call, site, context) {
        of_the_plane(call, site, context);
        call.thread.depth.set(0);
        report_plane_call(call, context);
    }
    if is_exec {
        thread_stop::let_others_stop();
    }
}

/// Reports that the plane has made one of its own calls.
fn report_plane_call(call: &Call, context: &Context) {
    // What makes a child or a thread says so itself.
    let is_child = matches!(call.nr, nr::CLONE | nr::FORK | nr::VFORK | nr::CLONE3);
    if !is_child && context.is_answered() {
        call_reporting::plane_call_returned(call.nr, context.result());
    }
}

/// Has a call made that was to be dispatched when this other SIGSYS was already under way: of two
/// the kernel delivers the first. (Where that is the call's, it is the other that gets lost.)
fn make_a_lost_call_again(thread: &Thread, context: &mut Context) {
    if thread.armed.get()
        && let Some(site) = context.unanswered_call()
        && !is_ours(site)
    {
        context.resume_at(site);
    }
}

/// The program makes the call itself, and every later one.
fn natively(site: u64, context: &mut Context) {
    keep_mask(context);
    context.resume_at(site);
}

/// Arguments and result of `patch` on the agent's stack.
struct PatchWork {
    site: u64,
    number: u64,
    again: Option<u64>,
}

/// Patches the site, on the agent's stack, which is the larger one.
fn patch(call: &Call, site: u64) -> Option<u64> {
    extern "C" fn on_agent_stack(work: u64) {
        // SAFETY: `patch` passes its own, which lives until we return, and holds the depth.
        let work = unsafe { &mut *(work as *mut PatchWork) };
        // To write code the program may have given a key that keeps itself from it.
        work.again = pkeys::with_all_rights(|| patch::patch_site(work.site, work.number));
    }
    // What a stub puts below the red zone, and a little more.
    const ROOM: u64 = 192;
    if sys::copy_in::<u64>(call.stack.wrapping_sub(ROOM)).is_err() {
        return None;
    }
    let thread = call.thread;
    let mut work = PatchWork { site, number: call.nr, again: None };
    // A handler of the program's that came to the site now would wait there for us.
    let mask = sys::set_mask(!0);
    thread.depth.set(1);
    let at = &raw mut work as u64;
    // SAFETY: the depth is ours.
    unsafe { thread.on_stack(call.stack, at, on_agent_stack) };
    thread.depth.set(0);
    // Returning to the patched site sets it, and what has come meanwhile finds the program there.
    if work.again.is_none() || thread.has_left() {
        sys::set_mask(mask);
    }
    work.again
}

/// Asks the policy of a call as a patched site does, and does what it says. False: it wants the
/// frame, too.
fn dispatch(call: &mut Call, site: u64, context: &mut Context) -> bool {
    let thread = call.thread;
    thread.depth.set(1);
    thread.is_asking.set(reports());
    thread.is_disturbed.set(false);
    let stack = call.stack;
    let mut work = DispatchWork { call, verdict: Verdict::NATIVE, waits_for_signals: false };
    let at = &raw mut work as u64;
    // SAFETY: the depth is ours.
    unsafe { thread.on_stack(stack, at, on_agent_stack) };
    let DispatchWork { verdict, waits_for_signals, .. } = work;
    thread.depth.set(0);
    thread.is_asking.set(false);
    if waits_for_signals {
        context.mask = thread.take_held_signals().unwrap_or(context.mask);
        context.resume_at(site);
        return true;
    }
    if is_retired() {
        thread.release_held_signals();
    }
    let mask_after_held = thread.take_held_signals();
    match verdict {
        // A stop has interrupted it, as nothing of the program's has.
        Verdict { ret, reaction: policy::Reaction::Answer }
            if reports() && thread.is_disturbed.take() && ret == sys::fail(sys::EINTR) =>
        {
            keep_mask(context);
            context.mask = mask_after_held.unwrap_or(context.mask);
            context.resume_at(site);
            thread_stop::wait(thread, context);
            return true;
        }
        Verdict { ret, reaction: policy::Reaction::Answer } => {
            context.set_result(ret);
            keep_changed_mask(context);
            match thread.go_on_at.take() {
                0 => {}
                stack => context.resume_on(stack),
            }
        }
        // Interception was given up: the program makes the call itself, and any later one, so that
        // what it is about to set up (a filter, say) is not in the way of our own return.
        _ if is_retired() => natively(site, context),
        // They come first.
        _ if mask_after_held.is_some() => context.resume_at(site),
        Verdict::TRAP if reports() => return false,
        _ => perform(call, site, context),
    }
    if let Some(mask) = mask_after_held {
        context.mask = mask;
    }
    true
}

/// Arguments and result of `dispatch` on the agent's stack.
struct DispatchWork<'a> {
    call: &'a mut Call,
    verdict: Verdict,
    /// Some have come before the policy was asked, and come first.
    waits_for_signals: bool,
}

extern "C" fn on_agent_stack(work: u64) {
    // SAFETY: `dispatch` passes its own, which lives until we return, and holds the depth.
    unsafe {
        let work = &mut *(work as *mut DispatchWork<'_>);
        if reports() {
            // From here on they wait until the call is over, if they may. (The mask of what came
            // before is in the frame.)
            work.call.thread.allow_held_signals(signal_handlers::may_hold_signals(work.call.nr));
            work.waits_for_signals = has_held_signals();
        }
        if !work.waits_for_signals {
            work.verdict = arch::dispatch(work.call);
        }
    }
}

/// Makes one of the plane's own calls. Not inlined: other calls need none of its stack.
#[inline(never)]
fn of_the_plane(call: &Call, site: u64, context: &mut Context) {
    let thread = call.thread;
    match call.nr {
        nr::RT_SIGRETURN => {
            thread.depth.set(if reports() { 0 } else { thread.depth.get() });
            // SAFETY: the program asks for it with this very stack pointer, at which the kernel
            // finds the frame; where there is none, both it and we fault. (The frame is only read:
            // its memory may not be writable any more.)
            unsafe {
                let mut frame = (*(call.stack as *const Context)).copy();
                signal_masks::restore_from(thread, &mut frame);
                sigaltstack_call::restore_from(thread, &mut frame, call.stack);
                arch::sigreturn(core::ptr::from_ref(&frame) as u64)
            }
        }
        nr::CLONE | nr::FORK | nr::VFORK | nr::CLONE3 => {
            clone::follow(call, site, context);
            keep_mask_if_left(thread, context);
        }
        nr::EXECVE | nr::EXECVEAT => {
            context.set_result(exec::exec(call));
            keep_mask_if_left(thread, context);
        }
        nr::RT_SIGACTION => {
            context.set_result(signal_masks::sigaction(call));
            keep_mask_if_left(thread, context);
        }
        nr::RT_SIGPROCMASK => {
            let (ret, mask) = signal_masks::sigprocmask(call);
            context.set_result(ret);
            match mask {
                Some(mask) => context.mask = mask,
                None => keep_mask_if_left(thread, context),
            }
        }
        nr::SIGALTSTACK => {
            match sigaltstack_call::sigaltstack(call) {
                Some(ret) => context.set_result(ret),
                None => {
                    retire();
                    context.resume_at(site);
                }
            }
            keep_mask_if_left(thread, context);
        }
        nr::ARCH_PRCTL => {
            context.set_result(call.perform());
            thread.rename();
            keep_mask_if_left(thread, context);
        }
        nr::EXIT if thread.lent.get().is_none() => {
            let mask = sys::set_mask(!0);
            let stack = thread.alternate.get();
            if let Some(policy) = policy::events() {
                policy.thread_ends();
            }
            thread.leave();
            context.end_thread(thread);
            context.stack = stack.words();
            context.mask = thread.as_believed(mask);
        }
        nr::EXIT => perform(call, site, context),
        _ if temporary_masks::has_plain_mask(call) && made_by_the_program(site, context) => {}
        _ => {
            context.set_result(temporary_masks::with_temporary_mask(call));
            keep_mask(context);
        }
    }
}
