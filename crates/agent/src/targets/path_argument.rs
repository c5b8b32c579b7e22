//! The path argument of a call, read so that it does no harm if it disappears.
//!
//! It lies in the program's memory. Another thread may overwrite or unmap it as soon as the kernel
//! has read it, which can be long before the call returns; and the call may put its answer there.
//! With other threads the kernel copies the name before the call is made: it returns an error where
//! this process would fault. Without other threads the name stays, except where the answer has
//! overwritten it; that part is not read.

use core::mem::MaybeUninit;

use runahead_abi::PATH_MAX;

use super::target_state::Target;
use crate::path_text;
use crate::plane::{self, Call};
use crate::session::Session;
use crate::sys::{self, Errno, Fd, nr};

/// Buffer for a copied name.
pub(super) type PathRoom = MaybeUninit<[u8; PATH_MAX]>;

/// Path argument of a call.
pub(super) struct PathArgument<'a> {
    /// Directory that the name is relative to.
    pub dir: Fd,
    /// Address of the name in the program's memory, for the kernel.
    pub at: u64,
    text: ArgumentText<'a>,
    answer: AnswerBuffer,
}

enum ArgumentText<'a> {
    Copied(&'a [u8]),
    InPlace,
    /// The name should have been copied, and could not be.
    Unreadable,
}

impl ArgumentText<'_> {
    fn in_place() -> Self {
        if plane::has_threads() { ArgumentText::Unreadable } else { ArgumentText::InPlace }
    }
}

/// Buffer in which a call puts its answer.
#[derive(Clone, Copy, Default)]
struct AnswerBuffer {
    start: u64,
    len: u64,
}

impl AnswerBuffer {
    fn of(call: &Call) -> Self {
        const STAT_BYTES: u64 = size_of::<linux_raw_sys::general::stat>() as u64;
        const STATX_BYTES: u64 = size_of::<linux_raw_sys::general::statx>() as u64;
        let a = &call.args;
        let (start, len) = match call.nr {
            nr::STAT | nr::LSTAT => (a[1], STAT_BYTES),
            nr::NEWFSTATAT => (a[2], STAT_BYTES),
            nr::STATX => (a[4], STATX_BYTES),
            nr::READLINK => (a[1], a[2]),
            nr::READLINKAT => (a[2], a[3]),
            _ => (0, 0),
        };
        AnswerBuffer { start, len }
    }

    /// True if the answer may overlap the `len` bytes from `at`.
    fn touches(self, at: u64, len: u64) -> bool {
        self.start < at.saturating_add(len) && at < self.start.saturating_add(self.len)
    }
}

impl<'a> PathArgument<'a> {
    /// Copies the name at `at`, for use before as well as after the call.
    pub(super) fn copied(dir: Fd, at: u64, room: &'a mut PathRoom) -> Self {
        let room = room.write([0; PATH_MAX]);
        let text = match sys::copy_string(at, room) {
            Ok(len) => ArgumentText::Copied(&room[..len]),
            Err(Errno(sys::EFAULT | sys::ENAMETOOLONG)) => ArgumentText::Unreadable,
            // Such copies are refused here (process_vm_readv(2)).
            Err(_) => ArgumentText::in_place(),
        };
        PathArgument { dir, at, text, answer: AnswerBuffer::default() }
    }

    /// The name, if it was copied.
    pub(super) fn copy(&self) -> Option<&[u8]> {
        match self.text {
            ArgumentText::Copied(text) => Some(text),
            ArgumentText::InPlace | ArgumentText::Unreadable => None,
        }
    }

    /// The name, unless it must not be read or may have been overwritten.
    ///
    /// # Safety
    /// In a call that this thread makes, the kernel has read the name.
    pub(super) unsafe fn text(&self) -> Option<&[u8]> {
        match self.text {
            ArgumentText::Copied(text) => Some(text),
            ArgumentText::Unreadable => None,
            ArgumentText::InPlace => {
                if self.answer.touches(self.at, 1) {
                    return None;
                }
                // If the answer buffer begins behind the name, it may cover the name's end.
                let most = match self.answer {
                    AnswerBuffer { start, len: 1.. } if start > self.at => start - self.at,
                    _ => u64::MAX,
                };
                // SAFETY: the kernel has read it, and there is no other thread.
                unsafe { path_text::c_string_within(self.at, most) }
            }
        }
    }
}

impl Target {
    /// The name at `at`, an argument of `call`. It is not copied while no hint or record needs it.
    pub(super) fn path_argument<'a>(
        &self,
        session: &'static Session,
        call: &Call,
        (dir, at): (Fd, u64),
        room: &'a mut PathRoom,
    ) -> PathArgument<'a> {
        let answer = AnswerBuffer::of(call);
        let is_wanted = !self.names_are_unused(session) || self.records_accesses(session);
        if is_wanted
            && (plane::has_threads() || reads_link(call) && answer.touches(at, PATH_MAX as u64))
        {
            return PathArgument::copied(dir, at, room);
        }
        PathArgument { dir, at, text: ArgumentText::in_place(), answer }
    }
}

/// True if the call reads a symbolic link.
pub(super) fn reads_link(call: &Call) -> bool {
    matches!(call.nr, nr::READLINK | nr::READLINKAT)
}

/// True if the call should read a link and the name is something else. A buffer of size 0 gives the
/// same error before the name is read.
pub(super) fn is_not_a_link(call: &Call, ret: i64) -> bool {
    reads_link(call) && ret == sys::fail(sys::EINVAL) && AnswerBuffer::of(call).len as i32 > 0
}

/// True if a call with this result has certainly read its path. Some errors come earlier and hide a
/// bad address.
pub(super) fn path_was_read(ret: i64) -> bool {
    const AFTER: [u32; 8] = [
        sys::ENOENT,
        sys::ENOTDIR,
        sys::EACCES,
        sys::ELOOP,
        sys::EEXIST,
        sys::EISDIR,
        sys::EROFS,
        sys::ENXIO,
    ];
    ret >= 0 || AFTER.iter().any(|&e| ret == sys::fail(e))
}
