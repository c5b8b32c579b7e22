//! Paths that were looked up.

use std::sync::OnceLock;

use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};

use super::swapped_memory::Memory;
use crate::device_number::{DeviceNumber, MEMORY};
use crate::request_queue::Place;

/// Object that a path named.
pub(crate) struct Node {
    pub(super) what: What,
    pub(super) device: DeviceNumber,
    pub(super) inode: u64,
    pub(super) directory: bool,
    /// Opened by the first who needs it.
    pub(super) open: OnceLock<Result<Open>>,
}

pub(super) enum What {
    /// An object of a file system, opened as a place.
    Object(OwnedFd),
    Memory(Memory),
}

pub(super) struct Open {
    pub(super) fd: OwnedFd,
    /// Reading would set the access time.
    pub(super) advise_only: bool,
}

impl Node {
    /// Returns the place of the node. File systems give inodes and blocks from the same places in
    /// the same order, as long as they have room.
    pub(crate) fn place(&self) -> Place {
        Place { home: Some(self.device), at: self.inode }
    }

    /// The object, which can be looked at.
    pub(super) fn object(&self) -> Result<&OwnedFd> {
        match &self.what {
            What::Object(path_fd) => Ok(path_fd),
            What::Memory(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// The memory of a process.
    pub(super) fn of_memory(process: i32) -> Result<Self> {
        let what = What::Memory(Memory::of(process)?);
        let (device, inode) = (MEMORY, process as u64);
        Ok(Node { what, device, inode, directory: false, open: OnceLock::new() })
    }
}
