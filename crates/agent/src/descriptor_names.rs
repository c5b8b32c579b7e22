//! Identities of the target's descriptors, so that it and its shadow name the same files.
//!
//! All threads keep this table beside the kernel's own, without locks. It may be wrong, for example
//! after another thread closed a descriptor; that costs a hint or a probe, never a result.

use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::device_number;
use runahead_estimators::{Identity, filesystem_table};

use crate::sys::{self, AT_FDCWD, Fd};

/// Number of descriptors that have identities; calls on higher ones are native.
pub const TRACKED_DESCRIPTORS: usize = 1024;

/// Devices that are remembered.
const DEVICES_KNOWN: usize = 8;

/// Kind of file behind a descriptor, as far as reading is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileKind {
    /// Still to be determined.
    Unknown,
    /// A regular file whose reads can be tried without waiting (`RWF_NOWAIT`).
    Nowait,
    /// A regular file of a file system without `RWF_NOWAIT`.
    Remote,
    /// A directory.
    Directory,
    /// A file that does not stall for storage.
    Other,
}

impl FileKind {
    fn from_raw(raw: u8) -> Self {
        [FileKind::Nowait, FileKind::Remote, FileKind::Directory, FileKind::Other]
            .into_iter()
            .find(|kind| *kind as u8 == raw)
            .unwrap_or(FileKind::Unknown)
    }
}

struct DescriptorName {
    /// Identity; 0: inherited at the program's start.
    identity: AtomicU64,
    offset: AtomicU64,
    /// A [`FileKind`] in the lower bits, and above it the age in which it was determined.
    kind: AtomicU8,
}

/// Bits of a [`FileKind`].
const KIND_BITS: u32 = 4;

impl DescriptorName {
    const fn new() -> Self {
        DescriptorName {
            identity: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            kind: AtomicU8::new(FileKind::Unknown as u8),
        }
    }

    fn set(&self, identity: u64, offset: u64, kind: u8) {
        self.identity.store(identity, Relaxed);
        self.offset.store(offset, Relaxed);
        self.kind.store(kind, Relaxed);
    }
}

/// Identities of the descriptors of a process.
#[repr(C)]
pub struct DescriptorNames {
    /// Devices without `RWF_NOWAIT`, and the kind of their files. Asking for it (fstatfs) can be a
    /// request to a server.
    devices: [(AtomicU64, AtomicU8); DEVICES_KNOWN],
    next_device: AtomicUsize,
    /// Identity of the working directory.
    cwd: AtomicU64,
    /// Current age; kinds of an earlier age are determined anew.
    age: AtomicU8,
    table: [DescriptorName; TRACKED_DESCRIPTORS],
}

const UNKNOWN: u8 = FileKind::Unknown as u8;

/// The [`DescriptorNames`] of this process; a child or shadow has a copy.
pub static NAMES: DescriptorNames = DescriptorNames::new();

impl DescriptorNames {
    const fn new() -> Self {
        DescriptorNames {
            table: [const { DescriptorName::new() }; TRACKED_DESCRIPTORS],
            devices: [const { (AtomicU64::new(0), AtomicU8::new(0)) }; DEVICES_KNOWN],
            next_device: AtomicUsize::new(0),
            cwd: AtomicU64::new(Identity::START_CWD.raw()),
            age: AtomicU8::new(0),
        }
    }

    fn get(&self, fd: Fd) -> Option<&DescriptorName> {
        self.table.get(usize::try_from(fd).ok()?)
    }

    /// Identity of the file that `fd` refers to.
    pub fn identity(&self, fd: Fd) -> Identity {
        match self.get(fd).map_or(0, |name| name.identity.load(Relaxed)) {
            0 => Identity::inherited(fd as u32),
            known => Identity::from_raw(known),
        }
    }

    /// Identity of the working directory.
    pub fn cwd(&self) -> Identity {
        Identity::from_raw(self.cwd.load(Relaxed))
    }

    pub(super) fn set_cwd(&self, directory: Identity) {
        self.cwd.store(directory.raw(), Relaxed);
    }

    /// Identity of the directory that `dir` stands for in an *at call.
    pub fn at(&self, dir: Fd) -> Identity {
        if dir == AT_FDCWD { self.cwd() } else { self.identity(dir) }
    }

    /// Notes that `fd` was opened.
    pub fn note_opened(&self, fd: Fd, identity: Identity) {
        if let Some(name) = self.get(fd) {
            name.set(identity.raw(), 0, UNKNOWN);
        }
    }

    /// Notes that `fd` is closed.
    pub fn forget(&self, fd: Fd) {
        if let Some(name) = self.get(fd) {
            name.set(0, 0, UNKNOWN);
        }
    }

    pub(super) fn forget_range(&self, first: u64, last: u64) {
        let last = (last as u32 as usize).min(TRACKED_DESCRIPTORS - 1);
        if let Some(range) = self.table.get(first as u32 as usize..=last) {
            range.iter().for_each(|name| name.set(0, 0, UNKNOWN));
        }
    }

    /// Notes that `to` is a duplicate of `from`.
    pub(super) fn note_duplicate(&self, from: Fd, to: Fd) {
        let identity = self.identity(from).raw();
        let (offset, kind) = self.get(from).map_or((0, UNKNOWN), |source| {
            (source.offset.load(Relaxed), source.kind.load(Relaxed))
        });
        if let Some(name) = self.get(to) {
            name.set(identity, offset, kind);
        }
    }

    /// Offset of the next read of `fd`, as far as reads were seen.
    pub(super) fn offset(&self, fd: Fd) -> u64 {
        self.get(fd).map_or(0, |name| name.offset.load(Relaxed))
    }

    pub(super) fn seek(&self, fd: Fd, offset: u64) {
        if let Some(name) = self.get(fd) {
            name.offset.store(offset, Relaxed);
        }
    }

    /// Kind of file behind `fd`; asks the kernel once for each open.
    pub fn kind(&self, fd: Fd) -> FileKind {
        let Some(name) = self.get(fd) else { return FileKind::Other };
        match self.of_this_age(name.kind.load(Relaxed)) {
            FileKind::Unknown => {}
            known => return known,
        }
        let kind = match classify(fd) {
            (FileKind::Nowait, device) => self.on_device(device).unwrap_or(FileKind::Nowait),
            (kind, _) => kind,
        };
        name.kind.store(self.with_age(kind), Relaxed);
        kind
    }

    /// Makes [`DescriptorNames::kind`] ask anew for every descriptor: some may have been closed
    /// unseen.
    pub(super) fn forget_kinds(&self) {
        let next = (self.age.load(Relaxed) + 1) & (u8::MAX >> KIND_BITS);
        self.age.store(next, Relaxed);
    }

    /// Forgets the kind of `fd`.
    pub(super) fn forget_kind(&self, fd: Fd) {
        if let Some(name) = self.get(fd) {
            name.kind.store(UNKNOWN, Relaxed);
        }
    }

    fn with_age(&self, kind: FileKind) -> u8 {
        kind as u8 | self.age.load(Relaxed) << KIND_BITS
    }

    fn of_this_age(&self, dated: u8) -> FileKind {
        match dated >> KIND_BITS == self.age.load(Relaxed) {
            true => FileKind::from_raw(dated & ((1 << KIND_BITS) - 1)),
            false => FileKind::Unknown,
        }
    }

    fn on_device(&self, device: u64) -> Option<FileKind> {
        self.devices.iter().find_map(|(known, kind)| {
            let kind = FileKind::from_raw(kind.load(Relaxed));
            (kind != FileKind::Unknown && known.load(Relaxed) == device).then_some(kind)
        })
    }

    /// Notes that the file system of `fd` has refused `RWF_NOWAIT`.
    pub(super) fn note_without_nowait(&self, fd: Fd) {
        let device = classify(fd).1;
        let kind = if stalls_remotely(fd) { FileKind::Remote } else { FileKind::Other };
        let place = &self.devices[self.next_device.fetch_add(1, Relaxed) % DEVICES_KNOWN];
        place.0.store(device, Relaxed);
        place.1.store(kind as u8, Relaxed);
        if let Some(name) = self.get(fd) {
            name.kind.store(self.with_age(kind), Relaxed);
        }
    }
}

/// True if `fd` is a regular file now, whatever the table says.
pub(super) fn is_regular(fd: Fd) -> bool {
    classify(fd).0 == FileKind::Nowait
}

/// Device number of `fd`, if that is in memory.
pub(super) fn device(fd: Fd) -> Option<u64> {
    sys::statx_fd(fd, k::STATX_TYPE).ok().as_ref().map(device_of)
}

pub(super) fn device_of(stat: &k::statx) -> u64 {
    device_number(stat.stx_dev_major, stat.stx_dev_minor)
}

/// Kind of `fd` as far as the kernel knows it without asking the file system, and its device
/// number.
fn classify(fd: Fd) -> (FileKind, u64) {
    let Ok(stat) = sys::statx_fd(fd, k::STATX_TYPE) else { return (FileKind::Other, 0) };
    let device = device_of(&stat);
    let kind = match u32::from(stat.stx_mode) & k::S_IFMT {
        k::S_IFDIR => FileKind::Directory,
        k::S_IFREG => match sys::status_flags(fd) {
            Ok(flags) if flags as u32 & k::O_DIRECT == 0 => FileKind::Nowait,
            _ => FileKind::Other,
        },
        _ => FileKind::Other,
    };
    (kind, device)
}

/// True if the file system of `fd`, which lacks `RWF_NOWAIT`, stalls: it is remote, or an overlay.
/// Others are made of memory (proc, sys).
pub(crate) fn stalls_remotely(fd: Fd) -> bool {
    sys::filesystem_type(fd).is_ok_and(|kind| {
        filesystem_table::by_number(kind).is_remote() || kind as u32 == filesystem_table::OVERLAY
    })
}
