//! Layers of the view: the session's try, then each try nested inside it.
//!
//! The directory of each layer lies inside that of the layer below (`runahead_abi::overlay`). Its
//! lower tree is what the layer below shows. The lowest layer's lower tree is the kernel's file
//! system.

use core::sync::atomic::{AtomicUsize, Ordering::*};

use runahead_abi::overlay::nested_try::{DIRECTORY as NESTED_DIRECTORY, TRIES};
use runahead_abi::overlay::{DIRECTORY_MAX, LAYERS_MAX, LINKS, UPPER};

use crate::session::{self, Session};
use crate::sys::{self, Errno, Result};
use crate::thread_owned::Owned;

/// Index of a layer: the lowest is 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Layer(usize);

/// Path of the top layer's directory. The directory of every other layer is a prefix of it.
static DIRECTORY: Owned<[u8; DIRECTORY_MAX]> = Owned::new([0; DIRECTORY_MAX]);
/// Length in bytes of each layer's prefix of [`DIRECTORY`].
static LENGTHS: [AtomicUsize; LAYERS_MAX] = [const { AtomicUsize::new(0) }; LAYERS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Layer {
    /// Layer of the session's own try.
    pub(super) const LOWEST: Layer = Layer(0);

    /// Layer whose view the program has.
    pub(super) fn top() -> Self {
        Layer(COUNT.load(Relaxed).saturating_sub(1))
    }

    /// Layer that shows this layer's lower tree; `None` for the lowest.
    pub(super) fn below(self) -> Option<Self> {
        self.0.checked_sub(1).map(Layer)
    }

    /// Index, counted from the lowest layer.
    pub(super) fn index(self) -> usize {
        self.0
    }

    /// Absolute path of the layer's directory.
    pub(super) fn directory(self) -> &'static [u8] {
        // SAFETY: bytes behind the top layer's length are only written before a layer has them.
        let all = unsafe { &*DIRECTORY.as_ptr() };
        &all[..LENGTHS[self.0].load(Relaxed).min(DIRECTORY_MAX)]
    }

    /// Secret sixth argument by which the seccomp filter recognizes the agent's attribute calls.
    pub(super) fn token(self) -> u64 {
        session::get().map_or(0, |session| session.config.overlay.token)
    }

    /// Bits of `runahead_abi::overlay::flag`.
    pub(super) fn flags(self) -> u64 {
        session::get().map_or(0, |session| session.config.overlay.flags)
    }

    /// Path in the view of `path` as the kernel reports it, if that is in this layer's upper tree.
    pub(super) fn strip_upper(self, path: &[u8]) -> Option<&[u8]> {
        let rest = path.strip_prefix(self.directory())?.strip_prefix(b"/")?;
        let rest = rest.strip_prefix(UPPER.as_bytes())?;
        match rest {
            [] => Some(b"/"),
            [b'/', ..] => Some(rest),
            _ => None,
        }
    }

    /// Path in the view of `path` as the kernel reports it, if that is in the upper tree of this or
    /// a lower layer.
    pub(super) fn view_of_upper(self, path: &[u8]) -> Option<&[u8]> {
        let mut layer = Some(self);
        while let Some(one) = layer {
            if let Some(viewed) = one.strip_upper(path) {
                return Some(viewed);
            }
            layer = one.below();
        }
        None
    }

    /// True if `path`, as the kernel reports it, is that of a copy in the index.
    pub(super) fn is_in_index(self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.directory()).and_then(|rest| rest.strip_prefix(b"/"));
        let rest = rest.and_then(|rest| rest.strip_prefix(LINKS.as_bytes()));
        matches!(rest, Some([b'/', ..]))
    }

    /// True if the path is the directory of the tries nested in this one, or below it.
    pub(super) fn is_nested_try(self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.directory()).and_then(|rest| rest.strip_prefix(b"/"));
        let rest = rest.and_then(|rest| rest.strip_prefix(TRIES.as_bytes()));
        matches!(rest, Some([] | [b'/', ..]))
    }
}

/// Sets up the layers of this process. `suffix` is what follows the session's directory in the path
/// of the top layer's directory.
pub(super) fn start(session: &Session, suffix: &[u8]) -> Result<()> {
    let overlay = &session.config.overlay;
    let directory =
        overlay.directory.get(..overlay.directory_len as usize).ok_or(Errno(sys::EINVAL))?;
    // SAFETY: the program has not started.
    let all = unsafe { &mut *DIRECTORY.get() };
    all[..directory.len()].copy_from_slice(directory);
    LENGTHS[0].store(directory.len(), Relaxed);
    COUNT.store(1, Relaxed);
    let mut rest = suffix;
    while !rest.is_empty() {
        let end = nested_prefix_len(rest).ok_or(Errno(sys::EINVAL))?;
        push(&rest[..end])?;
        rest = &rest[end..];
    }
    Ok(())
}

/// Adds a top layer, whose directory is that of the current top layer with `suffix` appended. The
/// process has one thread.
pub(super) fn push(suffix: &[u8]) -> Result<Layer> {
    let count = COUNT.load(Relaxed);
    let top = Layer::top().directory().len();
    if count == LAYERS_MAX || top + suffix.len() >= DIRECTORY_MAX {
        return Err(Errno(sys::ENAMETOOLONG));
    }
    // SAFETY: see [`Layer::directory`]; the process has one thread.
    let all = unsafe { &mut *DIRECTORY.get() };
    all[top..top + suffix.len()].copy_from_slice(suffix);
    LENGTHS[count].store(top + suffix.len(), Relaxed);
    COUNT.store(count + 1, Relaxed);
    Ok(Layer(count))
}

/// Removes the top layer.
pub(super) fn pop() {
    COUNT.fetch_sub(1, Relaxed);
}

/// Length in bytes of the prefix of `path` that leads from a try's directory to that of one nested
/// in it. `path` starts with a slash.
pub(super) fn nested_prefix_len(path: &[u8]) -> Option<usize> {
    let rest = path.strip_prefix(b"/")?.strip_prefix(TRIES.as_bytes())?.strip_prefix(b"/")?;
    let name = rest.iter().position(|byte| *byte == b'/')?;
    let behind = rest[name + 1..].strip_prefix(NESTED_DIRECTORY.as_bytes())?;
    let is_whole = name > 0 && !matches!(&rest[..name], b"." | b"..");
    let ends = matches!(behind, [] | [b'/', ..]);
    (is_whole && ends).then_some(path.len() - behind.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_a_path_are_its_layers() {
        let path = b"/tries/abc/held/tries/d/held";
        assert_eq!(nested_prefix_len(path), Some(15));
        assert_eq!(nested_prefix_len(&path[15..]), Some(13));
        let others = [
            "",
            "/",
            "/tries",
            "/tries/a",
            "/tries//held",
            "/tries/../held",
            "/tries/a/upper",
            "/tries/a/heldx",
            "tries/a/held",
        ];
        assert!(others.iter().all(|path| nested_prefix_len(path.as_bytes()).is_none()));
    }
}
