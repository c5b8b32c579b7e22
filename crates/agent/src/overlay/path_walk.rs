//! Where names of the view lead: through the real tree, the upper tree above it, and what is gone.
//!
//! A directory of the view is [`Directory::Lower`], one of the real tree of which nothing is in the upper tree;
//! [`Directory::Merged`], one that is in both; or [`Directory::Upper`], one that is only in the upper tree, with all below it.
//! Symbolic links are followed here and not by the kernel, which would follow those of one tree into itself.

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;

use super::change_filter;
use super::directory_cache::{Directory, known, remember};
use super::kernel_calls::{self, Stat};
use super::layer::Layer;
use super::pending_path::{Rest, skip_slashes};
use super::view_path::Name;
use super::whiteouts;
use crate::path_text::{self, PathBuf};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result};

/// Symbolic links that are followed in one name, as by the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// What a name leads to.
#[derive(Clone, Copy)]
pub(super) enum Thing {
    /// Something that the view leaves as it is: in `/proc`, `/sys`, `/dev`, or of a try inside this one.
    Outside,
    /// Whatever is in the real tree, at which nobody has looked: it may also be a symbolic link, or nothing.
    Unlooked,
    /// Whatever is at that name of the upper tree, in a directory that is all in it ([`Look::but_upper`]).
    UnlookedUpper,
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
pub(super) struct Place {
    /// Path without symbolic links, but maybe the last.
    pub name: Name,
    pub thing: Thing,
    /// The directory that it is in, if it is not the root.
    pub parent: Directory,
    /// The name has a slash at its end, or means a directory in another way.
    pub is_directory: bool,
    /// A symbolic link of the upper tree was on the way.
    pub by_upper_link: bool,
    /// The kernel comes to the same path by the program's name for it: there was no symbolic link on the way, no way back up (which it
    /// goes in the tree in which it is), and the name is not seen from a directory in the upper tree.
    pub as_named: bool,
}

impl Place {
    /// How it stands as a directory.
    pub(super) fn directory(&self) -> Result<Directory> {
        match &self.thing {
            Thing::Lower(stat) if stat.is_directory() => Ok(Directory::Lower),
            Thing::Upper(stat) if stat.is_directory() => Ok(Directory::Upper),
            Thing::Merged(..) => Ok(Directory::Merged),
            Thing::Absent => Err(Errno(sys::ENOENT)),
            _ => Err(Errno(sys::ENOTDIR)),
        }
    }

    /// What is there, as the kernel has it.
    pub(super) fn stat(&self) -> Option<&Stat> {
        match &self.thing {
            Thing::Lower(stat) | Thing::Upper(stat) | Thing::Merged(_, stat) => Some(stat),
            _ => None,
        }
    }
}

/// How a name is to be looked up.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// A symbolic link at its end is followed.
    pub follow: bool,
    /// What is there is looked at, also where that is the kernel's to say.
    pub thing: bool,
    /// It is about the name: a slash at its end means nothing yet.
    pub name: bool,
    /// What is there is not looked at in a directory that is all in the upper tree.
    pub but_upper: bool,
    /// A symbolic link is not followed anywhere, and is an error (`RESOLVE_NO_SYMLINKS`).
    pub no_links: bool,
}

/// The last piece is not followed, and what is there is looked at.
pub(super) const ITSELF: Look =
    Look { follow: false, thing: true, name: false, but_upper: false, no_links: false };
/// A name that is to be made, removed or changed: of what it leads to, the caller decides.
pub(super) const NAME: Look =
    Look { follow: false, thing: true, name: true, but_upper: false, no_links: false };
/// What the name leads to is looked at.
pub(super) const FOLLOWED: Look =
    Look { follow: true, thing: true, name: false, but_upper: false, no_links: false };

/// Directories that are left as they are, as they are called in the root directory; and that of the tries inside this one.
fn is_outside(name: &Name, rest: &[u8]) -> bool {
    if name.layer().keeps(name.text()) {
        return true;
    }
    match name.text() {
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
pub(super) fn find(layer: Layer, dir: Fd, path: &[u8], look: Look) -> Result<Place> {
    if path.is_empty() {
        return Err(Errno(sys::ENOENT));
    }
    let mut rest = Rest::new();
    let viewed = layer.viewed(path);
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
fn directory(layer: Layer, dir: Fd, to: &mut PathBuf) -> Result<(usize, bool)> {
    let len = match path_text::directory(dir, to) {
        Some(len) => len,
        None if dir == AT_FDCWD || sys::fcntl(dir, k::F_GETFD, 0).is_ok() => {
            return Err(Errno(sys::ENOENT));
        }
        None => return Err(Errno(sys::EBADF)),
    };
    let Some(viewed) = layer.viewed(&to[..len]) else { return Ok((len, false)) };
    let (start, viewed) = (len - viewed.len(), viewed.len());
    // (The root of the upper tree is told without a slash.)
    if start == len || to[start] != b'/' {
        to[0] = b'/';
        return Ok((1, true));
    }
    to.copy_within(start..len, 0);
    Ok((viewed, true))
}

fn walk(layer: Layer, rest: &mut Rest, look: Look, as_named: bool) -> Result<Place> {
    let mut place = Place {
        name: Name::root(layer),
        thing: Thing::Absent,
        parent: Directory::Lower,
        is_directory: false,
        by_upper_link: false,
        as_named,
    };
    let mut links = 0;
    let mut here = root();
    loop {
        rest.skip_slashes();
        let text = rest.text();
        let end = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
        let (piece, behind) = (&text[..end], skip_slashes(&text[end..]));
        match piece {
            b"" | b"." | b".." if behind.is_empty() => {
                if piece == b".." {
                    place.name.pop();
                    place.as_named = false;
                }
                return at_directory(place);
            }
            b"." | b".." => {
                if piece == b".." {
                    place.name.pop();
                    place.as_named = false;
                    here = match known(layer, place.name.hash()) {
                        Some(directory) => directory,
                        None if place.name.is_root() => root(),
                        None => again(layer, &place.name)?,
                    };
                }
                rest.skip(end);
                continue;
            }
            _ => {}
        }
        let is_last = behind.is_empty();
        place.is_directory = is_last && end < text.len();
        place.name.push(piece)?;
        place.parent = here;
        rest.skip(end);
        let behind = skip_slashes(rest.text());
        if is_outside(&place.name, behind) {
            if !behind.is_empty() {
                place.name.push_raw(behind)?;
            }
            place.thing = Thing::Outside;
            return Ok(place);
        }
        let hash = place.name.hash();
        if is_last
            && !look.thing
            && !place.is_directory
            && here != Directory::Upper
            && !change_filter::filter(layer).has(hash)
        {
            place.thing = Thing::Unlooked;
            return Ok(place);
        }
        if is_last && look.but_upper && !place.is_directory && here == Directory::Upper {
            place.thing = Thing::UnlookedUpper;
            return Ok(place);
        }
        if !is_last && let Some(directory) = known(layer, hash) {
            here = directory;
            continue;
        }
        place.thing = match thing(&place.name, here) {
            Ok(thing) => thing,
            // Who may not look may still be there: the kernel finds it by another way, or refuses.
            Err(Errno(sys::EACCES))
                if here != Directory::Upper && !change_filter::filter(layer).has(hash) =>
            {
                if is_last {
                    place.thing = Thing::Unlooked;
                    return Ok(place);
                }
                here = Directory::Lower;
                continue;
            }
            Err(errno) => return Err(errno),
        };
        if let Thing::Lower(stat) | Thing::Upper(stat) = place.thing
            && stat.kind() == k::S_IFLNK
            && (!is_last || look.follow || place.is_directory && !look.name)
        {
            links += 1;
            if links > LINKS_MAX || look.no_links {
                return Err(Errno(sys::ELOOP));
            }
            place.by_upper_link |= matches!(place.thing, Thing::Upper(_));
            place.as_named = false;
            here = follow(layer, &mut place, rest)?;
            continue;
        }
        match place.directory() {
            Ok(directory) => {
                if directory != Directory::Lower || !change_filter::filter(layer).has(hash) {
                    remember(layer, hash, directory);
                }
                here = directory;
            }
            Err(errno) if !is_last => return Err(errno),
            Err(Errno(sys::ENOTDIR)) if place.is_directory && !look.name => {
                return Err(Errno(sys::ENOTDIR));
            }
            Err(_) => {}
        }
        if is_last {
            return Ok(place);
        }
    }
}

/// The text of the symbolic link at `place` comes in front of the rest; goes to the directory that it is seen from.
fn follow(layer: Layer, place: &mut Place, rest: &mut Rest) -> Result<Directory> {
    let mut text = [0u8; PATH_MAX];
    let len = match place.thing {
        Thing::Upper(_) => sys::readlinkat(AT_FDCWD, place.name.upper(), &mut text)?,
        _ => kernel_calls::read_link(&place.name, &mut text)?,
    };
    let text = layer.viewed(&text[..len]).unwrap_or(&text[..len]);
    if text.is_empty() {
        return Err(Errno(sys::ENOENT));
    }
    // (A slash behind it is still in front of the rest.)
    rest.prepend(text)?;
    if text[0] == b'/' {
        place.name.cut(0);
        return Ok(root());
    }
    place.name.pop();
    Ok(place.parent)
}

/// The root directory is in both trees.
fn root() -> Directory {
    Directory::Merged
}

/// What the entry `name` of a directory is that stands so.
pub(super) fn thing(name: &Name, parent: Directory) -> Result<Thing> {
    let layer = name.layer();
    let there = |stat: Result<Stat>| match stat {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno(sys::ENOENT | sys::ENOTDIR)) => Ok(None),
        Err(errno) => Err(errno),
    };
    let one = |stat: Option<Stat>, of: fn(Stat) -> Thing| stat.map_or(Thing::Absent, of);
    if parent == Directory::Upper {
        return there(Stat::of(name.upper())).map(|stat| one(stat, Thing::Upper));
    }
    if !change_filter::filter(layer).has(name.hash()) {
        return there(Stat::real(name)).map(|stat| one(stat, Thing::Lower));
    }
    let upper = match parent {
        Directory::Merged => there(Stat::of(name.upper()))?,
        _ => None,
    };
    match upper {
        Some(upper) if !upper.is_directory() => return Ok(Thing::Upper(upper)),
        _ if whiteouts::is_gone(name) => return Ok(one(upper, Thing::Upper)),
        _ => {}
    }
    let lower = there(Stat::real(name))?;
    Ok(match (lower, upper) {
        (Some(lower), Some(upper)) if lower.is_directory() => Thing::Merged(lower, upper),
        (lower, None) => one(lower, Thing::Lower),
        (_, upper) => one(upper, Thing::Upper),
    })
}

/// The place is the directory that its name has come to.
fn at_directory(mut place: Place) -> Result<Place> {
    place.is_directory = true;
    if place.name.is_root() {
        place.thing = Thing::Merged(Stat::real(&place.name)?, Stat::of(place.name.upper())?);
        return Ok(place);
    }
    place.parent = again_above(place.name.layer(), &mut place)?;
    place.thing = thing(&place.name, place.parent)?;
    place.directory()?;
    Ok(place)
}

/// How the directory stands that a place is in.
pub(super) fn again_above(layer: Layer, place: &mut Place) -> Result<Directory> {
    place.name.above(|parent| again(layer, parent))
}

/// How a directory stands whose path is without symbolic links.
pub(super) fn again(layer: Layer, name: &Name) -> Result<Directory> {
    let mut here = root();
    let mut above = Name::root(layer);
    for piece in name.text().split(|byte| *byte == b'/').filter(|piece| !piece.is_empty()) {
        above.push(piece)?;
        let hash = above.hash();
        here = match known(layer, hash) {
            Some(directory) => directory,
            None => {
                let found = match thing(&above, here) {
                    Ok(thing) => thing,
                    Err(Errno(sys::EACCES))
                        if here != Directory::Upper && !change_filter::filter(layer).has(hash) =>
                    {
                        here = Directory::Lower;
                        continue;
                    }
                    Err(errno) => return Err(errno),
                };
                let directory = match found {
                    Thing::Lower(stat) if stat.is_directory() => Directory::Lower,
                    Thing::Upper(stat) if stat.is_directory() => Directory::Upper,
                    Thing::Merged(..) => Directory::Merged,
                    Thing::Absent => return Err(Errno(sys::ENOENT)),
                    _ => return Err(Errno(sys::ENOTDIR)),
                };
                if directory != Directory::Lower || !change_filter::filter(layer).has(hash) {
                    remember(layer, hash, directory);
                }
                directory
            }
        };
    }
    Ok(here)
}
