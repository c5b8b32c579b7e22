//! Which file systems there are.

use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use rustix::fs::fstatfs;
use rustix::io::Result;

use super::Node;

/// What file systems there are, by device number: asked once, as it can cost a round trip to a
/// server.
#[derive(Default)]
pub(crate) struct Devices {
    known: Mutex<HashMap<(u32, u32), Device>>,
}

/// What matters of a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// Its files are calls into the kernel.
    Unstored,
    /// It stores files on this machine.
    Local,
    /// It asks somebody else for every name.
    Remote,
}

/// Magic numbers of file systems that ask a server.
const REMOTE: &[u64] = &[
    0x6573_5546, // FUSE
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0102_1997, // 9p
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
];

/// Magic numbers (statfs(2), linux/magic.h) of file systems whose files are calls into the kernel.
const UNSTORED: &[u64] = &[
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x6165_676c, // pstore
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
    0x1980_0202, // mqueue
    0x1cd1,      // devpts
    0x6e73_6673, // nsfs
    0x0765_5821, // resctrl
    0x5a3c_69f0, // apparmorfs
    0x5049_4446, // pidfs
    0x6759_6969, // rpc_pipefs
    0x6e66_7364, // nfsd
    0x6c6f_6f70, // binder
    0xabba_1974, // xenfs
    0x9fa1,      // openprom
    0x9fa2,      // usbdevfs
    0x0187,      // autofs: its entries are requests to a daemon
];

impl Devices {
    /// What `node` lies on.
    pub(crate) fn device(&self, node: &Node) -> Result<Device> {
        let known = |this: &Self| {
            let known = this.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&node.device).copied()
        };
        if let Some(device) = known(self) {
            return Ok(device);
        }
        let magic = fstatfs(&node.path_fd)?.f_type as u64 & 0xffff_ffff;
        let device = match magic {
            m if UNSTORED.contains(&m) => Device::Unstored,
            m if REMOTE.contains(&m) => Device::Remote,
            _ => Device::Local,
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(node.device, device);
        Ok(device)
    }
}
