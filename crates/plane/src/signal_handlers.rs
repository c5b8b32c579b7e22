//! The program's signal handlers begin here, whatever they are for.
//!
//! The kernel is given [`address`] in place of each of them, with `SA_ONSTACK`: so its frame lies
//! on the thread's own stack for signals ([`super::alternate_stack`]), or, while that is in use,
//! below wherever the thread is. From there it is moved to where the kernel would have put it, had
//! we not been there: on the program's alternate stack, or below the program's stack pointer, even
//! where it was us who were interrupted. Then returning from a frame of our own starts the handler,
//! which finds all as the kernel leaves it.
//!
//! One that arrives while the agent works for a call in [`CALLS_THAT_HOLD_SIGNALS`] is sent again.
//! It waits until the program goes on, behind the call or, if it has not begun yet, in front of it:
//! the agent's work is short, and its stack cannot be unwound.
//!
//! Invariant: no frame of the program's is on a stack of ours.

use linux_raw_sys::general as k;

use super::alternate_stack::{AUTODISARM, Altstack};
use super::call_reporting;
use super::dispatch_signal;
use super::kernel_signals::{self, Action, SIG_DFL};
use super::policy;
use super::signal_actions;
use super::thread::{self, Thread};
use crate::arch::{self, CALLS, Context, FramePlace, RED_ZONE, REGISTERS, pkeys};
use crate::sys::{self, nr};

/// Address that the kernel gets in place of a handler.
pub(super) fn address() -> u64 {
    arch::handler()
}

/// Begins in place of a handler, with signals blocked; `mask` is with what the handler is to begin.
pub(crate) extern "C" fn runahead_begin_handler(
    signal: i32,
    info: u64,
    context: *mut Context,
    mask: u64,
) -> ! {
    let thread = thread::current();
    // SAFETY: the kernel passes the frame of this signal, which is ours alone until it is returned
    // from.
    let context = unsafe { &mut *context };
    let mask = thread.and_then(|thread| thread.mask_to_enter.take()).unwrap_or(mask);
    if let Some(thread) = thread
        && crate::interception_state::reports()
        && arch::is_entering_handler(context.after())
        && is_alone(thread, signal)
        && kernel_signals::send_to_itself(signal, info)
    {
        // It comes in front of that handler's first instruction, where no stack of ours is in use.
        thread.mask_to_enter.set(Some(context.mask));
        // SAFETY: that frame.
        unsafe { go_on_undisturbed(context.copy()) }
    }
    if let Some(thread) = thread
        && can_wait(thread, signal, context)
        && kernel_signals::send_to_itself(signal, info)
    {
        thread.hold_signals(context.mask);
        let mut back = context.copy();
        back.give_up_attempt();
        // SAFETY: that frame.
        unsafe { go_on_undisturbed(back) }
    }
    if let Some(thread) = thread
        && comes_before_the_policy(thread, context)
        && is_alone(thread, signal)
        && kernel_signals::send_to_itself(signal, info)
    {
        // It comes where the program goes on, whose mask is in the frame that we return through.
        // SAFETY: that frame.
        unsafe { go_on_undisturbed(context.copy()) }
    }
    // SAFETY: the same.
    if let Some(call) = unsafe { dispatch_signal::unanswered(context) }
        && thread.is_some_and(|thread| is_alone(thread, signal))
        && kernel_signals::send_to_itself(signal, info)
    {
        // SAFETY: our handler, which would return from that frame, does not go on: the program
        // makes its call anew.
        unsafe {
            (*call).resume_at((*call).after() - 2);
            arch::sigreturn(call as u64)
        }
    }
    call_reporting::interrupted(thread, context);
    let flags = kernel_signals::set_action(signal, None).map_or(0, |now| now.flags);
    let handler =
        Handler::of_program(signal_actions::begin_handler(thread, signal, context), flags);
    // SAFETY: the same.
    let was_busy = unsafe { arch::to_the_program(context) };
    if let Some(thread) = thread.filter(|_| was_busy) {
        thread.depth.set(0);
    }
    // SAFETY: that frame, as the kernel left it, on which nothing depends but what the handler
    // returns to.
    unsafe { enter(thread, signal, handler, mask, context) }
}

/// Resumes the interrupted code as it was, but with signals blocked.
///
/// # Safety
/// A copy of the frame that the kernel has just delivered.
unsafe fn go_on_undisturbed(mut frame: Context) -> ! {
    frame.mask = !0;
    // SAFETY: passed on to the caller.
    unsafe { arch::sigreturn(core::ptr::from_ref(&frame) as u64) }
}

/// Calls that do nothing to signals, threads or children: most of those that policies see, with
/// [`nr::ATTRIBUTE_CHANGES`].
const CALLS_THAT_HOLD_SIGNALS: [u64; 64] = [
    nr::READ,
    nr::PREAD64,
    nr::READV,
    nr::PREADV,
    nr::PREADV2,
    nr::OPEN,
    nr::OPENAT,
    nr::OPENAT2,
    nr::STAT,
    nr::FSTAT,
    nr::LSTAT,
    nr::NEWFSTATAT,
    nr::STATX,
    nr::ACCESS,
    nr::FACCESSAT,
    nr::FACCESSAT2,
    nr::READLINK,
    nr::READLINKAT,
    nr::GETDENTS,
    nr::GETDENTS64,
    nr::SENDFILE,
    nr::COPY_FILE_RANGE,
    nr::SPLICE,
    nr::CLOSE,
    nr::CLOSE_RANGE,
    nr::LSEEK,
    nr::DUP,
    nr::DUP2,
    nr::DUP3,
    nr::CHDIR,
    nr::FCHDIR,
    nr::FADVISE64,
    nr::MMAP,
    nr::MUNMAP,
    nr::MREMAP,
    nr::MADVISE,
    nr::STATFS,
    nr::GETCWD,
    nr::TRUNCATE,
    nr::CREAT,
    nr::MKDIR,
    nr::MKDIRAT,
    nr::RMDIR,
    nr::UNLINK,
    nr::UNLINKAT,
    nr::RENAME,
    nr::RENAMEAT,
    nr::RENAMEAT2,
    nr::LINK,
    nr::LINKAT,
    nr::SYMLINK,
    nr::SYMLINKAT,
    nr::MKNOD,
    nr::MKNODAT,
    nr::GETXATTR,
    nr::LGETXATTR,
    nr::LISTXATTR,
    nr::LLISTXATTR,
    nr::REMOVEXATTR,
    nr::LREMOVEXATTR,
    nr::FREMOVEXATTR,
    nr::INOTIFY_ADD_WATCH,
    nr::BIND,
    nr::CONNECT,
];

/// True if signals that interrupt the agent's work for a call `number` may wait until that is over.
pub(super) fn may_hold_signals(number: u64) -> bool {
    const IS_ONE: [bool; CALLS] = {
        let (mut table, mut at) = ([false; CALLS], 0);
        while at < CALLS_THAT_HOLD_SIGNALS.len() {
            table[CALLS_THAT_HOLD_SIGNALS[at] as usize] = true;
            at += 1;
        }
        at = 0;
        while at < nr::ATTRIBUTE_CHANGES.len() {
            table[nr::ATTRIBUTE_CHANGES[at] as usize] = true;
            at += 1;
        }
        table
    };
    IS_ONE.get(number as usize).is_some_and(|&is_one| is_one)
}

/// The signal has met us at work, and nothing but its coming a little later is changed if it is
/// sent once more.
fn can_wait(thread: &Thread, signal: i32, context: &Context) -> bool {
    thread.may_hold_signals.get()
        && crate::interception_state::is_ours(context.after())
        && thread.is_on_stack(context.stack_pointer())
        && is_alone(thread, signal)
}

/// True if a signal has interrupted a reported call before signals were made to wait. An unwinder
/// that looks at the stack then must find the program, and not the agent.
fn comes_before_the_policy(thread: &Thread, context: &Context) -> bool {
    crate::interception_state::reports()
        && (thread.depth.get() == 0 || thread.is_asking.get())
        && crate::interception_state::is_ours(context.after())
        // A handler of another signal's, which has not had the rest wait yet.
        && !arch::is_entering_handler(context.after())
        && thread.signal_stack().holds(context.stack_pointer())
}

/// The signal may be sent once more: no instruction raised it, it is the only one of its number,
/// and would come to us again.
fn is_alone(thread: &Thread, signal: i32) -> bool {
    thread.armed.get()
        && thread.lent.get().is_none()
        && !kernel_signals::may_be_raised_here(signal)
        && !kernel_signals::is_another_waiting(signal)
        && kernel_signals::set_action(signal, None).is_ok_and(|now| now.handler == address())
}

/// Handler to start for a signal.
#[derive(Clone, Copy)]
pub(super) struct Handler {
    pub address: u64,
    /// The handler asked for the alternate stack.
    pub on_stack: bool,
    /// Calls that it interrupts are restarted.
    pub restarts: bool,
    /// Return address of the handler, if not the one of the frame.
    pub restorer: Option<u64>,
}

impl Handler {
    /// Handler of the program that the kernel does not know of.
    fn of_program(given: signal_actions::GivenAction, flags: u64) -> Self {
        let restarts = flags & u64::from(k::SA_RESTART) != 0;
        Handler { address: given.handler, on_stack: given.on_stack, restarts, restorer: None }
    }

    pub fn of(action: &Action) -> Self {
        let on_stack = action.flags & u64::from(k::SA_ONSTACK) != 0;
        let restarts = action.flags & u64::from(k::SA_RESTART) != 0;
        Handler { address: action.handler, on_stack, restarts, restorer: Some(action.restorer) }
    }
}

/// Starts a handler, to which `context` belongs, with this mask. Signals must be blocked.
///
/// # Safety
/// The frame of a signal that the kernel has delivered to us, from which no code returns.
pub(super) unsafe fn enter(
    thread: Option<&'static Thread>,
    signal: i32,
    handler: Handler,
    mask: u64,
    context: &mut Context,
) -> ! {
    call_reporting::handler_begins(thread, context, handler.restarts);
    if let Some(policy) = policy::events() {
        policy.handler_begins(signal);
    }
    // What returning from it does is start the handler.
    let mut start = context.copy();
    // SAFETY: passed on to the caller.
    let place = pkeys::with_all_rights(|| unsafe { put(thread, &handler, context) });
    match place {
        Some(place) => start.enter(handler.address, signal, place, mask),
        // The program, or we, go on where the signal came, the vector state untouched.
        None => fail(signal, &mut start),
    }
    // SAFETY: what lies on this stack is not needed any more.
    unsafe { arch::sigreturn(core::ptr::from_ref(&start) as u64) }
}

/// Puts the frame where it belongs; `None` if it cannot be there.
///
/// # Safety
/// As for [`enter`].
unsafe fn put(
    thread: Option<&Thread>,
    handler: &Handler,
    context: &mut Context,
) -> Option<FramePlace> {
    let kernels = Altstack::from_words(context.stack);
    let ours = |t: &&Thread| kernels == t.signal_stack() || kernels.bytes == 0;
    let managed = thread.filter(|thread| thread.armed.get()).filter(ours);
    let programs = managed.map_or(kernels, |thread| thread.alternate.get());
    // SAFETY: passed on to the caller.
    let state_bytes = unsafe { context.state_bytes() };
    // SAFETY: the same.
    let (stack, roots) = unsafe { program(thread, context, state_bytes) };
    let room = roots.map_or(0, |_| (size_of::<Roots>() + ALIGNED) as u64);
    let below = stack.wrapping_sub(RED_ZONE);
    let place = programs.place(below, handler.on_stack, state_bytes, room)?;
    let set = |frame: &mut Context| {
        frame.set_mark(place.context() as u64, managed.is_some() && kernels.bytes == 0);
        if managed.is_some() {
            frame.stack = programs.words();
        }
    };
    if place.frame == context.frame() {
        set(context);
        if let Some(restorer) = handler.restorer {
            // SAFETY: passed on to the caller.
            unsafe { context.return_to(restorer) };
        }
    } else {
        // SAFETY: passed on to the caller.
        let mut frame = unsafe { context.moved(place) };
        set(frame.context());
        if let Some(restorer) = handler.restorer {
            frame.return_to(restorer);
        }
        // Writing by process_vm_writev(2) does not make stacks grow.
        if !is_writable(place) || frame.write(state_bytes, roots.as_ref()).is_err() {
            return None;
        }
    }
    if let Some(thread) = managed
        && programs.flags & AUTODISARM != 0
    {
        thread.alternate.set(Altstack::NONE);
    }
    Some(place)
}

/// Registers of the program's that the agent has saved: collectors look for addresses on its stack.
type Roots = [u64; ROOTS];
const ALIGNED: usize = align_of::<Roots>();
const ROOTS: usize = if arch::SAVED_WORDS > REGISTERS { arch::SAVED_WORDS } else { REGISTERS };

/// The program's stack pointer, and where it was us who were interrupted, its registers.
///
/// # Safety
/// A frame of the kernel's.
unsafe fn program(
    thread: Option<&Thread>,
    context: &Context,
    state_bytes: u64,
) -> (u64, Option<Roots>) {
    let mut interrupted = core::ptr::from_ref(context);
    let mut roots = [0; ROOTS];
    let Some(thread) = thread else { return (context.stack_pointer(), None) };
    if thread.signal_stack().holds(context.stack_pointer()) {
        // The kernel began there with a frame of the program's, or of our work for it.
        interrupted = FramePlace::below(thread.signal_stack().end(), state_bytes).context();
        // SAFETY: as the thread is on that stack, it is there.
        roots[..REGISTERS].copy_from_slice(&unsafe { &*interrupted }.registers());
    }
    // SAFETY: the frame that was passed, or the one above.
    let stack = unsafe { (*interrupted).stack_pointer() };
    if thread.is_on_stack(stack) {
        // SAFETY: the first that was put on that stack.
        let saved = unsafe { *((thread.stack_top.get() - 8 * ROOTS as u64) as *const Roots) };
        return (thread.program_stack.get(), Some(saved));
    }
    let is_us = !core::ptr::eq(interrupted, context);
    (stack, is_us.then_some(roots))
}

/// True if the place can be written to. The kernel maps it where a stack grows.
fn is_writable(place: FramePlace) -> bool {
    use crate::sys::PAGE;
    const WORD: u64 = 8;
    if !policy::will_write(place.frame, place.end - place.frame) {
        return false;
    }
    let mut at = place.frame;
    while at < place.end {
        let args = [k::SIG_BLOCK.into(), 0, at.min(place.end - WORD), WORD, 0, 0];
        // SAFETY: the kernel writes eight bytes where a frame is to be, or fails.
        if unsafe { sys::raw(nr::RT_SIGPROCMASK, args) } != 0 {
            return false;
        }
        at = (at & !(PAGE - 1)) + PAGE;
    }
    true
}

/// No frame can be put where it belongs: SIGSEGV, as by the kernel.
fn fail(signal: i32, context: &mut Context) {
    const SI_KERNEL: u64 = 0x80;
    const SEGV_BIT: u64 = 1 << (k::SIGSEGV - 1);
    let ignored =
        kernel_signals::set_action(k::SIGSEGV as i32, None).is_ok_and(|now| now.handler <= 1);
    if signal as u32 == k::SIGSEGV || context.mask & SEGV_BIT != 0 || ignored {
        let default = Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 };
        let _ = kernel_signals::set_action(k::SIGSEGV as i32, Some(&default));
        context.mask &= !SEGV_BIT;
    }
    let mut info = [0u64; 16];
    info[0] = k::SIGSEGV.into();
    info[1] = SI_KERNEL;
    let (process, thread) = (sys::getpid().into(), sys::gettid().into());
    let args = [process, thread, k::SIGSEGV.into(), info.as_ptr() as u64, 0, 0];
    // SAFETY: signals this thread, which is to have it.
    let _ = unsafe { sys::raw(nr::RT_TGSIGQUEUEINFO, args) };
}
