//! Reads of speculative data from pipes: the reader depends on the writer from then on (Nightingale
//! 2005, section 6).

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use runahead_speculation::{Id, Pipe, Session as Shared, TailFront, TailRead};

use super::call_table::CallOutcome;
use super::output_buffer::{self, DescriptorKind};
use super::table_host::{self, HOST};
use super::write_capacity::is_empty;
use super::{
    checkpoint, descriptor_table, mapped_files, program_interface, user_buffers, write_capacity,
};
use crate::arch::Context;
use crate::plane::Call;
use crate::plane::policy::ReportingVerdict;
use crate::session::Session;
use crate::sys::{self, Errno, IoVec, nr};

/// Number of threads of this process that are registered as waiting for a pipe.
static WAITERS: AtomicU32 = AtomicU32::new(0);

/// True if the call may read from a pipe, or the next bytes of a stream.
pub fn may_read(call: &Call) -> bool {
    match call.nr {
        nr::READ | nr::READV => true,
        // Without a request for the sender's address.
        nr::RECVFROM => call.args[3] & !write_capacity::PLAIN_FLAGS == 0 && call.args[4] == 0,
        _ => false,
    }
}

/// Returns the pipe, or direction of a socket, that the call reads from.
pub fn pipe_of(call: &Call) -> Option<Pipe> {
    if !may_read(call) || call.thread.is_lent() {
        return None;
    }
    let fd = call.fd(0);
    match descriptor_table::may_be_pipe(fd).then(|| descriptor_table::info(fd))??.kind {
        DescriptorKind::Pipe(pipe) => Some(pipe),
        DescriptorKind::Local(ends) => ends.map(|ends| ends.reads),
        _ => None,
    }
}

/// True if the pipe has committed data, so that a process that does not speculate need not look at
/// its tail. Signals need not be blocked.
pub fn has_committed_data(call: &Call) -> bool {
    table_host::shared().is_some() && !is_empty(call.fd(0))
}

/// Decides about a read of `pipe` in a process that does not speculate. None: the program makes the
/// call.
pub fn before_read(
    session: &Session,
    call: &Call,
    pipe: Pipe,
    frame: &mut Context,
) -> Option<ReportingVerdict> {
    if program_interface::has_settled() {
        return None;
    }
    let shared = table_host::map_shared(session).ok()?;
    stop_waiting();
    let ahead = || shared.tails.peek(pipe, &HOST, || is_empty(call.fd(0)));
    let mut found = ahead();
    if found == TailFront::Nothing && is_empty(call.fd(0)) {
        // Registers for a poke, and checks again: data may have arrived since.
        add_waiter(shared, pipe);
        found = ahead();
    }
    let TailFront::DependsOn(id) = found else { return None };
    stop_waiting();
    depend(session, shared, (pipe, id), frame).ok().map(|()| ReportingVerdict::ResumeFrame)
}

fn add_waiter(shared: &Shared, pipe: Pipe) {
    let is_noted = shared.tails.add_waiter(pipe, &HOST);
    WAITERS.fetch_add(is_noted.into(), SeqCst);
}

/// Removes this thread's registration as waiting.
pub fn stop_waiting() {
    if WAITERS.load(SeqCst) > 0
        && let Some(shared) = table_host::shared()
    {
        WAITERS.fetch_sub(shared.tails.remove_waiter(&HOST), SeqCst);
    }
}

/// Resets the count in a forked child, which has no registration.
pub fn in_child() {
    WAITERS.store(0, SeqCst);
}

/// Takes a checkpoint in front of the call. From then on the process depends on `id`, whose data in
/// the tail of `pipe` it is about to read. EAGAIN: it cannot depend now.
pub fn depend(
    session: &Session,
    shared: &Shared,
    (pipe, id): (Pipe, Id),
    frame: &mut Context,
) -> sys::Result<()> {
    if mapped_files::may_lack_held_output(shared) {
        return Err(Errno(sys::EAGAIN));
    }
    let table = &shared.table;
    let own = table.open(table_host::this_thread(), table.settler(id), table_host::is_alive);
    let own = own.ok_or(Errno(sys::EAGAIN))?;
    if !shared.tails.depend(pipe, id, table, &HOST) {
        table.close(own);
        return Err(Errno(sys::EAGAIN));
    }
    checkpoint::take(session, own, 0, Some(id), frame).inspect_err(|_| {
        table.leave(id, &HOST);
        table.close(own);
    })
}

/// Reads from `pipe` in a speculative process.
pub fn read_speculative(call: &Call, pipe: Pipe) -> CallOutcome {
    let Some(shared) = table_host::shared() else { return CallOutcome::Waits };
    stop_waiting();
    let fd = call.fd(0);
    let mut found = shared.tails.peek(pipe, &HOST, || is_empty(fd));
    if found == TailFront::Nothing {
        add_waiter(shared, pipe);
        found = shared.tails.peek(pipe, &HOST, || is_empty(fd));
    }
    let TailFront::DependsOn(id) = found else { return CallOutcome::Waits };
    stop_waiting();
    let (mut depends, mut is_alone, mut last) = (false, true, None);
    let writer = shared.table.owner(id);
    checkpoint::each_open(|_, _, other| {
        depends |= other == Some(id);
        // Data read from a tail is gone once its writer commits. So no other speculation may roll
        // the reader back.
        is_alone &= other.is_some_and(|other| shared.table.owner(other) == writer);
        last = other;
    });
    // The writer may not roll it back alone either, by a speculation above this one: the process
    // may have read that first, from another pipe.
    let is_above = last.is_none_or(|last| shared.table.is_above(id, last));
    match depends {
        true if is_alone && last == Some(id) => read_tail(call, shared, (pipe, id)),
        false if is_alone && is_above => CallOutcome::Depends(pipe, id),
        _ => CallOutcome::Waits,
    }
}

/// Reads tail data that depends on `id`, as the process already does.
fn read_tail(call: &Call, shared: &Shared, (pipe, id): (Pipe, Id)) -> CallOutcome {
    let mut vectors = output_buffer::NO_BUFFERS;
    let one = [IoVec { base: call.args[1], len: call.args[2] }];
    let buffers = match call.nr {
        nr::READ | nr::RECVFROM => Some(&one[..]),
        _ => output_buffer::buffers_of(call.args[1], call.args[2], &mut vectors),
    };
    let Some(buffers) = buffers else { return CallOutcome::Waits };
    let room = buffers.iter().map(|buffer| buffer.len).fold(0, u64::saturating_add);
    if room == 0 {
        return CallOutcome::Answer(0);
    }
    if !user_buffers::make_writable(call) {
        return CallOutcome::Waits;
    }
    let mut done = 0;
    let give = |bytes: &[u8]| {
        let is_given = copy_to_buffers(buffers, done, bytes).is_ok();
        done += bytes.len() as u64;
        is_given
    };
    match shared.tails.read((pipe, id, room), &shared.table, &HOST, || is_empty(call.fd(0)), give) {
        TailRead::Bytes(bytes) => CallOutcome::Answer(bytes as i64),
        TailRead::Fault => CallOutcome::Answer(sys::fail(sys::EFAULT)),
        TailRead::Retry => CallOutcome::Waits,
    }
}

/// Copies bytes into the program's buffers, after the first `done`.
fn copy_to_buffers(buffers: &[IoVec], mut done: u64, mut bytes: &[u8]) -> sys::Result<()> {
    for buffer in buffers {
        let skipped = done.min(buffer.len);
        let piece = (buffer.len - skipped).min(bytes.len() as u64);
        done -= skipped;
        if piece > 0 {
            let (given, left) = bytes.split_at(piece as usize);
            user_buffers::write(buffer.base + skipped, given)?;
            bytes = left;
        }
    }
    Ok(())
}
