//! The one system call. `errno` is not touched: it is the C library's, which is not used.
#![allow(unsafe_code)]

/// True if it was answered with 0.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub(crate) fn make([what, subject, offset, length]: [u64; 4]) -> bool {
    use crate::protocol::{CALL, MAGIC};
    let result: i64;
    // SAFETY: the kernel refuses advice on a negative descriptor before it looks at the other arguments.
    // runahead's agent reads no memory but that of a path, and that by having the kernel copy it.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") CALL as i64 => result,
            in("rdi") i64::from(MAGIC),
            in("rsi") what,
            in("rdx") subject,
            in("r10") offset,
            in("r8") length,
            in("r9") 0,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Nobody listens.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
pub(crate) fn make(_: [u64; 4]) -> bool {
    false
}
