//! Commands of another user.

use std::ffi::OsString;
use std::os::unix::fs::chown;
use std::path::Path;

use crate::error::Error;

/// User and group without rights.
pub const UNPRIVILEGED: u32 = 65534;

/// Words that execute what follows them as [`UNPRIVILEGED`].
pub fn as_unprivileged() -> Vec<OsString> {
    let [user, group] = ["u", "g"].map(|of| OsString::from(format!("--re{of}id={UNPRIVILEGED}")));
    vec!["setpriv".into(), user, group, "--clear-groups".into()]
}

/// Gives a file or directory to [`UNPRIVILEGED`], which only root can do.
pub fn give(path: &Path) -> Result<(), Error> {
    chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
        .map_err(Error::system("change the owner of", path))
}
