//! Resolution of paths in the view: through the lower tree, the upper tree and the whiteouts.
//!
//! A directory is [`DirectoryState::Lower`] if it has no part in the upper tree, and
//! [`DirectoryState::Merged`] if both trees have it. It is [`DirectoryState::Upper`] if only the
//! upper tree has it, with everything below it. Symbolic links are followed here: the kernel would
//! resolve a link of one tree inside that tree.

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;
use runahead_abi::overlay::PathHash;

use super::change_filter;
use super::descriptor_cache;
use super::descriptor_paths::{self, OwnDirectory};
use super::directory_cache::{DirectoryState, cache_state, cached_state};
use super::entry_lookup::lookup_entry;
use super::kernel_calls::{self, Stat};
use super::kernel_protections;
use super::layer::Layer;
use super::pending_path::{PendingPath, skip_slashes};
use super::permission_checks;
use super::read_recorder;
use super::view_entry::{LastComponent, Resolved, ViewEntry};
use super::view_path::ViewPath;
use crate::path_text::{self, PathBuf};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result};

/// Limit of symbolic links followed in one path, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Options of a path walk.
#[derive(Clone, Copy)]
pub(super) struct WalkOptions {
    /// Follow a symbolic link in the last component.
    pub follow: bool,
    /// Look the entry up even if the kernel would find the same one.
    pub check: bool,
    /// Accept a trailing slash on what is not a directory: the caller decides.
    pub allow_trailing_slash: bool,
    /// Skip the lookup in a directory that is only in the upper tree.
    pub unchecked_in_upper: bool,
    /// Fail with ELOOP at any symbolic link (`RESOLVE_NO_SYMLINKS`).
    pub no_symlinks: bool,
    /// Record symbolic links of the lower tree that are followed, and what it does not have.
    pub records: bool,
}

/// Looks the entry up and does not follow it.
pub(super) const NO_FOLLOW: WalkOptions = WalkOptions {
    follow: false,
    check: true,
    allow_trailing_slash: false,
    unchecked_in_upper: false,
    no_symlinks: false,
    records: false,
};
/// Looks up a name to be created, removed or renamed.
pub(super) const ENTRY_NAME: WalkOptions = WalkOptions {
    follow: false,
    check: true,
    allow_trailing_slash: true,
    unchecked_in_upper: false,
    no_symlinks: false,
    records: false,
};
/// Looks the entry up and follows it.
pub(super) const FOLLOW: WalkOptions = WalkOptions {
    follow: true,
    check: true,
    allow_trailing_slash: false,
    unchecked_in_upper: false,
    no_symlinks: false,
    records: false,
};

/// True for the directories outside the view: some of the root directory, and that of nested tries.
/// `rest` is what follows `name` in the path.
fn is_outside(name: &ViewPath, rest: &[u8]) -> bool {
    if name.layer().is_nested_try(name.as_bytes()) {
        return true;
    }
    match name.as_bytes() {
        b"/proc" | b"/sys" => true,
        // POSIX shared memory in `/dev/shm` is files like any others.
        b"/dev" => {
            let rest = rest.strip_prefix(b"shm").unwrap_or(b"x");
            !(rest.is_empty() || rest[0] == b'/')
        }
        _ => false,
    }
}

/// Resolves `path` from the program's directory `dir`.
#[inline(never)]
pub(super) fn resolve(layer: Layer, dir: Fd, path: &[u8], look: WalkOptions) -> Result<Resolved> {
    if path.is_empty() {
        return Err(Errno(sys::ENOENT));
    }
    let mut rest = PendingPath::new();
    let viewed = layer.view_of_upper(path);
    let mut as_named = viewed.is_none();
    rest.prepend(viewed.unwrap_or(path))?;
    if path[0] != b'/' {
        let mut base = PathBuf::from([0; PATH_MAX + 1]);
        let (len, is_upper) = directory(layer, dir, &mut base)?;
        as_named = !is_upper;
        rest.prepend(b"/")?;
        rest.prepend(&base[..len])?;
    }
    walk(layer, &mut rest, look, as_named)
}

/// Writes the path in the view of the program's directory `dir` to `to`. Returns its length and
/// whether the directory is in the upper tree.
fn directory(directory_path: Layer, dir: Fd, to: &mut PathBuf) -> Result<(usize, bool)> {
    let named = match dir {
        AT_FDCWD => path_text::directory(dir, to),
        dir => descriptor_cache::directory(dir, to),
    };
    let len = match named {
        Some(len) => len,
        None if dir == AT_FDCWD || sys::descriptor_flags(dir).is_ok() => {
            return Err(Errno(sys::ENOENT));
        }
        None => return Err(Errno(sys::EBADF)),
    };
    let Some(viewed) = directory_path.view_of_upper(&to[..len]) else {
        reject_covered(directory_path, &to[..len])?;
        return Ok((len, false));
    };
    let (start, viewed) = (len - viewed.len(), viewed.len());
    // The kernel reports the root of the upper tree without a slash.
    if start == len || to[start] != b'/' {
        to[0] = b'/';
        return Ok((1, true));
    }
    to.copy_within(start..len, 0);
    Ok((viewed, true))
}

/// Fails with ENOENT if a directory of the lower tree is no longer at its path in the view: it was
/// renamed or removed while a descriptor or the working directory was in it, and another directory
/// was made there.
fn reject_covered(layer: Layer, path: &[u8]) -> Result<()> {
    if !change_filter::filter(layer).has(PathHash::of(path)) {
        return Ok(());
    }
    let mut name = ViewPath::root(layer);
    path.split(|byte| *byte == b'/')
        .filter(|piece| !piece.is_empty())
        .try_for_each(|piece| name.push(piece))?;
    match directory_state(layer, &name) {
        Ok(DirectoryState::Upper) => Err(Errno(sys::ENOENT)),
        // Whatever else is wrong is found by the walk.
        _ => Ok(()),
    }
}

fn walk(
    layer: Layer,
    rest: &mut PendingPath,
    look: WalkOptions,
    as_named: bool,
) -> Result<Resolved> {
    let mut found = Resolved {
        path: ViewPath::root(layer),
        entry: ViewEntry::Absent,
        last: LastComponent::Name,
        parent: DirectoryState::Lower,
        must_be_directory: false,
        via_upper_symlink: false,
        kernel_agrees: as_named,
    };
    let mut links = 0;
    let mut here = root_state();
    loop {
        rest.skip_slashes();
        let text = rest.text();
        let end = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
        let (piece, behind) = (&text[..end], skip_slashes(&text[end..]));
        if matches!(piece, b"." | b"..") {
            permission_checks::may_pass(&found.path, here)?;
        }
        match piece {
            b"" | b"." | b".." if behind.is_empty() => {
                if piece == b".." {
                    found.path.pop();
                    found.kernel_agrees = false;
                }
                found.last = match piece {
                    b".." => LastComponent::DotDot,
                    b"." => LastComponent::Dot,
                    _ => LastComponent::Root,
                };
                return end_at_directory(found);
            }
            b"." | b".." => {
                if piece == b".." {
                    found.path.pop();
                    found.kernel_agrees = false;
                    here = match cached_state(layer, found.path.hash()) {
                        Some(directory) => directory,
                        None if found.path.is_root() => root_state(),
                        None => directory_state(layer, &found.path)?,
                    };
                }
                rest.skip(end);
                continue;
            }
            _ => {}
        }
        let is_last = behind.is_empty();
        found.must_be_directory = is_last && end < text.len();
        if found.must_be_directory && look.follow && look.allow_trailing_slash {
            // A symbolic link ends in a slash, and what may be created is no directory.
            return Err(Errno(sys::EISDIR));
        }
        found.path.push(piece)?;
        found.parent = here;
        rest.skip(end);
        let behind = skip_slashes(rest.text());
        if let Some((own, len)) = descriptor_paths::own_directory(found.path.as_bytes(), behind)
            && !look.no_symlinks
            && follow_own_directory(layer, rest, own, len)?
        {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno(sys::ELOOP));
            }
            found.kernel_agrees = false;
            found.path.truncate(0);
            here = root_state();
            continue;
        }
        let behind = skip_slashes(rest.text());
        if is_outside(&found.path, behind) {
            if !behind.is_empty() {
                found.path.push_raw(behind)?;
            }
            found.entry = ViewEntry::Outside;
            return Ok(found);
        }
        let hash = found.path.hash();
        if is_last
            && !look.check
            && !found.must_be_directory
            && here != DirectoryState::Upper
            && !change_filter::filter(layer).has(hash)
            && !change_filter::filter(layer).links.has_copies()
        {
            found.entry = ViewEntry::Unchecked;
            return Ok(found);
        }
        if is_last
            && look.unchecked_in_upper
            && !found.must_be_directory
            && here == DirectoryState::Upper
        {
            found.entry = ViewEntry::UncheckedUpper;
            return Ok(found);
        }
        if !is_last && let Some(directory) = cached_state(layer, hash) {
            here = directory;
            continue;
        }
        found.entry = match lookup_entry(&found.path, here) {
            Ok(thing) => thing,
            // The entry may exist even if this process may not look it up: leave the answer to the
            // kernel.
            Err(Errno(sys::EACCES))
                if here != DirectoryState::Upper && !change_filter::filter(layer).has(hash) =>
            {
                if is_last && look.check {
                    return Err(Errno(sys::EACCES));
                }
                if is_last {
                    found.entry = ViewEntry::Unchecked;
                    return Ok(found);
                }
                here = DirectoryState::Lower;
                continue;
            }
            Err(errno) => return Err(errno),
        };
        if look.records {
            match &found.entry {
                ViewEntry::Absent if here != DirectoryState::Upper => {
                    read_recorder::record_absence(&found.path);
                }
                ViewEntry::Lower(stat) if stat.kind() == k::S_IFLNK => {
                    read_recorder::record_link(&found.path, stat);
                }
                _ => {}
            }
        }
        if let ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) | ViewEntry::Upper(stat) =
            found.entry
            && stat.kind() == k::S_IFLNK
            && (!is_last || look.follow || found.must_be_directory && !look.allow_trailing_slash)
        {
            links += 1;
            if links > LINKS_MAX || look.no_symlinks {
                return Err(Errno(sys::ELOOP));
            }
            if is_last && matches!(found.entry, ViewEntry::Lower(_)) {
                kernel_protections::may_follow(&mut found)?;
            }
            found.via_upper_symlink |= matches!(found.entry, ViewEntry::Upper(_));
            found.kernel_agrees = false;
            here = follow_symlink(layer, &mut found, rest)?;
            continue;
        }
        match Resolved::directory(&found) {
            Ok(directory) => {
                if !is_last {
                    permission_checks::may_search(layer, &found)?;
                }
                if is_settled(&found.path, &found.entry) {
                    cache_state(layer, hash, directory);
                }
                here = directory;
            }
            Err(errno) if !is_last => return Err(errno),
            Err(Errno(sys::ENOTDIR)) if found.must_be_directory && !look.allow_trailing_slash => {
                return Err(Errno(sys::ENOTDIR));
            }
            Err(_) => {}
        }
        if is_last {
            return Ok(found);
        }
    }
}

/// True if the state of a directory may be cached.
fn is_settled(path: &ViewPath, directory: &ViewEntry) -> bool {
    match directory {
        ViewEntry::Lower(_) => !change_filter::filter(path.layer()).has(path.hash()),
        // Its permissions are checked each time.
        ViewEntry::Merged(lower, upper) => lower.mode() == upper.mode(),
        _ => true,
    }
}

/// Puts the text of the symbolic link at `found` in front of `rest` and moves to the directory from
/// which it is resolved.
fn follow_symlink(
    layer: Layer,
    found: &mut Resolved,
    rest: &mut PendingPath,
) -> Result<DirectoryState> {
    let mut text = [0u8; PATH_MAX];
    let len = match found.entry {
        ViewEntry::Upper(_) => sys::readlinkat(AT_FDCWD, found.path.upper_address(), &mut text)?,
        _ => kernel_calls::readlink_lower(&found.path, &mut text)?,
    };
    let text = layer.view_of_upper(&text[..len]).unwrap_or(&text[..len]);
    if text.is_empty() {
        return Err(Errno(sys::ENOENT));
    }
    // The slash behind the link is still at the front of `rest`.
    rest.prepend(text)?;
    if text[0] == b'/' {
        found.path.truncate(0);
        return Ok(root_state());
    }
    found.path.pop();
    Ok(found.parent)
}

/// Replaces the name of this process's directory `own`, whose length is `len`, at the front of
/// `rest` by its path in the view. False if it has none: the kernel knows the directory.
#[inline(never)]
fn follow_own_directory(
    layer: Layer,
    rest: &mut PendingPath,
    own: OwnDirectory,
    len: usize,
) -> Result<bool> {
    let mut base = PathBuf::from([0; PATH_MAX + 1]);
    let base_len = match own {
        OwnDirectory::Root => 0,
        OwnDirectory::Descriptor(fd) => match directory(layer, fd, &mut base) {
            Ok((len, _)) => len,
            Err(_) => return Ok(false),
        },
    };
    rest.skip_slashes();
    rest.skip(len);
    rest.prepend(&base[..base_len])?;
    Ok(true)
}

/// State of the root directory, which is in both trees.
fn root_state() -> DirectoryState {
    DirectoryState::Merged
}

/// Ends a walk whose path ends in `.`, `..` or a slash.
fn end_at_directory(mut found: Resolved) -> Result<Resolved> {
    found.must_be_directory = true;
    if found.path.is_root() {
        found.entry = ViewEntry::Merged(
            Stat::lower(&found.path)?,
            Stat::of_path(found.path.upper_address())?,
        );
        return Ok(found);
    }
    found.parent = parent_state(found.path.layer(), &mut found)?;
    found.entry = lookup_entry(&found.path, found.parent)?;
    Resolved::directory(&found)?;
    Ok(found)
}

/// Looks up the state of the parent directory.
pub(super) fn parent_state(layer: Layer, found: &mut Resolved) -> Result<DirectoryState> {
    found.path.with_parent(|parent| directory_state(layer, parent))
}

/// Looks up the state of a directory whose path has no symbolic links.
pub(super) fn directory_state(layer: Layer, name: &ViewPath) -> Result<DirectoryState> {
    let mut here = root_state();
    let mut above = ViewPath::root(layer);
    for piece in name.as_bytes().split(|byte| *byte == b'/').filter(|piece| !piece.is_empty()) {
        above.push(piece)?;
        let hash = above.hash();
        here = match cached_state(layer, hash) {
            Some(directory) => directory,
            None => {
                let found = match lookup_entry(&above, here) {
                    Ok(thing) => thing,
                    Err(Errno(sys::EACCES))
                        if here != DirectoryState::Upper
                            && !change_filter::filter(layer).has(hash) =>
                    {
                        here = DirectoryState::Lower;
                        continue;
                    }
                    Err(errno) => return Err(errno),
                };
                let directory = found.directory()?;
                if is_settled(&above, &found) {
                    cache_state(layer, hash, directory);
                }
                directory
            }
        };
    }
    Ok(here)
}
