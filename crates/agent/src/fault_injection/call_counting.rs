//! A policy that tests plant: it sees every call and what came of it, changes nothing, and counts.
//!
//! What it counts lies in a file that the test has made, [`PATH`] with the supervisor's number
//! behind it, which all processes of the session map. Children and execs are followed as a target's
//! are.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::agent_config::{CALLS_COUNTED, plant};

use crate::arch::Context;
use crate::plane::policy::{PlaneCallVerdict, ProcessEvents, ReportingVerdict};
use crate::plane::{self, AnyPolicy, Call, Next, ReportingPolicy};
use crate::session::Session;
use crate::sys::{self, AT_FDCWD};
use crate::{address_space, path_text};

/// Path of the file, without the supervisor's number.
const PATH: &[u8] = b"/dev/shm/runahead-calls-";

/// Counts by call number: made, returned, and failed. Then losses of sight, threads that began and
/// ended, and signals for which a handler was started.
#[repr(C)]
struct Counts {
    made: [AtomicU64; CALLS_COUNTED],
    returned: [AtomicU64; CALLS_COUNTED],
    failed: [AtomicU64; CALLS_COUNTED],
    lost: AtomicU64,
    threads: [AtomicU64; 2],
    signals: AtomicU64,
}

static COUNTS: AtomicPtr<Counts> = AtomicPtr::new(core::ptr::null_mut());

fn counts() -> Option<&'static Counts> {
    // SAFETY: null, or a mapping of ours of this size that stays.
    unsafe { COUNTS.load(Relaxed).as_ref() }
}

fn count(of: impl Fn(&Counts) -> &[AtomicU64], number: u64) {
    if let Some(place) = counts().and_then(|counts| of(counts).get(number as usize)) {
        place.fetch_add(1, Relaxed);
    }
}

fn add(one: impl Fn(&Counts) -> &AtomicU64) {
    if let Some(counts) = counts() {
        one(counts).fetch_add(1, Relaxed);
    }
}

fn returned(number: u64, result: i64) {
    count(|counts| &counts.returned, number);
    if (-4095..0).contains(&result) {
        count(|counts| &counts.failed, number);
    }
}

/// Policy that counts calls and changes nothing.
struct CallCounter;

static POLICY: AnyPolicy = AnyPolicy::Reporting(&CallCounter);

impl ReportingPolicy for CallCounter {
    fn reported(&self, call: &Call, _: &mut Context) -> ReportingVerdict {
        count(|counts| &counts.made, call.nr);
        ReportingVerdict::Report
    }

    fn after(&self, call: &Call, result: i64, _: Option<&mut Context>) -> Next {
        returned(call.nr, result);
        Next::GoOn
    }

    fn plane_call(&self, call: &Call, _: &mut Context) -> PlaneCallVerdict {
        count(|counts| &counts.made, call.nr);
        PlaneCallVerdict::Proceed
    }

    fn plane_call_returned(&self, number: u64, result: i64) {
        returned(number, result);
    }
}

impl ProcessEvents for CallCounter {
    as_a_target!();

    fn thread_begins(&self) {
        add(|counts| &counts.threads[0]);
    }

    fn thread_ends(&self) {
        add(|counts| &counts.threads[1]);
    }

    fn handler_begins(&self, _signal: i32) {
        add(|counts| &counts.signals);
    }

    fn lost(&self) {
        add(|counts| &counts.lost);
    }
}

/// Puts this policy in the target's place, if a test has asked for it.
pub fn start(session: &Session) -> sys::Result<()> {
    if session.plant() != plant::LOGGED {
        return Ok(());
    }
    COUNTS.store(room_of_test(session, size_of::<Counts>())? as *mut Counts, Relaxed);
    plane::set_policy(&POLICY)
}

/// Maps the test's file, which has that many bytes.
pub fn room_of_test(session: &Session, bytes: usize) -> sys::Result<u64> {
    let mut path = [0u8; 64];
    path[..PATH.len()].copy_from_slice(PATH);
    path_text::decimal(session.config.supervisor_pid, &mut path[PATH.len()..]);
    let file = sys::openat2(AT_FDCWD, path.as_ptr() as u64, k::O_RDWR | k::O_CLOEXEC, 0, 0)?;
    let at = address_space::map_shared(file, bytes as u64);
    sys::close(file).and(at)
}
