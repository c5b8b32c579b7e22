//! Recorded runs on disk.
//!
//! A file is written under a temporary name and then renamed: a reader finds a whole file, an older
//! one or none, even if two sessions write at once. It is not synced. After a crash it may be
//! damaged, which its checksum reveals.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::fs::OFlags;

use crate::Run;
use crate::format::{self, FILE_MAX, FormatError};

/// Reason that a recorded run could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A system call failed.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// Step that failed.
        what: &'static str,
        /// Path it failed on.
        path: PathBuf,
        /// Its reason.
        error: io::Error,
    },
    /// The path is not a regular file.
    #[error("{} is not a regular file; give the name of one", .0.display())]
    NotAFile(PathBuf),
    /// The file is longer than any that is written.
    #[error("{} is longer than {FILE_MAX} bytes; it is not a recorded run", .0.display())]
    TooLong(PathBuf),
    /// The file does not hold a recorded run.
    #[error("{}: {error}; record it anew", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Fault in the file's bytes.
        error: FormatError,
    },
    /// There is no directory for automatic records.
    #[error("no directory for what is remembered: {0}")]
    NoPlace(&'static str),
    /// Another user could change the directory or its files.
    #[error("{} belongs to another user, or others may write to it; make it yours alone", .0.display())]
    NotPrivate(PathBuf),
}

impl HistoryError {
    pub(crate) fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| HistoryError::System { what, path, error }
    }
}

/// Reads the run that is recorded in `path`.
pub fn load(path: &Path) -> Result<Run, HistoryError> {
    let bytes = read_regular(path, FILE_MAX)?;
    format::decode(&bytes).map_err(|error| HistoryError::Format { path: path.to_owned(), error })
}

/// Reads a regular file of at most `max` bytes.
pub(crate) fn read_regular(path: &Path, max: usize) -> Result<Vec<u8>, HistoryError> {
    // Opening never waits, whatever kind of file it is.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = file.map_err(HistoryError::system("read", path))?;
    let meta = file.metadata().map_err(HistoryError::system("read", path))?;
    if !meta.is_file() {
        return Err(HistoryError::NotAFile(path.to_owned()));
    }
    // Checked before reading, since the file may be of any size.
    if meta.len() > max as u64 {
        return Err(HistoryError::TooLong(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let longest = max as u64 + 1;
    file.take(longest).read_to_end(&mut bytes).map_err(HistoryError::system("read", path))?;
    if bytes.len() > max {
        return Err(HistoryError::TooLong(path.to_owned()));
    }
    Ok(bytes)
}

/// Absolute path, without links, to which a run recorded in `path` will be written. Only a regular
/// file may be replaced.
pub fn destination(path: &Path) -> Result<PathBuf, HistoryError> {
    let whole = match path.canonicalize() {
        Ok(there) if there.is_file() => return Ok(there),
        Ok(_) => return Err(HistoryError::NotAFile(path.to_owned())),
        Err(_) => std::path::absolute(path).map_err(HistoryError::system("write", path))?,
    };
    match (whole.file_name(), whole.parent()) {
        (Some(name), Some(parent)) => {
            let parent = parent.canonicalize().map_err(HistoryError::system("write", path))?;
            Ok(parent.join(name))
        }
        _ => Err(HistoryError::NotAFile(path.to_owned())),
    }
}

/// Writes `bytes` to `path`, readable by its owner alone.
pub fn save(path: &Path, bytes: &[u8]) -> Result<(), HistoryError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{}{TEMPORARY}", std::process::id(), COUNT.fetch_add(1, Relaxed)));
    let beside = path.with_file_name(name);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(&beside);
    let written = made
        .and_then(|mut file: File| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        HistoryError::System { what: "write", path: path.to_owned(), error }
    })
}

/// Suffix of files that are being written.
pub(crate) const TEMPORARY: &str = ".new";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_private_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("run");
        save(&path, &format::encode(&Run::default())).expect("written");
        assert_eq!(load(&path).expect("read"), Run::default());
        let mode = path.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        save(&path, b"other").expect("written");
        let text = load(&path).expect_err("no run").to_string();
        assert!(text.contains("not a recorded run") && text.lines().count() == 1, "{text}");
        let left = dir.path().read_dir().expect("ours").count();
        assert_eq!(left, 1, "nothing is left beside it");
        let text = save(&dir.path().join("no/where"), b"x").expect_err("no directory").to_string();
        assert!(text.contains("no/where") && text.contains("No such file"), "{text}");
    }

    #[test]
    fn only_regular_files_are_loaded_or_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("mkfifo is there").success());
        for path in [&fifo, Path::new("/dev/null"), Path::new("/dev/zero"), dir.path()] {
            assert!(matches!(load(path), Err(HistoryError::NotAFile(_))), "{}", path.display());
            assert!(
                matches!(destination(path), Err(HistoryError::NotAFile(_))),
                "{}",
                path.display()
            );
        }
        assert!(load(&dir.path().join("none")).is_err());
        let long = dir.path().join("long");
        File::create(&long).and_then(|file| file.set_len(20 << 30)).expect("it takes no room");
        let now = std::time::Instant::now();
        assert!(matches!(load(&long), Err(HistoryError::TooLong(_))));
        assert!(now.elapsed() < std::time::Duration::from_millis(5), "it was read");
        let link = dir.path().join("link");
        std::fs::write(dir.path().join("file"), "").expect("ours");
        std::os::unix::fs::symlink("file", &link).expect("ours");
        let real = dir.path().canonicalize().expect("there");
        assert_eq!(destination(&link).expect("a file"), real.join("file"));
        assert_eq!(destination(&dir.path().join("new")).expect("none yet"), real.join("new"));
    }
}
