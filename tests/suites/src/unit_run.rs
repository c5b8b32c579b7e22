//! Run of one unit, native or under runahead, from a cold disk to its report.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runahead_harness::interrupt;
use runahead_tests::prediction_counts::PredictionCounts;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::planted_predictions::Predictions;
use crate::results::test_cases::Cases;
use crate::slow_disk::SlowDisk;
use crate::suites::suite_definition::{self, WORK};
use crate::unit_namespaces as inside;
use crate::written_files::WrittenDigests;

/// End of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Exit status; 128 and a signal's number if a signal ended it.
    Exit(i32),
    /// It was killed at its time limit.
    TimedOut,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Exit(status @ 129..=192) => write!(f, "signal {}", status - 128),
            End::Exit(status) => write!(f, "exit status {status}"),
            End::TimedOut => write!(f, "no end within its time limit"),
        }
    }
}

/// Outcome of one run of a unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Half {
    pub end: End,
    pub cases: Cases,
    /// Digests of what it wrote, if that was looked at.
    pub written: Option<WrittenDigests>,
    /// Elapsed time.
    pub seconds: f64,
    /// Requests to the disk.
    pub requests: u64,
    /// Runahead's own statistics; empty for a native run.
    pub ahead: RunaheadStats,
}

/// Runahead's own statistics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunaheadStats {
    /// Number of shadows made.
    pub syncs: u64,
    /// Number of hints.
    pub hints: u64,
    /// Reason why it ran the unit natively, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// Outcomes of planted predictions, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictions: Option<Predictions>,
}

/// Conditions of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunConditions {
    /// Time limit.
    pub limit: Duration,
    /// True if its outputs and files are compared.
    pub is_written_seen: bool,
}

/// Runs `command` from a cold disk, with `prefix` in front of it. Its outputs
/// are then in `out`, a directory that is created.
pub fn run(
    disk: &SlowDisk,
    command: &suite_definition::Command,
    prefix: &[String],
    how: RunConditions,
    out: &Path,
) -> Result<Half, Error> {
    disk.fresh()?;
    fs::create_dir_all(out).map_err(Error::system("create", out))?;
    let argv = inside::argv(disk.dir(), command, prefix);
    let create = |name| {
        let path = out.join(name);
        File::create(&path).map_err(Error::system("create", path))
    };
    let mut start = Command::new(&argv[0]);
    start.args(&argv[1..]).stdin(Stdio::null());
    start.stdout(create("stdout")?).stderr(create("stderr")?);
    let started = Instant::now();
    let child = start.spawn().map_err(Error::system("run", &argv[0]))?;
    let end = wait(child, started + how.limit)?;
    let seconds = started.elapsed().as_secs_f64();
    let requests = disk.requests()?;
    for report in command.format.files() {
        let name = report.rsplit('/').next().unwrap_or(&report);
        // Not every unit gets as far as to write one.
        let _ = fs::copy(disk.dir().join(&report), out.join(name));
    }
    let stdout = fs::read(out.join("stdout")).unwrap_or_default();
    let cases = command.format.cases(disk.dir(), &stdout);
    let ahead = ahead(disk);
    let work = disk.dir().join("work");
    for ours in [COUNTED, STATS] {
        let _ = fs::remove_file(work.join(ours));
    }
    let written = how.is_written_seen.then(|| WrittenDigests::by_unit(out, &work)).transpose()?;
    Ok(Half { end, cases, written, seconds, requests, ahead })
}

/// Reads the statistics that runahead or the planter has left.
fn ahead(disk: &SlowDisk) -> RunaheadStats {
    let json = fs::read(disk.dir().join("work").join(STATS)).unwrap_or_default();
    let stats = serde_json::from_slice(&json).unwrap_or(serde_json::Value::Null);
    let counted = fs::read_to_string(disk.dir().join("work").join(COUNTED));
    RunaheadStats {
        syncs: stats["syncs"]["count"].as_u64().unwrap_or(0),
        hints: stats["hints_issued"].as_u64().unwrap_or(0),
        native: stats["native"].as_str().map(str::to_owned),
        predictions: counted
            .ok()
            .and_then(|text| text.parse::<PredictionCounts>().ok())
            .map(Predictions::from),
    }
}

/// Runahead's statistics, in [`WORK`].
const STATS: &str = "runahead.json";
/// The planter's counts of its predictions, in [`WORK`].
const COUNTED: &str = "runahead-planted";

/// Returns `plant speculated` to put in front of a command: predictions after calls that a seed
/// picks, in all processes.
pub fn planter(plant: &Path, seed: u64) -> Vec<String> {
    let (seed, counted) = (seed.to_string(), format!("{WORK}/{COUNTED}"));
    [&plant.to_string_lossy(), "speculated", &seed, &counted].map(str::to_owned).to_vec()
}

/// Returns `runahead run` to put in front of a command.
pub fn runahead_prefix(runahead: &Path) -> Vec<String> {
    let stats = format!("--stats=json:{WORK}/{STATS}");
    [&runahead.to_string_lossy(), "run", &stats, "--"].map(str::to_owned).to_vec()
}

/// Waits for a unit. Killing what was started kills its namespaces with all that is in them.
fn wait(mut child: Child, give_up: Instant) -> Result<End, Error> {
    let failed = |e| Error::system("wait for", "a unit")(e);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(End::Exit(status.code().unwrap_or(137)));
        }
        let interrupted = interrupt::check();
        if interrupted.is_err() || Instant::now() > give_up {
            let _ = child.kill();
            child.wait().map_err(failed)?;
            interrupted?;
            return Ok(End::TimedOut);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
