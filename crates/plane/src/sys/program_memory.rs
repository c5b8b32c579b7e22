//! Reads and writes of program memory that may be unmapped: by calls, so that the kernel answers
//! EFAULT and no thread faults.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::{
    EAGAIN, EFAULT, EINTR, EINVAL, ENAMETOOLONG, ENOSYS, EPERM, ESRCH, Errno, Result, check, nr,
};
use crate::arch::syscall;
use crate::sys::{self, PAGE};

/// Address at which the PID of the process is kept, which the kernel clears in a forked child;
/// null: it is not kept.
static PROCESS_AT: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Keeps the PID of this process at an address, for reads of its memory.
///
/// # Safety
/// A page of zeroes, which stays mapped, and which is cleared in children (`MADV_WIPEONFORK`).
pub unsafe fn remember_process(at: u64) {
    PROCESS_AT.store(at as *mut AtomicU32, Relaxed);
}

/// A buffer: `struct iovec` (readv(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IoVec {
    /// Address.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
}

impl IoVec {
    fn of_mut(bytes: &mut [u8]) -> Self {
        IoVec { base: bytes.as_mut_ptr() as u64, len: bytes.len() as u64 }
    }
}

/// True if the process has, or has had, more than one thread.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

/// True if the process has, or has had, more than one thread.
pub fn has_threads() -> bool {
    HAS_THREADS.load(Relaxed)
}

/// Notes that the process is about to have a second thread, or that it is a forked child, which has
/// one. Returns what was noted before.
pub(crate) fn note_threads(has: bool) -> bool {
    HAS_THREADS.swap(has, Relaxed)
}

/// Reads as process_vm_readv(2) of this process does: into one place, from several.
fn read_program(local: &IoVec, remote: &[IoVec]) -> Result<u64> {
    if !has_threads()
        && let Some(read) = read_alone(local.base, remote)
    {
        return read;
    }
    if IS_REFUSED.load(Relaxed) {
        return read_what_is_there(local.base, remote);
    }
    // SAFETY: null, or an atomic that stays.
    let known = unsafe { PROCESS_AT.load(Relaxed).as_ref() };
    let (to, from, count) = (core::ptr::from_ref(local), remote.as_ptr(), remote.len());
    let read = |process: u32| call!(nr::PROCESS_VM_READV, process, to, 1, from, count, 0);
    // By the calling thread: a process whose first thread has ended has no memory by its PID. A TID
    // is not kept as the PID is: once its thread has ended, another process may have it.
    let of_this_process = || match read(sys::gettid()) {
        Err(error) if is_refusal(error) => read_what_is_there(local.base, remote),
        read => read,
    };
    let Some(known) = known else { return of_this_process() };
    if known.load(Relaxed) == 0 {
        known.store(sys::getpid(), Relaxed);
    }
    match read(known.load(Relaxed)) {
        // A vfork child has its parent's number there, and the parent's memory; but it may be that
        // it may not read that by this name. ESRCH: the first thread has ended.
        Err(Errno(EPERM | ESRCH | ENOSYS)) => of_this_process(),
        read => read,
    }
}

/// Most pieces, and longest piece in bytes, that [`read_alone`] copies.
const ALONE_PIECES: usize = 4;
const ALONE_MAX: u64 = 4 * PAGE;

/// Copies as process_vm_readv(2) does, in a third of the time for short pieces, where no other
/// thread can unmap memory meanwhile. `None`: the kernel does not tell what can be read, or one
/// call is faster.
fn read_alone(mut to: u64, remote: &[IoVec]) -> Option<Result<u64>> {
    if remote.len() > ALONE_PIECES {
        return None;
    }
    let mut copied = 0;
    for &IoVec { base: from, len } in remote {
        if len > ALONE_MAX {
            return None;
        }
        let Some(end) = from.checked_add(len) else { return Some(Err(Errno(EFAULT))) };
        let first = from & !(PAGE - 1);
        let mut pages = (first..end).step_by(PAGE as usize).map(|page| is_readable(page.max(from)));
        match pages.find(|readable| *readable != Some(true)) {
            None => {}
            Some(None) => return None,
            Some(_) if copied == 0 => return Some(Err(Errno(EFAULT))),
            Some(_) => break,
        }
        // SAFETY: all pages can be read, and stay so; `to` has room for all pieces.
        unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) };
        to += len;
        copied += len;
    }
    Some(Ok(copied))
}

/// True if the page of an address can be read; `None` if the kernel does not tell.
///
/// rt_sigprocmask(2) reads the mask before it refuses an operation that it does not know. It is the
/// cheapest call that reads memory and does nothing.
fn is_readable(at: u64) -> Option<bool> {
    const UNKNOWN: u64 = u64::MAX;
    const MASK_BYTES: u64 = 8;
    match call!(nr::RT_SIGPROCMASK, UNKNOWN, at & !(MASK_BYTES - 1), 0, MASK_BYTES) {
        Err(Errno(EINVAL)) => Some(true),
        Err(Errno(EFAULT)) => Some(false),
        _ => None,
    }
}

/// The kernel lets a process read its own memory, but a filter may not. (Docker before 23 refuses
/// both calls.)
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// From here on it is done without these calls, if `error` says that a filter refuses them and the
/// kernel has what that takes.
fn is_refusal(error: Errno) -> bool {
    let refuses = matches!(error, Errno(EPERM | ENOSYS))
        && is_there(&raw const IS_REFUSED as u64, 1, k::MADV_POPULATE_READ);
    if refuses {
        IS_REFUSED.store(true, Relaxed);
    }
    refuses
}

/// True if the program could read or write (`advice`) all of these bytes just now; they are in
/// memory then (madvise(2), since 5.14).
fn is_there(at: u64, len: u64, advice: u32) -> bool {
    let first = at & !(PAGE - 1);
    let Some(bytes) = at
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(PAGE))
        .map(|end| end - first)
    else {
        return false;
    };
    loop {
        // SAFETY: changes nothing that the program has there.
        match unsafe { sys::advise(first, bytes, advice) } {
            Err(Errno(EINTR | EAGAIN)) => {}
            result => return result.is_ok(),
        }
    }
}

/// Copies as the kernel would, where a filter refuses the call. A program that unmaps memory while
/// a call has it for an argument ends by a fault here, where the kernel might answer EFAULT.
fn read_what_is_there(mut to: u64, remote: &[IoVec]) -> Result<u64> {
    let mut copied = 0;
    for &IoVec { base: from, len } in remote {
        if !is_there(from, len, k::MADV_POPULATE_READ) {
            break;
        }
        // SAFETY: it was there just now; `to` has room for all pieces.
        unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) };
        to += len;
        copied += len;
    }
    if copied == 0 { Err(Errno(EFAULT)) } else { Ok(copied) }
}

/// Marks types for which every pattern of bits is a value, so that the kernel may fill them in.
///
/// # Safety
/// Every sequence of `size_of::<Self>()` bytes is a valid value: no references, `bool`, `char` or
/// enums inside.
pub unsafe trait PlainData: Copy {}

macro_rules! plain_data {
    ($($type:ty),*) => { $(
        // SAFETY: an integer, or a struct of the kernel with integers only.
        unsafe impl PlainData for $type {}
    )* };
}

plain_data!(u8, u16, u32, u64, i32, i64, IoVec, k::open_how, k::stat, k::statx);

// SAFETY: an array's bytes are those of its elements, without padding between them.
unsafe impl<T: PlainData, const N: usize> PlainData for [T; N] {}

/// Reads a value from the program's memory. The kernel copies it, so that an unmapped address is
/// EFAULT.
pub fn copy_in<T: PlainData>(from: u64) -> Result<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    let len = size_of::<T>() as u64;
    let local = IoVec { base: value.as_mut_ptr() as u64, len };
    let remote = [IoVec { base: from, len }];
    match read_program(&local, &remote)? {
        // SAFETY: the kernel has copied all of it, and every pattern of bits is a value of T.
        copied if copied == len => Ok(unsafe { value.assume_init() }),
        _ => Err(Errno(EFAULT)),
    }
}

/// Copies our bytes to an address of the program that may be unmapped: the kernel does it.
///
/// # Safety
/// No code depends on what is replaced.
pub unsafe fn copy_out(from: &[u8], to: u64) -> Result<()> {
    let (base, len) = (from.as_ptr() as u64, from.len() as u64);
    // SAFETY: bytes that are there; passed on to the caller.
    unsafe { scatter(&[IoVec { base, len }], &[IoVec { base: to, len }]) }
}

/// Copies pieces of our memory to addresses of the program that may be unmapped, like [`copy_out`].
///
/// # Safety
/// The source is mapped, and no code depends on what is replaced.
pub unsafe fn scatter<const N: usize>(from: &[IoVec; N], to: &[IoVec; N]) -> Result<()> {
    let all: u64 = from.iter().map(|piece| piece.len).sum();
    let refused = IS_REFUSED.load(Relaxed);
    let written = if refused {
        Err(Errno(EPERM))
    } else {
        call!(nr::PROCESS_VM_WRITEV, sys::gettid(), from.as_ptr(), N, to.as_ptr(), N, 0)
    };
    match written {
        Ok(copied) if copied == all => Ok(()),
        Err(error) if refused || is_refusal(error) => {
            from.iter().zip(to).try_for_each(|(from, to)| {
                if from.len != to.len || !is_there(to.base, to.len, k::MADV_POPULATE_WRITE) {
                    return Err(Errno(EFAULT));
                }
                // SAFETY: it was mapped just now; no code depends on it, as promised.
                unsafe {
                    let (source, place) = (from.base as *const u8, to.base as *mut u8);
                    core::ptr::copy_nonoverlapping(source, place, from.len as usize)
                };
                Ok(())
            })
        }
        _ => Err(Errno(EFAULT)),
    }
}

/// Copies as many bytes as `to` has from the program's memory; EFAULT if they are not all there.
pub fn copy_bytes(from: u64, to: &mut [u8]) -> Result<()> {
    let remote = [IoVec { base: from, len: to.len() as u64 }];
    match read_program(&IoVec::of_mut(to), &remote)? {
        copied if copied == to.len() as u64 => Ok(()),
        _ => Err(Errno(EFAULT)),
    }
}

/// Copies a string from the program's memory: its length without the NUL at its end, which is less
/// than `to` has room for. No page behind the one that holds the NUL is touched.
pub fn copy_string(from: u64, to: &mut [u8]) -> Result<usize> {
    /// A divisor of a page. Most strings are shorter.
    const PART: u64 = 256;
    let mut len = 0;
    while len < to.len() {
        let at = from.checked_add(len as u64).ok_or(Errno(EFAULT))?;
        let part = (PART - at % PART).min((to.len() - len) as u64);
        let local = IoVec::of_mut(&mut to[len..][..part as usize]);
        let copied = read_program(&local, &[IoVec { base: at, len: part }])?;
        if copied != part {
            return Err(Errno(EFAULT));
        }
        let end = len + part as usize;
        if let Some(nul) = to[len..end].iter().position(|&byte| byte == 0) {
            return Ok(len + nul);
        }
        len = end;
    }
    Err(Errno(ENAMETOOLONG))
}

/// Most places that [`gather`] reads from at once.
pub const GATHER_MAX: usize = 32;

/// Copies `N` bytes from each of several places in the program's memory; how many could be read
/// before one could not.
pub fn gather<const N: usize>(from: &[u64], to: &mut [[u8; N]]) -> usize {
    let count = from.len().min(to.len()).min(GATHER_MAX);
    let mut remote = [IoVec { base: 0, len: N as u64 }; GATHER_MAX];
    for (part, at) in remote.iter_mut().zip(from) {
        part.base = *at;
    }
    let local = IoVec::of_mut(to[..count].as_flattened_mut());
    let copied = read_program(&local, &remote[..count]);
    copied.map_or(0, |bytes| bytes as usize / N)
}
