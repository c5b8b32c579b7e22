//! What a process may do while it speculates: compute. Every call waits for the outcome (Nightingale 2005, 5.3).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::config::plant;

use super::checkpoint::{self, Outcome};
use super::memory::Memory;
use super::{planted, threads};
use crate::arch::Context;
use crate::plane::{self, Call, Interest, Next, Policy, Verdict};
use crate::session::{self, Session};
use crate::sys::{self, nr};
use crate::targets;

/// See the module's text.
struct Speculation;

static POLICY: &dyn Policy = &Speculation;

/// The thread that is about to make a child.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Of a call that a speculative process has come to.
fn waits(frame: &mut Context) -> Verdict {
    if !checkpoint::may_end() {
        return Verdict::wait(checkpoint::resolved());
    }
    planted::wait();
    match end(frame) {
        Outcome::Commit => Verdict::wait(checkpoint::resolved()),
        Outcome::Fail => Verdict::ELSEWHERE,
    }
}

fn end(frame: &mut Context) -> Outcome {
    let outcome = planted::outcome();
    let began = planted::now();
    checkpoint::end(outcome, frame, planted::leaves_memory());
    planted::note_took(1 + usize::from(outcome == Outcome::Fail), began);
    outcome
}

/// Where the program's heap ended when it last asked (brk(2)).
static BREAK: AtomicU64 = AtomicU64::new(0);

/// `call` may have changed what is mapped.
fn note_mapped(call: &Call, result: i64) {
    /// Advice after which pages hold what they held at first (madvise(2)).
    const EMPTIES: [u32; 3] = [k::MADV_DONTNEED, k::MADV_REMOVE, k::MADV_DONTNEED_LOCKED];
    if (-4095..0).contains(&result) {
        return;
    }
    let ([at, len, third, ..], result) = (call.args, result as u64);
    let dropped = |at, len| checkpoint::note_change(|memory| memory.dropped(at, len));
    match call.nr {
        nr::MUNMAP => dropped(at, len),
        nr::MADVISE if EMPTIES.contains(&(third as u32)) => dropped(at, len),
        nr::MMAP => dropped(result, len),
        nr::MREMAP if result == at => dropped(at + len.min(third), len.abs_diff(third)),
        nr::MREMAP => {
            dropped(at, len);
            checkpoint::note_change(Memory::moved);
        }
        nr::BRK => {
            let before = BREAK.swap(result, Relaxed).max(result);
            dropped(result, before - result);
        }
        nr::MPROTECT | nr::SHMAT | nr::SHMDT | nr::PKEY_MPROTECT => dropped(0, 0),
        _ => {}
    }
}

impl Policy for Speculation {
    fn interest(&self) -> Interest {
        Interest::Reported
    }

    fn before(&self, _call: &Call) -> Verdict {
        Verdict::REPORT
    }

    fn reported(&self, call: &Call, frame: &mut Context) -> Verdict {
        if checkpoint::is_speculative() {
            return waits(frame);
        }
        match call.nr {
            nr::PRCTL | nr::SECCOMP | nr::PTRACE if !call.thread.is_lent() => {
                let leaves =
                    session::get().is_some_and(|session| targets::leave_for(session, call));
                if leaves { Verdict::NATIVE } else { Verdict::REPORT }
            }
            nr::USERFAULTFD => {
                checkpoint::give_up();
                Verdict::REPORT
            }
            _ => Verdict::REPORT,
        }
    }

    fn own(&self, _call: &Call, frame: &mut Context) -> Verdict {
        if checkpoint::is_speculative() { waits(frame) } else { Verdict::REPORT }
    }

    fn after(&self, call: &Call, result: i64, frame: Option<&mut Context>) -> Next {
        note_mapped(call, result);
        match call.nr {
            nr::RSEQ if result == 0 && call.args[2] == 0 => {
                threads::note_place(sys::gettid(), call.args[0]);
            }
            nr::RSEQ if result == 0 => threads::forget_place(sys::gettid()),
            _ => {}
        }
        if let (Some(frame), Some(session)) = (frame, session::get())
            && !checkpoint::is_speculative()
            && !call.thread.is_lent()
        {
            planted::plant(session, result, frame);
        }
        Next::GoOn
    }

    fn poked(&self, frame: &mut Context) {
        if checkpoint::may_end() {
            end(frame);
        }
    }

    fn fault(&self, _signal: i32, frame: &mut Context) {
        if checkpoint::may_end() {
            planted::wait();
            end(frame);
            return;
        }
        while checkpoint::is_speculative() {
            let _ = sys::futex_wait(checkpoint::resolved(), 0, None);
        }
    }

    fn before_child(&self) {
        FORKS.store(sys::gettid(), Relaxed);
        targets::POLICY.before_child();
    }

    fn in_child(&self) {
        checkpoint::in_child();
        threads::places_in_child(FORKS.load(Relaxed));
        planted::in_child();
        targets::POLICY.in_child();
    }

    as_a_target!(but for children);

    /// Nobody would hear of what it does from here on, which may be wrong.
    fn lost(&self) {
        if checkpoint::is_speculative() {
            sys::exit(checkpoint::FAILED);
        }
    }

    fn thread_ends(&self) {
        threads::forget_place(sys::gettid());
    }
}

/// Puts this policy in the target's place, if a test has asked for it.
pub fn start(session: &Session) -> sys::Result<()> {
    match session.config.plant {
        plant::SPECULATED | plant::SPECULATED_WRONGLY => {
            planted::start(session)?;
            plane::set_policy(&POLICY)
        }
        _ => Ok(()),
    }
}
