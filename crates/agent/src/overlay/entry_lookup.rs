//! Lookup of one name in the lower tree, the upper tree, the whiteouts and the index.

use super::directory_cache::DirectoryState;
use super::kernel_calls::Stat;
use super::view_entry::ViewEntry;
use super::view_path::ViewPath;
use super::{change_filter, link_index, whiteouts};
use crate::sys::{self, Errno, Result};

/// Looks up `name` in a directory that is lower, upper or merged as `parent` says.
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
    let lower_file = |stat: Stat| match link_index::has_copy(layer, &stat) {
        true => ViewEntry::Indexed(stat),
        false => ViewEntry::Lower(stat),
    };
    if !change_filter::filter(layer).has(name.hash()) {
        return there(Stat::lower(name)).map(|stat| stat.map_or(ViewEntry::Absent, lower_file));
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
        (lower, None) => lower.map_or(ViewEntry::Absent, lower_file),
        (_, upper) => one(upper, ViewEntry::Upper),
    })
}
