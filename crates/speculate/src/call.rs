//! The one system call. `errno` is not touched: it is the C library's, which is not used.
#![allow(unsafe_code)]

/// What it was answered with.
///
/// # Safety
/// Under runahead memory is read and written as [`crate::protocol`] says.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub(crate) unsafe fn make(what: u64, [a, b, c]: [u64; 3]) -> i64 {
    use crate::protocol::{CALL, MAGIC};
    let result: i64;
    // SAFETY: the kernel refuses advice on a negative descriptor before it looks at the other arguments; what runahead does is the
    // caller's to answer for.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") CALL as i64 => result,
            in("rdi") i64::from(MAGIC),
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

/// Nobody listens.
///
/// # Safety
/// None is needed.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
pub(crate) unsafe fn make(_: u64, _: [u64; 3]) -> i64 {
    const EBADF: i64 = 9;
    -EBADF
}
