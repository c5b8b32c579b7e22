//! Arguments and results of calls.

use runahead_abi::PATH_MAX;

use crate::plane::{self, Verdict};
use crate::sys::{self, Errno, Fd, Result};

/// A call of the program, or one of the agent to the layer that shows another layer's lower tree.
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

    /// Returns another call in its place.
    pub(super) fn with(&self, nr: u64, args: &[u64; 6]) -> Self {
        Call { nr, args: *args, ..*self }
    }

    /// Returns an argument as a descriptor.
    pub(super) fn fd(&self, index: usize) -> Fd {
        self.args[index] as u32 as Fd
    }

    /// Makes a call as [`plane::Call::attempt`] does; a call of the agent is made at once.
    ///
    /// # Safety
    /// As unsafe as the call it makes.
    pub(super) unsafe fn attempt(&self, nr: u64, args: &[u64; 6]) -> i64 {
        match &self.program {
            // SAFETY: passed on to the caller.
            Some(call) => unsafe { call.attempt(nr, args) },
            // SAFETY: passed on to the caller.
            None => unsafe { sys::raw(nr, *args) },
        }
    }

    /// Notes a result as [`plane::Call::performed`] does. For a call of the agent it does nothing:
    /// that is only part of what the program asked for.
    pub(super) fn performed(&self, ret: i64) -> i64 {
        self.program.as_ref().map_or(ret, |call| call.performed(ret))
    }
}

/// Result of a call. An error is the program's answer.
pub(super) type CallResult = Result<Verdict>;

/// Buffer for a path of the program.
pub(super) type PathBuffer = [u8; PATH_MAX];

pub(super) fn path_buffer() -> PathBuffer {
    [0; PATH_MAX]
}

/// Reads the path at an address of the program.
pub(super) fn read_path(at: u64, room: &mut PathBuffer) -> Result<&[u8]> {
    let len = match sys::copy_string(at, room) {
        Err(Errno(sys::ESRCH)) => return Err(Errno(sys::EFAULT)),
        len => len?,
    };
    Ok(&room[..len])
}

/// Answers `call` with the result of another call, which [`Call::attempt`] returned.
pub(super) fn answer_attempt(call: &Call, ret: i64) -> Verdict {
    match ret {
        sys::RESTART => Verdict::answer(ret),
        ret => Verdict::answer(call.performed(ret)),
    }
}

/// Answers `call` with the result of what was done for it.
pub(super) fn answer_call(call: &Call, ret: Result<u64>) -> CallResult {
    ret.map(|ret| Verdict::answer(call.performed(ret as i64)))
}

/// Copies bytes to an address of the program.
pub(super) fn copy_to_program(bytes: &[u8], to: u64) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the bytes are there, and the program has asked for them to be put there.
    unsafe { sys::copy_out(bytes, to) }
}
