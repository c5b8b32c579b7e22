//! Report on a commit that was interrupted.

use std::io::Write;

use runahead_changeset::commit::Interruption;
use runahead_changeset::{Try, printed_name};
use serde_json::json;

/// Prints which steps are done, and what can be done now.
pub fn print(tried: &Try, interruption: &Interruption, json: bool, out: &mut Vec<u8>) {
    let (done, all) = (interruption.done, interruption.steps.len());
    if json {
        let steps = interruption
            .steps
            .iter()
            .map(|(path, is_done)| json!({ "path": path.to_string_lossy(), "done": is_done }));
        let value = json!({
            "try": tried.meta, "running": tried.is_running(), "held": tried.overlay_directory(),
            "interrupted": {
                "task": if interruption.is_undo { "undo" } else { "commit" },
                "chosen": interruption.chosen.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
                "done": done,
                "steps": steps.collect::<Vec<_>>(),
            },
        });
        let _ = writeln!(out, "{value:#}");
        return;
    }
    let id = &tried.meta.id;
    let chosen: Vec<_> = interruption.chosen.iter().map(|path| printed_name(path)).collect();
    let chosen = chosen.join(", ");
    if interruption.is_undo {
        let _ = writeln!(
            out,
            "{id}  an undo of some of its changes was interrupted: {chosen}\n\
             any runahead try commit or undo of {id} finishes it first"
        );
        return;
    }
    let _ = writeln!(out, "{id}  its commit was interrupted: {done} of {all} steps are done");
    for (path, is_done) in &interruption.steps {
        let mark = if *is_done { "done" } else { "left" };
        let _ = writeln!(out, " {mark} {}", printed_name(path));
    }
    let _ = writeln!(
        out,
        "runahead try commit {id} does what is left; runahead try undo {id} takes back what is done"
    );
    if !chosen.is_empty() {
        let _ = writeln!(out, "both leave all changes in the try but those of {chosen}");
    }
}
