//! `runahead-bench syncs`: what a sync costs, by how much memory the target has.
//!
//! A program that has so much memory reads blocks of a cold file of which each says which is next, so that every wait is
//! one that no shadow has foreseen, and after each stores into some of its pages: what a sync costs is its own time, in
//! runahead's statistics, and the copies of pages that are stored into after it, which are in the elapsed time only.
//!
//! Nothing is guessed (`--without guesses`): with much bandwidth guesses read much of any file, and what they spare would
//! hide what syncs cost.
//!
//! Invariant: a line is of runs whose outputs were the same.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use runahead_harness::{note, say};
use serde_json::Value;

use crate::data::datasets::{self as data, Data, Store};
use crate::data::job::{Job, Kind, Outcome};
use crate::data::linux_source as source;
use crate::error::Error;
use crate::measure::bench_run::subject;
use crate::measure::command_runner::Runner;
use crate::measure::outcome_difference::difference;
use crate::measure::row_measurement::under_runahead;
use crate::measure::slow_storage::{Content, Repository, Scratch, Site};
use crate::options::Syncs;
use crate::report::summary::median;
use crate::rows::commands::Ground;
use crate::rows::storages::Place;

/// Memory of the target, in MiB.
const SIZES: [u64; 8] = [1, 4, 16, 64, 256, 1024, 4096, 8192];
/// Reads, and pages that are stored into after each.
const READS: u64 = 200;
const PAGES: u64 = 500;
const QUICK_SIZES: [u64; 2] = [1, 4];
const QUICK_READS: u64 = 10;

/// Run by run as it was measured; times in seconds. What the reads and stores took, not what filling the memory did.
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
    /// Of the target's time.
    in_syncs: f64,
    /// Processor time of shadows.
    shadows: f64,
    same: bool,
}

/// Measures, and prints a table. False if outputs differed.
///
/// # Errors
/// What prevented it.
pub fn syncs(options: &Syncs) -> Result<bool, Error> {
    let runahead = subject(&options.subject)?;
    let quick = options.quick;
    let scratch = Scratch::new(Data::Numbers.space(quick))?;
    let out = scratch.path().join("out");
    fs::create_dir(&out).map_err(Error::system("create", &out))?;
    let source = source::at_hand(1)?;
    let store = Store::new(quick)?;
    let data = (Data::Numbers, &*store.get(Data::Numbers, &source)?);
    let (files, repository, apps) = (0, Repository::None, &[][..]);
    let content = Content { source: &source, files, repository, apps, data: Some(data), quick };
    let site = Site::up(&scratch, Place::Disk, content)?;
    store.forget(Data::Numbers)?;
    site.set_delay(true)?;
    let runner = Runner { out, limit: Duration::from_secs(600) };
    let sizes = if quick { &QUICK_SIZES[..] } else { &SIZES[..] };
    let reads = options.reads.unwrap_or(if quick { QUICK_READS } else { READS });
    let mut lines = Vec::new();
    for &mib in sizes {
        // What runahead and the kernel need beside it is little; shadows share it.
        if available_mib() < mib + mib / 4 {
            note!("{mib} MiB: left out, there is not so much memory");
            continue;
        }
        let ground = Ground { root: site.root(), out: &runner.out, quick };
        let job = data::storing(&ground, [mib << 10, reads, PAGES])?;
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
    site: &Site,
    job: &Job,
    runahead: &Path,
    without: &[String],
    mib: u64,
    pair: usize,
) -> Result<Line, Error> {
    let cold = |kind, prefix: &[_]| -> Result<Outcome, Error> {
        site.make_cold()?;
        // The program itself is not what is waited for.
        let _ = (fs::read(&job.program), fs::read(runahead));
        runner.run(job, kind, prefix)
    };
    let file = runner.out.join("stats.json");
    let without = ["guesses"].into_iter().chain(without.iter().map(String::as_str));
    let switches: Vec<_> = without.flat_map(|what| ["--without".into(), what.into()]).collect();
    let plain = cold(Kind::Plain, &[])?;
    let ahead = cold(Kind::Runahead, &under_runahead(runahead, Some(&file), &switches))?;
    let text = fs::read(&file).map_err(Error::system("read", &file))?;
    let stats: Value = serde_json::from_slice(&text)
        .map_err(|source| Error::Format { path: file.clone(), source })?;
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

/// What a sync took, if there was one.
fn each(line: &Line) -> Option<f64> {
    (line.syncs > 0.0).then(|| line.in_syncs / line.syncs)
}

/// For people: of each size what a sync took and what was added in all.
fn medians(lines: &[Line]) -> String {
    let mut text = String::from(
        "| resident, MiB | syncs | each, ms | added in all, ms |\n|---|---|---|---|\n",
    );
    let mut sizes: Vec<_> = lines.iter().map(|line| line.mib).collect();
    sizes.dedup();
    for mib in sizes {
        let here = || lines.iter().filter(|line| line.mib == mib);
        let syncs = median(here().map(|line| line.syncs)).unwrap_or(0.0);
        let added = median(here().map(|line| line.runahead - line.plain)).unwrap_or(0.0);
        let took = median(here().filter_map(each));
        let took = took.map_or_else(|| "-".to_owned(), |took| format!("{:.3}", took * 1e3));
        _ = writeln!(text, "| {mib} | {syncs} | {took} | {:.1} |", added * 1e3);
    }
    text
}

/// Of this machine's memory, what can be had.
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
    fn what_a_sync_took_is_said_where_there_was_one() {
        let text = medians(&[line(1, 1, 4.0, 0.002), line(1, 2, 2.0, 0.002), line(4, 1, 0.0, 0.0)]);
        assert!(text.contains("| 1 | 3 | 0.750 | 250.0 |\n| 4 | 0 | - | 250.0 |"), "{text}");
        assert!(available_mib() > 0);
    }
}
