//! Where tries are kept: a directory for each, private to the user, below the user's state directory.
//!
//! | name | what it is |
//! |---|---|
//! | [`META`] | a [`Meta`] as JSON |
//! | [`LOCK`] | locked (flock(2)) while its command runs, and while it is committed |
//! | [`APART`] | what is held apart ([`runahead_abi::overlay`]); in it, such a directory of directories for the tries inside this one |

use std::fs::{self, DirBuilder, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use runahead_abi::overlay::nested_try::{DIRECTORY, TRIES};
use runahead_abi::overlay::{CHANGES, ChangeFilter, DIRECTORY_MAX, FILTER, TEMPORARY, UPPER};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, io_error};

/// See the module's text.
pub const META: &str = "meta.json";
/// See the module's text.
pub const LOCK: &str = "lock";

/// What is known of a try beside its changes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Meta {
    /// Its name: the time of its start in base 32, so that later ones sort behind. One inside another has that one's, and a dot, at
    /// its front.
    pub id: String,
    /// Name of the try that it is inside, if it is.
    #[serde(default)]
    pub inside: Option<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Directory in which it was started.
    pub directory: String,
    /// When it was started, and when it ended: seconds since 1970. The end is None while it runs, or where it was lost.
    pub started: u64,
    /// See `started`.
    pub ended: Option<u64>,
    /// Exit status of the command; 128 and its number if a signal ended it.
    pub status: Option<i32>,
    /// Process that runs it.
    pub pid: u32,
    /// What it may reach of the network: `allow` or `refuse`.
    pub network: String,
    /// What the kernel did not deny it.
    pub unprotected: Vec<String>,
}

/// All tries of a user, or those inside one.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
    /// Name of that one.
    inside: Option<String>,
}

/// One of them.
#[derive(Debug, Clone)]
pub struct Try {
    directory: PathBuf,
    /// What is known of it.
    pub meta: Meta,
}

/// Keeps a try from others until it is dropped.
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

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A name that sorts by time: seven digits, which last until the year 3058.
fn time_name(seconds: u64) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    (0..7).rev().map(|n| char::from(DIGITS[(seconds >> (5 * n)) as usize & 31])).collect()
}

impl Store {
    /// Below `directory`, or the user's state directory.
    pub fn new(directory: Option<&Path>) -> Result<Self> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => {
                let absolute = |name: &str| {
                    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
                };
                let state = absolute("XDG_STATE_HOME")
                    .or_else(|| Some(absolute("HOME")?.join(".local/state")))
                    .ok_or(Error::NoHome)?;
                state.join("runahead/tries")
            }
        };
        Ok(Store { directory, inside: None })
    }

    /// Those inside the try that is held apart there.
    pub fn nested_in(held: &Path) -> Result<Self> {
        let around = Try::load(held.parent().unwrap_or(held).to_owned())?;
        Ok(around.nested())
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A new one for a command that is about to start, and the lock for as long as it runs.
    pub fn create(&self, command: Vec<String>, directory: &Path) -> Result<(Try, TryLock)> {
        create_private_directory(&self.directory)?;
        let root = self.directory.canonicalize().map_err(io_error("find", &self.directory))?;
        let started = now();
        for later in 0.. {
            let name = time_name(started + later);
            let place = root.join(&name);
            let id = match &self.inside {
                Some(around) => format!("{around}.{name}"),
                None => name,
            };
            match DirBuilder::new().mode(0o700).create(&place) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(io_error("make", &place))?,
            }
            let held = place.join(DIRECTORY);
            if held.as_os_str().len() >= DIRECTORY_MAX {
                let _ = fs::remove_dir(&place);
                return Err(Error::TooLong(root));
            }
            for name in [UPPER, TEMPORARY] {
                create_private_directory(&held.join(name))?;
            }
            let make = |name: &str| {
                let path = held.join(name);
                File::create(&path).map_err(io_error("make", &path))
            };
            make(CHANGES)?;
            let filter = make(FILTER)?;
            filter.set_len(ChangeFilter::BYTES as u64).map_err(io_error("make", &held))?;
            copy_root_metadata(&held.join(UPPER))?;
            let meta = Meta {
                id,
                inside: self.inside.clone(),
                command,
                directory: directory.to_string_lossy().into_owned(),
                started,
                pid: std::process::id(),
                ..Meta::default()
            };
            let new = Try { directory: place, meta };
            new.save()?;
            let lock = new.lock()?.ok_or_else(|| Error::Running(new.meta.id.clone()))?;
            return Ok((new, lock));
        }
        unreachable!("there is a second in which nobody has started one")
    }

    /// All of them, the newest last, and behind each those inside it. What cannot be read is left out.
    pub fn list(&self) -> Vec<Try> {
        let mut own = self.top_level();
        own.sort_by(|a, b| a.meta.id.cmp(&b.meta.id));
        let with_inner = |one: Try| {
            let inner = one.nested().list();
            std::iter::once(one).chain(inner)
        };
        own.into_iter().flat_map(with_inner).collect()
    }

    /// Without those inside others.
    fn top_level(&self) -> Vec<Try> {
        let names = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        names.filter_map(|entry| Try::load(entry.path()).ok()).collect()
    }

    /// One of them is inside another one.
    pub fn is_nested(&self, one: &Try) -> bool {
        one.meta.inside != self.inside
    }

    /// The one that is called so, or whose name begins so, or without that of those around it does; without one, the newest that
    /// is not inside another.
    pub fn find(&self, id: Option<&str>) -> Result<Try> {
        let Some(id) = id else {
            return self
                .top_level()
                .into_iter()
                .max_by_key(|one| one.meta.id.clone())
                .ok_or(Error::NoTries);
        };
        let mut all = self.list();
        if let Some(exact) = all.iter().find(|one| one.meta.id == id) {
            return Ok(exact.clone());
        }
        all.retain(|one| {
            let own = one.meta.id.rsplit('.').next().unwrap_or_default();
            one.meta.id.starts_with(id) || own.starts_with(id)
        });
        match all.len() {
            1 if !id.is_empty() => Ok(all.remove(0)),
            0 => Err(Error::Unknown(id.to_owned())),
            _ => Err(Error::Ambiguous(id.to_owned())),
        }
    }
}

/// The root directory's part of the upper tree is as that is.
fn copy_root_metadata(upper: &Path) -> Result<()> {
    let root = fs::metadata("/").map_err(io_error("look at", Path::new("/")))?;
    let set = |e: std::io::Error| io_error("make", upper)(e);
    fs::set_permissions(upper, root.permissions()).map_err(set)?;
    let times = fs::FileTimes::new()
        .set_modified(root.modified().unwrap_or(UNIX_EPOCH))
        .set_accessed(root.accessed().unwrap_or(UNIX_EPOCH));
    let directory = File::open(upper).map_err(io_error("open", upper))?;
    directory.set_times(times).map_err(io_error("make", upper))
}

impl Try {
    fn load(directory: PathBuf) -> Result<Self> {
        let path = directory.join(META);
        let text = fs::read(&path).map_err(io_error("read", &path))?;
        let meta = serde_json::from_slice(&text)
            .map_err(|error| Error::Broken { path, why: error.to_string() })?;
        Ok(Try { directory, meta })
    }

    /// Writes what is known of it.
    pub fn save(&self) -> Result<()> {
        let (path, new) = (self.directory.join(META), self.directory.join("meta.new"));
        let text = serde_json::to_vec_pretty(&self.meta).unwrap_or_default();
        fs::write(&new, text).map_err(io_error("write", &new))?;
        fs::rename(&new, &path).map_err(io_error("write", &path))
    }

    /// Keeps it for the caller; None: somebody else has it, mostly its command.
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

    /// Whether its command runs, or it is being committed.
    pub fn is_running(&self) -> bool {
        matches!(self.lock(), Ok(None))
    }

    /// Where it is kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What is held apart.
    pub fn overlay_directory(&self) -> PathBuf {
        self.directory.join(DIRECTORY)
    }

    /// Those inside it.
    pub fn nested(&self) -> Store {
        Store {
            directory: self.overlay_directory().join(TRIES),
            inside: Some(self.meta.id.clone()),
        }
    }

    /// An error if there are any.
    pub fn check_no_nested(&self) -> Result<()> {
        let inside: Vec<_> = self.nested().list().into_iter().map(|one| one.meta.id).collect();
        match inside.is_empty() {
            true => Ok(()),
            false => Err(Error::Undecided { id: self.meta.id.clone(), inside: inside.join(", ") }),
        }
    }

    /// The bytes of [`Try::held`], for agents.
    pub fn overlay_directory_bytes(&self) -> Vec<u8> {
        self.overlay_directory().as_os_str().as_bytes().to_vec()
    }

    /// Drops all of it.
    pub fn remove(&self) -> Result<()> {
        // Its lists of entries can only be read, and removed, by who may.
        for entry in walkdir::WalkDir::new(&self.directory).into_iter().flatten() {
            if entry.file_type().is_dir() {
                make_owner_writable(entry.path());
            }
        }
        fs::remove_dir_all(&self.directory).map_err(io_error("remove", &self.directory))
    }
}

/// A directory that its owner may not change, which we are.
pub(crate) fn make_owner_writable(directory: &Path) {
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
    fn names_sort_by_time() {
        let times = [0, 1, 31, 32, 1_700_000_000, 1_700_000_001, (1 << 35) - 1];
        assert!(times.map(time_name).is_sorted());
        assert_eq!(time_name(1_700_000_000).len(), 7);
    }

    #[test]
    fn tries_are_kept_found_and_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let store = Store::new(Some(place.path())).expect("given");
        assert!(matches!(store.find(None), Err(Error::NoTries)));
        let make = |command: &str| store.create(vec![command.into()], Path::new("/")).expect("new");
        let ((a, lock), (b, _lock)) = (make("a"), make("b"));
        assert!(a.meta.id < b.meta.id, "two within a second");
        assert_eq!(store.find(None).expect("the newest").meta, b.meta);
        assert_eq!(store.find(Some(&a.meta.id)).expect("by name").meta.command, ["a"]);
        assert!(matches!(store.find(Some("x")), Err(Error::Unknown(_))));
        assert!(matches!(store.find(Some(&a.meta.id[..5])), Err(Error::Ambiguous(_))));
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
