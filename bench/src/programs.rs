//! The programs themselves, which are not what is measured: in memory before every run, plain or
//! not.
//!
//! Invariant: exactly the same is read and run before a run of either kind.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Failure};
use crate::job::{self, Job};
use crate::sys;

/// No program or library of these is larger; what is, is data.
const LARGEST: u64 = 64 << 20;

/// Where files are not files.
const NOT_FILES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What to warm.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Read whole.
    files: Vec<PathBuf>,
    /// Run with `--version`: also brings in the dynamic linker's and the kernel's own state.
    run: Vec<PathBuf>,
}

impl Programs {
    /// The command's own program and, if it is measured, runahead.
    ///
    /// # Errors
    /// [`Failure::NotInstalled`].
    pub fn of(job: &Job, runahead: Option<&Path>) -> Result<Self, Error> {
        let program = sys::find_program(job.program).ok_or_else(|| Failure::NotInstalled {
            program: job.program.to_owned(),
            package: job.package,
        })?;
        let run: Vec<PathBuf> = [program].into_iter().chain(runahead.map(Path::to_owned)).collect();
        Ok(Self { files: run.clone(), run })
    }

    /// Adds what a recorded run used besides the storage under test.
    pub fn add(&mut self, used: Vec<PathBuf>) {
        let is_program_data = |path: &PathBuf| {
            !NOT_FILES.iter().any(|dir| path.starts_with(dir))
                && fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= LARGEST)
        };
        self.files.extend(used.into_iter().filter(is_program_data));
    }

    /// Brings everything into memory.
    ///
    /// # Errors
    /// A program cannot be run.
    pub fn warm(&self) -> Result<(), Error> {
        for file in &self.files {
            // What cannot be read cannot be warmed, for either kind of run.
            let _ = fs::read(file);
        }
        self.run.iter().try_for_each(|program| version(program).map(drop))
    }

    /// The command's own first line on `--version`.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn version(&self) -> Result<String, Error> {
        self.run.first().map_or(Ok(String::new()), |program| version(program))
    }
}

/// The first line that a program prints on `--version`.
///
/// # Errors
/// It cannot be run.
pub fn version(program: &Path) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.arg(OsString::from("--version")).stdin(Stdio::null()).stderr(Stdio::null());
    job::set_environment(&mut command);
    let output = command.output().map_err(Error::system("run", program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
