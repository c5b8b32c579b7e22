//! A file that memory is swapped out to: programs then wait for the storage that it is on.
//!
//! Invariant: the file is gone when its [`Swap`] is, or was never there.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, copy, repeat};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Missing, Step, mounts, probe};

/// Priority of the swap file, by which it is filled before any swap that the machine has
/// (swapon(2)).
const HIGHEST: &str = "32767";

/// A place for memory. Dropping it brings everything back into memory and removes the file.
#[derive(Debug)]
pub struct Swap {
    file: PathBuf,
}

impl Swap {
    /// A file of so many bytes in `dir`, which the system swaps to from now on.
    ///
    /// # Errors
    /// [`Error::Missing`] without mkswap(8) or swapon(8), [`Error::Helper`] if they refuse (this
    /// user may not, or not there), [`Error::System`] if there is no room for the file.
    pub fn on(dir: &Path, bytes: u64) -> Result<Self, Error> {
        let file = dir.join("swap");
        let failed = || Error::system(Step::MakeSwap, &file);
        let mut options = OpenOptions::new();
        let to = options.write(true).create_new(true).mode(0o600).open(&file).map_err(failed())?;
        // Only from here on is there something of ours to be removed.
        let swap = Self { file: file.clone() };
        write(to, bytes).map_err(failed())?;
        run("mkswap", &[], &swap.file)?;
        run("swapon", &["--priority", HIGHEST], &swap.file)?;
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // It fails if swapon(8) was never reached, and a destructor cannot report it.
        let _ = run("swapoff", &[], &self.file);
        let _ = fs::remove_file(&self.file);
    }
}

/// Every byte is written, as swapon(8) takes no file with holes.
fn write(mut to: File, bytes: u64) -> std::io::Result<()> {
    copy(&mut repeat(0).take(bytes), &mut to)?;
    to.sync_all()
}

fn run(program: &'static str, options: &[&str], file: &Path) -> Result<(), Error> {
    let path =
        probe::find_program(program).ok_or(Missing::Program { program, package: "util-linux" })?;
    let output = Command::new(path).args(options).arg(file).stdin(Stdio::null()).output();
    let output = output.map_err(Error::system(Step::MakeSwap, file))?;
    if output.status.success() {
        return Ok(());
    }
    let message = mounts::last_line(&output.stderr);
    Err(Error::Helper { program, status: output.status, path: file.to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_swapped_to_is_told_and_taken_away() {
        let dir = tempfile::tempdir().expect("a directory");
        // One byte is too small for the header of a swap area.
        let error = Swap::on(dir.path(), 1).expect_err("one byte");
        assert!(matches!(error, Error::Helper { .. } | Error::Missing(_)), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("swap");
        fs::write(&file, "of somebody else").expect("a file");
        let error = Swap::on(dir.path(), 1 << 20).expect_err("it is there");
        assert!(matches!(error, Error::System { step: Step::MakeSwap, .. }), "{error}");
        assert_eq!(fs::read(&file).expect("still there"), b"of somebody else");
    }
}
