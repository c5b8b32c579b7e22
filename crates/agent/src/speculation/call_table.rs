//! Calls that a process may make while it speculates: the table to compare with the kernel's list
//! (syscalls(2)).
//!
//! A call that is not named here waits until no speculation is open, which is always correct
//! (Nightingale 2005, section 5.3).

use runahead_speculation::{Id, Pipe};

use crate::sys::nr;

/// Class of a call: the condition under which a speculative process may make it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Returns something that no file holds, and changes nothing. Made at once.
    Queries,
    /// Returns what file systems hold. Made at once, unless it is about a file with held output.
    ReadsMetadata,
    /// Like [`Class::ReadsMetadata`], for a descriptor of a file or directory in its first
    /// argument.
    ReadsAtOffset,
    /// Like [`Class::ReadsAtOffset`], and moves the descriptor's offset. Made at once if the
    /// descriptor is private to this process; a rollback restores the offset.
    MovesOffset,
    /// Opens a file. Made at once if it only reads an ordinary file or directory.
    Opens,
    /// Closes a descriptor. Made at once for a file or directory that is private to this process.
    Closes,
    /// Maps or unmaps memory. Private anonymous memory is mapped at once; memory is unmapped at
    /// commit.
    Maps,
    /// Writes to its first argument. The output is held, or handled as the program's policy for
    /// that descriptor says.
    Writes,
    /// Wakes threads that wait in memory of this process, or waits for one. Made at once; other
    /// futex commands wait for the outcome.
    Wakes,
    /// Queries its first argument without a change. Other commands of these calls wait.
    Commands,
    /// Waits until no speculation is open.
    Waits,
}

/// Returns the class of call number `nr`.
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
        // For any descriptor: the query changes nothing in a pipe or terminal.
        nr::GETPEERNAME => Class::ReadsMetadata,
        nr::FSTAT | nr::FSTATFS | nr::FGETXATTR | nr::FLISTXATTR => Class::ReadsMetadata,

        nr::PREAD64 | nr::PREADV | nr::PREADV2 | nr::READAHEAD | nr::FADVISE64 => {
            Class::ReadsAtOffset
        }
        nr::READ | nr::READV | nr::LSEEK | nr::GETDENTS | nr::GETDENTS64 => Class::MovesOffset,
        // From a local socket, as from a pipe.
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

/// Outcome of a call of a speculative process.
pub enum CallOutcome {
    /// The call is answered with this result.
    Answer(i64),
    /// The program makes the call itself.
    Report,
    /// The call reads data from this pipe that depends on this speculation. The process takes a
    /// checkpoint that depends on it too, and makes the call again.
    Depends(Pipe, Id),
    /// The call waits until no speculation is open.
    Waits,
}
