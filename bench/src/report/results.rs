//! The results, as they are kept in JSON. Everything that people are shown is made from this.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::copy_tree::Census;
use crate::data::job::Kind;
use crate::error::Error;
use crate::report::machine::Machine;
use crate::report::summary::Summary;
use crate::rows::catalog::Cache;
use crate::rows::cost_limits::Cost;

/// Layout of the file; grows when fields change meaning.
const VERSION: u32 = 1;

/// A whole table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// See [`VERSION`].
    pub version: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How.
    pub settings: Settings,
    /// On which tree.
    pub tree: Tree,
    /// What runahead says it is; none if it was not measured.
    pub runahead: Option<String>,
    /// In the order of the table.
    pub rows: Vec<RowReport>,
}

/// How often, how fast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Pairs of cold runs.
    pub pairs: usize,
    /// Pairs of warm runs.
    pub warm_pairs: usize,
    /// Runs of the oracle.
    pub oracle_runs: usize,
    /// Tiny, to test the harness: the figures mean nothing.
    pub quick: bool,
}

/// What the commands worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// For people.
    pub what: String,
    /// How much of it.
    pub census: Census,
}

/// One row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowReport {
    /// Its name.
    pub name: String,
    /// What it does.
    pub about: String,
    /// The command, shortened.
    pub command: String,
    /// First line of its `--version`.
    pub program: String,
    /// The storage.
    pub storage: String,
    /// What is on it, if not the tree.
    #[serde(default)]
    pub content: Option<Census>,
    /// Programs that the recorded run started, itself included.
    #[serde(default)]
    pub starts: Option<usize>,
    /// State of memory before each run.
    pub cache: Cache,
    /// See [`Cache`].
    pub target: f64,
    /// What is judged instead of the target.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// What is switched off; nothing is judged then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<String>,
    /// Seconds since 1970.
    pub measured: u64,
    /// Every run, in order.
    pub runs: Vec<RunReport>,
    /// The oracle, if it was measured.
    pub oracle: Option<OracleReport>,
    /// Medians and the rest.
    pub summary: Summary,
    /// `runahead run --stats=json` of the run with the median time.
    pub runahead_stats: Option<serde_json::Value>,
    /// Why there is no result.
    pub failure: Option<String>,
}

/// How the oracle was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OracleReport {
    /// Accesses in the list.
    pub accesses: usize,
    /// Made by so many threads.
    pub threads: usize,
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunReport {
    /// Of which kind.
    pub kind: Kind,
    /// Of which pair (or which run of the oracle), from 1.
    pub pair: usize,
    /// Elapsed.
    pub seconds: f64,
    /// What is judged, if not the elapsed time; in the unit of the row's cost.
    #[serde(default)]
    pub figure: Option<f64>,
    /// Other things measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
    /// How it ended.
    pub exit: String,
    /// What the storage was asked meanwhile.
    pub requests: u64,
    /// Bytes that it returned.
    pub read_bytes: u64,
    /// Requests that it had at the same time, at most.
    pub max_in_service: u64,
    /// Another process dropped the machine's caches meanwhile, each time that it was tried.
    pub disturbed: bool,
}

/// A table of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// How fast, from storage.
    Cold,
    /// How fast, from storage, with something switched off.
    Ablation,
    /// How slow, from memory.
    Warm,
    /// How slow, from storage, where there is nothing to gain.
    Futile,
    /// How cheap where there is nothing to gain.
    Cost,
}

impl Section {
    /// In the order of the document.
    pub const ALL: [Self; 5] = [Self::Cold, Self::Ablation, Self::Futile, Self::Warm, Self::Cost];
}

impl RowReport {
    /// Where it stands.
    pub fn section(&self) -> Section {
        match (&self.cost, self.cache) {
            (Some(_), Cache::Cold) => Section::Futile,
            (Some(_), Cache::Warm) => Section::Cost,
            (None, Cache::Cold) if self.without.is_some() => Section::Ablation,
            (None, Cache::Cold) => Section::Cold,
            (None, Cache::Warm) => Section::Warm,
        }
    }
}

impl Report {
    /// One without rows.
    pub fn new(settings: Settings, tree: Tree, runahead: Option<String>) -> Self {
        Self {
            version: VERSION,
            machine: Machine::this(),
            settings,
            tree,
            runahead,
            rows: Vec::new(),
        }
    }

    /// Puts a row in its place, over an older one of its name.
    pub fn put(&mut self, row: RowReport, order: &[&str]) {
        self.rows.retain(|old| old.name != row.name);
        self.rows.push(row);
        self.rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
    }

    /// Takes over the rows of an older report of the same machine, tree and settings.
    ///
    /// # Errors
    /// [`Error::OtherMachine`] if it is of another.
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

    /// Reads one; none if there is no file.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let bytes = match std::fs::read(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(Error::system("read", path))?,
        };
        let parsed = serde_json::from_slice(&bytes);
        parsed.map(Some).map_err(|source| Error::Format { path: path.to_owned(), source })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        json.and_then(|mut bytes| {
            bytes.push(b'\n');
            std::fs::write(path, bytes)
        })
        .map_err(Error::system("write", path))
    }
}
