//! Suites in the cache: downloaded and built once, then only read.
//!
//! Invariant: a directory in the cache that bears a suite's name is complete; it is made beside and
//! renamed. Its name holds a hash of the script that made it, so that a changed script makes anew,
//! and what the older one made is removed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runahead_harness::{cache_dir, describe, interrupt, note, remove};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::suites::suite_definition::Suite;
use crate::unit_namespaces::AT_MNT;

const COMMON: &str = include_str!("../prepare/common.sh");
/// Source of a library that forces waits into tests that have none.
const WAITS: &str = include_str!("../prepare/waits.c");
/// Exit status of a script that has found its source nowhere.
const NOWHERE: i32 = 77;

/// A suite that is prepared.
#[derive(Debug, Clone)]
pub struct PreparedSuite {
    pub suite: &'static Suite,
    /// Directory that is copied onto the slow disk.
    pub tree: PathBuf,
    /// The project's name and release.
    pub version: String,
    /// Units to run; at first all, in the suite's own order.
    pub units: Vec<String>,
    /// Number of all units of the suite.
    pub of: usize,
}

/// Directory of suites: `$XDG_CACHE_HOME/runahead/suites`.
pub fn cache() -> PathBuf {
    cache_dir().join("suites")
}

/// Returns a suite from the cache, prepared now if it is not there.
pub fn ready(suite: &'static Suite) -> Result<PreparedSuite, Error> {
    let dir = place(suite);
    if !dir.is_dir() {
        prepare(suite, &dir)?;
    }
    read(suite, &dir)
}

/// Returns the units of a suite if it is in the cache.
pub fn ready_units(suite: &'static Suite) -> Result<Vec<String>, Error> {
    let dir = place(suite);
    if dir.is_dir() { Ok(read(suite, &dir)?.units) } else { Ok(Vec::new()) }
}

fn place(suite: &Suite) -> PathBuf {
    let digest = Sha256::new()
        .chain_update(COMMON)
        .chain_update(WAITS)
        .chain_update(suite.script)
        .finalize();
    let hash: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
    cache().join(format!("{}-{hash}", suite.name))
}

fn read(suite: &'static Suite, dir: &Path) -> Result<PreparedSuite, Error> {
    let text = |name: &str| {
        let path = dir.join(name);
        fs::read_to_string(&path).map_err(Error::system("read", path))
    };
    let units = text("units")?;
    let units = units.lines().map(str::trim).filter(|unit| !unit.is_empty());
    let units: Vec<_> = units.map(str::to_owned).collect();
    Ok(PreparedSuite {
        suite,
        tree: dir.join("tree"),
        version: text("version")?.trim().to_owned(),
        of: units.len(),
        units,
    })
}

fn prepare(suite: &'static Suite, dir: &Path) -> Result<(), Error> {
    let cache = cache();
    fs::create_dir_all(&cache).map_err(Error::system("create", &cache))?;
    let beside = tempfile::Builder::new()
        .prefix(&format!(".preparing-{}-", suite.name))
        .tempdir_in(&cache)
        .map_err(Error::system("create a directory in", &cache))?;
    note!("preparing {} (once), in {}", suite.name, cache.display());
    let mut command = Command::new("unshare");
    command
        // All that it starts ends with it.
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--", "sh", "-c"])
        .arg(format!("{AT_MNT}cd /mnt && exec sh -c \"$1\""))
        .arg(beside.path())
        .arg(format!("{COMMON}\n{}", suite.script))
        .env("SUITE", suite.name)
        .env("WAITS", WAITS)
        .env("SUITES_CACHE", &cache)
        .stdin(Stdio::null())
        // Ctrl-C is for this program.
        .process_group(0);
    let mut child = command.spawn().map_err(Error::system("run", "unshare"))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Error::system("wait for", "unshare"))? {
            break status;
        }
        if let Err(interrupted) = interrupt::check() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted.into());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    if status.code() == Some(NOWHERE) {
        return Err(Error::Nowhere(suite.name));
    }
    if !status.success() {
        return Err(Error::Prepare { suite: suite.name, end: describe(status) });
    }
    for leftover in ["download", "gocache", "build.log"] {
        let _ = remove(&beside.path().join(leftover));
    }
    let path = beside.keep();
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(&path, open).map_err(Error::system("open", &path))?;
    match fs::rename(&path, dir) {
        Ok(()) => remove_older(suite, dir),
        // Another process was faster.
        Err(_) if dir.is_dir() => Ok(remove(&path)?),
        Err(e) => Err(Error::system("rename to", dir)(e)),
    }
}

/// Removes directories that other versions of its script have made: some take most of a gigabyte.
fn remove_older(suite: &Suite, newest: &Path) -> Result<(), Error> {
    let cache = cache();
    let failed = |e| Error::system("list", &cache)(e);
    for entry in fs::read_dir(&cache).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path != newest && is_made_of(suite.name, &path) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// True if [`place`] gives such a path to a suite of this name.
fn is_made_of(name: &str, path: &Path) -> bool {
    let hash = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix(name));
    let hash = hash.and_then(|rest| rest.strip_prefix('-'));
    hash.is_some_and(|hash| hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_told_from_others_with_the_same_start_of_the_name() {
        let is = |path| is_made_of("go", Path::new(path));
        assert!(is("/cache/go-6f3c24f6"));
        assert!(!is("/cache/go-tools-6f3c24f6") && !is("/cache/go") && !is("/cache/go-6f3c24f"));
        assert!(!is("/cache/.preparing-go-6f3c24f6") && !is("/cache/gone-6f3c24f6"));
    }
}
