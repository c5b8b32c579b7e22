//! The layers of the view: the try of which the session is, and, in a command of a try inside it, that one, and so on.
//!
//! Each layer is held apart below a directory in that of the layer below it (`runahead_abi::overlay`), and its *real tree* is what
//! that layer shows. The lowest one's is the kernel's.

use core::sync::atomic::{AtomicUsize, Ordering::*};

use runahead_abi::overlay::nested_try::{self, TRIES};
use runahead_abi::overlay::{DIRECTORY_MAX, LAYERS_MAX, UPPER};

use crate::session::{self, Session};
use crate::sys::{self, Errno, Result};
use crate::thread_owned::Owned;

/// One of them: the lowest is 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Layer(usize);

/// Path of the directory in which the highest is held apart; that of each other is the front of it.
static DIRECTORY: Owned<[u8; DIRECTORY_MAX]> = Owned::new([0; DIRECTORY_MAX]);
/// How much of it.
static LENGTHS: [AtomicUsize; LAYERS_MAX] = [const { AtomicUsize::new(0) }; LAYERS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Layer {
    /// That of the session.
    pub(super) const LOWEST: Layer = Layer(0);

    /// The one whose view the program has.
    pub(super) fn top() -> Self {
        Layer(COUNT.load(Relaxed).saturating_sub(1))
    }

    /// The one that shows this one's real tree.
    pub(super) fn below(self) -> Option<Self> {
        self.0.checked_sub(1).map(Layer)
    }

    /// Counted from the lowest.
    pub(super) fn index(self) -> usize {
        self.0
    }

    /// Absolute path of the directory that is held apart.
    pub(super) fn directory(self) -> &'static [u8] {
        // SAFETY: bytes behind the end of the highest layer's are written only, and only before there is one that they are of.
        let all = unsafe { &*DIRECTORY.as_ptr() };
        &all[..LENGTHS[self.0].load(Relaxed).min(DIRECTORY_MAX)]
    }

    /// By which the kernel lets calls pass that change attributes.
    pub(super) fn token(self) -> u64 {
        session::get().map_or(0, |session| session.config.overlay.token)
    }

    /// See `runahead_abi::overlay::flag`.
    pub(super) fn flags(self) -> u64 {
        session::get().map_or(0, |session| session.config.overlay.flags)
    }

    /// What `path`, as the kernel tells it, is called in this layer's view, if it is in its upper tree.
    pub(super) fn strip_upper(self, path: &[u8]) -> Option<&[u8]> {
        let rest = path.strip_prefix(self.directory())?.strip_prefix(b"/")?;
        let rest = rest.strip_prefix(UPPER.as_bytes())?;
        match rest {
            [] => Some(b"/"),
            [b'/', ..] => Some(rest),
            _ => None,
        }
    }

    /// What `path`, as the kernel tells it, is called in the view, if it is in the upper tree of this or a lower layer.
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

    /// The path is that of the directory in which tries inside this one are kept, or below that.
    pub(super) fn is_nested_try(self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.directory()).and_then(|rest| rest.strip_prefix(b"/"));
        let rest = rest.and_then(|rest| rest.strip_prefix(TRIES.as_bytes()));
        matches!(rest, Some([] | [b'/', ..]))
    }
}

/// The layers of this process: that of the session, and those inside it, of which the highest is held apart in the directory
/// that is `behind` the session's.
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
        let end = nested_try::nested_prefix_len(rest).ok_or(Errno(sys::EINVAL))?;
        push(&rest[..end])?;
        rest = &rest[end..];
    }
    Ok(())
}

/// One more layer, which is held apart in the directory that is so behind the highest one's. The process has one thread.
pub(super) fn push(suffix: &[u8]) -> Result<Layer> {
    let count = COUNT.load(Relaxed);
    let top = Layer::top().directory().len();
    if count == LAYERS_MAX || top + suffix.len() >= DIRECTORY_MAX {
        return Err(Errno(sys::ENAMETOOLONG));
    }
    // SAFETY: see `held`; there is nobody else who could do the same.
    let all = unsafe { &mut *DIRECTORY.get() };
    all[top..top + suffix.len()].copy_from_slice(suffix);
    LENGTHS[count].store(top + suffix.len(), Relaxed);
    COUNT.store(count + 1, Relaxed);
    Ok(Layer(count))
}

/// The highest layer is not there any more.
pub(super) fn pop() {
    COUNT.fetch_sub(1, Relaxed);
}
