//! The plane: gets every system call of the process, and decides nothing.
//!
//! Syscall User Dispatch delivers each call as a signal; a call site that proves hot is then
//! patched to jump here. What a call *means* is the [`Policy`]'s business: [`policy`] has the contract. The plane itself looks
//! only at the calls that could take interception away from it or that must not be made from
//! within a signal handler: masks and handlers (`masks`, `handlers`, `altstack`), children, threads and exec (`clone`,
//! `exec`), the return from a signal (`sigsys`). `thread` keeps what belongs to one thread.
//!
//! Invariant: a process whose plane is lost or retired runs natively; nothing of the program's
//! depends on being intercepted.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod address_space;
mod alternate_stack;
pub mod arch;
mod call_reporting;
mod call_restart;
mod clone;
mod dispatch_siginfo;
mod exec;
mod kernel_signals;
pub mod lock;
mod native_calls;
pub mod patch;
pub mod policy;
pub mod program_faults;
pub mod reported_call_state;
pub mod sample_counter;
mod sigaltstack_call;
mod signal_actions;
pub mod signal_block;
mod signal_handlers;
mod signal_masks;
mod sigsys;
pub mod sys;
mod temporary_masks;
pub mod thread;
pub mod thread_owned;
pub mod thread_stop;
mod trampolines;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use arch::{CALLS, CHECKED, COMMANDED, RUNAHEAD_INTEREST, SAMPLED, SEEN, TRAPPED};
use sys::nr;
use thread::Thread;

pub use clone::note_forking;
pub use policy::{AnyPolicy, Event, Interest, Next, Policy, ReportingPolicy, Verdict};

/// One system call as the program makes it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Call {
    /// Number of the call.
    pub nr: u64,
    /// Arguments of the call, in the kernel's order.
    pub args: [u64; 6],
    /// The program's stack pointer.
    pub stack: u64,
    /// The thread that makes the call.
    pub thread: &'static Thread,
}

impl Call {
    /// It waited for room, and some of what it is to write has been written: only the kernel is to make the rest of it.
    pub fn is_partly_made(&self) -> bool {
        call_restart::is_partly_made(self)
    }

    /// Makes the call as it stands, here and now. [`sys::RESTART`] if a signal is held, which is to be the answer: the
    /// program makes the call once the signal has been handled.
    pub fn perform(&self) -> i64 {
        // SAFETY: the program asked for exactly this call.
        match unsafe { self.attempt(self.nr, &self.args) } {
            sys::RESTART => sys::RESTART,
            ret => self.performed(ret),
        }
    }

    /// Makes another call in place of this one, which may wait as this may: [`sys::RESTART`] as there.
    ///
    /// # Safety
    /// As unsafe as the call it makes.
    pub unsafe fn attempt(&self, nr: u64, args: &[u64; 6]) -> i64 {
        // SAFETY: passed on to the caller.
        unsafe { arch::attempt(&self.thread.held, nr, args) }
    }

    /// Notes that the call has been made and had this result, so that a failure of ours afterwards
    /// does not make it twice.
    pub fn performed(&self, ret: i64) -> i64 {
        self.thread.result.set(Some(ret));
        ret
    }

    /// An argument that is a descriptor.
    pub fn fd(&self, index: usize) -> sys::Fd {
        self.args[index] as u32 as sys::Fd
    }
}

/// Value that [`policy::ProcessEvents::before_exec`] leaves for [`policy::ProcessEvents::exec_failed`].
pub type Token = i32;

static SEES_ALL: AtomicBool = AtomicBool::new(false);
static IS_QUICK: AtomicBool = AtomicBool::new(false);
static REPORTS: AtomicBool = AtomicBool::new(false);
static RETIRED: AtomicBool = AtomicBool::new(false);
static STANDS_DOWN: AtomicBool = AtomicBool::new(false);
/// Threads are being sent the signal that takes their dispatch off.
static CALLING_OFF: AtomicBool = AtomicBool::new(false);
static TEXT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Process that the agent runs in, as it knows.
static PROCESS: AtomicU32 = AtomicU32::new(0);

fn tell(event: Event) {
    if let Some(policy) = policy::events() {
        policy.event(event);
    }
}

/// The program has, or has had, more than one thread.
pub fn has_threads() -> bool {
    patch::has_threads()
}

/// The program has, or has had, handlers of its own for signals.
pub fn has_handlers() -> bool {
    signal_actions::has_handlers()
}

/// Makes `policy` the one that is asked.
pub fn set_policy(policy: &'static AnyPolicy) -> sys::Result<()> {
    let interest = match policy {
        AnyPolicy::Plain(policy) => Some(policy.interest()),
        AnyPolicy::Reporting(_) => None,
    };
    let reports = interest.is_none();
    if reports {
        call_reporting::prepare()?;
    }
    policy::install(policy);
    SEES_ALL.store(matches!(interest, Some(Interest::Every)), Relaxed);
    // (A shadow that was told of all before may not change an action any more, and no signal of ours interrupts it.)
    if REPORTS.swap(reports, Relaxed) != reports && reports {
        sigsys::renew()?;
    }
    let others = match interest {
        Some(Interest::Every) => SEEN,
        Some(Interest::Only { .. }) => 0,
        None => TRAPPED,
    };
    (0..CALLS as u64).for_each(|nr| set_interest(nr, others));
    if let Some(Interest::Only { all_of, commands_of, samples_of }) = interest {
        all_of.iter().for_each(|&nr| set_interest(nr, SEEN));
        commands_of.iter().for_each(|&nr| set_interest(nr, COMMANDED));
        samples_of.iter().for_each(|&nr| set_interest(nr, SAMPLED));
    }
    Ok(())
}

/// The policy sees all calls, the plane's own among them.
fn sees_all() -> bool {
    SEES_ALL.load(Relaxed)
}

/// The policy is told of every call and its result.
fn reports() -> bool {
    REPORTS.load(Relaxed)
}

/// A site that is patched may be one for calls of any number, the plane's own among them.
fn set_interest(nr: u64, how: u8) {
    let how = match how {
        _ if is_checked(nr) => CHECKED,
        _ if is_the_planes(nr) => TRAPPED,
        1.. if patch::never(nr) => TRAPPED,
        how => how,
    };
    RUNAHEAD_INTEREST[nr as usize].store(how, Relaxed);
}

/// What becomes of a call of a number where a [`ReportingPolicy`] can do with less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quick {
    /// It is made as it stands, and nobody sees it.
    Unseen,
    /// As [`Quick::Before`], but for those that the policy lets go by ([`sample_counter`]).
    Sampled,
    /// The policy sees it ([`ReportingPolicy::before`]), by a patched site if there is one, and decides it there or has it come with
    /// its frame.
    Before,
    /// It comes as a signal, and is reported.
    Reported,
}

/// From here on that becomes of each call from a site that is patched, which sites are from here on. Only while the process has one
/// thread: one that waits in a call that nobody sees cannot be stopped.
pub fn be_quick(how: impl Fn(u64) -> Quick) {
    (0..CALLS as u64).for_each(|nr| {
        let how = match how(nr) {
            Quick::Unseen => 0,
            Quick::Sampled => SAMPLED,
            Quick::Before => SEEN,
            Quick::Reported => TRAPPED,
        };
        set_interest(nr, how);
    });
    IS_QUICK.store(true, Relaxed);
}

/// From here on every call is reported again.
pub fn report_all() {
    if IS_QUICK.swap(false, Relaxed) {
        (0..CALLS as u64).for_each(|nr| set_interest(nr, TRAPPED));
    }
}

/// See [`be_quick`].
fn is_quick() -> bool {
    IS_QUICK.load(Relaxed)
}

/// Makes the policy see these `calls`, too.
pub fn take_interest(calls: &[u64]) {
    calls.iter().for_each(|&nr| set_interest(nr, SEEN));
}

/// Has the policy see each of the calls `nr`, of which samples were enough, or again only samples.
/// Where interception was given up, or calls are reported, nothing changes.
pub fn see_all_of(nr: u64, all: bool) {
    if reports() {
        return;
    }
    let (from, to) = if all { (SAMPLED, SEEN) } else { (SEEN, SAMPLED) };
    let _ = RUNAHEAD_INTEREST[nr as usize].compare_exchange(from, to, Relaxed, Relaxed);
}

/// Of this call samples are enough.
pub fn is_sampled(nr: u64) -> bool {
    RUNAHEAD_INTEREST.get(nr as usize).is_some_and(|call| call.load(Relaxed) == SAMPLED)
}

/// Of calls of this number nobody sees any, though the policy is told of all others ([`Quick::Unseen`]).
fn is_unseen(nr: u64) -> bool {
    is_quick() && (nr as usize) < CALLS && !is_interesting(nr)
}

/// True if the policy is asked without a frame of calls of this number that come as signals.
fn is_asked_first(nr: u64) -> bool {
    policy::reporting().is_some_and(|policy| policy.is_asked_first(nr))
}

fn is_interesting(nr: u64) -> bool {
    (nr as usize) < CALLS && RUNAHEAD_INTEREST[nr as usize].load(Relaxed) != 0
}

/// Entered by the entry code and by `sigsys`, on the agent's stack.
pub(crate) extern "C" fn runahead_dispatch(call: *mut Call) -> Verdict {
    // SAFETY: the entry code passes the frame that it has just built, and holds the depth, so this
    // is the only reference to it.
    let call = unsafe { &*call };
    call.thread.result.set(None);
    call.thread.hold_if(signal_handlers::may_be_held(call.nr));
    if call.thread.is_spare() && !clone::adopt(call.thread, call.stack) {
        return Verdict::NATIVE;
    }
    if is_checked(call.nr) {
        return if signal_masks::can_go_by(call) { Verdict::NATIVE } else { Verdict::TRAP };
    }
    if !sees_all() && native_calls::takes_its_stack(call) {
        return Verdict::TRAP;
    }
    let verdict = match policy::installed() {
        None => return Verdict::NATIVE,
        Some(AnyPolicy::Plain(policy)) => policy.before(call),
        Some(AnyPolicy::Reporting(policy)) => match policy.before(call) {
            Some(verdict) => verdict,
            None if reports() => Verdict::TRAP,
            None => Verdict::NATIVE,
        },
    };
    match verdict.answered() {
        Some(sys::RESTART) => Verdict::NATIVE,
        _ => verdict,
    }
}

/// A bug was found in the agent: the program goes on without it.
///
/// # Safety
/// Inside a dispatch.
pub unsafe fn fail_open() -> ! {
    stand_down();
    match thread::current() {
        Some(thread) => {
            signal_block::abandon(thread);
            // SAFETY: passed on to the caller; the frames given up own nothing.
            unsafe { arch::abandon(thread, thread.result.get()) }
        }
        None => sys::exit(1),
    }
}

/// Whether patched sites, and the instruction that they need, can be used here.
fn tells_threads_apart() -> bool {
    arch::RUNAHEAD_FSGSBASE.load(Relaxed) != 0
}

/// The agent's code, which dispatch lets through: first address and bytes.
fn text() -> (u64, u64) {
    (TEXT[0].load(Relaxed), TEXT[1].load(Relaxed))
}

/// Whether the agent's code is at that address.
fn is_ours(address: u64) -> bool {
    let (first, len) = text();
    (first..first + len).contains(&address)
}

/// Starts interception: every call of this thread, the program's first, from outside the agent's
/// `text` becomes a signal. `pkru_at`: see [`arch::pkeys::begin`]. `believed`: the program believes that it has this mask, and all
/// signals stay blocked until somebody else gives it the mask to begin with; None: it has the mask that it believes to have.
pub fn start(
    text: (u64, u64),
    has_fsgsbase: bool,
    pkru_at: u32,
    believed: Option<u64>,
) -> sys::Result<()> {
    TEXT[0].store(text.0, Relaxed);
    TEXT[1].store(text.1, Relaxed);
    arch::RUNAHEAD_FSGSBASE.store(has_fsgsbase.into(), Relaxed);
    PROCESS.store(sys::getpid(), Relaxed);
    arch::pkeys::begin(pkru_at);
    wipe_on_fork()?;
    let thread = Thread::map_first()?;
    if !thread.move_in() {
        return Err(sys::Errno(sys::ENOMEM));
    }
    clone::note_that_memory_is_ours();
    thread.take_signals();
    sigsys::install(thread, believed)?;
    thread.arm()
}

/// Starts it again in a fork, for the policy of a shadow: the handler is still there.
pub fn start_in_shadow() -> sys::Result<&'static Thread> {
    let thread = clone::survivor().ok_or(sys::Errno(sys::ESRCH))?;
    thread::forget_others(thread);
    if !thread.move_in() {
        return Err(sys::Errno(sys::ENOMEM));
    }
    thread.arm()?;
    Ok(thread)
}

/// Has the number of this process remembered: where most calls have texts of the program's read, one call fewer for each counts.
pub fn remember_process() -> sys::Result<()> {
    const BYTES: u64 = 4096;
    let page = address_space::map_private(BYTES)?;
    // SAFETY: a page that is ours, and new.
    unsafe { sys::advise(page, BYTES, linux_raw_sys::general::MADV_WIPEONFORK) }?;
    // SAFETY: the same, and nobody gives it back.
    unsafe { sys::remember_process(page) };
    Ok(())
}

/// Has the kernel clear the table of threads in every forked child.
fn wipe_on_fork() -> sys::Result<()> {
    let page = arch::RUNAHEAD_THREADS.as_ptr() as u64;
    let len = arch::THREADS_BYTES as u64;
    // SAFETY: pages of private memory that hold the table and nothing else.
    unsafe { sys::advise(page, len, linux_raw_sys::general::MADV_WIPEONFORK) }.map(|_| ())
}

/// Interception has been given up.
fn is_retired() -> bool {
    RETIRED.load(Relaxed)
}

/// Ends the policy for good: it sees no more calls, and nobody hears of children and execs.
///
/// A program with threads goes on being intercepted, for its masks. A thread that was left to itself could
/// install a handler with SIGSYS in its mask, and in that the kernel kills the others. With one thread there
/// are none, and interception ends.
pub fn stand_down() {
    if is_retired() {
        return;
    }
    if !has_threads() {
        return retire();
    }
    STANDS_DOWN.store(true, Relaxed);
    report_loss();
    policy::remove();
    if REPORTS.swap(false, Relaxed) {
        let _ = sigsys::renew();
    }
    (0..CALLS as u64).for_each(|nr| set_interest(nr, 0));
}

/// The policy has ended, and threads are still intercepted.
fn stands_down() -> bool {
    STANDS_DOWN.load(Relaxed)
}

fn report_loss() {
    if let Some(policy) = policy::events() {
        policy.lost();
    }
}

/// Gives interception up for good, in all threads: the program runs natively from here on.
pub fn retire() {
    if has_threads() { retire_all_threads() } else { retire_this() }
}

/// Gives interception up in this thread. Others find out at their next call, for which patched sites trap.
fn retire_this() {
    report_loss();
    RETIRED.store(true, Relaxed);
    let how = if has_threads() { TRAPPED } else { 0 };
    RUNAHEAD_INTEREST.iter().for_each(|call| call.store(how, Relaxed));
    // Nobody moves in any more. (One that is on its way holds it already, and looks at RETIRED.)
    thread::take_spares();
    if let Some(thread) = thread::current() {
        leave_for_good(thread);
    }
}

/// [`retire`], with every thread's dispatch off when this returns, or after a while: what comes would
/// make our signal fatal to them.
pub fn retire_all_threads() {
    const PATIENCE_US: u64 = 20_000;
    const STEP_US: u64 = 200;
    // Once is enough, but for a thread at which another SIGSYS had just arrived.
    const AGAIN: u64 = 25;
    // Our handler stays until nothing is under way to it.
    CALLING_OFF.store(true, SeqCst);
    retire_this();
    for step in 0..PATIENCE_US / STEP_US {
        if thread::armed() == 0 {
            break;
        }
        if step % AGAIN == 0 {
            thread::others(|thread| sigsys::call_off(thread.number()));
        }
        sys::sleep_us(STEP_US);
    }
    CALLING_OFF.store(false, SeqCst);
    if let (0, Some(thread)) = (thread::armed(), thread::current()) {
        signal_masks::restore_sigsys(thread);
    }
}

/// The thread goes on natively, in a process that has retired. The last one gives SIGSYS back.
fn leave_for_good(thread: &Thread) {
    thread.end_pokes();
    // First the mask: whoever waits for the last to leave may send what only that keeps from us.
    signal_masks::restore_mask(thread);
    if thread.disarm() && !CALLING_OFF.load(SeqCst) {
        signal_masks::restore_sigsys(thread);
    }
}

/// Calls that the plane handles itself, but that often leave it nothing to do.
fn is_checked(call: u64) -> bool {
    matches!(call, nr::RT_SIGACTION | nr::RT_SIGPROCMASK) && !sees_all() && !reports()
}

/// Calls that the plane handles itself, on behalf of every policy but one that sees all of them.
fn is_the_planes(call: u64) -> bool {
    if sees_all() {
        return call == nr::RT_SIGRETURN;
    }
    temporary_masks::MASK_CALLS.contains(&call)
        || matches!(
            call,
            nr::RT_SIGRETURN
                | nr::CLONE
                | nr::FORK
                | nr::VFORK
                | nr::CLONE3
                | nr::RT_SIGACTION
                | nr::RT_SIGPROCMASK
                | nr::SIGALTSTACK
                | nr::EXECVE
                | nr::EXECVEAT
                | nr::ARCH_PRCTL
                | nr::EXIT
        )
}
