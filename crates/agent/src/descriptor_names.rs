//! What the target's descriptors are called, so that it and its shadow speak of the same files.
//!
//! A table kept beside the kernel's own, by all threads at once and without locks; it may be wrong
//! (another thread closed a descriptor, say) and then costs a hint or a probe, never a result.

use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::{Identity, device_number, filesystem_table};

use crate::sys::{self, AT_FDCWD, Fd};

/// Descriptors from here on have no name; their calls are native.
pub const TRACKED: usize = 1024;

/// Devices remembered.
const DEVICES: usize = 8;

/// What a descriptor leads to, as far as reading is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
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

impl Kind {
    fn from_raw(raw: u8) -> Self {
        [Kind::Nowait, Kind::Remote, Kind::Directory, Kind::Other]
            .into_iter()
            .find(|kind| *kind as u8 == raw)
            .unwrap_or(Kind::Unknown)
    }
}

struct Name {
    /// Zero: given to the program at its start.
    identity: AtomicU64,
    offset: AtomicU64,
    /// A [`Kind`], and above it the age in which that was asked.
    kind: AtomicU8,
}

/// Bits of a [`Kind`].
const KIND_BITS: u32 = 4;

impl Name {
    const fn new() -> Self {
        Name {
            identity: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            kind: AtomicU8::new(Kind::Unknown as u8),
        }
    }

    fn set(&self, identity: u64, offset: u64, kind: u8) {
        self.identity.store(identity, Relaxed);
        self.offset.store(offset, Relaxed);
        self.kind.store(kind, Relaxed);
    }
}

/// See the module's text.
#[repr(C)]
pub struct Names {
    /// File systems without `RWF_NOWAIT`, by device number, and what files there are. Asking
    /// (fstatfs) can be a request to a server.
    devices: [(AtomicU64, AtomicU8); DEVICES],
    next_device: AtomicUsize,
    /// The working directory.
    cwd: AtomicU64,
    /// What was asked in an earlier age is to be asked again.
    age: AtomicU8,
    table: [Name; TRACKED],
}

const UNKNOWN: u8 = Kind::Unknown as u8;

/// The [`Names`] of this process; a child or shadow has a copy.
pub static NAMES: Names = Names::new();

impl Names {
    const fn new() -> Self {
        Names {
            table: [const { Name::new() }; TRACKED],
            devices: [const { (AtomicU64::new(0), AtomicU8::new(0)) }; DEVICES],
            next_device: AtomicUsize::new(0),
            cwd: AtomicU64::new(Identity::START_CWD.raw()),
            age: AtomicU8::new(0),
        }
    }

    fn get(&self, fd: Fd) -> Option<&Name> {
        self.table.get(usize::try_from(fd).ok()?)
    }

    /// The name of what `fd` refers to.
    pub fn identity(&self, fd: Fd) -> Identity {
        match self.get(fd).map_or(0, |name| name.identity.load(Relaxed)) {
            0 => Identity::inherited(fd as u32),
            known => Identity::from_raw(known),
        }
    }

    /// The name of the working directory.
    pub fn cwd(&self) -> Identity {
        Identity::from_raw(self.cwd.load(Relaxed))
    }

    pub(super) fn enter(&self, directory: Identity) {
        self.cwd.store(directory.raw(), Relaxed);
    }

    /// The name of the directory that `dir` stands for in an *at call.
    pub fn at(&self, dir: Fd) -> Identity {
        if dir == AT_FDCWD { self.cwd() } else { self.identity(dir) }
    }

    /// `fd` was opened.
    pub fn opened(&self, fd: Fd, identity: Identity) {
        if let Some(name) = self.get(fd) {
            name.set(identity.raw(), 0, UNKNOWN);
        }
    }

    /// `fd` is closed.
    pub fn forget(&self, fd: Fd) {
        if let Some(name) = self.get(fd) {
            name.set(0, 0, UNKNOWN);
        }
    }

    pub(super) fn forget_range(&self, first: u64, last: u64) {
        let last = (last as u32 as usize).min(TRACKED - 1);
        if let Some(range) = self.table.get(first as u32 as usize..=last) {
            range.iter().for_each(|name| name.set(0, 0, UNKNOWN));
        }
    }

    /// `to` is a duplicate of `from`.
    pub(super) fn copy(&self, from: Fd, to: Fd) {
        let identity = self.identity(from).raw();
        let (offset, kind) = self.get(from).map_or((0, UNKNOWN), |source| {
            (source.offset.load(Relaxed), source.kind.load(Relaxed))
        });
        if let Some(name) = self.get(to) {
            name.set(identity, offset, kind);
        }
    }

    /// Where the next read of `fd` starts, as far as we have seen.
    pub(super) fn offset(&self, fd: Fd) -> u64 {
        self.get(fd).map_or(0, |name| name.offset.load(Relaxed))
    }

    pub(super) fn seek(&self, fd: Fd, offset: u64) {
        if let Some(name) = self.get(fd) {
            name.offset.store(offset, Relaxed);
        }
    }

    /// What `fd` is; asks the kernel once for each open.
    pub fn kind(&self, fd: Fd) -> Kind {
        let Some(name) = self.get(fd) else { return Kind::Other };
        match self.in_this_age(name.kind.load(Relaxed)) {
            Kind::Unknown => {}
            known => return known,
        }
        let kind = match classify(fd) {
            (Kind::Nowait, device) => self.on_device(device).unwrap_or(Kind::Nowait),
            (kind, _) => kind,
        };
        name.kind.store(self.dated(kind), Relaxed);
        kind
    }

    /// Has [`Names::kind`] ask anew of every descriptor: some may have been closed unseen.
    pub(super) fn forget_kinds(&self) {
        let next = (self.age.load(Relaxed) + 1) & (u8::MAX >> KIND_BITS);
        self.age.store(next, Relaxed);
    }

    /// What kind of thing `fd` is, is not known any more.
    pub(super) fn forget_kind(&self, fd: Fd) {
        if let Some(name) = self.get(fd) {
            name.kind.store(UNKNOWN, Relaxed);
        }
    }

    fn dated(&self, kind: Kind) -> u8 {
        kind as u8 | self.age.load(Relaxed) << KIND_BITS
    }

    fn in_this_age(&self, dated: u8) -> Kind {
        match dated >> KIND_BITS == self.age.load(Relaxed) {
            true => Kind::from_raw(dated & ((1 << KIND_BITS) - 1)),
            false => Kind::Unknown,
        }
    }

    fn on_device(&self, device: u64) -> Option<Kind> {
        self.devices.iter().find_map(|(known, kind)| {
            let kind = Kind::from_raw(kind.load(Relaxed));
            (kind != Kind::Unknown && known.load(Relaxed) == device).then_some(kind)
        })
    }

    /// The file system has just said that it has no `RWF_NOWAIT`.
    pub(super) fn no_nowait(&self, fd: Fd) {
        let device = classify(fd).1;
        let kind = if stalls_remotely(fd) { Kind::Remote } else { Kind::Other };
        let place = &self.devices[self.next_device.fetch_add(1, Relaxed) % DEVICES];
        place.0.store(device, Relaxed);
        place.1.store(kind as u8, Relaxed);
        if let Some(name) = self.get(fd) {
            name.kind.store(self.dated(kind), Relaxed);
        }
    }
}

/// Whether `fd` is a regular file now, whatever is remembered of it.
pub(super) fn is_regular(fd: Fd) -> bool {
    classify(fd).0 == Kind::Nowait
}

/// Device number of `fd`, if that is in memory.
pub(super) fn device(fd: Fd) -> Option<u64> {
    sys::statx_fd(fd, k::STATX_TYPE).ok().as_ref().map(device_of)
}

pub(super) fn device_of(stat: &k::statx) -> u64 {
    device_number(stat.stx_dev_major, stat.stx_dev_minor)
}

/// What `fd` is as far as it can be told without asking its file system, and its device number.
fn classify(fd: Fd) -> (Kind, u64) {
    let Ok(stat) = sys::statx_fd(fd, k::STATX_TYPE) else { return (Kind::Other, 0) };
    let device = device_of(&stat);
    let kind = match u32::from(stat.stx_mode) & k::S_IFMT {
        k::S_IFDIR => Kind::Directory,
        k::S_IFREG => match sys::status_flags(fd) {
            Ok(flags) if flags as u32 & k::O_DIRECT == 0 => Kind::Nowait,
            _ => Kind::Other,
        },
        _ => Kind::Other,
    };
    (kind, device)
}

/// File systems without `RWF_NOWAIT` are either made of memory (proc, sys) or remote; only the
/// latter stall, or an overlay over any of them.
pub(crate) fn stalls_remotely(fd: Fd) -> bool {
    sys::filesystem_type(fd).is_ok_and(|kind| {
        filesystem_table::by_number(kind).is_remote() || kind as u32 == filesystem_table::OVERLAY
    })
}
