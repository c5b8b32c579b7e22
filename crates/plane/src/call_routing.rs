//! The route of each call, by its number: unseen, to the policy, as a signal, or reported.

use core::sync::atomic::Ordering::*;

use crate::arch::{CALLS, CHECKED, COMMANDED, RUNAHEAD_INTEREST, SAMPLED, SEEN, TRAPPED};
use crate::interception_state::{REPORTS, SEES_ALL, SKIPS_REPORTS, reports, skips_reports};
use crate::plane_calls::{is_checked, is_the_planes};
use crate::policy::{self, AnyPolicy, Interest};
use crate::{call_reporting, dispatch_signal, patch, sys};

/// Installs `policy`.
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
    // A shadow whose target reported calls may not change an action any more, and no signal of ours
    // interrupts it.
    if REPORTS.swap(reports, Relaxed) != reports && reports {
        dispatch_signal::install_action()?;
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

/// Sets the route of a call. A patched site may make calls of any number, so the plane's own calls
/// and those that must not be patched trap.
pub(crate) fn set_interest(nr: u64, how: u8) {
    let how = match how {
        _ if is_checked(nr) => CHECKED,
        _ if is_the_planes(nr) => TRAPPED,
        1.. if patch::never(nr) => TRAPPED,
        how => how,
    };
    RUNAHEAD_INTEREST[nr as usize].store(how, Relaxed);
}

/// Route of a call where a [`ReportingPolicy`](crate::ReportingPolicy) can do with less than a
/// report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallRoute {
    /// The call is made as it stands, and the policy does not see it.
    Unseen,
    /// The policy sees a sample of the calls, as [`CallRoute::Before`] ([`crate::sample_counter`]).
    Sampled,
    /// The policy sees the call ([`ReportingPolicy::before`](crate::ReportingPolicy::before)), by a
    /// patched site if there is one. It decides it there, or has it come with its frame.
    Before,
    /// The call comes as a signal, and is reported.
    Reported,
}

/// Sets the route of each call, and patches sites from here on. Call it only while the process has
/// one thread: a thread that waits in a call that no policy sees cannot be stopped.
pub fn set_routes(how: impl Fn(u64) -> CallRoute) {
    (0..CALLS as u64).for_each(|nr| {
        let how = match how(nr) {
            CallRoute::Unseen => 0,
            CallRoute::Sampled => SAMPLED,
            CallRoute::Before => SEEN,
            CallRoute::Reported => TRAPPED,
        };
        set_interest(nr, how);
    });
    SKIPS_REPORTS.store(true, Relaxed);
}

/// Reports every call again.
pub fn report_all() {
    if SKIPS_REPORTS.swap(false, Relaxed) {
        (0..CALLS as u64).for_each(|nr| set_interest(nr, TRAPPED));
    }
}

/// Makes the policy see these `calls`, too.
pub fn take_interest(calls: &[u64]) {
    calls.iter().for_each(|&nr| set_interest(nr, SEEN));
}

/// Makes the policy see each call `nr`, of which it saw a sample, or only a sample again. Where
/// interception was given up, or calls are reported, nothing changes.
pub fn see_all_of(nr: u64, all: bool) {
    if reports() {
        return;
    }
    let (from, to) = if all { (SAMPLED, SEEN) } else { (SEEN, SAMPLED) };
    let _ = RUNAHEAD_INTEREST[nr as usize].compare_exchange(from, to, Relaxed, Relaxed);
}

/// True if the policy sees a sample of the calls of this number.
pub fn is_sampled(nr: u64) -> bool {
    RUNAHEAD_INTEREST.get(nr as usize).is_some_and(|call| call.load(Relaxed) == SAMPLED)
}

/// True if no call of this number is reported ([`CallRoute::Unseen`]).
pub(crate) fn is_unseen(nr: u64) -> bool {
    skips_reports() && (nr as usize) < CALLS && !is_interesting(nr)
}

/// True if the policy is asked without a frame of calls of this number that come as signals.
pub(crate) fn is_asked_first(nr: u64) -> bool {
    policy::reporting().is_some_and(|policy| policy.is_asked_first(nr))
}

pub(crate) fn is_interesting(nr: u64) -> bool {
    (nr as usize) < CALLS && RUNAHEAD_INTEREST[nr as usize].load(Relaxed) != 0
}
