//! Store of recorded runs that are kept automatically, in the user's state directory.
//!
//! There are three of each run, from the particular to the general ([`Keys`]): of the command as it
//! was given; of its program in that directory; and of its program. The first that is found is
//! replayed, so that a command with other arguments still begins with what all runs of its program
//! read.
//!
//! The name of a file is its key. Files are private to the user. They are replaced by renaming, so
//! of two runs of a command at once the one that ends last is remembered; no lock is needed.
//! Bounded: a file may have [`COMMAND_MAX`] bytes, all together [`TOTAL_MAX`]; those that were not
//! used for longest go first.
//!
//! Nothing is made there before there is something to be kept. Two files besides are the user's
//! will: [`DISABLED`], with which nothing is learned, and [`EXCLUDED`], a list of directories of
//! which nothing is recorded.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::run_file::{self, HistoryError, TEMPORARY};
use crate::{Attributes, CommandKey, Run, format};

/// Bytes that one command's run may have.
pub const COMMAND_MAX: usize = 4 << 20;
/// Bytes of all of them.
pub const TOTAL_MAX: u64 = 256 << 20;
/// Suffix of the files.
const SUFFIX: &str = ".history";
/// Age at which a temporary file counts as left behind.
const TEMPORARY_MAX_AGE: Duration = Duration::from_secs(3600);

/// Directory of the logs of runs that are not yet in the records.
const PENDING: &str = "pending";

/// File whose existence disables learning and automatic replay.
pub const DISABLED: &str = "disabled";
/// Directories of which nothing is recorded: absolute paths, each ended by NUL.
pub const EXCLUDED: &str = "excluded";

/// File systems whose storage serves one request at a time, as it was measured last: a number a
/// line ([`Store::sole`]).
pub const SOLE: &str = "sole";
/// Most of them that are remembered.
const SOLE_MAX: usize = 64;

/// Keys by which a command's records are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Keys {
    /// The command line, the directory it runs in, and the program's file as it is.
    pub command: CommandKey,
    /// The program in that directory.
    pub place: CommandKey,
    /// The program, by its path.
    pub program: CommandKey,
}

impl Keys {
    /// Keys of a command: its `line`, the directory it runs in, and the program's file.
    pub fn of<'a>(
        line: impl IntoIterator<Item = &'a OsStr>,
        directory: &Path,
        program: &Path,
        attributes: Option<Attributes>,
    ) -> Self {
        let program = program.as_os_str().as_bytes();
        let directory = directory.as_os_str().as_bytes();
        let file = attributes
            .map(|a| [a.size.to_le_bytes(), a.mtime.to_le_bytes(), a.inode.to_le_bytes()].concat());
        let mut whole = vec![directory, program];
        whole.extend(file.as_deref());
        let line: Vec<&OsStr> = line.into_iter().collect();
        whole.extend(line.iter().map(|word| word.as_bytes()));
        Keys {
            command: hash(whole.iter().copied()),
            place: hash([&b"place"[..], program, directory]),
            program: hash([&b"program"[..], program]),
        }
    }

    /// From the particular to the general.
    pub fn all(&self) -> [CommandKey; 3] {
        [self.command, self.place, self.program]
    }
}

/// Hash of parts of which each is told from the next.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> CommandKey {
    let mut hasher = SipHasher13::new();
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}

/// The directory.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    total_max: u64,
    /// The user's home directory, if the store is below it: it is not ours to make.
    home: Option<PathBuf>,
}

/// A record that is kept.
#[derive(Debug)]
pub struct StoredRecord {
    /// Key of the record.
    pub key: CommandKey,
    /// When it was written, or of use last.
    pub used: SystemTime,
    /// Bytes of its file.
    pub bytes: u64,
}

impl Store {
    /// The directory of this user: `$XDG_STATE_HOME/runahead`, or `~/.local/state/runahead`, which
    /// may not be there yet.
    pub fn for_user() -> Result<Self, HistoryError> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        if let Some(state) = variable("XDG_STATE_HOME") {
            return Ok(Store::at(&state.join("runahead"), TOTAL_MAX));
        }
        let home = variable("HOME").ok_or(HistoryError::NoPlace(
            "neither XDG_STATE_HOME nor HOME is set to an absolute path",
        ))?;
        let dir = home.join(".local/state/runahead");
        Ok(Store { dir, total_max: TOTAL_MAX, home: Some(home) })
    }

    /// Store in `dir`, with at most `total_max` bytes.
    pub fn at(dir: &Path, total_max: u64) -> Self {
        Store { dir: dir.to_owned(), total_max, home: None }
    }

    /// Directory of the store.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory if need be, but never the user's home directory. Checks that something
    /// can be kept there.
    pub fn prepare(&self) -> Result<(), HistoryError> {
        if self.home.as_ref().is_some_and(|home| !home.is_dir()) {
            return Err(HistoryError::NoPlace("HOME is not a directory"));
        }
        let dir = &self.dir;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(HistoryError::system("make the directory", dir))?;
        self.check()?;
        let probe = dir.join(format!("{}{TEMPORARY}", std::process::id()));
        File::create(&probe).map_err(HistoryError::system("write to", dir))?;
        let _ = fs::remove_file(&probe);
        Ok(())
    }

    /// Checks that the directory is the user's own, and that no other user can write to it.
    pub(crate) fn check(&self) -> Result<(), HistoryError> {
        let meta = fs::metadata(&self.dir)
            .map_err(HistoryError::system("use the directory", &self.dir))?;
        if meta.uid() != geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(HistoryError::NotPrivate(self.dir.clone()));
        }
        Ok(())
    }

    /// Path of the record of `command`, which need not exist.
    pub fn file(&self, command: &CommandKey) -> PathBuf {
        self.dir.join(digits(command) + SUFFIX)
    }

    /// Extension of the logs of runs that are not yet in the records.
    pub const LOG_EXTENSION: &str = "run";

    /// Directory of the logs of the program's runs, which need not exist.
    pub fn pending_directory(&self, program: &CommandKey) -> PathBuf {
        self.dir.join(PENDING).join(digits(program))
    }

    /// Path of the log of a run under these keys, which need not exist.
    pub fn pending_log(&self, keys: &Keys) -> PathBuf {
        let name = digits(&keys.command);
        self.pending_directory(&keys.program).join(name).with_extension(Self::LOG_EXTENSION)
    }

    /// Directories with logs.
    pub fn pending_directories(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.dir.join(PENDING)).into_iter().flatten().flatten();
        all.map(|entry| entry.path()).collect()
    }

    /// Loads the record under `key`.
    pub fn load(&self, key: &CommandKey) -> Result<Option<Run>, HistoryError> {
        let path = self.file(key);
        if !path.exists() {
            return Ok(None);
        }
        self.check()?;
        match run_file::load(&path) {
            Ok(run) => Ok((run.command == *key).then_some(run)),
            Err(HistoryError::System { error, .. })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// True if the user has disabled learning.
    pub fn is_disabled(&self) -> bool {
        self.dir.join(DISABLED).exists()
    }

    /// From now on nothing is to be learned, or it is.
    pub fn disable(&self, disabled: bool) -> Result<(), HistoryError> {
        let path = self.dir.join(DISABLED);
        if disabled {
            self.prepare()?;
            return File::create(&path).map(drop).map_err(HistoryError::system("make", &path));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(HistoryError::system("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Directories of which nothing is to be recorded.
    pub fn excluded(&self) -> Vec<Vec<u8>> {
        let list = fs::read(self.dir.join(EXCLUDED)).unwrap_or_default();
        let paths = list.split(|&byte| byte == 0).filter(|path| path.first() == Some(&b'/'));
        paths.map(<[u8]>::to_vec).collect()
    }

    /// Excludes the directory `path` from recording from now on, or includes it again.
    pub fn exclude(&self, path: &Path, excluded: bool) -> Result<(), HistoryError> {
        self.prepare()?;
        let path = path.as_os_str().as_bytes();
        let mut all = self.excluded();
        all.retain(|other| other != path);
        if excluded {
            all.push(path.to_vec());
        }
        let mut list = Vec::new();
        all.iter().for_each(|path| {
            list.extend_from_slice(path);
            list.push(0);
        });
        run_file::save(&self.dir.join(EXCLUDED), &list)
    }

    /// Path of the file behind [`Self::sole`], which need not exist.
    pub fn sole_file(&self) -> PathBuf {
        self.dir.join(SOLE)
    }

    /// File systems (statfs(2), `f_fsid`) whose storage was found to serve one request at a time.
    pub fn sole(&self) -> Vec<u64> {
        let list = fs::read_to_string(self.sole_file()).unwrap_or_default();
        list.lines().take(SOLE_MAX).filter_map(|line| u64::from_str_radix(line, 16).ok()).collect()
    }

    /// Records findings about file systems: new ones are appended, those that no longer serve one
    /// request at a time are removed.
    pub fn note_sole(&self, found: &[(u64, bool)]) -> Result<(), HistoryError> {
        let before = self.sole();
        let mut all = before.clone();
        for &(file_system, sole) in found {
            match sole {
                true if !all.contains(&file_system) => all.push(file_system),
                true => {}
                false => all.retain(|&other| other != file_system),
            }
        }
        if all == before {
            return Ok(());
        }
        self.prepare()?;
        let newest = &all[all.len().saturating_sub(SOLE_MAX)..];
        let lines: String = newest.iter().map(|number| format!("{number:x}\n")).collect();
        run_file::save(&self.sole_file(), lines.as_bytes())
    }

    /// Records in the store, the one used last first.
    pub fn list(&self) -> Vec<StoredRecord> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(key) = name.to_str().and_then(|name| key_of(name.strip_suffix(SUFFIX)?))
            else {
                continue;
            };
            let Ok(meta) = entry.metadata() else { continue };
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            all.push(StoredRecord { key, used, bytes: meta.len() });
        }
        all.sort_by_key(|kept| std::cmp::Reverse(kept.used));
        all
    }

    /// Removes what is remembered under `key`; false if nothing was.
    pub fn forget(&self, key: &CommandKey) -> Result<bool, HistoryError> {
        let path = self.file(key);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(HistoryError::system("remove", &path)(error)),
        }
    }

    /// Remembers `run`, and sees to the bounds.
    pub fn save(&self, run: &Run) -> Result<(), HistoryError> {
        self.prepare()?;
        let most = COMMAND_MAX.min(self.total_max as usize);
        run_file::save(&self.file(&run.command), &format::encode_within(run, most))?;
        self.prune();
        Ok(())
    }

    /// Marks the record of `command` as used.
    pub fn was_used(&self, command: &CommandKey) {
        if let Ok(file) = File::open(self.file(command)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes what is too much, and what was left behind. Another may do the same meanwhile.
    fn prune(&self) {
        let mut kept = Vec::new();
        let directories = [vec![self.dir.clone()], self.pending_directories()].concat();
        let entries = directories.iter().flat_map(fs::read_dir).flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let is_log = Path::new(&name).extension().is_some_and(|end| end == Self::LOG_EXTENSION);
            let Ok(meta) = entry.metadata() else { continue };
            let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if name.as_bytes().ends_with(TEMPORARY.as_bytes()) {
                if modified.elapsed().is_ok_and(|age| age > TEMPORARY_MAX_AGE) {
                    let _ = fs::remove_file(entry.path());
                }
            } else if (is_log || name.as_bytes().ends_with(SUFFIX.as_bytes())) && meta.is_file() {
                kept.push((modified, entry.path(), meta.len()));
            }
        }
        kept.sort_unstable();
        let mut total: u64 = kept.iter().map(|(.., len)| len).sum();
        for (_, path, len) in kept {
            if total <= self.total_max {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= len;
            }
        }
    }
}

/// A key as people see it.
pub fn digits(key: &CommandKey) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key_of(digits: &str) -> Option<CommandKey> {
    let mut key = CommandKey::default();
    if digits.len() != 2 * key.len() || !digits.is_ascii() {
        return None;
    }
    for (n, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{Access, AccessKind, RecordedPath};

    fn run(command: u8, accesses: u64) -> Run {
        let mut run = Run { command: [command; 16], ..Run::default() };
        for n in 0..accesses {
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            run.paths.push(RecordedPath { path: format!("/{key}").into(), key, attributes: None });
            run.accesses.push(Access { path: n as u32, kind: AccessKind::Lookup });
        }
        run
    }

    fn bytes(dir: &Path) -> u64 {
        let sizes = dir.read_dir().expect("ours").map(|e| e.expect("ours").metadata());
        sizes.map(|meta| meta.expect("ours").len()).sum()
    }

    #[test]
    fn each_part_of_a_command_changes_its_key() {
        let line = |text: &'static [&'static str]| text.iter().map(OsStr::new);
        let (here, program) = (Path::new("/here"), Path::new("/bin/cat"));
        let file = |inode| Some(Attributes { size: 1, mtime: 2, inode });
        let keys = [
            Keys::of(line(&["cat", "a"]), here, program, file(3)),
            Keys::of(line(&["cata"]), here, program, file(3)),
            Keys::of(line(&["cat", "a", ""]), here, program, file(3)),
            Keys::of(line(&["cat", "a"]), Path::new("/there"), program, file(3)),
            Keys::of(line(&["cat", "a"]), here, Path::new("/my/cat"), file(3)),
            Keys::of(line(&["cat", "a"]), here, program, file(4)),
            Keys::of(line(&["cat", "a"]), here, program, None),
        ];
        for (n, one) in keys.iter().enumerate() {
            assert!(keys[..n].iter().all(|other| other.command != one.command), "{n}");
        }
        for same in [1, 2, 5, 6] {
            assert_eq!(keys[0].all()[1..], keys[same].all()[1..], "{same}");
        }
        assert!(keys[0].place != keys[3].place && keys[0].program == keys[3].program);
        assert!(keys[0].program != keys[4].program);
        for one in &keys {
            assert!(one.command != one.place && one.place != one.program);
        }
        // Of this build and every other one.
        assert_eq!(digits(&keys[0].command), DIGITS);
    }
    const DIGITS: &str = "9683028189e2f79f7d999bc0c6ccd92a";

    #[test]
    fn saved_record_is_private_and_found_again() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = place.path().join("state/runahead");
        let store = Store::at(&dir, TOTAL_MAX);
        assert!(store.load(&[1; 16]).expect("no error").is_none() && !dir.exists());
        store.prepare().expect("made");
        assert_eq!(dir.metadata().expect("there").permissions().mode() & 0o777, 0o700);
        assert!(store.load(&[1; 16]).expect("no error").is_none());
        store.save(&run(1, 10)).expect("written");
        assert_eq!(store.load(&[1; 16]).expect("there"), Some(run(1, 10)));
        let file = store.file(&[1; 16]);
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        // Another command's record lies in its place.
        fs::rename(&file, store.file(&[2; 16])).expect("ours");
        assert!(store.load(&[2; 16]).expect("no error").is_none());

        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(matches!(store.prepare(), Err(HistoryError::NotPrivate(_))));
        assert!(matches!(store.load(&[2; 16]), Err(HistoryError::NotPrivate(_))));
        assert!(Store::at(Path::new("/proc/none"), TOTAL_MAX).prepare().is_err());
        fs::write(place.path().join("file"), "").expect("ours");
        assert!(Store::at(&place.path().join("file/below"), TOTAL_MAX).prepare().is_err());
    }

    #[test]
    fn user_settings_are_kept_in_the_store() {
        let place = tempfile::tempdir().expect("a directory");
        let store = Store::at(&place.path().join("runahead"), TOTAL_MAX);
        assert!(!store.is_disabled() && store.excluded().is_empty() && !store.dir().exists());
        store.disable(true).expect("made");
        assert!(store.is_disabled());
        (0..2).for_each(|_| store.disable(false).expect("removed"));
        assert!(!store.is_disabled());
        let secret = Path::new("/home/me/a\nb");
        for path in [Path::new("/one"), secret, secret] {
            store.exclude(path, true).expect("written");
        }
        assert_eq!(store.excluded(), [b"/one".to_vec(), b"/home/me/a\nb".to_vec()]);
        store.exclude(Path::new("/one"), false).expect("written");
        assert_eq!(store.excluded().len(), 1);
        store.note_sole(&[(7, true), (0xabc, true), (9, false)]).expect("written");
        store.note_sole(&[(7, false), (0xabc, true), (1, true)]).expect("written");
        assert_eq!(store.sole(), [0xabc, 1]);
        store.save(&run(3, 5)).expect("written");
        let [kept] = &store.list()[..] else { panic!("{:?}", store.list()) };
        assert_eq!((kept.key, key_of(&digits(&kept.key))), ([3; 16], Some([3; 16])));
        assert!(store.forget(&[3; 16]).expect("removed") && store.list().is_empty());
        assert!(!store.forget(&[3; 16]).expect("nothing to remove"));
        assert!(
            ["", "0", "zz".repeat(16).as_str(), "é".repeat(16).as_str()]
                .iter()
                .all(|d| key_of(d).is_none())
        );
    }

    #[test]
    fn oldest_records_and_stale_temporary_files_are_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let one = format::encode(&run(0, 1000)).len() as u64;
        let store = Store::at(place.path(), 4 * one + one / 2);
        let (old, new) = (place.path().join("old.new"), place.path().join("fresh.new"));
        let age = |path: &Path, hours: u64| {
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let then = SystemTime::now() - Duration::from_secs(hours * 3600);
            file.expect("ours").set_modified(then).expect("ours");
        };
        age(&old, 2);
        age(&new, 0);
        for command in 0..8u8 {
            store.save(&run(command, 1000)).expect("written");
            age(&store.file(&[command; 16]), 100 - u64::from(command));
            if command == 5 {
                // The one that would be next to go.
                store.was_used(&[2; 16]);
            }
            assert!(bytes(place.path()) <= 4 * one + one / 2, "after {command}");
        }
        let left: Vec<u8> =
            (0..8).filter(|&n| store.load(&[n; 16]).expect("no error").is_some()).collect();
        assert_eq!(left, [2, 5, 6, 7]);
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn one_record_is_bounded() {
        let place = tempfile::tempdir().expect("a directory");
        let store = Store::at(place.path(), TOTAL_MAX);
        let long = run(9, PATHS);
        assert!(format::encode(&long).len() > COMMAND_MAX, "it tests nothing");
        store.save(&long).expect("written");
        assert!(bytes(place.path()) <= COMMAND_MAX as u64);
        let cut = store.load(&[9; 16]).expect("there").expect("there");
        assert!(
            cut.accesses.len() > 10_000 && cut.accesses[..] == long.accesses[..cut.accesses.len()]
        );
    }
    const PATHS: u64 = 200_000;
}
