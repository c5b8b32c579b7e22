//! A real C project to build: redis, as Debian has its source.
//!
//! `scripts/setup` fetches the tarball; it is unpacked once, into the same cache as Linux's source.
//! Redis needs no configuring, brings its own libraries, and takes two processors about 20 s.
//!
//! Invariant: a directory in the cache is complete; it is unpacked beside and renamed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_harness::{cache_dir, fill_at_once, run_helper};

use crate::error::{Error, Failure};

/// Returns the directory with the source, unpacked now if it is not in the cache.
pub fn redis() -> Result<PathBuf, Error> {
    let cache = cache_dir();
    let tarball = tarball(&cache).ok_or_else(|| Failure::NotFetched(cache.clone()))?;
    let name = tarball.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let root = cache.join(name.replace(".orig.tar.gz", "-source"));
    if !root.is_dir() {
        fill_at_once(&root, ".unpacking-", |into| -> Result<(), Error> {
            let mut tar = Command::new("tar");
            tar.args(["--extract", "--gzip", "--no-same-owner", "--strip-components=1", "--file"]);
            run_helper(tar.arg(&tarball).arg("--directory").arg(into))?;
            Ok(())
        })?;
    }
    Ok(root)
}

/// Returns the last `redis_VERSION.orig.tar.gz` in the order of names.
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
