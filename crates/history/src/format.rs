//! The bytes of a recorded run.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`VERSION`], little-endian as all numbers outside the text |
//! | 8 | SipHash-1-3 of all that follows |
//! | 4 | length of the text before it was compressed |
//! | rest | the text, as one block of LZ4 |
//!
//! The text is a sequence of postcard values: [`Head`], the paths, the accesses, the programs, and
//! the accesses that were not made again. A path is the length of the prefix that it shares with
//! the one before it, and the rest. Numbers of paths and offsets are differences to those of the
//! previous access.
//!
//! Files may come from anywhere. Allocations are bounded by the length of the input or by the
//! bounds of this crate, and every value is checked.

use std::hash::Hasher;

use runahead_abi::PATH_MAX;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::{
    ACCESSES_MAX, Access, AccessKind, Attributes, CommandKey, Origin, PATH_BYTES_MAX, PATHS_MAX,
    PROGRAMS_MAX, RANGE_MAX, RecordedPath, Run,
};

/// First bytes of such a file.
pub const MAGIC: [u8; 8] = *b"runahist";
/// Version of the layout. Files of other versions, except the one before it, are refused.
pub const VERSION: u32 = 4;
/// Previous version, which has no [`AccessKind::Touched`]. It differs in two bits, so that no
/// flipped bit makes one version of the other.
const VERSION_BEFORE: u32 = 2;
/// Longest file, in bytes.
pub const FILE_MAX: usize = 64 << 20;
/// Longest text, in bytes.
const TEXT_MAX: usize = 96 << 20;

const VERSION_AT: usize = MAGIC.len();
const SUM_AT: usize = VERSION_AT + 4;
const LENGTH_AT: usize = SUM_AT + 8;
const TEXT_AT: usize = LENGTH_AT + 4;

/// Reason that bytes are not a recorded run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// The magic bytes differ.
    #[error("it is not a recorded run")]
    NotOne,
    /// The version is not supported.
    #[error("it is of version {0}, and this runahead reads version {VERSION}")]
    Version(u32),
    /// The checksum is wrong, or bytes are missing.
    #[error("it is truncated or damaged")]
    Damaged,
    /// The checksum is right, but no runahead writes such values.
    #[error("it holds nonsense")]
    Nonsense,
}

#[derive(Serialize, Deserialize)]
struct Head {
    command: CommandKey,
    places: u32,
    accesses: u32,
    programs: u32,
    unused: u32,
    line: Vec<Vec<u8>>,
    directory: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct WirePlace {
    shared: u16,
    rest: Vec<u8>,
    key: [u8; 8],
    attributes: Option<(u64, i64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct WireAccess {
    place: i32,
    what: u8,
}

/// Range that follows a [`WireAccess`] to data.
#[derive(Serialize, Deserialize)]
struct WireRange {
    offset: i64,
    length: u32,
}

/// Codes of kinds without a range, by index. Those with a range follow.
const PLAIN_KINDS: [AccessKind; 5] = [
    AccessKind::Lookup,
    AccessKind::LookupNoFollow,
    AccessKind::List,
    AccessKind::Link,
    AccessKind::Execute,
];
const DATA_CODE: u8 = PLAIN_KINDS.len() as u8;
const TOUCHED_CODE: u8 = DATA_CODE + 1;

/// Encodes a run as the bytes of a file.
pub fn encode(run: &Run) -> Vec<u8> {
    let mut text = Vec::new();
    let mut put = |bytes: Result<Vec<u8>, postcard::Error>| {
        // Cannot fail: plain structures are written to memory.
        text.extend_from_slice(&bytes.unwrap_or_default());
    };
    let count = |n: usize| n as u32;
    put(postcard::to_allocvec(&Head {
        command: run.command,
        places: count(run.paths.len()),
        accesses: count(run.accesses.len()),
        programs: count(run.programs.len()),
        unused: count(run.unused.len()),
        line: run.origin.line.clone(),
        directory: run.origin.directory.clone(),
    }));
    let mut before: &[u8] = &[];
    for place in &run.paths {
        let shared = place.path.iter().zip(before).take_while(|(a, b)| a == b).count();
        let attributes = place.attributes.map(|a| (a.size, a.mtime, a.inode));
        let rest = place.path[shared..].to_owned();
        let key = place.key.to_le_bytes();
        put(postcard::to_allocvec(&WirePlace { shared: shared as u16, rest, key, attributes }));
        before = &place.path;
    }
    let mut at = (0u32, 0u64);
    for access in &run.accesses {
        let place = access.path.wrapping_sub(at.0) as i32;
        at.0 = access.path;
        let known = PLAIN_KINDS.iter().position(|what| *what == access.kind);
        let data = if access.kind.is_reported() { DATA_CODE } else { TOUCHED_CODE };
        put(postcard::to_allocvec(&WireAccess { place, what: known.map_or(data, |n| n as u8) }));
        if let Some((offset, length)) = access.kind.range() {
            let range =
                WireRange { offset: offset.wrapping_sub(at.1) as i64, length: length as u32 };
            put(postcard::to_allocvec(&range));
            at.1 = offset + length;
        }
    }
    let mut before = 0;
    for &program in &run.programs {
        put(postcard::to_allocvec(&program.wrapping_sub(before)));
        before = program;
    }
    let mut before = 0;
    for &(access, runs) in &run.unused {
        put(postcard::to_allocvec(&(access.wrapping_sub(before), runs)));
        before = access;
    }
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&count(text.len()).to_le_bytes());
    bytes.extend_from_slice(&lz4_flex::block::compress(&text));
    let sum = checksum(&bytes[LENGTH_AT..]);
    bytes[SUM_AT..LENGTH_AT].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Encodes as many of the run's first accesses as fit into `max` bytes.
pub fn encode_within(run: &Run, max: usize) -> Vec<u8> {
    let mut bytes = encode(run);
    let mut run = std::borrow::Cow::Borrowed(run);
    while bytes.len() > max && !run.accesses.is_empty() {
        let keep = run.accesses.len() as u128 * max as u128 * 9 / (bytes.len() as u128 * 10);
        let run = run.to_mut();
        run.accesses.truncate(keep as usize);
        let most = keep as u32;
        run.programs.retain(|&before| before <= most);
        run.unused.retain(|&(access, _)| access < most);
        drop_unused_places(run);
        bytes = encode(run);
    }
    bytes
}

fn drop_unused_places(run: &mut Run) {
    let mut new: Vec<Option<u32>> = vec![None; run.paths.len()];
    let mut places = Vec::new();
    for access in &mut run.accesses {
        let old = access.path as usize;
        access.path = *new[old].get_or_insert_with(|| {
            places.push(run.paths[old].clone());
            places.len() as u32 - 1
        });
    }
    run.paths = places;
}

/// SipHash-1-3 of bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Decodes a run.
pub fn decode(bytes: &[u8]) -> Result<Run, FormatError> {
    let whole = |at: usize, end: usize| bytes.get(at..end).ok_or(FormatError::Damaged);
    let start = &bytes[..bytes.len().min(MAGIC.len())];
    if start != &MAGIC[..start.len()] || bytes.is_empty() {
        return Err(FormatError::NotOne);
    }
    let u32_at = |at| whole(at, at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let version = u32_at(VERSION_AT)?;
    if !matches!(version, VERSION | VERSION_BEFORE) {
        return Err(FormatError::Version(version));
    }
    let mut sum = [0; 8];
    sum.copy_from_slice(whole(SUM_AT, LENGTH_AT)?);
    let length = u32_at(LENGTH_AT)? as usize;
    let packed = bytes.get(TEXT_AT..).ok_or(FormatError::Damaged)?;
    if bytes.len() > FILE_MAX || checksum(&bytes[LENGTH_AT..]) != u64::from_le_bytes(sum) {
        return Err(FormatError::Damaged);
    }
    if length > TEXT_MAX {
        return Err(FormatError::Nonsense);
    }
    let text = lz4_flex::block::decompress(packed, length).map_err(|_| FormatError::Nonsense)?;
    parse(&text).ok_or(FormatError::Nonsense)
}

fn parse(text: &[u8]) -> Option<Run> {
    let (head, mut rest) = postcard::take_from_bytes::<Head>(text).ok()?;
    if head.places as usize > PATHS_MAX
        || head.accesses as usize > ACCESSES_MAX
        || head.programs as usize > PROGRAMS_MAX
        || head.unused > head.accesses
    {
        return None;
    }
    let words = head.line.iter().map(Vec::len).fold(head.directory.len(), usize::saturating_add);
    if words > Origin::BYTES_MAX || head.line.len() > Origin::BYTES_MAX {
        return None;
    }
    let origin = Origin { line: head.line, directory: head.directory };
    let mut run = Run { command: head.command, origin, ..Run::default() };
    let mut path_bytes = 0;
    for _ in 0..head.places {
        let (wire, after) = postcard::take_from_bytes::<WirePlace>(rest).ok()?;
        rest = after;
        let before = run.paths.last().map_or(&[][..], |place| &place.path);
        let mut path = before.get(..wire.shared.into())?.to_owned();
        path.extend_from_slice(&wire.rest);
        path_bytes += path.len();
        let sound = path.first() == Some(&b'/') && path.len() <= PATH_MAX && !path.contains(&0);
        if !sound || path_bytes > PATH_BYTES_MAX {
            return None;
        }
        let attributes = wire.attributes;
        let attributes = attributes.map(|(size, mtime, inode)| Attributes { size, mtime, inode });
        run.paths.push(RecordedPath { path, key: u64::from_le_bytes(wire.key), attributes });
    }
    let mut at = (0u32, 0u64);
    for _ in 0..head.accesses {
        let (wire, after) = postcard::take_from_bytes::<WireAccess>(rest).ok()?;
        rest = after;
        at.0 = at.0.wrapping_add(wire.place as u32);
        let what = match wire.what {
            DATA_CODE | TOUCHED_CODE => {
                let (range, after) = postcard::take_from_bytes::<WireRange>(rest).ok()?;
                rest = after;
                let (offset, length) =
                    (at.1.wrapping_add(range.offset as u64), u64::from(range.length));
                let end = offset.checked_add(length).filter(|&end| end <= i64::MAX as u64)?;
                if length == 0 || length > RANGE_MAX {
                    return None;
                }
                at.1 = end;
                match wire.what {
                    DATA_CODE => AccessKind::Data { offset, length },
                    _ => AccessKind::Touched { offset, length },
                }
            }
            known => *PLAIN_KINDS.get(usize::from(known))?,
        };
        if at.0 as usize >= run.paths.len() {
            return None;
        }
        run.accesses.push(Access { path: at.0, kind: what });
    }
    let mut before = 0u32;
    for _ in 0..head.programs {
        let (more, after) = postcard::take_from_bytes::<u32>(rest).ok()?;
        rest = after;
        before = before.checked_add(more).filter(|&all| all <= head.accesses)?;
        run.programs.push(before);
    }
    let mut before = 0u32;
    for n in 0..head.unused {
        let ((more, runs), after) = postcard::take_from_bytes::<(u32, u8)>(rest).ok()?;
        rest = after;
        let access = before.checked_add(more).filter(|&access| access < head.accesses)?;
        if n > 0 && more == 0 {
            return None;
        }
        run.unused.push((access, runs));
        before = access;
    }
    rest.is_empty().then_some(run)
}

/// Makes a file with an arbitrary `text` and a right checksum.
#[cfg(test)]
fn with_text(text: &[u8]) -> Vec<u8> {
    let mut bytes = encode(&Run::default());
    bytes.truncate(LENGTH_AT);
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&lz4_flex::block::compress(text));
    let sum = checksum(&bytes[LENGTH_AT..]);
    bytes[SUM_AT..LENGTH_AT].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
