//! A path of the view and its path in the upper tree. Both share one buffer: the second is the
//! first with a prefix.

use core::mem::MaybeUninit;

use runahead_abi::PATH_MAX;
use runahead_abi::overlay::{DIRECTORY_MAX, PathHash, UPPER};

use super::layer::Layer;
use crate::sys::{self, Errno, Result};

/// Size in bytes of the largest prefix: the layer's directory and the name of its upper tree.
pub(super) const UPPER_PREFIX_MAX: usize = DIRECTORY_MAX + 1 + UPPER.len();
const BYTES: usize = UPPER_PREFIX_MAX + PATH_MAX + 2;

/// An absolute path without symbolic links, `.`, `..` and repeated slashes.
///
/// Invariant: the bytes up to the NUL behind the path are initialised. The length is 0 for the root
/// directory, whose text is `/`.
pub(super) struct ViewPath {
    bytes: [MaybeUninit<u8>; BYTES],
    prefix: usize,
    len: usize,
    hash: PathHash,
    layer: Layer,
}

impl ViewPath {
    /// Creates the path of the root directory.
    #[inline(always)]
    pub(super) fn root(layer: Layer) -> Self {
        let mut name = ViewPath {
            bytes: [const { MaybeUninit::uninit() }; BYTES],
            prefix: 0,
            len: 0,
            hash: PathHash::ROOT,
            layer,
        };
        let directory = layer.directory();
        name.put(0, directory);
        name.put(directory.len(), b"/");
        name.put(directory.len() + 1, UPPER.as_bytes());
        name.prefix = directory.len() + 1 + UPPER.len();
        name.terminate();
        name
    }

    /// Returns another buffer with this path.
    pub(super) fn copy(&self) -> Result<Self> {
        let mut to = Self::root(self.layer);
        let mut pieces = self.as_bytes().split(|byte| *byte == b'/');
        pieces.try_for_each(|piece| if piece.is_empty() { Ok(()) } else { to.push(piece) })?;
        Ok(to)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (place, byte) in self.bytes[at..][..bytes.len()].iter_mut().zip(bytes) {
            place.write(*byte);
        }
    }

    fn terminate(&mut self) {
        match self.len {
            0 => self.put(self.prefix, b"/\0"),
            len => self.put(self.prefix + len, b"\0"),
        }
    }

    fn initialised(&self, from: usize, to: usize) -> &[u8] {
        let bytes = &self.bytes[from..to];
        // SAFETY: bytes up to the NUL are initialised, and callers ask for no more.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Path as the program sees it.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.initialised(self.prefix, self.prefix + self.len.max(1))
    }

    /// Address of the path without the prefix, for the layer below ([`super::lower_layer`]).
    pub(super) fn lower_address(&self) -> u64 {
        self.bytes[self.prefix..].as_ptr() as u64
    }

    /// Address of the path in the upper tree, for the kernel.
    pub(super) fn upper_address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    /// Path in the upper tree.
    pub(super) fn upper_bytes(&self) -> &[u8] {
        self.initialised(0, self.prefix + self.len.max(1))
    }

    /// True if it is the root directory.
    pub(super) fn is_root(&self) -> bool {
        self.len == 0
    }

    /// Layer whose view the path belongs to.
    pub(super) fn layer(&self) -> Layer {
        self.layer
    }

    pub(super) fn hash(&self) -> PathHash {
        self.hash
    }

    /// Length in bytes; 0 for the root directory.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends the name of an entry.
    pub(super) fn push(&mut self, entry: &[u8]) -> Result<()> {
        if self.len + 1 + entry.len() > PATH_MAX {
            return Err(Errno(sys::ENAMETOOLONG));
        }
        let at = self.prefix + self.len;
        self.put(at, b"/");
        self.put(at + 1, entry);
        self.len += 1 + entry.len();
        self.hash = self.hash.append(b"/").append(entry);
        self.terminate();
        Ok(())
    }

    /// Removes the last component. The parent of the root directory is the root directory.
    pub(super) fn pop(&mut self) {
        let slash = self.as_bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.truncate(slash);
    }

    /// Calls `work` with the parent directory, then restores the path. The path is not the root
    /// directory.
    pub(super) fn with_parent<R>(&mut self, work: impl FnOnce(&mut ViewPath) -> R) -> R {
        let (len, hash) = (self.len, self.hash);
        let slash = self.as_bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let at = self.prefix + slash;
        // The terminator overwrites one byte, or two if the parent is the root directory.
        let mut covered = [0; 2];
        covered.copy_from_slice(self.initialised(at, at + 2));
        self.truncate(slash);
        let result = work(self);
        self.put(at, &covered);
        (self.len, self.hash) = (len, hash);
        self.terminate();
        result
    }

    /// Shortens the path to `len` bytes, which end before a slash or at the end of the path.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len);
        self.terminate();
        let path = self.initialised(self.prefix, self.prefix + self.len);
        self.hash = PathHash::ROOT.append(path);
    }

    /// Last component.
    pub(super) fn file_name(&self) -> &[u8] {
        let text = self.as_bytes();
        let slash = text.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        &text[(slash + 1).min(text.len())..]
    }

    /// Appends `rest` unparsed. The hash is not updated: the path is outside the view.
    pub(super) fn push_raw(&mut self, rest: &[u8]) -> Result<()> {
        if self.len + 1 + rest.len() > PATH_MAX {
            return Err(Errno(sys::ENAMETOOLONG));
        }
        let at = self.prefix + self.len;
        self.put(at, b"/");
        self.put(at + 1, rest);
        self.len += 1 + rest.len();
        self.terminate();
        Ok(())
    }
}
