//! Digests of what a unit wrote: its output, and the files that it left in its directory.
//!
//! Not all units write the same each time: native runs show which do.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use crate::error::Error;

/// Bytes that are read of a file: some have terabytes, all holes.
const MOST: u64 = 64 << 20;

/// Digests of what a unit wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenDigests {
    /// Digest of its standard output and error.
    pub output: String,
    /// Digest of names, types, modes and contents of its files.
    pub files: String,
}

impl WrittenDigests {
    /// Digests of a unit with its outputs in `out` and its files in `work`.
    pub fn by_unit(out: &Path, work: &Path) -> Result<Self, Error> {
        let mut output = Sha256::new();
        for name in ["stdout", "stderr"] {
            enter(&mut output, &out.join(name))?;
        }
        let mut files = Sha256::new();
        for entry in WalkDir::new(work).min_depth(1).sort_by_file_name() {
            let failed = |e: walkdir::Error| Error::system("look through", work)(e.into());
            let entry = entry.map_err(failed)?;
            let meta = entry.metadata().map_err(failed)?;
            let path = entry.path();
            files.update(path.strip_prefix(work).unwrap_or(path).as_os_str().as_bytes());
            files.update([0]);
            files.update(meta.mode().to_le_bytes());
            if meta.is_symlink() {
                let target = fs::read_link(path).map_err(Error::system("read", path))?;
                files.update(target.as_os_str().as_bytes());
            } else if meta.is_file() {
                files.update(meta.size().to_le_bytes());
                enter(&mut files, path)?;
            }
        }
        Ok(Self { output: text(output), files: text(files) })
    }
}

/// Enters a file's contents.
fn enter(digest: &mut Sha256, path: &Path) -> Result<(), Error> {
    let mut file = File::open(path).map_err(Error::system("open", path))?.take(MOST);
    let mut bytes = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut bytes).map_err(Error::system("read", path))?;
        if read == 0 {
            return Ok(());
        }
        digest.update(&bytes[..read]);
    }
}

/// Returns the start of a digest, in hexadecimal.
fn text(digest: Sha256) -> String {
    digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn names_modes_contents_and_outputs_have_digests_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let (out, work) = (dir.path().join("out"), dir.path().join("work"));
        fs::create_dir_all(&out).unwrap();
        fs::create_dir_all(work.join("d")).unwrap();
        for name in ["out/stdout", "out/stderr", "work/d/a"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let look = || WrittenDigests::by_unit(&out, &work).unwrap();
        let first = look();
        assert_eq!(first, look());
        fs::write(out.join("stderr"), "other").unwrap();
        let other = look();
        assert!(other.output != first.output && other.files == first.files);
        let mut seen = vec![other.files];
        let mut another = |what: &str| {
            let now = look().files;
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        };
        fs::write(work.join("d/a"), "other").unwrap();
        another("contents");
        fs::set_permissions(work.join("d/a"), fs::Permissions::from_mode(0o600)).unwrap();
        another("mode");
        fs::rename(work.join("d/a"), work.join("d/b")).unwrap();
        another("name");
        std::os::unix::fs::symlink("b", work.join("d/a")).unwrap();
        another("link");
    }
}
