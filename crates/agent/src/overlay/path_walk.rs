//! Where names of the view lead: through the real tree, the upper tree above it, and what is gone.
//!
//! A directory of the view is [`Directory::Lower`], one of the real tree of which nothing is in the upper tree;
//! [`Directory::Merged`], one that is in both; or [`Directory::Upper`], one that is only in the upper tree, with all below it.
//! Symbolic links are followed here and not by the kernel, which would follow those of one tree into itself.

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;

use super::change_filter;
use super::directory_cache::{DirectoryState, cache_state, cached_state};
use super::kernel_calls::{self, Stat};
use super::layer::Layer;
use super::pending_path::{PendingPath, skip_slashes};
use super::view_path::ViewPath;
use super::whiteouts;
use crate::path_text::{self, PathBuf};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result};

/// Symbolic links that are followed in one name, as by the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// What a name leads to.
#[derive(Clone, Copy)]
pub(super) enum ViewEntry {
    /// Something that the view leaves as it is: in `/proc`, `/sys`, `/dev`, or of a try inside this one.
    Outside,
    /// Whatever is in the real tree, at which nobody has looked: it may also be a symbolic link, or nothing.
    Unchecked,
    /// Whatever is at that name of the upper tree, in a directory that is all in it ([`Look::but_upper`]).
    UncheckedUpper,
    /// Nothing.
    Absent,
    /// This, of the real tree.
    Lower(Stat),
    /// This, which is no directory, or one that is not in the real tree's view.
    Upper(Stat),
    /// A directory of both trees: as it is in the real one, and in the upper one.
    Merged(Stat, Stat),
}

/// Where a name leads.
pub(super) struct Resolved {
    /// Path without symbolic links, but maybe the last.
    pub path: ViewPath,
    pub entry: ViewEntry,
    /// The directory that it is in, if it is not the root.
    pub parent: DirectoryState,
    /// The name has a slash at its end, or means a directory in another way.
    pub must_be_directory: bool,
    /// A symbolic link of the upper tree was on the way.
    pub via_upper_symlink: bool,
    /// The kernel comes to the same path by the program's name for it: there was no symbolic link on the way, no way back up (which it
    /// goes in the tree in which it is), and the name is not seen from a directory in the upper tree.
    pub kernel_agrees: bool,
}

impl Resolved {
    /// How it stands as a directory.
    pub(super) fn directory(directory_state: &Self) -> Result<DirectoryState> {
        match &directory_state.entry {
            ViewEntry::Lower(stat) if stat.is_directory() => Ok(DirectoryState::Lower),
            ViewEntry::Upper(stat) if stat.is_directory() => Ok(DirectoryState::Upper),
            ViewEntry::Merged(..) => Ok(DirectoryState::Merged),
            ViewEntry::Absent => Err(Errno(sys::ENOENT)),
            _ => Err(Errno(sys::ENOTDIR)),
        }
    }

    /// What is there, as the kernel has it.
    pub(super) fn stat(&self) -> Option<&Stat> {
        match &self.entry {
            ViewEntry::Lower(stat) | ViewEntry::Upper(stat) | ViewEntry::Merged(_, stat) => {
                Some(stat)
            }
            _ => None,
        }
    }
}

/// How a name is to be looked up.
#[derive(Clone, Copy)]
pub(super) struct WalkOptions {
    /// A symbolic link at its end is followed.
    pub follow: bool,
    /// What is there is looked at, also where that is the kernel's to say.
    pub check: bool,
    /// It is about the name: a slash at its end means nothing yet.
    pub allow_trailing_slash: bool,
    /// What is there is not looked at in a directory that is all in the upper tree.
    pub unchecked_in_upper: bool,
    /// A symbolic link is not followed anywhere, and is an error (`RESOLVE_NO_SYMLINKS`).
    pub no_symlinks: bool,
}

/// The last piece is not followed, and what is there is looked at.
pub(super) const NO_FOLLOW: WalkOptions = WalkOptions {
    follow: false,
    check: true,
    allow_trailing_slash: false,
    unchecked_in_upper: false,
    no_symlinks: false,
};
/// A name that is to be made, removed or changed: of what it leads to, the caller decides.
pub(super) const ENTRY_NAME: WalkOptions = WalkOptions {
    follow: false,
    check: true,
    allow_trailing_slash: true,
    unchecked_in_upper: false,
    no_symlinks: false,
};
/// What the name leads to is looked at.
pub(super) const FOLLOW: WalkOptions = WalkOptions {
    follow: true,
    check: true,
    allow_trailing_slash: false,
    unchecked_in_upper: false,
    no_symlinks: false,
};

/// Directories that are left as they are, as they are called in the root directory; and that of the tries inside this one.
fn is_outside(name: &ViewPath, rest: &[u8]) -> bool {
    if name.layer().is_nested_try(name.as_bytes()) {
        return true;
    }
    match name.as_bytes() {
        b"/proc" | b"/sys" => true,
        // (POSIX's shared memory is files like any others.)
        b"/dev" => {
            let rest = rest.strip_prefix(b"shm").unwrap_or(b"x");
            !(rest.is_empty() || rest[0] == b'/')
        }
        _ => false,
    }
}

/// Where `path` leads, seen from the directory `dir` of the program's.
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

/// The path of a directory of the program's, as the view has it: its length, and whether it is in the upper tree.
fn directory(directory_path: Layer, dir: Fd, to: &mut PathBuf) -> Result<(usize, bool)> {
    let len = match path_text::directory(dir, to) {
        Some(len) => len,
        None if dir == AT_FDCWD || sys::descriptor_flags(dir).is_ok() => {
            return Err(Errno(sys::ENOENT));
        }
        None => return Err(Errno(sys::EBADF)),
    };
    let Some(viewed) = directory_path.view_of_upper(&to[..len]) else { return Ok((len, false)) };
    let (start, viewed) = (len - viewed.len(), viewed.len());
    // (The root of the upper tree is told without a slash.)
    if start == len || to[start] != b'/' {
        to[0] = b'/';
        return Ok((1, true));
    }
    to.copy_within(start..len, 0);
    Ok((viewed, true))
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
        match piece {
            b"" | b"." | b".." if behind.is_empty() => {
                if piece == b".." {
                    found.path.pop();
                    found.kernel_agrees = false;
                }
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
        found.path.push(piece)?;
        found.parent = here;
        rest.skip(end);
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
            // Who may not look may still be there: the kernel finds it by another way, or refuses.
            Err(Errno(sys::EACCES))
                if here != DirectoryState::Upper && !change_filter::filter(layer).has(hash) =>
            {
                if is_last {
                    found.entry = ViewEntry::Unchecked;
                    return Ok(found);
                }
                here = DirectoryState::Lower;
                continue;
            }
            Err(errno) => return Err(errno),
        };
        if let ViewEntry::Lower(stat) | ViewEntry::Upper(stat) = found.entry
            && stat.kind() == k::S_IFLNK
            && (!is_last || look.follow || found.must_be_directory && !look.allow_trailing_slash)
        {
            links += 1;
            if links > LINKS_MAX || look.no_symlinks {
                return Err(Errno(sys::ELOOP));
            }
            found.via_upper_symlink |= matches!(found.entry, ViewEntry::Upper(_));
            found.kernel_agrees = false;
            here = follow_symlink(layer, &mut found, rest)?;
            continue;
        }
        match Resolved::directory(&found) {
            Ok(directory) => {
                if directory != DirectoryState::Lower || !change_filter::filter(layer).has(hash) {
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

/// The text of the symbolic link at `place` comes in front of the rest; goes to the directory that it is seen from.
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
    // (A slash behind it is still in front of the rest.)
    rest.prepend(text)?;
    if text[0] == b'/' {
        found.path.truncate(0);
        return Ok(root_state());
    }
    found.path.pop();
    Ok(found.parent)
}

/// The root directory is in both trees.
fn root_state() -> DirectoryState {
    DirectoryState::Merged
}

/// What the entry `name` of a directory is that stands so.
pub(super) fn lookup_entry(name: &ViewPath, parent: DirectoryState) -> Result<ViewEntry> {
    let layer = name.layer();
    let there = |stat: Result<Stat>| match stat {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno(sys::ENOENT | sys::ENOTDIR)) => Ok(None),
        Err(errno) => Err(errno),
    };
    let one = |stat: Option<Stat>, of: fn(Stat) -> ViewEntry| stat.map_or(ViewEntry::Absent, of);
    if parent == DirectoryState::Upper {
        return there(Stat::of_path(name.upper_address())).map(|stat| one(stat, ViewEntry::Upper));
    }
    if !change_filter::filter(layer).has(name.hash()) {
        return there(Stat::lower(name)).map(|stat| one(stat, ViewEntry::Lower));
    }
    let upper = match parent {
        DirectoryState::Merged => there(Stat::of_path(name.upper_address()))?,
        _ => None,
    };
    match upper {
        Some(upper) if !upper.is_directory() => return Ok(ViewEntry::Upper(upper)),
        _ if whiteouts::is_whiteout(name) => return Ok(one(upper, ViewEntry::Upper)),
        _ => {}
    }
    let lower = there(Stat::lower(name))?;
    Ok(match (lower, upper) {
        (Some(lower), Some(upper)) if lower.is_directory() => ViewEntry::Merged(lower, upper),
        (lower, None) => one(lower, ViewEntry::Lower),
        (_, upper) => one(upper, ViewEntry::Upper),
    })
}

/// The place is the directory that its name has come to.
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

/// How the directory stands that a place is in.
pub(super) fn parent_state(layer: Layer, found: &mut Resolved) -> Result<DirectoryState> {
    found.path.with_parent(|parent| directory_state(layer, parent))
}

/// How a directory stands whose path is without symbolic links.
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
                let directory = match found {
                    ViewEntry::Lower(stat) if stat.is_directory() => DirectoryState::Lower,
                    ViewEntry::Upper(stat) if stat.is_directory() => DirectoryState::Upper,
                    ViewEntry::Merged(..) => DirectoryState::Merged,
                    ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
                    _ => return Err(Errno(sys::ENOTDIR)),
                };
                if directory != DirectoryState::Lower || !change_filter::filter(layer).has(hash) {
                    cache_state(layer, hash, directory);
                }
                directory
            }
        };
    }
    Ok(here)
}
