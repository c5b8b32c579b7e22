//! What the target's descriptors are called, so that it and its shadow speak of the same files.
//!
//! A table kept beside the kernel's own; it may be wrong (another thread closed a descriptor, say)
//! and then costs a hint or a probe, never a result.

use linux_raw_sys::general as k;
use runahead_abi::Identity;

use crate::sys::{self, AT_FDCWD, Fd};

/// Descriptors from here on have no name; their calls are native.
pub const TRACKED: usize = 1024;

/// Devices remembered.
const DEVICES: usize = 8;

/// What a descriptor leads to, as far as reading is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Not asked yet.
    Unknown,
    /// A regular file whose reads can be tried without waiting (`RWF_NOWAIT`).
    Nowait,
    /// A regular file of a file system without `RWF_NOWAIT`.
    Remote,
    /// A directory.
    Directory,
    /// Anything that does not stall for storage.
    Other,
}

#[derive(Clone, Copy)]
struct Name {
    /// Zero: given to the program at its start.
    identity: u64,
    offset: u64,
    kind: Kind,
}

const NONE: Name = Name { identity: 0, offset: 0, kind: Kind::Unknown };

/// See the module's text.
pub struct Names {
    table: [Name; TRACKED],
    /// File systems without `RWF_NOWAIT`, by device number, and what files there are. Asking
    /// (fstatfs) can be a request to a server.
    devices: [(u64, Kind); DEVICES],
    next_device: usize,
    /// The working directory.
    pub cwd: Identity,
}

impl Names {
    pub(super) const fn new() -> Self {
        Names {
            table: [NONE; TRACKED],
            devices: [(0, Kind::Unknown); DEVICES],
            next_device: 0,
            cwd: Identity::START_CWD,
        }
    }

    fn get(&self, fd: Fd) -> Option<&Name> {
        self.table.get(usize::try_from(fd).ok()?)
    }

    fn get_mut(&mut self, fd: Fd) -> Option<&mut Name> {
        self.table.get_mut(usize::try_from(fd).ok()?)
    }

    /// The name of what `fd` refers to.
    pub fn identity(&self, fd: Fd) -> Identity {
        match self.get(fd) {
            Some(name) if name.identity != 0 => Identity::from_raw(name.identity),
            _ => Identity::inherited(fd as u32),
        }
    }

    /// The name of the directory that `dir` stands for in an *at call.
    pub fn at(&self, dir: Fd) -> Identity {
        if dir == AT_FDCWD { self.cwd } else { self.identity(dir) }
    }

    /// `fd` was opened.
    pub fn opened(&mut self, fd: Fd, identity: Identity) {
        if let Some(name) = self.get_mut(fd) {
            *name = Name { identity: identity.raw(), ..NONE };
        }
    }

    /// `fd` is closed.
    pub fn forget(&mut self, fd: Fd) {
        if let Some(name) = self.get_mut(fd) {
            *name = NONE;
        }
    }

    pub(super) fn forget_range(&mut self, first: u64, last: u64) {
        let last = (last as u32 as usize).min(TRACKED - 1);
        if let Some(range) = self.table.get_mut(first as u32 as usize..=last) {
            range.fill(NONE);
        }
    }

    /// `to` is a duplicate of `from`.
    pub(super) fn copy(&mut self, from: Fd, to: Fd) {
        let identity = self.identity(from).raw();
        let source = self.get(from).copied().unwrap_or(NONE);
        if let Some(name) = self.get_mut(to) {
            *name = Name { identity, ..source };
        }
    }

    /// Where the next read of `fd` starts, as far as we have seen.
    pub(super) fn offset(&self, fd: Fd) -> u64 {
        self.get(fd).map_or(0, |n| n.offset)
    }

    pub(super) fn seek(&mut self, fd: Fd, offset: u64) {
        if let Some(name) = self.get_mut(fd) {
            name.offset = offset;
        }
    }

    /// What `fd` is; asks the kernel once for each open.
    pub fn kind(&mut self, fd: Fd) -> Kind {
        let Some(name) = self.get(fd) else { return Kind::Other };
        if name.kind != Kind::Unknown {
            return name.kind;
        }
        let kind = match classify(fd) {
            (Kind::Nowait, device) => self.on_device(device).unwrap_or(Kind::Nowait),
            (kind, _) => kind,
        };
        if let Some(name) = self.get_mut(fd) {
            name.kind = kind;
        }
        kind
    }

    fn on_device(&self, device: u64) -> Option<Kind> {
        let known = |(d, kind): &&(u64, Kind)| *d == device && *kind != Kind::Unknown;
        self.devices.iter().find(known).map(|(_, kind)| *kind)
    }

    /// The file system has just said that it has no `RWF_NOWAIT`.
    pub(super) fn no_nowait(&mut self, fd: Fd) {
        let device = classify(fd).1;
        let kind = if stalls_remotely(fd) { Kind::Remote } else { Kind::Other };
        self.devices[self.next_device] = (device, kind);
        self.next_device = (self.next_device + 1) % DEVICES;
        if let Some(name) = self.get_mut(fd) {
            name.kind = kind;
        }
    }
}

/// Whether `fd` is a regular file now, whatever is remembered of it.
pub(super) fn is_regular(fd: Fd) -> bool {
    classify(fd).0 == Kind::Nowait
}

/// What `fd` is as far as it can be told without asking its file system, and its device number.
fn classify(fd: Fd) -> (Kind, u64) {
    let Ok(stat) = sys::statx_fd(fd, k::STATX_TYPE) else { return (Kind::Other, 0) };
    let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    let kind = match u32::from(stat.stx_mode) & k::S_IFMT {
        k::S_IFDIR => Kind::Directory,
        k::S_IFREG => match sys::fcntl(fd, k::F_GETFL, 0) {
            Ok(flags) if flags as u32 & k::O_DIRECT == 0 => Kind::Nowait,
            _ => Kind::Other,
        },
        _ => Kind::Other,
    };
    (kind, device)
}

/// File systems without `RWF_NOWAIT` are either made of memory (proc, sys) or remote; only the
/// latter stall. Types from linux/magic.h.
pub(crate) fn stalls_remotely(fd: Fd) -> bool {
    const REMOTE: [u64; 10] = [
        0x6573_5546, // FUSE
        0x6969,      // NFS
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x0102_1997, // 9p
        0x00c3_6400, // Ceph
        0x5346_414f, // AFS
        0x794c_7630, // overlay, over any of them
        0x0bd0_0bd0, // Lustre
        0x4750_4653, // GPFS
    ];
    sys::filesystem_type(fd).is_ok_and(|kind| REMOTE.contains(&(kind & 0xffff_ffff)))
}
