//! Store of tries: a private directory for each, below the user's state directory.
//!
//! | name | contents |
//! |---|---|
//! | [`META`] | a [`TryMetadata`] as JSON |
//! | [`LOCK`] | locked (flock(2)) while the command runs, and while the try is committed |
//! | [`DIRECTORY`] | the try's directory ([`runahead_abi::overlay`]) |
//!
//! The try's directory also has the store of nested tries.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runahead_abi::overlay::nested_try::{DIRECTORY, TRIES};
use runahead_abi::overlay::{
    CHANGES, ChangeFilter, DIRECTORY_MAX, FILTER, LINKS, TEMPORARY, UPPER,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::time_names::time_name;
use crate::{Error, Result, io_error};

/// Name of the file of metadata.
pub const META: &str = "meta.json";
/// Name of [`META`] in a try that is being removed.
const DROPPED: &str = "dropped";
/// Name of the lock file.
pub const LOCK: &str = "lock";
/// Time that a try which has changed nothing keeps its name.
const UNCHANGED_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Metadata of a try.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct TryMetadata {
    /// Name: the time of the start ([`crate::time_names`]). That of a nested try starts with the
    /// outer one's and a dot.
    pub id: String,
    /// Name of the outer try of a nested one.
    #[serde(default)]
    pub inside: Option<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Bytes of `command`, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_bytes: Option<Vec<Vec<u8>>>,
    /// Working directory at the start.
    pub directory: String,
    /// Bytes of `directory`, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_bytes: Option<Vec<u8>>,
    /// Start in seconds since 1970.
    pub started: u64,
    /// End in seconds since 1970. `None` while the command runs, or if its end was not recorded.
    pub ended: Option<u64>,
    /// Exit status of the command, or 128 plus the number of the signal that ended it.
    pub status: Option<i32>,
    /// PID of the `runahead` process that runs the command.
    pub pid: u32,
    /// Access to the network: `allow` or `refuse`.
    pub network: String,
    /// Changes that the kernel could not deny the command.
    pub unprotected: Vec<String>,
    /// True if the command has changed nothing: there is nothing to commit, and the name is kept
    /// for a while.
    #[serde(default)]
    pub unchanged: bool,
}

impl TryMetadata {
    /// The command and its arguments.
    pub fn words(&self) -> Vec<OsString> {
        match &self.command_bytes {
            Some(words) => words.iter().cloned().map(OsString::from_vec).collect(),
            None => self.command.iter().map(OsString::from).collect(),
        }
    }

    /// Working directory at the start.
    pub fn directory_path(&self) -> PathBuf {
        match &self.directory_bytes {
            Some(bytes) => PathBuf::from(OsString::from_vec(bytes.clone())),
            None => PathBuf::from(&self.directory),
        }
    }
}

/// Tries of a user, or those nested in one.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
    /// Name of the outer try.
    inside: Option<String>,
}

/// A try.
#[derive(Debug, Clone)]
pub struct Try {
    directory: PathBuf,
    /// Metadata.
    pub meta: TryMetadata,
    /// True if a commit does not compare what the try has read.
    pub ignores_reads: bool,
}

/// Lock of a try, released on drop.
#[derive(Debug)]
pub struct TryLock {
    file: File,
}

impl AsFd for TryLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn create_private_directory(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).map_err(io_error("make", path))
}

/// Returns the current time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Store {
    /// Opens the store below `directory`, or the user's state directory.
    pub fn new(directory: Option<&Path>) -> Result<Self> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => {
                let absolute = |name: &str| {
                    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
                };
                let state = absolute("XDG_STATE_HOME")
                    .or_else(|| {
                        // A home directory that is not there is not ours to make.
                        let home = absolute("HOME").filter(|home| home.is_dir())?;
                        Some(home.join(".local/state"))
                    })
                    .ok_or(Error::NoHome)?;
                state.join("runahead/tries")
            }
        };
        Ok(Store { directory, inside: None })
    }

    /// Opens the store of the tries nested in the try whose directory is `overlay_directory`.
    pub fn nested_in(overlay_directory: &Path) -> Result<Self> {
        let around = Try::load(overlay_directory.parent().unwrap_or(overlay_directory).to_owned())?;
        Ok(around.nested())
    }

    /// Directory of the store.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates a try for a command that is about to start. Returns its lock too, to be held while
    /// the command runs.
    pub fn create(&self, command: Vec<OsString>, directory: &Path) -> Result<(Try, TryLock)> {
        create_private_directory(&self.directory)?;
        let root = self.directory.canonicalize().map_err(io_error("find", &self.directory))?;
        self.remove_expired();
        let started = now();
        for later in 0.. {
            let name = time_name(started + Duration::from_millis(later));
            let path = root.join(&name);
            let id = match &self.inside {
                Some(around) => format!("{around}.{name}"),
                None => name,
            };
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(io_error("make", &path))?,
            }
            let overlay_directory = path.join(DIRECTORY);
            if overlay_directory.as_os_str().len() >= DIRECTORY_MAX {
                let _ = fs::remove_dir(&path);
                return Err(Error::TooLong(root));
            }
            for name in [UPPER, TEMPORARY, LINKS] {
                create_private_directory(&overlay_directory.join(name))?;
            }
            let make = |name: &str| {
                let path = overlay_directory.join(name);
                File::create(&path).map_err(io_error("make", &path))
            };
            make(CHANGES)?;
            let filter = make(FILTER)?;
            filter
                .set_len(ChangeFilter::BYTES as u64)
                .map_err(io_error("make", &overlay_directory))?;
            copy_root_metadata(&overlay_directory.join(UPPER))?;
            let meta = TryMetadata {
                id,
                inside: self.inside.clone(),
                command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
                command_bytes: command
                    .iter()
                    .any(|word| word.to_str().is_none())
                    .then(|| command.iter().map(|word| word.as_bytes().to_vec()).collect()),
                directory: directory.to_string_lossy().into_owned(),
                directory_bytes: directory
                    .to_str()
                    .is_none()
                    .then(|| directory.as_os_str().as_bytes().to_vec()),
                started: started.as_secs(),
                pid: std::process::id(),
                ..TryMetadata::default()
            };
            let new = Try { directory: path, meta, ignores_reads: false };
            new.save()?;
            let lock = new.lock()?.ok_or_else(|| new.still_running())?;
            return Ok((new, lock));
        }
        unreachable!("some millisecond has no try yet")
    }

    /// Removes the tries that have changed nothing and ended more than a day ago.
    fn remove_expired(&self) {
        let first = time_name(now().saturating_sub(UNCHANGED_KEPT));
        for name in self.names().into_iter().filter(|name| *name < first) {
            let Ok(tried) = Try::load(self.directory.join(name)) else { continue };
            let ended = tried.meta.ended.map_or(Duration::ZERO, Duration::from_secs);
            if tried.meta.unchanged
                && ended + UNCHANGED_KEPT < now()
                && let Ok(Some(_lock)) = tried.lock()
            {
                // It is removed later if it cannot be now.
                let _ = tried.remove();
            }
        }
    }

    /// Returns the names of the tries of this store, without the outer try's.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Returns the tries of [`Store::list`] that have something to commit or undo.
    pub fn undecided(&self) -> Vec<Try> {
        let mut all = self.list();
        all.retain(|tried| !tried.meta.unchanged);
        all
    }

    /// Returns all tries, the newest last, each followed by its nested ones. Unreadable tries are
    /// left out.
    pub fn list(&self) -> Vec<Try> {
        let mut own = self.top_level();
        own.sort_by(|a, b| a.meta.id.cmp(&b.meta.id));
        let with_inner = |tried: Try| {
            let inner = tried.nested().list();
            std::iter::once(tried).chain(inner)
        };
        own.into_iter().flat_map(with_inner).collect()
    }

    /// Returns the tries of this store without nested ones. What is left of one whose removal was
    /// interrupted is removed.
    fn top_level(&self) -> Vec<Try> {
        let load = |name| {
            let directory = self.directory.join(name);
            let loaded = Try::load(directory.clone());
            if loaded.is_err() {
                remove_dropped(directory);
            }
            loaded.ok()
        };
        self.names().into_iter().filter_map(load).collect()
    }

    /// True if a try of this store is nested in another.
    pub fn is_nested(&self, tried: &Try) -> bool {
        tried.meta.inside != self.inside
    }
}

/// Gives the upper root directory the permissions and times of the root directory.
fn copy_root_metadata(upper: &Path) -> Result<()> {
    let root = fs::metadata("/").map_err(io_error("examine", Path::new("/")))?;
    let set = |e: std::io::Error| io_error("make", upper)(e);
    fs::set_permissions(upper, root.permissions()).map_err(set)?;
    let times = fs::FileTimes::new()
        .set_modified(root.modified().unwrap_or(UNIX_EPOCH))
        .set_accessed(root.accessed().unwrap_or(UNIX_EPOCH));
    let directory = File::open(upper).map_err(io_error("open", upper))?;
    directory.set_times(times).map_err(io_error("make", upper))
}

impl Try {
    pub(crate) fn load(directory: PathBuf) -> Result<Self> {
        let path = directory.join(META);
        let text = fs::read(&path).map_err(io_error("read", &path))?;
        let meta = serde_json::from_slice(&text)
            .map_err(|error| Error::Broken { path, why: error.to_string() })?;
        Ok(Try { directory, meta, ignores_reads: false })
    }

    /// Records the end of the command.
    pub fn end(&mut self, status: i32) -> Result<()> {
        self.meta.ended = Some(now().as_secs());
        self.meta.status = Some(status);
        self.save()
    }

    /// Writes the metadata.
    pub fn save(&self) -> Result<()> {
        let (path, new) = (self.directory.join(META), self.directory.join("meta.new"));
        let text = serde_json::to_vec_pretty(&self.meta).unwrap_or_default();
        fs::write(&new, text).map_err(io_error("write", &new))?;
        fs::rename(&new, &path).map_err(io_error("write", &path))
    }

    /// Locks the try. `None` if another process has the lock, mostly its command's.
    pub fn lock(&self) -> Result<Option<TryLock>> {
        let path = self.directory.join(LOCK);
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(io_error("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(TryLock { file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(io_error("lock", &path)(errno.into())),
        }
    }

    /// Directory of the try in the store.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Directory of the try's changes, which agents get.
    pub fn overlay_directory(&self) -> PathBuf {
        self.directory.join(DIRECTORY)
    }

    /// Store of the nested tries.
    pub fn nested(&self) -> Store {
        Store {
            directory: self.overlay_directory().join(TRIES),
            inside: Some(self.meta.id.clone()),
        }
    }

    /// Fails if the try has nested tries.
    pub fn check_no_nested(&self) -> Result<()> {
        let inside: Vec<_> =
            self.nested().undecided().into_iter().map(|tried| tried.meta.id).collect();
        match inside.is_empty() {
            true => Ok(()),
            false => Err(Error::Undecided { id: self.meta.id.clone(), inside: inside.join(", ") }),
        }
    }

    /// Bytes of [`Try::overlay_directory`], for agents.
    pub fn overlay_directory_bytes(&self) -> Vec<u8> {
        self.overlay_directory().as_os_str().as_bytes().to_vec()
    }

    /// Removes the try with all its changes. It is not found any more from the beginning on.
    pub fn remove(&self) -> Result<()> {
        let failed = || io_error("remove", &self.directory);
        let [meta, dropped] = [META, DROPPED].map(|name| self.directory.join(name));
        match fs::rename(meta, dropped) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(failed())?,
        }
        make_tree_writable(&self.directory);
        for entry in fs::read_dir(&self.directory).map_err(failed())?.flatten() {
            // These go last, so that an interrupted removal can be finished.
            if [DROPPED, LOCK].iter().all(|name| entry.file_name() != *name) {
                let path = entry.path();
                let removed = match path.is_dir() && !path.is_symlink() {
                    true => fs::remove_dir_all(&path),
                    false => fs::remove_file(&path),
                };
                removed.map_err(io_error("remove", &path))?;
            }
        }
        fs::remove_dir_all(&self.directory).map_err(failed())
    }
}

/// Removes what is left of a try whose removal was interrupted.
fn remove_dropped(directory: PathBuf) {
    if directory.join(DROPPED).exists() {
        let dropped = Try { directory, meta: TryMetadata::default(), ignores_reads: false };
        if let Ok(Some(_lock)) = dropped.lock() {
            let _ = dropped.remove();
        }
    }
}

/// Allows the owner to read, write and search a directory and those below it: others cannot be
/// removed.
pub(crate) fn make_tree_writable(directory: &Path) {
    make_owner_writable(directory);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_tree_writable(&entry.path());
        }
    }
}

/// Allows the owner to read, write and search a directory.
fn make_owner_writable(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if let Ok(found) = fs::symlink_metadata(directory)
        && found.permissions().mode() & 0o700 != 0o700
    {
        let mode = found.permissions().mode() | 0o700;
        let _ = fs::set_permissions(directory, fs::Permissions::from_mode(mode));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_kept_found_and_removed() {
        let path = tempfile::tempdir().expect("a directory");
        let store = Store::new(Some(path.path())).expect("given");
        assert!(matches!(store.find_in(Path::new("/")), Err(Error::NoTries)));
        let make = |command: &str| store.create(vec![command.into()], Path::new("/")).expect("new");
        let ((a, lock), (b, _lock)) = (make("a"), make("b"));
        assert!(a.meta.id < b.meta.id, "two within a millisecond");
        assert_eq!(store.find_in(Path::new("/")).expect("the newest").meta, b.meta);
        assert_eq!(store.find(&a.meta.id).expect("by name").meta.command, ["a"]);
        assert!(matches!(store.find("x"), Err(Error::Unknown(_))));
        assert!(matches!(store.find(&a.meta.id[..5]), Err(Error::Ambiguous(_))));
        assert!(a.is_running());
        drop(lock);
        assert!(!a.is_running() && b.is_running());
        let shut = a.overlay_directory().join(UPPER).join("shut");
        fs::create_dir_all(shut.join("x")).expect("made");
        fs::set_permissions(&shut, std::os::unix::fs::PermissionsExt::from_mode(0o000))
            .expect("shut");
        a.remove().expect("all of it");
        assert_eq!(store.list().len(), 1);
    }
}
