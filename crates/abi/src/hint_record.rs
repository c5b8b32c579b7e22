//! A hint on its way from an agent to the supervisor.

use core::mem::{offset_of, size_of};

/// Longest path in a hint, in bytes (`PATH_MAX`, limits.h).
pub const PATH_MAX: usize = 4096;

/// Kind of access that a hint discloses. No kind can ask for more than a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum HintKind {
    /// A name will be looked up and its attributes read.
    Lookup = 1,
    /// The entries of a directory will be read.
    Listing = 2,
    /// A range of a regular file will be read.
    Data = 3,
    /// The target of a symbolic link will be read.
    Link = 4,
    /// A file will be executed: it, its interpreter and its libraries will be read. The key is the
    /// log key to be marked done when the program's own file has been read, as it stands. It should
    /// differ from that of the file's name, which a lookup marks done sooner.
    Program = 5,
    /// Withdraws what was disclosed ([`DISCLOSURE`]). A run from [`DISCLOSED`] on withdraws what
    /// was disclosed in it and in all before it; a shadow's run only its own. It goes through the
    /// same ring as that run's disclosures.
    Cancel = 6,
}

impl HintKind {
    fn from_raw(raw: u32) -> Option<Self> {
        use HintKind::{Cancel, Data, Link, Listing, Lookup, Program};
        [Lookup, Listing, Data, Link, Program, Cancel].into_iter().find(|k| *k as u32 == raw)
    }
}

/// First run number of the process's own disclosures (in [`Header::run`] and in the hint log).
/// These are newer than any shadow's, so they never stray. The next run begins when the process
/// withdraws its disclosures.
pub const DISCLOSED: u32 = 0xf000_0000;

/// Flag: the last component of the path, if a symbolic link, is itself wanted.
pub const NO_FOLLOW: u32 = 1 << 0;
/// The shadow did not know how long the file is: reading on to its end is likely.
pub const LENGTH_UNKNOWN: u32 = 1 << 1;
/// The shadow's course depends on the answer: run again when it is there.
pub const STEERS: u32 = 1 << 2;
/// The target itself waits for this now.
pub const DEMAND: u32 = 1 << 3;
/// The program looks up most of the names that it finds in directories: look these up as well.
pub const EXPAND_NAMES: u32 = 1 << 4;
/// The program reads most of the directories that it finds in directories: read these as well.
pub const EXPAND_LISTINGS: u32 = 1 << 5;
/// Levels of directories below this one that may be expanded without asking again.
pub const EXPAND_LEVELS_MASK: u32 = 7 * EXPAND_LEVELS_ONE;
/// Unit of [`EXPAND_LEVELS_MASK`]: a level.
pub const EXPAND_LEVELS_ONE: u32 = 1 << 8;
/// The program itself says that it will want this: it was disclosed, by the target or in a shadow.
pub const DISCLOSURE: u32 = 1 << 11;
/// The target waits for this, and has started the read itself: nothing is left to be done about it,
/// and its path is the root's.
pub const STARTED: u32 = 1 << 12;

/// The hint is for the process's own memory, which is swapped out ([`crate::swapped_memory`]); its
/// path is the root's.
pub const OF_MEMORY: u32 = 1 << 13;

/// The target has made this access, for the first time. It is told to be recorded, and nothing is
/// to be read ([`crate::agent_config::tell`]).
pub const RECORDED: u32 = 1 << 16;
/// The range of a [`RECORDED`] access was mapped. The blocks used are told later, or never.
pub const MAPPED: u32 = 1 << 17;
/// The [`RECORDED`] access used a mapping here.
pub const TOUCHED: u32 = 1 << 18;
/// The [`TOUCHED`] access used a mapping in some of the [`PARTS`] blocks of
/// [`runahead_estimators::access_identity::BLOCK_BYTES`] from the offset on. Bits of
/// [`Header::position`] say in which, the lowest bit for the first block.
pub const PARTLY: u32 = 1 << 19;
/// Blocks that a [`PARTLY`] record has bits for.
pub const PARTS: u64 = u64::BITS as u64;

/// The fixed part of a record; the absolute path follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// A [`HintKind`].
    pub kind: u32,
    /// The run that hinted; 0 is the target, [`DISCLOSED`] and on what it disclosed.
    pub run: u32,
    /// Accesses that the target will have made before this one, counted from its start.
    pub position: u64,
    /// Identity of the object (not yet that of a chunk or listing).
    pub key: u64,
    /// First byte wanted, for [`HintKind::Data`].
    pub offset: u64,
    /// Bytes wanted, for [`HintKind::Data`].
    pub length: u64,
    /// [`NO_FOLLOW`] and its like.
    pub flags: u32,
    /// Bytes of path that follow.
    pub path_len: u32,
}

const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(HEADER_BYTES == 48 && offset_of!(Header, path_len) == 44);

/// Bytes in the largest record.
pub const MAX_RECORD: usize = HEADER_BYTES + PATH_MAX;

impl Header {
    /// The bytes to put into a ring.
    pub fn as_bytes(&self) -> &[u8; HEADER_BYTES] {
        // SAFETY: Header is repr(C) integers without padding (asserted above), so its memory is
        // HEADER_BYTES initialised bytes, and u8 has no alignment to violate.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes(core::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| bytes[at + i]));
        Header {
            kind: u32_at(offset_of!(Header, kind)),
            run: u32_at(offset_of!(Header, run)),
            position: u64_at(offset_of!(Header, position)),
            key: u64_at(offset_of!(Header, key)),
            offset: u64_at(offset_of!(Header, offset)),
            length: u64_at(offset_of!(Header, length)),
            flags: u32_at(offset_of!(Header, flags)),
            path_len: u32_at(offset_of!(Header, path_len)),
        }
    }
}

/// A record that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Kind of the hint.
    pub kind: HintKind,
    /// The fixed part of the record.
    pub header: Header,
    /// Absolute, without NUL.
    pub path: &'a [u8],
}

/// Fault of bytes that are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// Shorter than its fixed part, or of another length than it says.
    Length,
    /// A kind of hint that does not exist.
    Kind,
    /// Empty, relative, or with a NUL in it.
    Path,
    /// A range that no file can have.
    Range,
}

impl<'a> Record<'a> {
    /// Checks `bytes`. Whatever passes is safe to act on: acting on a hint only ever reads.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let (fixed, path) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(RecordError::Length)?;
        let header = Header::from_bytes(fixed);
        if path.len() != header.path_len as usize {
            return Err(RecordError::Length);
        }
        let kind = HintKind::from_raw(header.kind).ok_or(RecordError::Kind)?;
        if path.first() != Some(&b'/') || path.contains(&0) {
            return Err(RecordError::Path);
        }
        match header.offset.checked_add(header.length) {
            Some(end) if end <= i64::MAX as u64 => Ok(Record { kind, header, path }),
            _ => Err(RecordError::Range),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn bytes(header: Header, path: &[u8]) -> Vec<u8> {
        [&header.as_bytes()[..], path].concat()
    }

    const GOOD: Header = Header {
        kind: HintKind::Data as u32,
        run: 3,
        position: 9,
        key: 5,
        offset: 4096,
        length: 100,
        flags: STEERS,
        path_len: 2,
    };

    #[test]
    fn what_goes_in_comes_out() {
        let raw = bytes(GOOD, b"/x");
        let record = Record::parse(&raw).expect("valid");
        assert_eq!((record.header, record.path, record.kind), (GOOD, &b"/x"[..], HintKind::Data));
    }

    #[test]
    fn every_kind_passes_and_no_other() {
        let kind = |raw| {
            let raw = bytes(Header { kind: raw, ..GOOD }, b"/x");
            Record::parse(&raw).ok().map(|record| record.kind)
        };
        use HintKind::{Cancel, Data, Link, Listing, Lookup, Program};
        let known = [Lookup, Listing, Data, Link, Program, Cancel].map(Some);
        assert_eq!([1, 2, 3, 4, 5, 6].map(kind), known);
        assert_eq!([0, 7, u32::MAX].map(kind), [None; 3]);
    }

    #[test]
    fn every_kind_of_nonsense_has_its_error() {
        let parse = |h, p: &[u8]| Record::parse(&bytes(h, p)).map(|_| ()).unwrap_err();
        assert_eq!(Record::parse(b"short").map(|_| ()).unwrap_err(), RecordError::Length);
        assert_eq!(parse(GOOD, b"/xy"), RecordError::Length);
        assert_eq!(parse(Header { kind: 77, ..GOOD }, b"/x"), RecordError::Kind);
        assert_eq!(parse(GOOD, b"xx"), RecordError::Path);
        assert_eq!(parse(GOOD, b"/\0"), RecordError::Path);
        assert_eq!(parse(Header { offset: u64::MAX, ..GOOD }, b"/x"), RecordError::Range);
    }
}
