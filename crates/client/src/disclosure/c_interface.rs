//! The C library's functions, as `bindings/c/runahead_disclose.h` declares and describes them.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int};

use super::protocol::DISCLOSE_PATH;

/// C function for [`super::disclose_fd`].
// SAFETY: nothing else defines a name that begins with runahead_.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_disclose_fd(fd: c_int, offset: u64, length: u64) -> bool {
    super::disclose_fd(fd, offset, length)
}

/// C function for [`super::disclose_path`]. `path` may be any address: it is not read here.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_disclose_path(path: *const c_char, offset: u64, length: u64) -> bool {
    super::make(DISCLOSE_PATH, [path as u64, offset, length])
}

/// C function for [`super::cancel_all`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_cancel_all() -> bool {
    super::cancel_all()
}
