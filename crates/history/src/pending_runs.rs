//! Runs that were logged and are not yet in the records: merged when their program is run again, or
//! by `runahead history`.
//!
//! A log lies in a directory named by the key of its program, under the key of its command. To
//! merge one twice does no harm: its accesses are in the records already. So no lock is needed, and
//! a process that is killed meanwhile leaves each record as it was, or as it becomes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::run_log::{self, LOG_MAX, LoggedRun};
use crate::{CommandKey, Keys, Run, Store, merge, run_file};

/// The record of a command as it is once the log of its latest run is merged; `None` if there is no
/// such log. Nothing is written.
pub fn merged_record(store: &Store, keys: &Keys) -> Option<Run> {
    let LoggedRun { keys: logged, run, was_killed } = read(store, &store.pending_log(keys))?;
    if logged != *keys {
        return None;
    }
    Some(match store.load(&keys.command) {
        Ok(Some(known)) => merge::merge(&known, &run, !was_killed),
        _ => run,
    })
}

/// Merges all logs of runs of the program.
pub fn merge_of_program(store: &Store, program: &CommandKey) {
    merge_in(store, &store.pending_directory(program));
}

/// Merges the logs of all programs.
pub fn merge_all(store: &Store) {
    for directory in store.pending_directories() {
        merge_in(store, &directory);
    }
}

fn merge_in(store: &Store, directory: &Path) {
    for path in logs_in(directory) {
        let number = |path: &PathBuf| path.metadata().ok().map(|found| found.ino());
        let before = number(&path);
        // A log that cannot be read is of no use to a later run, either.
        if let Some(logged) = read(store, &path) {
            // The command that was recorded has ended long ago: no error can be reported.
            let _ = learn(store, logged);
        }
        // A session that has ended meanwhile may have put its own log there.
        if number(&path) == before {
            let _ = fs::remove_file(&path);
        }
    }
    // It fails if a session writes there.
    let _ = fs::remove_dir(directory);
}

fn logs_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == Store::LOG_EXTENSION);
    entries.map(|entry| entry.path()).filter(is_log).collect()
}

/// Reads a log, if no other user can write to the store.
fn read(store: &Store, path: &Path) -> Option<LoggedRun> {
    store.check().ok()?;
    run_log::read(&run_file::read_regular(path, 2 * LOG_MAX).ok()?)
}

/// Updates the records under all keys of a run.
fn learn(store: &Store, logged: LoggedRun) -> Result<(), run_file::HistoryError> {
    let LoggedRun { keys, mut run, was_killed } = logged;
    for key in keys.all() {
        run.command = key;
        if key != keys.command {
            run.origin.line.truncate(1);
        }
        let is_unchanged = update_record(store, &run, was_killed)?;
        // The other records are unchanged, too, since they hold all of it. Comparing each takes
        // some milliseconds.
        if is_unchanged && key == keys.command {
            let others = keys.all().into_iter().filter(|other| *other != key);
            others.for_each(|other| store.was_used(&other));
            break;
        }
    }
    Ok(())
}

/// Updates the record under the key of `run`. A run that was killed is no evidence of unused
/// accesses. Returns true if the record stays as it is.
fn update_record(
    store: &Store,
    run: &Run,
    was_killed: bool,
) -> Result<bool, run_file::HistoryError> {
    let Ok(Some(known)) = store.load(&run.command) else {
        return store.save(run).map(|()| false);
    };
    let merged = merge::merge(&known, run, !was_killed);
    if merge::is_nearly_equal(&known, &merged) {
        store.was_used(&run.command);
        return Ok(true);
    }
    store.save(&merged).map(|()| false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::run_log::LogBuffer;
    use crate::store::TOTAL_MAX;
    use crate::{AccessKind, Origin, Recorder};

    /// Makes a store with the log of a run of one access.
    fn store_with_log(dir: &Path, keys: &Keys) -> Store {
        let store = Store::at(&dir.join("store"), TOTAL_MAX);
        store.prepare().expect("made");
        let (mut buffer, mut recorder) = (LogBuffer::default(), Recorder::default());
        buffer.start(keys, &Origin::default());
        let number = recorder.add_access(b"/a", 1, AccessKind::Lookup).expect("it is new");
        buffer.paths_of(&recorder);
        buffer.access(number, AccessKind::Lookup);
        buffer.end(false);
        fs::create_dir_all(store.pending_directory(&keys.program)).expect("made");
        let frame = buffer.take_frame().expect("it has entries");
        fs::write(store.pending_log(keys), frame).expect("written");
        store
    }

    #[test]
    fn logs_that_another_user_could_write_are_not_read() {
        let place = tempfile::tempdir().expect("a directory");
        let keys = Keys { command: [1; 16], place: [2; 16], program: [3; 16] };
        let store = store_with_log(place.path(), &keys);
        let mode = |mode| {
            fs::set_permissions(store.dir(), fs::Permissions::from_mode(mode)).expect("ours");
        };
        mode(0o777);
        assert!(merged_record(&store, &keys).is_none());
        mode(0o700);
        assert_eq!(merged_record(&store, &keys).expect("it is there").accesses.len(), 1);
        let other = Keys { place: [9; 16], ..keys };
        assert!(merged_record(&store, &other).is_none(), "it is another run's");
    }

    #[test]
    fn a_log_that_is_no_file_is_dropped() {
        let place = tempfile::tempdir().expect("a directory");
        let keys = Keys::default();
        let store = store_with_log(place.path(), &keys);
        fs::remove_file(store.pending_log(&keys)).expect("ours");
        let made = std::process::Command::new("mkfifo").arg(store.pending_log(&keys)).status();
        assert!(made.expect("mkfifo is there").success());
        assert!(merged_record(&store, &keys).is_none());
        merge_all(&store);
        assert!(store.pending_directories().is_empty());
    }
}
