//! Execution of calls that need not wait ([`super::call_table`]): they are made and journaled for
//! undo, or their output is held.
//!
//! Each is made here with signals blocked, and answered. So only calls are made here that wait for
//! nothing but storage. Those that wait for storage are made by a [`CallMaker`], which may read
//! ahead for them.

use linux_raw_sys::general as k;
use runahead_abi::agent_config::plant;

use super::call_table::{CallOutcome, Class, class};
use super::checkpoint;
use super::descriptor_table::{self, DescriptorInfo};
use super::output_buffer::{self, DescriptorKind, Destination, HarmlessDevice, WriteMode};
use super::process_checkpoints::Process;
use super::table_host;
use super::target_prefetch::{CallMaker, make_natively};
use super::undo_journal::Change;
use super::{
    memory_checkpoints, pipe_dependencies, target_prefetch, user_buffers, write_capacity,
    write_faults,
};
use crate::plane::policy::ReportingVerdict;
use crate::plane::{self, Call};
use crate::session;
use crate::sys::{self, Fd, IoVec, nr};
use runahead_client::prediction::protocol::Policy;

/// Executes `call` as its class says. The process speculates.
pub fn make(call: &Call, maker: CallMaker) -> CallOutcome {
    // A shadow would inherit memory that it cannot write.
    let maker = if write_faults::is_protecting() { make_natively } else { maker };
    match by_class(call, maker) {
        CallOutcome::Waits if lets_out() => make_now(call),
        made => made,
    }
}

/// Planted violation of a test: no call waits.
fn lets_out() -> bool {
    session::get().is_some_and(|session| session.plant() == plant::LETS_OUT)
}

fn by_class(call: &Call, maker: CallMaker) -> CallOutcome {
    match class(call.nr) {
        Class::Queries => make_now(call),
        Class::ReadsMetadata => read_metadata(call, maker),
        Class::ReadsAtOffset => read_at_offset(call, maker),
        Class::MovesOffset => move_offset(call, maker),
        Class::Opens => open_file(call, maker),
        Class::Closes => close_descriptor(call),
        Class::Maps => change_mapping(call),
        Class::Writes => write_output(call),
        Class::Wakes => use_futex(call),
        Class::Commands => query_descriptor(call),
        Class::Waits => CallOutcome::Waits,
    }
}

/// Makes the call if the buffers that it fills can be written.
fn make_now(call: &Call) -> CallOutcome {
    make_with(make_natively, call)
}

/// Like [`make_now`], by `maker`.
fn make_with(maker: CallMaker, call: &Call) -> CallOutcome {
    if user_buffers::make_writable(call) {
        CallOutcome::Answer(maker(call))
    } else {
        CallOutcome::Waits
    }
}

/// Runs `work` on the process's checkpoints. The call waits if they cannot be allocated.
fn with_process(work: impl FnMut(&mut Process) -> CallOutcome) -> CallOutcome {
    checkpoint::with(work).unwrap_or(CallOutcome::Waits)
}

/// True if output to files is held that this process would not find there: its own output, or, once
/// it depends on another process, that of any process of the session.
pub fn any_file_held(process: &Process) -> bool {
    let of_others = || table_host::shared().is_some_and(|shared| shared.files.any_held());
    process.output.has_files() || of_others() && process.depends_on_other()
}

/// True if output is held for the file `kind` that this process would not find there.
pub fn is_output_held(process: &Process, kind: DescriptorKind) -> bool {
    let DescriptorKind::File(file) = kind else { return false };
    let of_others = || {
        table_host::shared().is_some_and(|shared| shared.files.may_be_held(file.device, file.inode))
    };
    process.output.has_file(file) || of_others() && process.depends_on_other()
}

/// File that a metadata call is about.
enum MetadataSubject {
    /// A path: its directory descriptor, its address, and true if a final symbolic link is
    /// followed.
    Name(Fd, u64, bool),
    Descriptor(Fd),
    /// No file's contents or size.
    Nothing,
}

fn metadata_subject(call: &Call) -> MetadataSubject {
    const AT: Fd = sys::AT_FDCWD;
    let [first, second, third, fourth, ..] = call.args;
    let follows = |flags: u64| flags as u32 & k::AT_SYMLINK_NOFOLLOW == 0;
    match call.nr {
        nr::STAT | nr::GETXATTR | nr::LISTXATTR => MetadataSubject::Name(AT, first, true),
        nr::LSTAT | nr::LGETXATTR | nr::LLISTXATTR => MetadataSubject::Name(AT, first, false),
        nr::FSTAT | nr::FGETXATTR | nr::FLISTXATTR => MetadataSubject::Descriptor(call.fd(0)),
        // An empty path names the descriptor.
        nr::NEWFSTATAT if is_empty(second) => MetadataSubject::Descriptor(call.fd(0)),
        nr::STATX if is_empty(second) => MetadataSubject::Descriptor(call.fd(0)),
        nr::NEWFSTATAT => MetadataSubject::Name(call.fd(0), second, follows(fourth)),
        nr::STATX => MetadataSubject::Name(call.fd(0), second, follows(third)),
        _ => MetadataSubject::Nothing,
    }
}

fn is_empty(path: u64) -> bool {
    path == 0 || sys::copy_in::<u8>(path) == Ok(0)
}

fn read_metadata(call: &Call, maker: CallMaker) -> CallOutcome {
    let is_held = |process: &mut Process| {
        any_file_held(process)
            && match metadata_subject(call) {
                MetadataSubject::Name(dir, path, follows) => {
                    output_buffer::kind_at(dir, path, follows)
                        .is_ok_and(|kind| is_output_held(process, kind))
                }
                MetadataSubject::Descriptor(fd) => descriptor_table::info(fd)
                    .is_some_and(|known| is_output_held(process, known.kind)),
                MetadataSubject::Nothing => false,
            }
    };
    if checkpoint::with(is_held) == Ok(false) { make_with(maker, call) } else { CallOutcome::Waits }
}

fn read_at_offset(call: &Call, maker: CallMaker) -> CallOutcome {
    if call.nr == nr::PREADV2 && call.args[3] == u64::MAX {
        // Offset -1: at the descriptor's own offset.
        return move_offset(call, maker);
    }
    let known = descriptor_table::info(call.fd(0)).filter(|known| known.is_stored);
    let Some(DescriptorInfo { kind, .. }) = known else { return CallOutcome::Waits };
    if checkpoint::with(|process| is_output_held(process, kind)) == Ok(false) {
        make_with(maker, call)
    } else {
        CallOutcome::Waits
    }
}

fn move_offset(call: &Call, maker: CallMaker) -> CallOutcome {
    let fd = call.fd(0);
    if !descriptor_table::is_private_file(fd) {
        // Query of the offset of a device or shared file, which does not move it.
        let asks = call.nr == nr::LSEEK && call.args[1] == 0 && call.args[2] as u32 == k::SEEK_CUR;
        return match descriptor_table::info(fd).map(|known| known.kind) {
            Some(DescriptorKind::Stream) if asks => make_now(call),
            Some(DescriptorKind::File(_)) if asks => read_at_offset(call, maker),
            // Fails with ESPIPE, and changes nothing.
            Some(DescriptorKind::Pipe(_) | DescriptorKind::Local(_)) if call.nr == nr::LSEEK => {
                make_now(call)
            }
            _ => pipe_dependencies::pipe_of(call)
                .map_or(CallOutcome::Waits, |pipe| pipe_dependencies::read_speculative(call, pipe)),
        };
    }
    let is_at_once =
        |known: &DescriptorInfo| known.is_stored || known.kind == DescriptorKind::Directory;
    let Some(known) = descriptor_table::info(fd).filter(is_at_once) else {
        return CallOutcome::Waits;
    };
    if lists_descriptors(call) {
        return CallOutcome::Waits;
    }
    let is_noted = checkpoint::with(|process| {
        let is_held = any_file_held(process) && is_output_held(process, known.kind);
        !is_held && (!process.has_checkpoint() || process.journal.record_offset(fd))
    });
    if is_noted == Ok(true) { make_with(maker, call) } else { CallOutcome::Waits }
}

/// True if the call lists a directory of procfs, and may find descriptors there that the program
/// has closed and that are still open.
fn lists_descriptors(call: &Call) -> bool {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    matches!(call.nr, nr::GETDENTS | nr::GETDENTS64)
        && checkpoint::with(|process| process.journal.keeps_descriptors()) != Ok(false)
        && sys::filesystem_type(call.fd(0)) == Ok(PROC_SUPER_MAGIC)
}

fn open_file(call: &Call, maker: CallMaker) -> CallOutcome {
    /// Flags that change nothing and open no other kind of file.
    const HARMLESS: u32 = k::O_CLOEXEC
        | k::O_DIRECTORY
        | k::O_NOFOLLOW
        | k::O_LARGEFILE
        | k::O_NOATIME
        | k::O_NONBLOCK
        | k::O_NOCTTY;
    let (dir, path, flags) = match call.nr {
        nr::OPEN => (sys::AT_FDCWD, call.args[0], call.args[1] as u32),
        nr::OPENAT => (call.fd(0), call.args[1], call.args[2] as u32),
        _ => return CallOutcome::Waits,
    };
    /// Flags that are also harmless for a device that accepts writes and stores nothing.
    const HARMLESS_THERE: u32 = k::O_ACCMODE | k::O_CREAT | k::O_TRUNC | k::O_APPEND;
    let follows = flags & k::O_NOFOLLOW == 0;
    // No other process can observe that an ordinary file is opened, or that a path is missing.
    let (kind, device) = match output_buffer::kind_at(dir, path, follows) {
        Ok(DescriptorKind::Local(_) | DescriptorKind::Pipe(_)) | Err(sys::Errno(sys::EFAULT)) => {
            return CallOutcome::Waits;
        }
        Ok(DescriptorKind::Stream) => match output_buffer::harmless_device(dir, path, follows) {
            None => return CallOutcome::Waits,
            device => (Ok(DescriptorKind::Stream), device),
        },
        kind => (kind, None),
    };
    let harmless = HARMLESS | if device.is_some() { HARMLESS_THERE } else { 0 };
    if flags & !harmless != 0 {
        return CallOutcome::Waits;
    }
    // No rollback by another thread intervenes: signals are blocked, so this thread cannot be
    // stopped.
    let may_open = |process: &mut Process| {
        let has_room = !process.has_checkpoint() || process.journal.has_room();
        !kind.is_ok_and(|kind| is_output_held(process, kind)) && has_room
    };
    if checkpoint::with(may_open) != Ok(true) {
        return CallOutcome::Waits;
    }
    let result = maker(call);
    with_process(|process| {
        let is_noted = process.has_checkpoint();
        if result >= 0 {
            descriptor_table::invalidate(result as Fd);
            descriptor_table::set_private(result as Fd, device != Some(HarmlessDevice::Terminal));
        }
        if result >= 0 && is_noted {
            process.journal.record(Change::Opened(result as Fd));
        }
        CallOutcome::Answer(result)
    })
}

fn close_descriptor(call: &Call) -> CallOutcome {
    let fd = call.fd(0);
    // The file stays open until the commit, and a file that is open for writing cannot be executed.
    let writes = |flags: u64| flags as u32 & k::O_ACCMODE != k::O_RDONLY;
    if !descriptor_table::is_private_file(fd) || sys::status_flags(fd).is_ok_and(writes) {
        return CallOutcome::Waits;
    }
    with_process(|process| {
        if process.output.has(fd) || !process.journal.has_room() || !process.journal.close(fd) {
            return CallOutcome::Waits;
        }
        descriptor_table::set_private(fd, false);
        descriptor_table::invalidate(fd);
        descriptor_table::set_policy(fd, 0);
        target_prefetch::forget(fd);
        CallOutcome::Answer(0)
    })
}

fn change_mapping(call: &Call) -> CallOutcome {
    use crate::sys::PAGE;
    let [at, len, _, flags, ..] = call.args;
    let whole = len.next_multiple_of(PAGE);
    let flags = flags as u32;
    let known = k::MAP_PRIVATE | k::MAP_ANONYMOUS | k::MAP_NORESERVE | k::MAP_STACK;
    with_process(|process| {
        if !process.journal.has_room() {
            return CallOutcome::Waits;
        }
        match call.nr {
            nr::MMAP if flags & !known == 0 && flags & k::MAP_ANONYMOUS != 0 && len > 0 => {
                let result = make_natively(call);
                if sys::check(result).is_ok() {
                    process.memory.note_discarded(result as u64, whole);
                    process.journal.record(Change::Mapped { at: result as u64, len: whole });
                }
                CallOutcome::Answer(result)
            }
            nr::MUNMAP if at.is_multiple_of(PAGE) && len > 0 && is_program_range(at, whole) => {
                process.journal.record(Change::Unmapped { at, len: whole });
                CallOutcome::Answer(0)
            }
            nr::BRK => {
                // SAFETY: queries the program break.
                let now = unsafe { sys::raw(nr::BRK, [0; 6]) } as u64;
                if at < now {
                    // An argument of 0 queries the break. One below the heap is refused.
                    return if at == 0 {
                        CallOutcome::Answer(now as i64)
                    } else {
                        CallOutcome::Waits
                    };
                }
                let result = make_natively(call);
                memory_checkpoints::swap_program_break(result as u64);
                process.memory.note_heap_end(now, result as u64);
                process.journal.record(Change::Break(now));
                CallOutcome::Answer(result)
            }
            _ => CallOutcome::Waits,
        }
    })
}

/// True if a program can have memory there, and the agent has none.
fn is_program_range(at: u64, len: u64) -> bool {
    const END: u64 = (1 << 47) - 4096;
    let is_ours = || session::get().is_some_and(|session| session.owns_any(at, len));
    at.checked_add(len).is_some_and(|end| end <= END) && !is_ours()
}

fn write_output(call: &Call) -> CallOutcome {
    if plane::is_partly_made(call) {
        return CallOutcome::Waits;
    }
    let fd = call.fd(0);
    let [_, at, len, fourth, ..] = call.args;
    let mut vectors = output_buffer::NO_BUFFERS;
    let one = [IoVec { base: at, len }];
    let (how, buffers): (_, &[IoVec]) = match call.nr {
        nr::WRITE => (WriteMode::Current, &one),
        nr::PWRITE64 => (WriteMode::AtOffset(fourth), &one),
        // Without a destination address.
        nr::SENDTO if call.args[4] == 0 && fourth & !write_capacity::PLAIN_FLAGS == 0 => {
            (WriteMode::Message(fourth as u32), &one)
        }
        nr::WRITEV => match output_buffer::buffers_of(at, len, &mut vectors) {
            Some(buffers) => (WriteMode::Current, buffers),
            None => return CallOutcome::Waits,
        },
        _ => return CallOutcome::Waits,
    };
    let policy = descriptor_table::policy(fd);
    if policy == Policy::Block as u8 {
        return CallOutcome::Waits;
    }
    if policy == Policy::Allow as u8 {
        return write_at_once(call, buffers);
    }
    // Errors change nothing, and are returned by the call itself.
    let Some(DescriptorInfo { kind, can_hold_output: true, .. }) = descriptor_table::info(fd)
    else {
        return CallOutcome::Waits;
    };
    let to = match (kind, how) {
        (DescriptorKind::File(file), WriteMode::Current) => Destination::File(file),
        (DescriptorKind::File(file), WriteMode::AtOffset(at)) if i64::try_from(at).is_ok() => {
            Destination::File(file)
        }
        (DescriptorKind::Pipe(pipe), WriteMode::Current) => Destination::Pipe(pipe, None),
        (DescriptorKind::Local(Some(ends)), WriteMode::Current | WriteMode::Message(_)) => {
            Destination::Pipe(ends.writes, None)
        }
        (
            DescriptorKind::Local(None) | DescriptorKind::Stream,
            WriteMode::Current | WriteMode::Message(_),
        ) => Destination::Other,
        _ => return CallOutcome::Waits,
    };
    let is_shown = policy != Policy::Defer as u8;
    let made = with_process(|process| match process.hold(fd, how, buffers, to, is_shown) {
        Ok(bytes) => CallOutcome::Answer(bytes as i64),
        Err(_) => CallOutcome::Waits,
    });
    if matches!(made, CallOutcome::Answer(_)) {
        super::program_interface::request_pokes();
    }
    made
}

/// Makes a write at once if the program's policy for the descriptor allows it and the write waits
/// for no reader.
fn write_at_once(call: &Call, buffers: &[IoVec]) -> CallOutcome {
    /// `PIPE_BUF`: this many bytes are written at once if poll(2) reports room (pipe(7)).
    const AT_ONCE: u64 = 4096;
    let is_small = buffers.iter().map(|buffer| buffer.len).sum::<u64>() <= AT_ONCE;
    let is_ready = write_capacity::poll(call.fd(0), 0) == Ok(write_capacity::POLLOUT);
    if is_ready && is_small { make_now(call) } else { CallOutcome::Report }
}

fn use_futex(call: &Call) -> CallOutcome {
    // Without this flag, other processes may wait there, in memory of a file that this process can
    // only read.
    const PRIVATE: u32 = k::FUTEX_PRIVATE_FLAG;
    match call.args[1] as u32 & !k::FUTEX_CLOCK_REALTIME ^ PRIVATE {
        k::FUTEX_WAKE | k::FUTEX_WAKE_BITSET => make_now(call),
        // The call waits for another thread, which continues too.
        k::FUTEX_WAIT | k::FUTEX_WAIT_BITSET => CallOutcome::Report,
        _ => CallOutcome::Waits,
    }
}

fn query_descriptor(call: &Call) -> CallOutcome {
    /// Queries of a terminal's attributes, size and process group (ioctl_tty(2)).
    const TCGETS: u32 = 0x5401;
    const TIOCGWINSZ: u32 = 0x5413;
    const TIOCGPGRP: u32 = 0x540f;
    let command = call.args[1] as u32;
    let is_harmless = match call.nr {
        nr::FCNTL => matches!(command, k::F_GETFD | k::F_GETFL),
        _ => matches!(command, TCGETS | TIOCGWINSZ | TIOCGPGRP),
    };
    if is_harmless { make_now(call) } else { CallOutcome::Waits }
}

/// Updates the descriptor table after a call has returned `result`.
pub fn note_descriptor_call(call: &Call, result: i64) {
    if result < 0 {
        return;
    }
    let (fd, opened) = (call.fd(0), result as Fd);
    match call.nr {
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT | nr::DUP | nr::DUP2 | nr::DUP3 => {
            descriptor_table::invalidate(opened);
        }
        nr::CLOSE => descriptor_table::invalidate(fd),
        nr::CLOSE_RANGE => descriptor_table::invalidate_all(),
        // The call changes all descriptors of the same open file.
        nr::FCNTL if matches!(call.args[1] as u32, k::F_SETFL | k::F_ADD_SEALS) => {
            descriptor_table::invalidate_all();
        }
        nr::FCNTL => {
            descriptor_table::invalidate(fd);
            descriptor_table::invalidate(opened);
        }
        _ => {}
    }
    match call.nr {
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT => {
            descriptor_table::set_private(opened, true);
        }
        nr::CLOSE => {
            descriptor_table::set_private(fd, false);
            descriptor_table::set_policy(fd, 0);
        }
        nr::DUP | nr::DUP2 | nr::DUP3 if opened != fd => {
            descriptor_table::set_private(opened, descriptor_table::is_private(fd));
            descriptor_table::set_policy(opened, descriptor_table::policy(fd));
        }
        nr::FCNTL if matches!(call.args[1] as u32, k::F_DUPFD | k::F_DUPFD_CLOEXEC) => {
            descriptor_table::set_private(opened, descriptor_table::is_private(fd));
        }
        // A descriptor was sent to another process, or a lock is released with any close of the
        // file.
        nr::SENDMSG | nr::FLOCK => descriptor_table::share_all(),
        nr::FCNTL
            if matches!(
                call.args[1] as u32,
                k::F_SETLK | k::F_SETLKW | k::F_OFD_SETLK | k::F_OFD_SETLKW
            ) =>
        {
            descriptor_table::share_all();
        }
        _ => {}
    }
}

/// Returns the verdict for a call that needs no wait; None if it waits.
pub fn verdict(made: &CallOutcome) -> Option<ReportingVerdict> {
    match made {
        CallOutcome::Answer(result) => Some(ReportingVerdict::Answer(*result)),
        CallOutcome::Report => Some(ReportingVerdict::Report),
        CallOutcome::Waits | CallOutcome::Depends(..) => None,
    }
}
