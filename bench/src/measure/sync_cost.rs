//! `runahead-bench syncs`: the cost of a sync, by how much memory the target has.
//!
//! A program that has so much memory reads blocks of a cold file in which each names the next, so
//! that no shadow foresees a wait, and after each read stores into some of its pages. A sync costs
//! its own time, which is in runahead's statistics, and the copies of pages that are stored into
//! after it, which are in the elapsed time only.
//!
//! Nothing is guessed (`--without guesses`): with much bandwidth guesses read much of any file, and
//! the time that they save would hide the cost of syncs.
//!
//! Invariant: a line is of runs whose outputs were the same.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use runahead_harness::markdown::Table;
use runahead_harness::{note, read_json, say, subject};
use serde_json::Value;

use crate::data::job::{Job, JobPlaces};
use crate::data::linux_source;
use crate::data::mapped_files::{NUMBERS, storing};
use crate::data::row_datasets::DatasetStore;
use crate::error::{Error, Failure};
use crate::measure::job_run::run;
use crate::measure::run_outcome::{Outcome, difference};
use crate::measure::runahead_prefix::{switches, under_runahead};
use crate::measure::running_command::Runner;
use crate::measure::slow_storage::{FilledStorage, MemoryDirectory, StorageContent};
use crate::options::Syncs;
use crate::report::row_summary::median;
use crate::report::run_report::Kind;
use crate::rows::row_selection;
use crate::rows::storage_kinds::DISK;

/// Memory of the target, in MiB.
const SIZES: [u64; 8] = [1, 4, 16, 64, 256, 1024, 4096, 8192];
/// Reads that the target waits for.
const READS: u64 = 200;
/// Pages that are stored into after each read.
const PAGES: u64 = 500;
const QUICK_SIZES: [u64; 2] = [1, 4];
const QUICK_READS: u64 = 10;

/// Columns of the CSV file, a line for each run; times in seconds, of the reads and stores, without
/// filling the memory.
const HEADINGS: &str =
    "resident_mib,pair,plain,runahead,added,stalls,syncs,in_syncs,each_sync,shadows_cpu,outputs";

/// A size and a pair.
struct Line {
    mib: u64,
    pair: usize,
    plain: f64,
    runahead: f64,
    stalls: f64,
    syncs: f64,
    /// Seconds of the target's time.
    in_syncs: f64,
    /// Processor time of shadows.
    shadows: f64,
    same: bool,
}

/// Measures, and prints a table. False if outputs differed.
pub fn syncs(options: &Syncs) -> Result<bool, Error> {
    let runahead = subject("runahead", options.subject.runahead.as_deref())?;
    let quick = options.quick;
    let scratch = MemoryDirectory::new(NUMBERS.space(quick))?;
    let source = linux_source::at_hand(1)?;
    let store = DatasetStore::new(quick)?;
    let made = store.get(&NUMBERS, &source)?;
    let rows = row_selection::select(&["stores".to_owned()])?;
    let rows: Vec<_> = rows.iter().collect();
    let filling = StorageContent {
        rows: &rows,
        source: &source,
        files: 0,
        made: Some(&made),
        system: None,
        quick,
    };
    let site = FilledStorage::up(&scratch, &DISK, filling)?;
    store.forget(&NUMBERS)?;
    site.set_delay(true)?;
    let runner = Runner { out: scratch.out()?, limit: Duration::from_secs(600) };
    let sizes = if quick { &QUICK_SIZES[..] } else { &SIZES[..] };
    let reads = options.reads.unwrap_or(if quick { QUICK_READS } else { READS });
    let mut lines = Vec::new();
    for &mib in sizes {
        // Runahead and the kernel need little beside it; shadows share it.
        if available_mib() < mib + mib / 4 {
            note!("{mib} MiB: left out, because too little memory is available");
            continue;
        }
        let root = site.root();
        let ground = JobPlaces { root, dir: &root.join(NUMBERS.dir), out: &runner.out, quick };
        let job = storing(&ground, [mib << 10, reads, PAGES])?;
        for pair in 1..=options.pairs.max(1) {
            let line = measure(&runner, &site, &job, &runahead, &options.without, mib, pair)?;
            note!("{}", show(&line));
            lines.push(line);
        }
    }
    site.down()?;
    let text = table(&lines);
    say!("{}", text.trim_end());
    note!("{}", medians(&lines).trim_end());
    if let Some(path) = &options.write_csv {
        fs::write(path, &text).map_err(Error::system("write", path))?;
    }
    Ok(lines.iter().all(|line| line.same))
}

fn measure(
    runner: &Runner,
    site: &FilledStorage,
    job: &Job,
    runahead: &Path,
    without: &[String],
    mib: u64,
    pair: usize,
) -> Result<Line, Error> {
    let cold = |kind, prefix: &[_]| -> Result<Outcome, Error> {
        site.make_cold()?;
        // The program itself is in memory.
        let _ = (fs::read(&job.program), fs::read(runahead));
        run(runner, job, kind, prefix)
    };
    let file = runner.out.join("stats.json");
    let without = switches(["guesses"].into_iter().chain(without.iter().map(String::as_str)));
    let plain = cold(Kind::Plain, &[])?;
    let ahead = cold(Kind::Runahead, &under_runahead(runahead, Some(&file), &without, false))?;
    let stats: Value = read_json(&file)?.ok_or(Failure::NoFigure("runahead"))?;
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let timed = |name: &str| (number(&stats[name]["count"]), number(&stats[name]["seconds"]));
    let (syncs, in_syncs) = timed("syncs");
    Ok(Line {
        mib,
        pair,
        plain: plain.figure.unwrap_or(0.0),
        runahead: ahead.figure.unwrap_or(0.0),
        stalls: timed("stalls_foreseen").0 + timed("stalls_unforeseen").0,
        syncs,
        in_syncs,
        shadows: number(&stats["shadow_cpu_seconds"]),
        same: plain.ok && difference(&plain, &ahead).is_none(),
    })
}

fn table(lines: &[Line]) -> String {
    let mut text = format!("{HEADINGS}\n");
    lines.iter().for_each(|line| _ = writeln!(text, "{}", show(line)));
    text
}

fn show(line: &Line) -> String {
    let Line { mib, pair, plain, runahead, stalls, syncs, in_syncs, shadows, same } = line;
    let (added, each) = (runahead - plain, each(line).unwrap_or(0.0));
    let outputs = if *same { "same" } else { "DIFFERENT" };
    format!(
        "{mib},{pair},{plain:.6},{runahead:.6},{added:.6},{stalls},{syncs},{in_syncs:.6},{each:.6},{shadows:.6},{outputs}"
    )
}

/// Seconds of one sync, if there was one.
fn each(line: &Line) -> Option<f64> {
    (line.syncs > 0.0).then(|| line.in_syncs / line.syncs)
}

/// Table for people: for each size the time of a sync, and the time that was added in all.
fn medians(lines: &[Line]) -> String {
    let mut table = Table::new(["resident, MiB", "syncs", "each, ms", "added in all, ms"]);
    let mut sizes: Vec<_> = lines.iter().map(|line| line.mib).collect();
    sizes.dedup();
    for mib in sizes {
        let here = || lines.iter().filter(|line| line.mib == mib);
        let syncs = median(here().map(|line| line.syncs)).unwrap_or(0.0);
        let added = median(here().map(|line| line.runahead - line.plain)).unwrap_or(0.0);
        let each = median(here().filter_map(each));
        let each = each.map_or_else(|| "-".to_owned(), |each| format!("{:.3}", each * 1e3));
        table.row([mib.to_string(), syncs.to_string(), each, format!("{:.1}", added * 1e3)]);
    }
    table.markdown()
}

/// Available memory of this machine.
fn available_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mib: u64, pair: usize, syncs: f64, in_syncs: f64) -> Line {
        let (plain, runahead, stalls, shadows) = (1.0, 1.25, 200.0, 0.5);
        Line { mib, pair, plain, runahead, stalls, syncs, in_syncs, shadows, same: mib < 4 }
    }

    #[test]
    fn every_line_has_every_heading() {
        let text = table(&[line(1, 1, 4.0, 0.002), line(4, 1, 0.0, 0.0)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[1],
            "1,1,1.000000,1.250000,0.250000,200,4,0.002000,0.000500,0.500000,same"
        );
        assert!(lines[2].ends_with(",DIFFERENT"));
        assert!(lines.iter().all(|line| line.split(',').count() == HEADINGS.split(',').count()));
    }

    #[test]
    fn the_time_of_a_sync_is_shown_if_there_was_one() {
        let text = medians(&[line(1, 1, 4.0, 0.002), line(1, 2, 2.0, 0.002), line(4, 1, 0.0, 0.0)]);
        assert!(text.contains("| 1 | 3 | 0.750 | 250.0 |\n| 4 | 0 | - | 250.0 |"), "{text}");
        assert!(available_mib() > 0);
    }
}
