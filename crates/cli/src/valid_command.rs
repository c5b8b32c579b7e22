//! `runahead try valid`: whether a try still holds for what is there now.

use std::io::Write;

use runahead_changeset::recorded_reads::{self, ReadComparison};
use runahead_changeset::{Change, Changes, Try};
use serde_json::json;

use crate::command_end::say;

/// Limit of names that are listed.
const LISTED_MAX: usize = 20;

/// Writes whether another process has changed what a try has read or changed. Returns
/// true if none has.
pub fn valid(tried: &Try, json: bool, out: &mut Vec<u8>) -> runahead_changeset::Result<bool> {
    let changes = Changes::read(&tried.overlay_directory())?;
    let conflicts: Vec<&Change> = changes.conflicts().collect();
    let mut reads = recorded_reads::compare(&tried.overlay_directory())?;
    reads.stale.retain(|stale| conflicts.iter().all(|change| change.path != stale.path));
    let is_valid = conflicts.is_empty() && reads.stale.is_empty();
    let id = &tried.meta.id;
    if json {
        let value = json!({ "id": id, "valid": is_valid, "reads": reads, "conflicts": conflicts });
        let _ = writeln!(out, "{value}");
    } else if is_valid {
        let (compared, changed) = (reads.compared, changes.len());
        let omitted = describe_omitted(&reads);
        let _ = writeln!(
            out,
            "{id} is valid: nothing of {compared} reads and {changed} changes was changed meanwhile{omitted}"
        );
    } else {
        let _ = writeln!(out, "{id} is not valid: changed meanwhile{}", describe_omitted(&reads));
        let changed = conflicts
            .iter()
            .map(|change| (&change.path, change.conflict.as_deref().unwrap_or_default()));
        let read = reads.stale.iter().map(|stale| (&stale.path, stale.change));
        for (path, what) in changed.chain(read) {
            let _ = writeln!(out, "  {}: {what}", path.display());
        }
    }
    Ok(is_valid)
}

/// Reports why nothing was committed. `words` are those for the try on a command line.
pub fn report_stale_reads(words: &str, reads: &ReadComparison) {
    say!(
        "nothing was committed: these names were read by the try and changed meanwhile{}",
        describe_omitted(reads)
    );
    for stale in reads.stale.iter().take(LISTED_MAX) {
        say!("  {}: {}", stale.path.display(), stale.change);
    }
    if reads.stale.len() > LISTED_MAX {
        say!("  and {} more", reads.stale.len() - LISTED_MAX);
    }
    say!(
        "runahead try commit --reads ignore {words} commits all the same; runahead try undo {words} drops the changes"
    );
}

/// Describes reads that are not compared: empty if there are none.
fn describe_omitted(reads: &ReadComparison) -> String {
    match reads.omitted {
        0 => String::new(),
        omitted => {
            format!(" (reads beyond {} are not compared: at least {omitted})", reads.compared)
        }
    }
}
