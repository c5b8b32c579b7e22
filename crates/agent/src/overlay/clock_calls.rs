//! Calls that read or change how the kernel's clock is disciplined (adjtimex(2)).
//!
//! The structure in the program's memory says which, and another thread may change it. So the call
//! is made with a copy.

use super::call_results::{Call, copy_to_program};
use super::layer::Layer;
use crate::sys::{self, Errno, Result};

/// Size in words of `struct timex`, whose first half word is the modes.
const WORDS: usize = 26;
/// Modes of adjtime(3) that only read (`ADJ_OFFSET_SS_READ`).
const READ_OFFSET: u32 = 0xa001;

/// Handles adjtimex(2) and clock_adjtime(2), whose structure is at the address in `argument`. To
/// change the clock is refused.
pub(super) fn adjust(layer: Layer, call: &Call, argument: usize) -> Result<u64> {
    let mut state: [u64; WORDS] = sys::copy_in(call.args[argument])?;
    if !matches!(state[0] as u32, 0 | READ_OFFSET) {
        return Err(Errno(sys::EPERM));
    }
    let mut args = call.args;
    args[argument] = state.as_mut_ptr() as u64;
    args[5] = layer.token();
    // SAFETY: a call that only reads, into a structure of ours.
    let ret = sys::check(unsafe { sys::raw(call.nr, args) })?;
    // SAFETY: integers, seen as bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts(state.as_ptr().cast::<u8>(), size_of_val(&state)) };
    copy_to_program(bytes, call.args[argument])?;
    Ok(ret)
}
