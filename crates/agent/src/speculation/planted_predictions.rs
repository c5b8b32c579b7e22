//! Predictions that tests plant: at calls that a seeded generator picks, right ones and wrong ones,
//! whose outcome is known after a while.
//!
//! The call has been made when the checkpoint is taken, and what came of it is the checkpoint's:
//! whichever way it ends, the call is made once. While the process speculates others follow, on top
//! of it, and one is settled now and then, the oldest or not.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};

use runahead_abi::agent_config::{BUCKETS, CALLS, ERRNOS};
use runahead_speculation::NotOpen;

use super::table_host;
use super::{checkpoint, wakeup_timer};
use crate::arch::Context;
use crate::fault_injection::call_counting;
use crate::session::Session;
use crate::sys;

/// Interval in calls between two predictions; each costs two signals and more.
const ONE_IN: u64 = 4;
/// Interval in predictions between two wrong ones.
const WRONG_IN: u64 = 2;
/// Longest time to an outcome once a thread waits for it, in microseconds.
const WAIT_US: u64 = 300;
/// Interval in predictions between two late outcomes, of [`LONG_US`] microseconds, where a child
/// depends on one: so that the child comes far.
const LONG_ONE_IN: u64 = 2;
const LONG_US: u64 = 4_000;
/// While the process speculates one call in so many has one of them settled.
const SETTLED_ONE_IN: u64 = 8;
/// Most predictions that are open.
const DEPTH: usize = 16;
/// Interval in forks between two with a prediction in front.
const FORKS_ONE_IN: u64 = 2;
/// Mark of a wrong prediction.
const WRONG: u32 = 1;
/// A program that comes to no call is told then, in nanoseconds.
const LATEST_NS: u64 = 2_000_000;

/// Counts of all processes of the session, which the test reads (`tests/src/prediction_counts.rs`).
#[repr(C)]
struct Counts {
    /// Predictions that came true, and that did not.
    ended: [AtomicU64; 2],
    /// Checkpoints that were refused, by errno.
    refused: [AtomicU64; ERRNOS],
    /// Durations of checkpoints, commits and rollbacks in nanoseconds, by size: see [`bucket`].
    took: [[AtomicU64; BUCKETS]; 3],
    /// Programs in which predictions are planted; that is, images.
    programs: AtomicU64,
    /// Programs that began speculative.
    executed: AtomicU64,
    /// Waits for an outcome, by number of the call.
    waited: [AtomicU64; CALLS],
}

/// Times by their size: eight buckets from each power of two to the next.
fn bucket(ns: u64) -> usize {
    let power = ns.max(8).ilog2();
    let eighth = ns >> (power - 3) & 7;
    ((power as usize - 3) * 8 + eighth as usize).min(BUCKETS - 1)
}

static COUNTS: AtomicPtr<Counts> = AtomicPtr::new(core::ptr::null_mut());
/// State of the generator.
static STATE: AtomicU64 = AtomicU64::new(0);

fn count(one: impl Fn(&Counts) -> &AtomicU64) {
    // SAFETY: null, or a mapping of ours of this size that stays.
    if let Some(counts) = unsafe { COUNTS.load(Relaxed).as_ref() } {
        one(counts).fetch_add(1, Relaxed);
    }
}

/// The next number (SplitMix64).
fn random() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut z = STATE.fetch_add(STEP, Relaxed).wrapping_add(STEP);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Interval in processes between two that predict nothing themselves and depend on others all the
/// more.
const SILENT_ONE_IN: u64 = 3;
/// Interval in forked children between two such: one that predicts executes no program before that
/// is settled.
const SILENT_CHILD_ONE_IN: u64 = 2;
/// This one does.
static PLANTS: AtomicBool = AtomicBool::new(true);

/// Begins; the seed is the session's. The programs of a session go different ways, the n-th each
/// time the same: otherwise every `sed` of a script would be interrupted at the same calls.
pub fn start(session: &Session) -> sys::Result<()> {
    let counts = call_counting::room_of_test(session, size_of::<Counts>())? as *mut Counts;
    COUNTS.store(counts, Relaxed);
    // SAFETY: the mapping of that size that was just made; it stays.
    let nth = unsafe { &(*counts).programs }.fetch_add(1, Relaxed);
    STATE.store(session.config.seed ^ nth << 40, Relaxed);
    PLANTS.store(!random().is_multiple_of(SILENT_ONE_IN), Relaxed);
    Ok(())
}

/// Gives a forked child another random course than its parent's.
pub fn in_child() {
    wakeup_timer::in_child();
    STATE.fetch_xor(random() ^ 1, Relaxed);
    PLANTS.store(!random().is_multiple_of(SILENT_CHILD_ONE_IN), Relaxed);
}

/// Tests plant predictions in this session.
pub fn is_on() -> bool {
    !COUNTS.load(Relaxed).is_null()
}

/// A call from a patched site is one after which there is to be a prediction, perhaps.
pub fn wants() -> bool {
    is_on()
        && PLANTS.load(Relaxed)
        && (!checkpoint::is_speculative() || random().is_multiple_of(ONE_IN))
}

/// The thread stands in front of a call that makes a child: that may depend on a prediction, which
/// says nothing itself: true.
pub fn plant_in_front(session: &Session, frame: &mut Context) -> bool {
    if !PLANTS.load(Relaxed) || !random().is_multiple_of(FORKS_ONE_IN) {
        return false;
    }
    let is_wrong = random().is_multiple_of(WRONG_IN);
    let is_taken = take(session, u32::from(is_wrong) * WRONG, frame).is_ok();
    if is_taken {
        let _ = wakeup_timer::start(LATEST_NS);
    }
    is_taken
}

/// A call has had this result, with which the thread is to go on in `frame`. It may be predicted to
/// have another: true.
pub fn plant(session: &Session, result: i64, frame: &mut Context) -> bool {
    if !PLANTS.load(Relaxed) || !random().is_multiple_of(ONE_IN) {
        return false;
    }
    let is_wrong = random().is_multiple_of(WRONG_IN);
    let began = sys::now();
    match take(session, u32::from(is_wrong) * WRONG, frame) {
        Err(errno) => {
            count(|counts| &counts.refused[(errno.0 as usize).min(ERRNOS - 1)]);
            return false;
        }
        Ok(()) => note_took(0, began),
    }
    // Covers a program that comes to no call.
    let _ = wakeup_timer::start(LATEST_NS);
    if is_wrong {
        let another = [0, 1, result - 1, result + 1, result ^ 64, sys::fail(sys::EIO)];
        frame.set_result(another[random() as usize % another.len()]);
    }
    true
}

fn take(session: &Session, tag: u32, frame: &mut Context) -> sys::Result<()> {
    let mut depth = 0;
    if checkpoint::is_speculative() {
        checkpoint::each_open(|_, _, _| depth += 1);
    }
    if depth >= DEPTH {
        return Err(sys::Errno(sys::EAGAIN));
    }
    let table = table_host::map_table(session)?;
    let owner = table_host::this_thread();
    let id = table.open(owner, 0, table_host::is_alive).ok_or(sys::Errno(sys::ENOSPC))?;
    checkpoint::take(session, id, tag, None, frame).inspect_err(|_| table.close(id))
}

/// Notes how long it took: a checkpoint (0), a commit (1), or a rollback (2).
pub fn note_took(what: usize, began: u64) {
    let took = sys::now() - began;
    count(|counts| &counts.took[what][bucket(took)]);
}

/// A program begins that depends on what is predicted.
pub fn note_executed() {
    count(|counts| &counts.executed);
}

/// A process has come to this call, and waits for the outcome.
pub fn note_wait(nr: u64) {
    if let Some(nr) = usize::try_from(nr).ok().filter(|&nr| nr < CALLS) {
        count(|counts| &counts.waited[nr]);
    }
}

/// Lets the outcomes of all open predictions be known after a while, since a thread waits for them.
pub fn settle() {
    if !is_on() {
        return;
    }
    wakeup_timer::stop();
    let us = random() % (2 * WAIT_US);
    let has_child = checkpoint::with(|process| process.output.has_child()) == Ok(true);
    if has_child && random().is_multiple_of(LONG_ONE_IN) {
        sys::sleep_us(LONG_US);
    } else if us < WAIT_US {
        sys::sleep_us(us);
    }
    settle_those(|_| true);
}

/// Perhaps the outcome of one is known.
pub fn settle_one() {
    if is_on() && random().is_multiple_of(SETTLED_ONE_IN) {
        let which = if random().is_multiple_of(2) { 0 } else { random() as usize % DEPTH };
        settle_those(|n| n == which);
    }
}

/// The outcome of those is known (by their numbers, the oldest first).
fn settle_those(is_known: impl Fn(usize) -> bool) {
    let Some(table) = table_host::table() else { return };
    let mut n = 0;
    checkpoint::each_open(|id, tag, depends_on| {
        if depends_on.is_some() {
            return;
        }
        let settled = match tag {
            _ if !is_known(n) => Err(NotOpen),
            WRONG => table.fail(id, &[]).map(drop),
            _ => table.commit(id).map(drop),
        };
        n += 1;
        if settled.is_ok() {
            table.finish_settling(id);
            count(|counts| &counts.ended[tag as usize]);
        }
    });
}
