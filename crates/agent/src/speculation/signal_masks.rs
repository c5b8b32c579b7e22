//! Signal mask that a speculative process believes to have. All signals are blocked meanwhile, and
//! it gets this mask in the end.

use linux_raw_sys::general as k;

use super::checkpoint;
use super::undo_journal::Change;
use super::{user_buffers, write_faults};
use crate::plane::{self, Call};
use crate::sys::{self, nr};

/// Executes rt_sigprocmask(2) of a process with one thread. None: the call waits.
pub fn change_believed_mask(call: &Call) -> Option<i64> {
    const NEVER: u64 = 1 << (k::SIGKILL - 1) | 1 << (k::SIGSTOP - 1);
    let [how, new, old, size, ..] = call.args;
    if plane::has_threads() || call.thread.is_lent() || call.thread.is_at_work() {
        return None;
    }
    if size != 8 {
        return Some(sys::fail(sys::EINVAL));
    }
    if old != 0 && !write_faults::will_write(old, size) {
        return None;
    }
    let given = match new {
        0 => None,
        _ => match sys::copy_in::<u64>(new) {
            Ok(mask) => Some(mask & !NEVER),
            Err(errno) => return Some(sys::fail(errno.0)),
        },
    };
    let is_known = how as u32 <= k::SIG_SETMASK;
    if given.is_some() && !is_known {
        return Some(sys::fail(sys::EINVAL));
    }
    let changed = checkpoint::with(|process| {
        let was = call.thread.as_believed(process.threads.own_mask()?);
        let Some(given) = given else { return Some(was) };
        let now = match how as u32 {
            k::SIG_BLOCK => was | given,
            k::SIG_UNBLOCK => was & !given,
            _ => given,
        };
        // An unblocked pending signal must arrive before the call returns.
        if pending_signals() & was & !now != 0 {
            return None;
        }
        if process.has_checkpoint() {
            if !process.journal.has_room() {
                return None;
            }
            process.journal.record(Change::Mask(was));
        }
        process.threads.set_believed_mask(now);
        Some(was)
    });
    let was = changed.ok().flatten()?;
    if old == 0 {
        return Some(0);
    }
    let told = user_buffers::write(old, &was.to_ne_bytes());
    Some(told.map_or_else(|errno| sys::fail(errno.0), |()| 0))
}

/// Returns the signals that are pending for the thread or the process.
fn pending_signals() -> u64 {
    let mut waiting = 0u64;
    // SAFETY: writes a mask of eight bytes.
    unsafe { sys::raw(nr::RT_SIGPENDING, [&raw mut waiting as u64, 8, 0, 0, 0, 0]) };
    waiting
}
