//! Outcome of a run of a command: its output, status and files, and the first difference of two.
//!
//! Invariant: an outcome holds enough to tell two runs' results apart, without their files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::report::run_report::Kind;

/// Length and SHA-256 of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// Outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From before the process was made until it had ended.
    pub elapsed: Duration,
    /// Processor time in seconds of the command and of what it waited for.
    pub processor: f64,
    /// `exit 0`, `signal 11`.
    pub exit: String,
    /// True if the command did its work: exit status 0, or 1, with which grep says that nothing
    /// matched.
    pub ok: bool,
    pub stdout: Digest,
    pub stderr: Digest,
    /// The file of [`crate::data::job::Job::artefact`].
    pub artefact: Option<Digest>,
    /// Figure in the unit of the row, if not the elapsed time.
    pub figure: Option<f64>,
    /// Other things measured, by name.
    pub more: BTreeMap<String, f64>,
    /// The outputs, until the next run of the same kind.
    pub files: Files,
}

/// Files for the output of runs of one kind.
#[derive(Debug, Clone)]
pub struct Files {
    pub stdout: PathBuf,
    pub stderr: PathBuf,
}

impl Files {
    /// The files of runs of `kind` in a directory.
    pub fn of(kind: Kind, dir: &Path) -> Self {
        let name = |suffix| dir.join(format!("{}.{suffix}", kind.name()));
        Self { stdout: name("stdout"), stderr: name("stderr") }
    }
}

/// Returns the first thing that differs, and both values of it.
pub fn difference(plain: &Outcome, other: &Outcome) -> Option<(&'static str, String, String)> {
    if plain.exit != other.exit {
        return Some(("exit status", plain.exit.clone(), other.exit.clone()));
    }
    let text = |d: &Digest| format!("{} bytes, sha256 {:.16}", d.bytes, d.sha256);
    let absent = Digest { bytes: 0, sha256: "absent".into() };
    let artefact = |o: &Outcome| o.artefact.clone().unwrap_or_else(|| absent.clone());
    [
        ("standard output", plain.stdout.clone(), other.stdout.clone()),
        ("standard error", plain.stderr.clone(), other.stderr.clone()),
        ("the file it writes", artefact(plain), artefact(other)),
    ]
    .into_iter()
    .find(|(_, plain, other)| plain != other)
    .map(|(what, plain, other)| (what, text(&plain), text(&other)))
}

/// Copies the outputs of both to `dir`.
pub fn keep(outcomes: [&Outcome; 2], dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::system("create", dir))?;
    for file in outcomes.iter().flat_map(|o| [&o.files.stdout, &o.files.stderr]) {
        let to = dir.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(Error::system("keep a copy at", &to))?;
    }
    Ok(())
}

/// Digest of a whole file. A file that does not exist has a digest of its own: a command that
/// failed may not have written its file, which is a difference and no error.
pub fn digest(path: &Path) -> Result<Digest, Error> {
    let failed = |e: io::Error| Error::system("read", path)(e);
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(Digest { bytes: 0, sha256: "absent".into() });
        }
        other => other.map_err(failed)?,
    };
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = file.read(&mut buffer).map_err(failed)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        bytes += n as u64;
    }
    Ok(Digest { bytes, sha256: hexadecimal(&hash.finalize()) })
}

/// Digest of a file's lines in sorted order.
pub fn digest_of_lines(path: &Path) -> Result<Digest, Error> {
    let text = std::fs::read(path).map_err(Error::system("read", path))?;
    let mut lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    let mut hash = Sha256::new();
    lines.iter().for_each(|line| hash.update(line));
    Ok(Digest { bytes: text.len() as u64, sha256: hexadecimal(&hash.finalize()) })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_lines_have_the_same_digest() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (ab, ba, bb) = (write("1", "a\nb\n"), write("2", "b\na\n"), write("3", "b\nb\n"));
        assert_eq!(digest_of_lines(&ab).unwrap(), digest_of_lines(&ba).unwrap());
        assert_ne!(digest(&ab).unwrap(), digest(&ba).unwrap());
        assert_ne!(digest_of_lines(&ab).unwrap(), digest_of_lines(&bb).unwrap());
    }

    #[test]
    fn a_file_that_is_not_there_differs_from_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let absent = digest(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_ne!(absent, digest(&path).unwrap());
    }
}
