//! The rows of the table: which command, on which storage, in which state, and how fast it has to
//! be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runahead_testbed::model::Service;
use serde::{Deserialize, Serialize};

use crate::copy;
use crate::error::Error;
use crate::job::Job;

/// Occurs in an eighth of the kernel's files, so that output is neither nothing nor everything.
const PATTERN: &str = "mutex_lock";

/// How many files the rows that name files name: the first in the order of names.
const NAMED: usize = 2000;

/// The directories on the storage under test.
pub const TREE: &str = "tree";
/// The same tree again, as a git repository.
pub const REPO: &str = "repo";

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `grep -c` over named files.
    GrepFiles,
    /// `grep -r`.
    GrepR,
    /// `tar cf`.
    Tar,
    /// `find -size`.
    FindSize,
    /// `du -s`.
    Du,
    /// `ls -lR`.
    LsLR,
    /// `git status`.
    GitStatus,
}

/// A storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Constant latency, many at a time.
    Disk,
    /// Four rotating disks.
    Spindles,
    /// A network file system.
    Share,
}

/// What is in memory before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Nothing of the storage under test: plain's time over runahead's, at least the target.
    Cold,
    /// All of it: runahead's time over plain's, at most the target.
    Warm,
}

/// A row.
#[derive(Debug)]
pub struct Row {
    /// As given to `--row`.
    pub name: &'static str,
    /// For people.
    pub about: &'static str,
    /// What runs.
    pub work: Work,
    /// On what.
    pub place: Place,
    /// In which state.
    pub cache: Cache,
    /// A ratio of elapsed times; see [`Cache`].
    pub target: f64,
}

/// Never slower than this with everything in memory.
const WARM: f64 = 1.15;

const fn row(
    (name, work): (&'static str, Work),
    place: Place,
    cache: Cache,
    target: f64,
    about: &'static str,
) -> Row {
    Row { name, about, work, place, cache, target }
}

/// Every row, in the order of the table.
pub const ROWS: &[Row] = {
    use Cache::{Cold, Warm};
    use Place::{Disk, Share, Spindles};
    &[
        row(
            ("grep-files", Work::GrepFiles),
            Disk,
            Cold,
            25.0,
            "reads files named on the command line",
        ),
        row(("grep-r", Work::GrepR), Disk, Cold, 20.0, "walks the tree and reads all of it"),
        row(
            ("tar", Work::Tar),
            Disk,
            Cold,
            15.0,
            "reads all of the tree into a real archive, in memory",
        ),
        row(
            ("find-size", Work::FindSize),
            Disk,
            Cold,
            8.0,
            "walks the tree, attributes of every file",
        ),
        row(
            ("du", Work::Du),
            Disk,
            Cold,
            8.0,
            "walks the tree, attributes of every file, sorted by inode",
        ),
        row(
            ("ls-lR", Work::LsLR),
            Disk,
            Cold,
            8.0,
            "walks the tree, attributes and extended attributes",
        ),
        row(
            ("git-status", Work::GitStatus),
            Disk,
            Cold,
            8.0,
            "compares a repository of that tree with its index",
        ),
        row(
            ("share-grep-r", Work::GrepR),
            Share,
            Cold,
            15.0,
            "the same over a network file system",
        ),
        row(
            ("spindles-grep-files", Work::GrepFiles),
            Spindles,
            Cold,
            2.5,
            "the first row on four rotating disks",
        ),
        row(("warm-grep-files", Work::GrepFiles), Disk, Warm, WARM, "everything in memory"),
        row(("warm-grep-r", Work::GrepR), Disk, Warm, WARM, "everything in memory"),
        row(("warm-tar", Work::Tar), Disk, Warm, WARM, "everything in memory"),
        row(("warm-find-size", Work::FindSize), Disk, Warm, WARM, "everything in memory"),
        row(("warm-du", Work::Du), Disk, Warm, WARM, "everything in memory"),
        row(("warm-ls-lR", Work::LsLR), Disk, Warm, WARM, "everything in memory"),
        row(("warm-git-status", Work::GitStatus), Disk, Warm, WARM, "everything in memory"),
    ]
};

/// The rows of these names, in the table's order; `cold` and `warm` name groups, nothing names all.
///
/// # Errors
/// [`Error::NoRow`].
pub fn select(names: &[String]) -> Result<Vec<&'static Row>, Error> {
    let matches = |row: &Row, name: &str| match name {
        "cold" => row.cache == Cache::Cold,
        "warm" => row.cache == Cache::Warm,
        name => row.name == name,
    };
    if let Some(unknown) = names.iter().find(|name| !ROWS.iter().any(|row| matches(row, name))) {
        return Err(Error::NoRow(unknown.clone()));
    }
    let chosen = |row: &&Row| names.is_empty() || names.iter().any(|name| matches(row, name));
    Ok(ROWS.iter().filter(chosen).collect())
}

impl Work {
    /// The command, to be run at the root of the storage; `archive` is where tar writes.
    ///
    /// # Errors
    /// The tree cannot be listed.
    pub fn job(self, root: &Path, archive: PathBuf) -> Result<Job, Error> {
        let job = |program, package, args: &[&str]| Job {
            program,
            package,
            args: args.iter().map(Into::into).collect(),
            cwd: root.to_owned(),
            artefact: None,
        };
        Ok(match self {
            Self::GrepFiles => {
                let mut job = job("grep", "grep", &["-c", PATTERN]);
                let files = copy::regular_files(root, Path::new(TREE))?;
                job.args.extend(files.into_iter().take(NAMED).map(Into::into));
                job
            }
            Self::GrepR => job("grep", "grep", &["-r", PATTERN, TREE]),
            Self::Tar => {
                let mut job = job("tar", "tar", &["cf"]);
                job.args.extend([archive.clone().into(), TREE.into()]);
                Job { artefact: Some(archive), ..job }
            }
            Self::FindSize => job("find", "findutils", &[TREE, "-size", "+100k"]),
            Self::Du => job("du", "coreutils", &["-s", TREE]),
            Self::LsLR => job("ls", "coreutils", &["-lR", TREE]),
            Self::GitStatus => {
                let job = job("git", "git", &["-c", "core.preloadIndex=false", "status"]);
                Job { cwd: root.join(REPO), ..job }
            }
        })
    }
}

impl Place {
    /// How it serves; `quick` for tests of the harness.
    pub fn service(self, quick: bool) -> Service {
        let ms = |n| Duration::from_millis(if quick { 1 } else { n });
        match self {
            Self::Disk => Service::Parallel { latency: ms(5), parallel: 128 },
            Self::Share => Service::Parallel { latency: ms(10), parallel: 128 },
            Self::Spindles => Service::Spindles { spindles: 4, stripe: 64 << 10, seek: ms(12) },
        }
    }

    /// As on the command line of `runahead-testbed`.
    pub fn describe(self, quick: bool) -> String {
        match self.service(quick) {
            Service::Parallel { latency, .. } if self == Self::Share => {
                format!("share --latency {latency:?}, source in memory")
            }
            Service::Parallel { latency, parallel } => {
                format!("disk --latency {latency:?} --parallel {parallel}, ext4")
            }
            Service::Spindles { spindles, stripe, seek } => {
                let stripe = stripe >> 10;
                format!("disk --spindles {spindles} --stripe {stripe}KiB --seek {seek:?}, ext4")
            }
        }
    }

    /// How the oracle does best here.
    pub fn oracle(self) -> Oracle {
        match self {
            Self::Disk | Self::Share => Oracle { threads: 512, lookups_first: false },
            Self::Spindles => Oracle { threads: 128, lookups_first: true },
        }
    }
}

/// How accesses are made for a command; what was best of 1 to 2048 threads and both orders.
///
/// The storage serves no more at a time than it always does, but several accesses wait for one
/// request (16 inodes are in a block), so that it takes more threads than that to keep it busy. On
/// spindles reading inodes between data costs two seeks a file.
#[derive(Debug, Clone, Copy)]
pub struct Oracle {
    /// Accesses under way at a time.
    pub threads: usize,
    /// All names before all data, instead of the order of the recording.
    pub lookups_first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_by_name_and_group() {
        let names = |given: &[&str]| -> Result<Vec<_>, Error> {
            let given: Vec<String> = given.iter().map(|s| (*s).to_owned()).collect();
            Ok(select(&given)?.iter().map(|row| row.name).collect())
        };
        assert_eq!(names(&["tar", "grep-r"]).unwrap(), ["grep-r", "tar"]);
        assert_eq!(names(&[]).unwrap().len(), ROWS.len());
        let groups = names(&["warm"]).unwrap().len() + names(&["cold"]).unwrap().len();
        assert_eq!(groups, ROWS.len());
        assert!(matches!(names(&["tarr"]), Err(Error::NoRow(name)) if name == "tarr"));
    }

    #[test]
    fn names_are_unique() {
        let unique: std::collections::HashSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(unique.len(), ROWS.len());
    }
}
