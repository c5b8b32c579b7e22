//! Calls of a speculative process that need not wait ([`super::call_table`]): made, and undone if it comes to that; or held.
//!
//! Each is made here, with signals blocked, and answered: so only calls that do not wait themselves, but for storage. Those that may are
//! made by a [`Maker`], which may read ahead for them.

use linux_raw_sys::general as k;
use runahead_abi::agent_config::plant;

use super::call_table::{Class, Made, class};
use super::checkpoint;
use super::descriptor_table::{self, Known};
use super::output_buffer::{self, How, Kind, Quiet, To};
use super::process_checkpoints::Process;
use super::table_host;
use super::target_prefetch::{Maker, as_it_stands};
use super::undo_journal::Change;
use super::{
    pipe_dependencies, program_break, target_prefetch, user_buffers, write_capacity, write_faults,
};
use crate::plane::Call;
use crate::plane::policy::ReportingVerdict;
use crate::session;
use crate::sys::{self, Fd, nr};
use runahead_speculate::protocol::Policy;

/// Does with the call what its class says. The process speculates.
pub fn make(call: &Call, maker: Maker) -> Made {
    // (A shadow would have memory that it cannot write.)
    let maker = if write_faults::is_on() { as_it_stands } else { maker };
    match by_class(call, maker) {
        Made::Waits if lets_out() => here(call),
        made => made,
    }
}

/// A violation that a test plants: nothing waits.
fn lets_out() -> bool {
    session::get().is_some_and(|session| session.plant() == plant::LETS_OUT)
}

fn by_class(call: &Call, maker: Maker) -> Made {
    match class(call.nr) {
        Class::Asks => here(call),
        Class::Looks => looks(call, maker),
        Class::LooksAt => looks_at(call, maker),
        Class::Moves => moves(call, maker),
        Class::Opens => opens(call, maker),
        Class::Closes => closes(call),
        Class::Maps => maps(call),
        Class::Writes => writes(call),
        Class::Wakes => wakes(call),
        Class::Commands => commands(call),
        Class::Waits => Made::Waits,
    }
}

/// Makes it, if what it writes can be written.
fn here(call: &Call) -> Made {
    by(as_it_stands, call)
}

/// As [`here`], by `maker`.
fn by(maker: Maker, call: &Call) -> Made {
    if user_buffers::open(call) { Made::Answer(maker(call)) } else { Made::Waits }
}

/// `work` with what this process has open; where that cannot be had the call waits.
fn with(work: impl FnMut(&mut Process) -> Made) -> Made {
    checkpoint::with(work).unwrap_or(Made::Waits)
}

/// Whether output to files is held, which the process would not find there: its own, or, once it has been told something by
/// another, anybody's in the session.
pub fn holds_files(process: &Process) -> bool {
    let of_others = || table_host::shared().is_some_and(|shared| shared.files.any());
    process.held.has_files() || of_others() && process.is_told()
}

/// Whether output is held for it, which the process would not find there.
pub fn holds(process: &Process, kind: Kind) -> bool {
    let Kind::File((device, inode)) = kind else { return false };
    let of_others = || table_host::shared().is_some_and(|shared| shared.files.has(device, inode));
    process.held.has_file((device, inode)) || of_others() && process.is_told()
}

/// What a call is about that looks at file systems.
enum About {
    /// A name: from where, its address, and whether symbolic links at its end are followed.
    Name(Fd, u64, bool),
    Descriptor(Fd),
    /// No file's contents or size.
    Nothing,
}

fn about(call: &Call) -> About {
    const AT: Fd = sys::AT_FDCWD;
    let [first, second, third, fourth, ..] = call.args;
    let follows = |flags: u64| flags as u32 & k::AT_SYMLINK_NOFOLLOW == 0;
    match call.nr {
        nr::STAT | nr::GETXATTR | nr::LISTXATTR => About::Name(AT, first, true),
        nr::LSTAT | nr::LGETXATTR | nr::LLISTXATTR => About::Name(AT, first, false),
        nr::FSTAT | nr::FGETXATTR | nr::FLISTXATTR => About::Descriptor(call.fd(0)),
        // (An empty name stands for the descriptor.)
        nr::NEWFSTATAT if is_empty(second) => About::Descriptor(call.fd(0)),
        nr::STATX if is_empty(second) => About::Descriptor(call.fd(0)),
        nr::NEWFSTATAT => About::Name(call.fd(0), second, follows(fourth)),
        nr::STATX => About::Name(call.fd(0), second, follows(third)),
        _ => About::Nothing,
    }
}

fn is_empty(path: u64) -> bool {
    path == 0 || sys::copy_in::<u8>(path) == Ok(0)
}

fn looks(call: &Call, maker: Maker) -> Made {
    let is_held = |process: &mut Process| {
        holds_files(process)
            && match about(call) {
                About::Name(dir, path, follows) => output_buffer::kind_at(dir, path, follows)
                    .is_ok_and(|kind| holds(process, kind)),
                About::Descriptor(fd) => {
                    descriptor_table::known(fd).is_some_and(|known| holds(process, known.kind))
                }
                About::Nothing => false,
            }
    };
    if checkpoint::with(is_held) == Ok(false) { by(maker, call) } else { Made::Waits }
}

fn looks_at(call: &Call, maker: Maker) -> Made {
    if call.nr == nr::PREADV2 && call.args[3] == u64::MAX {
        // From where the descriptor is.
        return moves(call, maker);
    }
    let known = descriptor_table::known(call.fd(0)).filter(|known| known.is_stored);
    let Some(Known { kind, .. }) = known else { return Made::Waits };
    if checkpoint::with(|process| holds(process, kind)) == Ok(false) {
        by(maker, call)
    } else {
        Made::Waits
    }
}

fn moves(call: &Call, maker: Maker) -> Made {
    let fd = call.fd(0);
    if !descriptor_table::is(fd) {
        // Where a device or file is that others have, too: that does not move it.
        let asks = call.nr == nr::LSEEK && call.args[1] == 0 && call.args[2] as u32 == k::SEEK_CUR;
        return match descriptor_table::known(fd).map(|known| known.kind) {
            Some(Kind::Stream) if asks => here(call),
            Some(Kind::File(_)) if asks => looks_at(call, maker),
            // (Which changes nothing: ESPIPE.)
            Some(Kind::Pipe(_) | Kind::Local(_)) if call.nr == nr::LSEEK => here(call),
            _ => pipe_dependencies::pipe_of(call)
                .map_or(Made::Waits, |pipe| pipe_dependencies::read(call, pipe)),
        };
    }
    let is_at_once = |known: &Known| known.is_stored || known.kind == Kind::Directory;
    let Some(known) = descriptor_table::known(fd).filter(is_at_once) else { return Made::Waits };
    let is_noted = checkpoint::with(|process| {
        let is_held = holds_files(process) && holds(process, known.kind);
        !is_held && (!process.has_checkpoint() || process.journal.note_offset(fd))
    });
    if is_noted == Ok(true) { by(maker, call) } else { Made::Waits }
}

fn opens(call: &Call, maker: Maker) -> Made {
    /// Flags that neither change anything nor have something else opened.
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
        _ => return Made::Waits,
    };
    /// Nor of a device that takes what is written and keeps nothing.
    const HARMLESS_THERE: u32 = k::O_ACCMODE | k::O_CREAT | k::O_TRUNC | k::O_APPEND;
    let follows = flags & k::O_NOFOLLOW == 0;
    // To open an ordinary file, or nothing, has no effect on anybody.
    let (kind, device) = match output_buffer::kind_at(dir, path, follows) {
        Ok(Kind::Local(_) | Kind::Pipe(_)) | Err(sys::Errno(sys::EFAULT)) => return Made::Waits,
        Ok(Kind::Stream) => match output_buffer::quiet_device(dir, path, follows) {
            None => return Made::Waits,
            device => (Ok(Kind::Stream), device),
        },
        kind => (kind, None),
    };
    let harmless = HARMLESS | if device.is_some() { HARMLESS_THERE } else { 0 };
    if flags & !harmless != 0 {
        return Made::Waits;
    }
    // (No rollback of another thread's comes between: signals are blocked, so that this one is not stopped.)
    let may_open = |process: &mut Process| {
        let has_room = !process.has_checkpoint() || process.journal.has_room();
        !kind.is_ok_and(|kind| holds(process, kind)) && has_room
    };
    if checkpoint::with(may_open) != Ok(true) {
        return Made::Waits;
    }
    let result = maker(call);
    with(|process| {
        let is_noted = process.has_checkpoint();
        if result >= 0 {
            descriptor_table::forget(result as Fd);
            descriptor_table::set(result as Fd, device != Some(Quiet::Terminal));
        }
        if result >= 0 && is_noted {
            process.journal.note(Change::Opened(result as Fd));
        }
        Made::Answer(result)
    })
}

fn closes(call: &Call) -> Made {
    let fd = call.fd(0);
    // (It stays open until that is committed, and nobody can execute a file that is open for writing.)
    let writes = |flags: u64| flags as u32 & k::O_ACCMODE != k::O_RDONLY;
    if !descriptor_table::is(fd) || sys::fcntl(fd, k::F_GETFL, 0).is_ok_and(writes) {
        return Made::Waits;
    }
    with(|process| {
        if process.held.has(fd) || !process.journal.has_room() || !process.journal.close(fd) {
            return Made::Waits;
        }
        descriptor_table::set(fd, false);
        descriptor_table::forget(fd);
        descriptor_table::set_policy(fd, 0);
        target_prefetch::forget(fd);
        Made::Answer(0)
    })
}

fn maps(call: &Call) -> Made {
    const PAGE: u64 = 4096;
    let [at, len, _, flags, ..] = call.args;
    let whole = len.next_multiple_of(PAGE);
    let flags = flags as u32;
    let known = k::MAP_PRIVATE | k::MAP_ANONYMOUS | k::MAP_NORESERVE | k::MAP_STACK;
    with(|process| {
        if !process.journal.has_room() {
            return Made::Waits;
        }
        match call.nr {
            nr::MMAP if flags & !known == 0 && flags & k::MAP_ANONYMOUS != 0 && len > 0 => {
                let result = as_it_stands(call);
                if sys::check(result).is_ok() {
                    process.memory.dropped(result as u64, whole);
                    process.journal.note(Change::Mapped { at: result as u64, len: whole });
                }
                Made::Answer(result)
            }
            nr::MUNMAP if at.is_multiple_of(PAGE) && len > 0 && is_of_programs(at, whole) => {
                process.journal.note(Change::Unmapped { at, len: whole });
                Made::Answer(0)
            }
            nr::BRK => {
                // SAFETY: asks where it is.
                let now = unsafe { sys::raw(nr::BRK, [0; 6]) } as u64;
                if at < now {
                    // (0 asks. What is below the heap is refused.)
                    return if at == 0 { Made::Answer(now as i64) } else { Made::Waits };
                }
                let result = as_it_stands(call);
                program_break::note_end(result as u64);
                process.memory.heap_dropped(now, result as u64);
                process.journal.note(Change::Break(now));
                Made::Answer(result)
            }
            _ => Made::Waits,
        }
    })
}

/// Whether a program can have memory there, and we have none.
fn is_of_programs(at: u64, len: u64) -> bool {
    const END: u64 = (1 << 47) - 4096;
    let is_ours = || session::get().is_some_and(|session| session.owns_any(at, len));
    at.checked_add(len).is_some_and(|end| end <= END) && !is_ours()
}

fn writes(call: &Call) -> Made {
    if call.is_partly_made() {
        return Made::Waits;
    }
    let fd = call.fd(0);
    let [_, at, len, fourth, ..] = call.args;
    let mut vectors = output_buffer::NO_BUFFERS;
    let one = [[at, len]];
    let (how, buffers): (_, &[[u64; 2]]) = match call.nr {
        nr::WRITE => (How::Here, &one),
        nr::PWRITE64 => (How::At(fourth), &one),
        // (To nobody in particular.)
        nr::SENDTO if call.args[4] == 0 && fourth & !write_capacity::PLAIN == 0 => {
            (How::Message(fourth as u32), &one)
        }
        nr::WRITEV => match output_buffer::buffers_of(at, len, &mut vectors) {
            Some(buffers) => (How::Here, buffers),
            None => return Made::Waits,
        },
        _ => return Made::Waits,
    };
    let policy = descriptor_table::policy(fd);
    if policy == Policy::Block as u8 {
        return Made::Waits;
    }
    if policy == Policy::Allow as u8 {
        return allowed(call, buffers);
    }
    // Errors change nothing, and come of the call itself.
    let Some(Known { kind, takes: true, .. }) = descriptor_table::known(fd) else {
        return Made::Waits;
    };
    let to = match (kind, how) {
        (Kind::File(file), How::Here) => To::File(file),
        (Kind::File(file), How::At(at)) if i64::try_from(at).is_ok() => To::File(file),
        (Kind::Pipe(pipe), How::Here) => To::Pipe(pipe, None),
        (Kind::Local(Some(ends)), How::Here | How::Message(_)) => To::Pipe(ends.writes, None),
        (Kind::Local(None) | Kind::Stream, How::Here | How::Message(_)) => To::Other,
        _ => return Made::Waits,
    };
    let is_shown = policy != Policy::Defer as u8;
    let made = with(|process| match process.hold(fd, how, buffers, to, is_shown) {
        Ok(bytes) => Made::Answer(bytes as i64),
        Err(_) => Made::Waits,
    });
    if matches!(made, Made::Answer(_)) {
        super::program_interface::want_all();
    }
    made
}

/// What may go out at once: here, if that waits for nobody.
fn allowed(call: &Call, buffers: &[[u64; 2]]) -> Made {
    /// So many bytes are written at once where there is room for any (pipe(7)).
    const AT_ONCE: u64 = 4096;
    let is_small = buffers.iter().map(|[_, len]| *len).sum::<u64>() <= AT_ONCE;
    let is_ready = write_capacity::poll(call.fd(0), 0) == Ok(write_capacity::POLLOUT);
    if is_ready && is_small { here(call) } else { Made::Report }
}

fn wakes(call: &Call) -> Made {
    // (Without the flag others may wait there, in memory of a file that this process can only read.)
    const PRIVATE: u32 = k::FUTEX_PRIVATE_FLAG;
    match call.args[1] as u32 & !k::FUTEX_CLOCK_REALTIME ^ PRIVATE {
        k::FUTEX_WAKE | k::FUTEX_WAKE_BITSET => here(call),
        // For another thread, which goes on, too.
        k::FUTEX_WAIT | k::FUTEX_WAIT_BITSET => Made::Report,
        _ => Made::Waits,
    }
}

fn commands(call: &Call) -> Made {
    /// What a terminal is, and how large (ioctl_tty(2)).
    const TCGETS: u32 = 0x5401;
    const TIOCGWINSZ: u32 = 0x5413;
    const TIOCGPGRP: u32 = 0x540f;
    let command = call.args[1] as u32;
    let is_harmless = match call.nr {
        nr::FCNTL => matches!(command, k::F_GETFD | k::F_GETFL),
        _ => matches!(command, TCGETS | TIOCGWINSZ | TIOCGPGRP),
    };
    if is_harmless { here(call) } else { Made::Waits }
}

/// A call has returned: who has which descriptor.
pub fn note(call: &Call, result: i64) {
    if result < 0 {
        return;
    }
    let (fd, opened) = (call.fd(0), result as Fd);
    match call.nr {
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT | nr::DUP | nr::DUP2 | nr::DUP3 => {
            descriptor_table::forget(opened);
        }
        nr::CLOSE => descriptor_table::forget(fd),
        nr::CLOSE_RANGE => descriptor_table::forget_known(),
        // Of all descriptors of the same open file.
        nr::FCNTL if matches!(call.args[1] as u32, k::F_SETFL | k::F_ADD_SEALS) => {
            descriptor_table::forget_known();
        }
        nr::FCNTL => {
            descriptor_table::forget(fd);
            descriptor_table::forget(opened);
        }
        _ => {}
    }
    match call.nr {
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT => {
            descriptor_table::set(opened, true);
        }
        nr::CLOSE => {
            descriptor_table::set(fd, false);
            descriptor_table::set_policy(fd, 0);
        }
        nr::DUP | nr::DUP2 | nr::DUP3 if opened != fd => {
            descriptor_table::set(opened, descriptor_table::is_alone(fd));
            descriptor_table::set_policy(opened, descriptor_table::policy(fd));
        }
        nr::FCNTL if matches!(call.args[1] as u32, k::F_DUPFD | k::F_DUPFD_CLOEXEC) => {
            descriptor_table::set(opened, descriptor_table::is_alone(fd));
        }
        // Somebody was given some, or a lock goes with any close.
        nr::SENDMSG | nr::FLOCK => descriptor_table::forget_all(),
        nr::FCNTL
            if matches!(
                call.args[1] as u32,
                k::F_SETLK | k::F_SETLKW | k::F_OFD_SETLK | k::F_OFD_SETLKW
            ) =>
        {
            descriptor_table::forget_all();
        }
        _ => {}
    }
}

/// The verdict on a call that was made.
pub fn verdict(made: &Made) -> Option<ReportingVerdict> {
    match made {
        Made::Answer(result) => Some(ReportingVerdict::Answer(*result)),
        Made::Report => Some(ReportingVerdict::Report),
        Made::Waits | Made::Depends(..) => None,
    }
}
