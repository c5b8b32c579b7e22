//! Plan of recording and replay, made before the command starts from the user's options and the
//! files that exist.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{CommandKey, Keys, Origin, Run, Store, format, pending_runs, run_file};
use runahead_abi::agent_config::tell;
use runahead_estimators::Identity;
use runahead_inject::Command;
use runahead_prefetch::Prefetcher;

use super::unchanged_files::{self, is_known_absent};
use runahead_admission::mount_table::Mounts;

/// Choice of runs that are recorded without a file that the user names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Learning {
    /// No runs are recorded.
    #[default]
    Off,
    /// Runs that wait for storage, from the first wait on. A failure to do so is not reported.
    WhereItWaits,
    /// Every run, from its start. A failure to do so is reported.
    Always,
}

/// Options of the user.
#[derive(Debug, Clone, Default)]
pub struct HistoryOptions {
    /// A file to record into.
    pub record: Option<PathBuf>,
    /// A file to replay.
    pub replay: Option<PathBuf>,
    /// Runs to learn from: replay the record of this command, and record this run. Ignored with
    /// `record` or `replay`.
    pub learn: Learning,
}

/// Suffix that turns a program's path into that of the record shipped with it.
const SHIPPED_SUFFIX: &str = ".runahead";
/// Directory of other shipped records, named after their programs.
const SHIPPED_DIRECTORY: &str = "/usr/share/runahead";

/// Plan of a session: what is recorded and replayed.
#[derive(Debug)]
pub struct Plan {
    record: Option<PathBuf>,
    store: Option<Store>,
    learning: Learning,
    /// Record that the user named for replay.
    named: Option<Arc<Run>>,
    keys: Keys,
    origin: Origin,
    /// Path of the command's file, and its identity in the hint log.
    pub(super) program: Option<(Vec<u8>, Identity)>,
}

/// A record that is to be replayed.
pub(super) struct ReplayRecord {
    pub(super) run: Arc<Run>,
    /// True if it was recorded of this very command line.
    pub(super) is_own: bool,
}

impl Plan {
    /// Makes the plan for `command`; `None` if the user asked for nothing, or none of it can be
    /// done. Calls `complain` with a line for each part that cannot be done.
    pub fn new(
        asked: &HistoryOptions,
        command: &Command,
        mut complain: impl FnMut(&str),
    ) -> Option<Arc<Self>> {
        let learning = match asked {
            HistoryOptions { record: None, replay: None, learn } => *learn,
            _ => Learning::Off,
        };
        if asked.record.is_none() && asked.replay.is_none() && learning == Learning::Off {
            return None;
        }
        let mut tried =
            |what: &str, error: run_file::HistoryError| complain(&format!("{what}: {error}"));
        let record = asked.record.as_deref().and_then(|path| {
            run_file::destination(path).map_err(|e| tried("not recorded", e)).ok()
        });
        let named = asked.replay.as_deref().and_then(|path| {
            run_file::load(path).map_err(|error| tried("not replayed", error)).ok()
        });
        let store = match learning {
            Learning::Off => None,
            Learning::WhereItWaits => Store::for_user().ok().filter(|store| !store.is_disabled()),
            Learning::Always => Store::for_user()
                .and_then(|store| store.prepare().map(|()| store))
                .map_err(|error| tried("nothing is learned", error))
                .ok(),
        };
        if record.is_none() && named.is_none() && store.is_none() {
            return None;
        }
        let path = runahead_inject::find_in_path(&command.program)
            .and_then(|path| std::path::absolute(path).ok());
        let attributes = path.as_ref().and_then(|path| path.metadata().ok());
        let attributes = attributes.as_ref().map(unchanged_files::attributes);
        let line = || std::iter::once(&command.program).chain(&command.args);
        let here = std::env::current_dir().unwrap_or_default();
        let program = path.as_deref().unwrap_or(Path::new(""));
        let words = line().map(|word| -> &OsStr { word });
        let keys = Keys::of(words, &here, program, attributes);
        let origin = Origin::new(line().map(|word| word.as_bytes()), here.as_os_str().as_bytes());
        if learning == Learning::Always
            && let Some(store) = &store
            && let Err(error) = store.load(&keys.command)
        {
            // A record that is damaged is of no use to a later run, either.
            if matches!(error, run_file::HistoryError::Format { .. }) {
                let _ = store.forget(&keys.command);
            }
            tried("not replayed", error);
        }
        let program = path.map(|path| {
            let path = path.into_os_string().into_encoded_bytes();
            let key = Identity::ROOT.join(&path);
            (path, key)
        });
        let named = named.map(Arc::new);
        Some(Arc::new(Plan { record, store, learning, named, keys, origin, program }))
    }

    /// Makes a plan that replays `run`, or else records without a file.
    #[cfg(test)]
    pub(super) fn for_tests(run: Option<Run>) -> Self {
        Plan {
            record: run.is_none().then(|| "/dev/shm/no/such/place".into()),
            store: None,
            learning: Learning::Off,
            named: run.map(Arc::new),
            keys: Keys::default(),
            origin: Origin::default(),
            program: None,
        }
    }

    /// Makes a plan that remembers the run in a store.
    #[cfg(test)]
    pub(super) fn that_learns(store: Store) -> Self {
        let keys = Keys { command: [1; 16], place: [2; 16], program: [3; 16] };
        let plan = Plan::for_tests(None);
        Plan { record: None, store: Some(store), learning: Learning::Always, keys, ..plan }
    }

    /// True if this run is recorded.
    pub fn records(&self) -> bool {
        self.record.is_some() || self.store.is_some()
    }

    /// True if there may be a record to replay, as far as is known without a wait. Mostly answered
    /// from cached directory entries.
    pub fn may_replay(&self) -> bool {
        let Some(store) = &self.store else { return self.named.is_some() };
        let kept = self.keys.all().map(|key| store.file(&key));
        let shipped = self.shipped_at().into_iter().flatten();
        kept.into_iter()
            .chain([store.sole_file(), store.pending_directory(&self.keys.program)])
            .chain(shipped)
            .any(|path| !is_known_absent(&path))
    }

    /// True if failures are reported when the command has ended.
    pub fn complains(&self) -> bool {
        self.record.is_some() || self.learning == Learning::Always
    }

    /// Amount that agents are to report, in terms of [`tell`].
    pub fn report_level(&self) -> u64 {
        match (&self.record, self.learning) {
            (Some(_), _) | (_, Learning::Always) => tell::ALL,
            (_, Learning::WhereItWaits) => tell::WHILE_SLOW,
            (None, Learning::Off) => tell::SOME,
        }
    }

    /// True if replay starts only once an access has waited.
    pub(super) fn starts_at_first_stall(&self) -> bool {
        self.learning == Learning::WhereItWaits
    }

    /// Key of this command's own record.
    pub(super) fn command(&self) -> CommandKey {
        self.keys.command
    }

    /// Passes earlier measurements of the storage to the prefetcher. Asks local file systems only.
    pub(super) fn expect(&self, prefetcher: &Prefetcher) {
        let sole = self.store.as_ref().map(Store::sole).unwrap_or_default();
        if sole.is_empty() {
            return;
        }
        let stored = Mounts::now().stored();
        let known = stored.iter().filter(|(_, number)| sole.contains(number));
        known.for_each(|&(device, _)| prefetcher.expect_sole(device));
    }

    /// Stores measurements of the storage: each device, and true if it serves one request at a
    /// time.
    pub(super) fn note_measured(&self, measured: &[((u32, u32), bool)]) {
        let Some(store) = &self.store else { return };
        // Usually no such device was ever found.
        if measured.iter().all(|(_, sole)| !sole) && store.sole().is_empty() {
            return;
        }
        let stored = Mounts::now().stored();
        let number = |device| stored.iter().find(|(other, _)| *other == device).map(|(_, n)| *n);
        let found: Vec<_> =
            measured.iter().filter_map(|&(device, sole)| Some((number(device)?, sole))).collect();
        // After a failure the next session measures again.
        let _ = store.note_sole(&found);
    }

    pub(super) fn excluded(&self) -> Vec<Vec<u8>> {
        self.store.as_ref().map(Store::excluded).unwrap_or_default()
    }

    /// Record to replay: the one that the user named, else the most specific remembered one, else
    /// the shipped one. Reads files.
    pub(super) fn replay_record(&self) -> Option<ReplayRecord> {
        if let Some(run) = &self.named {
            return Some(ReplayRecord {
                run: run.clone(),
                is_own: run.command == self.keys.command,
            });
        }
        let store = self.store.as_ref()?;
        let load = |key: CommandKey| store.load(&key).ok()?;
        let own = pending_runs::merged_record(store, &self.keys);
        let known = own.or_else(|| load(self.keys.command)).or_else(|| {
            pending_runs::merge_of_program(store, &self.keys.program);
            self.keys.all().into_iter().find_map(load)
        });
        let run = Arc::new(known.or_else(|| self.shipped())?);
        Some(ReplayRecord { is_own: run.command == self.keys.command, run })
    }

    /// Merges the logs of the program's runs into the records. Takes long after a long run.
    pub(super) fn merge_logs(&self) {
        let store = self.store.iter().filter(|_| self.named.is_none());
        store.for_each(|store| pending_runs::merge_of_program(store, &self.keys.program));
    }

    /// Loads the record shipped with the program: next to it, or in [`SHIPPED_DIRECTORY`]. Only
    /// root and the user may be able to write its file.
    fn shipped(&self) -> Option<Run> {
        let places = self.shipped_at()?;
        let is_trusted = |meta: &std::fs::Metadata| {
            let user = rustix::process::geteuid().as_raw();
            (meta.uid() == 0 || meta.uid() == user) && meta.mode() & 0o022 == 0
        };
        let known = |place: &PathBuf| {
            let meta = place.metadata().ok().filter(is_trusted)?;
            meta.is_file().then(|| run_file::load(place).ok())?
        };
        places.iter().find_map(known)
    }

    /// True if the run is recorded into a file that the user named.
    pub(super) fn has_record_file(&self) -> bool {
        self.record.is_some()
    }

    /// Writes `run`, in which `lost` accesses are missing, into the file that the user named.
    /// Returns complaints for the user.
    pub(super) fn save_record_file(&self, mut run: Run, lost: u64) -> Vec<String> {
        let mut complaints = Vec::new();
        let Some(path) = &self.record else { return complaints };
        run.origin = self.origin.clone();
        let written = run_file::save(path, &format::encode_within(&run, format::FILE_MAX));
        if lost > 0 {
            let path = path.display();
            complaints.push(format!("{lost} accesses are missing in the record {path}"));
        }
        complaints.extend(written.err().map(|error| format!("not recorded: {error}")));
        complaints
    }

    /// True if a run with so many accesses is remembered.
    pub(super) fn is_worth_keeping(&self, accesses: usize) -> bool {
        self.learning == Learning::Always || accesses >= KEPT_ACCESSES_MIN
    }

    /// Store in which the run is remembered, if it is.
    pub(super) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Keys of the command.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Command line and directory.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Paths where a record may have been shipped with the program.
    fn shipped_at(&self) -> Option<[PathBuf; 2]> {
        let (path, _) = self.program.as_ref()?;
        let path = Path::new(OsStr::from_bytes(path));
        let mut name = path.file_name()?.to_owned();
        name.push(SHIPPED_SUFFIX);
        Some([path.with_file_name(&name), Path::new(SHIPPED_DIRECTORY).join(&name)])
    }

    /// Returns complaints for a command that ran natively.
    pub fn complaints_if_native(&self) -> Vec<String> {
        let path = self.record.iter();
        path.map(|path| {
            format!("not recorded in {}: the command ran natively", path.as_os_str().display())
        })
        .collect()
    }
}

/// Fewest accesses of a run that is stored: one with fewer hardly waited.
const KEPT_ACCESSES_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn cat() -> Command {
        Command { program: "cat".into(), args: vec!["x".into()] }
    }

    #[test]
    fn failed_parts_are_reported_and_the_rest_goes_on() {
        let place = tempfile::tempdir().expect("a directory");
        let broken = place.path().join("broken");
        std::fs::write(&broken, "rubbish").expect("ours");
        let mut said = Vec::new();
        let record = Some(place.path().join("new"));
        let asked = HistoryOptions { record, replay: Some(broken), ..HistoryOptions::default() };
        let plan = Plan::new(&asked, &cat(), |line| said.push(line.to_owned())).expect("records");
        assert!(plan.records() && !plan.may_replay());
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("not replayed: ") && !said[0].contains('\n'), "{said:?}");
        assert!(plan.program.as_ref().is_some_and(|(path, _)| path.ends_with(b"/cat")));
        let nothing =
            HistoryOptions { replay: Some("/no/such/file".into()), ..HistoryOptions::default() };
        assert!(Plan::new(&nothing, &cat(), |_| {}).is_none());
    }

    #[test]
    fn record_of_the_same_command_is_its_own() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run");
        let record = HistoryOptions { record: Some(path.clone()), ..HistoryOptions::default() };
        let plan = Plan::new(&record, &cat(), |line| panic!("{line}")).expect("records");
        let run = Run { command: plan.command(), ..Run::default() };
        assert_eq!(plan.save_record_file(run, 3).len(), 1, "three are missing");
        let replay = HistoryOptions { replay: Some(path), ..HistoryOptions::default() };
        let again = Plan::new(&replay, &cat(), |line| panic!("{line}")).expect("replays");
        assert!(again.replay_record().is_some_and(|known| known.is_own));
        let other = Command { program: "cat".into(), args: vec!["y".into()] };
        let other = Plan::new(&replay, &other, |line| panic!("{line}")).expect("replays");
        assert!(other.replay_record().is_some_and(|known| !known.is_own));
    }
}
