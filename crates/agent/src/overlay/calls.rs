//! What the answers to calls have in common.

use runahead_abi::PATH_MAX;

use crate::plane::{Call, Verdict};
use crate::sys::{self, Errno, Result};

/// What becomes of a call: an error is the program's answer.
pub(super) type Done = Result<Verdict>;

/// Room for a name of the program's.
pub(super) type Room = [u8; PATH_MAX];

pub(super) fn room() -> Room {
    [0; PATH_MAX]
}

/// The name at an address of the program's.
pub(super) fn given(at: u64, room: &mut Room) -> Result<&[u8]> {
    let len = match sys::copy_string(at, room) {
        Err(Errno(sys::ESRCH)) => return Err(Errno(sys::EFAULT)),
        len => len?,
    };
    Ok(&room[..len])
}

/// The result of a call that was made in place of `call`, as [`Call::attempt`] gives it.
pub(super) fn answer(call: &Call, ret: i64) -> Verdict {
    match ret {
        sys::RESTART => Verdict::answer(ret),
        ret => Verdict::answer(call.performed(ret)),
    }
}

/// What was done for a call.
pub(super) fn done(call: &Call, ret: Result<u64>) -> Done {
    ret.map(|ret| Verdict::answer(call.performed(ret as i64)))
}

/// Puts bytes of ours where the program wants them.
pub(super) fn give(bytes: &[u8], to: u64) -> Result<()> {
    let len = bytes.len() as u64;
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the bytes are there, and the program has asked for them to be put there.
    unsafe { sys::copy_out(&[[bytes.as_ptr() as u64, len]], &[[to, len]]) }
}
