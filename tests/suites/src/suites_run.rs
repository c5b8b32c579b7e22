//! `runahead-suites run`: one suite after the other, its units spread over workers.
//!
//! Invariant: results are written after every unit, so that an interruption costs one unit.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use runahead_harness::{interrupt, note, quoted, read_json, say, write_at_once, write_json};

use crate::error::Error;
use crate::machine_requirements::{require, scratch};
use crate::mount_namespace;
use crate::options::Run;
use crate::report_tables::{differences, document, planted, summary};
use crate::results_file::{Outcome, Report};
use crate::slow_disk::SlowDisk;
use crate::subject_copy::Copy;
use crate::suite_cache::{PreparedSuite, cache};
use crate::unit_choice::selection;
use crate::unit_comparison::{Rules, SecondRun};

/// Runs the units that `options` choose. False if runahead made a difference.
pub fn run(options: &Run) -> Result<bool, Error> {
    require()?;
    mount_namespace::enter()?;
    let scratch = scratch()?;
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let (second, what) = match (options.native_only, options.native_twice) {
        (true, _) => (SecondRun::Nothing, "natively only".to_owned()),
        (_, true) => (SecondRun::Native, "natively twice".to_owned()),
        _ if options.speculate => {
            note!("predictions are planted by --seed {seed}");
            let plant = Copy::of_planter(&options.subject, scratch.path())?;
            (SecondRun::Planted(plant.path, seed), plant.what)
        }
        _ => {
            let runahead = Copy::of_runahead(&options.subject, scratch.path())?;
            (SecondRun::Runahead(runahead.path), runahead.what)
        }
    };
    let rules = Rules {
        second,
        limit: options.limit.map(Duration::from_secs),
        most: options.budget,
        reruns: options.reruns,
        keep: options.keep.clone().unwrap_or_else(|| cache().join("differs")),
    };
    // If all suites run, one that cannot be fetched or run does not stop the others.
    let mut failed = None;
    let tolerate = options.suites.is_empty();
    let mut tolerated = |e: Error| match e {
        Error::Harness(runahead_harness::Error::Interrupted(_)) => Err(e),
        e if tolerate => {
            note!("runahead-suites: {e}");
            failed.get_or_insert(e);
            Ok(())
        }
        e => Err(e),
    };
    let selection = selection(options, seed, &mut tolerated)?;
    let mut report = Report::new(what, options.latency);
    let json = options.write_md.as_ref().map(|md| md.with_extension("json"));
    let json = [json, options.json.clone()];
    let files: Vec<&Path> = json.iter().flatten().map(PathBuf::as_path).collect();
    if let Some(older) = files.first().map(|file| read_json(file)).transpose()?.flatten() {
        report.inherit(older);
    }
    let started = Instant::now();
    let mut now = Report::new(report.runahead.clone(), options.latency);
    for ready in &selection {
        let ran = one_suite(ready, options, &rules, scratch.path(), |outcome| {
            now.put(ready, outcome.clone());
            report.put(ready, outcome);
            Ok(files.iter().try_for_each(|file| write_json(file, &report))?)
        });
        ran.or_else(&mut tolerated)?;
    }
    if let Some(path) = &options.write_md {
        write_at_once(path, &document(&report))?;
    }
    let summary = if options.speculate { planted } else { summary };
    say!("\n{}", summary(&now));
    if options.speculate {
        say!("--seed {seed}: {}", now.predictions());
    }
    say!("{} s in all; {}", started.elapsed().as_secs(), now.runahead);
    if let Some(e) = failed {
        return Err(e);
    }
    Ok(now.suites.iter().flat_map(|suite| &suite.units).all(|u| u.verdict.differences.is_empty()))
}

fn one_suite(
    ready: &PreparedSuite,
    options: &Run,
    rules: &Rules,
    scratch: &Path,
    mut put: impl FnMut(Outcome) -> Result<(), Error>,
) -> Result<(), Error> {
    let name = ready.suite.name;
    let time = options.budget.map_or(String::new(), |t| format!(", for {} s", t.as_secs()));
    note!("{name}: {}, {} units{time}", ready.version, ready.units.len());
    let bar = progress(name, ready.units.len());
    let queue = Mutex::new(ready.units.iter().map(String::as_str).collect::<VecDeque<_>>());
    let jobs = usize::from(options.jobs).min(ready.units.len());
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for job in 0..jobs {
            let (sender, queue) = (sender.clone(), &queue);
            let dir = scratch.join(format!("{name}-{job}"));
            scope.spawn(move || {
                let worked = work(ready, options, rules, &dir, queue, &sender);
                if let Err(e) = worked {
                    // The others stop at their next unit.
                    queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    let _ = sender.send(Err(e));
                }
            });
        }
        drop(sender);
        let mut first = Ok(());
        for message in receiver {
            let entered = message.and_then(|outcome| {
                show(&bar, options, rules, name, &outcome);
                put(outcome)
            });
            first = first.and(entered);
        }
        bar.finish_and_clear();
        first
    })
}

fn work(
    ready: &PreparedSuite,
    options: &Run,
    rules: &Rules,
    dir: &Path,
    queue: &Mutex<VecDeque<&str>>,
    sender: &Sender<Result<Outcome, Error>>,
) -> Result<(), Error> {
    let disk = SlowDisk::up(&dir.join("disk"), ready, options.latency)?;
    // The time to copy the suite is not counted.
    let until = options.budget.map(|time| Instant::now() + time);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some(unit) = next() {
        interrupt::check()?;
        let outcome = rules.run(ready, unit, &disk, &dir.join("out"))?;
        let is_over = until.is_some_and(|until| Instant::now() >= until);
        if sender.send(Ok(outcome)).is_err() || is_over {
            break;
        }
    }
    disk.down()
}

fn progress(name: &'static str, units: usize) -> ProgressBar {
    let template = "{msg} [{bar:30}] {pos}/{len} units ({eta})";
    let style = ProgressStyle::with_template(template);
    let bar = ProgressBar::new(units as u64).with_message(name);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Shows a line for each unit; for one that differs, also the outputs and the commands to look into
/// it.
fn show(bar: &ProgressBar, options: &Run, rules: &Rules, suite: &str, outcome: &Outcome) {
    bar.inc(1);
    let Outcome { unit, verdict, .. } = outcome;
    let mut text = format!("{suite} {unit}: ");
    text += &match (&outcome.left_out, outcome.ahead_seconds) {
        (Some(why), _) => format!("left out: {why}"),
        (None, None) => format!("{}", outcome.end),
        (None, Some(_)) if !verdict.differences.is_empty() => "DIFFERS".to_owned(),
        (None, Some(_)) if !verdict.flaky.is_empty() => "flaky natively".to_owned(),
        (None, Some(_)) => "same".to_owned(),
    };
    text += &format!(" ({} cases", outcome.cases);
    if outcome.failed > 0 {
        text += &format!(", {} fail natively", outcome.failed);
    }
    text += &format!("; {:.1} s", outcome.native_seconds);
    if let Some(seconds) = outcome.ahead_seconds {
        text += &format!(", ahead {seconds:.1} s");
    }
    if let Some(why) = outcome.ahead.as_ref().and_then(|ahead| ahead.native.as_ref()) {
        text += &format!("; runahead ran it natively: {why}");
    }
    if let Some(predictions) = outcome.predictions() {
        text += &format!("; {predictions}");
    }
    text += ")";
    for line in differences(outcome) {
        text += &format!("\n    {line}");
    }
    if !verdict.differences.is_empty() {
        let kept = rules.kept(suite, unit);
        text += &format!("\n    outputs:   {}", kept.display());
        let latency = format!("{}us", options.latency.as_micros());
        let line =
            ["runahead-suites", "run", "--suite", suite, "--unit", unit, "--latency", &latency];
        let mut line = line.map(str::to_owned).to_vec();
        if let SecondRun::Planted(_, seed) = rules.second {
            line.extend(["--speculate".to_owned(), "--seed".to_owned(), seed.to_string()]);
        }
        let again = quoted(&line);
        text += &format!("\n    run again: {again}");
        text += &format!("\n    look:      runahead-suites shell --suite {suite} --unit {unit}");
    }
    bar.suspend(|| say!("{text}"));
}
