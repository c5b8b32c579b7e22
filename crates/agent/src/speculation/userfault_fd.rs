//! Whoever protects memory: a descriptor for userfaultfd(2), which the supervisor keeps.
//!
//! Protection is bound to memory, not to who has the descriptor, and ends when nobody has it. In the program's table it could be
//! seen, and a child that shares the table and not memory would take it along. So the supervisor is given it, and lends it where
//! new memory is to be protected: the process has it only then, with all its threads stopped.

use linux_raw_sys::general as k;
use runahead_abi::control_protocol;

use crate::control_client::{ask, hand_over};
use crate::session::Session;
use crate::sys::{self, Errno, Fd, nr};

/// See the module's text. All-zero is valid: nothing is protected.
#[derive(Clone, Copy)]
pub struct Protector {
    /// The supervisor has a descriptor of this process's.
    is_kept: bool,
    /// No memory is to be protected any more.
    is_given_up: bool,
}

impl Protector {
    /// From here on stores to these pieces of memory, each an address and an end, are noted, once they have been listed.
    /// EOPNOTSUPP: that is given up, or there is nobody to keep the descriptor.
    pub fn protect(
        &mut self,
        session: &Session,
        pagemap: Fd,
        pieces: impl Iterator<Item = (u64, u64)> + Clone,
    ) -> sys::Result<()> {
        if self.is_given_up {
            return Err(Errno(sys::EOPNOTSUPP));
        }
        if pieces.clone().all(|(start, _)| is_protected(pagemap, start)) {
            return Ok(());
        }
        let nobody = Errno(sys::EOPNOTSUPP);
        let fd = match self.is_kept {
            true => ask(session, control_protocol::LEND).ok_or(nobody)?,
            false => new()?,
        };
        let mut result = Ok(());
        if !self.is_kept {
            self.is_kept = hand_over(session, control_protocol::KEEP, fd);
            result = if self.is_kept { Ok(()) } else { Err(nobody) };
        }
        for (start, end) in pieces {
            result = result.and_then(|()| register(fd, start, end));
        }
        sys::close(fd).and(result)
    }

    /// The program looks after its own memory in the same way, and there can be one of us.
    pub fn disable(&mut self, session: Option<&Session>) {
        if core::mem::take(&mut self.is_kept)
            && let Some(fd) = session.and_then(|session| ask(session, control_protocol::FORGET))
        {
            let _ = sys::close(fd);
        }
        self.is_given_up = true;
    }
}

/// Whether there is no such descriptor to be had here, or it does not protect asynchronously. An error says nothing of that.
pub fn is_refused() -> sys::Result<bool> {
    match new() {
        Ok(fd) => sys::close(fd).map(|_| false),
        Err(Errno(sys::EPERM | sys::ENOSYS | sys::EINVAL | sys::EACCES)) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Makes the descriptor (userfaultfd(2), ioctl_userfaultfd(2)).
pub fn new() -> sys::Result<Fd> {
    const USER_MODE_ONLY: u64 = 1;
    const API: u64 = 0xc018_aa3f;
    const VERSION: u64 = 0xaa;
    const WP_ASYNC: u64 = 1 << 15;
    let flags = u64::from(k::O_CLOEXEC) | USER_MODE_ONLY;
    // SAFETY: makes a descriptor.
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
    // SAFETY: the requests here read and write the structures that they are given.
    sys::check(unsafe { sys::raw(nr::IOCTL, [fd as u64, request, argument, 0, 0, 0]) })
}

/// Request of ioctl_pagemap_scan(2).
pub const SCAN: u64 = 0xc060_6610;
/// Words of its argument.
pub const SCAN_WORDS: usize = 12;
/// Flag: pages that are listed are protected.
pub const PROTECT: u64 = 1;
/// Flag: EPERM where memory cannot be protected.
pub const IF_PROTECTED: u64 = 2;

/// Whether the mapping at `start` is (all of one is, or nothing).
fn is_protected(pagemap: Fd, start: u64) -> bool {
    const PAGE: u64 = 4096;
    let bytes = 8 * SCAN_WORDS as u64;
    let mut scan: [u64; SCAN_WORDS] =
        [bytes, IF_PROTECTED, start, start + PAGE, 0, 0, 0, 0, 0, 0, 0, 0];
    ioctl(pagemap, SCAN, scan.as_mut_ptr() as u64).is_ok()
}
