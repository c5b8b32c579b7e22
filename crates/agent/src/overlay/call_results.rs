//! What the answers to calls have in common.

use runahead_abi::PATH_MAX;

use crate::plane::{self, Verdict};
use crate::sys::{self, Errno, Fd, Result};

/// A call: the program's, or one of ours to a layer that shows another one's real tree.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub nr: u64,
    pub args: [u64; 6],
    program: Option<plane::Call>,
}

impl Call {
    pub(super) fn of_program(call: &plane::Call) -> Self {
        Call { nr: call.nr, args: call.args, program: Some(*call) }
    }

    pub(super) fn by_agent(nr: u64, args: [u64; 6]) -> Self {
        Call { nr, args, program: None }
    }

    /// Another call in its place.
    pub(super) fn with(&self, nr: u64, args: &[u64; 6]) -> Self {
        Call { nr, args: *args, ..*self }
    }

    /// An argument that is a descriptor.
    pub(super) fn fd(&self, index: usize) -> Fd {
        self.args[index] as u32 as Fd
    }

    /// As [`plane::Call::attempt`]; nothing keeps us from making one of ours.
    ///
    /// # Safety
    /// As unsafe as the call it makes.
    pub(super) unsafe fn attempt(&self, nr: u64, args: &[u64; 6]) -> i64 {
        match &self.program {
            // SAFETY: passed on to the caller.
            Some(call) => unsafe { call.attempt(nr, args) },
            // SAFETY: the same.
            None => unsafe { sys::raw(nr, *args) },
        }
    }

    /// As [`plane::Call::performed`]: nothing for one of ours, which is not all of what is done for the program.
    pub(super) fn performed(&self, ret: i64) -> i64 {
        self.program.as_ref().map_or(ret, |call| call.performed(ret))
    }
}

/// What becomes of a call: an error is the program's answer.
pub(super) type CallResult = Result<Verdict>;

/// Room for a name of the program's.
pub(super) type PathBuffer = [u8; PATH_MAX];

pub(super) fn path_buffer() -> PathBuffer {
    [0; PATH_MAX]
}

/// The name at an address of the program's.
pub(super) fn read_path(at: u64, room: &mut PathBuffer) -> Result<&[u8]> {
    let len = match sys::copy_string(at, room) {
        Err(Errno(sys::ESRCH)) => return Err(Errno(sys::EFAULT)),
        len => len?,
    };
    Ok(&room[..len])
}

/// The result of a call that was made in place of `call`, as [`Call::attempt`] gives it.
pub(super) fn answer_attempt(call: &Call, ret: i64) -> Verdict {
    match ret {
        sys::RESTART => Verdict::answer(ret),
        ret => Verdict::answer(call.performed(ret)),
    }
}

/// What was done for a call.
pub(super) fn answer_call(call: &Call, ret: Result<u64>) -> CallResult {
    ret.map(|ret| Verdict::answer(call.performed(ret as i64)))
}

/// Puts bytes of ours where the program wants them.
pub(super) fn copy_to_program(bytes: &[u8], to: u64) -> Result<()> {
    let len = bytes.len() as u64;
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the bytes are there, and the program has asked for them to be put there.
    unsafe { sys::copy_out(&[[bytes.as_ptr() as u64, len]], &[[to, len]]) }
}
