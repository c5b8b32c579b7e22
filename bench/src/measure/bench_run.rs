//! `runahead-bench run`: brings up one storage after the other, measures its rows, writes the
//! results.
//!
//! Invariant: results are written after every row, so that an interruption costs one row.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runahead_harness::{note, read_json, require_program, say, subject, write_at_once, write_json};

use crate::data::copy_tree::{self, TreeCensus};
use crate::data::linux_source::{self, SourceTree};
use crate::data::row_datasets::{Dataset, DatasetStore};
use crate::error::Error;
use crate::measure::row_measurement::Bench;
use crate::measure::run_outcome::digest;
use crate::measure::runahead_prefix::require_mechanisms;
use crate::measure::running_command::Runner;
use crate::measure::slow_storage::{FilledStorage, MemoryDirectory, StorageContent};
use crate::measure::warm_programs::version;
use crate::options::Run;
use crate::report::json_results::{Report, Settings, Tree};
use crate::report::markdown_document::document;
use crate::report::tables::{self, text};
use crate::rows::row_definition::Row;
use crate::rows::row_selection;
use crate::rows::storage_kinds::{EVERYDAY, PLACES, Place};

const QUICK_FILES: usize = 200;

/// Files for the results.
struct Output {
    json: Vec<PathBuf>,
    document: Option<PathBuf>,
}

/// Measures the rows that `options` choose. False if a row failed.
pub fn run(options: &Run) -> Result<bool, Error> {
    let rows = row_selection::select(&options.rows)?;
    let everyday = rows.iter().any(Row::is_everyday);
    if everyday && options.root.is_none() {
        return Err(Error::NoSystem);
    }
    let given = options.subject.runahead.as_deref();
    let runahead = match options.without_runahead {
        true => None,
        false => Some(subject("runahead", given)?),
    };
    if let Some(runahead) = &runahead {
        require_mechanisms(runahead, &options.without)?;
    }
    let quick = options.quick;
    let (source, tree) = match rows.iter().all(Row::is_everyday) {
        true => (SourceTree { root: PathBuf::new(), what: String::new() }, system_tree()),
        false => {
            require_program("strace", "strace")?;
            let source =
                if quick { linux_source::at_hand(QUICK_FILES)? } else { linux_source::linux()? };
            let census = copy_tree::census(&source.root, files(quick))?;
            let what = source.what.clone();
            (source, Tree { what, census })
        }
    };
    let space = |row: &Row| match row.data() {
        Some(data) => data.space(quick),
        None => row.place.space(quick),
    };
    let scratch = MemoryDirectory::new(rows.iter().map(space).max().unwrap_or(0))?;
    let keep = std::env::temp_dir().join("runahead-bench-differs");
    let build = runahead.as_deref().map(digest).transpose()?;
    let bench = Bench {
        runner: Runner { out: scratch.out()?, limit: Duration::from_secs(options.timeout) },
        settings: settings(options, everyday),
        oracle_threads: options.oracle_threads,
        keep: options.out.clone().unwrap_or(keep),
        build: build.map(|digest| digest.sha256.chars().take(8).collect()),
        without: options.without.clone(),
        runahead,
    };
    let output = Output::of(options)?;
    let order: Vec<_> = row_selection::all().into_iter().map(|row| row.name).collect();
    let mut report = start(&bench, tree, &output, &rows)?;
    let mut taken_down = Ok(());
    let store = DatasetStore::new(quick)?;
    let sites = sites(&rows);
    for (n, &(place, data)) in sites.iter().enumerate() {
        let here: Vec<_> = rows.iter().filter(|row| is_on(row, place, data)).collect();
        let made = data.map(|data| store.get(data, &source)).transpose()?;
        let system = options.root.as_deref().filter(|_| here[0].is_everyday());
        let filling = StorageContent {
            rows: &here,
            source: &source,
            files: files(quick),
            made: made.as_deref(),
            system: system.map(|system| (system, &*bench.runner.out)),
            quick,
        };
        let site = FilledStorage::up(&scratch, place, filling)?;
        // Datasets are large, and may be in memory.
        if let Some(data) =
            data.filter(|data| sites[n + 1..].iter().all(|(_, d)| *d != Some(*data)))
        {
            store.forget(data)?;
        }
        for row in here {
            let result = bench.measure(row, &site)?;
            if let Some(failure) = &result.failure {
                note!("{}: FAILED: {failure}", row.name);
            }
            if row.is_everyday() {
                note!("{}: {}", place.name, tables::line(&result));
            }
            report.put(result, &order);
            output.write(&report)?;
        }
        // What is still up is reported; the other storages do not depend on it.
        let down = site.down();
        if let Err(e) = &down {
            note!("{e}");
        }
        taken_down = taken_down.and(down);
    }
    report.rows.retain(|row| rows.iter().any(|chosen| chosen.name == row.name));
    say!("{}", text(&report));
    output.say();
    taken_down.map(|()| report.rows.iter().all(|row| row.failure.is_none()))
}

/// Files of the tree, at most.
fn files(quick: bool) -> usize {
    if quick { QUICK_FILES } else { usize::MAX }
}

/// Description of the system that everyday commands work in.
fn system_tree() -> Tree {
    Tree { what: "a Debian system of 8 GB".to_owned(), census: TreeCensus::default() }
}

fn is_on(row: &Row, place: &Place, data: Option<&Dataset>) -> bool {
    row.place == place && row.data() == data
}

/// A storage with one dataset, or with the tree.
type Storage = (&'static Place, Option<&'static Dataset>);

/// Returns the storages of these rows, in the order in which they are brought up: those with the
/// tree before those with data, of which each has one. Storages with the same dataset follow each
/// other, because datasets are large, and are kept until no other storage needs them.
fn sites(rows: &[Row]) -> Vec<Storage> {
    let mut sites: Vec<Storage> = Vec::new();
    for data in [None].into_iter().chain(rows.iter().map(Row::data)) {
        for place in PLACES.into_iter().chain(&EVERYDAY) {
            let used = rows.iter().any(|row| is_on(row, place, data));
            if used && !sites.contains(&(place, data)) {
                sites.push((place, data));
            }
        }
    }
    sites
}

fn settings(options: &Run, everyday: bool) -> Settings {
    let or = |given: Option<usize>, full, quick| {
        given.unwrap_or(if options.quick { quick } else { full })
    };
    Settings {
        pairs: or(options.pairs, if everyday { 1 } else { 5 }, 1),
        warm_pairs: or(options.warm_pairs, 15, 2),
        oracle_runs: or(options.oracle_runs, 3, 1),
        quick: options.quick,
    }
}

/// The report to fill. If only some rows are chosen, it has the others' older results.
fn start(bench: &Bench, tree: Tree, output: &Output, rows: &[Row]) -> Result<Report, Error> {
    let runahead = bench.runahead.as_deref().map(version).transpose()?;
    let mut report = Report::new(bench.settings.clone(), tree, runahead);
    if let Some(path) = output.json.first()
        && let Some(older) = read_json::<Report>(path)?
        && older.rows.iter().any(|old| rows.iter().all(|row| row.name != old.name))
    {
        report.inherit(older, path)?;
    }
    Ok(report)
}

impl Output {
    fn of(options: &Run) -> Result<Self, Error> {
        let document = options.write_md.clone();
        let beside = document.as_deref().map(|md| md.with_extension("json"));
        let in_out = options.out.as_deref().map(|dir| dir.join("BENCHMARKS.json"));
        let mut json: Vec<_> = [beside, in_out].into_iter().flatten().collect();
        json.dedup();
        for dir in json.iter().filter_map(|file| file.parent()).filter(|d| *d != Path::new("")) {
            fs::create_dir_all(dir).map_err(Error::system("create", dir))?;
        }
        Ok(Self { json, document })
    }

    fn write(&self, report: &Report) -> Result<(), Error> {
        self.json.iter().try_for_each(|path| write_json(path, report))?;
        match &self.document {
            Some(path) => Ok(write_at_once(path, &document(report))?),
            None => Ok(()),
        }
    }

    fn say(&self) {
        for path in self.document.iter().chain(&self.json) {
            say!("written: {}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::netcdf_slices::ARRAY;
    use crate::data::object_files::OBJECTS;
    use crate::rows::storage_kinds::{DISK, SHARE, SPINDLES};

    #[test]
    fn a_storage_holds_the_tree_or_one_kind_of_data() {
        let names = ["slices", "link", "grep-r", "spindles-link", "share-grep-r"];
        let rows = row_selection::select(&names.map(str::to_owned)).unwrap();
        let expected = [
            (&DISK, None),
            (&SHARE, None),
            (&DISK, Some(&OBJECTS)),
            (&SPINDLES, Some(&OBJECTS)),
            (&DISK, Some(&ARRAY)),
        ];
        assert_eq!(sites(&rows), expected);
    }
}
