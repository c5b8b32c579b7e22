//! State that the processes of a try share (`docs/guide/try.md`): the try's directory, the format
//! of its files, and the filter of changed paths.
//!
//! Contents of the directory [`Overlay::directory`]:
//!
//! | name | contents |
//! |---|---|
//! | [`UPPER`] | the upper tree: mirrors absolute paths without symbolic links |
//! | [`CHANGES`] | records, each an [`Origin`] and a NUL |
//! | [`TEMPORARY`] | copies that are not complete yet |
//! | [`LINKS`] | the index: a name for each copy of a file with several names |
//! | [`FILTER`] | a [`ChangeFilter`], locked and mapped by each process |
//! | [`nested_try::TRIES`] | nested tries, once there was one |
//!
//! The upper tree has what was written or made, and the directories above it. [`CHANGES`] has a
//! record for each name when it is first made or its file first copied up. A record after a
//! [`WHITEOUT`] hides the name of the lower tree and everything below it from then on.
//!
//! The name of a copy in [`LINKS`] has the device and the inode number of its original in the lower
//! tree ([`write_index_name`]). All names of the original are in the view names of that copy.
//!
//! Each agent locks [`FILTER`] (flock(2), shared) before it maps it. The lock lasts as long as the
//! mapping, so the file cannot be locked alone while a process of the try has an agent.
//!
//! Invariant: where [`ChangeFilter::has`] denies a path, nothing at or below it was changed. The
//! exception is a path below a directory that only [`UPPER`] has.

mod inode_origins;
mod link_table;
mod name_origin;
pub mod nested_try;
mod path_hash;
mod read_records;
pub mod try_calls;
mod whiteouts;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use inode_origins::InodeOrigins;
pub use link_table::LinkTable;
pub use name_origin::{ORIGIN_MAX, Origin};
pub use path_hash::PathHash;
pub use read_records::{ReadKind, ReadRecord, ReadRecords, names_hash};
pub use whiteouts::WhiteoutSet;

use crate::FileId;

/// Size in bytes of the longest path of a try's directory, and its NUL.
pub const DIRECTORY_MAX: usize = 512;
/// Limit of nested tries, the outermost included.
pub const LAYERS_MAX: usize = 4;

/// Name of the upper tree.
pub const UPPER: &str = "upper";
/// First byte of a record that is a whiteout.
pub const WHITEOUT: u8 = b'-';
/// Name of the file of records.
pub const CHANGES: &str = "changes";
/// Name of the directory of incomplete copies.
pub const TEMPORARY: &str = "temporary";
/// Name of the directory of the index.
pub const LINKS: &str = "links";
/// Name of the file of the filter.
pub const FILTER: &str = "filter";

/// Size in bytes of a name in [`LINKS`].
pub const INDEX_NAME_BYTES: usize = 33;

/// Writes the name in [`LINKS`] of the copy of `file`: both numbers, in hexadecimal.
pub fn write_index_name(file: FileId, to: &mut [u8; INDEX_NAME_BYTES]) {
    let mut at = 0;
    for number in [file.device, file.inode] {
        if at > 0 {
            to[at] = b'-';
            at += 1;
        }
        for digit in (0..16).rev() {
            to[at] = b"0123456789abcdef"[(number >> (4 * digit)) as usize & 15];
            at += 1;
        }
    }
}

/// Reads a name in [`LINKS`].
pub fn read_index_name(name: &str) -> Option<FileId> {
    let (device, inode) = name.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(FileId { device: number(device)?, inode: number(inode)? })
}

/// Bits of [`Overlay::flags`].
pub mod flag {
    /// The processes belong to a try.
    pub const ON: u64 = 1 << 0;
    /// Sockets outside the try cannot be reached.
    pub const NO_NETWORK: u64 = 1 << 1;
    /// Opens for writing are not redirected, for tests.
    pub const PLANT_WRITES: u64 = 1 << 2;
    /// Reads are not recorded, for tests.
    pub const PLANT_READS: u64 = 1 << 3;
}

/// Configuration of the agents of a try.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Overlay {
    /// Bits of [`flag`]; 0 if the processes belong to no try.
    pub flags: u64,
    /// Sixth argument, ignored by the kernel, of calls of [`try_calls::Class::WithToken`] that
    /// agents make.
    pub token: u64,
    /// Rights that Landlock denies the commands of nested tries.
    pub rights: nested_try::LandlockRights,
    /// Length of `directory` in bytes.
    pub directory_len: u64,
    /// Absolute path of the try's directory, without symbolic links.
    pub directory: [u8; DIRECTORY_MAX],
}

impl Overlay {
    /// Configuration of processes that belong to no try.
    pub const NONE: Overlay = Overlay {
        flags: 0,
        token: 0,
        rights: nested_try::LandlockRights::NONE,
        directory_len: 0,
        directory: [0; DIRECTORY_MAX],
    };
}

const FILTER_WORDS: usize = 1 << 17;

/// Filter of the paths at or below which something may have changed.
///
/// It is a bit per hash, so it can also report other paths.
#[repr(C)]
pub struct ChangeFilter {
    /// Generation of cached states of directories: grows when a directory is removed or renamed.
    generation: AtomicU64,
    /// Nonzero once something was changed.
    any_change: AtomicU64,
    /// Nonzero if sockets outside a nested try cannot be reached.
    network_refused: AtomicU64,
    /// Nonzero if a copy has another owner than its original, or lacks attributes of chattr(1).
    copies_without_rights: AtomicU64,
    /// Number of execs that have begun, and whose new program has no agent yet.
    execs: AtomicU64,
    /// Nonzero once a program was executed without an agent.
    native_execs: AtomicU64,
    unused: [u64; 506],
    bits: [AtomicU64; FILTER_WORDS],
    /// Originals of copies.
    pub inodes: InodeOrigins,
    /// Files of the lower tree that have several names.
    pub links: LinkTable,
    /// Names of the lower tree that are hidden, with everything below them.
    pub whiteouts: WhiteoutSet,
    /// Records of what was read of the lower tree.
    pub reads: ReadRecords,
}

impl ChangeFilter {
    /// Size in bytes of the file that holds it, which starts as zeroes.
    pub const BYTES: usize = size_of::<ChangeFilter>();
    /// Offset in bytes of [`ChangeFilter::reads`] in the file.
    pub const READS_AT: usize = core::mem::offset_of!(ChangeFilter, reads);
    /// Offset in bytes of the number of execs in the file, before the mark of native ones.
    pub const EXECS_AT: usize = core::mem::offset_of!(ChangeFilter, execs);

    fn bit(&self, path: PathHash) -> (&AtomicU64, u64) {
        let bits = path.bits();
        (&self.bits[(bits >> 6) as usize % FILTER_WORDS], 1 << (bits & 63))
    }

    /// True if something at or below the path may have been changed.
    pub fn has(&self, path: PathHash) -> bool {
        let (word, bit) = self.bit(path);
        word.load(Relaxed) & bit != 0
    }

    /// Adds a path, before something at or below it is changed.
    pub fn add(&self, path: PathHash) {
        let (word, bit) = self.bit(path);
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
        self.any_change.store(1, Relaxed);
    }

    /// True if nothing was changed yet.
    pub fn is_empty(&self) -> bool {
        self.any_change.load(Relaxed) == 0
    }

    /// Notes that a copy has not all rights of its original.
    pub fn note_copy_without_rights(&self) {
        self.copies_without_rights.store(1, Relaxed);
    }

    /// True after [`ChangeFilter::note_copy_without_rights`].
    pub fn has_copies_without_rights(&self) -> bool {
        self.copies_without_rights.load(Relaxed) != 0
    }

    /// Notes an exec before it is made. In between the old program and an agent in the new one, the
    /// process has no mapping of this memory.
    pub fn begin_exec(&self, is_followed: bool) {
        match is_followed {
            true => _ = self.execs.fetch_add(1, Relaxed),
            false => self.native_execs.store(1, Relaxed),
        }
    }

    /// Notes that the new program has an agent, or that the exec has failed.
    pub fn end_exec(&self) {
        let _ = self.execs.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
    }

    /// Marks sockets outside the try as unreachable.
    pub fn refuse_network(&self) {
        self.network_refused.store(1, Relaxed);
    }

    /// True after [`ChangeFilter::refuse_network`].
    pub fn refuses_network(&self) -> bool {
        self.network_refused.load(Relaxed) != 0
    }

    /// Generation for which cached states of directories are valid.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Invalidates cached states of directories, after one was removed or renamed.
    pub fn invalidate_directories(&self) {
        self.generation.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn written_index_names_are_read_back() {
        let mut name = [0; INDEX_NAME_BYTES];
        for file in
            [FileId { device: 0, inode: 1 }, FileId { device: 8 << 32 | 1, inode: u64::MAX }]
        {
            write_index_name(file, &mut name);
            assert_eq!(read_index_name(core::str::from_utf8(&name).unwrap()), Some(file));
        }
        assert_eq!([read_index_name("1"), read_index_name("x-1")], [None; 2]);
    }

    #[test]
    fn filter_has_no_false_negatives_and_few_false_positives() {
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
