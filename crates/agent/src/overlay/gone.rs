//! Names of the real tree that are not there in the view, and what names led to when they were first changed.
//!
//! What is gone stays so: what is made under its name later lies in the upper tree and covers nothing. So marks are only ever
//! added, and a mark that was seen is as true a moment later.

use linux_raw_sys::general as k;
use runahead_abi::overlay::{CHANGES, GONE, ORIGIN_MAX, Origin};

use super::changed;
use super::kernel::{self, Open};
use super::name::{self, Name};
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Errno, Result};

/// Names of marks that are tried for one path: two paths may have the same hash.
const PROBES: u64 = 8;
/// Digits of a mark's name.
const DIGITS: usize = 16;

const MARK_MAX: usize = name::FRONT_MAX + 8 + DIGITS + 1;

/// Path of a mark, for the kernel.
struct Mark([u8; MARK_MAX]);

impl Mark {
    fn new(held: &[u8], number: u64) -> Self {
        let mut path = [0u8; MARK_MAX];
        let mut at = 0;
        let digits: [u8; DIGITS] = core::array::from_fn(|digit| {
            b"0123456789abcdef"[(number >> (60 - 4 * digit)) as usize & 15]
        });
        for part in [held, b"/", GONE.as_bytes(), b"/", &digits] {
            path[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Mark(path)
    }

    fn of(name: &Name, probe: u64) -> Self {
        let front = name.front();
        let slash = front.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Mark::new(&front[..slash], name.hash().bits().wrapping_add(probe))
    }

    fn at(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

/// Whether the real tree's name is not there in the view, whatever is above it.
pub(super) fn is_gone(name: &Name) -> bool {
    let mut text = [0u8; ORIGIN_MAX];
    for probe in 0..PROBES {
        let mark = Mark::of(name, probe);
        let Ok(len) = sys::readlinkat(AT_FDCWD, mark.at(), &mut text) else { return false };
        if Origin::read(&text[..len]).is_some_and(|(_, path)| path == name.text()) {
            return true;
        }
    }
    false
}

/// From here on the real tree's name is not there, which led to `origin`.
pub(super) fn mark(session: &Session, name: &Name, origin: &Origin) -> Result<()> {
    changed::note(name);
    let mut text = [0u8; ORIGIN_MAX + 1];
    // (As the text of a symbolic link it has to be shorter than a page.)
    let len = origin.write(name.text(), &mut text[..ORIGIN_MAX]);
    len.ok_or(Errno(sys::ENAMETOOLONG))?;
    let _ = session;
    for probe in 0..PROBES {
        match kernel::symlink(text.as_ptr() as u64, Mark::of(name, probe).at()) {
            Ok(_) => return Ok(()),
            Err(Errno(sys::EEXIST)) if is_gone(name) => return Ok(()),
            Err(Errno(sys::EEXIST)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno(sys::ENOSPC))
}

/// Remembers what a name led to before its file was first copied, or something was made there.
pub(super) fn record(session: &Session, name: &Name, origin: &Origin) -> Result<()> {
    let mut path = [0u8; name::FRONT_MAX + 1];
    let held = name::held(session);
    path[..held.len()].copy_from_slice(held);
    path[held.len()] = b'/';
    path[held.len() + 1..][..CHANGES.len()].copy_from_slice(CHANGES.as_bytes());
    let mut text = [0u8; ORIGIN_MAX + 1];
    let len = origin.write(name.text(), &mut text[..ORIGIN_MAX]).ok_or(Errno(sys::ENAMETOOLONG))?;
    let file = Open::at(path.as_ptr() as u64, k::O_WRONLY | k::O_APPEND, 0)?;
    kernel::write(file.0, &text[..len + 1])
}
