//! Protocol of disclosures: a system call that the kernel always refuses.
//!
//! The call is `fadvise64(MAGIC, ...)`. No descriptor is negative, so the kernel answers EBADF
//! before it looks at anything else, and every usual filter of system calls lets advice on files
//! pass. Under runahead the agent gets the program's calls before the kernel does, knows the
//! number, and answers 0 when it has taken what was said, and EBADF when not. A filter of the
//! program's own that ends it for `fadvise64` would do so here.
//!
//! The arguments, in the order of system calls:
//!
//! | | `DISCLOSE_FD` | `DISCLOSE_PATH` | `CANCEL_ALL` |
//! |---|---|---|---|
//! | 1 | `MAGIC` | `MAGIC` | `MAGIC` |
//! | 2 | what is said, and the version | | |
//! | 3 | the descriptor | address of a path that ends with a NUL | 0 |
//! | 4 | first byte | first byte | 0 |
//! | 5 | bytes, 0: to the end | bytes, 0: to the end | 0 |
//! | 6 | 0 | 0 | 0 |
//!
//! Nothing lies in memory but the path, which is read as the kernel reads a path: a bad address is
//! no more than an error.

/// Value in place of a descriptor; the upper half of its register does not count.
pub const MAGIC: i32 = 0x9d15_c105_u32 as i32;

/// Version of the protocol, in the upper half of the second argument.
const VERSION: u64 = 1 << 32;
/// A part of an open file will be read.
pub const DISCLOSE_FD: u64 = VERSION | 1;
/// A part of a file with this path will be read.
pub const DISCLOSE_PATH: u64 = VERSION | 2;
/// Cancels all that was disclosed.
pub const CANCEL_ALL: u64 = VERSION | 3;
