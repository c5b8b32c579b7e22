//! A policy that tests plant: it has calls wait, be made again, and all threads stop, where the
//! program asks for it by arguments that the kernel does not look at.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use runahead_abi::agent_config::plant;

use crate::arch::Context;
use crate::plane::policy::{ProcessEvents, ReportingVerdict};
use crate::plane::{self, AnyPolicy, Call, Next, ReportingPolicy, thread_stop};
use crate::session::Session;
use crate::sys;

/// The sixth argument of a call that asks for something; the fifth says what
/// (`tests/programs/policy_verdicts.c`).
const ASKS: u64 = 0x7261_6861_736b_7321;
/// The call waits until another call asks for it to be woken.
const WAIT: u64 = 1;
const WAKE: u64 = 2;
/// The call is made once more, as often as the fourth argument says, all such calls taken together.
const AGAIN: u64 = 3;
/// Stops all other threads, for as many microseconds as the third argument says. The answer is how
/// many of the counters in the program's memory, whose address and number the first two arguments
/// are, have changed meanwhile (and how many threads are nowhere), or why not.
const STOP: u64 = 4;
/// Does what [`STOP`] does, but stops no thread.
const DO_NOT_STOP: u64 = 5;

const COUNTERS: usize = 16;

static WOKEN: AtomicU32 = AtomicU32::new(0);
static MADE_AGAIN: AtomicU64 = AtomicU64::new(0);

/// Policy that does what the program's calls ask for.
struct ScriptedPolicy;

static POLICY: AnyPolicy = AnyPolicy::Reporting(&ScriptedPolicy);

impl ReportingPolicy for ScriptedPolicy {
    fn reported(&self, call: &Call, _: &mut Context) -> ReportingVerdict {
        match asked(call) {
            Some(WAIT) if WOKEN.load(Relaxed) == 0 => ReportingVerdict::Wait(&WOKEN),
            Some(WAKE) => {
                plane::policy::wake(&WOKEN);
                ReportingVerdict::Report
            }
            Some(STOP) => ReportingVerdict::Answer(match thread_stop::stop_others() {
                Ok(stopped) => {
                    let (mut lost, mut own) = (0, 0);
                    stopped.each(|thread, context| {
                        own += i64::from(thread == sys::gettid());
                        lost += i64::from(sys::copy_in::<u8>(context.after()).is_err());
                    });
                    moved(call) + lost + own
                }
                Err(errno) => sys::fail(errno.0),
            }),
            Some(DO_NOT_STOP) => ReportingVerdict::Answer(moved(call)),
            _ => ReportingVerdict::Report,
        }
    }

    fn after(&self, call: &Call, _result: i64, _: Option<&mut Context>) -> Next {
        let again = asked(call) == Some(AGAIN) && MADE_AGAIN.fetch_add(1, Relaxed) < call.args[3];
        if again { Next::Again } else { Next::GoOn }
    }
}

impl ProcessEvents for ScriptedPolicy {
    as_a_target!();
}

fn asked(call: &Call) -> Option<u64> {
    (call.args[5] == ASKS).then_some(call.args[4])
}

fn moved(call: &Call) -> i64 {
    let read = || sys::copy_in::<[u64; COUNTERS]>(call.args[0]).unwrap_or([0; COUNTERS]);
    let before = read();
    sys::sleep_us(call.args[2]);
    let after = read();
    let differ = |n: &usize| before[*n] != after[*n];
    (0..COUNTERS.min(call.args[1] as usize)).filter(differ).count() as i64
}

/// Puts this policy in the target's place, if a test has asked for it.
pub fn start(session: &Session) -> sys::Result<()> {
    match session.plant() {
        plant::TRIED => plane::set_policy(&POLICY),
        _ => Ok(()),
    }
}
