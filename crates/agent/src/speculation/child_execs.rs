//! Programs that a speculative child executes: the child continues as the new program, and depends
//! on what it depended on before.
//!
//! A child with only its birth open needs no rollback: it ends if the prediction was wrong
//! ([`super::child_processes`]). So an exec is harmless if the agent follows the new program before
//! its first call.
//!
//! That is made certain in front of the exec. The supervisor traces the process, which dies with
//! the supervisor from then on. The new program begins with all signals blocked. It gets its mask
//! once its agent has read its dependency from the session's table
//! ([`runahead_speculation::Table::leave_behind`]).
//!
//! A program that cannot be followed so waits until no speculation is open: it has privileges, is
//! 32-bit, opts out, or no supervisor can trace it. So does an exec while the process holds output,
//! which the exec would lose. Output held for files counts too: one of them may be the executable.

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

/// Token of the exec that is about to be made.
static PREPARED: AtomicI32 = AtomicI32::new(NO_TOKEN);
/// True if the exec in progress was prepared here.
static IS_STRICT: AtomicBool = AtomicBool::new(false);
/// True if this child has reached an exec that waits. It is not prepared again and again.
static MUST_WAIT: AtomicBool = AtomicBool::new(false);

/// Decision about an exec.
pub enum Exec {
    /// The exec is made.
    Proceeds,
    /// The exec fails with this error, as it would at any time.
    Fails(Errno),
    /// The exec waits until no speculation is open.
    Waits,
}

/// Prepares the exec `call`, if a speculative process may make it now. All signals are blocked.
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
    let believed = call.thread.as_believed(mask);
    table.leave_behind(id, on, believed);
    match targets::prepare_strictly(call, id.0, checkpoint::BLOCKED_SIGNALS) {
        Ok(token) => {
            PREPARED.store(token, Relaxed);
            pipe_dependencies::stop_waiting();
            Exec::Proceeds
        }
        // The file is missing, which needs no help of the supervisor.
        Err(errno @ Errno(sys::ENOENT | sys::ENOTDIR | sys::ELOOP | sys::ENAMETOOLONG)) => {
            Exec::Fails(errno)
        }
        Err(_) => {
            MUST_WAIT.store(true, Relaxed);
            Exec::Waits
        }
    }
}

/// Returns the token of the exec that is about to be made, if a speculative process makes it.
pub fn prepared() -> Option<Token> {
    let token = PREPARED.swap(NO_TOKEN, Relaxed);
    IS_STRICT.store(token != NO_TOKEN, Relaxed);
    (token != NO_TOKEN).then_some(token)
}

/// Returns the signal mask across the exec. A poke would find no handler in the new program, and
/// kill it.
pub fn mask_across(mask: u64) -> u64 {
    if IS_STRICT.load(Relaxed) { !0 } else { mask }
}

/// Records that the exec has failed.
pub fn failed() {
    IS_STRICT.store(false, Relaxed);
}

/// Resets the state in a forked child.
pub fn in_child() {
    MUST_WAIT.store(false, Relaxed);
}

/// State left by the previous program of this process: its own speculation, its dependency, and its
/// signal mask.
static INHERITED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Reads the state that the previous program left, in a new program before it intercepts anything.
/// Returns the signals that the program is to believe blocked, if it depends on a speculation. Err:
/// its dependency cannot be found, and it must not continue.
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

/// Returns the [inherited](inherit) state: the process's own speculation, its dependency, and its
/// signal mask.
pub fn inherited() -> Option<(Id, Id, u64)> {
    let [id, on, mask] = INHERITED.each_ref().map(|word| word.load(Relaxed));
    (id != 0).then_some((Id(id), Id(on), mask))
}
