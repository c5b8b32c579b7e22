//! A PostgreSQL cluster with an inner relation that has an index, and outer relations without.
//!
//! A backend without a server (`--single`) joins them as a server's backend does. It refuses to be
//! root, so the whole command, runahead included, is another user's.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runahead_harness::run_helper;

use crate::data::job::{Job, JobPlaces, set_environment};
use crate::data::other_user::{UNPRIVILEGED, as_unprivileged, give};
use crate::data::row_datasets::{Dataset, DatasetBuild, script};
use crate::error::{Error, Failure};

pub static RELATIONS: Dataset = Dataset {
    dir: "relations",
    mib: 1024,
    quick_mib: 256,
    needs: &[("setpriv", "util-linux")],
    make,
};

const SCRIPT: &str = include_str!("../../programs/postgres_join.sql");

/// Directory of Debian's versions.
const VERSIONS: &str = "/usr/lib/postgresql";
const PACKAGE: &str = "postgresql";

/// Tuples of the inner relation: 380 MB with the index.
const INNER: u32 = 2_000_000;
/// Tuples of the outer relation: plain joins them in half a minute on the disk, and in a minute on
/// spindles.
const OUTER: u32 = 3_000;

/// Settings of the backend: buffers much smaller than the relations, and no work beside the query.
const SETTINGS: [&str; 12] = [
    "shared_buffers=8MB",
    "maintenance_work_mem=256MB",
    "max_parallel_maintenance_workers=0",
    "fsync=off",
    "autovacuum=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_wal_size=32MB",
    "min_wal_size=4MB",
    "log_min_messages=warning",
    "log_checkpoints=off",
    "max_parallel_workers_per_gather=0",
];

/// Statements that leave an index nested-loop join as the only plan.
const PLAN: &str = "SET enable_hashjoin=off; SET enable_mergejoin=off; SET enable_bitmapscan=off; \
    SET enable_material=off; SET enable_memoize=off;";

/// The directory of the newest version's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?.flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).filter_map(|path| Some((number(&path)?, path)));
    let (_, path) = newest.filter(|(_, path)| path.join("bin/postgres").is_file()).max()?;
    Some(path.join("bin"))
}

/// `postgres --single` on the cluster in `dir`.
fn backend(programs: &Path, dir: &Path) -> Vec<OsString> {
    let settings = SETTINGS.iter().flat_map(|setting| ["-c".into(), (*setting).into()]);
    let program = programs.join("postgres").into();
    let words = [program, "--single".into(), "-D".into(), dir.into()];
    words.into_iter().chain(settings).chain(["postgres".into()]).collect()
}

fn make(making: &DatasetBuild<'_>) -> Result<(), Error> {
    let Some(programs) = programs() else { return Ok(()) };
    let cluster = making.dir.join("cluster");
    fs::create_dir(&cluster).map_err(Error::system("create", &cluster))?;
    give(&cluster)?;
    let helper = |words: Vec<OsString>, input| {
        let words = [as_unprivileged(), words].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").stdin(input);
        set_environment(&mut command);
        run_helper(&mut command)
    };
    let mut initdb: Vec<OsString> = vec![programs.join("initdb").into(), "-D".into()];
    initdb.push(cluster.clone().into());
    initdb.extend(
        ["--no-sync", "--auth=trust", "--no-locale", "--encoding=SQL_ASCII", "--wal-segsize=1"]
            .map(Into::into),
    );
    helper(initdb, Stdio::null())?;
    let (inner, outer) = making.size((INNER, OUTER), (20_000, 100));
    let lines = SCRIPT.lines().filter(|line| !line.starts_with("--"));
    let text: String = lines.map(|line| line.to_owned() + "\n").collect();
    let text = text.replace("INNER", &inner.to_string()).replace("OUTER", &outer.to_string());
    let output = helper(backend(&programs, &cluster), script(&text)?.into())?;
    match complaint(&String::from_utf8_lossy(&output.stderr)) {
        Some(message) => Err(Error::NotMade { path: cluster, message }),
        None => Ok(()),
    }
}

/// Returns the line about a statement that failed: the backend's exit status does not tell.
fn complaint(said: &str) -> Option<String> {
    said.lines().find(|line| line.contains("ERROR:")).map(str::to_owned)
}

/// An index nested-loop join in which `percent` of the outer relation's tuples find a match.
pub fn join(percent: u32, ground: &JobPlaces<'_>) -> Result<Job, Error> {
    let cluster = ground.dir.join("cluster");
    let Some(programs) = programs().filter(|_| cluster.is_dir()) else {
        return Err(Failure::NotInstalled { program: "postgres".into(), package: PACKAGE }.into());
    };
    let query = format!(
        "{PLAN}\nSELECT count(*), sum(o.v), sum(length(r.pad)) FROM outer{percent} o \
         JOIN relation r ON r.k = o.k;\n"
    );
    let input = ground.out.join("query.sql");
    fs::write(&input, query).map_err(Error::system("write", &input))?;
    let mut words = backend(&programs, &cluster).into_iter();
    let program = words.next().unwrap_or_default();
    Ok(Job {
        around: as_unprivileged(),
        owner: Some(UNPRIVILEGED),
        input: Some(input),
        // The join's own output; an error in a statement is no failure of a backend.
        says: Some("count = "),
        ..Job::new(program, PACKAGE, Path::new("/")).args(words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_statement_is_found() {
        let fine = "LOG:  checkpoint complete\nNOTICE:  there is one\n";
        assert_eq!(complaint(fine), None);
        let wrong =
            format!("{fine}2026-01-01 [9] ERROR:  relation \"x\" does not exist\nSTATEMENT:  y\n");
        assert!(complaint(&wrong).is_some_and(|line| line.contains("does not exist")));
    }
}
