//! Directories, the names in them, and what they are remembered by.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The directory that `path` is in, and its name there.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&b| b == b'/')?;
    Some((&path[..slash.max(1)], &path[slash + 1..]))
}

/// `name` in `directory`.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Arc<[u8]> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat().into()
}

/// Returns the first name of `path` below `directory`.
pub(super) fn first_below<'a>(directory: &[u8], path: &'a [u8]) -> &'a [u8] {
    let rest = path.strip_prefix(directory).unwrap_or_default();
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    rest.split(|&b| b == b'/').next().unwrap_or_default()
}

/// Returns the suffix from the last dot on; empty if the dot is the first character.
pub(super) fn suffix(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|&b| b == b'.') {
        Some(dot) if dot > 0 => &name[dot..],
        _ => b"",
    }
}

pub(super) fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_below_a_directory_is_found_there() {
        for directory in [&b"/"[..], b"/a", b"/a/b.c"] {
            let path = below(directory, b"x.so");
            assert_eq!(split(&path), Some((directory, &b"x.so"[..])));
            assert_eq!(first_below(directory, &path), b"x.so");
            assert_eq!(first_below(directory, &below(&path, b"y")), b"x.so");
        }
        assert_eq!(first_below(b"/a", b""), b"");
    }
}
