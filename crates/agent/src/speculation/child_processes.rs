//! Children of a speculative process: a fork proceeds, and the child depends on its parent
//! (Nightingale 2005, section 6). If the prediction was wrong, the child never existed.
//!
//! A child has no checkpoint to return to, and ends instead. Its parent, which is rolled back to
//! before the fork, reaps it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_speculation::{Host, Id};

use super::checkpoint;
use super::table_host::{self, HOST};
use super::undo_journal::Change;
use super::write_faults;
use crate::plane::{self, Call};
use crate::sys::{self, nr};

/// Speculation of the child that is about to be forked, and the one that it depends on; 0: none.
static EXPECTED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn expected() -> Option<(Id, Id)> {
    let [child, on] = EXPECTED.each_ref().map(|id| Id(id.load(Relaxed)));
    (child.0 != 0).then_some((child, on))
}

fn expect(child: Id, on: Id) {
    EXPECTED[1].store(on.0, Relaxed);
    EXPECTED[0].store(child.0, Relaxed);
}

/// True for a call that forks a process which shares nothing and signals its end by SIGCHLD, like
/// fork(2).
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

/// True if a process that speculates, or is about to, can fork by this call meanwhile.
pub fn can_fork(call: &Call) -> bool {
    is_plain_fork(call)
        && !plane::has_threads()
        && !call.thread.is_lent()
        && !call.thread.is_at_work()
}

/// Prepares the fork that `call` makes. Returns false if it waits. Another thread could roll this
/// one back in the middle of the fork, so only single-threaded processes fork.
pub fn prepare_fork(call: &Call) -> bool {
    if !can_fork(call) {
        return false;
    }
    if !shares_process_numbers() {
        // The first process of a new name space: if it ends because the prediction was wrong, the
        // kernel refuses all further forks there.
        return false;
    }
    if write_faults::is_protecting() {
        // A child inherits split mappings, each with its own `anon_vma`, and they can never merge
        // again.
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

/// True if a child is certainly in the name space of process numbers that this process is in
/// (pid_namespaces(7)).
fn shares_process_numbers() -> bool {
    /// Longer than `pid:[4294967295]`.
    const LINK_BYTES: usize = 24;
    let space = |name: &CStr| {
        let mut text = [0u8; LINK_BYTES];
        sys::readlinkat(sys::AT_FDCWD, name.as_ptr() as u64, &mut text).map(|len| (text, len))
    };
    let own = space(c"/proc/thread-self/ns/pid");
    own.is_ok() && own == space(c"/proc/thread-self/ns/pid_for_children")
}

/// Records the result of the fork in the parent.
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

/// Registers a forked child. Returns its own speculation and the one that it depends on, if its
/// parent speculates.
pub fn in_child() -> Option<(Id, Id)> {
    let expected = expected()?;
    expect(Id(0), Id(0));
    table_host::table()?.register_child(expected.1, expected.0, &HOST);
    Some(expected)
}
