//! What is run, and what a run gave.
//!
//! Invariant: what an outcome holds is enough to tell two runs' results apart, without their files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// A command of the table.
#[derive(Debug, Clone)]
pub struct Job {
    /// A path, or a name that is found in PATH.
    pub program: PathBuf,
    /// Debian's package of it.
    pub package: &'static str,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Words in front of everything, runahead included, that become it.
    pub around: Vec<OsString>,
    /// Whose it is, if those words make it another user's.
    pub owner: Option<u32>,
    /// It may have so many bytes of memory, runahead included.
    pub memory: Option<u64>,
    /// What has no room there may be swapped out, to a file of so many bytes where it runs.
    pub swap: Option<u64>,
    /// Options of `runahead run`: a fault that it is to have, or what it is to leave undone.
    pub options: Vec<OsString>,
    /// Standard input; none for nothing.
    pub input: Option<PathBuf>,
    /// In its output if it did its work, for a program whose exit status does not tell.
    pub says: Option<&'static str>,
    /// Besides the few variables that all have.
    pub env: Vec<(&'static str, OsString)>,
    /// A file that it writes besides its output, compared like it.
    pub artefact: Option<PathBuf>,
    /// A directory that is made anew before each run, and removed after it.
    pub fresh: Option<Fresh>,
    /// How it comes to its end.
    pub manner: Manner,
    /// Where its figure comes from.
    pub gauge: Gauge,
    /// The lines of its output come in any order (`make -j2`), and are compared without it.
    pub unordered: bool,
    /// It touches little of what it maps: of that, the oracle reads what is in memory after a run.
    pub touches: bool,
}

/// A directory for one run.
#[derive(Debug, Clone)]
pub struct Fresh {
    /// What is in it at the start; none for nothing.
    pub from: Option<PathBuf>,
    /// Where it is.
    pub dir: PathBuf,
}

/// How a command comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// By itself.
    Itself,
    /// It is redis: it serves `requests` of each kind, sent `pipeline` at a time, and is then told to
    /// end.
    Serving {
        /// Of each kind.
        requests: u64,
        /// Sent before an answer is waited for.
        pipeline: u32,
    },
    /// It says that it sleeps, is looked at, and is then told to end.
    Sleeping,
}

/// Where a run's figure comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Gauge {
    /// There is none: elapsed time counts.
    None,
    /// Elapsed time by so many, in microseconds.
    MicrosecondsEach(u32),
    /// The program writes it into a file.
    Told(PathBuf),
}

impl Job {
    /// A command without anything special.
    pub fn new(program: impl Into<PathBuf>, package: &'static str, cwd: &Path) -> Self {
        Self {
            program: program.into(),
            package,
            args: Vec::new(),
            cwd: cwd.to_owned(),
            around: Vec::new(),
            owner: None,
            memory: None,
            swap: None,
            options: Vec::new(),
            input: None,
            says: None,
            env: Vec::new(),
            artefact: None,
            fresh: None,
            manner: Manner::Itself,
            gauge: Gauge::None,
            unordered: false,
            touches: false,
        }
    }

    /// With these arguments after those that it has.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Its name, for people.
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// As it is to be run, with `prefix` in front of it, and what it is put into around both.
    pub fn command(&self, prefix: &[OsString]) -> Command {
        let program = self.program.clone().into();
        let front = self.around.iter().chain(prefix).cloned();
        let mut words = front.chain([program]).chain(self.args.clone());
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(&self.cwd);
        set_environment(&mut command);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// In which way a command was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By itself.
    Plain,
    /// Under `runahead run`, with what the row has it do otherwise.
    Runahead,
    /// Under `runahead run` as it is, beside a row with something switched off.
    Whole,
    /// By itself, while all its accesses are made for it.
    Oracle,
    /// Under `runahead run --replay` of what it read before.
    Replay,
    /// Under strace.
    Recording,
}

impl Kind {
    /// As in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Runahead => "runahead",
            Self::Whole => "whole",
            Self::Oracle => "oracle",
            Self::Replay => "replay",
            Self::Recording => "recording",
        }
    }
}

/// Length and SHA-256 of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// In bytes.
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From before the process was made until it had ended.
    pub elapsed: Duration,
    /// `exit 0`, `signal 11`.
    pub exit: String,
    /// Whether the command did its work: 0, or 1, with which grep says that nothing matched.
    pub ok: bool,
    /// Standard output.
    pub stdout: Digest,
    /// Standard error.
    pub stderr: Digest,
    /// [`Job::artefact`].
    pub artefact: Option<Digest>,
    /// In the unit of the row, if not the elapsed time.
    pub figure: Option<f64>,
    /// Other things measured, by name.
    pub more: BTreeMap<String, f64>,
    /// Where the output is, until the next run of the same kind.
    pub files: Files,
}

/// Files for the output of runs of one kind.
#[derive(Debug, Clone)]
pub struct Files {
    /// Standard output.
    pub stdout: PathBuf,
    /// Standard error.
    pub stderr: PathBuf,
}

impl Files {
    /// In this directory.
    pub fn of(kind: Kind, dir: &Path) -> Self {
        let name = |suffix| dir.join(format!("{}.{suffix}", kind.name()));
        Self { stdout: name("stdout"), stderr: name("stderr") }
    }
}

/// The same few variables on every machine: nobody's locale, aliases, git configuration or cache of compilations.
pub fn set_environment(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .env("LC_ALL", "C")
        .env("CCACHE_DISABLE", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
}

/// For people, and to compare.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Of the whole file.
///
/// # Errors
/// It cannot be read. A file that does not exist has a digest of its own: a command that failed may
/// not have written its file, and that is a difference, not an error.
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

/// Of the file's lines in sorted order.
///
/// # Errors
/// It cannot be read.
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
    fn lines_without_order() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
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
        std::fs::write(&path, "").unwrap();
        assert_ne!(absent, digest(&path).unwrap());
    }
}
