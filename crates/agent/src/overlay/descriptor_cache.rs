//! Cache of the paths of directories that the program has descriptors of, and of files that are
//! known to be in the upper tree.
//!
//! The kernel's link in `/proc` takes ten times as long as statx(2) of the descriptor, which tells
//! whether it is still the same directory. An entry is valid for one generation of the filters, so
//! no directory was renamed or removed in the view. As below an overlayfs, the lower tree is
//! assumed not to change while the try lasts.

use core::sync::atomic::{AtomicBool, Ordering::*};

use linux_raw_sys::general as k;
use runahead_abi::{FileId, device_number};

use super::change_filter;
use super::kernel_calls::syscall;
use super::layer::Layer;
use crate::path_text::{self, PathBuf};
use crate::sys::{self, Fd, nr};
use crate::thread_owned::Owned;

/// Number of entries.
const CACHED: usize = 8;
/// Length in bytes of the longest path that is cached.
const PATH_BYTES: usize = 256;
/// Fields that statx(2) must fill.
const WANTED: u32 = k::STATX_TYPE | k::STATX_INO | k::STATX_BTIME | k::STATX_MNT_ID;

/// Identity of a file or directory, also against a later one with its inode number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    file: FileId,
    kind: u32,
    mount: u64,
    born: (i64, u32),
}

/// Conditions under which the path of an entry is right.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    fd: Fd,
    directory: Identity,
    generation: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    key: Option<Key>,
    path: [u8; PATH_BYTES],
    len: usize,
}

static ENTRIES: Owned<[Entry; CACHED]> =
    Owned::new([const { Entry { key: None, path: [0; PATH_BYTES], len: 0 } }; CACHED]);
/// Files of the top layer's upper tree.
static UPPER_FILES: Owned<[Option<Identity>; CACHED]> = Owned::new([None; CACHED]);
/// True while a thread uses [`ENTRIES`] or [`UPPER_FILES`].
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Writes the path of the directory of a descriptor to `to`, as [`path_text::directory`] does.
pub(super) fn directory(fd: Fd, to: &mut PathBuf) -> Option<usize> {
    // Before the path is read: a later change of it begins a new generation.
    let generation = generation();
    let directory = identity(fd).filter(|found| found.kind == k::S_IFDIR);
    let Some(directory) = directory else { return path_text::directory(fd, to) };
    let key = Some(Key { fd, directory, generation });
    let cached = with_entry(fd, |entry| {
        (entry.key == key).then(|| {
            to[..entry.len].copy_from_slice(&entry.path[..entry.len]);
            entry.len
        })
    });
    if let Some(len) = cached.flatten() {
        return Some(len);
    }
    let len = path_text::directory(fd, to)?;
    // Nested tries remove directories there without a new generation.
    if len <= PATH_BYTES && !Layer::top().is_nested_try(&to[..len]) {
        with_entry(fd, |entry| {
            entry.path[..len].copy_from_slice(&to[..len]);
            (entry.key, entry.len) = (key, len);
        });
    }
    Some(len)
}

/// Calls `work` with the entry for a descriptor, unless another thread uses the entries.
fn with_entry<R>(fd: Fd, work: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    alone(|| {
        // SAFETY: one thread at a time gets here, and `work` does not come back here.
        let entries = unsafe { ENTRIES.get() };
        work(&mut entries[fd as u32 as usize % CACHED])
    })
}

/// Calls `work`, unless another thread is in such a call.
fn alone<R>(work: impl FnOnce() -> R) -> Option<R> {
    IS_USED.compare_exchange(false, true, Acquire, Relaxed).ok()?;
    let done = work();
    IS_USED.store(false, Release);
    Some(done)
}

/// A file or directory that may be in the upper tree.
pub(super) struct UpperFile(Option<Identity>);

impl UpperFile {
    /// The file of a descriptor.
    pub(super) fn of(fd: Fd) -> Self {
        UpperFile(identity(fd))
    }

    /// True if the file is known to be in the top layer's upper tree.
    pub(super) fn is_known(&self) -> bool {
        let Some(file) = self.0 else { return false };
        self.with_slot(|slot| *slot == Some(file)).unwrap_or(false)
    }

    /// Notes that the file is in the top layer's upper tree, where it stays.
    pub(super) fn note(&self) {
        self.with_slot(|slot| *slot = self.0);
    }

    fn with_slot<R>(&self, work: impl FnOnce(&mut Option<Identity>) -> R) -> Option<R> {
        let slot = self.0?.file.inode as usize % CACHED;
        alone(|| {
            // SAFETY: one thread at a time gets here, and `work` does not come back here.
            let files = unsafe { UPPER_FILES.get() };
            work(&mut files[slot])
        })
    }
}

/// Sum of the generations of all layers.
fn generation() -> u64 {
    let (mut generation, mut layer) = (0u64, Some(Layer::top()));
    while let Some(one) = layer {
        generation = generation.wrapping_add(change_filter::filter(one).generation());
        layer = one.below();
    }
    generation
}

/// Identity of the file of a descriptor; `None` if it cannot be told.
fn identity(fd: Fd) -> Option<Identity> {
    // SAFETY: integers, for which zero is valid.
    let mut found: k::statx = unsafe { core::mem::zeroed() };
    let empty = c"".as_ptr();
    syscall!(nr::STATX, fd, empty, k::AT_EMPTY_PATH, WANTED, &raw mut found).ok()?;
    (found.stx_mask & WANTED == WANTED).then(|| Identity {
        kind: u32::from(found.stx_mode) & k::S_IFMT,
        file: FileId {
            device: device_number(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
        },
        mount: found.stx_mnt_id,
        born: (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
    })
}
