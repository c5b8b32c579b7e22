//! Calls by which a program changes the rules under which it runs, and after which it has no shadows.
//!
//! Most leave interception as it is: only the policy ends. Where calls of ours would be judged by a filter of
//! the program's, or our signal be seen by a tracer, interception ends, too.

use core::sync::atomic::Ordering::Relaxed;

use super::call_outcome::Outcome;
use super::{Target, end_policy, shadow_sync};
use crate::control_client;
use crate::plane::{self, Call, signal_block};
use crate::session::Session;
use crate::sys::{self, nr};

/// Calls after which reads and prefetches would run under other rights than the target's.
pub(super) const CREDENTIAL_CALLS: [u64; 9] = [
    nr::SETUID,
    nr::SETGID,
    nr::SETREUID,
    nr::SETREGID,
    nr::SETRESUID,
    nr::SETRESGID,
    nr::SETFSUID,
    nr::SETFSGID,
    nr::SETGROUPS,
];

/// Programs that may be privileged, BusyBox among them, drop what they have not got: they ask for the users
/// and groups that they have already, and nothing changes.
pub(super) fn keeps_credentials(call: &Call) -> bool {
    let (ids, asked) = match call.nr {
        nr::SETUID => (sys::users(), 1),
        nr::SETREUID => (sys::users(), 2),
        nr::SETRESUID => (sys::users(), 3),
        nr::SETGID => (sys::groups(), 1),
        nr::SETREGID => (sys::groups(), 2),
        nr::SETRESGID => (sys::groups(), 3),
        _ => return false,
    };
    let Ok([real, effective, saved]) = ids else { return false };
    let stays = |id: &u64| *id as u32 == real || *id as u32 == u32::MAX;
    real == effective && real == saved && call.args[..asked].iter().all(stays)
}

/// Programs find out what there is (seccomp(2)): they ask for it, or try without a filter and are told that
/// there was none. Nothing changes by that.
pub(super) fn installs_filter(call: &Call) -> bool {
    use linux_raw_sys::ptrace::{
        SECCOMP_MODE_FILTER, SECCOMP_MODE_STRICT, SECCOMP_SET_MODE_FILTER, SECCOMP_SET_MODE_STRICT,
    };
    let [a, b, c, ..] = call.args;
    let (operation, filter) = if call.nr == nr::SECCOMP { (a, c) } else { (b, c) };
    let (filtered, strict) = match call.nr {
        nr::SECCOMP => (SECCOMP_SET_MODE_FILTER, SECCOMP_SET_MODE_STRICT),
        _ => (SECCOMP_MODE_FILTER, SECCOMP_MODE_STRICT),
    };
    operation as u32 == strict || operation as u32 == filtered && filter != 0
}

/// The call sets up rules under which calls of ours, or our signal, could not go on; and somebody who would see them.
fn ends_interception(call: &Call) -> bool {
    use linux_raw_sys::prctl::*;
    match call.nr {
        nr::SECCOMP => installs_filter(call),
        nr::PRCTL => match call.args[0] as u32 {
            PR_SET_SECCOMP => installs_filter(call),
            PR_SET_SYSCALL_USER_DISPATCH | PR_SET_TSC => true,
            _ => false,
        },
        // PTRACE_TRACEME
        nr::PTRACE => call.args[0] == 0,
        _ => false,
    }
}

/// Gives interception up if the call needs that: true, then, and it is to be made natively.
pub fn retire_if_needed(session: &'static Session, call: &Call) -> bool {
    let leaves = ends_interception(call);
    if leaves {
        let _ = retire_plane(session);
    }
    leaves
}

impl Target {
    pub(super) fn prctl(&self, session: &'static Session, call: &Call) -> Outcome {
        use linux_raw_sys::prctl::*;
        match call.args[0] as u32 {
            // A filter of the program's own, or its own dispatch: our calls would be judged by it.
            _ if ends_interception(call) => retire_plane(session),
            // Shadows, which are orphans, would become its children, and its children's.
            PR_SET_CHILD_SUBREAPER if call.args[1] != 0 => stop_policy(session),
            PR_SET_DUMPABLE if call.args[1] == 0 => {
                self.forbid_shadows(session);
                Outcome::Native
            }
            _ => Outcome::Native,
        }
    }
}

/// The program is about to change the rules under which it runs: from here on it has no shadows, and
/// nothing that it starts is followed.
pub(super) fn stop_policy(session: &'static Session) -> Outcome {
    stop_shadows(session);
    end_policy();
    Outcome::Native
}

/// The program sets up rules under which calls of ours, or our signal, could not go on: it runs natively.
pub(super) fn retire_plane(session: &'static Session) -> Outcome {
    stop_shadows(session);
    plane::retire();
    Outcome::Native
}

/// Shadows of this target end themselves, and the supervisor hears no more of what is said here.
fn stop_shadows(session: &'static Session) {
    let control = &session.shared().control;
    if control.stopped.swap(1, Relaxed) == 0 {
        let mask = signal_block::begin();
        control_client::tell(session, runahead_abi::control_protocol::RULES);
        signal_block::end(mask);
    }
    shadow_sync::supersede(control);
    crate::hint_sender::ring_bell(session.shared());
}
