//! The C library's functions, as `bindings/c/runahead_speculate.h` declares and describes them.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use super::protocol::{ANSWER, BARRIER, BEGIN, COMMIT, EVENTS, FAIL, MAGIC, OPEN, SET_POLICY};
use crate::fadvise_call;

fn status(result: i64) -> c_int {
    result.clamp(c_int::MIN.into(), c_int::MAX.into()) as c_int
}

/// C function for [`super::begin`].
// SAFETY: nothing else defines a name that begins with runahead_.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_begin(id: *mut u64, settler: c_int) -> c_int {
    // SAFETY: a bad address is an error.
    status(unsafe { fadvise_call::make(MAGIC, BEGIN, [id as u64, settler as u32 as u64, 0]) })
}

/// C function for [`super::commit`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_commit(id: u64) -> c_int {
    // SAFETY: no memory is concerned.
    status(unsafe { fadvise_call::make(MAGIC, COMMIT, [id, 0, 0]) })
}

/// C function for [`super::fail`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_fail(id: u64, answer: *const c_void, length: usize) -> c_int {
    // SAFETY: a bad address is an error.
    status(unsafe { fadvise_call::make(MAGIC, FAIL, [id, answer as u64, length as u64]) })
}

/// C function for [`super::answer`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_answer(id: u64, to: *mut c_void, length: usize) -> c_int {
    // SAFETY: the caller has that much room there.
    status(unsafe { fadvise_call::make(MAGIC, ANSWER, [id, to as u64, length as u64]) })
}

/// C function for [`super::set_policy`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_set_policy(fd: c_int, policy: c_int) -> c_int {
    // SAFETY: no memory is concerned.
    status(unsafe {
        fadvise_call::make(MAGIC, SET_POLICY, [fd as u32 as u64, policy as u32 as u64, 0])
    })
}

/// C function for [`super::open`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_open(ids: *mut u64, count: usize) -> c_int {
    // SAFETY: the caller has room there for as many.
    status(unsafe { fadvise_call::make(MAGIC, OPEN, [ids as u64, count as u64, 0]) })
}

/// `struct runahead_spec_event`.
#[repr(C)]
pub struct Event {
    id: u64,
    what: u64,
}

/// C function for [`super::events`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_events(position: *mut u64, to: *mut Event, count: usize) -> c_int {
    // SAFETY: the caller has room there for as many.
    status(unsafe { fadvise_call::make(MAGIC, EVENTS, [position as u64, to as u64, count as u64]) })
}

/// C function for [`super::barrier`].
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_spec_barrier() -> c_int {
    // SAFETY: no memory is concerned.
    status(unsafe { fadvise_call::make(MAGIC, BARRIER, [0; 3]) })
}
