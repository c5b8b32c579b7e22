//! Kinds of the file systems that hints lead to, by device number.

use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use runahead_estimators::filesystem_table;
use rustix::fs::fstatfs;
use rustix::io::Result;

use super::path_node::Node;

/// File systems by device number: each is asked once, as that can cost a round trip to a server.
#[derive(Default)]
pub(crate) struct Devices {
    known: Mutex<HashMap<(u32, u32), Device>>,
}

/// Kind of a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// A file system whose files are calls into the kernel.
    Unstored,
    /// A file system that stores files on this machine.
    Local,
    /// A file system that asks a server for every name.
    Remote,
}

impl Devices {
    /// Returns the file system of `node`.
    pub(crate) fn device(&self, node: &Node) -> Result<Device> {
        let known = |this: &Self| {
            let known = this.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&node.device).copied()
        };
        if let Some(device) = known(self) {
            return Ok(device);
        }
        let Ok(object) = node.object() else { return Ok(Device::Local) };
        let kind = filesystem_table::by_number(fstatfs(object)?.f_type as u64);
        let device = match kind {
            kind if kind.is_made_up() => Device::Unstored,
            kind if kind.is_remote() => Device::Remote,
            _ => Device::Local,
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(node.device, device);
        Ok(device)
    }
}
