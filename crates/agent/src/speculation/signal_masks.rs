//! Signal mask that a speculative process believes to have. Signals with a handler are blocked
//! meanwhile, too, and it gets this mask in the end.

use linux_raw_sys::general as k;

use super::checkpoint;
use super::undo_journal::Change;
use super::{user_buffers, write_faults};
use crate::arch::Context;
use crate::plane::{self, Call};
use crate::session;
use crate::sys;

/// Executes rt_sigprocmask(2) of a process with one thread. None: the call waits.
pub fn change_believed_mask(call: &Call, frame: &mut Context) -> Option<i64> {
    const NEVER: u64 = 1 << (k::SIGKILL - 1) | 1 << (k::SIGSTOP - 1);
    let [how, new, old, size, ..] = call.args;
    let session = session::get()?;
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
        if checkpoint::pending_signals() & was & !now != 0 {
            return None;
        }
        if process.has_checkpoint() {
            if !process.journal.has_room() {
                return None;
            }
            process.journal.record(Change::Mask(was));
        }
        process.threads.set_believed_mask(now);
        frame.mask = checkpoint::mask_meanwhile(session, now);
        Some(was)
    });
    let was = changed.ok().flatten()?;
    if old == 0 {
        return Some(0);
    }
    let told = user_buffers::write(old, &was.to_ne_bytes());
    Some(told.map_or_else(|errno| sys::fail(errno.0), |()| 0))
}
