//! Comparison of what a try has read of the lower tree with what is there now.
//!
//! Contents are compared by the file's identity, its type, its size and the time of its last
//! modification. Permissions, owners, the number of links and access times are not compared. Of a
//! directory that was only examined, the identity is compared, and of one that was listed the
//! names.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use runahead_abi::overlay::{
    ChangeFilter, FILTER, ORIGIN_MAX, Origin, ReadKind, ReadRecord, ReadRecords, names_hash,
};
use serde::Serialize;

use crate::recorded_origins::{current_metadata, origin};
use crate::{Result, io_error};

/// Bits of the type in `st_mode`, and its value for a directory (stat(3type)).
const TYPE_BITS: u64 = 0o170_000;
const DIRECTORY_TYPE: u64 = 0o040_000;

/// Directories whose contents change all the time without a meaning for a command.
const NOT_COMPARED_BELOW: [&str; 4] = ["/run", "/var/run", "/var/log", "/var/cache"];
/// Cache of the dynamic loader, which each program reads.
const LOADER_CACHE: &str = "/etc/ld.so.cache";
/// End of the names of files to which shells and other programs append what a user types.
const HISTORY_SUFFIX: &[u8] = b"_history";

/// Name in the try's directory of records that are about to take the place of those in [`FILTER`].
const NEXT: &str = "reads.next";

/// Name that a try has read and that another process has changed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaleRead {
    /// Absolute path.
    pub path: PathBuf,
    /// Description of the change.
    pub change: &'static str,
}

/// Outcome of a comparison.
#[derive(Debug, Default, Serialize)]
pub struct ReadComparison {
    /// Number of reads that were compared.
    pub compared: usize,
    /// Number of reads that had no room in the records, so they are not compared.
    pub omitted: u64,
    /// Names that have changed, in the order of the reads.
    pub stale: Vec<StaleRead>,
}

/// Compares what a try has read with what is there now.
pub fn compare(overlay_directory: &Path) -> Result<ReadComparison> {
    let (text, omitted) = read_records(&overlay_directory.join(FILTER))?;
    let mut comparison = ReadComparison { omitted, ..ReadComparison::default() };
    for record in text.split(|byte| *byte == 0).filter_map(ReadRecord::parse) {
        let path = Path::new(OsStr::from_bytes(record.path));
        if !is_compared(path) {
            continue;
        }
        comparison.compared += 1;
        let change = describe_change(&record, path)?;
        let is_new = comparison.stale.iter().all(|stale| stale.path != path);
        if let Some(change) = change
            && is_new
        {
            comparison.stale.push(StaleRead { path: path.to_owned(), change });
        }
    }
    Ok(comparison)
}

/// Returns the number of reads that had no room in the records.
pub fn count_omitted(overlay_directory: &Path) -> Result<u64> {
    read_records(&overlay_directory.join(FILTER)).map(|(_, omitted)| omitted)
}

/// Returns the text of all records, and the number of reads without one.
fn read_records(filter: &Path) -> Result<(Vec<u8>, u64)> {
    let file = fs::File::open(filter).map_err(io_error("read", filter))?;
    let mut counts = [[0u8; 8]; 2];
    let read = |to: &mut [u8], at: usize| {
        match file.read_exact_at(to, (ChangeFilter::READS_AT + at) as u64) {
            // The filter of an earlier version has no records.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            read => read.map_err(io_error("read", filter)),
        }
    };
    read(counts.as_flattened_mut(), ReadRecords::COUNTS_AT)?;
    let [used, omitted] = counts.map(u64::from_ne_bytes);
    let mut text = vec![0; (used as usize).min(ReadRecords::RECORDS_MAX)];
    read(&mut text, ReadRecords::RECORDS_AT)?;
    Ok((text, omitted))
}

/// Replaces records by what `fresh` returns for them; a record stays if that is `None`. If this was
/// interrupted, the records are completed when it is done again.
pub(crate) fn rewrite(
    overlay_directory: &Path,
    fresh: impl FnMut(&ReadRecord) -> Result<Option<(ReadKind, Origin)>>,
) -> Result<()> {
    let (filter, next) = (overlay_directory.join(FILTER), overlay_directory.join(NEXT));
    if !next.exists() {
        let (text, omitted) = read_records(&filter)?;
        let (all, left_out) = rewritten(&text, fresh)?;
        if all == text {
            return Ok(());
        }
        let new = next.with_extension("new");
        let contents = [&(omitted + left_out).to_ne_bytes()[..], &all].concat();
        let written = fs::write(&new, contents).and_then(|()| fs::rename(&new, &next));
        written.map_err(io_error("write", &next))?;
    }
    let contents = fs::read(&next).map_err(io_error("read", &next))?;
    let (omitted, all) = contents.split_at_checked(8).unwrap_or_default();
    put_records(&filter, omitted, all).map_err(io_error("write", &filter))?;
    fs::remove_file(&next).map_err(io_error("remove", &next))
}

/// Returns the records that take the place of others, and how many have no room.
fn rewritten(
    text: &[u8],
    mut fresh: impl FnMut(&ReadRecord) -> Result<Option<(ReadKind, Origin)>>,
) -> Result<(Vec<u8>, u64)> {
    let (mut all, mut left_out) = (Vec::with_capacity(text.len()), 0);
    let mut room = vec![0; ORIGIN_MAX];
    for record in text.split(|byte| *byte == 0).filter_map(ReadRecord::parse) {
        let (kind, origin) = fresh(&record)?.unwrap_or((record.kind, record.origin));
        match origin.write(record.path, &mut room) {
            Some(len) if all.len() + len + 2 <= ReadRecords::RECORDS_MAX => {
                all.push(kind as u8);
                all.extend(&room[..len]);
                all.push(0);
            }
            _ => left_out += 1,
        }
    }
    Ok((all, left_out))
}

/// Puts the text of all records into the filter's file, with zeroes behind it.
pub(crate) fn put_records(filter: &Path, omitted: &[u8], all: &[u8]) -> std::io::Result<()> {
    let file = fs::File::options().read(true).write(true).open(filter)?;
    let at = |offset: usize| (ChangeFilter::READS_AT + offset) as u64;
    let mut before = [0; 8];
    file.read_exact_at(&mut before, at(ReadRecords::COUNTS_AT))?;
    let before = (u64::from_ne_bytes(before) as usize).min(ReadRecords::RECORDS_MAX);
    let used = (all.len() as u64).to_ne_bytes();
    file.write_all_at(
        &[all, &vec![0; before.saturating_sub(all.len())]].concat(),
        at(ReadRecords::RECORDS_AT),
    )?;
    file.write_all_at(&[&used[..], omitted].concat(), at(ReadRecords::COUNTS_AT))
}

/// Calls `each` with each record.
pub(crate) fn each_record(
    overlay_directory: &Path,
    mut each: impl FnMut(&ReadRecord),
) -> Result<()> {
    let (text, _) = read_records(&overlay_directory.join(FILTER))?;
    text.split(|byte| *byte == 0).filter_map(ReadRecord::parse).for_each(|record| each(&record));
    Ok(())
}

/// Returns what a read of this kind would record now.
pub(crate) fn read_again(kind: ReadKind, path: &Path) -> Result<(ReadKind, Origin)> {
    let found = current_metadata(path)?;
    Ok(match (found, kind) {
        (None, _) => (ReadKind::Absence, Origin::ABSENT),
        (Some(found), ReadKind::Listing) if found.is_dir() => {
            let size = list_hash(path).unwrap_or_default();
            (ReadKind::Listing, Origin { size, ..origin(&found) })
        }
        (Some(found), ReadKind::Listing | ReadKind::Absence) => (ReadKind::Entry, origin(&found)),
        (Some(found), kind) => (kind, origin(&found)),
    })
}

fn is_compared(path: &Path) -> bool {
    let is_history = path.file_name().is_some_and(|name| name.as_bytes().ends_with(HISTORY_SUFFIX));
    let is_left_out = NOT_COMPARED_BELOW.iter().any(|above| path.starts_with(above));
    !is_history && !is_left_out && path != Path::new(LOADER_CACHE)
}

/// Describes what has changed since the read.
fn describe_change(record: &ReadRecord, path: &Path) -> Result<Option<&'static str>> {
    let was = &record.origin;
    let now = match current_metadata(path) {
        // It can no longer be examined, so it cannot be said to have changed.
        Err(crate::Error::Io { error, .. }) if error.kind() == ErrorKind::PermissionDenied => {
            return Ok(None);
        }
        now => now?,
    };
    let Some(now) = now.as_ref().map(origin) else {
        return Ok((record.kind != ReadKind::Absence).then_some("it was removed"));
    };
    let type_of = |origin: &Origin| origin.mode & TYPE_BITS;
    let contents = |origin: &Origin| (origin.file, type_of(origin), origin.size, origin.mtime);
    let is_changed = match record.kind {
        ReadKind::Absence => return Ok(Some("it was made")),
        ReadKind::Existence => type_of(&now) != type_of(was),
        ReadKind::Listing => {
            let is_same = now.file == was.file && list_hash(path) == Some(was.size);
            return Ok((!is_same).then_some("names in it were made or removed"));
        }
        _ if type_of(was) == DIRECTORY_TYPE => {
            (now.file, type_of(&now)) != (was.file, type_of(was))
        }
        _ => contents(&now) != contents(was),
    };
    Ok(is_changed.then_some("it was changed"))
}

/// Hash of the names in a directory; `None` if it cannot be listed.
fn list_hash(directory: &Path) -> Option<u64> {
    fs::read_dir(directory).ok()?.try_fold(0u64, |sum, entry| {
        Some(sum.wrapping_add(names_hash(entry.ok()?.file_name().as_bytes())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_all_the_time_is_not_compared() {
        let left_out =
            ["/run/utmp", "/var/log/a/b", "/home/u/.bash_history", "/etc/ld.so.cache", "/var/run"];
        assert!(left_out.iter().all(|path| !is_compared(Path::new(path))));
        let compared = ["/", "/home/u/run/a", "/var/lib/a", "/home/u/.bashrc", "/runner/x"];
        assert!(compared.iter().all(|path| is_compared(Path::new(path))));
    }

    #[test]
    fn filters_of_an_earlier_version_have_no_reads() {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join(FILTER), [0; 100]).expect("it is ours");
        let found = compare(place.path()).expect("compared");
        assert_eq!((found.compared, found.omitted, found.stale.len()), (0, 0, 0));
    }
}
