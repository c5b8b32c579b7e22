//! A real C project to build: redis, as Debian has its source.
//!
//! `scripts/setup` fetches the tarball; it is unpacked once, into the same cache as Linux's source.
//! Redis needs no configuring, brings its own libraries, and takes two processors about 20 s.
//!
//! Invariant: a directory in the cache is complete; it is unpacked beside and renamed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::data::linux_source as source;
use crate::data::system_programs as sys;
use crate::error::{Error, Failure};

/// The project's source, unpacked.
///
/// # Errors
/// [`Failure::NotFetched`], or it cannot be unpacked.
pub fn redis() -> Result<PathBuf, Error> {
    let cache = source::cache_dir();
    let tarball = tarball(&cache).ok_or_else(|| Failure::NotFetched(cache.clone()))?;
    let name = tarball.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let root = cache.join(name.replace(".orig.tar.gz", "-source"));
    if root.is_dir() {
        return Ok(root);
    }
    source::in_place(&root, |into| {
        let output = std::process::Command::new(sys::require_program("tar", "tar")?)
            .args(["--extract", "--gzip", "--no-same-owner", "--strip-components=1", "--file"])
            .arg(&tarball)
            .arg("--directory")
            .arg(into)
            .stdin(Stdio::null())
            .output()
            .map_err(Error::system("run", "tar"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::Helper {
                program: "tar",
                status: output.status,
                path: tarball.clone(),
                message: sys::last_line(&output.stderr),
            }),
        }
    })?;
    Ok(root)
}

/// The last `redis_VERSION.orig.tar.gz` in the order of names.
fn tarball(dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?;
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("redis_") && name.ends_with(".orig.tar.gz")
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_one).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_projects_own_tarball_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(tarball(dir.path()), None);
        for name in ["redis_7.0.dsc", "redis_7.0.15.orig.tar.gz", "hiredis_1.0.orig.tar.gz"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(tarball(dir.path()), Some(dir.path().join("redis_7.0.15.orig.tar.gz")));
    }
}
