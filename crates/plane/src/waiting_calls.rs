//! Test whether a call would wait, without making it.
//!
//! It knows the calls that programs interrupt by a signal. Of others it says that they do not wait.

use linux_raw_sys::general as k;

use crate::intercepted_call::Call;
use crate::kernel_signals;
use crate::sys::{self, copy_in, nr};

const FUTEX_COMMAND: u32 = !(k::FUTEX_PRIVATE_FLAG | k::FUTEX_CLOCK_REALTIME);
/// `MSG_DONTWAIT` of recv(2).
const DONT_WAIT: u64 = 0x40;
/// `IPC_NOWAIT` of msgrcv(2), msgsnd(2) and semop(2).
const DONT_WAIT_FOR_IPC: u64 = 0o4000;
/// Descriptors in the sets of select(2) that are looked at.
const SELECT_MAX: u64 = 1024;

/// True if the call would wait if it were made now.
pub(super) fn would_wait(call: &Call) -> bool {
    let a = call.args;
    match call.nr {
        nr::READ | nr::READV | nr::ACCEPT | nr::ACCEPT4 => waits_for(call.fd(0), k::POLLIN, 0),
        nr::RECVFROM => waits_for(call.fd(0), k::POLLIN, a[3]),
        nr::RECVMSG => waits_for(call.fd(0), k::POLLIN, a[2]),
        nr::WRITE | nr::WRITEV => waits_for(call.fd(0), k::POLLOUT, 0),
        nr::SENDTO => waits_for(call.fd(0), k::POLLOUT, a[3]),
        nr::SENDMSG => waits_for(call.fd(0), k::POLLOUT, a[2]),
        nr::PAUSE => true,
        nr::NANOSLEEP => sleeps(a[0]),
        nr::CLOCK_NANOSLEEP => a[1] as u32 & k::TIMER_ABSTIME != 0 || sleeps(a[2]),
        nr::POLL => a[2] as i32 != 0 && polls_none(a[0], a[1]),
        nr::PPOLL => a[3] == 0 && (a[2] == 0 || sleeps(a[2])) && polls_none(a[0], a[1]),
        nr::EPOLL_WAIT => a[3] as i32 != 0 && !is_ready(call.fd(0), k::POLLIN),
        nr::EPOLL_PWAIT => a[3] as i32 != 0 && a[4] == 0 && !is_ready(call.fd(0), k::POLLIN),
        nr::SELECT => (a[4] == 0 || sleeps(a[4])) && selects_none(call),
        nr::PSELECT6 => has_no_mask(a[5]) && (a[4] == 0 || sleeps(a[4])) && selects_none(call),
        nr::WAIT4 | nr::WAITID => waits_for_children(call),
        nr::FUTEX => {
            let waits = [k::FUTEX_WAIT, k::FUTEX_WAIT_BITSET];
            waits.contains(&(a[1] as u32 & FUTEX_COMMAND)) && copy_in(a[0]) == Ok(a[2] as u32)
        }
        nr::FCNTL if a[1] as u32 == k::F_SETLKW => is_locked(call),
        nr::RT_SIGTIMEDWAIT => {
            (a[2] == 0 || sleeps(a[2]))
                && copy_in::<u64>(a[0]).is_ok_and(|set| set & kernel_signals::waiting() == 0)
        }
        nr::MSGRCV => a[4] & DONT_WAIT_FOR_IPC == 0 && is_empty_queue(a[0]),
        nr::MSGSND => a[3] & DONT_WAIT_FOR_IPC == 0 && is_full_queue(a[0], a[2]),
        nr::SEMOP => waits_for_semaphores(a[0], a[1], a[2]),
        nr::SEMTIMEDOP => (a[3] == 0 || sleeps(a[3])) && waits_for_semaphores(a[0], a[1], a[2]),
        _ => false,
    }
}

/// True if the last argument of pselect6(2) has no mask.
fn has_no_mask(at: u64) -> bool {
    at == 0 || copy_in::<[u64; 2]>(at).is_ok_and(|[mask, _]| mask == 0)
}

/// True if the time at `at` is not 0. (Of a timeval and of a timespec.)
fn sleeps(at: u64) -> bool {
    copy_in::<[u64; 2]>(at).is_ok_and(|time| time != [0, 0])
}

/// poll(2) without a wait. Returns the number of descriptors that are ready, or an error.
fn poll(at: u64, count: u64) -> i64 {
    // SAFETY: asks for what the program, or a caller here, has at that address.
    unsafe { sys::raw(nr::POLL, [at, count, 0, 0, 0, 0]) }
}

fn is_ready(fd: sys::Fd, events: u32) -> bool {
    let mut request = k::pollfd { fd, events: events as i16, revents: 0 };
    poll(&raw mut request as u64, 1) != 0
}

/// True if nothing that the program polls is ready. The kernel writes what it would write.
fn polls_none(at: u64, count: u64) -> bool {
    poll(at, count) == 0
}

fn waits_for(fd: sys::Fd, events: u32, flags: u64) -> bool {
    let is_blocking = || sys::status_flags(fd).is_ok_and(|set| set as u32 & k::O_NONBLOCK == 0);
    flags & DONT_WAIT == 0 && !is_ready(fd, events) && is_blocking()
}

fn selects_none(call: &Call) -> bool {
    const WORDS: usize = SELECT_MAX as usize / 64;
    let [count, sets @ ..] = call.args;
    if count > SELECT_MAX {
        return false;
    }
    let words = count.div_ceil(64) as usize;
    let mut copies = [[0u64; WORDS]; 3];
    let mut args = [count, 0, 0, 0, 0, 0];
    for ((copy, arg), at) in copies.iter_mut().zip(&mut args[1..4]).zip(sets) {
        if at == 0 {
            continue;
        }
        for (n, word) in copy[..words].iter_mut().enumerate() {
            match copy_in(at + 8 * n as u64) {
                Ok(set) => *word = set,
                Err(_) => return false,
            }
        }
        *arg = copy.as_mut_ptr() as u64;
    }
    let now = [0u64; 2];
    args[4] = now.as_ptr() as u64;
    // SAFETY: copies of the sets, of as many descriptors as the call has, and a timeval of 0.
    unsafe { sys::raw(nr::SELECT, args) == 0 }
}

fn waits_for_children(call: &Call) -> bool {
    const P_ALL: u64 = 0;
    const P_PID: u64 = 1;
    const P_PGID: u64 = 2;
    let a = call.args;
    let [which, id, options] = match (call.nr, a[0] as i32) {
        (nr::WAITID, _) => [a[0], a[1], a[3]],
        (_, pid @ 1..) => [P_PID, pid as u64, a[2] | u64::from(k::WEXITED)],
        (_, -1) => [P_ALL, 0, a[2] | u64::from(k::WEXITED)],
        (_, group) => [P_PGID, group.unsigned_abs().into(), a[2] | u64::from(k::WEXITED)],
    };
    if options as u32 & k::WNOHANG != 0 {
        return false;
    }
    let options = options | u64::from(k::WNOHANG | k::WNOWAIT);
    let mut info = [0u64; 16];
    // SAFETY: writes a siginfo_t of 128 bytes; the child stays to be collected.
    let looked =
        unsafe { sys::raw(nr::WAITID, [which, id, info.as_mut_ptr() as u64, options, 0, 0]) };
    // A child that has ended would have its signal's number here.
    looked == 0 && info[0] as u32 == 0
}

/// True if another process has a lock in the way (fcntl(2)).
fn is_locked(call: &Call) -> bool {
    /// `struct flock`: the type, which is a half word, comes first.
    type Lock = [u64; 4];
    let Ok(mut lock) = copy_in::<Lock>(call.args[2]) else { return false };
    let args = [call.args[0], k::F_GETLK.into(), lock.as_mut_ptr() as u64, 0, 0, 0];
    // SAFETY: reads and writes a struct flock of 32 bytes.
    unsafe { sys::raw(nr::FCNTL, args) == 0 && lock[0] as u16 as u32 != k::F_UNLCK }
}

/// Bytes and messages in a queue of messages, and the limit of both (msgctl(2)).
fn message_queue(queue: u64) -> Option<[u64; 3]> {
    const IPC_STAT: u64 = 2;
    /// Words of `struct msqid64_ds`, and those before the three.
    const WORDS: usize = 15;
    const BEFORE: usize = 9;
    let mut told = [0u64; WORDS];
    let args = [queue, IPC_STAT, told.as_mut_ptr() as u64, 0, 0, 0];
    // SAFETY: writes a struct msqid64_ds of 120 bytes.
    let asked = unsafe { sys::raw(nr::MSGCTL, args) };
    (asked == 0).then(|| [told[BEFORE], told[BEFORE + 1], told[BEFORE + 2]])
}

/// True if the queue has no message. (Of a queue with messages it is not known whether one is of
/// the type that is asked for.)
fn is_empty_queue(queue: u64) -> bool {
    matches!(message_queue(queue), Some([_, 0, _]))
}

/// True if the queue has no room for a message of `len` bytes.
fn is_full_queue(queue: u64, len: u64) -> bool {
    message_queue(queue)
        .is_some_and(|[bytes, messages, most]| bytes.saturating_add(len) > most || messages >= most)
}

/// True if the first of `count` operations at `at` that cannot be done is one that waits.
fn waits_for_semaphores(set: u64, at: u64, count: u64) -> bool {
    const OPERATIONS_MAX: usize = 16;
    const GETVAL: u64 = 12;
    /// `struct sembuf`: number, operation and flags.
    type Operation = [u8; 6];
    let (mut done, count) = ([(0u64, 0i64); OPERATIONS_MAX], count as usize);
    if count > OPERATIONS_MAX {
        return false;
    }
    for n in 0..count {
        let Ok(bytes) = copy_in::<Operation>(at + (n * size_of::<Operation>()) as u64) else {
            return false;
        };
        let [number, change, flags] =
            [0, 2, 4].map(|byte| i16::from_le_bytes([bytes[byte], bytes[byte + 1]]));
        let number = u64::from(number as u16);
        // SAFETY: returns a number, and writes nothing.
        let value = unsafe { sys::raw(nr::SEMCTL, [set, number, GETVAL, 0, 0, 0]) };
        if value < 0 {
            return false;
        }
        let before = done[..n].iter().filter(|(other, _)| *other == number);
        let value = value + before.map(|(_, change)| change).sum::<i64>();
        if change == 0 && value != 0 || value + i64::from(change) < 0 {
            return flags as u64 & DONT_WAIT_FOR_IPC == 0;
        }
        done[n] = (number, change.into());
    }
    false
}
