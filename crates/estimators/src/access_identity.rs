//! Names of accesses: 64-bit identities that the target and its shadow compute independently.
//!
//! An identity is folded over the components of the path by which a program reached an object, so
//! that `openat(dir, "x/y")` and `open("…/dir/x/y")` agree, and so that a shadow can name a file
//! under a directory it could not even open yet. Two names of one file give two identities: that
//! can only cost a hint. Collisions are harmless for the same reason.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of file data covered by one entry of the hint log.
pub const CHUNK_BYTES: u64 = 128 * 1024;

/// The least of file data that is hinted and told, aligned to itself: what a program reads here and
/// there in a large file is fetched and remembered, and not all that lies around it.
pub const BLOCK_BYTES: u64 = CHUNK_BYTES / BLOCKS;
/// Blocks of a chunk.
const BLOCKS: u64 = 8;

/// Some of the [`BLOCK_BYTES`] of a chunk, or all that there is of something else: bit n for the
/// block of number n.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks(pub u8);

impl Blocks {
    /// The whole chunk, or whatever it is that has no blocks.
    pub const ALL: Self = Blocks(u8::MAX);

    /// The blocks that hold bytes of `from..to` of their chunk, which is not empty.
    const fn of(from: u64, to: u64) -> Self {
        let (first, end) = (from / BLOCK_BYTES, to.div_ceil(BLOCK_BYTES));
        Blocks((0xff_u16 << first & 0xff >> (BLOCKS - end)) as u8)
    }
}

/// Entry of the hint log, or some blocks of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Key of the entry.
    pub key: Identity,
    /// Blocks of a chunk.
    pub blocks: Blocks,
}

impl From<Identity> for Piece {
    fn from(key: Identity) -> Self {
        Piece { key, blocks: Blocks::ALL }
    }
}

/// Index of a [`CHUNK_BYTES`]-sized piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkIndex(pub u64);

impl ChunkIndex {
    /// The chunk that holds byte `offset` of a file.
    pub const fn of(offset: u64) -> Self {
        ChunkIndex(offset / CHUNK_BYTES)
    }
}

/// Identity of an access: a hash. Never zero except in [`Identity::UNSET`], so that zero can mean
/// "none".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(transparent)]
pub struct Identity(u64);

/// Lowest bit of the part of an identity that [`Identity::place`] returns.
const PLACE_SHIFT: u32 = 7;
/// Number of values of [`Identity::place`].
pub const PLACES: u64 = 1 << 20;

const ROOT: u64 = 0x9e37_79b9_7f4a_7c15;
const CWD: u64 = 0xd1b5_4a32_d192_ed03;
const INHERITED: u64 = 0x8cb9_2ba7_2f3d_8dd7;
const CHUNK: u64 = 0xa24b_aed4_963e_e407;
const MEMORY: u64 = 0x2545_f491_4f6c_dd1d;
const LISTING: u64 = 0x9fb2_1c65_1e98_df25;
const LINK: u64 = 0xc2b2_ae3d_27d4_eb4f;
const TOLD: u64 = 0x8a5c_d789_635d_2dff;
const TOLD_BLOCK: u64 = 0x1216_55b4_5f08_9ee1;

/// Finaliser of splitmix64: every input bit reaches every output bit.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Folds one more word into a hash.
pub const fn mixed(hash: u64, word: u64) -> u64 {
    mix(hash ^ mix(word))
}

impl Identity {
    /// The root directory, where absolute paths start.
    pub const ROOT: Identity = Identity(ROOT);
    /// The working directory that the program was started in.
    pub const START_CWD: Identity = Identity(CWD);

    /// Identity of an unused table entry; names no access.
    pub const UNSET: Identity = Identity(0);

    /// From a stored value; zero becomes some identity rather than none.
    pub const fn from_raw(raw: u64) -> Self {
        Identity(if raw == 0 { 1 } else { raw })
    }

    /// The value to store.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Identity of a process's own memory (`runahead_abi::swapped_memory::MEMORY`).
    pub const fn of_memory() -> Self {
        Identity::ROOT.derive(MEMORY)
    }

    const fn derive(self, salt: u64) -> Self {
        Identity::from_raw(mix(self.0 ^ salt))
    }

    /// A descriptor that the program was given when it started.
    pub const fn inherited(fd: u32) -> Self {
        Identity(INHERITED).derive(fd as u64 + 1)
    }

    /// The object reached from `self` by `path`; an absolute path starts at the root. A `..` is a
    /// component like any other: see [`Parents::walk`].
    pub fn join(self, path: &[u8]) -> Self {
        self.fold(path, |at, component| at.component(component))
    }

    fn fold(self, path: &[u8], step: impl Fn(Self, &[u8]) -> Self) -> Self {
        let mut at = if path.first() == Some(&b'/') { Identity::ROOT } else { self };
        let mut rest = path;
        while !rest.is_empty() {
            let end = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
            let component = &rest[..end];
            if !component.is_empty() && component != b"." {
                at = step(at, component);
            }
            rest = rest.get(end + 1..).unwrap_or(&[]);
        }
        at
    }

    fn component(self, name: &[u8]) -> Self {
        let mut h = self.0 ^ (name.len() as u64).wrapping_mul(ROOT);
        for piece in name.chunks(8) {
            let mut word = [0u8; 8];
            word[..piece.len()].copy_from_slice(piece);
            h = (h ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
            h ^= h >> 32;
        }
        Identity::from_raw(mix(h))
    }

    /// The log key of one chunk of this file's data. Those of one file are
    /// [neighbours](Identity::place) of each other, so that a large file takes few pages of the
    /// log.
    pub const fn chunk(self, chunk: ChunkIndex) -> Self {
        let key = self.derive(CHUNK.wrapping_add(chunk.0)).0;
        let place = self.place().wrapping_add(chunk.0) & (PLACES - 1);
        Identity::from_raw(key & !((PLACES - 1) << PLACE_SHIFT) | place << PLACE_SHIFT)
    }

    /// The chunks of `length` bytes of this file from `offset`, or of one byte, and which blocks of
    /// each these are.
    pub fn pieces(self, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
        let end = offset.saturating_add(length.max(1));
        (ChunkIndex::of(offset).0..=ChunkIndex::of(end - 1).0).map(move |chunk| {
            let start = chunk * CHUNK_BYTES;
            let blocks = Blocks::of(offset.saturating_sub(start), CHUNK_BYTES.min(end - start));
            Piece { key: self.chunk(ChunkIndex(chunk)), blocks }
        })
    }

    /// The first of [`Identity::pieces`].
    pub fn first_piece(self, offset: u64, length: u64) -> Piece {
        let from = offset % CHUNK_BYTES;
        let to = from.saturating_add(length.max(1)).min(CHUNK_BYTES);
        Piece { key: self.chunk(ChunkIndex::of(offset)), blocks: Blocks::of(from, to) }
    }

    /// Index of this identity in a table of up to [`PLACES`] places.
    pub const fn place(self) -> u64 {
        self.0 >> PLACE_SHIFT & (PLACES - 1)
    }

    /// The log key of this directory's entries.
    pub const fn listing(self) -> Self {
        self.derive(LISTING)
    }

    /// The log key of this symbolic link's target.
    pub const fn link(self) -> Self {
        self.derive(LINK)
    }

    /// The log key that says that an access of this sort has been told.
    pub const fn told(self, sort: u32) -> Self {
        self.derive(TOLD.wrapping_add(sort as u64))
    }

    /// The log key that says that one piece of [`TOLD_BYTES`] of this file's data has been told.
    pub const fn told_block(self, block: u64) -> Self {
        self.derive(TOLD_BLOCK.wrapping_add(block))
    }
}

/// Entries of [`Parents`]; a power of two.
const PARENTS: usize = 1 << 14;

/// Parent of each directory that was walked into, so that `..` leads back to the same name.
///
/// Walks over trees (fts(3)) go up that way. A direct-mapped cache, written without locks: a lost
/// or torn entry costs hints. Where a symbolic link was followed, `..` leads elsewhere than here.
#[repr(C)]
pub struct Parents {
    slots: [(AtomicU64, AtomicU64); PARENTS],
}

impl Parents {
    fn slot(&self, child: Identity) -> &(AtomicU64, AtomicU64) {
        &self.slots[child.0 as usize & (PARENTS - 1)]
    }

    /// The object reached from `base` by `path`, with `..` going up where the way is known.
    pub fn walk(&self, base: Identity, path: &[u8]) -> Identity {
        base.fold(path, |at, component| match component {
            b".." => {
                let (child, parent) = self.slot(at);
                match child.load(Relaxed) == at.0 {
                    true => Identity::from_raw(parent.load(Relaxed)),
                    false => at.component(component),
                }
            }
            _ => at.component(component),
        })
    }

    /// A directory was opened by `path` from `base`.
    pub fn opened(&self, base: Identity, path: &[u8]) {
        let trimmed = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
        let path = &path[..trimmed];
        let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let last = &path[cut..];
        if matches!(last, b"" | b"." | b"..") {
            return;
        }
        let parent = self.walk(base, &path[..cut]);
        let slot = self.slot(parent.component(last));
        slot.1.store(parent.0, Relaxed);
        slot.0.store(parent.component(last).0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    #[test]
    fn dot_dot_leads_back_where_the_way_is_known() {
        // SAFETY: Parents is atomics throughout, for which all-zero bytes are a valid value.
        let parents: Box<Parents> = unsafe { Box::new_zeroed().assume_init() };
        let cwd = Identity::START_CWD;
        let (net, phy) = (cwd.join(b"net"), cwd.join(b"net/phy"));
        assert_ne!(parents.walk(phy, b".."), net, "not known yet");
        parents.opened(cwd, b"net");
        parents.opened(cwd, b"net/phy/");
        assert_eq!(parents.walk(phy, b".."), net);
        assert_eq!(parents.walk(phy, b"../../net/./phy/x"), phy.join(b"x"));
        assert_eq!(parents.walk(phy, b"/etc"), Identity::ROOT.join(b"etc"));
        parents.opened(Identity::ROOT, b"/etc");
        assert_eq!(parents.walk(Identity::ROOT.join(b"etc"), b".."), Identity::ROOT);
    }

    #[test]
    fn a_path_names_the_same_object_however_it_is_cut() {
        let base = Identity::START_CWD;
        let whole = base.join(b"src/net/core.c");
        assert_eq!(whole, base.join(b"src").join(b"net").join(b"core.c"));
        assert_eq!(whole, base.join(b"./src//net/./core.c"));
        assert_eq!(base.join(b"/etc/passwd"), Identity::ROOT.join(b"etc/passwd"));
    }

    #[test]
    fn chunks_of_one_file_lie_together() {
        let file = Identity::START_CWD.join(b"file");
        let keys: Vec<_> = (0..5000).map(|n| file.chunk(ChunkIndex(n))).collect();
        let steps = keys.windows(2).map(|pair| (pair[1].place() - pair[0].place()) & (PLACES - 1));
        assert!(steps.into_iter().all(|step| step == 1));
        let distinct: std::collections::HashSet<_> = keys.iter().map(|key| key.raw()).collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn pieces_are_the_blocks_that_a_range_touches() {
        let masks = |offset, length| {
            let pieces = Identity::ROOT.pieces(offset, length);
            pieces.map(|piece| piece.blocks.0).collect::<std::vec::Vec<_>>()
        };
        assert_eq!(masks(0, 1), [1]);
        assert_eq!(masks(BLOCK_BYTES - 1, 2), [3]);
        assert_eq!(masks(CHUNK_BYTES - 1, 1), [0x80]);
        assert_eq!(masks(CHUNK_BYTES - 1, 2), [0x80, 1]);
        assert_eq!(masks(3 * BLOCK_BYTES, 2 * CHUNK_BYTES), [0xf8, 0xff, 0x07]);
        assert_eq!(masks(5, 0), [1], "an empty range is where it begins");
        assert_eq!(masks(u64::MAX - 1, u64::MAX), [0x80], "no file has that");
        for (offset, length) in [(0, 1), (77, CHUNK_BYTES), (9 * BLOCK_BYTES, 3), (u64::MAX - 3, 9)]
        {
            let first = Identity::ROOT.first_piece(offset, length);
            assert_eq!(Identity::ROOT.pieces(offset, length).next(), Some(first));
        }
    }

    #[test]
    fn different_objects_have_different_names() {
        let base = Identity::START_CWD;
        let file = base.join(b"a");
        let keys = [
            base.raw(),
            file.raw(),
            base.join(b"b").raw(),
            base.join(b"a/a").raw(),
            base.join(b"aa").raw(),
            base.join(b"a\0").raw(),
            base.join(b"..").raw(),
            file.listing().raw(),
            file.link().raw(),
            file.chunk(ChunkIndex(0)).raw(),
            file.chunk(ChunkIndex(1)).raw(),
            file.told(1).raw(),
            file.told(2).raw(),
            file.told_block(0).raw(),
            file.told_block(1).raw(),
            Identity::inherited(0).raw(),
            Identity::inherited(1).raw(),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert_ne!(*a, 0);
            for b in &keys[i + 1..] {
                assert_ne!(a, b);
            }
        }
    }
}
