//! What a policy is to the plane: all of the contract between the two.
//!
//! A policy says which calls it wants to see ([`Policy::interest`]), and what becomes of each before it is made
//! ([`Policy::before`]): it answers, has the program wait, or lets it go on. What it lets go on with [`Verdict::REPORT`] it sees
//! again when that has returned, however long it has waited ([`Policy::after`]), and may have it made again. It can stop all
//! other threads of the process at any call ([`crate::thread_stop`]). Some calls are the plane's own: those about signals, threads, children and exec. They are
//! never a policy's to answer, and it is told of them. Everything else here is told, too: children, execs, threads as they
//! come and go, signals that reach a handler, and what interception costs. (A process ends by a call that the policy sees, or
//! by a signal.)
//!
//! [`Interest`] is the choice between two ways in:
//!
//! | | calls come | results come | what it costs a call |
//! |---|---|---|---|
//! | [`Interest::Only`], [`Interest::Every`] | by patched sites, else by signals; in handlers that interrupt the agent not at all | of what the policy makes itself | 15 ns |
//! | [`Interest::Reported`] | by signals, two for each call that is reported; all of them | of all | microseconds |
//!
//! *Fail open or closed*: what the plane cannot go on with it gives up ([`Policy::lost`]), and the process runs natively. A
//! policy for which that will not do ends the process there. Under [`Interest::Reported`] nothing else is lost: its
//! methods run with signals blocked, so that no handler of the program's finds the agent at work; and what a vfork child does is
//! seen, too, on its parent's thread. (Other policies can ask for that: [`Policy::sees_borrowers`].)
//!
//! A policy's methods run on a stack of the plane's, in the process and on the thread that they are about. They make no call
//! that the program would see, wait for nothing, and do not panic on a path that the program can take.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use crate::arch::Context;
use crate::{Call, Token, kernel_signals, sys};

/// In place of the number of a call that is made by the 32-bit entry.
pub const OF_ANOTHER_ABI: u64 = u64::MAX;

/// Value of a SIGSYS that is queued (sigqueue(3)) to have [`Policy::poked`] called.
pub const POKE: u64 = 0x7261_6864_706f_6b65;

/// What a policy says of a call. Returned in two registers to the entry code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Verdict {
    pub(crate) ret: i64,
    pub(crate) native: u64,
}

impl Verdict {
    /// The call is answered; the program sees this value.
    pub const fn answer(ret: i64) -> Self {
        Verdict { ret, native: 0 }
    }

    /// The call is to be made as it stands, from the program's own stack: it may wait for long.
    pub const NATIVE: Verdict = Verdict { ret: 0, native: 1 };

    /// The call is to trap. Only for those that the plane checks.
    pub(crate) const TRAP: Verdict = Verdict { ret: 0, native: 2 };

    /// The call is to be made as it stands, and its result told ([`Policy::after`]). Under [`Interest::Reported`] only;
    /// otherwise this is [`Verdict::NATIVE`].
    pub const REPORT: Verdict = Verdict { ret: 0, native: 3 };

    const WAITS: u64 = 4;

    /// The thread goes on as its frame says, which the policy has changed. Under [`Interest::Reported`] only.
    pub const ELSEWHERE: Verdict = Verdict { ret: 0, native: 5 };

    /// The call is not to be made yet. The program waits in front of it, where signals reach it, until `word` is not 0
    /// ([`wake`]); then, and whenever a handler has returned, the policy is asked again. Under [`Interest::Reported`] only; otherwise
    /// this is [`Verdict::NATIVE`].
    pub fn wait(word: &'static AtomicU32) -> Self {
        Verdict { ret: word.as_ptr() as i64, native: Self::WAITS }
    }

    /// What the call is answered, if it is.
    pub const fn answered(self) -> Option<i64> {
        if self.native == 0 { Some(self.ret) } else { None }
    }

    /// The word to wait on.
    pub(crate) fn waits_on(self) -> Option<u64> {
        (self.native == Self::WAITS).then_some(self.ret as u64)
    }

    /// This verdict can be followed under [`Interest::Reported`] only.
    pub(crate) fn is_for_reported(self) -> bool {
        self.native >= Self::REPORT.native
    }
}

/// Ends all waits on `word` ([`Verdict::wait`]).
pub fn wake(word: &'static AtomicU32) {
    word.store(1, SeqCst);
    sys::futex_wake(word);
}

/// Has [`Policy::poked`] called in a thread of this or another process. (One that is gone, or another user's, is not.)
pub fn poke(process: u32, thread: u32) {
    kernel_signals::send_to(process, thread, POKE);
}

/// What becomes of a call that has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The program goes on behind the call.
    GoOn,
    /// The call is made again: the policy is asked, as if the program had just come to it.
    Again,
}

/// Which calls a policy sees.
#[derive(Clone, Copy)]
pub enum Interest {
    /// All, the plane's own among them but for the return from a signal.
    Every,
    /// Calls of these numbers.
    Only {
        /// Each call of these numbers.
        all_of: &'static [u64],
        /// Calls of these numbers whose second argument, a command, is none of the common ones that concern one descriptor
        /// and nothing else (of fcntl(2) those from 1 to 1023: its flags, and locks). It may see some of those, too.
        commands_of: &'static [u64],
        /// Calls of these numbers that it does not let go by ([`crate::sample_counter`]).
        samples_of: &'static [u64],
    },
    /// All, and what came of them; the plane's own are its own.
    Reported,
}

/// What interception costs, one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A call was delivered as a signal.
    Trapped,
    /// A call site was rewritten to come here without one.
    Patched,
}

/// What becomes of an exec.
#[derive(Clone, Copy)]
pub enum Exec {
    /// The program's call is made.
    AsItStands,
    /// This call is made in its place.
    Instead {
        /// Number of the call.
        nr: u64,
        /// Its arguments.
        args: [u64; 6],
        /// First address and bytes of memory in which they lie. It is from [`crate::address_space`], and given back once
        /// nobody needs it.
        memory: (u64, u64),
    },
    /// No call is made; the program sees this value.
    Answer(i64),
}

/// Token of an exec for which nothing was prepared.
pub const NO_TOKEN: Token = -1;

/// See the module's text.
pub trait Policy: Sync {
    /// Which calls it wants to see. Asked once, when it is installed.
    fn interest(&self) -> Interest;

    /// The program is about to make `call`. Under [`Interest::Reported`] a call that a signal has interrupted, and that the
    /// program makes again for that, is about to be made again.
    fn before(&self, call: &Call) -> Verdict;

    /// Under [`Interest::Reported`]: whether [`Policy::before`] is asked of a call of this number that has come as a signal, as it is of
    /// one from a patched site, with signals as the program has them. It may answer it there, or say [`Verdict::REPORT`], and is asked
    /// by [`Policy::reported`] then.
    fn is_asked_first(&self, _number: u64) -> bool {
        false
    }

    /// Under [`Interest::Reported`], in place of [`Policy::before`], or after it: with the frame of the thread that has come to the call,
    /// in which it stands in front of that.
    fn reported(&self, call: &Call, _frame: &mut Context) -> Verdict {
        self.before(call)
    }

    /// `call`, of which `before` said [`Verdict::REPORT`], has returned this to the program. (Nobody is told of one on
    /// whose way back a signal ends the process.) In its frame the thread stands behind the call; there is none where a handler
    /// is about to begin there, nor where the frame lies in memory of the program's.
    fn after(&self, _call: &Call, _result: i64, _frame: Option<&mut Context>) -> Next {
        Next::GoOn
    }

    /// The plane is about to make, or to do in its way, one of its own calls. Under [`Interest::Reported`] only. It may be
    /// made to wait, or the thread to go on elsewhere; any other verdict is taken for consent. A call of the number [`OF_ANOTHER_ABI`]
    /// is one with which the process is lost.
    fn own(&self, _call: &Call, _frame: &mut Context) -> Verdict {
        Verdict::REPORT
    }

    /// Somebody has queued the thread a SIGSYS that carries [`POKE`], which has met it at work of its own, or in front of a
    /// call.
    fn poked(&self, _frame: &mut Context) {}

    /// Somebody has poked the thread, which was at work here: [`Policy::poked`] is not called.
    fn missed(&self) {}

    /// The thread has raised this signal, and the policy has [taken faults over](crate::program_faults); or somebody has sent it a SIGSYS
    /// that is not ours. When it returns the thread
    /// goes on as its frame says, which may be to raise it again.
    fn fault(&self, _signal: i32, _frame: &mut Context) {}

    /// The thread has raised SIGSEGV, for want of the right to write at `at`, and the policy has taken faults over. True: it can write
    /// there now. (Whoever asks may be we, at work for the program: nothing else is to be done.)
    fn stored(&self, _at: u64) -> bool {
        false
    }

    /// The plane, or the kernel for it, is about to write to `len` bytes of the program's memory. False: it is not to.
    fn will_write(&self, _at: u64, _len: u64) -> bool {
        true
    }

    /// The plane's own call of that number has returned this to the program. (An exec that succeeds, a return from a signal
    /// and the end of a thread do not return; in a child nothing is told.)
    fn own_returned(&self, _number: u64, _result: i64) {}

    /// A child is about to be made.
    fn before_child(&self) {}

    /// This is a new process, a fork of the one that the policy knew.
    fn in_child(&self) {}

    /// This is a new thread of the process, about to begin.
    fn thread_begins(&self) {}

    /// This thread is about to end, by a call of its own; not those that end with their process.
    fn thread_ends(&self) {}

    /// A handler of the program's is about to be started for this signal, with signals blocked. A call that it interrupts is
    /// made anew once it returns, or the policy has been told what came of it.
    fn handler_begins(&self, _signal: i32) {}

    /// The program is about to exec, with signals blocked; whatever is done for it, undone by `exec_failed` if it comes to
    /// that.
    fn before_exec(&self, _call: &Call) -> Token {
        NO_TOKEN
    }

    /// Where the program is about to exec: another call may be made in place of its own, or none, and the program is
    /// answered. Before [`Policy::before_exec`], which is told of the call that is made.
    fn redirect_exec(&self, _call: &Call) -> Exec {
        Exec::AsItStands
    }

    /// A vfork child's calls are this policy's business, too: it is asked of them as of its parent's, on the parent's thread, which
    /// waits. (The child shares memory, but not descriptors and working directory, with its parent.) Otherwise they are
    /// seen under [`Interest::Reported`] only. Asked at each vfork.
    fn sees_borrowers(&self) -> bool {
        false
    }

    /// The program is about to exec, with this mask of signals as the kernel has it, and after [`Policy::before_exec`]: the mask
    /// with which it does, and the new program begins.
    fn mask_over_exec(&self, mask: u64) -> u64 {
        mask
    }

    /// See [`Policy::before_exec`].
    fn exec_failed(&self, _token: Token) {}

    /// Something has happened that is worth counting.
    fn event(&self, _event: Event) {}

    /// From here on this process, or this thread of it, is not seen any more.
    fn lost(&self) {}
}

/// The policy in force; a pointer to one, as such a reference is two words.
static POLICY: AtomicPtr<&'static dyn Policy> = AtomicPtr::new(core::ptr::null_mut());

pub(crate) fn get() -> Option<&'static dyn Policy> {
    // SAFETY: only ever set from a static reference.
    unsafe { POLICY.load(Acquire).as_ref() }.copied()
}

/// What the policy says to a write of the plane's into the program's memory ([`Policy::will_write`]).
pub(crate) fn will_write(at: u64, len: u64) -> bool {
    get().is_none_or(|policy| policy.will_write(at, len))
}

pub(crate) fn install(policy: &'static &'static dyn Policy) {
    POLICY.store(core::ptr::from_ref(policy).cast_mut(), Release);
}

pub(crate) fn remove() {
    POLICY.store(core::ptr::null_mut(), Release);
}
