//! The rows of the table: which command, on which storage, in which state, and how fast it has to
//! be.

use serde::{Deserialize, Serialize};

use crate::apps::App;
use crate::cost::{Cost, Unit};
use crate::error::Error;
use crate::place::Place;
use crate::work::{Shell, Work};

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
    /// A ratio of elapsed times; see [`Cache`]. Not judged if there is a cost.
    pub target: f64,
    /// What is judged instead.
    pub cost: Option<Cost>,
}

/// Never slower than this with everything in memory.
const WARM: f64 = 1.15;

/// One request after the other, and many at once.
const PIPELINE: u32 = 16;

const fn row(
    (name, work): (&'static str, Work),
    place: Place,
    cache: Cache,
    target: f64,
    about: &'static str,
) -> Row {
    Row { name, about, work, place, cache, target, cost: None }
}

const fn cost(
    (name, work): (&'static str, Work),
    place: Place,
    cost: Cost,
    about: &'static str,
) -> Row {
    let target = match (cost.ratio, cost.added) {
        (Some(ratio), _) => ratio,
        (None, Some(added)) => added,
        (None, None) => 0.0,
    };
    Row { name, about, work, place, cache: Cache::Warm, target, cost: Some(cost) }
}

/// Every row, in the order of the table.
pub const ROWS: &[Row] = {
    use Cache::{Cold, Warm};
    use Place::{Apps, Disk, Large, Memory, Share, Spindles};
    use Unit::{KiB, MicrosecondsPerStart, NanosecondsPerCall, RequestsPerSecond, Seconds};
    const WHOLE: Cost = Cost::ratio(Seconds, 1.03);
    const START: Cost = Cost::added(MicrosecondsPerStart, 400.0);
    const PREAD: Cost = Cost { unit: NanosecondsPerCall, ratio: Some(1.1), added: Some(40.0) };
    const SERVED: Cost = Cost::ratio(RequestsPerSecond, 0.98);
    const RESIDENT: Cost = Cost::added(KiB, 1024.0);
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
            ("share-python", Work::Program(App::Python)),
            Apps,
            Cold,
            4.0,
            "interpreter and 300 or more modules, with their .pyc files, from the share",
        ),
        row(
            ("share-node", Work::Program(App::Node)),
            Apps,
            Cold,
            2.0,
            "node and a script with 40 modules from the share",
        ),
        row(
            ("share-java", Work::Program(App::Java)),
            Apps,
            Cold,
            2.0,
            "starts a Java virtual machine from the share",
        ),
        row(
            ("share-configure", Work::Program(App::Configure)),
            Apps,
            Cold,
            2.0,
            "a script that starts 200 or more programs of 50 kinds, a compiler among them, from the share",
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
        cost(
            ("build", Work::Build),
            Memory,
            Cost::ratio(Seconds, 1.02),
            "builds redis from its source with two jobs",
        ),
        cost(("large-find", Work::FindSize), Large, WHOLE, "walks the whole of Linux's source"),
        cost(
            ("large-git-status", Work::GitStatusApart),
            Large,
            WHOLE,
            "compares the whole of Linux's source with its index, with git's own threads",
        ),
        cost(("large-grep-r", Work::GrepR), Large, WHOLE, "reads the whole of Linux's source"),
        cost(("large-tar", Work::Tar), Large, WHOLE, "archives the whole of Linux's source"),
        cost(("pread", Work::Pread), Disk, PREAD, "a loop of cached reads of 4 KiB"),
        cost(
            ("true-dash", Work::Starts(Shell::Dash)),
            Memory,
            START,
            "starts /bin/true 1,000 times from dash",
        ),
        cost(
            ("true-bash", Work::Starts(Shell::Bash)),
            Memory,
            START,
            "starts /bin/true 1,000 times from bash",
        ),
        cost(
            ("redis", Work::Redis { pipeline: 1 }),
            Memory,
            SERVED,
            "redis-benchmark's SET and GET, 50 connections",
        ),
        cost(
            ("redis-pipeline", Work::Redis { pipeline: PIPELINE }),
            Memory,
            SERVED,
            "the same, 16 requests at a time on each connection",
        ),
        cost(
            ("resident", Work::Resident { child: false }),
            Memory,
            RESIDENT,
            "memory of a program that has worked and sleeps (Rss)",
        ),
        cost(
            ("resident-child", Work::Resident { child: true }),
            Memory,
            RESIDENT,
            "the same, started by a shell",
        ),
    ]
};

/// The rows of these names, in the table's order; `cold`, `warm` and `cost` name groups, nothing
/// names all.
///
/// # Errors
/// [`Error::NoRow`].
pub fn select(names: &[String]) -> Result<Vec<&'static Row>, Error> {
    let matches = |row: &Row, name: &str| match name {
        "cold" => row.cache == Cache::Cold,
        "warm" => row.cache == Cache::Warm && row.cost.is_none(),
        "cost" => row.cost.is_some(),
        name => row.name == name,
    };
    if let Some(unknown) = names.iter().find(|name| !ROWS.iter().any(|row| matches(row, name))) {
        return Err(Error::NoRow(unknown.clone()));
    }
    let chosen = |row: &&Row| names.is_empty() || names.iter().any(|name| matches(row, name));
    Ok(ROWS.iter().filter(chosen).collect())
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
        let groups = ["warm", "cold", "cost"].map(|group| names(&[group]).unwrap().len());
        assert_eq!(groups.iter().sum::<usize>(), ROWS.len());
        assert!(matches!(names(&["tarr"]), Err(Error::NoRow(name)) if name == "tarr"));
    }

    #[test]
    fn names_are_unique() {
        let unique: std::collections::HashSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(unique.len(), ROWS.len());
    }

    #[test]
    fn every_cost_has_a_limit() {
        let costs = ROWS.iter().filter_map(|row| row.cost);
        assert!(costs.clone().count() > 0);
        assert!(costs.into_iter().all(|cost| cost.ratio.or(cost.added).is_some()));
    }
}
