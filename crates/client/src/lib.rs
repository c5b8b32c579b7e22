//! Interfaces by which a program speaks to runahead itself.
//!
//! | module | what a program says with it |
//! |---|---|
//! | [`disclosure`] | which parts of which files it will read |
//! | [`prediction`] | which answer it expects, and whether that was right |
//! | `fadvise_call` | the system call behind both |
//!
//! Each function makes one system call that the kernel always refuses, and that the agent of
//! `runahead run` answers. On systems other than Linux on x86-64 it makes none.
//!
//! The features `c-disclose` and `c-speculate` build the C libraries `librunahead_disclose` and
//! `librunahead_speculate` (`make bindings`). They are built without `std`, so that they bring no
//! runtime with them.
#![no_std]
#![deny(unsafe_code)]

pub mod disclosure;
mod fadvise_call;
pub mod prediction;

/// Panic handler that the compiler requires of a library without `std`. No function of this crate
/// panics.
#[cfg(all(any(feature = "c-disclose", feature = "c-speculate"), not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
