//! Calls whose results are reported to a policy ([`ReportingPolicy`](crate::ReportingPolicy)).
//!
//! The call arrives as a signal. The policy has its say, with signals blocked, and the program
//! makes the call itself, from a trampoline (`arch`) with its own registers and mask, so that it
//! waits and is interrupted as ever. A second call there traps, and the policy is told. So does the
//! program wait in front of a call that the policy does not want to be made yet. What is needed for
//! that lies below the program's red zone meanwhile. A handler of the program's that comes in
//! between finds the program in front of its call or behind it, and the policy told.

use core::sync::atomic::AtomicU32;

use linux_raw_sys::general as k;

use crate::arch::{self, CallStage, Context, RED_ZONE};
use crate::call_restart::{self, InterruptedCall, SubstituteData};
use crate::intercepted_call::Call;
use crate::interception_state::reports;
use crate::policy::ReportingPolicy;
use crate::policy::{self, Next, PlaneCallVerdict, ReportingVerdict};
use crate::sys::{self, nr};
use crate::thread::Thread;
use crate::thread_stop;
use crate::{native_calls, temporary_masks};

/// Record below the red zone while a call is under way.
#[derive(Clone, Copy)]
#[repr(C)]
struct CallRecord {
    /// The call's number.
    number: u64,
    /// The address behind it.
    back: u64,
    /// 1: it is not made yet, but waits ([`ReportingVerdict::Wait`]).
    waits: u64,
    arguments: [u64; 6],
    /// Data that the arguments point to in place of the program's.
    substitutes: SubstituteData,
}

const _: () = assert!(size_of::<CallRecord>() == native_calls::RECORD_BYTES);

/// Puts the call that traps into a page of its own.
pub(super) fn prepare() -> sys::Result<()> {
    use crate::sys::PAGE;
    if arch::trap() != 0 {
        return Ok(());
    }
    let page = sys::map_anywhere(PAGE as usize)?;
    // SAFETY: new memory of ours, which no thread executes yet.
    unsafe {
        (page as *mut [u8; 4]).write(arch::TRAP);
        sys::protect(page, PAGE, k::PROT_READ | k::PROT_EXEC)?;
    }
    arch::set_trap(page);
    Ok(())
}

/// Does `work` while no handler of the program's can run.
fn quietly(work: impl FnOnce()) {
    let mask = sys::set_mask(!0);
    work();
    sys::set_mask(mask);
}

/// Asks the policy about a call that the plane makes itself. Returns true if the call is not to be
/// made now.
pub(super) fn plane_call(call: &Call, site: u64, context: &mut Context) -> bool {
    let Some(policy) = policy::reporting() else { return false };
    let of_frame = context.mask;
    if native_calls::keep_mask_unless_signals_held(context) {
        // They come first.
        context.resume_at(site);
        return true;
    }
    match plane_call_in_front(policy, call, site, context) {
        PlaneCallVerdict::Proceed => {}
        PlaneCallVerdict::ResumeFrame => return true,
        PlaneCallVerdict::Wait(word) => {
            let_go(call, site, Some(word), context);
            return true;
        }
    }
    // From here on handlers run on top of this, which they may leave by a jump.
    call.thread.depth.set(1);
    sys::set_mask(core::mem::replace(&mut context.mask, of_frame));
    false
}

/// Asks the policy, with the thread in front of its call at `site`.
fn in_front(
    policy: &dyn ReportingPolicy,
    call: &Call,
    site: u64,
    context: &mut Context,
) -> ReportingVerdict {
    let behind = context.after();
    context.resume_at(site);
    let verdict = policy.reported(call, context);
    if !matches!(verdict, ReportingVerdict::ResumeFrame) {
        context.resume_at(behind);
    }
    verdict
}

/// Asks the policy about a call that the plane makes itself, as [`in_front`] does.
fn plane_call_in_front(
    policy: &dyn ReportingPolicy,
    call: &Call,
    site: u64,
    context: &mut Context,
) -> PlaneCallVerdict {
    let behind = context.after();
    context.resume_at(site);
    let verdict = policy.plane_call(call, context);
    if !matches!(verdict, PlaneCallVerdict::ResumeFrame) {
        context.resume_at(behind);
    }
    verdict
}

/// Reports that one of the plane's own calls has returned.
pub(super) fn plane_call_returned(number: u64, result: i64) {
    if let (true, Some(policy)) = (reports(), policy::reporting()) {
        quietly(|| policy.plane_call_returned(number, result));
    }
}

/// A call that was dispatched at `site`, and is not the plane's own.
pub(super) fn answer(call: &Call, site: u64, context: &mut Context) {
    let Some(policy) = policy::reporting() else {
        return native_calls::perform(call, site, context);
    };
    if native_calls::keep_mask_unless_signals_held(context) {
        return context.resume_at(site);
    }
    match in_front(policy, call, site, context) {
        ReportingVerdict::ResumeFrame => {}
        ReportingVerdict::Report => let_go(call, site, None, context),
        ReportingVerdict::Answer(ret) => context.set_result(ret),
        ReportingVerdict::Wait(word) => let_go(call, site, Some(word), context),
        // Interception was given up for it: the program makes it itself.
        ReportingVerdict::Native if crate::interception_state::is_retired() => {
            context.mask = call.thread.as_believed(context.mask);
            context.resume_at(site);
        }
        ReportingVerdict::Native => {
            sys::set_mask(context.mask);
            native_calls::perform(call, site, context);
        }
    }
}

/// The thread has come to a call at `site` with which the process is lost to the policy. True: not
/// now, or somewhere else.
pub(super) fn is_not_to_be_lost_yet(
    thread: &'static Thread,
    site: u64,
    context: &mut Context,
) -> bool {
    // None that the policy could know.
    let call = Call { nr: policy::OF_ANOTHER_ABI, ..context.call(thread) };
    let Some(policy) = policy::reporting() else { return false };
    if native_calls::keep_mask_unless_signals_held(context) {
        context.resume_at(site);
        return true;
    }
    match plane_call_in_front(policy, &call, site, context) {
        // Its arguments are in other registers than those of our calls, all of which are to stay.
        PlaneCallVerdict::Wait(word) => in_place(&call, site, Some(word), context),
        PlaneCallVerdict::ResumeFrame => {}
        PlaneCallVerdict::Proceed => {
            sys::set_mask(context.mask);
            return false;
        }
    }
    true
}

/// A SIGSYS has come that is not ours, and is to have its effect where the thread is when the
/// outcome is known. All signals are blocked.
pub(super) fn before_a_signal(thread: &'static Thread, context: &mut Context) {
    let is_the_programs = reports() && !crate::interception_state::is_ours(context.after());
    if let (true, Some(policy)) = (is_the_programs, policy::reporting()) {
        thread_stop::while_stopped(thread, context, |context| {
            policy.fault(k::SIGSYS as i32, context)
        });
    }
}

/// Has the program make the call, or wait on a word, and come back.
fn let_go(call: &Call, site: u64, word: Option<&'static AtomicU32>, context: &mut Context) {
    if word.is_some() {
        call_restart::hold_back(call, site);
    }
    let bytes = size_of::<CallRecord>() as u64;
    let at = call.stack.wrapping_sub(RED_ZONE + bytes);
    // The kernel makes a stack grow to where it writes.
    let args = [k::SIG_BLOCK.into(), 0, at, 8, 0, 0];
    // SAFETY: the kernel writes eight bytes below the red zone, or fails.
    let is_writable = || unsafe { sys::raw(nr::RT_SIGPROCMASK, args) } == 0;
    if native_calls::takes_its_stack(call) || !policy::will_write(at, bytes) || !is_writable() {
        return in_place(call, site, word, context);
    }
    let mut record = CallRecord {
        number: call.nr,
        back: site + 2,
        waits: word.is_some().into(),
        arguments: call.args,
        substitutes: SubstituteData::default(),
    };
    match word {
        None => {
            let there = at + core::mem::offset_of!(CallRecord, substitutes) as u64;
            let (arguments, substitutes) = call_restart::begin(call, site, there);
            record.substitutes = substitutes;
            context.make_reported_call(at, arguments);
        }
        Some(word) => context.make_wait(at, word.as_ptr() as u64),
    }
    // SAFETY: memory of the program's stack, below what it uses, that has just been written to.
    unsafe { (at as *mut CallRecord).write_unaligned(record) };
}

/// Makes the call here, or waits here, where there is no room on the program's stack. Signals wait
/// with it. A wait is short: the thread that must act on a poke may be this one.
fn in_place(call: &Call, site: u64, word: Option<&'static AtomicU32>, context: &mut Context) {
    if let Some(word) = word {
        context.resume_at(site);
        return thread_stop::while_stopped(call.thread, context, |_| {
            const LONGEST_NS: u64 = 2_000_000;
            let longest = [0, LONGEST_NS];
            let args =
                [word.as_ptr() as u64, k::FUTEX_WAIT.into(), 0, longest.as_ptr() as u64, 0, 0];
            // SAFETY: the policy's word, which stays, and a timespec; nothing is written.
            let _ = unsafe { sys::raw(nr::FUTEX, args) };
        });
    }
    // Handlers run on top of this.
    call.thread.depth.set(1);
    sys::set_mask(context.mask);
    call.thread.is_disturbed.set(false);
    let result = match temporary_masks::mask_to_replace(call) {
        Some(_) => temporary_masks::with_temporary_mask(call),
        // SAFETY: the program asked for exactly this call.
        None => unsafe { sys::raw(call.nr, call.args) },
    };
    native_calls::keep_mask(context);
    call.thread.depth.set(0);
    if call.thread.is_disturbed.replace(false) && result == sys::fail(sys::EINTR) {
        context.resume_at(site);
        return thread_stop::wait(call.thread, context);
    }
    context.set_result(result);
    let frame = Some(&mut *context).filter(|frame| call.thread.has_frame(frame));
    if report(call, result, frame) == Next::Again {
        context.make_again(call.nr, call.args, site + 2, call.stack);
    }
}

fn report(call: &Call, result: i64, frame: Option<&mut Context>) -> Next {
    policy::reporting().map_or(Next::GoOn, |policy| policy.after(call, result, frame))
}

/// The call behind a call that was made traps at `site`.
pub(super) fn is_trap(site: u64) -> bool {
    site == arch::trap() && site != 0
}

/// The program has come back from its call, or its wait.
pub(super) fn returned(thread: &'static Thread, context: &mut Context) {
    native_calls::keep_mask(context);
    finish(thread, context, false);
}

/// Resumes the program behind its call, or in front of it. Signals are blocked. If a handler is
/// about to begin, the thread does not go on from here.
pub(super) fn finish(thread: &'static Thread, context: &mut Context, handler_begins: bool) {
    let (CallRecord { number, back, waits, arguments, substitutes }, stack) = record(context);
    let call = Call { nr: number, args: arguments, stack, thread };
    let result = match waits {
        0 => call_restart::end(&call, context.result(), &substitutes),
        _ => context.result(),
    };
    context.go_on_behind(back, stack, result);
    let mut next = || {
        let frame = Some(&mut *context).filter(|frame| !handler_begins && thread.has_frame(frame));
        report(&call, result, frame)
    };
    if waits != 0 || next() == Next::Again {
        context.make_again(number, arguments, back, stack);
    }
}

/// Returns the record that [`let_go`] has left, and the program's stack pointer.
fn record(context: &Context) -> (CallRecord, u64) {
    let at = context.stack_pointer();
    // SAFETY: a reported call is made with this stack pointer, above which handlers write nothing.
    let record = unsafe { (at as *const CallRecord).read_unaligned() };
    (record, at + size_of::<CallRecord>() as u64 + RED_ZONE)
}

/// A signal has come, maybe in the middle of such a call: the program is taken to be in front of it
/// or behind it. Signals are blocked.
pub(super) fn interrupted(thread: Option<&'static Thread>, context: &mut Context) {
    match (thread, context.reported_call_stage()) {
        (Some(thread), Some(CallStage::Made)) => finish(thread, context, true),
        (_, Some(CallStage::Before)) => go_back(context),
        _ => {}
    }
}

/// The signal is ours, and the program is not to see that there was one: what it has interrupted is
/// made anew.
pub(super) fn stopped(thread: Option<&'static Thread>, context: &mut Context) {
    let is_interrupted = context.result() == -i64::from(sys::EINTR);
    match context.reported_call_stage() {
        Some(CallStage::Made) if is_interrupted => {
            if record(context).0.waits == 0 {
                thread.into_iter().for_each(call_restart::note_interrupted);
            }
            go_back(context);
        }
        Some(CallStage::Made)
            if record(context).0.waits == 0
                && thread.is_some_and(|thread| {
                    call_restart::note_partly_written(thread, context.result())
                }) =>
        {
            go_back(context);
        }
        _ => interrupted(thread, context),
    }
}

/// A handler of the program's is about to begin where `context` stands. A call in front of that
/// which only a stop has interrupted is what it interrupts.
pub(super) fn handler_begins(
    thread: Option<&'static Thread>,
    context: &mut Context,
    restarts: bool,
) {
    let Some(thread) = thread.filter(|_| reports()) else { return };
    thread.is_disturbed.set(false);
    if let Some(InterruptedCall { call, result, behind }) =
        call_restart::by_handler(thread, context, restarts)
    {
        context.go_on_behind(behind, call.stack, result);
        // SAFETY: a frame of this thread, which stands behind a call of the program's or a stub's.
        unsafe { arch::to_the_program(context) };
        let _ = report(&call, result, None);
    }
}

/// Puts the thread in front of its call.
fn go_back(context: &mut Context) {
    let (CallRecord { number, back, arguments, .. }, stack) = record(context);
    context.make_again(number, arguments, back, stack);
}
