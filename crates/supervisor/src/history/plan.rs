//! What the user asked for, and what is there: settled before the command starts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runahead_abi::Identity;
use runahead_history::{CommandKey, Run, Store, file, format, store};
use runahead_inject::Command;

use super::places;

/// What the user asked for.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// A file to record into.
    pub record: Option<PathBuf>,
    /// A file to replay.
    pub replay: Option<PathBuf>,
    /// Replay what is remembered of this command, and remember this run.
    pub learn: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Plan {
    record: Option<PathBuf>,
    store: Option<Store>,
    /// To be replayed.
    pub(super) replayed: Option<Arc<Run>>,
    /// It was recorded of this very command.
    pub(super) is_own: bool,
    pub(super) command: CommandKey,
    /// The command's file, and what the log calls it.
    pub(super) program: Option<(Vec<u8>, Identity)>,
}

impl Plan {
    /// For `command`; `None` if nothing was asked for, or nothing of it can be done. `complain` is told, in a
    /// line each, what is not going to be done.
    pub fn new(
        asked: &Asked,
        command: &Command,
        mut complain: impl FnMut(&str),
    ) -> Option<Arc<Self>> {
        if asked.record.is_none() && asked.replay.is_none() && !asked.learn {
            return None;
        }
        let path =
            runahead_inject::find(&command.program).and_then(|path| std::path::absolute(path).ok());
        let attributes = path.as_ref().and_then(|path| path.metadata().ok());
        let attributes = attributes.as_ref().map(places::attributes);
        let line = std::iter::once(&command.program).chain(&command.args);
        let here = std::env::current_dir().unwrap_or_default();
        let program = path.as_deref().unwrap_or(Path::new(""));
        let line = line.map(|argument| -> &OsStr { argument });
        let command = store::key(line, &here, program, attributes);

        let mut tried = |what: &str, error: file::Error| complain(&format!("{what}: {error}"));
        let record = asked
            .record
            .as_deref()
            .and_then(|path| file::destination(path).map_err(|e| tried("not recorded", e)).ok());
        let mut replayed = asked
            .replay
            .as_deref()
            .and_then(|path| file::load(path).map_err(|error| tried("not replayed", error)).ok());
        let store = match asked.learn {
            true => Store::of_user().map_err(|error| tried("nothing is learned", error)).ok(),
            false => None,
        };
        if let Some(store) = &store {
            // One that cannot be read will be written anew.
            replayed = store.load(&command).unwrap_or_else(|error| {
                tried("not replayed", error);
                None
            });
        }
        let program = path.map(|path| {
            let path = path.into_os_string().into_encoded_bytes();
            let key = Identity::ROOT.join(&path);
            (path, key)
        });
        let is_own = replayed.as_ref().is_some_and(|run| run.command == command);
        let replayed = replayed.map(Arc::new);
        let plan = Plan { record, store, replayed, is_own, command, program };
        (plan.records() || plan.replayed.is_some()).then(|| Arc::new(plan))
    }

    /// One that replays `run`, or else records into nowhere.
    #[cfg(test)]
    pub(super) fn for_tests(run: Option<Run>) -> Self {
        let record = run.is_none().then(|| "/dev/shm/no/such/place".into());
        let replayed = run.map(Arc::new);
        Plan { record, store: None, replayed, is_own: true, command: [0; 16], program: None }
    }

    /// This run is to be recorded.
    pub fn records(&self) -> bool {
        self.record.is_some() || self.store.is_some()
    }

    /// An earlier one is to be replayed.
    pub fn replays(&self) -> bool {
        self.replayed.is_some()
    }

    /// Keeps `run`, in which `lost` accesses are missing; what there is to complain of.
    pub(super) fn keep(&self, run: &Run, lost: u64, was_killed: bool) -> Vec<String> {
        let mut complaints = Vec::new();
        if let Some(path) = &self.record {
            let written = file::save(path, &format::encode_within(run, format::FILE_MAX));
            if lost > 0 {
                let path = path.display();
                complaints.push(format!("{lost} accesses are missing in the record {path}"));
            }
            complaints.extend(written.err().map(|error| format!("not recorded: {error}")));
        }
        if let Some(store) = &self.store {
            match &self.replayed {
                // One that was killed has mostly done a part of what it does.
                Some(_) if was_killed => {}
                Some(known) if known.is_much_like(run) => store.was_used(&self.command),
                _ => {
                    let written = store.save(run);
                    complaints.extend(written.err().map(|e| format!("nothing is learned: {e}")));
                }
            }
        }
        complaints
    }

    /// The command was run natively: says what was not done for that.
    pub fn natively(&self) -> Vec<String> {
        let path = self.record.iter();
        path.map(|path| {
            format!("not recorded in {}: the command ran natively", path.as_os_str().display())
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cat() -> Command {
        Command { program: "cat".into(), args: vec!["x".into()] }
    }

    #[test]
    fn what_cannot_be_done_is_said_and_the_rest_goes_on() {
        let place = tempfile::tempdir().expect("a directory");
        let broken = place.path().join("broken");
        std::fs::write(&broken, "rubbish").expect("ours");
        let mut said = Vec::new();
        let asked =
            Asked { record: Some(place.path().join("new")), replay: Some(broken), learn: false };
        let plan = Plan::new(&asked, &cat(), |line| said.push(line.to_owned())).expect("records");
        assert!(plan.records() && !plan.replays());
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("not replayed: ") && !said[0].contains('\n'), "{said:?}");
        assert!(plan.program.as_ref().is_some_and(|(path, _)| path.ends_with(b"/cat")));
        let nothing = Asked { replay: Some("/no/such/file".into()), ..Asked::default() };
        assert!(Plan::new(&nothing, &cat(), |_| {}).is_none());
    }

    #[test]
    fn what_was_recorded_is_replayed_as_the_commands_own() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run");
        let record = Asked { record: Some(path.clone()), ..Asked::default() };
        let plan = Plan::new(&record, &cat(), |line| panic!("{line}")).expect("records");
        let run = Run { command: plan.command, ..Run::default() };
        assert_eq!(plan.keep(&run, 3, false).len(), 1, "three are missing");
        let replay = Asked { replay: Some(path), ..Asked::default() };
        let again = Plan::new(&replay, &cat(), |line| panic!("{line}")).expect("replays");
        assert!(again.is_own && again.replays());
        let other = Command { program: "cat".into(), args: vec!["y".into()] };
        let other = Plan::new(&replay, &other, |line| panic!("{line}")).expect("replays");
        assert!(!other.is_own);
    }
}
