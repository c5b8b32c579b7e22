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

use runahead_harness::{cache_dir, fill_at_once, interrupt, last_line, require_program};

use crate::data::copy_tree;
use crate::data::progress::{self, Unit};
use crate::error::Error;

/// A pattern to search for. It occurs in an eighth of the kernel's files, so that output is neither
/// empty nor everything.
pub const PATTERN: &str = "mutex_lock";

/// Directories of the kernel's source that are unpacked.
const PARTS: [&str; 2] = ["fs", "sound"];

/// Trees that serve instead on machines without the kernel's source.
const STAND_INS: [&str; 5] =
    ["/usr/include", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/doc", "/usr/share"];

/// A tree on the machine's own disk, only read.
#[derive(Debug, Clone)]
pub struct SourceTree {
    /// Its root.
    pub root: PathBuf,
    /// Description for people.
    pub what: String,
}

/// The kernel's source, from the cache or unpacked now.
pub fn linux() -> Result<SourceTree, Error> {
    let tarball = tarball().ok_or(Error::NoSource)?;
    let cached = Cached::of(&tarball)?;
    if !cached.root.is_dir() {
        unpack(&tarball, &cached)?;
    }
    Ok(cached.source())
}

/// A tree that needs no unpacking: the cached one, or any of `files` files.
pub fn at_hand(files: usize) -> Result<SourceTree, Error> {
    if let Some(cached) = tarball().and_then(|t| Cached::of(&t).ok())
        && cached.root.is_dir()
    {
        return Ok(cached.source());
    }
    any(files).or_else(|_| linux())
}

fn any(files: usize) -> Result<SourceTree, Error> {
    let root = STAND_INS
        .iter()
        .map(Path::new)
        .find(|root| copy_tree::has_files(root, files))
        .ok_or(Error::NoTree(files))?;
    Ok(SourceTree { root: root.to_owned(), what: format!("{} of this machine", root.display()) })
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

/// Place of a tarball's tree in the cache.
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

    fn source(self) -> SourceTree {
        let what = format!("{} of Debian's {}", PARTS.join(" and "), self.name);
        SourceTree { root: self.root, what }
    }
}

fn unpack(tarball: &Path, cached: &Cached) -> Result<(), Error> {
    fill_at_once(&cached.root, ".unpacking-", |into| feed_tar(tarball, &cached.name, &PARTS, into))
}

/// Unpacks all of the kernel's source into the new directory `into`.
pub fn unpack_whole(into: &Path) -> Result<(), Error> {
    let tarball = tarball().ok_or(Error::NoSource)?;
    fs::create_dir(into).map_err(Error::system("create", into))?;
    feed_tar(&tarball, &Cached::of(&tarball)?.name, &[], into)
}

/// Feeds the tarball to tar by hand, because that is what the progress bar can measure.
fn feed_tar(tarball: &Path, name: &str, parts: &[&str], into: &Path) -> Result<(), Error> {
    for (program, package) in [("tar", "tar"), ("xz", "xz-utils")] {
        require_program(program, package)?;
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
    let (command, message) = (format!("tar of {}", tarball.display()), last_line(&output.stderr));
    Err(runahead_harness::Error::Helper { command, status: output.status, message }.into())
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
