//! Program buffers that calls fill which need not wait ([`super::call_table`]). The kernel cannot
//! write to protected memory ([`super::write_faults`]), so the buffers are opened before the call.

use super::output_buffer;
use super::write_faults::{self, will_write};
use crate::plane::Call;
use crate::sys::{self, nr};

/// Opens the buffers that `call` may fill. Returns false if they cannot be opened or are unknown;
/// then the call waits.
pub fn make_writable(call: &Call) -> bool {
    !write_faults::is_protecting() || make_buffers_writable(call.nr, call.args)
}

fn make_buffers_writable(number: u64, args: [u64; 6]) -> bool {
    let fixed = |n: usize, bytes: u64| args[n] == 0 || will_write(args[n], bytes);
    let buffer = |n: usize| will_write(args[n], args[n + 1]);
    match number {
        nr::GETPID | nr::GETTID | nr::GETPPID | nr::GETPGRP | nr::GETPGID | nr::GETSID => true,
        nr::GETUID | nr::GETEUID | nr::GETGID | nr::GETEGID | nr::SCHED_YIELD => true,
        nr::GETGROUPS => will_write(args[1], args[0].saturating_mul(4)),
        nr::GETRESUID | nr::GETRESGID => fixed(0, 4) && fixed(1, 4) && fixed(2, 4),
        nr::CAPGET => fixed(0, 8) && fixed(1, 24),
        nr::UNAME => fixed(0, 390),
        nr::SYSINFO => fixed(0, 112),
        nr::TIMES => fixed(0, 32),
        nr::GETRUSAGE => fixed(1, 144),
        nr::GETRLIMIT | nr::CLOCK_GETTIME | nr::CLOCK_GETRES => fixed(1, 16),
        nr::GETTIMEOFDAY => fixed(0, 16) && fixed(1, 8),
        nr::TIME => fixed(0, 8),
        nr::SCHED_GETAFFINITY => will_write(args[2], args[1] as u32 as u64),
        nr::GETCPU => fixed(0, 4) && fixed(1, 4),
        nr::GETRANDOM | nr::GETCWD => buffer(0),
        nr::MINCORE => will_write(args[2], args[1].div_ceil(sys::PAGE)),

        nr::STAT | nr::LSTAT | nr::FSTAT => fixed(1, 144),
        nr::NEWFSTATAT => fixed(2, 144),
        nr::STATX => fixed(4, 256),
        nr::STATFS | nr::FSTATFS => fixed(1, 120),
        nr::ACCESS | nr::FACCESSAT | nr::FACCESSAT2 => true,
        nr::READLINK | nr::LISTXATTR | nr::LLISTXATTR | nr::FLISTXATTR => buffer(1),
        nr::READLINKAT | nr::GETXATTR | nr::LGETXATTR | nr::FGETXATTR => buffer(2),

        nr::GETPEERNAME => {
            let len = sys::copy_in::<u32>(args[2]);
            len.is_ok_and(|len| will_write(args[1], len.into())) && fixed(2, 4)
        }

        nr::READ | nr::PREAD64 => buffer(1),
        // Only without a buffer for the sender's address.
        nr::RECVFROM => args[4] == 0 && buffer(1),
        nr::GETDENTS | nr::GETDENTS64 => will_write(args[1], args[2] as u32 as u64),
        nr::READV | nr::PREADV | nr::PREADV2 => {
            let mut vectors = output_buffer::NO_BUFFERS;
            let buffers = output_buffer::buffers_of(args[1], args[2], &mut vectors);
            buffers.is_some_and(|all| all.iter().all(|buffer| will_write(buffer.base, buffer.len)))
        }
        nr::LSEEK | nr::READAHEAD | nr::FADVISE64 => true,

        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CLOSE => true,
        nr::MMAP | nr::MUNMAP | nr::BRK => true,
        nr::WRITE | nr::WRITEV | nr::PWRITE64 | nr::SENDTO | nr::FUTEX | nr::FCNTL => true,
        // Size of `struct termios`, the largest of the commands that are made.
        nr::IOCTL => fixed(2, 64),
        _ => false,
    }
}

/// Writes `bytes` to the program's memory. EFAULT: it cannot be written. EAGAIN: not before all
/// speculations are settled.
pub fn write(at: u64, bytes: &[u8]) -> sys::Result<()> {
    if !will_write(at, bytes.len() as u64) {
        return Err(sys::Errno(sys::EAGAIN));
    }
    // SAFETY: the program asked for these bytes there; a bad address is an error.
    unsafe { sys::copy_out(bytes, at) }
}

#[cfg(test)]
mod tests {
    use super::super::call_table::{Class, class};
    use super::*;

    /// Calls that need not wait have known buffers. Otherwise they would wait where memory is
    /// protected.
    #[test]
    fn buffers_of_calls_that_need_not_wait_are_known() {
        let buffer = [0u64; 64];
        let at = buffer.as_ptr() as u64;
        for number in (0..500).filter(|number| class(*number) != Class::Waits) {
            let third = if number == nr::GETPEERNAME { at } else { 1 };
            assert!(make_buffers_writable(number, [1, at, third, 0, 0, 0]), "{number}");
        }
    }
}
