//! Which calls a process may make while it speculates: the table to hold against the kernel's list (syscalls(2)).
//!
//! A call that is not named here waits until nothing is open any more (Nightingale 2005, section 5.3), which is always right.

use runahead_speculation::{Id, Pipe};

use crate::sys::nr;

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It tells the process something that no file holds, and changes nothing: made at once.
    Asks,
    /// It tells what file systems hold: made at once, unless it is about a file for which output is held.
    Looks,
    /// As [`Class::Looks`], about a descriptor that is its first argument, which is a file or directory.
    LooksAt,
    /// As [`Class::LooksAt`], and moves the descriptor's offset: made at once where this process alone has it, and the offset
    /// is put back.
    Moves,
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
            Class::Asks
        }
        nr::GETUID | nr::GETEUID | nr::GETGID | nr::GETEGID | nr::GETGROUPS => Class::Asks,
        nr::GETRESUID | nr::GETRESGID | nr::CAPGET => Class::Asks,
        nr::UNAME | nr::SYSINFO | nr::TIMES | nr::GETRUSAGE | nr::GETRLIMIT => Class::Asks,
        nr::CLOCK_GETTIME | nr::CLOCK_GETRES | nr::GETTIMEOFDAY | nr::TIME => Class::Asks,
        nr::SCHED_GETAFFINITY | nr::SCHED_YIELD | nr::GETCPU | nr::GETRANDOM => Class::Asks,
        nr::MINCORE => Class::Asks,

        nr::STAT | nr::LSTAT | nr::NEWFSTATAT | nr::STATX | nr::STATFS => Class::Looks,
        nr::ACCESS | nr::FACCESSAT | nr::FACCESSAT2 => Class::Looks,
        nr::READLINK | nr::READLINKAT | nr::GETCWD => Class::Looks,
        nr::GETXATTR | nr::LGETXATTR | nr::LISTXATTR | nr::LLISTXATTR => Class::Looks,
        // (Of any descriptor: what these tell of a pipe or terminal changes nothing there.)
        nr::GETPEERNAME => Class::Looks,
        nr::FSTAT | nr::FSTATFS | nr::FGETXATTR | nr::FLISTXATTR => Class::Looks,

        nr::PREAD64 | nr::PREADV | nr::PREADV2 | nr::READAHEAD | nr::FADVISE64 => Class::LooksAt,
        nr::READ | nr::READV | nr::LSEEK | nr::GETDENTS | nr::GETDENTS64 => Class::Moves,
        // (From a local socket, as from a pipe.)
        nr::RECVFROM => Class::Moves,

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
pub enum Made {
    /// It is answered with this.
    Answer(i64),
    /// The program makes it, as it stands.
    Report,
    /// It reads from this pipe what depends on that, and the process has to as well: a checkpoint, and the call again.
    Depends(Pipe, Id),
    /// It waits until nothing is open.
    Waits,
}
