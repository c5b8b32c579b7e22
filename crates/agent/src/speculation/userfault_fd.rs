//! Userfault descriptor (userfaultfd(2)) that write-protects memory, stored by the supervisor.
//!
//! The protection belongs to the memory, not to the holder of the descriptor, and ends when the
//! last descriptor is closed. In the program's descriptor table it would be visible. A child that
//! shares the table and not the memory would keep it open. So the supervisor stores it, and lends
//! it when new memory is to be protected. The process has it only then, with all its threads
//! stopped.

use linux_raw_sys::general as k;
use runahead_abi::control_protocol;

use crate::control_client::{ask, hand_over_file};
use crate::plane::AddressRange;
use crate::session::Session;
use crate::sys::{self, Errno, Fd, nr};

/// State of the descriptor. All-zero is valid: nothing is protected.
#[derive(Clone, Copy)]
pub struct Protector {
    /// True if the supervisor stores a descriptor of this process.
    is_kept: bool,
    /// True if no memory is to be protected any more.
    is_given_up: bool,
}

impl Protector {
    /// Tracks stores to these pieces, once they have been listed. EOPNOTSUPP: tracking
    /// is disabled, or no supervisor can store the descriptor.
    pub fn protect(
        &mut self,
        session: &Session,
        pagemap: Fd,
        pieces: impl Iterator<Item = AddressRange> + Clone,
    ) -> sys::Result<()> {
        if self.is_given_up {
            return Err(Errno(sys::EOPNOTSUPP));
        }
        if pieces.clone().all(|piece| is_protected(pagemap, piece.start)) {
            return Ok(());
        }
        let nobody = Errno(sys::EOPNOTSUPP);
        let fd = match self.is_kept {
            true => ask(session, control_protocol::LEND).ok_or(nobody)?,
            false => new()?,
        };
        let mut result = Ok(());
        if !self.is_kept {
            self.is_kept = hand_over_file(session, control_protocol::KEEP, fd);
            result = if self.is_kept { Ok(()) } else { Err(nobody) };
        }
        for piece in pieces {
            result = result.and_then(|()| register(fd, piece.start, piece.end));
        }
        sys::close(fd).and(result)
    }

    /// Ends the protection: the program uses userfaultfd(2) itself, and memory can have only one.
    pub fn disable(&mut self, session: Option<&Session>) {
        if core::mem::take(&mut self.is_kept)
            && let Some(fd) = session.and_then(|session| ask(session, control_protocol::FORGET))
        {
            let _ = sys::close(fd);
        }
        self.is_given_up = true;
    }
}

/// True if userfaultfd(2) is refused here, or has no asynchronous protection. An error leaves this
/// open.
pub fn is_refused() -> sys::Result<bool> {
    match new() {
        Ok(fd) => sys::close(fd).map(|_| false),
        Err(Errno(sys::EPERM | sys::ENOSYS | sys::EINVAL | sys::EACCES)) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Creates the descriptor (userfaultfd(2), ioctl_userfaultfd(2)).
pub fn new() -> sys::Result<Fd> {
    const USER_MODE_ONLY: u64 = 1;
    const API: u64 = 0xc018_aa3f;
    const VERSION: u64 = 0xaa;
    const WP_ASYNC: u64 = 1 << 15;
    let flags = u64::from(k::O_CLOEXEC) | USER_MODE_ONLY;
    // SAFETY: creates a descriptor.
    let fd = sys::check(unsafe { sys::raw(nr::USERFAULTFD, [flags, 0, 0, 0, 0, 0]) })? as Fd;
    let api = [VERSION, WP_ASYNC, 0u64];
    match ioctl(fd, API, api.as_ptr() as u64) {
        Ok(_) => Ok(fd),
        Err(errno) => sys::close(fd).and(Err(errno)),
    }
}

pub fn register(protector: Fd, start: u64, end: u64) -> sys::Result<()> {
    const REGISTER: u64 = 0xc020_aa00;
    const MODE_WP: u64 = 2;
    let register = [start, end - start, MODE_WP, 0u64];
    ioctl(protector, REGISTER, register.as_ptr() as u64).map(|_| ())
}

pub fn ioctl(fd: Fd, request: u64, argument: u64) -> sys::Result<u64> {
    // SAFETY: these requests read and write the structures passed here.
    sys::check(unsafe { sys::raw(nr::IOCTL, [fd as u64, request, argument, 0, 0, 0]) })
}

/// Request number of ioctl_pagemap_scan(2).
pub const SCAN: u64 = 0xc060_6610;
/// Words of its argument.
pub const SCAN_WORDS: usize = 12;
/// Flag: protect the listed pages.
pub const PROTECT: u64 = 1;
/// Flag: fail with EPERM if memory is not protected.
pub const IF_PROTECTED: u64 = 2;

/// True if the mapping at `start` is protected. A mapping is protected as a whole or not at all.
fn is_protected(pagemap: Fd, start: u64) -> bool {
    use crate::sys::PAGE;
    let bytes = 8 * SCAN_WORDS as u64;
    let mut scan: [u64; SCAN_WORDS] =
        [bytes, IF_PROTECTED, start, start + PAGE, 0, 0, 0, 0, 0, 0, 0, 0];
    ioctl(pagemap, SCAN, scan.as_mut_ptr() as u64).is_ok()
}
