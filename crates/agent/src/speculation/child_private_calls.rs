//! Calls by which a speculative child changes only its own state, and which need no undo: the child
//! has no checkpoint, and ends if the prediction was wrong. They let a new program reach its work,
//! and a shell's child its exec.
//!
//! State that it shares with its parent stays unchanged: file offsets and written data. Descriptors
//! that the child closes stay open in the parent while it speculates, since closing a shared
//! descriptor waits.

use linux_raw_sys::general as k;

use super::call_table::CallOutcome;
use super::output_buffer::DescriptorKind;
use super::target_prefetch::{self, CallMaker};
use super::{
    checkpoint, descriptor_table, execute_call, mapping_calls, thread_states, undo_journal,
};
use crate::plane::Call;
use crate::sys::{self, nr};

/// Executes `call`: directly if only this child can observe it, else by [`execute_call::make`]. The
/// process speculates.
pub fn make(call: &Call, maker: CallMaker) -> CallOutcome {
    if !is_private_call(call) || !checkpoint::ends_if_wrong() {
        return execute_call::make(call, maker);
    }
    if let Some(fd) = closed_descriptor(call) {
        if !keep_open(fd) {
            return CallOutcome::Waits;
        }
        target_prefetch::forget(fd);
    }
    let result = target_prefetch::make_natively(call);
    mapping_calls::note(call, result);
    execute_call::note_descriptor_call(call, result);
    thread_states::note_call(call, result);
    CallOutcome::Answer(result)
}

/// True for calls of the plane that this child may make unchanged. Its thread has those signals
/// `blocked`.
pub fn is_private_plane_call(call: &Call, blocked: u64) -> bool {
    let is_one = match call.nr {
        nr::SIGALTSTACK | nr::ARCH_PRCTL => true,
        nr::RT_SIGACTION => !may_run_handler(call, blocked),
        _ => false,
    };
    is_one && !call.thread.is_lent() && checkpoint::ends_if_wrong()
}

/// True if the call installs a handler for a signal that could then come while the process
/// speculates.
fn may_run_handler(call: &Call, blocked: u64) -> bool {
    const SIG_IGN: u64 = 1;
    let [signal, action, ..] = call.args;
    let bit = 1u64.checked_shl((signal as u32).wrapping_sub(1)).unwrap_or(0);
    let handler = if action == 0 { 0 } else { sys::copy_in(action).unwrap_or(0) };
    handler > SIG_IGN && bit & !blocked != 0
}

fn is_private_call(call: &Call) -> bool {
    const FIOCLEX: u32 = 0x5451;
    const FIONCLEX: u32 = 0x5450;
    match call.nr {
        nr::MUNMAP | nr::MREMAP | nr::MPROTECT | nr::MADVISE | nr::BRK => true,
        nr::MMAP => is_private_mapping(call),
        nr::SET_TID_ADDRESS | nr::SET_ROBUST_LIST | nr::RSEQ => true,
        nr::PRLIMIT64 => call.args[0] == 0,
        nr::DUP | nr::CLOSE | nr::DUP2 | nr::DUP3 => true,
        nr::FCNTL => {
            matches!(call.args[1] as u32, k::F_DUPFD | k::F_DUPFD_CLOEXEC | k::F_SETFD)
        }
        // Same effect as F_SETFD.
        nr::IOCTL => matches!(call.args[1] as u32, FIOCLEX | FIONCLEX),
        nr::PIPE | nr::PIPE2 => true,
        nr::CHDIR | nr::FCHDIR | nr::UMASK => true,
        _ => false,
    }
}

/// True if no other process sees what is written to the mapping.
fn is_private_mapping(call: &Call) -> bool {
    let [_, _, protection, flags, ..] = call.args.map(|arg| arg as u32);
    if flags & k::MAP_ANONYMOUS != 0 {
        return flags & k::MAP_SHARED == 0;
    }
    let fd = call.fd(4);
    let kind = descriptor_table::info(fd).map(|known| known.kind);
    let Some(kind @ DescriptorKind::File(_)) = kind else { return false };
    // A descriptor that is open read-only cannot be made writable later.
    let is_read_only = || {
        let flags = sys::status_flags(fd);
        flags.is_ok_and(|flags| flags as u32 & k::O_ACCMODE == k::O_RDONLY)
    };
    let is_shared = flags & k::MAP_SHARED != 0;
    (!is_shared || protection & k::PROT_WRITE == 0 && is_read_only())
        && checkpoint::with(|process| execute_call::is_output_held(process, kind)) == Ok(false)
}

/// Returns the descriptor that the call closes.
fn closed_descriptor(call: &Call) -> Option<sys::Fd> {
    match call.nr {
        nr::CLOSE => Some(call.fd(0)),
        nr::DUP2 | nr::DUP3 => Some(call.fd(1)).filter(|closed| *closed != call.fd(0)),
        _ => None,
    }
}

/// Moves held output for `fd` to a duplicate, so that the close cannot lose it. Returns false if no
/// duplicate is available.
fn keep_open(fd: sys::Fd) -> bool {
    let kept = checkpoint::with(|process| {
        process.output.forget_capacity();
        if !process.output.has(fd) {
            return Ok(());
        }
        let kept = sys::duplicate_above(fd, undo_journal::KEPT_FROM)?;
        process.output.note_closed(fd, kept).inspect_err(|_| _ = sys::close(kept))
    });
    matches!(kept, Ok(Ok(())))
}
