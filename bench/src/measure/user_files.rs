//! Files for a command that may be another user's.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use runahead_harness::remove;

use crate::data::job::Job;
use crate::data::other_user::give;
use crate::error::Error;

/// Returns the path of a file that the command's user can write: no file, or an empty one of that
/// user.
pub fn file(dir: &Path, job: &Job, name: &str) -> Result<PathBuf, Error> {
    let path = dir.join(name);
    remove(&path)?;
    if job.owner.is_some() {
        File::create(&path).map_err(Error::system("create", &path))?;
        give(&path)?;
    }
    Ok(path)
}

/// Returns a new, empty directory that the command's user can write.
pub fn directory(dir: &Path, job: &Job, name: &str) -> Result<PathBuf, Error> {
    let path = dir.join(name);
    remove(&path)?;
    fs::create_dir(&path).map_err(Error::system("create", &path))?;
    if job.owner.is_some() {
        give(&path)?;
    }
    Ok(path)
}

/// Returns the program under test; a copy of it in `dir` for a user who may not reach it.
pub fn usable(runahead: Option<&Path>, job: &Job, dir: &Path) -> Result<Option<PathBuf>, Error> {
    let Some(runahead) = runahead.filter(|_| job.owner.is_some() || job.inside.is_some()) else {
        return Ok(runahead.map(Path::to_owned));
    };
    let copy = dir.join("runahead");
    fs::copy(runahead, &copy)
        .and_then(|_| fs::set_permissions(&copy, Permissions::from_mode(0o755)))
        .map_err(Error::system("copy to", &copy))?;
    Ok(Some(copy))
}
