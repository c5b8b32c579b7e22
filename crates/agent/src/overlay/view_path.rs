//! A path of the view, and where it stands in the upper tree: one text, whose front can be left out.

use core::mem::MaybeUninit;

use runahead_abi::PATH_MAX;
use runahead_abi::overlay::{HELD_MAX, PathHash, UPPER};

use super::layer::Layer;
use crate::sys::{self, Errno, Result};

/// Bytes of the front.
pub(super) const FRONT_MAX: usize = HELD_MAX + 1 + UPPER.len();
const BYTES: usize = FRONT_MAX + PATH_MAX + 2;

/// An absolute path without symbolic links, `.`, `..` and needless slashes.
///
/// Invariant: of the bytes, those up to the NUL behind the path are initialised; and the path is empty for the root directory,
/// of which the text is `/`.
pub(super) struct Name {
    bytes: [MaybeUninit<u8>; BYTES],
    front: usize,
    len: usize,
    hash: PathHash,
    layer: Layer,
}

impl Name {
    /// The root directory.
    #[inline(always)]
    pub(super) fn root(layer: Layer) -> Self {
        let mut name = Name {
            bytes: [const { MaybeUninit::uninit() }; BYTES],
            front: 0,
            len: 0,
            hash: PathHash::ROOT,
            layer,
        };
        let held = layer.held();
        name.put(0, held);
        name.put(held.len(), b"/");
        name.put(held.len() + 1, UPPER.as_bytes());
        name.front = held.len() + 1 + UPPER.len();
        name.end();
        name
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (place, byte) in self.bytes[at..][..bytes.len()].iter_mut().zip(bytes) {
            place.write(*byte);
        }
    }

    fn end(&mut self) {
        match self.len {
            0 => self.put(self.front, b"/\0"),
            len => self.put(self.front + len, b"\0"),
        }
    }

    fn initialised(&self, from: usize, to: usize) -> &[u8] {
        let bytes = &self.bytes[from..to];
        // SAFETY: up to the end, which is as far as this is asked for, they are.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    /// The path, as programs have it.
    pub(super) fn text(&self) -> &[u8] {
        self.initialised(self.front, self.front + self.len.max(1))
    }

    /// Address of the path, for the layer below ([`super::lower_layer`]).
    pub(super) fn real(&self) -> u64 {
        self.bytes[self.front..].as_ptr() as u64
    }

    /// Address of the path in the upper tree, for the kernel.
    pub(super) fn upper(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    /// The path in the upper tree.
    pub(super) fn upper_text(&self) -> &[u8] {
        self.initialised(0, self.front + self.len.max(1))
    }

    /// It is the root directory.
    pub(super) fn is_root(&self) -> bool {
        self.len == 0
    }

    /// In whose view it is.
    pub(super) fn layer(&self) -> Layer {
        self.layer
    }

    pub(super) fn hash(&self) -> PathHash {
        self.hash
    }

    /// Bytes of the path; 0: the root directory.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Goes to an entry of the directory.
    pub(super) fn push(&mut self, entry: &[u8]) -> Result<()> {
        if self.len + 1 + entry.len() > PATH_MAX {
            return Err(Errno(sys::ENAMETOOLONG));
        }
        let at = self.front + self.len;
        self.put(at, b"/");
        self.put(at + 1, entry);
        self.len += 1 + entry.len();
        self.hash = self.hash.and(b"/").and(entry);
        self.end();
        Ok(())
    }

    /// Goes to the directory above, which that of the root directory is itself.
    pub(super) fn pop(&mut self) {
        let slash = self.text().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.cut(slash);
    }

    /// Works with the directory that this is in, which is not the root directory.
    pub(super) fn above<R>(&mut self, work: impl FnOnce(&mut Name) -> R) -> R {
        let (len, hash) = (self.len, self.hash);
        let slash = self.text().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let at = self.front + slash;
        // The end that is put there covers one byte, or two in the root directory.
        let mut covered = [0; 2];
        covered.copy_from_slice(self.initialised(at, at + 2));
        self.cut(slash);
        let result = work(self);
        self.put(at, &covered);
        (self.len, self.hash) = (len, hash);
        self.end();
        result
    }

    /// Leaves so many bytes of the path, which end in front of a slash or at its end.
    pub(super) fn cut(&mut self, len: usize) {
        self.len = len.min(self.len);
        self.end();
        let path = self.initialised(self.front, self.front + self.len);
        self.hash = PathHash::ROOT.and(path);
    }

    /// The last piece of the path.
    pub(super) fn last(&self) -> &[u8] {
        let text = self.text();
        let slash = text.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        &text[(slash + 1).min(text.len())..]
    }

    /// Appends what is not a path in pieces, to what is not one of ours to change.
    pub(super) fn push_raw(&mut self, rest: &[u8]) -> Result<()> {
        if self.len + 1 + rest.len() > PATH_MAX {
            return Err(Errno(sys::ENAMETOOLONG));
        }
        let at = self.front + self.len;
        self.put(at, b"/");
        self.put(at + 1, rest);
        self.len += 1 + rest.len();
        self.end();
        Ok(())
    }
}
