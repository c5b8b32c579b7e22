//! Calls that a stop has interrupted ([`crate::thread_stop`]), and that the program makes again:
//! they go on as if they had not been interrupted.
//!
//! *Timeouts.* One that is relative would begin anew. What is left of it is given to the kernel in
//! its place. (select(2), pselect(2) and ppoll(2) do so themselves: what is left is in the
//! program's memory. Of a socket's own timeouts, SO_RCVTIMEO and SO_SNDTIMEO, nothing is known
//! here.)
//!
//! *Writes.* One that waits for room has written some of it, and a program that no signal comes to
//! would not be told so. What is left is written, and the result is all of it. (writev(2) and the
//! like are not looked at.)
//!
//! *Signals.* One that comes while the thread stands in front of a call that had begun would find
//! it waiting: for the program the call has been interrupted, or is restarted (signal(7)). So it
//! would find a thread that waits in front of a call because the policy wants it to.
//!
//! *Masks.* A call that has a mask for its own duration is given one without SIGSYS.

use linux_raw_sys::general as k;

use crate::arch::{self, Context};
use crate::intercepted_call::Call;
use crate::reported_call_state::{CallIdentity, CallProgress};

use crate::sys::{self, nr};
use crate::temporary_masks;
use crate::thread::Thread;
use crate::waiting_calls;

/// Data for the kernel in place of what the program's arguments point to. It lies where the call is
/// made.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct SubstituteData {
    /// Rest of a timeout: seconds and nanoseconds.
    left: [u64; 2],
    mask: u64,
    /// Address and bytes of the mask of pselect(2); the rest of the time when nanosleep(2) was
    /// interrupted.
    pair: [u64; 2],
}

const NS: u64 = 1_000_000_000;
const NS_OF_MS: u64 = 1_000_000;

/// A relative timeout: the argument that has it, and what it is.
#[derive(Clone, Copy)]
enum Timeout {
    /// Milliseconds.
    Ms(usize, u64),
    /// The address of a timespec, with so many nanoseconds in it.
    Spec(usize, u64),
}

impl Timeout {
    fn of(call: &Call) -> Option<Self> {
        let args = call.args;
        let (at, is_ms) = match call.nr {
            nr::POLL => (2, true),
            nr::EPOLL_WAIT | nr::EPOLL_PWAIT => (3, true),
            nr::NANOSLEEP => (0, false),
            nr::CLOCK_NANOSLEEP if sleeps(call) => (2, false),
            nr::FUTEX if args[1] as u32 & FUTEX_COMMAND == k::FUTEX_WAIT => (3, false),
            nr::EPOLL_PWAIT2 | nr::SEMTIMEDOP => (3, false),
            nr::RT_SIGTIMEDWAIT => (2, false),
            nr::IO_GETEVENTS => (4, false),
            _ => return None,
        };
        if is_ms {
            let ms = args[at] as i32;
            return (ms > 0).then_some(Timeout::Ms(at, ms as u64 * NS_OF_MS));
        }
        let [seconds, ns] = sys::copy_in::<[u64; 2]>(args[at]).ok().filter(|_| args[at] != 0)?;
        let is_valid = seconds <= i64::MAX as u64 && ns < NS;
        is_valid.then(|| Timeout::Spec(at, seconds.saturating_mul(NS).saturating_add(ns)))
    }

    fn ns(self) -> u64 {
        let (Timeout::Ms(_, ns) | Timeout::Spec(_, ns)) = self;
        ns
    }
}

const FUTEX_COMMAND: u32 = !(k::FUTEX_PRIVATE_FLAG | k::FUTEX_CLOCK_REALTIME);

/// A sleep for some time, by a clock that runs while the process does not (clock_nanosleep(2)).
fn sleeps(call: &Call) -> bool {
    let [clock, flags, ..] = call.args;
    let clocks = [k::CLOCK_REALTIME, k::CLOCK_MONOTONIC, k::CLOCK_BOOTTIME, k::CLOCK_TAI];
    flags as u32 & k::TIMER_ABSTIME == 0 && clocks.contains(&(clock as u32))
}

/// Index of the argument that points to the rest of a sleep, which the kernel writes when a handler
/// interrupts it.
fn rest_argument(call: &Call) -> Option<usize> {
    let at = match call.nr {
        nr::NANOSLEEP => 1,
        nr::CLOCK_NANOSLEEP if sleeps(call) => 3,
        _ => return None,
    };
    (call.args[at] != 0).then_some(at)
}

impl CallProgress {
    fn of_new(identity: CallIdentity, timeout: Option<Timeout>) -> Self {
        let deadline_ns = timeout.map(|timeout| sys::now().saturating_add(timeout.ns()));
        CallProgress {
            identity,
            deadline_ns,
            is_interrupted: false,
            is_held_back: false,
            bytes_written: 0,
        }
    }
}

/// The policy has the thread wait in front of `call`. For the program it waits in the call.
pub fn hold_back(call: &Call, site: u64) {
    let identity = CallIdentity { site, stack: call.stack, number: call.nr, arguments: call.args };
    // It may have begun before, or wait already.
    if call.thread.call_progress.get().is_none_or(|progress| progress.identity != identity) {
        let progress = CallProgress::of_new(identity, Timeout::of(call));
        call.thread.call_progress.set(Some(CallProgress { is_held_back: true, ..progress }));
    }
}

/// The thread is about to make `call`, in front of which it stands, for the kernel: with what
/// arguments, if `substitutes` is at that address.
pub fn begin(call: &Call, site: u64, at: u64) -> ([u64; 6], SubstituteData) {
    let identity = CallIdentity { site, stack: call.stack, number: call.nr, arguments: call.args };
    let has_begun =
        |progress: &CallProgress| progress.identity == identity && !progress.is_held_back;
    let again = call.thread.call_progress.get().filter(has_begun);
    let timeout = Timeout::of(call);
    let first = || CallProgress::of_new(identity, timeout);
    call.thread.call_progress.set(Some(again.unwrap_or_else(first)));
    let (mut args, mut substitutes) = (call.args, SubstituteData::default());
    let field = |offset: usize| at + offset as u64;
    if let Some(CallProgress { bytes_written, .. }) = again {
        // Nothing for all but writes.
        args[1] += bytes_written;
        args[2] -= bytes_written;
    }
    if let (Some(timeout), Some(deadline)) =
        (timeout, again.and_then(|progress| progress.deadline_ns))
    {
        let left = deadline.saturating_sub(sys::now());
        match timeout {
            Timeout::Ms(number, _) => args[number] = left.div_ceil(NS_OF_MS),
            Timeout::Spec(number, _) => {
                substitutes.left = [left / NS, left % NS];
                args[number] = field(core::mem::offset_of!(SubstituteData, left));
            }
        }
    }
    if let Some(number) = rest_argument(call) {
        args[number] = field(core::mem::offset_of!(SubstituteData, pair));
    }
    if let Some((number, mask, bytes)) = temporary_masks::mask_to_replace(call) {
        substitutes.mask = mask;
        let mask_at = field(core::mem::offset_of!(SubstituteData, mask));
        if call.nr == nr::PSELECT6 {
            substitutes.pair = [mask_at, bytes];
            args[number] = field(core::mem::offset_of!(SubstituteData, pair));
        } else {
            args[number] = mask_at;
        }
    }
    (args, substitutes)
}

/// `call` has returned this to the program. What that is to be.
pub fn end(call: &Call, result: i64, substitutes: &SubstituteData) -> i64 {
    let done = call.thread.call_progress.take().map_or(0, |progress| progress.bytes_written) as i64;
    if done > 0 {
        // An error comes with the next call, as it does natively.
        return done + result.max(0);
    }
    match rest_argument(call) {
        Some(number) if result == sys::fail(sys::EINTR) => {
            write_time_left(call.args[number], substitutes.pair)
        }
        _ => result,
    }
}

/// Writes what is `left` of an interrupted sleep to `at`. Returns the result of its call.
fn write_time_left(at: u64, left: [u64; 2]) -> i64 {
    // SAFETY: where the program wants it.
    match unsafe { sys::copy_out(left.map(u64::to_ne_bytes).as_flattened(), at) } {
        Ok(()) => sys::fail(sys::EINTR),
        Err(_) => sys::fail(sys::EFAULT),
    }
}

/// A stop has interrupted the call under way.
pub fn note_interrupted(thread: &Thread) {
    let progress = thread.call_progress.get();
    let progress = progress.map(|progress| CallProgress { is_interrupted: true, ..progress });
    thread.call_progress.set(progress);
}

/// A stop has interrupted a call with this result: whether it is a write that has written some of
/// what it is to write, which goes on then.
pub fn note_partly_written(thread: &Thread, result: i64) -> bool {
    let Some(progress) = thread.call_progress.get() else { return false };
    let CallIdentity { number, arguments, .. } = progress.identity;
    let bytes_written = progress.bytes_written + result.max(0) as u64;
    let is_partly =
        matches!(number, nr::WRITE | nr::SENDTO) && result > 0 && bytes_written < arguments[2];
    if is_partly {
        thread.call_progress.set(Some(CallProgress {
            is_interrupted: true,
            bytes_written,
            ..progress
        }));
    }
    is_partly
}

/// True if the call has waited for room, and part of what it writes has been written: only the
/// kernel may make the rest of it.
pub fn is_partly_made(call: &Call) -> bool {
    let Some(progress) = call.thread.call_progress.get() else { return false };
    let CallIdentity { stack, number, arguments, .. } = progress.identity;
    progress.bytes_written > 0 && (stack, number, arguments) == (call.stack, call.nr, call.args)
}

/// Call that a handler interrupts.
pub struct InterruptedCall {
    /// The call.
    pub call: Call,
    /// Its result.
    pub result: i64,
    /// Address behind its instruction, which may be in a stub.
    pub behind: u64,
}

/// A handler, by which calls are restarted or not, is about to begin where `context` stands: if
/// that is in front of a call that a stop has interrupted or the policy has held back, and that it
/// would have interrupted itself, the call and its result.
pub fn by_handler(
    thread: &'static Thread,
    context: &Context,
    restarts: bool,
) -> Option<InterruptedCall> {
    let CallProgress { identity, deadline_ns, is_interrupted, is_held_back, bytes_written } =
        thread.call_progress.take()?;
    let call = context.call(thread);
    // The call may have come from a stub, which has been left since.
    let is_site = arch::program_site(identity.site) == context.after();
    let CallIdentity { site, stack, number, arguments } = identity;
    let is_there = is_site && (stack, number, arguments) == (call.stack, call.nr, call.args);
    let restarts = restarts && may_restart(&call) && bytes_written == 0;
    if !is_interrupted && !is_held_back || !is_there || restarts {
        return None;
    }
    // A call that does not wait is not interrupted: the handler comes in front of it.
    if is_held_back && !waiting_calls::would_wait(&call) {
        return None;
    }
    let left = deadline_ns.map_or(0, |deadline| deadline.saturating_sub(sys::now()));
    let result = match rest_argument(&call) {
        Some(number) => write_time_left(call.args[number], [left / NS, left % NS]),
        None if bytes_written > 0 => bytes_written as i64,
        None => sys::fail(sys::EINTR),
    };
    Some(InterruptedCall { call, result, behind: site + 2 })
}

/// True if the kernel restarts the call after a handler with SA_RESTART (signal(7)).
fn may_restart(call: &Call) -> bool {
    !temporary_masks::MASK_CALLS.contains(&call.nr)
        && Timeout::of(call).is_none()
        && !matches!(
            call.nr,
            nr::POLL
                | nr::SELECT
                | nr::PAUSE
                | nr::EPOLL_WAIT
                | nr::NANOSLEEP
                | nr::CLOCK_NANOSLEEP
                | nr::RT_SIGTIMEDWAIT
                | nr::SEMOP
                | nr::SEMTIMEDOP
                | nr::MSGSND
                | nr::MSGRCV
                | nr::IO_GETEVENTS
        )
}
