//! Listings of directories: first the lower directory without what is hidden or covered, then the
//! upper directory.
//!
//! The position of the program's descriptor is that in the lower directory. At its end the position
//! in the upper directory is kept here, by the number of the descriptor, until the program seeks to
//! the start.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;
use runahead_abi::overlay::LAYERS_MAX;

use super::call_results::{Call, CallResult, answer_call, copy_to_program};
use super::directory_cache::DirectoryState;
use super::kernel_calls::{self, OpenFile, Stat, syscall};
use super::layer::Layer;
use super::path_walk;
use super::view_path::ViewPath;
use super::{
    change_filter, descriptor_cache, dirent_records, read_recorder, recorded_calls, whiteouts,
};
use crate::path_text::PathBuf;
use crate::plane::Verdict;
use crate::sys::{self, Errno, Fd, Result, nr};

/// Number of listings that can be in their upper part at once, per layer.
const LISTINGS: usize = 64;
/// Size in bytes of one read of records: as much as C libraries ask for.
const ENTRIES_MAX: usize = 32 << 10;

/// A listing that is in its upper part.
struct Listing {
    /// Number of the descriptor, plus one; 0 if the slot is free.
    fd: AtomicU32,
    /// Position in the upper directory.
    position: AtomicI64,
}

/// Listings of each layer.
static OPEN_LISTINGS: [[Listing; LISTINGS]; LAYERS_MAX] = [const {
    [const { Listing { fd: AtomicU32::new(0), position: AtomicI64::new(0) } }; LISTINGS]
}; LAYERS_MAX];
static NEXT: AtomicU32 = AtomicU32::new(0);

fn find_listing(layer: Layer, fd: Fd) -> Option<&'static Listing> {
    OPEN_LISTINGS[layer.index()].iter().find(|listing| listing.fd.load(Relaxed) == fd as u32 + 1)
}

/// Handles getdents64(2).
pub(super) fn list(layer: Layer, call: &Call) -> CallResult {
    let records = call.nr == nr::GETDENTS64 && read_recorder::is_on(layer);
    if change_filter::filter(layer).is_empty() && !records {
        return Ok(Verdict::NATIVE);
    }
    let fd = call.fd(0);
    let mut room = PathBuf::from([0; PATH_MAX + 1]);
    let Some(len) = descriptor_cache::directory(fd, &mut room) else {
        return Ok(Verdict::NATIVE);
    };
    let path = &room[..len];
    if layer.strip_upper(path).is_some() {
        return Ok(Verdict::NATIVE);
    }
    if records {
        // Without a record its later changes are not found.
        let _ = recorded_calls::record_listing(layer, path);
    }
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    // A lower layer may have made the directory.
    let path = layer.view_of_upper(path).unwrap_or(path);
    let mut directory = ViewPath::root(layer);
    for piece in path.split(|byte| *byte == b'/').filter(|piece| !piece.is_empty()) {
        directory.push(piece)?;
    }
    if !change_filter::filter(layer).has(directory.hash()) {
        return Ok(Verdict::NATIVE);
    }
    if call.nr == nr::GETDENTS {
        // The old record format, which no C library has asked for in twenty years.
        return Err(Errno(sys::ENOSYS));
    }
    answer_call(call, list_merged(layer, call, fd, &mut directory))
}

fn list_merged(layer: Layer, call: &Call, fd: Fd, directory: &mut ViewPath) -> Result<u64> {
    let [_, to, bytes, ..] = call.args;
    let mut entries = [0u8; ENTRIES_MAX];
    let room = (bytes as u32 as usize).min(ENTRIES_MAX);
    let position = syscall!(nr::LSEEK, fd, 0, k::SEEK_CUR)?;
    let standing = find_listing(layer, fd);
    if position == 0
        && let Some(listing) = standing
    {
        listing.fd.store(0, Relaxed);
    }
    if position == 0 || standing.is_none() {
        loop {
            let len = kernel_calls::getdents_lower(layer, fd, &mut entries[..room])?;
            if len == 0 {
                break;
            }
            let kept = retain_shown(&mut entries[..len], directory, false)?;
            if kept > 0 {
                copy_to_program(&entries[..kept], to)?;
                return Ok(kept as u64);
            }
        }
        start_upper_part(layer, fd);
    }
    // A directory that is only in the lower tree has no upper part.
    if path_walk::directory_state(layer, directory) != Ok(DirectoryState::Merged) {
        return Ok(0);
    }
    let Some(listing) = find_listing(layer, fd) else { return Ok(0) };
    let upper = OpenFile::at(directory.upper_address(), k::O_RDONLY | k::O_DIRECTORY, 0)?;
    let start = listing.position.load(Relaxed);
    syscall!(nr::LSEEK, upper.0, start, k::SEEK_SET)?;
    loop {
        let len = sys::getdents(upper.0, &mut entries[..room])?;
        if len == 0 {
            return Ok(0);
        }
        if let Some(last) = dirent_records::last_position(&entries[..len]) {
            listing.position.store(last, Relaxed);
        }
        let kept = retain_shown(&mut entries[..len], directory, true)?;
        if kept > 0 {
            copy_to_program(&entries[..kept], to)?;
            return Ok(kept as u64);
        }
    }
}

fn start_upper_part(layer: Layer, fd: Fd) {
    let open = &OPEN_LISTINGS[layer.index()];
    let free = open.iter().find(|listing| listing.fd.load(Relaxed) == 0);
    let listing = free.unwrap_or_else(|| &open[NEXT.fetch_add(1, Relaxed) as usize % LISTINGS]);
    listing.position.store(0, Relaxed);
    listing.fd.store(fd as u32 + 1, Relaxed);
}

/// True if an entry of the lower directory is listed with the lower part.
fn shows_lower(entry: &ViewPath) -> bool {
    if !change_filter::filter(entry.layer()).has(entry.hash()) {
        return true;
    }
    !whiteouts::is_whiteout(entry)
        && Stat::of_path(entry.upper_address()).map_or(true, |upper| upper.is_directory())
}

/// True if an entry of the upper directory is listed with the upper part.
fn shows_upper(entry: &ViewPath) -> bool {
    whiteouts::is_whiteout(entry)
        || match Stat::of_path(entry.upper_address()) {
            // A directory of both trees was listed with the lower part.
            Ok(upper) if upper.is_directory() => kernel_calls::access_lower(entry, 0).is_err(),
            _ => true,
        }
}

/// Moves the records that are listed to the front and returns their length in bytes. `added` is
/// true for the upper part.
fn retain_shown(entries: &mut [u8], directory: &mut ViewPath, added: bool) -> Result<usize> {
    let (mut at, mut kept) = (0, 0);
    while let Some((entry, _)) = dirent_records::split_first(&entries[at..]) {
        let length = dirent_records::record_length(&entries[at..]).unwrap_or(entries.len() - at);
        let is_shown = if matches!(entry, b"." | b"..") {
            !added
        } else {
            let len = directory.len();
            directory.push(entry)?;
            let is_shown = if added { shows_upper(directory) } else { shows_lower(directory) };
            directory.truncate(len);
            is_shown
        };
        if is_shown {
            entries.copy_within(at..at + length, kept);
            kept += length;
        }
        at += length;
    }
    Ok(kept)
}
