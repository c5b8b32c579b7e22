//! Commit and undo of a try, and the lines that report them.

use std::io::Write;

use runahead_changeset::commit::{self, CommitOutcome, UndoOutcome};
use runahead_changeset::{Change, ChangeKind, Changes, ChosenPaths, Result, Try, printed_name};

use crate::command_end::say;
use crate::valid_command;

/// Exit status if nothing was committed: another process has changed the same names.
pub const CONFLICT: i32 = 3;

/// Report of what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// No report.
    Quiet,
    /// Report with the name and the directory of the try.
    Named,
    /// Report without them: the command of the try has just ended.
    Unnamed,
}

/// Returns the numbers of changes by kind, as text.
pub fn summarize_changes(changes: &Changes) -> String {
    let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
    let kinds = [
        (ChangeKind::Added, "added"),
        (ChangeKind::Modified, "modified"),
        (ChangeKind::Deleted, "deleted"),
        (ChangeKind::Attributes, "with other attributes"),
    ];
    let parts: Vec<_> = kinds
        .into_iter()
        .map(|(kind, word)| (count(kind), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    match parts.is_empty() {
        true => "nothing".to_owned(),
        false => parts.join(", "),
    }
}

/// Commits a try, or its changes at and below `paths`, unless there are conflicts, and reports what
/// was done as asked. Returns the exit status.
pub fn commit_or_report(
    tried: &Try,
    paths: Option<&ChosenPaths>,
    force: bool,
    report: Report,
) -> Result<i32> {
    let is_unchanged = tried.meta.unchanged && paths.is_none();
    if is_unchanged && !Changes::read(&tried.overlay_directory())?.sets_times() {
        return undo_and_report(tried, None, report, "").map(|()| 0);
    }
    let is_resumed = commit::is_interrupted(tried);
    let summarize = |changes: &Option<Changes>| match changes {
        None => "what was left of an interrupted commit".to_owned(),
        Some(changes) => summarize_changes(changes),
    };
    match commit::commit_chosen(tried, paths, force)? {
        CommitOutcome::Done(changes) => {
            let done = match is_unchanged {
                true => "has changed nothing".to_owned(),
                false => format!("committed: {}", summarize(&changes)),
            };
            report_done(tried, report, &done);
            return Ok(0);
        }
        CommitOutcome::Partly(changes, left) => {
            let done = format!("committed: {}; {}", summarize(&changes), describe_rest(left));
            report_done(tried, report, &done);
            return Ok(0);
        }
        CommitOutcome::StaleReads(reads) => {
            valid_command::report_stale_reads(&words_for(tried, paths), &reads);
        }
        CommitOutcome::Conflicts(conflicts) => {
            report_conflicts(&words_for(tried, paths), is_resumed, &conflicts);
        }
    }
    Ok(CONFLICT)
}

/// Says how many changes stay in a try.
fn describe_rest(left: usize) -> String {
    match left {
        1 => "1 change stays in the try".to_owned(),
        _ => format!("{left} changes stay in the try"),
    }
}

/// Words for the try and its chosen changes on a command line.
fn words_for(tried: &Try, paths: Option<&ChosenPaths>) -> String {
    let paths = if paths.is_some() { " PATH..." } else { "" };
    format!("{}{paths}", tried.meta.id)
}

/// Reports why nothing was committed. `words` are those for the try on a command line.
fn report_conflicts(words: &str, is_resumed: bool, conflicts: &[Change]) {
    let what = if is_resumed { "the commit was not resumed" } else { "nothing was committed" };
    say!("{what}: these names were changed meanwhile");
    for change in conflicts {
        say!(
            "  {}: {}",
            printed_name(&change.path),
            change.conflict.as_deref().unwrap_or_default()
        );
    }
    say!(
        "runahead try commit --force {words} overwrites that; runahead try undo {words} drops the changes"
    );
}

/// Drops a try and its changes, or those at and below `paths`, and reports that with a reason as
/// asked.
pub fn undo_and_report(
    tried: &Try,
    paths: Option<&ChosenPaths>,
    report: Report,
    why: &str,
) -> Result<()> {
    let all = match tried.meta.unchanged {
        true => "has changed nothing".to_owned(),
        // A try that cannot be read can be undone.
        false => match Changes::read(&tried.overlay_directory()) {
            Ok(changes) => format!("undone: {}", summarize_changes(&changes)),
            Err(_) => "undone".to_owned(),
        },
    };
    let done = match commit::undo_chosen(tried, paths)? {
        UndoOutcome::Dropped => all,
        UndoOutcome::Partly(undone, left) => {
            let undone = undone.as_ref().map(summarize_changes);
            let undone = undone.unwrap_or("what was left of an interrupted undo".to_owned());
            format!("undone: {undone}; {}", describe_rest(left))
        }
        UndoOutcome::TakenBack => {
            "is as before: what an interrupted commit of some changes had done was taken back"
                .to_owned()
        }
    };
    report_done(tried, report, &format!("{done}{why}"));
    Ok(())
}

/// Prints what was done to which try.
fn report_done(tried: &Try, report: Report, done: &str) {
    match report {
        Report::Quiet => {}
        Report::Named => {
            let directory = tried.meta.directory_path();
            say!("try {} of {} {done}", tried.meta.id, printed_name(&directory));
        }
        Report::Unnamed => say!("{done}"),
    }
}
