//! The record of what is up: one directory for each mount point, with a JSON record, the control
//! socket, the server's log, and (for a disk) the mount point of the FUSE file system.
//!
//! It lies in `$XDG_RUNTIME_DIR/runahead-testbed`, else `/run/user/UID/runahead-testbed`, else
//! `/tmp/runahead-testbed-UID`, under a name made from the canonical mount point; all three are
//! searched, as `up` and `down` may run in different environments.
//!
//! Invariant: a record is written before the thing that it records exists, so whatever is left
//! after a crash can be found and undone.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::ProcessId;
use crate::{Error, Kind, Step};

/// Record of storage that is, or may be, up at a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) server: Option<ProcessId>,
    pub(crate) loop_number: Option<u32>,
}

impl Record {
    /// True if a server was started and has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.server.is_some_and(|server| !server.is_running())
    }
}

/// The state directory of one mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateDir(PathBuf);

impl StateDir {
    /// Makes the directory for a mount point that has none.
    ///
    /// Fails with [`Error::AlreadyUp`] if it has one: creation is what two concurrent `up` race
    /// for.
    pub(crate) fn create(dir: &Path) -> Result<Self, Error> {
        let root = candidates()
            .into_iter()
            .next()
            .unwrap_or_else(|| PathBuf::from("/tmp/runahead-testbed"));
        let failed = |path: &Path, e| Error::system(Step::KeepRecord, path)(e);
        let mut private = DirBuilder::new();
        private.mode(0o700);
        match private.create(&root) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&root, e)),
            _ => require_ours(&root).map_err(|e| failed(&root, e))?,
        }
        let path = root.join(key(dir));
        match private.create(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::AlreadyUp(dir.to_owned()))
            }
            Err(e) => Err(failed(&path, e)),
            Ok(()) => Ok(Self(path)),
        }
    }

    /// The directory for a mount point, wherever it is.
    pub(crate) fn find(dir: &Path) -> Option<Self> {
        candidates()
            .into_iter()
            .filter(|root| require_ours(root).is_ok())
            .map(|root| root.join(key(dir)))
            .find(|path| path.is_dir())
            .map(Self)
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let path = self.record_path();
        let text = serde_json::to_vec(record)
            .map_err(|source| Error::Format { path: path.clone(), source })?;
        // Renamed into place: a reader sees the old record or the new one, never half of one.
        let draft = path.with_extension("new");
        std::fs::write(&draft, text)
            .and_then(|()| std::fs::rename(&draft, &path))
            .map_err(Error::system(Step::KeepRecord, path))
    }

    /// The record, or none if `up` was killed before it wrote the first.
    pub(crate) fn read(&self) -> Result<Option<Record>, Error> {
        let path = self.record_path();
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|source| Error::Format { path, source }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::system(Step::KeepRecord, path)(e)),
        }
    }

    /// Removes everything. Deletes named files only: a file system still mounted below must never
    /// be emptied.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let failed = |e| Error::system(Step::KeepRecord, &self.0)(e);
        for file in [self.socket(), self.record_path(), self.log()] {
            absent(std::fs::remove_file(file)).map_err(failed)?;
        }
        absent(std::fs::remove_dir(self.fuse_dir())).map_err(failed)?;
        absent(std::fs::remove_dir(&self.0)).map_err(failed)
    }

    fn record_path(&self) -> PathBuf {
        self.0.join("record.json")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("control")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Mount point of a disk's FUSE file system.
    pub(crate) fn fuse_dir(&self) -> PathBuf {
        self.0.join("fuse")
    }
}

fn absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Places for state directories, the preferred first; only those whose parent exists.
fn candidates() -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime
        .into_iter()
        .filter(|dir| dir.is_absolute())
        .chain([PathBuf::from(format!("/run/user/{uid}"))])
        .filter(|dir| std::fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == uid))
        .map(|dir| dir.join("runahead-testbed"))
        .chain([PathBuf::from(format!("/tmp/runahead-testbed-{uid}"))])
        .collect()
}

/// Refuses a directory that another user could have prepared: every user can write to /tmp.
fn require_ours(dir: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(dir)?;
    let ours = found.is_dir()
        && found.uid() == rustix::process::getuid().as_raw()
        && found.mode() & 0o077 == 0;
    if ours { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// FNV-1a of the path: short enough for a socket's 108 bytes whatever the mount point's length.
fn key(dir: &Path) -> String {
    let hash = dir.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The canonical name of a mount point, without asking what is mounted there (it may be dead).
pub(crate) fn canonical(dir: &Path) -> Result<PathBuf, Error> {
    let failed = |e| Error::system(Step::Inspect, dir)(e);
    let absolute = std::path::absolute(dir).map_err(failed)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    let direct = match std::fs::canonicalize(parent) {
        Ok(parent) => parent.join(name),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NotADirectory(dir.to_owned()));
        }
        Err(e) => return Err(failed(e)),
    };
    // `absolute` keeps `..`, and the last component may be a link: then the target is what counts,
    // if it answers.
    match std::fs::canonicalize(&absolute) {
        Ok(resolved) => Ok(resolved),
        Err(_) => Ok(direct),
    }
}
