//! Data that some rows work on instead of the tree: databases, arrays, object files, a recognizer's
//! models.
//!
//! Each dataset is made once in an invocation, beside the storage, and copied onto each storage
//! that needs it. A storage holds one dataset and nothing else. All are made of installed packages
//! or of seeded sequences, and so are the same in every run.
//!
//! Invariant: a dataset is complete or its row has no job.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_harness::{cache_dir, find_program, remove, require_space, run_helper};
use tempfile::TempDir;

use crate::data::job::Job;
use crate::data::linux_source::SourceTree;
use crate::data::progress;
use crate::error::{Error, Failure};

/// Data of rows.
#[derive(Debug)]
pub struct Dataset {
    /// Its directory on the storage.
    pub dir: &'static str,
    /// MiB of the memory file system that a storage with it takes.
    pub mib: u64,
    /// MiB of a quick run.
    pub quick_mib: u64,
    /// Programs and files that making it needs, with Debian's packages of them.
    pub needs: &'static [RequiredProgram],
    /// Makes it in an empty directory.
    pub make: fn(&DatasetBuild<'_>) -> Result<(), Error>,
}

/// A program, or a file if the name begins with `/`, and Debian's package of it.
pub type RequiredProgram = (&'static str, &'static str);

/// Source and directory of a dataset that is being made.
#[derive(Debug, Clone, Copy)]
pub struct DatasetBuild<'a> {
    pub dir: &'a Path,
    pub source: &'a SourceTree,
    pub quick: bool,
}

impl DatasetBuild<'_> {
    /// Returns `full`, or `little` of a quick run.
    pub fn size<T>(&self, full: T, little: T) -> T {
        if self.quick { little } else { full }
    }
}

impl PartialEq for Dataset {
    fn eq(&self, other: &Self) -> bool {
        self.dir == other.dir
    }
}

impl Dataset {
    /// Bytes of the memory file system that a storage with it takes.
    pub fn space(&self, quick: bool) -> u64 {
        (if quick { self.quick_mib } else { self.mib }) << 20
    }

    /// Fails with [`Failure::NotInstalled`] if anything is missing that it is made of.
    pub fn require(&self) -> Result<(), Failure> {
        let missing = |(name, _): &&RequiredProgram| find(name).is_none();
        match self.needs.iter().find(missing) {
            Some((name, package)) => {
                Err(Failure::NotInstalled { program: (*name).to_owned(), package })
            }
            None => Ok(()),
        }
    }
}

fn find(name: &str) -> Option<PathBuf> {
    match name.starts_with('/') {
        true => Some(PathBuf::from(name)).filter(|path| path.is_file()),
        false => find_program(name),
    }
}

/// Debian's Python, whatever else `python3` in PATH may be.
pub const PYTHON: &str = "/usr/bin/python3";
pub const NUMPY: &str = "/usr/lib/python3/dist-packages/numpy/__init__.py";

/// A job of Debian's Python that runs `script`, with the arguments that follow.
pub fn python(dir: &Path, script: &str) -> Job {
    Job::new(PYTHON, "python3", dir).args(["-c", script])
}

/// Runs `script` with Debian's Python in `dir`.
pub fn run_python<A: Into<OsString>>(
    dir: &Path,
    script: &str,
    args: impl IntoIterator<Item = A>,
    modules: Option<&Path>,
) -> Result<(), Error> {
    let mut python = Command::new(PYTHON);
    python.args(["-c", script]).args(args.into_iter().map(Into::into)).current_dir(dir);
    python.envs(modules.map(|modules| ("PYTHONPATH", modules)));
    run_helper(&mut python)?;
    Ok(())
}

/// Directory in which `scripts/setup` puts Python's modules that Debian has no package of, if this
/// one is there.
pub fn module(module: &'static str) -> Result<PathBuf, Failure> {
    let modules = cache_dir().join("python");
    match modules.join(module).is_dir() {
        true => Ok(modules),
        false => Err(Failure::NoModule { module, path: modules }),
    }
}

/// Writes pieces of a file one after the other.
pub fn write_pieces<P: AsRef<[u8]>>(
    path: &Path,
    pieces: impl IntoIterator<Item = P>,
) -> Result<(), Error> {
    let failed = || Error::system("write", path);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed())?);
    pieces.into_iter().try_for_each(|piece| file.write_all(piece.as_ref())).map_err(failed())?;
    file.flush().map_err(failed())
}

/// A file without a name that holds `text`, to be read from its start.
pub fn script(text: &str) -> Result<File, Error> {
    let failed = || Error::system("write a file in", std::env::temp_dir());
    let mut file = tempfile::tempfile().map_err(failed())?;
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).map_err(failed())?;
    Ok(file)
}

/// Lets other users pass through a directory of ours: a database server refuses to be root.
pub fn let_through(dir: &Path) -> Result<(), Error> {
    fs::set_permissions(dir, Permissions::from_mode(0o711))
        .map_err(Error::system("change the mode of", dir))
}

/// Datasets that have been made in this invocation, on the machine's own disk.
pub struct DatasetStore {
    dir: TempDir,
    quick: bool,
}

impl DatasetStore {
    /// An empty store.
    pub fn new(quick: bool) -> Result<Self, Error> {
        let parent = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("runahead-bench-data-")
            .tempdir_in(&parent)
            .map_err(Error::system("create a directory in", &parent))?;
        let_through(dir.path())?;
        Ok(Self { dir, quick })
    }

    /// Returns the directory of a dataset, made now if it has not been. If the machine lacks what
    /// it is made of, the directory is empty, and the row says so.
    pub fn get(&self, data: &Dataset, source: &SourceTree) -> Result<PathBuf, Error> {
        let path = self.dir.path().join(data.dir);
        if path.is_dir() {
            return Ok(path);
        }
        fs::create_dir(&path).map_err(Error::system("create", &path))?;
        if data.require().is_err() {
            return Ok(path);
        }
        // Twice: some are made of something else.
        require_space(self.dir.path(), 2 * data.space(self.quick))?;
        let clock = progress::clock("making what the rows work on");
        let made = (data.make)(&DatasetBuild { dir: &path, source, quick: self.quick });
        clock.finish_and_clear();
        made.map(|()| path)
    }

    /// Removes a dataset.
    pub fn forget(&self, data: &Dataset) -> Result<(), Error> {
        Ok(remove(&self.dir.path().join(data.dir))?)
    }
}

/// Copies a directory with its owners, modes and times.
pub fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    run_helper(Command::new("cp").args(["--archive", "--sparse=never"]).arg(from).arg(to))?;
    Ok(())
}

/// A seeded sequence of numbers (splitmix64).
pub struct Sequence(pub u64);

impl Sequence {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number, below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: Dataset = Dataset {
        dir: "marked",
        mib: 1,
        quick_mib: 1,
        needs: &[("sh", "dash")],
        make: |making| script("x").map(|_| fs::write(making.dir.join("f"), "").unwrap()),
    };

    #[test]
    fn a_missing_package_is_named() {
        assert!(MARKED.require().is_ok());
        let needs = &[("sh", "dash"), ("/usr/lib/no-such-file", "no-such-package")];
        let result = Dataset { needs, ..MARKED }.require();
        assert!(
            matches!(result, Err(Failure::NotInstalled { package, .. }) if package == "no-such-package")
        );
    }

    #[test]
    fn data_are_made_once_and_forgotten() {
        let store = DatasetStore::new(true).unwrap();
        let source = SourceTree { root: "/usr/include".into(), what: "headers".into() };
        let path = store.get(&MARKED, &source).unwrap();
        fs::remove_file(path.join("f")).unwrap();
        assert_eq!(store.get(&MARKED, &source).unwrap(), path);
        assert!(!path.join("f").exists(), "made again");
        store.forget(&MARKED).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_copy_keeps_modes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::set_permissions(&from, Permissions::from_mode(0o700)).unwrap();
        fs::write(from.join("f"), "text").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read(to.join("f")).unwrap(), b"text");
    }
}
