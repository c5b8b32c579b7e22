//! Tells runahead which parts of which files this program will read, so that they are in memory
//! when it gets there.
//!
//! A program that is run by `runahead run` has its reads foreseen by a copy of itself. One that
//! knows its future better than that can say so, as with TIP (F. Chang, *Using Speculative
//! Execution to Automatically Hide I/O Latency*, 2001, section 2.2.3.1: there `TIPIO_SEG`,
//! `TIPIO_FD_SEG` and `TIPIO_CANCEL_ALL`): the next row's page of an index, the blocks of a sorted
//! list of places.
//!
//! ```
//! use std::os::fd::AsRawFd;
//! # fn main() -> std::io::Result<()> {
//! # let (path, places) = ("/etc/passwd", [0u64, 4096]);
//! let file = std::fs::File::open(path)?;
//! for &place in &places {
//!     runahead_client::disclosure::disclose_fd(file.as_raw_fd(), place, 4096);
//! }
//! // ... and read them, in this order.
//! # Ok(())
//! # }
//! ```
//!
//! A disclosure changes nothing but what is in memory, and when. Any argument is safe: what makes
//! no sense is not taken. Each function returns whether it was; a program need not look. It never
//! waits for storage; under runahead it waits up to 5 ms, once in a row, for hints before it to be
//! taken out.
//!
//! Without runahead each function makes one system call that fails, some 100 ns, and nothing else:
//! see [`protocol`]. On systems other than Linux on x86-64 it makes none.
//!
//! What is disclosed stays wanted until it has been read, or [`cancel_all`], or the process ends or
//! executes another program. A child made by fork starts without.

#[cfg(feature = "c-disclose")]
mod c_interface;
pub mod protocol;

use core::ffi::CStr;

use crate::fadvise_call;
use protocol::{CANCEL_ALL, DISCLOSE_FD, DISCLOSE_PATH, MAGIC};

/// Discloses; true if that was taken.
fn make(what: u64, args: [u64; 3]) -> bool {
    // SAFETY: the agent reads no memory but that of a path, and has the kernel copy it.
    #[allow(unsafe_code)]
    let result = unsafe { fadvise_call::make(MAGIC, what, args) };
    result == 0
}

/// Discloses that `length` bytes from byte `offset` of the file open as descriptor `fd` will be
/// read. A `length` of 0 means all bytes to the end of the file. Bytes beyond the end do not count,
/// nor bytes more than 1 GiB from `offset`: disclose those in several calls.
///
/// Returns true if the range was taken, or is in memory already. Returns false if no agent listens,
/// or `fd` is not a named regular file open without `O_DIRECT` below descriptor 1024. Returns false
/// as well if the range lies beyond the end, or too much is disclosed and not read yet; that can be
/// disclosed again later.
pub fn disclose_fd(fd: i32, offset: u64, length: u64) -> bool {
    make(DISCLOSE_FD, [fd as u32 as u64, offset, length])
}

/// Discloses that a range of the file at `path` will be read. The file need not be open: that it is
/// looked up and opened is disclosed as well.
///
/// A relative `path` is seen from the working directory. The program's later use counts as foreseen
/// (in `--stats`) if it goes by the same name; a name of another form brings the same data.
/// Symbolic links are followed. A file that is not regular is left alone.
///
/// Returns false if no agent listens, if `path` is empty or has 4096 bytes or more, if it lies
/// below `/proc` or `/sys`, or if too much is disclosed and not read yet.
pub fn disclose_path(path: &CStr, offset: u64, length: u64) -> bool {
    make(DISCLOSE_PATH, [path.as_ptr() as u64, offset, length])
}

/// Cancels all that this process has disclosed. Reads in flight are finished; no others reach the
/// device.
///
/// Returns true if an agent listens, so it also tells a program whether disclosing is worth while.
pub fn cancel_all() -> bool {
    make(CANCEL_ALL, [0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls without runahead have no effect that this process can see.
    #[test]
    fn disclosures_without_runahead_are_refused() {
        for fd in [0, 1, -1, i32::MIN, i32::MAX, protocol::MAGIC] {
            for (offset, length) in [(0, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 63, 1)] {
                assert!(!disclose_fd(fd, offset, length));
            }
        }
        assert!(!disclose_path(c"/", 0, 0) && !disclose_path(c"", u64::MAX, 1));
        assert!(!cancel_all());
    }
}
