//! Which calls a process may make while it speculates: the table to hold against the kernel's list (syscalls(2)).
//!
//! A call that is not named here waits until nothing is open any more (Nightingale 2005, section 5.3), which is always right.

use runahead_speculation::{Id, Pipe};

use crate::sys::nr;

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It tells the process something that no file holds, and changes nothing: made at once.
    Queries,
    /// It tells what file systems hold: made at once, unless it is about a file for which output is held.
    ReadsMetadata,
    /// As [`Class::Looks`], about a descriptor that is its first argument, which is a file or directory.
    ReadsAtOffset,
    /// As [`Class::LooksAt`], and moves the descriptor's offset: made at once where this process alone has it, and the offset
    /// is put back.
    MovesOffset,
    /// Opens a file: made at once if it only reads an ordinary file or directory.
    Opens,
    /// Closes a descriptor: made at once if it is one of a file or directory that this process alone has.
    Closes,
    /// Gets or gives up memory: got at once if it is private and anonymous, given up when that is committed.
    Maps,
    /// Writes to its first argument: held, or what the program has said of that descriptor.
    Writes,
    /// Wakes threads that wait in memory of this process, or waits for one: made. Its other commands wait for the outcome.
    Wakes,
    /// Asks of its first argument what this command asks, and changes nothing; other commands wait.
    Commands,
    /// Waits until nothing is open.
    Waits,
}

/// What becomes of call number `nr`.
pub fn class(nr: u64) -> Class {
    match nr {
        nr::GETPID | nr::GETTID | nr::GETPPID | nr::GETPGRP | nr::GETPGID | nr::GETSID => {
            Class::Queries
        }
        nr::GETUID | nr::GETEUID | nr::GETGID | nr::GETEGID | nr::GETGROUPS => Class::Queries,
        nr::GETRESUID | nr::GETRESGID | nr::CAPGET => Class::Queries,
        nr::UNAME | nr::SYSINFO | nr::TIMES | nr::GETRUSAGE | nr::GETRLIMIT => Class::Queries,
        nr::CLOCK_GETTIME | nr::CLOCK_GETRES | nr::GETTIMEOFDAY | nr::TIME => Class::Queries,
        nr::SCHED_GETAFFINITY | nr::SCHED_YIELD | nr::GETCPU | nr::GETRANDOM => Class::Queries,
        nr::MINCORE => Class::Queries,

        nr::STAT | nr::LSTAT | nr::NEWFSTATAT | nr::STATX | nr::STATFS => Class::ReadsMetadata,
        nr::ACCESS | nr::FACCESSAT | nr::FACCESSAT2 => Class::ReadsMetadata,
        nr::READLINK | nr::READLINKAT | nr::GETCWD => Class::ReadsMetadata,
        nr::GETXATTR | nr::LGETXATTR | nr::LISTXATTR | nr::LLISTXATTR => Class::ReadsMetadata,
        // (Of any descriptor: what these tell of a pipe or terminal changes nothing there.)
        nr::GETPEERNAME => Class::ReadsMetadata,
        nr::FSTAT | nr::FSTATFS | nr::FGETXATTR | nr::FLISTXATTR => Class::ReadsMetadata,

        nr::PREAD64 | nr::PREADV | nr::PREADV2 | nr::READAHEAD | nr::FADVISE64 => {
            Class::ReadsAtOffset
        }
        nr::READ | nr::READV | nr::LSEEK | nr::GETDENTS | nr::GETDENTS64 => Class::MovesOffset,
        // (From a local socket, as from a pipe.)
        nr::RECVFROM => Class::MovesOffset,

        nr::OPEN | nr::OPENAT | nr::OPENAT2 => Class::Opens,
        nr::CLOSE => Class::Closes,
        nr::MMAP | nr::MUNMAP | nr::BRK => Class::Maps,
        nr::WRITE | nr::WRITEV | nr::PWRITE64 | nr::SENDTO => Class::Writes,
        nr::FUTEX => Class::Wakes,
        nr::FCNTL | nr::IOCTL => Class::Commands,
        _ => Class::Waits,
    }
}

/// What has become of a call of a speculative process.
pub enum CallOutcome {
    /// It is answered with this.
    Answer(i64),
    /// The program makes it, as it stands.
    Report,
    /// It reads from this pipe what depends on that, and the process has to as well: a checkpoint, and the call again.
    Depends(Pipe, Id),
    /// It waits until nothing is open.
    Waits,
}
