//! Listings of directories: a directory of the real tree is listed without what is gone or covered, and then the upper tree's
//! part of it.
//!
//! The position of the program's descriptor is that in the real directory. Where the program has come to its end, how far it has got in
//! the upper tree's part is kept here, by the number of its descriptor, until it begins anew.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::overlay::LAYERS_MAX;

use super::call_results::{Call, Done, done};
use super::directory_cache::Directory;
use super::kernel_calls::{self, Open, Stat, make};
use super::layer::Layer;
use super::path_walk;
use super::view_path::Name;
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
static OPEN: [[Listing; LISTINGS]; LAYERS_MAX] = [const {
    [const { Listing { fd: AtomicU32::new(0), position: AtomicI64::new(0) } }; LISTINGS]
}; LAYERS_MAX];
static NEXT: AtomicU32 = AtomicU32::new(0);

fn of(layer: Layer, fd: Fd) -> Option<&'static Listing> {
    OPEN[layer.number()].iter().find(|listing| listing.fd.load(Relaxed) == fd as u32 + 1)
}

/// getdents64(2).
pub(super) fn list(layer: Layer, call: &Call) -> Done {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let fd = call.fd(0);
    let mut room = call_results::room();
    let Ok(len) = descriptor_paths::path_of(fd, &mut room) else { return Ok(Verdict::NATIVE) };
    let path = &room[..len];
    if path.first() != Some(&b'/') || layer.is_upper(path).is_some() {
        return Ok(Verdict::NATIVE);
    }
    // (It may be one that a lower layer has made.)
    let path = layer.viewed(path).unwrap_or(path);
    let mut directory = Name::root(layer);
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
    done(call, merged(layer, call, fd, &mut directory))
}

fn merged(layer: Layer, call: &Call, fd: Fd, directory: &mut Name) -> Result<u64> {
    let [_, to, bytes, ..] = call.args;
    let mut told = [0u8; ENTRIES_MAX];
    let room = (bytes as u32 as usize).min(ENTRIES_MAX);
    let position = make!(nr::LSEEK, fd, 0, k::SEEK_CUR)?;
    let standing = of(layer, fd);
    if position == 0
        && let Some(listing) = standing
    {
        listing.fd.store(0, Relaxed);
    }
    if position == 0 || standing.is_none() {
        loop {
            let len = kernel_calls::list(layer, fd, &mut told[..room])?;
            if len == 0 {
                break;
            }
            let kept = keep(&mut told[..len], directory, false)?;
            if kept > 0 {
                call_results::give(&told[..kept], to)?;
                return Ok(kept as u64);
            }
        }
        begin(layer, fd);
    }
    // A directory of the real tree alone has no more.
    if path_walk::again(layer, directory) != Ok(Directory::Merged) {
        return Ok(0);
    }
    let Some(listing) = of(layer, fd) else { return Ok(0) };
    let upper = Open::at(directory.upper(), k::O_RDONLY | k::O_DIRECTORY, 0)?;
    let start = listing.position.load(Relaxed);
    make!(nr::LSEEK, upper.0, start, k::SEEK_SET)?;
    loop {
        let len = sys::getdents(upper.0, &mut told[..room])?;
        if len == 0 {
            return Ok(0);
        }
        if let Some(last) = dirent_records::last_position(&told[..len]) {
            listing.position.store(last, Relaxed);
        }
        let kept = keep(&mut told[..len], directory, true)?;
        if kept > 0 {
            call_results::give(&told[..kept], to)?;
            return Ok(kept as u64);
        }
    }
}

fn begin(layer: Layer, fd: Fd) {
    let open = &OPEN[layer.number()];
    let free = open.iter().find(|listing| listing.fd.load(Relaxed) == 0);
    let listing = free.unwrap_or_else(|| &open[NEXT.fetch_add(1, Relaxed) as usize % LISTINGS]);
    listing.position.store(0, Relaxed);
    listing.fd.store(fd as u32 + 1, Relaxed);
}

/// An entry of the real directory is there in the view, and not to be told of as one of the upper tree's part.
fn is_seen(entry: &Name) -> bool {
    if !change_filter::filter(entry.layer()).has(entry.hash()) {
        return true;
    }
    !whiteouts::is_gone(entry) && Stat::of(entry.upper()).map_or(true, |upper| upper.is_directory())
}

/// An entry of the upper tree's part has not been told of as one of the real directory.
fn is_added(entry: &Name) -> bool {
    whiteouts::is_gone(entry)
        || match Stat::of(entry.upper()) {
            // (As a directory it is there in both, and has been told of.)
            Ok(upper) if upper.is_directory() => kernel_calls::may_real(entry, 0).is_err(),
            _ => true,
        }
}

/// Leaves the entries at the front that are told of: those of the real directory, or what was `added`; their bytes.
fn keep(told: &mut [u8], directory: &mut Name, added: bool) -> Result<usize> {
    let (mut at, mut kept) = (0, 0);
    while let Some((entry, _)) = dirent_records::split(&told[at..]) {
        let length = dirent_records::length(&told[at..]).unwrap_or(told.len() - at);
        let is_told = if matches!(entry, b"." | b"..") {
            !added
        } else {
            let len = directory.len();
            directory.push(entry)?;
            let is_told = if added { is_added(directory) } else { is_seen(directory) };
            directory.cut(len);
            is_told
        };
        if is_told {
            told.copy_within(at..at + length, kept);
            kept += length;
        }
        at += length;
    }
    Ok(kept)
}
