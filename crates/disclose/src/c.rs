//! The C library's functions, as `bindings/c/runahead_disclose.h` declares and describes them.
//!
//! Built without `std`, so that the library brings no runtime with it:
//!
//! ```text
//! cargo rustc --release --package runahead-disclose --features c --crate-type cdylib
//! ```
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int};

use crate::call;
use crate::protocol::DISCLOSE_PATH;

/// See [`crate::disclose_fd`].
// SAFETY: nothing else defines a name that begins with runahead_.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_disclose_fd(fd: c_int, offset: u64, length: u64) -> bool {
    crate::disclose_fd(fd, offset, length)
}

/// See [`crate::disclose_path`]. `path` is not looked at here, and may be any address.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_disclose_path(path: *const c_char, offset: u64, length: u64) -> bool {
    call::make([DISCLOSE_PATH, path as u64, offset, length])
}

/// See [`crate::cancel_all`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_cancel_all() -> bool {
    crate::cancel_all()
}

/// What the compiler asks of a library without `std`. Nothing here panics.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
