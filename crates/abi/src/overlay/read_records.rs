//! Records of what a try has read of the lower tree.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

use super::name_origin::{ORIGIN_MAX, Origin};
use super::path_hash::PathHash;

/// Sizes of the tables of names, in slots. A name that finds no slot in one is put into the next,
/// so a try that reads little touches little memory.
const TABLES: [usize; 3] = [1 << 12, 1 << 15, 1 << 18];
const SLOTS: usize = TABLES[0] + TABLES[1] + TABLES[2];
/// Number of slots that are probed in a table.
const PROBES: usize = 32;
/// Limit of all records together, in bytes: about 200,000 records.
const BYTES: usize = 32 << 20;

/// Kind of a read of a name. The value is the first byte of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReadKind {
    /// Contents and metadata of the entry; of a directory, that it is this one.
    Entry = b'R',
    /// The type of the entry: that it exists.
    Existence = b'E',
    /// Contents of a program or script that was executed.
    Execution = b'X',
    /// Target of a symbolic link.
    Link = b'S',
    /// Names in the directory. The size of the record is [`names_hash`] of them.
    Listing = b'L',
    /// The absence of an entry.
    Absence = b'N',
}

/// Returns what a name adds to the hash of a listing. The hash is the sum (modulo 2^64) over the
/// names, in any order.
pub fn names_hash(name: &[u8]) -> u64 {
    PathHash::of(name).bits()
}

/// Read of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRecord<'a> {
    /// Kind of the read.
    pub kind: ReadKind,
    /// The entry at the first read.
    pub origin: Origin,
    /// Absolute path.
    pub path: &'a [u8],
}

impl<'a> ReadRecord<'a> {
    /// Parses a record without its NUL. `None` if it is incomplete: its process ended while it
    /// wrote.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (kind, rest) = text.split_first()?;
        use ReadKind::*;
        let kinds = [Entry, Existence, Execution, Link, Listing, Absence];
        let kind = kinds.into_iter().find(|known| *known as u8 == *kind)?;
        let (origin, path) = Origin::read(rest)?;
        Some(ReadRecord { kind, origin, path })
    }
}

/// Records, and the set of the names that have one. Starts as zeroes.
#[repr(C)]
pub struct ReadRecords {
    /// Number of bytes of records that are in use.
    used: AtomicU64,
    /// Number of reads that found no room.
    omitted: AtomicU64,
    unused: [u64; 6],
    names: [AtomicU64; SLOTS],
    bytes: [AtomicU8; BYTES],
}

impl ReadRecords {
    /// Offset in bytes of the number of bytes that are in use, and of the number of reads without
    /// a record behind it, both native-endian.
    pub const COUNTS_AT: usize = core::mem::offset_of!(ReadRecords, used);
    /// Offset in bytes of the records, each a [`ReadRecord`] and NULs.
    pub const RECORDS_AT: usize = core::mem::offset_of!(ReadRecords, bytes);
    /// Limit of all records together, in bytes.
    pub const RECORDS_MAX: usize = BYTES;

    fn key(kind: ReadKind, path: PathHash) -> u64 {
        path.append(&[0, kind as u8]).bits().max(1)
    }

    fn probed_slots(&self, key: u64) -> impl Iterator<Item = &AtomicU64> {
        let (first, second) = self.names.split_at(TABLES[0]);
        let (second, third) = second.split_at(TABLES[1]);
        [first, second, third].into_iter().flat_map(move |table| {
            let start = (key >> 32) as usize;
            (0..PROBES).map(move |n| &table[(start + n) % table.len()])
        })
    }

    /// True if the read of a name has a record.
    pub fn has(&self, kind: ReadKind, path: PathHash) -> bool {
        let key = Self::key(kind, path);
        let seen = self.probed_slots(key).map(|place| place.load(Relaxed));
        seen.take_while(|seen| *seen != 0).any(|seen| seen == key)
    }

    /// Adds a record, unless there is one. The hash is that of the path.
    pub fn add(&self, hash: PathHash, record: &ReadRecord) {
        let key = Self::key(record.kind, hash);
        for place in self.probed_slots(key) {
            match place.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => return self.append(record),
                Err(seen) if seen == key => return,
                Err(_) => {}
            }
        }
        self.omitted.fetch_add(1, Relaxed);
    }

    fn append(&self, record: &ReadRecord) {
        let mut text = [0u8; ORIGIN_MAX];
        let Some(len) = record.origin.write(record.path, &mut text) else {
            self.omitted.fetch_add(1, Relaxed);
            return;
        };
        // The kind, and a NUL.
        let all = len + 2;
        let at = self.used.fetch_add(all as u64, Relaxed) as usize;
        let Some(place) = at.checked_add(all).and_then(|end| self.bytes.get(at..end)) else {
            self.omitted.fetch_add(1, Relaxed);
            return;
        };
        place[1..].iter().zip(&text[..len]).for_each(|(to, byte)| to.store(*byte, Relaxed));
        // Last, so that a record with a kind is complete.
        place[0].store(record.kind as u8, Release);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;
    use crate::FileId;

    fn records() -> Box<ReadRecords> {
        // SAFETY: atomics, for which zero is valid.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn contents(records: &ReadRecords) -> Vec<u8> {
        let used = (records.used.load(Relaxed) as usize).min(BYTES);
        records.bytes[..used].iter().map(|byte| byte.load(Relaxed)).collect()
    }

    #[test]
    fn each_read_is_recorded_once() {
        let records = records();
        let origin = Origin { file: FileId { device: 1, inode: 2 }, size: 3, ..Origin::default() };
        let add = |kind, path: &'static [u8]| {
            let record = ReadRecord { kind, origin, path };
            records.add(PathHash::of(path), &record);
            record
        };
        let added = [
            add(ReadKind::Entry, b"/a"),
            add(ReadKind::Listing, b"/a"),
            add(ReadKind::Absence, b"/b"),
            add(ReadKind::Existence, b"/"),
        ];
        add(ReadKind::Entry, b"/a");
        let text = contents(&records);
        let read: Vec<_> = text.split(|byte| *byte == 0).filter_map(ReadRecord::parse).collect();
        assert_eq!(read, added);
        assert!(records.has(ReadKind::Listing, PathHash::of(b"/a")));
        assert!(!records.has(ReadKind::Listing, PathHash::of(b"/b")));
        records.bytes[0].store(0, Relaxed);
        let text = contents(&records);
        let rest: Vec<_> = text.split(|byte| *byte == 0).filter_map(ReadRecord::parse).collect();
        assert_eq!(rest, added[1..], "an incomplete record is left out");
    }

    #[test]
    fn reads_without_room_are_counted() {
        let records = records();
        let count = 2 * SLOTS;
        for n in 0..count {
            let path = std::format!("/{n}");
            let record = ReadRecord {
                kind: ReadKind::Entry,
                origin: Origin::default(),
                path: path.as_bytes(),
            };
            records.add(PathHash::of(path.as_bytes()), &record);
        }
        let text = contents(&records);
        let kept = text.split(|byte| *byte == 0).filter_map(ReadRecord::parse).count();
        assert!(kept > SLOTS / 2, "{kept}");
        assert_eq!(kept + records.omitted.load(Relaxed) as usize, count);
    }
}
