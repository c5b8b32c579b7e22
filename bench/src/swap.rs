//! A place for memory that a control group has no room for.

use std::fs::{self, OpenOptions};
use std::io::{Write, copy, repeat};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Failure};
use crate::sys;

/// A file that memory is swapped out to. Dropping it takes it away.
#[derive(Debug)]
pub struct Swap {
    file: PathBuf,
}

impl Swap {
    /// One of so many bytes in `dir`.
    ///
    /// # Errors
    /// [`Failure::NoSwap`]: this user may have none, or not there.
    pub fn on(dir: &Path, bytes: u64) -> Result<Self, Error> {
        let file = dir.join("swap");
        let written = Error::system("write", &file);
        let swap = Self { file: file.clone() };
        let make = || {
            let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
            copy(&mut std::io::Read::take(repeat(0), bytes), &mut to)?;
            to.flush()?;
            to.sync_all()
        };
        make().map_err(written)?;
        run("mkswap", &file)?;
        run("swapon", &file)?;
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = run("swapoff", &self.file);
        let _ = fs::remove_file(&self.file);
    }
}

fn run(program: &'static str, file: &Path) -> Result<(), Error> {
    let path = sys::require_program(program, "util-linux")?;
    let output = Command::new(path).arg(file).stdin(Stdio::null()).output();
    let output = output.map_err(Error::system("run", program))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::NoSwap(sys::last_line(&output.stderr)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_swapped_to_is_told_and_taken_away() {
        let dir = tempfile::tempdir().expect("a directory");
        // (Too small for the head of a place to swap to.)
        let error = Swap::on(dir.path(), 1).expect_err("one byte");
        assert!(error.to_string().contains("no memory can be swapped out"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }
}
