//! `runahead history`: the records of earlier runs, for people and for scripts.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use runahead_history::store::digits;
use runahead_history::{AccessKind, CommandKey, Run, Store, pending_runs, run_file};
use serde_json::json;

use crate::command_end::{print, say};
use crate::options::HistoryTask;

/// Exit status if something failed, or the user named a record that does not exist.
const FAILED: i32 = 1;
/// Digits of a name in lists for people.
const NAME_DIGITS: usize = 12;

/// Runs the task and returns the exit status.
pub fn run(task: &HistoryTask) -> i32 {
    match Store::for_user().map_err(Failure::from).and_then(|store| run_on(&store, task)) {
        Ok(()) => 0,
        Err(error) => {
            say!("{error}");
            FAILED
        }
    }
}

/// Error of whatever kind; its text is for the user.
type Failure = Box<dyn std::error::Error>;

fn run_on(store: &Store, task: &HistoryTask) -> Result<(), Failure> {
    pending_runs::merge_all(store);
    match task {
        HistoryTask::List { json } => list(store, *json)?,
        HistoryTask::Show { record } => {
            let run = match Path::new(record) {
                path if path.is_file() => run_file::load(path)?,
                _ => load(store, &find(store, &record.to_string_lossy())?)?,
            };
            print(&render(&run))?;
        }
        HistoryTask::Forget { all: true, .. } => {
            store.list().iter().try_for_each(|entry| store.forget(&entry.key).map(drop))?;
        }
        HistoryTask::Forget { records, .. } => {
            // If one name is unknown, nothing is removed.
            let keys: Result<Vec<_>, _> = records.iter().map(|name| find(store, name)).collect();
            keys?.iter().try_for_each(|key| store.forget(key).map(drop))?;
        }
        HistoryTask::Disable => store.disable(true)?,
        HistoryTask::Enable => store.disable(false)?,
        HistoryTask::Exclude { directory: None, .. } => {
            let mut lines = Vec::new();
            for path in store.excluded() {
                lines.extend_from_slice(&path);
                lines.push(b'\n');
            }
            print(&lines)?;
        }
        HistoryTask::Exclude { directory: Some(path), undo } => {
            let absolute = match path.canonicalize() {
                Ok(path) => path,
                // A directory that no longer exists can still be removed from the list.
                Err(_) if *undo => std::path::absolute(path)?,
                Err(error) => return Err(format!("{}: {error}", path.display()).into()),
            };
            store.exclude(&absolute, !undo)?;
        }
    }
    Ok(())
}

fn load(store: &Store, key: &CommandKey) -> Result<Run, Failure> {
    let run = store.load(key)?;
    run.ok_or_else(|| format!("record {} was removed meanwhile", digits(key)).into())
}

/// Finds the record whose name starts with `name`.
fn find(store: &Store, name: &str) -> Result<CommandKey, String> {
    let all = store.list();
    let mut fitting = all.iter().map(|entry| entry.key).filter(|key| digits(key).starts_with(name));
    match (fitting.next(), fitting.next()) {
        (Some(key), None) if !name.is_empty() => Ok(key),
        (None, _) => Err(format!("no record is called {name}; see runahead history list")),
        _ => Err(format!(
            "more than one record has a name that starts with {name}; give more of the name"
        )),
    }
}

/// Returns the recorded part of the command line, quoted for a shell.
fn command_line(run: &Run) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quote = |word: &Vec<u8>| {
        let word = String::from_utf8_lossy(word);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    };
    run.origin.line.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn list(store: &Store, json: bool) -> Result<(), String> {
    let mut lines = Vec::new();
    if !json && store.is_disabled() {
        lines.extend_from_slice(b"(disabled: nothing is remembered or replayed)\n");
    }
    for entry in store.list() {
        let Ok(Some(run)) = store.load(&entry.key) else { continue };
        let used = entry.used.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let data: u64 = run.accesses.iter().map(|access| access.kind.bytes()).sum();
        let name = digits(&entry.key);
        let text = match json {
            true => {
                let words = run.origin.line.iter().map(|word| String::from_utf8_lossy(word));
                json!({
                    "name": name,
                    "used": used,
                    "file_bytes": entry.bytes,
                    "accesses": run.accesses.len(),
                    "data_bytes": data,
                    "command": words.collect::<Vec<_>>(),
                    "directory": String::from_utf8_lossy(&run.origin.directory),
                })
                .to_string()
            }
            false => format!(
                "{}  {:>8}  {:>8} accesses  {:>8}  {}",
                &name[..NAME_DIGITS],
                age(entry.used),
                run.accesses.len(),
                size(data),
                command_line(&run)
            ),
        };
        lines.extend_from_slice(text.as_bytes());
        lines.push(b'\n');
    }
    print(&lines)
}

fn age(then: SystemTime) -> String {
    let seconds = then.elapsed().unwrap_or_default().as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=0xf_ffff => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn render(run: &Run) -> Vec<u8> {
    let mut text = Vec::new();
    let mut unused = run.unused.iter().peekable();
    for (access, number) in run.accesses.iter().zip(0u32..) {
        let what = match access.kind {
            AccessKind::Lookup => "look".into(),
            AccessKind::LookupNoFollow => "look-at-link".into(),
            AccessKind::List => "list".into(),
            AccessKind::Link => "read-link".into(),
            AccessKind::Execute => "execute".into(),
            AccessKind::Data { offset, length } => format!("read {offset}+{length}"),
            AccessKind::Touched { offset, length } => format!("use-mapped {offset}+{length}"),
        };
        let _ = write!(text, "{what}\t");
        text.extend_from_slice(&run.path_of(access).path);
        if let Some((_, runs)) = unused.next_if(|(unused, _)| *unused == number) {
            let _ = write!(text, "\t(not in the last {runs})");
        }
        text.push(b'\n');
    }
    text
}
