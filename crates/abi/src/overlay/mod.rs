//! What the processes of a try share (`docs/guide/try.md`): where the state lies that is held apart, how it is written, and which paths
//! have anything changed.
//!
//! Below the directory [`Overlay::held`]:
//!
//! | name | what it is |
//! |---|---|
//! | [`UPPER`] | mirrors absolute paths without symbolic links: what was written or made, and the directories above it |
//! | [`CHANGES`] | an [`Origin`] and a NUL for each name when it is first made, or its file first copied; behind a [`GONE`] for each name of the real tree from when on it is not there in the view, and nothing below it |
//! | [`TEMPORARY`] | copies that are not complete yet |
//! | [`FILTER`] | a [`Filter`] |
//! | [`nested_try::TRIES`] | tries inside this one, once there was one |
//!
//! Invariant: where [`Filter::has`] denies a path, nothing at or below it was changed, unless a directory above it is in
//! [`UPPER`] and not in the real tree's view.

mod inode_origins;
mod name_origin;
pub mod nested_try;
pub mod try_calls;
mod whiteouts;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use inode_origins::InodeOrigins;
pub use name_origin::{ORIGIN_MAX, Origin};
pub use whiteouts::WhiteoutSet;

/// Bytes of the path of the directory that is held apart.
pub const DIRECTORY_MAX: usize = 512;
/// A try, one inside it, and so on.
pub const LAYERS_MAX: usize = 4;

/// See the module's text.
pub const UPPER: &str = "upper";
/// See the module's text.
pub const WHITEOUT: u8 = b'-';
/// See the module's text.
pub const CHANGES: &str = "changes";
/// See the module's text.
pub const TEMPORARY: &str = "temporary";
/// See the module's text.
pub const FILTER: &str = "filter";

/// Bits of [`Overlay::flags`].
pub mod flag {
    /// Processes are of a try.
    pub const ON: u64 = 1 << 0;
    /// Sockets outside of the try are not to be reached.
    pub const NO_NETWORK: u64 = 1 << 1;
    /// For tests: what is opened for writing is opened where it is.
    pub const PLANT_WRITES: u64 = 1 << 2;
}

/// What agents are told of the try that their processes are of.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Overlay {
    /// See [`flag`]; 0: they are of none.
    pub flags: u64,
    /// Sixth argument, without meaning to the kernel, of calls of [`try_calls::Class::Attribute`] that agents make.
    pub token: u64,
    /// What Landlock is to deny commands of tries inside this one.
    pub rights: nested_try::LandlockRights,
    /// Bytes of `held`.
    pub directory_len: u64,
    /// Absolute path of the directory that is held apart, without symbolic links.
    pub directory: [u8; DIRECTORY_MAX],
}

impl Overlay {
    /// Of processes that are of no try.
    pub const NONE: Overlay = Overlay {
        flags: 0,
        token: 0,
        rights: nested_try::LandlockRights::NONE,
        directory_len: 0,
        directory: [0; DIRECTORY_MAX],
    };
}

/// Hash of a path, made piece by piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathHash(u64);

impl PathHash {
    /// Of the empty path, which stands for the root directory.
    pub const ROOT: PathHash = PathHash(0xcbf2_9ce4_8422_2325);

    /// Of the path that has so many bytes more at its end (FNV-1a).
    pub fn append(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        PathHash(bytes.iter().fold(self.0, step))
    }

    /// Of a whole path; that of the root directory is `/`.
    pub fn of(path: &[u8]) -> Self {
        if path == b"/" { Self::ROOT } else { Self::ROOT.append(path) }
    }

    /// All bits of it, each of which depends on all of the path.
    pub fn bits(self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

const FILTER_WORDS: usize = 1 << 17;

/// Which paths may have anything changed at or below them; by their hashes, so that it may also say so of others.
#[repr(C)]
pub struct ChangeFilter {
    /// Counts what takes away what was known of directories: one is gone, or has another name.
    generation: AtomicU64,
    /// Not 0 once anything was changed.
    any_change: AtomicU64,
    /// Not 0 where sockets outside of the try are not to be reached, as it is inside another one.
    network_refused: AtomicU64,
    unused: [u64; 509],
    bits: [AtomicU64; FILTER_WORDS],
    /// What copies were made of.
    pub inodes: InodeOrigins,
    /// Names of the real tree that are not there in the view, and nothing below them.
    pub whiteouts: WhiteoutSet,
}

impl ChangeFilter {
    /// Bytes of the file that holds it, at first zeroes.
    pub const BYTES: usize = size_of::<ChangeFilter>();

    fn bit(&self, path: PathHash) -> (&AtomicU64, u64) {
        let bits = path.bits();
        (&self.bits[(bits >> 6) as usize % FILTER_WORDS], 1 << (bits & 63))
    }

    /// Something at or below the path may have been changed.
    pub fn has(&self, path: PathHash) -> bool {
        let (word, bit) = self.bit(path);
        word.load(Relaxed) & bit != 0
    }

    /// Something at or below the path is about to be changed.
    pub fn add(&self, path: PathHash) {
        let (word, bit) = self.bit(path);
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
        self.any_change.store(1, Relaxed);
    }

    /// Nothing was changed yet.
    pub fn is_empty(&self) -> bool {
        self.any_change.load(Relaxed) == 0
    }

    /// Sockets outside of the try are not to be reached from here on.
    pub fn refuse_network(&self) {
        self.network_refused.store(1, Relaxed);
    }

    /// See [`Filter::shut`].
    pub fn refuses_network(&self) -> bool {
        self.network_refused.load(Relaxed) != 0
    }

    /// What is known of directories is known as of this.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// A directory is gone, or has another name.
    pub fn invalidate_directories(&self) {
        self.generation.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn hashes_are_made_piece_by_piece() {
        assert_eq!(PathHash::of(b"/a/bc"), PathHash::ROOT.append(b"/a").append(b"/bc"));
        assert_eq!(PathHash::of(b"/"), PathHash::ROOT);
        assert_ne!(PathHash::of(b"/a"), PathHash::of(b"/b"));
    }

    #[test]
    fn a_filter_forgets_nothing_and_claims_little() {
        // SAFETY: atomics, for which zero is valid.
        let filter: std::boxed::Box<ChangeFilter> =
            unsafe { std::boxed::Box::new_zeroed().assume_init() };
        assert!(filter.is_empty());
        let path = |n: u32| PathHash::of(std::format!("/some/directory/file{n}").as_bytes());
        (0..10_000).for_each(|n| filter.add(path(n)));
        assert!((0..10_000).all(|n| filter.has(path(n))));
        let claimed = (10_000..20_000).filter(|&n| filter.has(path(n))).count();
        assert!(claimed < 100, "{claimed} of 10,000 others");
    }
}
