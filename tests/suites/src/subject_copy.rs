//! The program under test: copied, so that a build meanwhile does not change it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_harness::{helper_text, subject, write_program};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::options::Subject;

/// A copy in a directory that every user may enter.
#[derive(Debug, Clone)]
pub struct Copy {
    pub path: PathBuf,
    /// Version, and the start of its SHA-256.
    pub what: String,
}

impl Copy {
    /// Copies runahead into `dir`.
    pub fn of_runahead(given: &Subject, dir: &Path) -> Result<Self, Error> {
        let (path, hash) = copy("runahead", given.runahead.as_deref(), dir)?;
        let version = helper_text(Command::new(&path).arg("--version"))?;
        Ok(Self { path, what: format!("{version} ({hash})") })
    }

    /// Copies the program that plants predictions into `dir`.
    pub fn of_planter(given: &Subject, dir: &Path) -> Result<Self, Error> {
        let (path, hash) = copy("plant", given.plant.as_deref(), dir)?;
        Ok(Self { path, what: format!("predictions planted ({hash})") })
    }
}

/// Returns the path of the copy, and the start of its SHA-256.
fn copy(name: &'static str, given: Option<&Path>, dir: &Path) -> Result<(PathBuf, String), Error> {
    let from = subject(name, given)?;
    let bytes = fs::read(&from).map_err(Error::system("read", &from))?;
    let path = dir.join(name);
    write_program(&path, &bytes, 0o755).map_err(Error::system("write", &path))?;
    let hash = Sha256::digest(bytes).iter().take(4).map(|b| format!("{b:02x}")).collect();
    Ok((path, hash))
}
