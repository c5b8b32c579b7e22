//! Mistakes for the tests of patching to find.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// `89 c3` (mov ebx, eax) is taken for a return.
pub const RETURN_IN_OPERAND: u8 = 1;
/// Jumps into paddings are overlooked.
pub const NOBODY_JUMPS: u8 = 2;
/// Mistake: bytes that look like the move of a number are taken for one.
pub const ANY_NUMBER: u8 = 3;
/// Mistake: flags are taken to be unused behind a call.
pub const FLAGS_ARE_FREE: u8 = 4;

static MISTAKE: AtomicU8 = AtomicU8::new(0);

/// Makes this mistake from now on, in this process.
pub fn plant(mistake: u8) {
    MISTAKE.store(mistake, Relaxed);
}

pub(super) fn is(mistake: u8) -> bool {
    MISTAKE.load(Relaxed) == mistake
}
