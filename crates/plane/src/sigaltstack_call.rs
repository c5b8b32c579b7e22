//! The program's sigaltstack(2) calls. The kernel has another alternate signal stack
//! ([`super::alternate_stack`]).

use super::alternate_stack::{AUTODISARM, Altstack};
use super::thread::Thread;
use crate::arch::Context;
use crate::intercepted_call::Call;
use crate::sys::{self, Errno, copy_in, nr};

/// sigaltstack(2) as the program means it; `None` if what is given cannot be known (a filter around
/// us).
pub(super) fn sigaltstack(call: &Call) -> Option<i64> {
    let [new, old, ..] = call.args;
    let thread = call.thread;
    let now = thread.alternate.get();
    if new != 0 {
        let given = match copy_in::<[u64; 3]>(new) {
            Ok(words) => Altstack::from_words(words),
            Err(Errno(sys::EFAULT)) => return Some(sys::fail(sys::EFAULT)),
            Err(_) => return None,
        };
        match given.checked(now, call.stack) {
            Ok(stack) => thread.alternate.set(stack),
            Err(errno) => return Some(sys::fail(errno.0)),
        }
    }
    if old == 0 {
        return Some(0);
    }
    // SAFETY: writes a stack_t where the program wants one, or fails.
    let ret = unsafe { sys::raw(nr::SIGALTSTACK, [0, old, 0, 0, 0, 0]) };
    if ret == 0 {
        let flags = now.state(call.stack) | now.flags & AUTODISARM;
        // SAFETY: the kernel has just written three words there.
        unsafe { (old as *mut [u64; 3]).write_unaligned(Altstack { flags, ..now }.words()) };
    }
    Some(ret)
}

/// The program returns from a signal by `context`, which is a copy of what is at `at`: that also
/// sets the alternate stack that there was at its start, unless the frame lies on the present one.
/// (Kernels before 6.12 look at the stack that the program goes on upon, which is the same unless a
/// handler has changed what its frame says.) What the kernel is to set is ours.
pub(super) fn restore_from(thread: &Thread, context: &mut Context, at: u64) {
    let given = Altstack::from_words(context.stack);
    if let Ok(stack) = given.checked(thread.alternate.get(), at) {
        thread.alternate.set(stack);
    }
    // Where a frame was on ours, it still is.
    let ours = if context.is_marked(at) { Altstack::NONE } else { thread.signal_stack() };
    context.stack = ours.words();
}
