//! Calls that read the lower tree, and what is recorded of them before they are made.
//!
//! A record is older than the read, or made of its result. So a later change is found.

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;
use runahead_abi::overlay::{ChangeFilter, Origin, PathHash, ReadKind, names_hash};

use super::call_results::{self, Call, path_buffer};
use super::kernel_calls::{self, OpenFile, Stat};
use super::layer::Layer;
use super::path_walk::{self, FOLLOW, NO_FOLLOW, WalkOptions};
use super::view_entry::{Resolved, ViewEntry};
use super::{change_filter, dirent_records, exec_calls, read_recorder};
use crate::plane;
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Size in bytes of one read of directory records.
const ENTRIES_MAX: usize = 32 << 10;
/// Limit of interpreters of interpreters, as in the kernel.
const INTERPRETERS: usize = 5;

/// Resolves the path of a call that reads, and records what it leads to in the layer's lower tree.
/// `None` if the kernel resolves it to the same entry.
pub(super) fn resolve(
    layer: Layer,
    dir: Fd,
    text: &[u8],
    look: WalkOptions,
    kind: ReadKind,
) -> Result<Option<Resolved>> {
    let filter = change_filter::filter(layer);
    if !read_recorder::is_on(layer) {
        return match filter.is_empty() {
            true => Ok(None),
            false => path_walk::resolve(layer, dir, text, look).map(Some),
        };
    }
    if is_known(layer, text, kind) && filter.links.is_empty() {
        return Ok(None);
    }
    let found = resolve_and_record(layer, dir, text, look, kind);
    if filter.is_empty() { Ok(None) } else { found.map(Some) }
}

/// Resolves the path of a call that examines an entry, as [`resolve`] does. An entry that was not
/// looked up is not recorded: its record is made of the call's result ([`record_result`]).
pub(super) fn resolve_to_examine(
    layer: Layer,
    dir: Fd,
    text: &[u8],
    look: WalkOptions,
) -> Result<Option<Resolved>> {
    let kind = ReadKind::Entry;
    if !read_recorder::is_on(layer) || plane::has_threads() {
        return resolve(layer, dir, text, look, kind);
    }
    let filter = change_filter::filter(layer);
    if is_known(layer, text, kind) && filter.links.is_empty() {
        return Ok(None);
    }
    let look = WalkOptions { check: false, records: true, ..look };
    let found = path_walk::resolve(layer, dir, text, look);
    match &found {
        Ok(Resolved { entry: ViewEntry::Unchecked | ViewEntry::UncheckedUpper, .. }) => {}
        Ok(found) => record_found(found, kind),
        Err(_) if filter.is_empty() => return Ok(None),
        Err(_) => {}
    }
    found.map(Some)
}

/// Records the result of a call that examined an entry of the lower tree that was not looked up.
pub(super) fn record_result(found: &Resolved, result: impl FnOnce() -> Result<Origin>) {
    if !read_recorder::is_on(found.path.layer()) || plane::has_threads() {
        return;
    }
    match result() {
        Ok(origin) => {
            let is_link = origin.mode as u32 & k::S_IFMT == k::S_IFLNK;
            let kind = if is_link { ReadKind::Link } else { ReadKind::Entry };
            read_recorder::record(&found.path, kind, origin);
        }
        Err(Errno(sys::ENOENT | sys::ENOTDIR)) => read_recorder::record_absence(&found.path),
        Err(_) => {}
    }
}

/// True if the text of a path suffices to say that it is recorded.
///
/// The path was recorded under its own text, so it has no symbolic links. That can have changed
/// only if the entry itself was changed, or a directory above it was removed or renamed, which
/// leaves a whiteout.
fn is_known(layer: Layer, text: &[u8], kind: ReadKind) -> bool {
    if text.first() != Some(&b'/') {
        return false;
    }
    let (filter, hash) = (change_filter::filter(layer), PathHash::of(text));
    !filter.has(hash)
        && (filter.reads.has(kind, hash) || filter.reads.has(ReadKind::Absence, hash))
        && (filter.generation() == 0 || !is_below_whiteout(filter, text))
}

/// True if a directory above an absolute path has a whiteout.
fn is_below_whiteout(filter: &ChangeFilter, text: &[u8]) -> bool {
    let mut hash = PathHash::ROOT;
    text[1..].split_inclusive(|byte| *byte == b'/').any(|piece| match piece.split_last() {
        Some((b'/', name)) => {
            hash = hash.append(b"/").append(name);
            filter.has(hash) && filter.whiteouts.has(hash)
        }
        _ => false,
    })
}

/// Resolves the path of a call that reads, and follows it to its end.
pub(super) fn resolve_following(
    layer: Layer,
    dir: Fd,
    text: &[u8],
    look: WalkOptions,
    kind: ReadKind,
) -> Result<Resolved> {
    let records = read_recorder::is_on(layer);
    let look = WalkOptions { follow: true, check: true, records, ..look };
    let found = path_walk::resolve(layer, dir, text, look)?;
    if records {
        record_found(&found, kind);
    }
    Ok(found)
}

fn resolve_and_record(
    layer: Layer,
    dir: Fd,
    text: &[u8],
    look: WalkOptions,
    kind: ReadKind,
) -> Result<Resolved> {
    let look = WalkOptions { check: false, records: true, ..look };
    let mut found = path_walk::resolve(layer, dir, text, look)?;
    if let ViewEntry::Unchecked = found.entry {
        let has = |kind| read_recorder::has(&found.path, kind);
        if has(kind) || has(ReadKind::Absence) || !look.follow && has(ReadKind::Link) {
            return Ok(found);
        }
        match Stat::lower(&found.path) {
            Ok(stat) if stat.kind() == k::S_IFLNK && look.follow => {
                found = path_walk::resolve(layer, dir, text, WalkOptions { check: true, ..look })?;
            }
            Ok(stat) => found.entry = ViewEntry::Lower(stat),
            Err(error) => {
                if let Errno(sys::ENOENT | sys::ENOTDIR) = error {
                    read_recorder::record_absence(&found.path);
                }
                return Ok(found);
            }
        }
    }
    record_found(&found, kind);
    Ok(found)
}

/// Records an entry that was looked up.
fn record_found(found: &Resolved, kind: ReadKind) {
    match found.entry {
        ViewEntry::Lower(stat) if stat.kind() == k::S_IFLNK => {
            read_recorder::record_link(&found.path, &stat);
        }
        ViewEntry::Lower(stat) | ViewEntry::Merged(stat, _) => {
            read_recorder::record(&found.path, kind, stat.origin());
        }
        _ => {}
    }
}

/// Records the names that a directory of the lower tree has.
/// `text` is the path of a directory that has no symbolic links.
#[inline(never)]
pub(super) fn record_listing(layer: Layer, text: &[u8]) -> Result<()> {
    if is_known(layer, text, ReadKind::Listing) {
        return Ok(());
    }
    let found = path_walk::resolve(layer, AT_FDCWD, text, NO_FOLLOW)?;
    let (ViewEntry::Lower(stat) | ViewEntry::Merged(stat, _)) = found.entry else {
        return Ok(());
    };
    if read_recorder::has(&found.path, ReadKind::Listing) {
        return Ok(());
    }
    let directory = OpenFile::lower(&found.path, k::O_RDONLY | k::O_DIRECTORY)?;
    let mut entries = [0u8; ENTRIES_MAX];
    let mut hash = 0u64;
    loop {
        let len = kernel_calls::getdents_lower(layer, directory.0, &mut entries)?;
        if len == 0 {
            break;
        }
        let mut rest = &entries[..len];
        while let Some((name, behind)) = dirent_records::split_first(rest) {
            if !matches!(name, b"." | b"..") {
                hash = hash.wrapping_add(names_hash(name));
            }
            rest = behind;
        }
    }
    let origin = Origin { size: hash, ..stat.origin() };
    read_recorder::record(&found.path, ReadKind::Listing, origin);
    Ok(())
}

/// Records the program that a call is about to execute, and the interpreters of a script.
pub(super) fn record_exec(layer: Layer, call: &Call) {
    if read_recorder::is_on(layer) {
        let _ = record_program_and_interpreters(layer, call);
    }
}

#[inline(never)]
fn record_program_and_interpreters(layer: Layer, call: &Call) -> Result<()> {
    let (mut dir, at) = match call.nr {
        nr::EXECVE => (AT_FDCWD, call.args[0]),
        _ => (call.fd(0), call.args[1]),
    };
    let mut room: [u8; PATH_MAX] = path_buffer();
    let mut len = call_results::read_path(at, &mut room)?.len();
    for _ in 0..INTERPRETERS {
        let text = &room[..len];
        if text.is_empty() || is_known(layer, text, ReadKind::Execution) {
            return Ok(());
        }
        let look = WalkOptions { records: true, ..FOLLOW };
        let found = path_walk::resolve(layer, dir, text, look)?;
        if read_recorder::has(&found.path, ReadKind::Execution) {
            return Ok(());
        }
        match found.entry {
            ViewEntry::Lower(stat) => {
                read_recorder::record(&found.path, ReadKind::Execution, stat.origin());
            }
            ViewEntry::Upper(_) => {}
            _ => return Ok(()),
        }
        let Some(script) = exec_calls::Script::read(&found) else { return Ok(()) };
        let interpreter = script.interpreter();
        (dir, len) = (AT_FDCWD, interpreter.len());
        room[..len].copy_from_slice(interpreter);
    }
    Ok(())
}

/// Records the program of this process, which has not started.
pub(super) fn record_own_program(layer: Layer) {
    let mut room = path_buffer();
    let link = c"/proc/self/exe".as_ptr() as u64;
    if let Ok(len) = sys::readlinkat(AT_FDCWD, link, &mut room)
        && read_recorder::is_on(layer)
        && !is_known(layer, &room[..len.max(1)], ReadKind::Execution)
        && let Ok(found) = path_walk::resolve(layer, AT_FDCWD, &room[..len], FOLLOW)
        && let ViewEntry::Lower(stat) = found.entry
    {
        read_recorder::record(&found.path, ReadKind::Execution, stat.origin());
    }
}
