//! Files of the programs themselves: the cache, reports, scratch space, the program under test.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, failed};

/// Directory for what takes long to make: `$XDG_CACHE_HOME/runahead`. `scripts/setup` uses it, too.
pub fn cache_dir() -> PathBuf {
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    given("XDG_CACHE_HOME")
        .or_else(|| given("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("runahead")
}

/// Lets `fill` fill a directory beside `root`, which then gets the name `root` in one step.
///
/// # Errors
/// Those of `fill`; or the directory of `root` cannot be written.
pub fn fill_at_once<E: From<Error>>(
    root: &Path,
    prefix: &str,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let parent = root.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(failed("create", parent))?;
    let beside = tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(parent)
        .map_err(failed("create a directory in", parent))?;
    fill(beside.path())?;
    match fs::rename(beside.path(), root) {
        Ok(()) => {
            // The directory has its final name and stays.
            let _ = beside.keep();
            Ok(())
        }
        // Another process was faster.
        Err(_) if root.is_dir() => Ok(()),
        Err(e) => Err(failed("rename to", root)(e).into()),
    }
}

/// Refuses a file system with less than `need` bytes free.
///
/// # Errors
/// [`Error::NoSpace`].
pub fn require_space(dir: &Path, need: u64) -> Result<(), Error> {
    let stat = rustix::fs::statvfs(dir).map_err(|e| failed("look at", dir)(e.into()))?;
    let free = stat.f_bavail * stat.f_frsize;
    if free >= need {
        return Ok(());
    }
    Err(Error::NoSpace { path: dir.to_owned(), free_mib: free >> 20, need_mib: need >> 20 })
}

/// Returns the absolute path of the program `name` that is to be tested: `given`, or the one beside
/// this program, or the one in `target/release`.
///
/// # Errors
/// [`Error::NoSubject`].
pub fn subject(name: &'static str, given: Option<&Path>) -> Result<PathBuf, Error> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(name));
    let path = match given {
        Some(path) => path.to_owned(),
        None => beside()
            .filter(|path| path.is_file())
            .unwrap_or_else(|| Path::new("target/release").join(name)),
    };
    let found = path.is_file().then(|| std::path::absolute(&path).ok()).flatten();
    found.ok_or(Error::NoSubject { name, path })
}

/// Reads a report; `None` if there is no such file.
///
/// # Errors
/// [`Error::Format`].
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed("read", path))?,
    };
    let parsed = serde_json::from_slice(&bytes);
    parsed.map(Some).map_err(|source| Error::Format { path: path.to_owned(), source })
}

/// Writes a report, completely or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(path: &Path, report: &impl Serialize) -> Result<(), Error> {
    let json = serde_json::to_string_pretty(report).map_err(std::io::Error::from);
    write_at_once(path, &(json.map_err(failed("write", path))? + "\n"))
}

/// Writes a file, completely or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_at_once(path: &Path, text: &str) -> Result<(), Error> {
    let beside = path.with_extension("new");
    fs::write(&beside, text).map_err(failed("write", &beside))?;
    fs::rename(&beside, path).map_err(failed("rename to", path))
}

/// Removes a file or a directory with all that is in it, if it exists.
///
/// # Errors
/// It cannot be removed.
pub fn remove(path: &Path) -> Result<(), Error> {
    let is_dir = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    match if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) } {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("remove", path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), None);
        write_json(&path, &[1, 2]).unwrap();
        assert_eq!(read_json(&path).unwrap(), Some(vec![1, 2]));
        assert!(matches!(read_json::<String>(&path), Err(Error::Format { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_directory_gets_its_name_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("new/root");
        let failing =
            fill_at_once(&root, ".making-", |_| Err(failed("try", "it")(ErrorKind::Other.into())));
        assert!(failing.is_err() && !root.exists());
        let write = |into: &Path| fs::write(into.join("f"), "").map_err(failed("write", into));
        fill_at_once::<Error>(&root, ".making-", write).unwrap();
        assert!(root.join("f").exists());
        remove(&root).unwrap();
        remove(&root).unwrap();
        assert_eq!(fs::read_dir(root.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_full_file_system_and_a_missing_subject_are_refused() {
        let dir = Path::new("/");
        assert!(require_space(dir, 0).is_ok());
        assert!(matches!(require_space(dir, u64::MAX), Err(Error::NoSpace { .. })));
        assert!(subject("runahead", Some(Path::new("/bin/sh"))).is_ok());
        let missing = subject("runahead", Some(Path::new("/none"))).unwrap_err().to_string();
        assert!(missing.contains("/none") && missing.contains("--runahead PATH"), "{missing}");
    }
}
