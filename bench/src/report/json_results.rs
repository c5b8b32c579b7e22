//! The results, as they are kept in JSON. All tables and documents are made from them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::copy_tree::TreeCensus;
use crate::error::Error;
use crate::report::machine::Machine;
use crate::report::row_summary::Summary;
use crate::report::run_report::RunReport;
use crate::rows::cost_limits::Cost;
use crate::rows::row_definition::Cache;

/// Layout of the file; grows when fields change meaning.
const VERSION: u32 = 1;

/// Results of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The [`VERSION`] that wrote it.
    pub version: u32,
    pub machine: Machine,
    pub settings: Settings,
    pub tree: Tree,
    /// The version of the runahead under test; none if it was not measured.
    pub runahead: Option<String>,
    /// Rows in the order of the table.
    pub rows: Vec<RowReport>,
}

/// Numbers of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Pairs of cold runs.
    pub pairs: usize,
    /// Pairs of warm runs.
    pub warm_pairs: usize,
    /// Runs of the oracle.
    pub oracle_runs: usize,
    /// True for a tiny run, to test the harness: the figures mean nothing.
    pub quick: bool,
}

/// The files that the commands worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Description for people.
    pub what: String,
    pub census: TreeCensus,
}

/// Results of a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowReport {
    pub name: String,
    /// Description for people.
    pub about: String,
    /// The command, shortened.
    pub command: String,
    /// First line of its `--version`.
    pub program: String,
    pub storage: String,
    /// Content of the storage, if not the tree.
    #[serde(default)]
    pub content: Option<TreeCensus>,
    /// Programs that the recorded run started, itself included.
    #[serde(default)]
    pub starts: Option<usize>,
    /// State of memory before each run.
    pub cache: Cache,
    /// A ratio of elapsed times; see [`Cache`].
    pub target: f64,
    /// Limits that are judged instead of the target.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// Mechanism that is switched off; nothing is judged then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<String>,
    /// The table of an everyday row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everyday: Option<String>,
    /// Seconds since 1970.
    pub measured: u64,
    /// Start of the SHA-256 of the runahead under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Every run, in order.
    pub runs: Vec<RunReport>,
    /// The oracle, if it was measured.
    pub oracle: Option<OracleReport>,
    pub summary: Summary,
    /// `runahead run --stats=json` of the run with the median time.
    pub runahead_stats: Option<serde_json::Value>,
    /// Reason why there is no result.
    pub failure: Option<String>,
}

/// Size of the oracle.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OracleReport {
    /// Accesses in the list.
    pub accesses: usize,
    pub threads: usize,
}

/// A table of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Speedup from storage.
    Cold,
    /// Speedup from storage, with something switched off.
    Ablation,
    /// Slowdown from storage, where there is nothing to gain.
    Futile,
    /// Slowdown from memory.
    Warm,
    /// Cost where there is nothing to gain.
    Cost,
    /// Everyday commands.
    Everyday,
}

impl Section {
    /// Sections in the order of the document.
    pub const ALL: [Self; 6] =
        [Self::Cold, Self::Ablation, Self::Futile, Self::Warm, Self::Cost, Self::Everyday];
}

impl RowReport {
    /// The table that it stands in.
    pub fn section(&self) -> Section {
        match (&self.cost, self.cache) {
            _ if self.everyday.is_some() => Section::Everyday,
            (Some(_), Cache::Cold) => Section::Futile,
            (Some(_), Cache::Warm) => Section::Cost,
            (None, Cache::Cold) if self.without.is_some() => Section::Ablation,
            (None, Cache::Cold) => Section::Cold,
            (None, Cache::Warm) => Section::Warm,
        }
    }
}

impl Report {
    /// A report without rows.
    pub fn new(settings: Settings, tree: Tree, runahead: Option<String>) -> Self {
        let machine = Machine::this();
        Self { version: VERSION, machine, settings, tree, runahead, rows: Vec::new() }
    }

    /// Puts a row in its place, over an older one of its name.
    pub fn put(&mut self, row: RowReport, order: &[String]) {
        self.rows.retain(|old| old.name != row.name);
        self.rows.push(row);
        self.rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
    }

    /// Takes over the rows of an older report of the same machine, tree and settings.
    pub fn inherit(&mut self, older: Report, path: &Path) -> Result<(), Error> {
        let same = self.machine == older.machine
            && self.settings == older.settings
            && self.tree == older.tree
            && self.runahead == older.runahead;
        if !same {
            return Err(Error::OtherMachine(path.to_owned()));
        }
        self.rows = older.rows;
        Ok(())
    }
}
