//! Calls by which a program changes the rules under which it runs, and after which it has no
//! shadows.
//!
//! After most of them only the policy ends and interception goes on. Interception ends too where a
//! filter of the program would judge our calls, or a tracer would see our signal.

use core::sync::atomic::Ordering::Relaxed;

use super::call_outcome::Outcome;
use super::policy_end::end_policy;
use super::run_requests::supersede;
use super::target_state::Target;
use crate::control_client;
use crate::plane::{self, Call, signal_block};
use crate::session::Session;
use crate::sys::{self, nr};

/// Calls after which reads and prefetches would run with other rights than the target's.
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

/// True if a credential call asks for the users or groups that the process already has. Programs
/// that may be privileged, BusyBox among them, drop privileges that they never had.
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

/// True if the call installs a seccomp filter. Programs also probe for seccomp(2) with a query, or
/// without a filter, which changes nothing.
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

/// True if the call sets up rules under which our calls or our signal could not go on, or lets a
/// tracer see them.
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

/// Gives up interception if the call requires it. Returns true if it did; the call is then to be
/// made natively.
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
            // A filter of the program, or its own dispatch, would judge our calls.
            _ if ends_interception(call) => retire_plane(session),
            // Shadows are orphans: they would become children of this process and of its children.
            PR_SET_CHILD_SUBREAPER if call.args[1] != 0 => stop_policy(session),
            PR_SET_DUMPABLE if call.args[1] == 0 => {
                self.forbid_shadows(session);
                Outcome::Native
            }
            _ => Outcome::Native,
        }
    }
}

/// Ends the policy, as the program is about to change the rules under which it runs: no more
/// shadows, and new programs are not followed.
pub(super) fn stop_policy(session: &'static Session) -> Outcome {
    stop_shadows(session);
    end_policy();
    Outcome::Native
}

/// Ends interception, as the program sets up rules under which our calls or our signal could not go
/// on.
pub(super) fn retire_plane(session: &'static Session) -> Outcome {
    stop_shadows(session);
    plane::retire();
    Outcome::Native
}

/// Ends the shadows of this target and tells the supervisor to ignore its records from now on.
fn stop_shadows(session: &'static Session) {
    let control = &session.shared().control;
    if control.stopped.swap(1, Relaxed) == 0 {
        let mask = signal_block::begin();
        control_client::tell(session, runahead_abi::control_protocol::RULES);
        signal_block::end(mask);
    }
    supersede(control);
    crate::hint_sender::ring_bell(session.shared());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_sees_every_change_of_credentials() {
        assert!(CREDENTIAL_CALLS.iter().all(|&number| super::super::intercepts(number)));
    }
}
