//! Calls that read the lower tree, and what is recorded of them before they are made.
//!
//! A record is older than the read. So a change between the two is found.

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;
use runahead_abi::overlay::{Origin, PathHash, ReadKind, names_hash};

use super::call_results::{self, Call, path_buffer};
use super::kernel_calls::{self, OpenFile, Stat};
use super::layer::Layer;
use super::path_walk::{self, FOLLOW, NO_FOLLOW, WalkOptions};
use super::view_entry::ViewEntry;
use super::{change_filter, descriptor_paths, dirent_records, exec_calls, read_recorder};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Size in bytes of one read of directory records.
const ENTRIES_MAX: usize = 32 << 10;
/// Limit of interpreters of interpreters, as in the kernel.
const INTERPRETERS: usize = 5;

/// Records what a call is about to read of the layer's lower tree.
pub(super) fn record_call(layer: Layer, call: &Call) {
    if !read_recorder::is_on(layer) {
        return;
    }
    let a = call.args;
    let here = AT_FDCWD;
    let follows = |flags: u64| flags as u32 & k::AT_SYMLINK_NOFOLLOW == 0;
    let read = |dir, at, follow, kind| {
        let _ = record_name(layer, dir, at, follow, kind);
    };
    let opened = |dir, at, flags: u64| {
        let flags = flags as u32;
        let changing = k::O_CREAT | k::O_TRUNC | k::__O_TMPFILE;
        let is_path_only = flags & k::O_PATH != 0;
        if is_path_only || flags & (k::O_ACCMODE | changing & !k::O_DIRECTORY) == k::O_RDONLY {
            let kind = if is_path_only { ReadKind::Existence } else { ReadKind::Entry };
            read(dir, at, flags & k::O_NOFOLLOW == 0, kind);
        }
    };
    match call.nr {
        nr::OPEN => opened(here, a[0], a[1]),
        nr::OPENAT => opened(call.fd(0), a[1], a[2]),
        nr::OPENAT2 => {
            if let Ok(flags) = sys::copy_in::<u64>(a[2]) {
                opened(call.fd(0), a[1], flags);
            }
        }
        nr::STAT => read(here, a[0], true, ReadKind::Entry),
        nr::LSTAT => read(here, a[0], false, ReadKind::Entry),
        nr::NEWFSTATAT => read(call.fd(0), a[1], follows(a[3]), ReadKind::Entry),
        nr::STATX => read(call.fd(0), a[1], follows(a[2]), ReadKind::Entry),
        nr::ACCESS | nr::CHDIR => read(here, a[0], true, ReadKind::Existence),
        nr::FACCESSAT => read(call.fd(0), a[1], true, ReadKind::Existence),
        nr::FACCESSAT2 => read(call.fd(0), a[1], follows(a[3]), ReadKind::Existence),
        nr::READLINK => read(here, a[0], false, ReadKind::Entry),
        nr::READLINKAT => read(call.fd(0), a[1], false, ReadKind::Entry),
        nr::GETDENTS64 => _ = record_listing(layer, call.fd(0)),
        _ => {}
    }
}

/// Records the entry at the program's path, at address `at`.
#[inline(never)]
fn record_name(layer: Layer, dir: Fd, at: u64, follow: bool, kind: ReadKind) -> Result<()> {
    // The kernel accepts a null address as the path of a descriptor.
    if at == 0 {
        return Ok(());
    }
    let mut room = path_buffer();
    let text = call_results::read_path(at, &mut room)?;
    if !text.is_empty() && !is_known(layer, text, kind) {
        record_path(layer, dir, text, follow, kind)?;
    }
    Ok(())
}

/// True if the text of a path suffices to say that it is recorded.
///
/// The path was recorded under its own text, so it has no symbolic links. That can have changed
/// only if a directory was removed or renamed, or the entry itself was changed.
fn is_known(layer: Layer, text: &[u8], kind: ReadKind) -> bool {
    let filter = change_filter::filter(layer);
    if text[0] != b'/' || filter.generation() != 0 {
        return false;
    }
    let hash = PathHash::of(text);
    !filter.has(hash) && (filter.reads.has(kind, hash) || filter.reads.has(ReadKind::Absence, hash))
}

fn record_path(layer: Layer, dir: Fd, text: &[u8], follow: bool, kind: ReadKind) -> Result<()> {
    let look = WalkOptions { follow, check: false, records: true, ..NO_FOLLOW };
    let mut found = path_walk::resolve(layer, dir, text, look)?;
    if let ViewEntry::Unchecked = found.entry {
        let has = |kind| read_recorder::has(&found.path, kind);
        if has(kind) || has(ReadKind::Absence) || !follow && has(ReadKind::Link) {
            return Ok(());
        }
        match Stat::lower(&found.path) {
            Ok(stat) if stat.kind() == k::S_IFLNK && follow => {
                let look = WalkOptions { records: true, ..FOLLOW };
                found = path_walk::resolve(layer, dir, text, look)?;
            }
            Ok(stat) => found.entry = ViewEntry::Lower(stat),
            Err(Errno(sys::ENOENT | sys::ENOTDIR)) => {
                read_recorder::record_absence(&found.path);
                return Ok(());
            }
            Err(errno) => return Err(errno),
        }
    }
    match found.entry {
        ViewEntry::Lower(stat) if stat.kind() == k::S_IFLNK => {
            read_recorder::record_link(&found.path, &stat);
        }
        ViewEntry::Lower(stat) | ViewEntry::Merged(stat, _) => {
            read_recorder::record(&found.path, kind, stat.origin());
        }
        _ => {}
    }
    Ok(())
}

/// Records the names that a directory of the lower tree has.
#[inline(never)]
fn record_listing(layer: Layer, fd: Fd) -> Result<()> {
    let mut room = path_buffer();
    let len = descriptor_paths::path_of_descriptor(fd, &mut room)?;
    let text = &room[..len];
    if text.first() != Some(&b'/') || layer.strip_upper(text).is_some() {
        return Ok(());
    }
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
