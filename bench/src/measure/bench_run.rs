//! `runahead-bench run`: brings up one storage after the other, measures its rows, writes the
//! results.
//!
//! Invariant: results are written after every row, so that an interruption costs one row.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runahead_harness::{note, say};

use crate::data::copy_tree as copy;
use crate::data::datasets::{Data, Store};
use crate::data::linux_source as source;
use crate::data::system_programs as sys;
use crate::error::Error;
use crate::measure::command_runner::Runner;
use crate::measure::row_measurement::Bench;
use crate::measure::slow_storage::{Content, Repository, Scratch, Site};
use crate::measure::warm_programs as programs;
use crate::options::{Run, Subject};
use crate::report::document as markdown;
use crate::report::results::{Report, Settings, Tree};
use crate::report::tables as table;
use crate::rows::catalog::{self as rows, Row};
use crate::rows::commands::Work;
use crate::rows::storages::Place;

const QUICK_FILES: usize = 200;

/// Where results go.
struct Output {
    json: Vec<PathBuf>,
    document: Option<PathBuf>,
}

/// Measures what `options` ask for. False if a row failed.
///
/// # Errors
/// What prevented measuring.
pub fn run(options: &Run) -> Result<bool, Error> {
    let chosen = rows::select(&options.rows)?;
    let runahead = match options.without_runahead {
        true => None,
        false => Some(subject(&options.subject)?),
    };
    sys::require_program("strace", "strace")?;
    let quick = options.quick;
    let files = if quick { QUICK_FILES } else { usize::MAX };
    let source = if quick { source::at_hand(files)? } else { source::linux()? };
    let space = |row: &&Row| match row.work.data() {
        Some(data) => data.space(quick),
        None => row.place.space(quick),
    };
    let scratch = Scratch::new(chosen.iter().map(space).max().unwrap_or(0))?;
    let out = scratch.path().join("out");
    fs::create_dir(&out).map_err(Error::system("create", &out))?;

    let keep = std::env::temp_dir().join("runahead-bench-differs");
    let bench = Bench {
        runner: Runner { out, limit: Duration::from_secs(options.timeout) },
        settings: settings(options),
        oracle_threads: options.oracle_threads,
        keep: options.out.clone().unwrap_or(keep),
        runahead,
    };
    let output = Output::of(options)?;
    let census = copy::census(&source.root, files)?;
    let tree = Tree { what: source.what.clone(), census };
    let mut report = start(&bench, tree, &output, chosen.len())?;
    let mut taken_down = Ok(());
    let store = Store::new(quick)?;
    let sites = sites(&chosen);
    for (n, &(place, data)) in sites.iter().enumerate() {
        let here = |row: &&Row| row.place == place && row.work.data() == data;
        let rows: Vec<_> = chosen.iter().copied().filter(here).collect();
        let made = data.map(|data| store.get(data, &source)).transpose()?;
        let apps: Vec<_> = rows.iter().filter_map(|row| row.work.app()).collect();
        let repository = repository(&rows);
        let data_at = data.zip(made.as_deref());
        let content =
            Content { source: &source, files, repository, apps: &apps, data: data_at, quick };
        let site = Site::up(&scratch, place, content)?;
        // They are large, and may be in memory.
        if let Some(data) =
            data.filter(|data| sites[n + 1..].iter().all(|(_, d)| *d != Some(*data)))
        {
            store.forget(data)?;
        }
        for row in rows {
            measure_row(&bench, row, &site, &mut report, &output)?;
        }
        // What is still up is reported; the other storages do not depend on it.
        let down = site.down();
        if let Err(e) = &down {
            note!("{e}");
        }
        taken_down = taken_down.and(down);
    }
    report.rows.retain(|row| chosen.iter().any(|chosen| chosen.name == row.name));
    say!("{}", table::text(&report));
    output.say();
    taken_down.map(|()| report.rows.iter().all(|row| row.failure.is_none()))
}

/// The storages of these rows, in the order in which they are brought up: those with the tree before those
/// with data, of which each has one. What has the same data is one after the other, because data are large, and are
/// kept until no other storage needs them.
fn sites(rows: &[&Row]) -> Vec<(Place, Option<Data>)> {
    let mut sites = Vec::new();
    for data in [None].into_iter().chain(rows.iter().map(|row| row.work.data())) {
        for place in Place::ALL {
            let here = |row: &&Row| row.place == place && row.work.data() == data;
            if rows.iter().any(here) && !sites.contains(&(place, data)) {
                sites.push((place, data));
            }
        }
    }
    sites
}

/// What the rows of one place need.
fn repository(rows: &[&Row]) -> Repository {
    let needs = |work| rows.iter().any(|row| row.work == work);
    match (needs(Work::GitStatus), needs(Work::GitStatusApart)) {
        (true, _) => Repository::Copy,
        (_, true) => Repository::Apart,
        _ => Repository::None,
    }
}

fn measure_row(
    bench: &Bench,
    row: &Row,
    site: &Site,
    report: &mut Report,
    output: &Output,
) -> Result<(), Error> {
    let result = bench.measure(row, site)?;
    if let Some(failure) = &result.failure {
        note!("{}: FAILED: {failure}", row.name);
    }
    let order: Vec<_> = rows::all().map(|row| row.name).collect();
    report.put(result, &order);
    output.write(report)
}

fn settings(options: &Run) -> Settings {
    let or = |given: Option<usize>, full, quick| {
        given.unwrap_or(if options.quick { quick } else { full })
    };
    Settings {
        pairs: or(options.pairs, 5, 1),
        warm_pairs: or(options.warm_pairs, 15, 2),
        oracle_runs: or(options.oracle_runs, 3, 1),
        quick: options.quick,
    }
}

/// The report to fill; with only some rows chosen, one that has the others' older results.
fn start(bench: &Bench, tree: Tree, output: &Output, chosen: usize) -> Result<Report, Error> {
    let version = bench.runahead.as_deref().map(programs::version).transpose()?;
    let mut report = Report::new(bench.settings.clone(), tree, version);
    if let Some(path) = output.json.first()
        && chosen < rows::all().count()
        && let Some(older) = Report::read(path)?
    {
        report.inherit(older, path)?;
    }
    Ok(report)
}

/// The program under test.
///
/// # Errors
/// [`Error::NoRunahead`].
pub fn subject(subject: &Subject) -> Result<PathBuf, Error> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("runahead"));
    let path = match &subject.runahead {
        Some(path) => path.clone(),
        None => beside()
            .filter(|path| path.is_file())
            .unwrap_or_else(|| PathBuf::from("target/release/runahead")),
    };
    // Commands run in other directories.
    path.is_file().then(|| std::path::absolute(&path).ok()).flatten().ok_or(Error::NoRunahead(path))
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
        self.json.iter().try_for_each(|path| report.write(path))?;
        match &self.document {
            Some(path) => {
                fs::write(path, markdown::document(report)).map_err(Error::system("write", path))
            }
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

    #[test]
    fn a_storage_holds_the_tree_or_one_kind_of_data() {
        let names = ["slices", "link", "grep-r", "spindles-link", "share-grep-r"];
        let rows = rows::select(&names.map(str::to_owned)).unwrap();
        let expected = [
            (Place::Disk, None),
            (Place::Share, None),
            (Place::Disk, Some(Data::Objects)),
            (Place::Spindles, Some(Data::Objects)),
            (Place::Disk, Some(Data::Array)),
        ];
        assert_eq!(sites(&rows), expected);
    }
}
