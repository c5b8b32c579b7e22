//! The tree that the commands work on: real source code, unpacked once.
//!
//! `fs` and `sound` of Debian's Linux source: 4,700 files in 260 directories, 94 MB. The first has
//! few large directories, the second many small ones, nested; together they are the smallest choice
//! that has both shapes and more than 4,000 files, which keeps a whole benchmark under 40 minutes.
//!
//! Rows that ask what we cost use all of it, unpacked straight onto their storage.
//!
//! Invariant: a directory in the cache is complete; it is unpacked beside and renamed.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runahead_harness::interrupt;

use crate::data::copy_tree as copy;
use crate::data::progress::{self, Unit};
use crate::data::system_programs as sys;
use crate::error::Error;

/// What is unpacked of the kernel's source.
const PARTS: [&str; 2] = ["fs", "sound"];

/// Trees that other machines have, for want of a better one.
const STAND_INS: [&str; 5] =
    ["/usr/include", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/doc", "/usr/share"];

/// A tree on the machine's own disk, only read.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its root.
    pub root: PathBuf,
    /// What it is, for people.
    pub what: String,
}

/// The kernel's source, from the cache or unpacked now.
///
/// # Errors
/// [`Error::NoSource`] if the package is not installed, [`Error::NoProgram`] without xz, or
/// unpacking failed.
pub fn linux() -> Result<Source, Error> {
    let tarball = tarball().ok_or(Error::NoSource)?;
    let cached = Cached::of(&tarball)?;
    if !cached.root.is_dir() {
        unpack(&tarball, &cached)?;
    }
    Ok(cached.source())
}

/// A tree that needs no unpacking: the cached one, or any of `files` files.
///
/// # Errors
/// [`Error::NoTree`], or [`linux`]'s.
pub fn at_hand(files: usize) -> Result<Source, Error> {
    if let Some(cached) = tarball().and_then(|t| Cached::of(&t).ok())
        && cached.root.is_dir()
    {
        return Ok(cached.source());
    }
    any(files).or_else(|_| linux())
}

fn any(files: usize) -> Result<Source, Error> {
    let root = STAND_INS
        .iter()
        .map(Path::new)
        .find(|root| copy::has_files(root, files))
        .ok_or(Error::NoTree(files))?;
    Ok(Source { root: root.to_owned(), what: format!("{} of this machine", root.display()) })
}

/// The newest `linux-source-X.Y.tar.xz`.
fn tarball() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/src").ok()?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((version(&path)?, path)))
        .max()
        .map(|(_, path)| path)
}

fn version(path: &Path) -> Option<Vec<u32>> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix("linux-source-")?.strip_suffix(".tar.xz")?;
    number.split('.').map(|part| part.parse().ok()).collect()
}

/// Where a tarball's tree is, or will be.
struct Cached {
    root: PathBuf,
    /// `linux-source-X.Y`, also the top directory in the tarball.
    name: String,
}

impl Cached {
    fn of(tarball: &Path) -> Result<Self, Error> {
        let read = Error::system("look at", tarball);
        let size = fs::metadata(tarball).map_err(read)?.len();
        let file = tarball.file_name().unwrap_or_default().to_string_lossy();
        let name = file.trim_end_matches(".tar.xz").to_owned();
        // The size tells updates of the package apart.
        let root = cache_dir().join(format!("{name}-{}-{size}", PARTS.join("-")));
        Ok(Self { root, name })
    }

    fn source(self) -> Source {
        let what = format!("{} of Debian's {}", PARTS.join(" and "), self.name);
        Source { root: self.root, what }
    }
}

/// Where this program keeps what it takes long to make; `scripts/setup` knows it, too.
pub fn cache_dir() -> PathBuf {
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    given("XDG_CACHE_HOME")
        .or_else(|| given("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("runahead")
}

fn unpack(tarball: &Path, cached: &Cached) -> Result<(), Error> {
    in_place(&cached.root, |into| feed_tar(tarball, &cached.name, &PARTS, into))
}

/// Unpacks all of the kernel's source into the new directory `into`.
///
/// # Errors
/// [`Error::NoSource`] if the package is not installed, [`Error::NoProgram`] without xz, or
/// unpacking failed.
pub fn unpack_whole(into: &Path) -> Result<(), Error> {
    let tarball = tarball().ok_or(Error::NoSource)?;
    fs::create_dir(into).map_err(Error::system("create", into))?;
    feed_tar(&tarball, &Cached::of(&tarball)?.name, &[], into)
}

/// Lets `fill` fill a directory, which then becomes `root` all at once.
///
/// # Errors
/// `fill`'s, or the cache cannot be written.
pub fn in_place(root: &Path, fill: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
    let parent = root.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(Error::system("create", parent))?;
    let beside = tempfile::Builder::new()
        .prefix(".unpacking-")
        .tempdir_in(parent)
        .map_err(Error::system("create a directory in", parent))?;
    fill(beside.path())?;
    match fs::rename(beside.path(), root) {
        Ok(()) => {
            // The directory has a new name and is to stay.
            let _ = beside.keep();
            Ok(())
        }
        // Another process was faster.
        Err(_) if root.is_dir() => Ok(()),
        Err(e) => Err(Error::system("rename to", root)(e)),
    }
}

/// Feeds the tarball to tar by hand, because that is what the progress bar can measure.
fn feed_tar(tarball: &Path, name: &str, parts: &[&str], into: &Path) -> Result<(), Error> {
    for (program, package) in [("tar", "tar"), ("xz", "xz-utils")] {
        sys::require_program(program, package)?;
    }
    let read = |e: io::Error| Error::system("read", tarball)(e);
    let start = |e: io::Error| Error::system("run", "tar")(e);
    let mut file = File::open(tarball).map_err(read)?;
    let bar =
        progress::bar("unpacking Linux source", file.metadata().map_err(read)?.len(), Unit::Bytes);
    let mut tar = Command::new("tar")
        .args(["--extract", "--file=-", "--use-compress-program=xz -T0", "--no-same-owner"])
        .args(["--strip-components=1", "--directory"])
        .arg(into)
        .args(parts.iter().map(|part| format!("{name}/{part}")))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let mut input = tar.stdin.take();
    let mut buffer = vec![0; 256 << 10];
    let mut interrupted = Ok(());
    while let Some(pipe) = &mut input {
        interrupted = interrupt::check();
        let n = file.read(&mut buffer).map_err(read)?;
        // A pipe that is closed early is explained by tar's own message, below.
        if n == 0 || interrupted.is_err() || pipe.write_all(&buffer[..n]).is_err() {
            input = None;
        } else {
            bar.inc(n as u64);
        }
    }
    let output = tar.wait_with_output().map_err(start)?;
    bar.finish_and_clear();
    interrupted?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Helper {
        program: "tar",
        status: output.status,
        path: tarball.to_owned(),
        message: sys::last_line(&output.stderr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let v = |name: &str| version(Path::new(name));
        assert!(v("/usr/src/linux-source-6.12.tar.xz") > v("/usr/src/linux-source-6.1.tar.xz"));
        assert_eq!(v("/usr/src/linux-source-6.1"), None);
        assert_eq!(v("/usr/src/linux-source-rt.tar.xz"), None);
    }
}
