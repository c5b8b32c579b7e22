//! Calls that need no signal, while the process has one thread.
//!
//! A report takes two signals, some five microseconds, and few calls need one. While the process
//! does not speculate, these are calls whose effect a checkpoint would miss; while it does, calls
//! that wait. All others are made from patched sites: unchanged, or here.
//!
//! A second thread brings stops, and a thread in a call that is not reported cannot be stopped.
//! From then on every call is reported.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::call_table::{CallOutcome, Class, class};
use super::execute_call;
use super::table_host;
use super::{
    checkpoint, child_private_calls, descriptor_table, mapped_files, mapping_calls,
    pipe_dependencies, planted_predictions, program_interface, target_prefetch,
};
use crate::plane::{self, Call, CallRoute, Verdict, signal_block};
use crate::sys::{self, nr};
use crate::targets;

/// Returns the path of a call while the process does not speculate, by what speculation needs to
/// know of it later.
fn normal_path(nr: u64) -> CallRoute {
    match nr {
        // Changes of mappings and descriptors.
        nr::MMAP | nr::MUNMAP | nr::MREMAP | nr::MPROTECT | nr::MADVISE | nr::BRK => {
            CallRoute::Before
        }
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT => CallRoute::Before,
        nr::CLOSE | nr::DUP | nr::DUP2 | nr::DUP3 | nr::FCNTL => CallRoute::Before,
        nr::FADVISE64 => CallRoute::Before,
        // Reads from pipes whose tail may have speculative data.
        nr::READ | nr::READV | nr::RECVFROM if !planted_predictions::is_on() => CallRoute::Before,
        nr::SHMAT | nr::SHMDT | nr::PKEY_ALLOC | nr::PKEY_MPROTECT => CallRoute::Reported,
        nr::USERFAULTFD | nr::RSEQ => CallRoute::Reported,
        nr::CLOSE_RANGE | nr::SENDMSG | nr::SENDMMSG | nr::FLOCK => CallRoute::Reported,
        nr::PRCTL | nr::SECCOMP | nr::PTRACE | nr::EXIT_GROUP => CallRoute::Reported,
        _ if planted_predictions::is_on() => CallRoute::Reported,
        _ => CallRoute::Unseen,
    }
}

/// Last choice: 0 none, 1 for a process that does not speculate, 2 for one that does.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// Chooses the paths of all calls anew: the process starts, begins to speculate, or has ended
/// speculation.
pub fn choose_paths() {
    let speculates = checkpoint::is_speculative();
    // Consecutive predictions change nothing, and the choice visits hundreds of calls.
    if plane::has_threads()
        || CHOSEN.swap(1 + u32::from(speculates), Relaxed) == 1 + u32::from(speculates)
    {
        return;
    }
    match speculates {
        true => plane::set_routes(|nr| match class(nr) {
            Class::Waits => CallRoute::Reported,
            _ => CallRoute::Before,
        }),
        false => plane::set_routes(|nr| match normal_path(nr) {
            CallRoute::Unseen
                if target_prefetch::target_sees(nr) && targets::may_be_sampled(nr) =>
            {
                CallRoute::Sampled
            }
            CallRoute::Unseen if target_prefetch::target_sees(nr) => CallRoute::Before,
            otherwise => otherwise,
        }),
    }
}

/// True if [`before`] must see a call that came as a signal. A process with threads continues by
/// signals while it speculates.
pub fn is_asked_first(nr: u64) -> bool {
    match checkpoint::is_speculative() {
        true => !plane::has_threads() && class(nr) != Class::Waits,
        false if plane::has_threads() => target_prefetch::target_sees(nr),
        false => target_prefetch::target_sees(nr) || normal_path(nr) == CallRoute::Before,
    }
}

/// Reports every call from here on if `call` is about to create a thread.
pub fn before_thread(call: &Call) {
    use linux_raw_sys::general::{CLONE_VFORK, CLONE_VM};
    let flags = match call.nr {
        nr::CLONE => call.args[0],
        nr::CLONE3 => sys::copy_in(call.args[0]).unwrap_or(u64::from(CLONE_VM)),
        _ => return,
    };
    if flags as u32 & (CLONE_VM | CLONE_VFORK) == CLONE_VM {
        plane::report_all();
    }
}

/// True for a call without an effect on recorded state, though other calls of its number have one.
fn changes_nothing(call: &Call) -> bool {
    const HARMLESS: [u32; 3] = [k::F_GETFD, k::F_SETFD, k::F_GETFL];
    let is_harmless = || HARMLESS.contains(&(call.args[1] as u32));
    call.nr == nr::RECVFROM || call.nr == nr::FCNTL && is_harmless()
}

/// Decides about a call from a patched site. None: it must come as a signal, because its frame is
/// needed.
pub fn before(call: &Call) -> Option<Verdict> {
    let need_not_ask = || checkpoint::is_speculative() || targets::is_hint_only(call.nr);
    if table_host::has_not_asked()
        || planted_predictions::is_on() && need_not_ask() && planted_predictions::wants()
    {
        return None;
    }
    mapped_files::note_call(call);
    if plane::has_threads() {
        return before_with_threads(call);
    }
    // A call made here is not repeated if one of our signals interrupts it. Outside of speculations
    // only tests send such signals.
    if checkpoint::is_speculative() {
        let is_settled = table_host::table().is_some_and(checkpoint::outcomes_are_applied);
        if !is_settled || program_interface::is_request(call) {
            return None;
        }
        return match child_private_calls::make(call, target_prefetch::make_with_prefetch) {
            // Requested by a pending signal; the program has its signals blocked.
            CallOutcome::Answer(sys::RESTART) => None,
            CallOutcome::Answer(result) => Some(Verdict::answer(result)),
            CallOutcome::Report | CallOutcome::Waits | CallOutcome::Depends(..) => None,
        };
    }
    if program_interface::is_request(call) {
        return program_interface::handle_at_once(call);
    }
    if call.thread.is_lent() {
        return None;
    }
    let asked = target_prefetch::ask_target(call);
    if target_prefetch::is_in_shadow() {
        return Some(asked);
    }
    let otherwise = normal_path(call.nr);
    let result = match (asked.answered(), otherwise) {
        (Some(result), _) => result,
        _ if planted_predictions::wants() => return None,
        (None, CallRoute::Unseen | CallRoute::Sampled) => return Some(Verdict::NATIVE),
        (None, CallRoute::Reported) => return None,
        (None, CallRoute::Before) if pipe_dependencies::may_read(call) => {
            let looks = descriptor_table::may_be_pipe(call.fd(0))
                && !pipe_dependencies::has_committed_data(call);
            return if looks { None } else { Some(Verdict::NATIVE) };
        }
        (None, CallRoute::Before) if changes_nothing(call) => return Some(Verdict::NATIVE),
        (None, CallRoute::Before) => call.perform(),
    };
    if otherwise != CallRoute::Unseen {
        note_made_call(call, result);
    }
    Some(Verdict::answer(result))
}

/// Like [`before`], for a call that came as a signal in a process with threads. A call that may
/// wait for storage is made here. No other thread takes a checkpoint meanwhile: this thread stops
/// only after its call, or in front of it if it was interrupted.
fn before_with_threads(call: &Call) -> Option<Verdict> {
    if checkpoint::is_speculative() || program_interface::is_request(call) || call.thread.is_lent()
    {
        return None;
    }
    let asked = target_prefetch::ask_target(call);
    match asked.answered() {
        _ if target_prefetch::is_in_shadow() => Some(asked),
        Some(result) => {
            note_made_call(call, result);
            Some(asked)
        }
        None => None,
    }
}

/// Records a call that was made here with this result.
fn note_made_call(call: &Call, result: i64) {
    if result == sys::RESTART {
        return;
    }
    // A signal handler would wait for the locks that this takes.
    let mask = plane::has_handlers().then(signal_block::begin);
    mapping_calls::note(call, result);
    execute_call::note_descriptor_call(call, result);
    mask.into_iter().for_each(signal_block::end);
}
