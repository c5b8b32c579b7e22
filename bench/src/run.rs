//! `runahead-bench run`: brings up one storage after the other, measures its rows, writes the
//! results.
//!
//! Invariant: results are written after every row, so that an interruption costs one row.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::job::Runner;
use crate::measure::Bench;
use crate::options::{Run, Subject};
use crate::output::{note, say};
use crate::report::{Report, Settings, Tree};
use crate::rows::{self, Place, ROWS, Row, Work};
use crate::site::{Content, Scratch, Site};
use crate::source::{self, Source};
use crate::{markdown, programs, sys, table};

/// Disk, repository, share source and archive of the whole tree.
const SPACE: u64 = 1 << 30;
const QUICK_SPACE: u64 = 192 << 20;
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
    let scratch = Scratch::new(if quick { QUICK_SPACE } else { SPACE })?;
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
    let mut report = None;
    for place in [Place::Disk, Place::Spindles, Place::Share] {
        let rows: Vec<_> = chosen.iter().copied().filter(|row| row.place == place).collect();
        if rows.is_empty() {
            continue;
        }
        let repo = rows.iter().any(|row| row.work == Work::GitStatus);
        let content = Content { source: &source, files, repo };
        let site = Site::up(&scratch, place.service(quick), place, content)?;
        let report = match &mut report {
            Some(report) => report,
            none => none.insert(start(&bench, &source, &site, &output, chosen.len())?),
        };
        for row in rows {
            measure_row(&bench, row, &site, report, &output)?;
        }
        site.down()?;
    }
    let Some(mut report) = report else { return Ok(true) };
    report.rows.retain(|row| chosen.iter().any(|chosen| chosen.name == row.name));
    say!("{}", table::text(&report));
    output.say();
    Ok(report.rows.iter().all(|row| row.failure.is_none()))
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
    let order: Vec<_> = ROWS.iter().map(|row| row.name).collect();
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
fn start(
    bench: &Bench,
    source: &Source,
    site: &Site,
    output: &Output,
    chosen: usize,
) -> Result<Report, Error> {
    let tree = Tree { what: source.what.clone(), census: site.census().clone() };
    let version = bench.runahead.as_deref().map(programs::version).transpose()?;
    let mut report = Report::new(bench.settings.clone(), tree, version);
    if let Some(path) = output.json.first()
        && chosen < ROWS.len()
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
