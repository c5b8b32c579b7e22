//! Programs in memory before every run of any kind: they are not what is measured.
//!
//! Invariant: exactly the same is read and run before a run of either kind.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runahead_harness::find_program;

use crate::data::job::{Job, set_environment};
use crate::error::{Error, Failure};

/// Largest size of a program or library: larger files are data.
const LARGEST: u64 = 64 << 20;

/// Directories whose files are none.
const NOT_FILES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Files and programs to warm.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// Files that are read whole.
    files: Vec<PathBuf>,
    /// Programs that are run with `--version`, which also brings in the dynamic linker's and the
    /// kernel's own state.
    run: Vec<PathBuf>,
    /// The command's own, also if it is on the storage under test.
    own: Option<PathBuf>,
    /// First line of its `--version`, once asked.
    pub version: String,
}

impl Programs {
    /// The command's own program and, if it is measured, runahead; but nothing of what is on the
    /// storage under test, at `root`.
    pub fn of(job: &Job, runahead: Option<&Path>, root: &Path) -> Result<Self, Error> {
        let found = match job.program.is_absolute() {
            true => Some(job.program.clone()).filter(|path| path.is_file()),
            false => job.program.to_str().and_then(find_program),
        };
        let program = found
            .ok_or_else(|| Failure::NotInstalled { program: job.name(), package: job.package })?;
        // Some of the words around it are programs of the system.
        let names = job.around.iter().filter_map(|word| word.to_str().filter(|w| !w.contains('/')));
        let around = names.filter_map(find_program);
        let own = [program.clone()].into_iter().chain(around);
        let all = own.chain(runahead.map(Path::to_owned));
        let run: Vec<PathBuf> = all.filter(|path| !path.starts_with(root)).collect();
        Ok(Self { files: run.clone(), run, own: Some(program), version: String::new() })
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
    pub fn warm(&self) -> Result<(), Error> {
        for file in &self.files {
            // A file that cannot be read cannot be warmed, for either kind of run.
            let _ = fs::read(file);
        }
        self.run.iter().try_for_each(|program| version(program).map(drop))
    }

    /// Asks the command's own program for its version.
    pub fn ask_version(&mut self) -> Result<(), Error> {
        if let Some(program) = &self.own {
            self.version = version(program)?;
        }
        Ok(())
    }
}

/// Returns the first line that a program prints on `--version`.
pub fn version(program: &Path) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.arg(OsString::from("--version")).stdin(Stdio::null()).stderr(Stdio::null());
    set_environment(&mut command);
    let output = command.output().map_err(Error::system("run", program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
