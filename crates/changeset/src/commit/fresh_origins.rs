//! Origins of a try after its commit was taken back.
//!
//! A rename and a change of permissions set an entry's time of change. Where nothing else has
//! changed, the origins get the new one, so that the try can be committed later.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use runahead_abi::overlay::{CHANGES, ORIGIN_MAX, Origin, WHITEOUT};
use runahead_abi::{FileId, device_number};

use super::entry_state::EntryState;
use crate::{Result, io_error};

/// States of entries before a commit and after it was taken back, by device and inode number.
pub(super) type TakenBack = BTreeMap<(u64, u64), (EntryState, EntryState)>;

fn origin(of: &EntryState) -> Origin {
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

/// Gives the origins of what was taken back its time of change of now.
pub(super) fn refresh(overlay_directory: &Path, taken_back: &TakenBack) -> Result<()> {
    let states = taken_back.values().map(|(before, now)| (origin(before), origin(now)));
    let states: BTreeMap<_, _> = states.map(|states| (states.0.file, states)).collect();
    let list = overlay_directory.join(CHANGES);
    let text = fs::read(&list).map_err(io_error("read", &list))?;
    let records: Vec<Vec<u8>> = text
        .split(|byte| *byte == 0)
        .map(|record| refreshed(record, &states).unwrap_or_else(|| record.to_vec()))
        .collect();
    let fresh = records.join(&0);
    if fresh == text {
        return Ok(());
    }
    let new = overlay_directory.join("changes.new");
    let written = fs::write(&new, fresh).and_then(|()| fs::rename(&new, &list));
    written.map_err(io_error("write", &list))
}

/// Returns the record with the new time of change, if that alone differs from what was before.
fn refreshed(record: &[u8], states: &BTreeMap<FileId, (Origin, Origin)>) -> Option<Vec<u8>> {
    let front = usize::from(record.first() == Some(&WHITEOUT));
    let (was, name) = Origin::read(&record[front..])?;
    let (before, now) = states.get(&was.file)?;
    if was.ctime != before.ctime || *now == was || *now != (Origin { ctime: now.ctime, ..was }) {
        return None;
    }
    let mut room = vec![0; ORIGIN_MAX];
    let len = now.write(name, &mut room)?;
    Some([&record[..front], &room[..len]].concat())
}
