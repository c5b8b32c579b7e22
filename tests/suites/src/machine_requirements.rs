//! Programs, devices and space that running units needs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use runahead_harness::require_program;
use tempfile::TempDir;

use crate::error::Error;

/// Programs that the harness itself starts, with Debian's packages of them.
const NEEDED: [(&str, &str); 7] = [
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("findmnt", "util-linux"),
    ("cp", "coreutils"),
    ("env", "coreutils"),
    ("ip", "iproute2"),
];

/// Fails if a program or a part of a slow disk is missing.
pub fn require() -> Result<(), Error> {
    runahead_testbed::Disk::probe()?;
    for (program, package) in NEEDED {
        require_program(program, package)?;
    }
    Ok(())
}

/// Makes a directory on ordinary storage that every user may enter. Not in /tmp, because units have
/// their own.
pub fn scratch() -> Result<TempDir, Error> {
    let parent = Path::new("/var/tmp");
    tempfile::Builder::new()
        .prefix("runahead-suites-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .map_err(Error::system("create a directory in", parent))
}
