//! The plane: gets every system call of the process, and decides nothing.
//!
//! Syscall User Dispatch delivers each call as a signal; a call site that proves hot is then
//! patched to jump here. What a call *means* is the [`Policy`]'s business. The plane itself looks
//! only at the calls that could take interception away from it or that must not be made from
//! within a signal handler: masks and handlers (`masks`), children and threads (`clone`), the
//! return from a signal (`sigsys`).
//!
//! Invariant: a process whose plane is lost or retired runs natively; nothing of the program's
//! depends on being intercepted.

pub mod clone;
pub mod masks;
pub mod patch;
pub mod sigsys;

use crate::arch::{self, CALLS};
use crate::owned::Owned;
use crate::sys::{self, nr};

/// One system call as the program makes it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Call {
    /// Its number.
    pub nr: u64,
    /// Its arguments, in the kernel's order.
    pub args: [u64; 6],
    /// The program's stack pointer.
    pub stack: u64,
}

/// What a policy says of a call. Returned in two registers to the entry code.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Verdict {
    ret: i64,
    native: u64,
}

impl Verdict {
    /// The call is answered; the program sees this value.
    pub const fn answer(ret: i64) -> Self {
        Verdict { ret, native: 0 }
    }

    /// The call is to be made as it stands, from the program's own stack: it may wait for long.
    pub const NATIVE: Verdict = Verdict { ret: 0, native: 1 };
}

impl Call {
    /// Makes the call as it stands, here and now.
    pub fn perform(&self) -> i64 {
        // SAFETY: the program asked for exactly this call.
        performed(unsafe { sys::raw(self.nr, self.args) })
    }

    /// An argument that is a descriptor.
    pub fn fd(&self, index: usize) -> sys::Fd {
        self.args[index] as u32 as sys::Fd
    }
}

/// Decides what becomes of a call.
pub type Policy = fn(&Call) -> Verdict;

fn native(_: &Call) -> Verdict {
    Verdict::NATIVE
}

static POLICY: Owned<Policy> = Owned::new(native);
static SEES_ALL: Owned<bool> = Owned::new(false);
/// Called when the program is about to have a child or to become another.
static BEFORE_CHILD: Owned<fn()> = Owned::new(|| {});

/// Has `notice` called whenever the program is about to have a child or to exec.
pub fn before_children(notice: fn()) {
    // SAFETY: the armed thread, at start.
    unsafe { *BEFORE_CHILD.get() = notice };
}

fn before_child() {
    // SAFETY: the armed thread; the function pointer is copied out.
    let notice = unsafe { *BEFORE_CHILD.get() };
    notice();
}

/// The program has, or has had, more than one thread.
pub fn has_threads() -> bool {
    patch::has_threads()
}

/// Makes `policy` see the calls in `interest`, and no others.
pub fn set_policy(policy: Policy, interest: Interest) {
    // SAFETY: called on the armed thread, in the agent, while nothing else uses either.
    let (slot, table, all) =
        unsafe { (POLICY.get(), arch::RUNAHEAD_INTEREST.get(), SEES_ALL.get()) };
    *slot = policy;
    *all = matches!(interest, Interest::Every);
    match interest {
        Interest::Every => table.fill(1),
        Interest::Only(calls) => {
            table.fill(0);
            for &call in calls {
                table[call as usize] = 1;
            }
        }
    }
}

/// Which calls a policy sees.
pub enum Interest {
    /// All.
    Every,
    /// These.
    Only(&'static [u64]),
}

fn is_interesting(nr: u64) -> bool {
    // SAFETY: on the armed thread; the reference ends here.
    let table = unsafe { arch::RUNAHEAD_INTEREST.get() };
    (nr as usize) < CALLS && table[nr as usize] != 0
}

/// Entered by the stubs' entry code and by `sigsys`, on the agent's stack.
pub(crate) extern "C" fn runahead_dispatch(call: *mut Call) -> Verdict {
    // SAFETY: the entry code passes the frame that it has just built, and holds the depth, so this
    // is the only reference to it and to the policy.
    let (call, policy) = unsafe {
        *RESULT.get() = None;
        (&*call, *POLICY.get())
    };
    policy(call)
}

/// Result of the call under way, once the kernel has given it.
static RESULT: Owned<Option<i64>> = Owned::new(None);

/// Notes that the call under way has been made and had this result, so that a failure of ours
/// afterwards does not make it twice.
pub fn performed(ret: i64) -> i64 {
    // SAFETY: the armed thread; the reference ends here.
    unsafe { *RESULT.get() = Some(ret) };
    ret
}

/// A bug was found in the agent: the program goes on without it.
///
/// # Safety
/// Inside a dispatch on the armed thread.
pub unsafe fn fail_open() -> ! {
    retire();
    // SAFETY: passed on to the caller; the frames given up own nothing.
    unsafe { arch::abandon(*RESULT.get()) }
}

/// Arms dispatch for this thread: every call from outside the agent's `text` becomes a signal.
pub fn arm(text: u64, text_len: u64) -> sys::Result<()> {
    sigsys::install()?;
    arm_again(text, text_len)
}

/// Arms dispatch in a fork of an armed process: the kernel forgets it, the handler stays.
pub fn arm_again(text: u64, text_len: u64) -> sys::Result<()> {
    use linux_raw_sys::prctl::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON};
    // SAFETY: the range holds every call instruction of the agent, the signal's restorer included;
    // without a selector byte there is nothing that the program could overwrite.
    unsafe {
        sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, [PR_SYS_DISPATCH_ON.into(), text, text_len, 0])?
    };
    note_thread();
    set_alive(true);
    Ok(())
}

/// Has the kernel clear the "alive" mark in every forked child.
pub fn wipe_on_fork() -> sys::Result<()> {
    let page = arch::RUNAHEAD_ALIVE.as_ptr() as u64;
    // SAFETY: a page of private memory that holds the mark and nothing else.
    unsafe { sys::advise(page, 4096, linux_raw_sys::general::MADV_WIPEONFORK) }.map(|_| ())
}

/// Lets patched call sites into the agent, or sends them to the kernel.
pub(crate) fn set_alive(alive: bool) {
    // SAFETY: one byte that only this thread and its stubs look at; volatile because the stubs do.
    unsafe { arch::RUNAHEAD_ALIVE.as_ptr().cast::<u8>().write_volatile(alive.into()) };
}

/// Remembers this thread as the armed one.
fn note_thread() {
    // SAFETY: as in `is_interesting`.
    unsafe { *arch::RUNAHEAD_THREAD.get() = arch::thread_pointer(patch::is_possible()) };
}

static RETIRED: Owned<bool> = Owned::new(false);

/// Interception has been given up.
fn is_retired() -> bool {
    // SAFETY: the armed thread; the reference ends here.
    unsafe { *RETIRED.get() }
}

/// Gives interception up for good: the program runs natively from here on.
pub fn retire() {
    // SAFETY: as above.
    unsafe { *RETIRED.get() = true };
    use linux_raw_sys::prctl::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF};
    set_alive(false);
    // SAFETY: switching dispatch off leaves native calls.
    let _ =
        unsafe { sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, [PR_SYS_DISPATCH_OFF.into(), 0, 0, 0]) };
    masks::restore_sigsys();
}

/// Calls that the plane handles itself, on behalf of every policy but one that sees all of them.
fn is_the_planes(call: u64) -> bool {
    // SAFETY: the armed thread; the reference ends here.
    if unsafe { *SEES_ALL.get() } {
        return call == nr::RT_SIGRETURN;
    }
    masks::MASK_CALLS.contains(&call)
        || matches!(
            call,
            nr::RT_SIGRETURN
                | nr::CLONE
                | nr::FORK
                | nr::VFORK
                | nr::CLONE3
                | nr::RT_SIGACTION
                | nr::RT_SIGPROCMASK
                | nr::RT_SIGPENDING
                | nr::SIGALTSTACK
                | nr::EXECVE
                | nr::EXECVEAT
                | nr::ARCH_PRCTL
        )
}
