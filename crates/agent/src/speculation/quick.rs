//! Calls that need not come as signals, while the process has one thread.
//!
//! A report takes two signals, some five microseconds, and what it tells is needed of few calls: of those after which a checkpoint
//! would miss something, while the process does not speculate, and of those that wait, while it does. All others are made
//! from patched sites: as they stand, or here.
//!
//! With a second thread there are stops, which a thread in a call that nobody sees does not come to: from then on every call is
//! reported.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::allowed;
use super::calls::{Class, Made, class};
use super::host;
use super::{checkpoint, depends, interface, mapped, own, planted};
use crate::plane::{self, Call, Quick, Verdict, quiet};
use crate::sys::{self, nr};

/// What becomes of a call while the process does not speculate.
fn otherwise(nr: u64) -> Quick {
    match nr {
        // What is mapped, and who has which descriptor.
        nr::MMAP | nr::MUNMAP | nr::MREMAP | nr::MPROTECT | nr::MADVISE | nr::BRK => Quick::Before,
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT => Quick::Before,
        nr::CLOSE | nr::DUP | nr::DUP2 | nr::DUP3 | nr::FCNTL => Quick::Before,
        nr::FADVISE64 => Quick::Before,
        // Pipes in which there is nothing yet but what may be taken back.
        nr::READ | nr::READV | nr::RECVFROM if !planted::is_on() => Quick::Before,
        nr::SHMAT | nr::SHMDT | nr::PKEY_MPROTECT | nr::USERFAULTFD | nr::RSEQ => Quick::Reported,
        nr::CLOSE_RANGE | nr::SENDMSG | nr::SENDMMSG | nr::FLOCK => Quick::Reported,
        nr::PRCTL | nr::SECCOMP | nr::PTRACE | nr::EXIT_GROUP => Quick::Reported,
        _ if planted::is_on() => Quick::Reported,
        _ => Quick::Unseen,
    }
}

/// What was chosen last: nothing yet, or for a process that does not speculate, or that does.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// The process begins, speculates from here on, or does not any more.
pub fn choose() {
    let speculates = checkpoint::is_speculative();
    // (From one prediction to the next nothing changes, and there are hundreds of calls to be gone through.)
    if plane::has_threads()
        || CHOSEN.swap(1 + u32::from(speculates), Relaxed) == 1 + u32::from(speculates)
    {
        return;
    }
    match speculates {
        true => plane::be_quick(|nr| match class(nr) {
            Class::Waits => Quick::Reported,
            _ => Quick::Before,
        }),
        false => plane::be_quick(otherwise),
    }
}

/// A thread is about to be made by this call: from here on every call is reported.
pub fn before_thread(call: &Call) {
    use linux_raw_sys::general::{CLONE_VFORK, CLONE_VM};
    let flags = match call.nr {
        nr::CLONE => call.args[0],
        nr::CLONE3 => sys::copy_in(call.args[0]).unwrap_or(u64::from(CLONE_VM)),
        _ => return,
    };
    if flags as u32 & (CLONE_VM | CLONE_VFORK) == CLONE_VM {
        plane::report_all();
    }
}

/// What becomes of a call from a patched site. (Where its frame is needed it is to come as a signal.)
pub fn before(call: &Call) -> Verdict {
    if planted::wants() || host::is_to_ask() {
        return Verdict::REPORT;
    }
    // (What is made here is not made again if a signal of ours interrupts it. Outside of speculations there are none but
    // those of tests.)
    if checkpoint::is_speculative() {
        let is_settled = host::table().is_some_and(checkpoint::has_seen);
        if !is_settled || interface::is_one(call) {
            return Verdict::REPORT;
        }
        return match allowed::make(call) {
            Made::Answer(result) => Verdict::answer(result),
            Made::Report | Made::Waits | Made::Depends(..) => Verdict::REPORT,
        };
    }
    if interface::is_one(call) {
        return interface::asked_at_once(call).unwrap_or(Verdict::REPORT);
    }
    if otherwise(call.nr) != Quick::Before || call.thread.is_lent() {
        return Verdict::REPORT;
    }
    if depends::may_read(call) {
        let looks = own::may_be_pipe(call.fd(0)) && !depends::is_filled(call);
        return if looks { Verdict::REPORT } else { Verdict::NATIVE };
    }
    let result = call.perform();
    if result != sys::RESTART {
        // A handler that came in between would wait for the locks that this takes.
        let mask = quiet::begin();
        mapped::note(call, result);
        allowed::note(call, result);
        quiet::end(mask);
    }
    Verdict::answer(result)
}
