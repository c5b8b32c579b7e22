//! Children of a speculative process: a fork goes on, and depends on what its parent does (Nightingale 2005, section 6). If that was
//! wrong it has never been.
//!
//! A child has no checkpoint to go back to, and ends instead; its parent, which goes back to before it was made, collects it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_speculation::{Host, Id};

use super::checkpoint;
use super::table_host::{self, HOST};
use super::undo_journal::Change;
use super::write_faults;
use crate::plane::{self, Call};
use crate::sys::nr;

/// The child that is about to be made, and on what it depends; 0: none is.
static EXPECTED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn expected() -> Option<(Id, Id)> {
    let [child, on] = EXPECTED.each_ref().map(|id| Id(id.load(Relaxed)));
    (child.0 != 0).then_some((child, on))
}

fn expect(child: Id, on: Id) {
    EXPECTED[1].store(on.0, Relaxed);
    EXPECTED[0].store(child.0, Relaxed);
}

/// A call that makes a process that has all of its own, and tells of its end by SIGCHLD, as fork(2) does.
fn is_plain_fork(call: &Call) -> bool {
    let harmless = k::CLONE_CHILD_SETTID | k::CLONE_CHILD_CLEARTID;
    match call.nr {
        nr::FORK => true,
        nr::CLONE => {
            let flags = call.args[0] as u32;
            flags & !(harmless | k::CSIGNAL) == 0
                && flags & k::CSIGNAL == k::SIGCHLD
                && call.args[1] == 0
        }
        _ => false,
    }
}

/// Whether a process that speculates, or is to, can make a child by this call meanwhile.
pub fn can_fork(call: &Call) -> bool {
    is_plain_fork(call)
        && !plane::has_threads()
        && !call.thread.is_lent()
        && !call.thread.is_at_work()
}

/// Whether a speculative process may go on and make this call, which is one of the plane's own. (With other threads one of them could
/// take this one back meanwhile.)
pub fn prepare_fork(call: &Call) -> bool {
    if !can_fork(call) {
        return false;
    }
    if write_faults::is_protecting() {
        // A child inherits mappings taken apart, each with an object of its own by which pages are found: for good.
        return false;
    }
    let Some(table) = table_host::table() else { return false };
    let Some(on) = checkpoint::last_open() else { return false };
    let child = table.open(HOST.current_thread(), table.settler(on), table_host::is_alive);
    let Some(child) = child else { return false };
    if !table.expect_child(on, child) {
        table.close(child);
        return false;
    }
    let has_room = checkpoint::with(|process| {
        process.journal.has_room() && process.output.note_child(child).is_ok()
    });
    if has_room != Ok(true) {
        table.cancel_child(on, child);
        table.close(child);
        return false;
    }
    expect(child, on);
    true
}

/// In the parent: the call has returned this.
pub fn fork_returned(result: i64) {
    let Some((child, on)) = expected() else { return };
    expect(Id(0), Id(0));
    if let Some(table) = table_host::table()
        && result < 0
    {
        table.cancel_child(on, child);
        table.close(child);
        return;
    }
    let _ = checkpoint::with(|process| process.journal.record(Change::Forked(result as u32)));
}

/// In a forked child: its own speculation, and the one on which it depends, if its parent speculates.
pub fn in_child() -> Option<(Id, Id)> {
    let expected = expected()?;
    expect(Id(0), Id(0));
    table_host::table()?.register_child(expected.1, expected.0, &HOST);
    Some(expected)
}
