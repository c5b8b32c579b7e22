//! The runahead under test: copied, so that a build meanwhile does not change it.

use std::fs;
use std::path::{Path, PathBuf};

use runahead_harness::write_program;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::options;
use crate::system;

/// The copy in a directory that every user may enter.
#[derive(Debug, Clone)]
pub struct Runahead {
    /// Where it is run from.
    pub path: PathBuf,
    /// Version, and the start of its hash.
    pub what: String,
}

impl Runahead {
    /// Copies what `subject` names into `dir`.
    ///
    /// # Errors
    /// [`Error::NoRunahead`], or copying failed.
    pub fn copy(subject: &options::Subject, dir: &Path) -> Result<Self, Error> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("runahead"));
        let given = subject.runahead.clone().or_else(beside).unwrap_or_default();
        let bytes = fs::read(&given).map_err(|_| Error::NoRunahead(given.clone()))?;
        let path = dir.join("runahead");
        write_program(&path, &bytes, 0o755).map_err(Error::system("write", &path))?;
        let version = system::helper(&[&system::text(&path), "--version"])?;
        Ok(Self { path, what: format!("{version} ({})", hash(&bytes)) })
    }

    /// Copies what plants predictions into `dir`.
    ///
    /// # Errors
    /// [`Error::NoPlanter`], or copying failed.
    pub fn copy_planter(subject: &options::Subject, dir: &Path) -> Result<Self, Error> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("plant"));
        let given = subject.plant.clone().or_else(beside).unwrap_or_default();
        let bytes = fs::read(&given).map_err(|_| Error::NoPlanter(given.clone()))?;
        let path = dir.join("plant");
        write_program(&path, &bytes, 0o755).map_err(Error::system("write", &path))?;
        Ok(Self { path, what: format!("predictions planted ({})", hash(&bytes)) })
    }
}

/// The start of it.
fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(4).map(|b| format!("{b:02x}")).collect()
}
