//! Cache of the paths of directories that the program has descriptors of.
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
/// Fields that statx(2) must fill for a directory.
const WANTED: u32 = k::STATX_TYPE | k::STATX_INO | k::STATX_BTIME | k::STATX_MNT_ID;

/// Identity of a descriptor's directory, also against a later one with its inode number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    fd: Fd,
    file: FileId,
    mount: u64,
    born: (i64, u32),
    generation: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    identity: Option<Identity>,
    path: [u8; PATH_BYTES],
    len: usize,
}

static ENTRIES: Owned<[Entry; CACHED]> =
    Owned::new([const { Entry { identity: None, path: [0; PATH_BYTES], len: 0 } }; CACHED]);
/// True while a thread uses [`ENTRIES`].
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Writes the path of the directory of a descriptor to `to`, as [`path_text::directory`] does.
pub(super) fn directory(fd: Fd, to: &mut PathBuf) -> Option<usize> {
    let Some(identity) = identity(fd) else { return path_text::directory(fd, to) };
    let cached = with_entry(fd, |entry| {
        (entry.identity == Some(identity)).then(|| {
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
            (entry.identity, entry.len) = (Some(identity), len);
        });
    }
    Some(len)
}

/// Calls `work` with the entry for a descriptor, unless another thread uses the entries.
fn with_entry<R>(fd: Fd, work: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    IS_USED.compare_exchange(false, true, Acquire, Relaxed).ok()?;
    // SAFETY: one thread at a time gets here, and `work` does not come back here.
    let entries = unsafe { ENTRIES.get() };
    let done = work(&mut entries[fd as u32 as usize % CACHED]);
    IS_USED.store(false, Release);
    Some(done)
}

/// Identity of the directory that a descriptor is of; `None` if it is none, or cannot be told.
fn identity(fd: Fd) -> Option<Identity> {
    let (mut generation, mut layer) = (0u64, Some(Layer::top()));
    while let Some(one) = layer {
        generation = generation.wrapping_add(change_filter::filter(one).generation());
        layer = one.below();
    }
    // SAFETY: integers, for which zero is valid.
    let mut found: k::statx = unsafe { core::mem::zeroed() };
    let empty = c"".as_ptr();
    syscall!(nr::STATX, fd, empty, k::AT_EMPTY_PATH, WANTED, &raw mut found).ok()?;
    let is_directory = u32::from(found.stx_mode) & k::S_IFMT == k::S_IFDIR;
    let is_told = found.stx_mask & WANTED == WANTED;
    (is_directory && is_told).then(|| Identity {
        fd,
        file: FileId {
            device: device_number(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
        },
        mount: found.stx_mnt_id,
        born: (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
        generation,
    })
}
