//! The contract between the plane and a policy.
//!
//! A policy chooses the calls that it sees ([`Policy::interest`]), and decides each before it is
//! made ([`Policy::before`]): it answers the call, or lets the program make it. A
//! [`ReportingPolicy`] sees all calls, and the result of each that it lets the program make
//! ([`ReportingPolicy::after`]), however long that has waited. It can also make a call wait, resume
//! the thread elsewhere, and have a call made again. Every policy learns of children, execs,
//! threads, and signals that reach a handler ([`ProcessEvents`]), and can stop all other threads of
//! the process at any call ([`crate::thread_stop`]).
//!
//! The plane makes some calls itself: those about signals, threads, children and exec. A policy
//! cannot answer them; a [`ReportingPolicy`] sees them as [`ReportingPolicy::plane_call`]. The end
//! of a process is either a call that the policy sees, or a signal.
//!
//! The two kinds differ in their costs:
//! - A [`Policy`] gets calls by patched sites, else by signals, and none from handlers that
//!   interrupt the agent. It sees only the results of calls that it makes itself. A call costs 15
//!   ns.
//! - A [`ReportingPolicy`] gets all calls and all results, by two signals for each call that is
//!   reported. A call costs microseconds.
//!
//! *Fail open or closed*: a process that the plane cannot intercept any more runs natively
//! ([`ProcessEvents::lost`]). A policy that cannot accept this ends the process there. A
//! [`ReportingPolicy`] loses sight of nothing else: its methods run with signals blocked, so that
//! no handler of the program finds the agent at work. It also sees the calls of a vfork child, on
//! the parent's thread. Other policies ask for these with [`ProcessEvents::sees_borrowers`].
//!
//! A policy's methods run on a stack of the plane, in the process and on the thread that they are
//! about. They make no call that the program would see, wait for nothing, and do not panic on a
//! path that the program can take.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use crate::address_range::AddressRange;
use crate::arch::Context;
use crate::intercepted_call::Call;
use crate::sys;

/// Stands in for the number of a call that the program makes by the 32-bit entry (`int 0x80`).
pub const OF_ANOTHER_ABI: u64 = u64::MAX;

/// The entry code's reaction to a call, as it reads it from a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Reaction {
    Answer = 0,
    Native = 1,
    Trap = 2,
}

/// Decision of a policy on a call: an answer, or the call itself. Returned in two registers to the
/// entry code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Verdict {
    pub(crate) ret: i64,
    pub(crate) reaction: Reaction,
}

impl Verdict {
    /// Answers the call: the program sees this value.
    pub const fn answer(ret: i64) -> Self {
        Verdict { ret, reaction: Reaction::Answer }
    }

    /// Makes the call as it stands, from the program's own stack: it may wait for long.
    pub const NATIVE: Verdict = Verdict { ret: 0, reaction: Reaction::Native };

    /// Makes the call trap, so that it comes again as a signal.
    pub(crate) const TRAP: Verdict = Verdict { ret: 0, reaction: Reaction::Trap };

    /// The value that answers the call; None if it is made as it stands.
    pub const fn answered(self) -> Option<i64> {
        match self.reaction {
            Reaction::Answer => Some(self.ret),
            Reaction::Native | Reaction::Trap => None,
        }
    }
}

/// Decision of a [`ReportingPolicy`] on a call.
#[derive(Clone, Copy, Debug)]
pub enum ReportingVerdict {
    /// Answers the call: the program sees this value.
    Answer(i64),
    /// Makes the call as it stands; its result is not reported.
    Native,
    /// Makes the call as it stands, and reports its result to [`ReportingPolicy::after`].
    Report,
    /// Waits in front of the call, where signals reach the program, until the word is not 0
    /// ([`wake`]). Then, and whenever a handler has returned, the policy is asked again.
    Wait(&'static AtomicU32),
    /// Resumes the thread as its frame says, which the policy has changed.
    ResumeFrame,
}

/// Decision of a [`ReportingPolicy`] on a call that the plane makes itself.
#[derive(Clone, Copy, Debug)]
pub enum PlaneCallVerdict {
    /// The plane makes the call.
    Proceed,
    /// Waits in front of the call, as [`ReportingVerdict::Wait`] does.
    Wait(&'static AtomicU32),
    /// Resumes the thread as its changed frame says, as [`ReportingVerdict::ResumeFrame`] does.
    ResumeFrame,
}

impl From<PlaneCallVerdict> for ReportingVerdict {
    fn from(verdict: PlaneCallVerdict) -> Self {
        match verdict {
            PlaneCallVerdict::Proceed => ReportingVerdict::Report,
            PlaneCallVerdict::Wait(word) => ReportingVerdict::Wait(word),
            PlaneCallVerdict::ResumeFrame => ReportingVerdict::ResumeFrame,
        }
    }
}

/// Ends all waits on `word` ([`ReportingVerdict::Wait`]).
pub fn wake(word: &'static AtomicU32) {
    word.store(1, SeqCst);
    sys::futex_wake(word);
}

/// Continuation after a call has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The program goes on behind the call.
    GoOn,
    /// The call is made again: the policy is asked, as if the program had just come to it.
    Again,
}

/// Calls that a [`Policy`] sees.
#[derive(Clone, Copy)]
pub enum Interest {
    /// Every call, those that the plane makes itself among them, except the return from a signal.
    Every,
    /// Calls of these numbers.
    Only {
        /// Numbers of which the policy sees every call.
        all_of: &'static [u64],
        /// Numbers whose second argument is a command. The policy sees calls whose command is not a
        /// common one that concerns one descriptor and nothing else (of fcntl(2) those from 1 to
        /// 1023: its flags, and locks). It may see some of those, too.
        commands_of: &'static [u64],
        /// Numbers of which the policy sees a sample ([`crate::sample_counter`]).
        samples_of: &'static [u64],
    },
}

/// Costs of interception that are counted one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A call was delivered as a signal.
    Trapped,
    /// A call site was rewritten to jump into the plane.
    Patched,
}

/// Decision of a policy on an exec.
#[derive(Clone, Copy)]
pub enum Exec {
    /// The program's call is made.
    AsItStands,
    /// This call is made in place of the program's.
    Instead {
        /// Number of the call.
        nr: u64,
        /// Arguments of the call.
        args: [u64; 6],
        /// Memory that holds what the arguments point to.
        /// It comes from [`crate::address_space`]; the plane frees it when the call has failed.
        memory: AddressRange,
    },
    /// No call is made; the program sees this value.
    Answer(i64),
}

/// Value that [`ProcessEvents::before_exec`] leaves for [`ProcessEvents::exec_failed`].
pub type Token = i32;

/// Token of an exec for which nothing was prepared.
pub const NO_TOKEN: Token = -1;

/// Notifications that every policy gets of its process.
pub trait ProcessEvents: Sync {
    /// A SIGSYS with the value [`POKE`](crate::sent_signals::POKE) has come: to a thread that runs
    /// the program's code, or that stands in front of a call.
    fn poked(&self, _frame: &mut Context) {}

    /// A SIGSYS with the value [`POKE`](crate::sent_signals::POKE) has come to a thread that is in
    /// the agent's code. [`ProcessEvents::poked`] is not called.
    fn poke_missed(&self) {}

    /// Another process asks this one to give interception up ([`crate::retire`]). A SIGSYS with the
    /// value [`END`](crate::sent_signals::END) has come. All signals are blocked.
    fn asked_to_end(&self) {}

    /// A child is about to be made.
    fn before_child(&self) {}

    /// This is a new process, a fork of the one that the policy knew.
    fn in_child(&self) {}

    /// This is a new thread of the process, about to begin.
    fn thread_begins(&self) {}

    /// This thread is about to end by its own call; not called for threads that end with their
    /// process.
    fn thread_ends(&self) {}

    /// A handler of the program is about to start for this signal, with signals blocked. The call
    /// that it interrupts is made anew once it returns, or its result has already been reported.
    fn handler_begins(&self, _signal: i32) {}

    /// The program is about to exec, with signals blocked. Returns a token for `exec_failed`, which
    /// undoes what is done here.
    fn before_exec(&self, _call: &Call) -> Token {
        NO_TOKEN
    }

    /// Decides on an exec of the program. Called before [`ProcessEvents::before_exec`], which gets
    /// the call that is made.
    fn redirect_exec(&self, _call: &Call) -> Exec {
        Exec::AsItStands
    }

    /// True if the policy sees the calls of a vfork child, as if its parent's thread, which waits,
    /// had made them. The child shares memory with its parent, but not descriptors and working
    /// directory. A [`ReportingPolicy`] always sees them. Asked at each vfork.
    fn sees_borrowers(&self) -> bool {
        false
    }

    /// Returns the signal mask to exec with, and so the new program's. `mask` is the program's.
    /// Called after [`ProcessEvents::before_exec`].
    fn mask_over_exec(&self, mask: u64) -> u64 {
        mask
    }

    /// The exec has failed that [`ProcessEvents::before_exec`] returned `_token` for.
    fn exec_failed(&self, _token: Token) {}

    /// Interception has cost something that is counted.
    fn event(&self, _event: Event) {}

    /// The policy sees no more calls of this process, or of this thread of it.
    fn lost(&self) {}
}

/// A policy that answers calls, and does not see the results of others.
pub trait Policy: ProcessEvents {
    /// Calls that the policy wants to see. Asked once, when it is installed.
    fn interest(&self) -> Interest;

    /// The program is about to make `call`.
    fn before(&self, call: &Call) -> Verdict;
}

/// A policy that sees all calls and their results, and can make a thread wait or resume it
/// elsewhere.
///
/// A call that a signal has interrupted, and that the program makes again for that reason, comes
/// again as a new call.
pub trait ReportingPolicy: ProcessEvents {
    /// True if [`ReportingPolicy::before`] is asked of calls of this number that come as a signal,
    /// as it is of those from a patched site.
    fn is_asked_first(&self, _number: u64) -> bool {
        false
    }

    /// The program is about to make `call`, with signals as the program has them blocked. None: the
    /// policy needs the thread's frame, and is asked by [`ReportingPolicy::reported`].
    fn before(&self, _call: &Call) -> Option<Verdict> {
        None
    }

    /// The program is about to make `call`. In `frame` the thread stands in front of the call.
    fn reported(&self, call: &Call, frame: &mut Context) -> ReportingVerdict;

    /// `call`, on which the verdict was [`ReportingVerdict::Report`], has returned this result to
    /// the program. In its frame the thread stands behind the call. The frame is None if a handler
    /// is about to begin there, or if it lies in memory of the program. Not called if a signal ends
    /// the process on the way back.
    fn after(&self, _call: &Call, _result: i64, _frame: Option<&mut Context>) -> Next {
        Next::GoOn
    }

    /// The plane is about to make one of its own calls for the program. With a call of the number
    /// [`OF_ANOTHER_ABI`] the process is lost.
    fn plane_call(&self, _call: &Call, _frame: &mut Context) -> PlaneCallVerdict {
        PlaneCallVerdict::Proceed
    }

    /// The plane's own call of that number has returned this result to the program. Not called for
    /// a successful exec, a return from a signal, the end of a thread, or in a child.
    fn plane_call_returned(&self, _number: u64, _result: i64) {}

    /// The thread has raised this signal while [faults are taken over](crate::program_faults), or
    /// has got a SIGSYS that the agent did not send. Afterwards the thread goes on as its frame
    /// says, which may raise the signal again.
    fn fault(&self, _signal: i32, _frame: &mut Context) {}

    /// The thread has raised SIGSEGV by a write to the protected page at `at`, while faults are
    /// taken over. Returns true if it can write there now. May run inside the agent's own store: do
    /// nothing but unprotect the page.
    fn write_fault(&self, _at: u64) -> bool {
        false
    }

    /// The plane, or the kernel for it, is about to write to `len` bytes of the program's memory.
    /// Returns false to forbid it.
    fn will_write(&self, _at: u64, _len: u64) -> bool {
        true
    }
}

/// A policy as [`crate::set_policy`] installs it.
#[derive(Clone, Copy)]
pub enum AnyPolicy {
    /// Sees calls.
    Plain(&'static dyn Policy),
    /// Sees calls and results.
    Reporting(&'static dyn ReportingPolicy),
}

/// The policy in force. A pointer to the reference, which is larger than an atomic word.
static POLICY: AtomicPtr<AnyPolicy> = AtomicPtr::new(core::ptr::null_mut());

/// The policy in force.
pub(crate) fn installed() -> Option<&'static AnyPolicy> {
    // SAFETY: only ever set from a static reference.
    unsafe { POLICY.load(Acquire).as_ref() }
}

/// Receiver of the events of the policy in force.
pub(crate) fn events() -> Option<&'static dyn ProcessEvents> {
    installed().map(|policy| match *policy {
        AnyPolicy::Plain(policy) => policy as &dyn ProcessEvents,
        AnyPolicy::Reporting(policy) => policy,
    })
}

/// The policy in force if it is one that results are reported to.
pub(crate) fn reporting() -> Option<&'static dyn ReportingPolicy> {
    match installed() {
        Some(AnyPolicy::Reporting(policy)) => Some(*policy),
        _ => None,
    }
}

/// True if the policy lets the plane write into the program's memory
/// ([`ReportingPolicy::will_write`]).
pub(crate) fn will_write(at: u64, len: u64) -> bool {
    reporting().is_none_or(|policy| policy.will_write(at, len))
}

pub(crate) fn install(policy: &'static AnyPolicy) {
    POLICY.store(core::ptr::from_ref(policy).cast_mut(), Release);
}

pub(crate) fn remove() {
    POLICY.store(core::ptr::null_mut(), Release);
}

/// Counts a cost of interception.
pub(crate) fn count(event: Event) {
    if let Some(policy) = events() {
        policy.event(event);
    }
}
