//! One run of one unit, native or ahead, from a cold disk to its report.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runahead_harness::interrupt;
use serde::{Deserialize, Serialize};

use crate::disk::SlowDisk;
use crate::error::Error;
use crate::results::Cases;
use crate::suites::{self, WORK};
use crate::{inside, system};

/// How a unit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With this status; 128 and a signal's number if a signal ended it.
    Exit(i32),
    /// Not within its limit, and was killed.
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

/// What a unit did.
#[derive(Debug, Clone, PartialEq)]
pub struct Half {
    /// How it ended.
    pub end: End,
    /// What it reported.
    pub cases: Cases,
    /// From start to end.
    pub seconds: f64,
    /// What the disk was asked.
    pub requests: u64,
    /// What runahead says it did; nothing for a native half.
    pub ahead: Ahead,
}

/// What runahead says it did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    /// Shadows made.
    pub syncs: u64,
    /// Hints given.
    pub hints: u64,
    /// Why it ran natively, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
}

/// Runs `command` from a cold disk, behind `runahead` if given, for at most `limit`. What it wrote is
/// then in `out`, a directory that is created.
///
/// # Errors
/// The disk could not be made cold, or the unit not be started.
pub fn run(
    disk: &SlowDisk,
    command: &suites::Command,
    runahead: Option<&Path>,
    limit: Duration,
    out: &Path,
) -> Result<Half, Error> {
    disk.fresh()?;
    fs::create_dir_all(out).map_err(Error::system("create", out))?;
    let argv = inside::argv(disk.dir(), command, &runahead.map_or(Vec::new(), front));
    let create = |name| {
        let path = out.join(name);
        File::create(&path).map_err(Error::system("create", path))
    };
    let mut start = Command::new(&argv[0]);
    start.args(&argv[1..]).stdin(Stdio::null());
    start.stdout(create("stdout")?).stderr(create("stderr")?);
    let started = Instant::now();
    let child = start.spawn().map_err(Error::system("run", &argv[0]))?;
    let end = wait(child, started + limit)?;
    let seconds = started.elapsed().as_secs_f64();
    let requests = disk.requests()?;
    for report in command.format.files() {
        let name = report.rsplit('/').next().unwrap_or(&report);
        // Not every unit gets as far as to write one.
        let _ = fs::copy(disk.dir().join(&report), out.join(name));
    }
    let stdout = fs::read(out.join("stdout")).unwrap_or_default();
    let cases = command.format.cases(disk.dir(), &stdout);
    let ahead = runahead.map_or_else(Ahead::default, |_| ahead(disk));
    Ok(Half { end, cases, seconds, requests, ahead })
}

fn ahead(disk: &SlowDisk) -> Ahead {
    let json = fs::read(disk.dir().join("work/runahead.json")).unwrap_or_default();
    let Ok(stats) = serde_json::from_slice::<serde_json::Value>(&json) else {
        return Ahead::default();
    };
    Ahead {
        syncs: stats["syncs"]["count"].as_u64().unwrap_or(0),
        hints: stats["hints_issued"].as_u64().unwrap_or(0),
        native: stats["native"].as_str().map(str::to_owned),
    }
}

/// `runahead run` as it is put in front of a command.
pub fn front(runahead: &Path) -> Vec<String> {
    let stats = format!("--stats=json:{WORK}/runahead.json");
    [&system::text(runahead), "run", &stats, "--"].map(str::to_owned).to_vec()
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
