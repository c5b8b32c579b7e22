//! The system call of both interfaces: `fadvise64(magic, what, a, b, c, 0)`.
//!
//! No descriptor is negative, so the kernel answers EBADF before it looks at the other arguments,
//! and usual filters of system calls let advice on files pass. Under runahead the agent gets the
//! program's calls before the kernel does, and knows the magic numbers. `errno` stays as it is: it
//! belongs to the C library, which is not used.
#![allow(unsafe_code)]

/// Number of `fadvise64` on x86-64.
const FADVISE64: u64 = 221;

/// Makes the call; returns its result, a negative errno if it was refused.
///
/// # Safety
/// Under runahead memory is read and written as the protocol of `magic` says.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub(crate) unsafe fn make(magic: i32, what: u64, [a, b, c]: [u64; 3]) -> i64 {
    let result: i64;
    // SAFETY: the kernel refuses advice on a negative descriptor before it looks at the other
    // arguments; the caller answers for what runahead does.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") FADVISE64 as i64 => result,
            in("rdi") i64::from(magic),
            in("rsi") what,
            in("rdx") a,
            in("r10") b,
            in("r8") c,
            in("r9") 0,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Returns EBADF: there is no agent on this system.
///
/// # Safety
/// None is needed.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
pub(crate) unsafe fn make(_: i32, _: u64, _: [u64; 3]) -> i64 {
    const EBADF: i64 = 9;
    -EBADF
}

#[cfg(test)]
mod tests {
    use crate::{disclosure, prediction};

    /// AT_FDCWD and the range that Linux keeps for its own descriptors (fcntl.h) are far above.
    #[test]
    fn the_magic_numbers_are_no_descriptors_of_the_kernel() {
        const { assert!(disclosure::protocol::MAGIC < -40_000) };
        const { assert!(prediction::protocol::MAGIC < -40_000) };
    }
}
