//! Lets a program go on with a predicted answer, and takes it back in place where that was wrong.
//!
//! A program that knows what it will probably be told need not wait for it (B. Wester, P. Chen, J.
//! Flinn, *Operating System Support for Application-Specific Speculation*, 2011). It asks its
//! question, begins a speculation, and goes on as if the prediction were the answer. What it writes
//! is held. Another process of the session receives the real answer and says
//! whether the prediction was right. If so, what was held is released, and nothing else happens. If
//! not, the whole process, all its threads and memory, becomes again what it was when it began, and
//! is told so:
//!
//! ```no_run
//! use runahead_client::prediction::{ANSWER_MAX, Begun, answer, begin};
//! # fn ask() {}
//! # fn wait_for_it() -> Vec<u8> { Vec::new() }
//! # fn tell_receiver(_: runahead_client::prediction::Id, _: &[u8]) {}
//! # let (prediction, receiver) = (vec![1], 0);
//! ask();
//! let result = match begin(receiver) {
//!     Begun::Speculative(id) => {
//!         tell_receiver(id, &prediction);
//!         prediction
//!     }
//!     Begun::Failed(id) => {
//!         let mut right = [0; ANSWER_MAX];
//!         let bytes = answer(id, &mut right).unwrap_or(0);
//!         right[..bytes].to_vec()
//!     }
//!     Begun::Refused(_) => wait_for_it(),
//! };
//! ```
//!
//! Without runahead in front ([`begin`] is refused) the program goes the ordinary way. On systems
//! other than Linux on x86-64 it always does.
//!
//! See [`protocol`] for the system call behind each function, and `docs/guide/speculation.md` for
//! what a process may do while it speculates, and what waits.

#[cfg(feature = "c-speculate")]
mod c_interface;
pub mod protocol;

pub use protocol::{Event, NOW, Policy};

use crate::fadvise_call;
use protocol::MAGIC;

/// Most bytes of an answer.
pub const ANSWER_MAX: usize = 4000;

/// A speculation: its number, never 0, which means the same in all processes of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct Id(pub u64);

/// An errno of the kernel, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "error {} (errno(3))", self.0)
    }
}

impl core::error::Error for Errno {}

/// Result of [`begin`], which may return twice with two of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// The process speculates from here on.
    Speculative(Id),
    /// It did, the prediction was wrong, and all is as it was.
    Failed(Id),
    /// The process does not speculate: no agent listens (EBADF), or the errno says why it cannot.
    Refused(Errno),
}

fn checked(result: i64) -> Result<u64, Errno> {
    u64::try_from(result).map_err(|_| Errno(-result as i32))
}

/// Begins a speculation, as the module's head describes. All that this process does from here on
/// depends on it; earlier work does not. `settler` is the PID of the process that will settle it:
/// if that process ends first, the speculation fails without an answer. A `settler` of 0 names
/// none.
pub fn begin(settler: u32) -> Begun {
    let mut id = 0u64;
    // SAFETY: writes a number to `id`.
    #[allow(unsafe_code)]
    let result = unsafe {
        fadvise_call::make(MAGIC, protocol::BEGIN, [&raw mut id as u64, settler.into(), 0])
    };
    // The kernel or the agent wrote the number, which the compiler does not see.
    let id = Id(core::hint::black_box(id));
    match checked(result) {
        Ok(0) => Begun::Speculative(id),
        Ok(_) => Begun::Failed(id),
        Err(errno) => Begun::Refused(errno),
    }
}

/// The prediction was right. ESRCH: there is no such speculation that is open: it has been settled,
/// or the process has been taken back to before it.
pub fn commit(id: Id) -> Result<(), Errno> {
    // SAFETY: no memory is concerned.
    #[allow(unsafe_code)]
    checked(unsafe { fadvise_call::make(MAGIC, protocol::COMMIT, [id.0, 0, 0]) }).map(drop)
}

/// The prediction was wrong; `answer`, of which [`ANSWER_MAX`] bytes count, is what is right.
/// Errors as of [`commit`].
pub fn fail(id: Id, answer: &[u8]) -> Result<(), Errno> {
    let args = [id.0, answer.as_ptr() as u64, answer.len() as u64];
    // SAFETY: reads those bytes.
    #[allow(unsafe_code)]
    checked(unsafe { fadvise_call::make(MAGIC, protocol::FAIL, args) }).map(drop)
}

/// Copies the right answer of a speculation that has just [failed](Begun::Failed), as far as `to`
/// has room; returns its bytes. ESRCH: the answer is not known, which holds for all but the last
/// few.
pub fn answer(id: Id, to: &mut [u8]) -> Result<usize, Errno> {
    let args = [id.0, to.as_mut_ptr() as u64, to.len() as u64];
    // SAFETY: writes no more than that.
    #[allow(unsafe_code)]
    checked(unsafe { fadvise_call::make(MAGIC, protocol::ANSWER, args) })
        .map(|bytes| bytes as usize)
}

/// Sets the policy for output of a speculative process to descriptor `fd`, until that is closed.
/// Returns the policy before.
pub fn set_policy(fd: i32, policy: Policy) -> Result<Policy, Errno> {
    // SAFETY: no memory is concerned.
    #[allow(unsafe_code)]
    let before = unsafe {
        fadvise_call::make(MAGIC, protocol::SET_POLICY, [fd as u32 as u64, policy as u64, 0])
    };
    checked(before).map(|before| Policy::of_number(before).unwrap_or_default())
}

/// The speculations that this process depends on, the oldest first, as many as there is room for;
/// how many there are.
pub fn open(to: &mut [Id]) -> usize {
    let args = [to.as_mut_ptr() as u64, to.len() as u64, 0];
    // SAFETY: writes no more than that many numbers.
    #[allow(unsafe_code)]
    checked(unsafe { fadvise_call::make(MAGIC, protocol::OPEN, args) })
        .map_or(0, |count| count as usize)
}

/// Copies the session's events from `position` on, or from now on ([`NOW`]), as far as there is
/// room. Returns how many, and moves the position behind them. A slow reader misses some: the last
/// thousand are kept.
pub fn events(position: &mut u64, to: &mut [(Id, Event)]) -> Result<usize, Errno> {
    let mut count = 0;
    while count < to.len() {
        let mut one = [0u64; 2];
        let args = [&raw mut *position as u64, one.as_mut_ptr() as u64, 1];
        // SAFETY: moves the position, and writes two numbers.
        #[allow(unsafe_code)]
        let told = checked(unsafe { fadvise_call::make(MAGIC, protocol::EVENTS, args) })?;
        let [id, what] = core::hint::black_box(one);
        if told == 0 {
            break;
        }
        let known = [Event::Begun, Event::Committed, Event::Failed];
        if let Some(event) = known.into_iter().find(|event| *event as u64 == what) {
            to[count] = (Id(id), event);
            count += 1;
        }
    }
    Ok(count)
}

/// Waits until this process depends on nothing any more.
pub fn barrier() {
    // SAFETY: no memory is concerned.
    #[allow(unsafe_code)]
    let _ = unsafe { fadvise_call::make(MAGIC, protocol::BARRIER, [0; 3]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const EBADF: Errno = Errno(9);

    #[test]
    fn predictions_without_runahead_are_refused() {
        assert_eq!(begin(0), Begun::Refused(EBADF));
        assert_eq!((commit(Id(1)), fail(Id(1), b"x")), (Err(EBADF), Err(EBADF)));
        assert_eq!(answer(Id(1), &mut [0; 9]), Err(EBADF));
        assert_eq!(set_policy(1, Policy::Allow), Err(EBADF));
        assert_eq!(open(&mut [Id(0); 4]), 0);
        assert_eq!(events(&mut NOW.clone(), &mut [(Id(0), Event::Begun)]), Err(EBADF));
        barrier();
    }

    #[test]
    fn policies_have_their_numbers() {
        for policy in [Policy::Default, Policy::Defer, Policy::Block, Policy::Allow, Policy::Expand]
        {
            assert_eq!(Policy::of_number(policy as u64), Some(policy));
        }
        assert_eq!(Policy::of_number(5), None);
    }
}
