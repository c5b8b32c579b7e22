//! Calls that open files.
//!
//! A file is opened for reading where it is. It is copied up before it is opened for writing; from
//! then on calls on the descriptor need no agent.

use linux_raw_sys::general as k;
use runahead_abi::overlay::{ReadKind, flag};

use super::call_results::{self, Call, CallResult, answer_attempt};
use super::descriptor_cache::UpperFile;
use super::kernel_calls::syscall;
use super::layer::Layer;
use super::link_index::IndexPath;
use super::lower_layer;
use super::namespace_calls::NewEntry;
use super::path_walk::{self, ENTRY_NAME, FOLLOW, NO_FOLLOW, WalkOptions};
use super::view_entry::{LastComponent, Resolved, ViewEntry};
use super::{
    change_filter, copy_up, descriptor_paths, kernel_protections, namespace_calls,
    permission_checks, recorded_calls, thread_names,
};
use crate::plane::Verdict;
use crate::sys::{self, AT_FDCWD, Errno, Fd, nr};

/// Flags that openat2(2) accepts; open(2) ignores others.
const KNOWN_FLAGS: u32 = k::O_ACCMODE
    | k::O_CREAT
    | k::O_EXCL
    | k::O_NOCTTY
    | k::O_TRUNC
    | k::O_APPEND
    | k::O_NONBLOCK
    | k::O_SYNC
    | k::O_DSYNC
    | k::O_DIRECT
    | k::O_LARGEFILE
    | k::O_DIRECTORY
    | k::O_NOFOLLOW
    | k::O_NOATIME
    | k::O_CLOEXEC
    | k::O_PATH
    | k::O_TMPFILE;

const READ: u32 = 4;
const WRITE: u32 = 2;

/// Request to open a file, with flags and mode as in openat(2).
#[derive(Clone, Copy)]
pub(super) struct OpenRequest {
    pub dir: Fd,
    /// Address of the path.
    pub at: u64,
    pub flags: u32,
    pub mode: u32,
    /// Flags `RESOLVE_*` of openat2(2).
    pub resolve: u32,
}

impl OpenRequest {
    fn access_mode(&self) -> u32 {
        self.flags & k::O_ACCMODE
    }

    fn is_path_only(&self) -> bool {
        self.flags & k::O_PATH != 0
    }

    fn is_temporary(&self) -> bool {
        self.flags & k::__O_TMPFILE != 0 && !self.is_path_only()
    }

    /// True if the call may create or change something.
    fn may_change(&self) -> bool {
        let changing = k::O_CREAT | k::O_TRUNC | k::__O_TMPFILE;
        !self.is_path_only() && (self.access_mode() != k::O_RDONLY || self.flags & changing != 0)
    }

    fn no_links(&self) -> bool {
        self.resolve & k::RESOLVE_NO_SYMLINKS != 0
    }

    fn follows(&self) -> bool {
        let makes_new = self.flags & (k::O_CREAT | k::O_EXCL) == k::O_CREAT | k::O_EXCL;
        self.flags & k::O_NOFOLLOW == 0 && (!makes_new || self.is_path_only())
    }
}

/// Handles openat(2), open(2), creat(2) and openat2(2).
pub(super) fn open(layer: Layer, call: &Call, how: OpenRequest) -> CallResult {
    const ELSEWHERE: u32 = k::RESOLVE_BENEATH | k::RESOLVE_IN_ROOT;
    if how.resolve & ELSEWHERE != 0 {
        // Answers as a kernel without openat2 does.
        return Err(Errno(sys::ENOSYS));
    }
    if how.resolve & k::RESOLVE_CACHED != 0 {
        return Err(Errno(sys::EAGAIN));
    }
    match how.may_change() {
        true if cfg!(feature = "fault-injection") && layer.flags() & flag::PLANT_WRITES != 0 => {
            Ok(Verdict::NATIVE)
        }
        true => open_to_change(layer, call, &how),
        false => open_to_read(layer, call, &how),
    }
}

fn open_to_read(layer: Layer, call: &Call, how: &OpenRequest) -> CallResult {
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(how.at, &mut room)?;
    let (follow, no_symlinks) = (how.follows(), how.no_links());
    let look = WalkOptions { follow, check: false, no_symlinks, ..path_walk::NO_FOLLOW };
    let kind = if how.is_path_only() { ReadKind::Existence } else { ReadKind::Entry };
    let first = WalkOptions { unchecked_in_upper: !how.is_path_only(), ..look };
    let found = recorded_calls::resolve(layer, how.dir, text, first, kind)?;
    let Some(mut found) = found else { return Ok(Verdict::NATIVE) };
    if let ViewEntry::UncheckedUpper = found.entry {
        let direct = OpenRequest { flags: how.flags | k::O_NOFOLLOW, ..*how };
        let opened = open_upper(layer, call, &direct, found.path.upper_address())?;
        let is_link = [sys::ELOOP, sys::ENOTDIR].map(sys::fail).map(Some);
        if !follow || !is_link.contains(&opened.answered()) {
            return Ok(opened);
        }
        found = recorded_calls::resolve_following(layer, how.dir, text, look, kind)?;
    }
    if let ViewEntry::Unchecked = found.entry
        && follow
    {
        if found.kernel_agrees && how.resolve == 0 {
            // The kernel finds the same entry if it meets no symbolic link.
            let flags = how.flags & KNOWN_FLAGS & !(k::O_CREAT | k::O_EXCL);
            let resolve = k::RESOLVE_NO_SYMLINKS.into();
            let open = k::open_how { flags: flags.into(), mode: 0, resolve };
            let open = (&raw const open as u64, size_of::<k::open_how>() as u64);
            let args = [how.dir as u64, how.at, open.0, open.1, 0, 0];
            // SAFETY: what the program asked for, as openat2 has it; the structure lives as long as
            // the call.
            let ret = unsafe { lower_layer::attempt_lower(layer, call, nr::OPENAT2, &args) };
            if ret != sys::fail(sys::ELOOP) && ret != sys::fail(sys::EINVAL) {
                return Ok(answer_attempt(call, ret));
            }
        }
        let look = WalkOptions { no_symlinks, ..FOLLOW };
        let found = path_walk::resolve(layer, how.dir, text, look)?;
        return open_resolved(layer, call, how, &found);
    }
    open_resolved(layer, call, how, &found)
}

/// Opens a resolved entry where it is.
fn open_resolved(layer: Layer, call: &Call, how: &OpenRequest, found: &Resolved) -> CallResult {
    match found.entry {
        ViewEntry::Absent => Err(Errno(sys::ENOENT)),
        ViewEntry::Upper(_) => open_upper(layer, call, how, found.path.upper_address()),
        ViewEntry::Indexed(stat) => {
            open_upper(layer, call, how, IndexPath::new(layer, &stat).address())
        }
        ViewEntry::Merged(..) if !how.is_path_only() => {
            permission_checks::may_list(layer, found)?;
            open_lower(layer, call, how, found.path.lower_address())
        }
        ViewEntry::Lower(_) | ViewEntry::Unchecked | ViewEntry::Outside if found.kernel_agrees => {
            Ok(Verdict::NATIVE)
        }
        _ => open_lower(layer, call, how, found.path.lower_address()),
    }
}

fn open_upper(layer: Layer, call: &Call, how: &OpenRequest, path: u64) -> CallResult {
    let args = [AT_FDCWD as u64, path, how.flags.into(), how.mode.into(), 0, 0];
    // SAFETY: what the program asked for; the name is one of ours.
    let ret = unsafe { call.attempt(nr::OPENAT, &args) };
    // Its metadata is often set by the descriptor next.
    if ret >= 0 && how.access_mode() != k::O_RDONLY && layer == Layer::top() {
        UpperFile::of(ret as Fd).note();
    }
    Ok(answer_attempt(call, ret))
}

/// Opens a path of the lower tree.
fn open_lower(layer: Layer, call: &Call, how: &OpenRequest, path: u64) -> CallResult {
    let args = [AT_FDCWD as u64, path, how.flags.into(), how.mode.into(), 0, 0];
    // SAFETY: what the program asked for; the name is one of ours.
    let ret = unsafe { lower_layer::attempt_lower(layer, call, nr::OPENAT, &args) };
    Ok(answer_attempt(call, ret))
}

fn open_to_change(layer: Layer, call: &Call, how: &OpenRequest) -> CallResult {
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(how.at, &mut room)?;
    let creates = how.flags & k::O_CREAT != 0;
    let look = match how.follows() {
        // What may be created is no directory.
        _ if creates && text.ends_with(b"/") => ENTRY_NAME,
        // Nor is the target of a symbolic link that ends in a slash.
        true => WalkOptions { allow_trailing_slash: creates, ..FOLLOW },
        false => NO_FOLLOW,
    };
    let look = WalkOptions { no_symlinks: how.no_links(), ..look };
    let is_there = how.resolve == 0 && creates && !how.is_temporary() && !text.ends_with(b"/");
    let first = WalkOptions { unchecked_in_upper: is_there, ..look };
    let mut found = path_walk::resolve(layer, how.dir, text, first)?;
    if let ViewEntry::UncheckedUpper = found.entry {
        // The kernel creates the file, or opens what exists, unless that is a symbolic link.
        let alike = OpenRequest { flags: how.flags | k::O_NOFOLLOW, ..*how };
        let opened = open_upper(layer, call, &alike, found.path.upper_address())?;
        if !how.follows() || opened.answered() != Some(sys::fail(sys::ELOOP)) {
            return Ok(opened);
        }
        found = path_walk::resolve(layer, how.dir, text, look)?;
    }
    match found.entry {
        _ if creates && found.must_be_directory && found.last == LastComponent::Name => {
            return Err(Errno(sys::EISDIR));
        }
        ViewEntry::Outside => return open_outside(layer, call, how, &found),
        ViewEntry::Absent if !creates => return Err(Errno(sys::ENOENT)),
        ViewEntry::Absent => {
            if how.flags & k::O_DIRECTORY != 0 {
                return Err(Errno(sys::EINVAL));
            }
            namespace_calls::prepare_create(layer, &mut found, NewEntry::Other)?;
            return open_upper(layer, call, how, found.path.upper_address());
        }
        _ if how.is_temporary() => {
            Resolved::directory(&found)?;
            return open_temporary(layer, call, how, &found);
        }
        _ if creates && how.flags & k::O_EXCL != 0 => return Err(Errno(sys::EEXIST)),
        _ => {}
    }
    if Resolved::directory(&found).is_ok() {
        // A directory may only be opened for reading or as a path.
        let is_refused = how.access_mode() != k::O_RDONLY || creates || how.flags & k::O_TRUNC != 0;
        return if is_refused {
            Err(Errno(sys::EISDIR))
        } else {
            open_resolved(layer, call, how, &found)
        };
    }
    let writes = how.access_mode() != k::O_RDONLY || how.flags & k::O_TRUNC != 0;
    let is_upper = matches!(found.entry, ViewEntry::Upper(_));
    if creates && !is_upper {
        kernel_protections::may_open_to_create(layer, &mut found)?;
    }
    if is_upper && writes && change_filter::filter(layer).has_copies_without_rights() {
        permission_checks::may_open_to_write(layer, &found, 0, how.flags)?;
    }
    match found.entry {
        ViewEntry::Lower(stat) | ViewEntry::Indexed(stat)
            if stat.kind() == k::S_IFREG && writes =>
        {
            if how.flags & k::O_DIRECTORY != 0 {
                return Err(Errno(sys::ENOTDIR));
            }
            let reads = if how.access_mode() == k::O_WRONLY { 0 } else { READ };
            permission_checks::may_open_to_write(layer, &found, WRITE | reads, how.flags)?;
            copy_up::copy_up_file(layer, &mut found, how.flags & k::O_TRUNC == 0)?;
            open_upper(layer, call, how, found.path.upper_address())
        }
        ViewEntry::Upper(_) => open_upper(layer, call, how, found.path.upper_address()),
        // Something exists, so nothing is created. The kernel denies opening what is no file, or
        // its effects stay inside the try.
        _ => {
            let how = OpenRequest { flags: how.flags & !(k::O_CREAT | k::O_EXCL), ..*how };
            open_lower(layer, call, &how, found.path.lower_address())
        }
    }
}

/// Opens a file without a name in a directory (`O_TMPFILE`).
fn open_temporary(layer: Layer, call: &Call, how: &OpenRequest, found: &Resolved) -> CallResult {
    if let ViewEntry::Lower(_) | ViewEntry::Merged(..) = found.entry {
        permission_checks::may_make_temporary(layer, found)?;
        copy_up::copy_up_directory(layer, &found.path)?;
    }
    open_upper(layer, call, how, found.path.upper_address())
}

/// Opens an entry outside the view.
///
/// The kernel denies opening for writing by the path of a descriptor outside the upper tree. If the
/// descriptor is this process's and was opened for writing, it is duplicated.
fn open_outside(layer: Layer, call: &Call, how: &OpenRequest, found: &Resolved) -> CallResult {
    let (dir, path) = if found.kernel_agrees {
        (how.dir, how.at)
    } else {
        (AT_FDCWD, found.path.lower_address())
    };
    let args = [dir as u64, path, how.flags.into(), how.mode.into(), 0, 0];
    // SAFETY: what the program asked for; the name is the program's, or one of ours.
    let ret = unsafe { call.attempt(nr::OPENAT, &args) };
    if ret == sys::fail(sys::EACCES) && thread_names::may_be_thread_name(found.path.as_bytes()) {
        return match thread_names::open(found.path.lower_address(), how.flags) {
            Some(opened) => opened.map(|fd| Verdict::answer(call.performed(fd.into()))),
            None => Ok(answer_attempt(call, ret)),
        };
    }
    let own = match ret == sys::fail(sys::EACCES) {
        true => descriptor_paths::descriptor_of_path(found.path.as_bytes()),
        false => None,
    };
    let Some(fd) = own else { return Ok(answer_attempt(call, ret)) };
    let mut room = call_results::path_buffer();
    let len = descriptor_paths::path_of_descriptor(fd, &mut room)?;
    if layer.view_of_upper(&room[..len]).is_some() {
        // The file's own permissions.
        return Ok(answer_attempt(call, ret));
    }
    let Ok(has) = sys::status_flags(fd) else { return Ok(answer_attempt(call, ret)) };
    if has as u32 & k::O_ACCMODE == k::O_RDONLY {
        return Ok(answer_attempt(call, ret));
    }
    let copied = match how.flags & k::O_CLOEXEC {
        0 => k::F_DUPFD,
        _ => k::F_DUPFD_CLOEXEC,
    };
    syscall!(nr::FCNTL, fd, copied, 0).map(|fd| Verdict::answer(call.performed(fd as i64)))
}
