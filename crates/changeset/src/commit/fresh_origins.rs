//! Origins of a try whose commit was taken back, or has left a rest.
//!
//! A rename and a change of permissions set an entry's time of change, and the modification time of
//! another user's file cannot be set back. Where nothing else has changed, the origins get the new
//! times, so that the try can be committed later.
//!
//! A file with several names is changed by a commit of one of them. Then the origins of its other
//! names get what that commit has left.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use runahead_abi::overlay::{CHANGES, ORIGIN_MAX, Origin, WHITEOUT};
use runahead_abi::{FileId, device_number};

use super::entry_state::EntryState;
use super::step_journal::reserve_room;
use crate::chosen_paths::ChosenPaths;
use crate::recorded_origins::{current_metadata, origin as current_origin};
use crate::{Result, io_error};

/// Name of the new list of origins until it is complete.
const NEW: &str = "changes.new";

/// States of entries before a commit and after it was taken back, by device and inode number. What
/// another process has changed since is not among them.
pub(super) type TakenBack = BTreeMap<(u64, u64), (EntryState, EntryState)>;

/// Returns the origin for the state of an entry.
pub(super) fn origin(of: &EntryState) -> Origin {
    let (device, inode) = of.file;
    let device = device_number(rustix::fs::major(device), rustix::fs::minor(device));
    let time = |(seconds, nanoseconds): (i64, i64)| [seconds as u64, nanoseconds as u64];
    Origin {
        file: FileId { device, inode },
        mode: of.mode.into(),
        size: of.size,
        mtime: time(of.modified),
        ctime: time(of.changed),
    }
}

/// Files that a commit has changed, as they were before and as it has left them. Of their times of
/// change only the first counts.
pub(super) type ChangedFiles = BTreeMap<FileId, (Origin, Origin)>;

/// Gives the origins of what was taken back its times of now.
pub(super) fn refresh(overlay_directory: &Path, taken_back: &TakenBack) -> Result<()> {
    let states = taken_back.values().map(|(before, now)| (origin(before), origin(now)));
    let states: BTreeMap<_, _> = states.map(|states| (states.0.file, states)).collect();
    rewrite(overlay_directory, |was, _| {
        let fresh = states.get(&was.file).filter(|(before, _)| before == was);
        Ok(Some(fresh.map_or(*was, |(_, now)| *now)))
    })
}

/// Removes the records at and below the chosen paths, and renews those of other names of the
/// changed files.
pub(super) fn leave_rest(
    overlay_directory: &Path,
    chosen: &ChosenPaths,
    changed: &ChangedFiles,
) -> Result<()> {
    rewrite(overlay_directory, |was, path| {
        if chosen.has(path) {
            return Ok(None);
        }
        let Some((_, after)) = changed.get(&was.file).filter(|(before, _)| before == was) else {
            return Ok(Some(*was));
        };
        // Names that went set the time of change again.
        let now = current_metadata(path)?.map(|found| current_origin(&found));
        let now = now.filter(|now| *now == Origin { ctime: now.ctime, ..*after });
        Ok(Some(now.unwrap_or(*was)))
    })
}

/// Replaces each record's origin by what `fresh` returns for it and its path, or leaves the record
/// out.
fn rewrite(
    overlay_directory: &Path,
    mut fresh: impl FnMut(&Origin, &Path) -> Result<Option<Origin>>,
) -> Result<()> {
    let list = overlay_directory.join(CHANGES);
    let text = fs::read(&list).map_err(io_error("read", &list))?;
    let (mut all, mut room) = (Vec::with_capacity(text.len()), vec![0; ORIGIN_MAX]);
    for record in text.split_inclusive(|byte| *byte == 0) {
        let front = usize::from(record.first() == Some(&WHITEOUT));
        let words = record.strip_suffix(&[0]).and_then(|record| Origin::read(&record[front..]));
        let Some((was, name)) = words else {
            // Its process ended while it wrote.
            all.extend(record);
            continue;
        };
        let Some(now) = fresh(&was, Path::new(OsStr::from_bytes(name)))? else { continue };
        match now.write(name, &mut room) {
            Some(len) if now != was => {
                all.extend(&record[..front]);
                all.extend(&room[..len]);
                all.push(0);
            }
            _ => all.extend(record),
        }
    }
    let new = overlay_directory.join(NEW);
    if all == text {
        // What was reserved is not needed, and may not be there.
        let _ = fs::remove_file(&new);
        return Ok(());
    }
    // Over what was reserved.
    let written = open_new(&new).and_then(|mut file| {
        file.write_all(&all)?;
        file.set_len(all.len() as u64)?;
        fs::rename(&new, &list)
    });
    written.map_err(io_error("write", &list))
}

fn open_new(new: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).open(new)
}

/// Reserves room for the new list of origins: a commit is taken back on full disks, too.
pub(super) fn reserve(overlay_directory: &Path) -> Result<()> {
    let list = overlay_directory.join(CHANGES);
    let length = fs::metadata(&list).map_err(io_error("examine", &list))?.len();
    let new = overlay_directory.join(NEW);
    // No record becomes longer than this.
    let reserved = open_new(&new).and_then(|file| reserve_room(&file, 2 * length));
    reserved.map_err(io_error("write", &new))
}
