//! Listings of directories: a directory of the real tree is listed without what is gone or covered, and then the upper tree's
//! part of it.
//!
//! The position of the program's descriptor is that in the real directory. Where the program has come to its end, how far it has got in
//! the upper tree's part is kept here, by the number of its descriptor, until it begins anew.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::overlay::LAYERS_MAX;

use super::call_results::{Call, CallResult, answer_call};
use super::directory_cache::DirectoryState;
use super::kernel_calls::{self, OpenFile, Stat, syscall};
use super::layer::Layer;
use super::path_walk;
use super::view_path::ViewPath;
use super::{call_results, change_filter, descriptor_paths, dirent_records, whiteouts};
use crate::plane::Verdict;
use crate::sys::{self, Errno, Fd, Result, nr};

/// Listings that are in the upper tree's part at once.
const LISTINGS: usize = 64;
/// Most bytes of entries that are looked at at once; as much as C libraries ask for.
const ENTRIES_MAX: usize = 32 << 10;

/// A listing that is in the upper tree's part.
struct Listing {
    /// The descriptor's number and one; 0: none.
    fd: AtomicU32,
    /// Position in the upper tree's part.
    position: AtomicI64,
}

/// Of each layer.
static OPEN_LISTINGS: [[Listing; LISTINGS]; LAYERS_MAX] = [const {
    [const { Listing { fd: AtomicU32::new(0), position: AtomicI64::new(0) } }; LISTINGS]
}; LAYERS_MAX];
static NEXT: AtomicU32 = AtomicU32::new(0);

fn find_listing(layer: Layer, fd: Fd) -> Option<&'static Listing> {
    OPEN_LISTINGS[layer.index()].iter().find(|listing| listing.fd.load(Relaxed) == fd as u32 + 1)
}

/// getdents64(2).
pub(super) fn list(layer: Layer, call: &Call) -> CallResult {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let fd = call.fd(0);
    let mut room = call_results::path_buffer();
    let Ok(len) = descriptor_paths::path_of_descriptor(fd, &mut room) else {
        return Ok(Verdict::NATIVE);
    };
    let path = &room[..len];
    if path.first() != Some(&b'/') || layer.strip_upper(path).is_some() {
        return Ok(Verdict::NATIVE);
    }
    // (It may be one that a lower layer has made.)
    let path = layer.view_of_upper(path).unwrap_or(path);
    let mut directory = ViewPath::root(layer);
    for piece in path.split(|byte| *byte == b'/').filter(|piece| !piece.is_empty()) {
        directory.push(piece)?;
    }
    if !change_filter::filter(layer).has(directory.hash()) {
        return Ok(Verdict::NATIVE);
    }
    if call.nr == nr::GETDENTS {
        // Of another form, which no C library has asked for in twenty years.
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
                call_results::copy_to_program(&entries[..kept], to)?;
                return Ok(kept as u64);
            }
        }
        start_upper_part(layer, fd);
    }
    // A directory of the real tree alone has no more.
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
            call_results::copy_to_program(&entries[..kept], to)?;
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

/// An entry of the real directory is there in the view, and not to be told of as one of the upper tree's part.
fn shows_lower(entry: &ViewPath) -> bool {
    if !change_filter::filter(entry.layer()).has(entry.hash()) {
        return true;
    }
    !whiteouts::is_whiteout(entry)
        && Stat::of_path(entry.upper_address()).map_or(true, |upper| upper.is_directory())
}

/// An entry of the upper tree's part has not been told of as one of the real directory.
fn shows_upper(entry: &ViewPath) -> bool {
    whiteouts::is_whiteout(entry)
        || match Stat::of_path(entry.upper_address()) {
            // (As a directory it is there in both, and has been told of.)
            Ok(upper) if upper.is_directory() => kernel_calls::access_lower(entry, 0).is_err(),
            _ => true,
        }
}

/// Leaves the entries at the front that are told of: those of the real directory, or what was `added`; their bytes.
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
