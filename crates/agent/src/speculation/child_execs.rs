//! Programs that a speculative child executes: it goes on as one of them, and depends on what it depended on before.
//!
//! Of a child that has nothing but its birth open nothing would be taken back: it ends if that was wrong (`children`). So an exec does no
//! harm, as long as the new program is followed before its first call. Whether it will be is settled in front of the exec: the supervisor
//! traces the process, and has it die with it from then on; the new program begins with all signals blocked, and gets its mask once the
//! agent in it knows what it depends on, for which the session's table has room ([`runahead_speculation::Table::leave_behind`]). A
//! program that cannot be followed so (it has privileges, is of 32 bits, opts out, or there is nobody to trace it) is not executed
//! before all is settled. Nor is one where output is held: by the process, which would lose it, or for files, one of
//! which it may be.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

use runahead_abi::control_protocol::Bequest;
use runahead_speculation::Id;

use super::table_host::{self, HOST};
use super::{checkpoint, execute_call, pipe_dependencies};
use crate::plane::policy::NO_TOKEN;
use crate::plane::{self, Call, Token};
use crate::session::Session;
use crate::sys::{self, Errno};
use crate::targets;

/// What was prepared for the exec that is about to be made.
static PREPARED: AtomicI32 = AtomicI32::new(NO_TOKEN);
/// The exec under way is one that was prepared here.
static IS_STRICT: AtomicBool = AtomicBool::new(false);
/// This child has come to an exec that is to wait: it is not asked about again and again.
static MUST_WAIT: AtomicBool = AtomicBool::new(false);

/// What becomes of an exec.
pub enum Exec {
    /// It is made.
    Proceeds,
    /// It fails, as it would at any time.
    Fails(Errno),
    /// It waits until nothing is open.
    Waits,
}

/// Prepares the exec that `call` is, if a speculative process may make it now. All signals are blocked.
pub fn prepare(call: &Call) -> Exec {
    let is_free = !plane::has_threads() && !call.thread.is_lent() && !call.thread.is_at_work();
    if !is_free || MUST_WAIT.load(Relaxed) {
        return Exec::Waits;
    }
    let birth = checkpoint::with(|process| {
        let birth = process.only_birth()?;
        let holds = !process.output.is_empty() || execute_call::any_file_held(process);
        Some((birth, process.threads.own_mask()?)).filter(|_| !holds)
    });
    let (Ok(Some(((id, on), mask))), Some(table)) = (birth, table_host::table()) else {
        return Exec::Waits;
    };
    let believed = call.thread.believed_mask(mask);
    table.leave_behind(id, on, believed);
    match targets::prepare_strictly(call, id.0, checkpoint::BLOCKED_SIGNALS) {
        Ok(token) => {
            PREPARED.store(token, Relaxed);
            pipe_dependencies::stop_waiting();
            Exec::Proceeds
        }
        // What was to be found there is not, and nobody need be asked for that.
        Err(errno @ Errno(sys::ENOENT | sys::ENOTDIR | sys::ELOOP | sys::ENAMETOOLONG)) => {
            Exec::Fails(errno)
        }
        Err(_) => {
            MUST_WAIT.store(true, Relaxed);
            Exec::Waits
        }
    }
}

/// What was prepared for the exec that is about to be made, if that is one of a speculative process.
pub fn prepared() -> Option<Token> {
    let token = PREPARED.swap(NO_TOKEN, Relaxed);
    IS_STRICT.store(token != NO_TOKEN, Relaxed);
    (token != NO_TOKEN).then_some(token)
}

/// The mask of signals over the exec. (One that was sent to be looked at would find no handler in the new program, and end it.)
pub fn mask_across(mask: u64) -> u64 {
    if IS_STRICT.load(Relaxed) { !0 } else { mask }
}

/// The exec has failed.
pub fn failed() {
    IS_STRICT.store(false, Relaxed);
}

/// In a forked child.
pub fn in_child() {
    MUST_WAIT.store(false, Relaxed);
}

/// What the process was left by the program that it was before: its own speculation, on what it depends, and the signals that it blocks.
static INHERITED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// In a new program, whose agent was told this, before it intercepts anything: the signals that the program is to believe blocked, if it
/// depends on anything. Err: it cannot be known on what, and it must not go on.
pub fn inherit(session: &Session, told: &[u8]) -> sys::Result<Option<u64>> {
    if told.is_empty() {
        return Ok(None);
    }
    let Bequest { word, .. } = Bequest::of_bytes(told).ok_or(Errno(sys::EINVAL))?;
    let shared = table_host::map_shared(session)?;
    let (on, mask) = shared.table.left_behind(Id(word), &HOST).ok_or(Errno(sys::ESRCH))?;
    INHERITED.iter().zip([word, on.0, mask]).for_each(|(at, word)| at.store(word, Relaxed));
    Ok(Some(mask))
}

/// What was [inherited](inherit): the process's own speculation and the one on which it depends, and the signals that it blocks.
pub fn inherited() -> Option<(Id, Id, u64)> {
    let [id, on, mask] = INHERITED.each_ref().map(|word| word.load(Relaxed));
    (id != 0).then_some((Id(id), Id(on), mask))
}
