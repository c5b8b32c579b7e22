//! Requests of the program about its predictions. `runahead_client::prediction` documents them.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use runahead_client::prediction::protocol as p;
use runahead_speculation::{ANSWER_MAX, Event, Id, NotOpen, Owner, Status, Table};

use super::table_host::{HOST, has_ended, is_alive, map_table, shared, table, this_thread};
use super::{checkpoint, descriptor_table, user_buffers, write_faults};
use crate::arch::Context;
use crate::plane::policy::ReportingVerdict;
use crate::plane::{Call, Verdict, sent_signals};
use crate::session::Session;
use crate::sys::{self, Errno, IoVec, nr};

/// Requests a poke when one of the open speculations is settled.
pub fn request_pokes() {
    if let Some(table) = table() {
        checkpoint::request_pokes(table);
    }
}

/// Checks by a waiting process, with no outcome in between, after which its oldest prediction
/// fails.
const PATIENCE: u32 = 300;
/// Number of checks so far, and the table's change count at the last one.
static ORPHAN_CHECKS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Fails predictions that no process is left to settle, and those that are open for too long: the
/// settling process may never have learned of them. To fail is always safe, since the process then
/// waits for the real result.
pub fn fail_orphans() {
    let Some(table) = table().filter(|_| checkpoint::is_speculative()) else { return };
    let [times, settled] = &ORPHAN_CHECKS;
    if settled.swap(table.changes(), Relaxed) != table.changes() {
        times.store(0, Relaxed);
    }
    let mut is_late = times.fetch_add(1, Relaxed) >= PATIENCE;
    checkpoint::each_open(|id, process, depends_on| {
        if let Some(other) = depends_on {
            return table.resolve_orphan(other, &HOST);
        }
        let owner = Owner { process, thread: 0 };
        let is_orphan = process != 0 && (!is_alive(owner) || has_ended(process))
            || core::mem::take(&mut is_late);
        if is_orphan && table.fail(id, &[]).is_ok() {
            record_event(id, Event::Failed);
            table.finish_settling(id);
        }
    });
}

/// True if `call` is a request of this interface.
pub fn is_request(call: &Call) -> bool {
    call.nr == nr::FADVISE64 && call.args[0] as i32 == p::MAGIC
}

/// Handles a request while the process does not speculate; signals need not be blocked. None: they
/// must be, or the request needs the frame.
pub fn handle_at_once(call: &Call) -> Option<Verdict> {
    let is_plain = matches!(call.args[1], p::COMMIT | p::FAIL | p::SET_POLICY | p::BARRIER);
    Some(Verdict::answer(to_result(perform_request(table().filter(|_| is_plain)?, call))))
}

/// Performs a request that needs neither a checkpoint nor a wait.
fn perform_request(table: &Table, call: &Call) -> sys::Result<u64> {
    let [_, what, a, b, c, _] = call.args;
    match what {
        p::COMMIT => settle(table, Id(a), None),
        p::FAIL => settle(table, Id(a), Some(IoVec { base: b, len: c })),
        p::ANSWER => answer(a, b, c),
        p::SET_POLICY => set_policy(a, b),
        p::OPEN => list_open(a, b),
        p::BARRIER => Ok(0),
        p::EVENTS => read_events(a, b, c),
        _ => Err(Errno(sys::EINVAL)),
    }
}

fn to_result(result: sys::Result<u64>) -> i64 {
    match result {
        Ok(value) => value as i64,
        Err(errno) => sys::fail(errno.0),
    }
}

/// Handles a request; in `frame` the thread stands in front of the call. None: it waits until no
/// speculation is open.
pub fn handle_request(
    session: &Session,
    call: &Call,
    frame: &mut Context,
) -> Option<ReportingVerdict> {
    let waits = match call.args[1] {
        p::BEGIN => {
            let begun = begin(session, call, frame);
            return Some(match begun {
                Ok(()) => ReportingVerdict::ResumeFrame,
                Err(errno) => ReportingVerdict::Answer(sys::fail(errno.0)),
            });
        }
        // A rollback could undo the outcome that is reported here.
        p::COMMIT | p::FAIL => !is_open_here(Id(call.args[2])),
        what => what == p::BARRIER,
    };
    if waits && checkpoint::is_speculative() {
        return None;
    }
    match map_table(session).and_then(|table| perform_request(table, call)) {
        // The program's buffer cannot be written before all speculations are settled.
        Err(Errno(sys::EAGAIN)) if checkpoint::is_speculative() => None,
        result => Some(ReportingVerdict::Answer(to_result(result))),
    }
}

fn begin(session: &Session, call: &Call, frame: &mut Context) -> sys::Result<()> {
    if call.thread.is_at_work() {
        // In a handler that has interrupted the agent.
        return Err(Errno(sys::EDEADLK));
    }
    let id_at = call.args[2];
    let table = map_table(session)?;
    let settler = call.args[3] as u32;
    if cannot_settle(settler) {
        table.count_refused();
        return Err(Errno(sys::EINVAL));
    }
    let id = table.open(this_thread(), settler, is_alive).ok_or(Errno(sys::EAGAIN))?;
    let begun = user_buffers::write(id_at, &id.0.to_ne_bytes()).and_then(|()| {
        let before = frame.copy();
        // Result after a rollback.
        frame.go_on_answered(1);
        checkpoint::take(session, id, settler, None, frame).inspect_err(|_| *frame = before)
    });
    match begun {
        Ok(()) => {
            table.count_begun(!write_faults::is_protecting());
            record_event(id, Event::Begun);
            frame.set_result(0);
        }
        Err(_) => {
            table.count_refused();
            table.close(id);
        }
    }
    begun
}

/// True if a process with this number never settles a prediction of this one. It waits for the
/// outcome itself, or is the first of its name space, which no session has started.
fn cannot_settle(settler: u32) -> bool {
    const FIRST: u32 = 1;
    settler == sys::getpid() || settler == FIRST
}

fn is_open_here(id: Id) -> bool {
    let mut found = false;
    checkpoint::each_open(|other, _, _| found |= other == id);
    found
}

/// True if this process has settled a speculation.
static HAS_SETTLED: AtomicBool = AtomicBool::new(false);

/// True if this process settles predictions of others. It must not come to depend on them.
pub fn has_settled() -> bool {
    HAS_SETTLED.load(Relaxed)
}

/// Settles `id`. `right` is the correct answer if the prediction was wrong.
fn settle(table: &Table, id: Id, right: Option<IoVec>) -> sys::Result<u64> {
    HAS_SETTLED.store(true, Relaxed);
    let gone = |NotOpen| Errno(sys::ESRCH);
    let tell = match right {
        None => table.commit(id).inspect(|_| record_event(id, Event::Committed)).map_err(gone)?,
        Some(IoVec { base: at, len }) => {
            let mut bytes = [0; ANSWER_MAX];
            let bytes = &mut bytes[..(len as usize).min(ANSWER_MAX)];
            if table.status(id) != Status::Open {
                return Err(Errno(sys::ESRCH));
            }
            sys::copy_bytes(at, bytes)?;
            Some(table.fail(id, bytes).inspect(|_| record_event(id, Event::Failed)).map_err(gone)?)
        }
    };
    if let Some(owner) = tell
        && owner != this_thread()
    {
        sent_signals::poke(owner.process, owner.thread);
    }
    table.finish_settling(id);
    Ok(0)
}

fn record_event(id: Id, event: Event) {
    if let Some(shared) = shared() {
        shared.events.record(id, event);
    }
}

/// Copies events from the position stored at `position` to `at`, which has room for `room` events
/// of two words each. Returns their number.
fn read_events(position: u64, at: u64, room: u64) -> sys::Result<u64> {
    let events = &shared().ok_or(Errno(sys::ENOTCONN))?.events;
    let asked: u64 = sys::copy_in(position)?;
    let mut next = if asked == p::NOW { events.end() } else { asked };
    let mut count = 0;
    while count < room
        && let Some((id, event, behind)) = events.next(next)
    {
        let words = [id.0, event as u64].map(u64::to_ne_bytes);
        user_buffers::write(at + 16 * count, words.as_flattened())?;
        (next, count) = (behind, count + 1);
    }
    user_buffers::write(position, &next.to_ne_bytes())?;
    Ok(count)
}

fn answer(id: u64, at: u64, len: u64) -> sys::Result<u64> {
    let mut bytes = [0; ANSWER_MAX];
    let known = checkpoint::answer(id, &mut bytes).ok_or(Errno(sys::ESRCH))? as u64;
    let len = known.min(len);
    user_buffers::write(at, &bytes[..len as usize])?;
    Ok(len)
}

fn set_policy(fd: u64, number: u64) -> sys::Result<u64> {
    let policy = p::Policy::of_number(number).ok_or(Errno(sys::EINVAL))?;
    descriptor_table::set_policy(fd as i32, policy as u8).map(u64::from).ok_or(Errno(sys::EBADF))
}

fn list_open(at: u64, room: u64) -> sys::Result<u64> {
    let (mut count, mut result) = (0, Ok(()));
    checkpoint::each_open(|id, _, _| {
        if count < room && result.is_ok() {
            result = user_buffers::write(at + 8 * count, &id.0.to_ne_bytes());
        }
        count += 1;
    });
    result.map(|()| count)
}
