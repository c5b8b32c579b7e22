//! Origins of a try after its commit was taken back.
//!
//! A rename and a change of permissions set an entry's time of change. Where nothing else has
//! changed, the origins get the new one, so that the try can be committed later.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use runahead_abi::overlay::{CHANGES, ORIGIN_MAX, Origin, WHITEOUT};

use super::commit_steps::Step;
use super::entry_state::EntryState;
use crate::recorded_origins::{current_metadata, origin};
use crate::{Result, io_error};

/// Gives the origins of what `steps` have touched its time of change of now.
pub(super) fn refresh(overlay_directory: &Path, steps: &[Step]) -> Result<()> {
    let touched: BTreeMap<(u64, u64), (i64, i64)> =
        steps.iter().filter_map(Step::before).map(|before| (before.file, before.changed)).collect();
    let list = overlay_directory.join(CHANGES);
    let text = fs::read(&list).map_err(io_error("read", &list))?;
    let mut records: Vec<Vec<u8>> = Vec::new();
    for record in text.split(|byte| *byte == 0) {
        records.push(refreshed(record, &touched)?.unwrap_or_else(|| record.to_vec()));
    }
    let fresh = records.join(&0);
    if fresh == text {
        return Ok(());
    }
    let new = overlay_directory.join("changes.new");
    let written = fs::write(&new, fresh).and_then(|()| fs::rename(&new, &list));
    written.map_err(io_error("write", &list))
}

/// Returns the record with the new time of change, if that alone differs.
fn refreshed(record: &[u8], touched: &BTreeMap<(u64, u64), (i64, i64)>) -> Result<Option<Vec<u8>>> {
    let is_whiteout = record.first() == Some(&WHITEOUT);
    let front = usize::from(is_whiteout);
    let Some((was, name)) = Origin::read(&record[front..]) else { return Ok(None) };
    let Some(found) = current_metadata(Path::new(OsStr::from_bytes(name)))? else {
        return Ok(None);
    };
    let (now, file) = (origin(&found), EntryState::of(&found).file);
    let before = touched.get(&file).map(|(seconds, nanos)| [*seconds as u64, *nanos as u64]);
    if before != Some(was.ctime) || now == was || now != (Origin { ctime: now.ctime, ..was }) {
        return Ok(None);
    }
    let mut room = vec![0; ORIGIN_MAX];
    let Some(len) = now.write(name, &mut room) else { return Ok(None) };
    Ok(Some([&record[..front], &room[..len]].concat()))
}
