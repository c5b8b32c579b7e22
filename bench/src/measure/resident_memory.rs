//! Resident memory of a process: a program announces that it sleeps, and its `smaps_rollup` is
//! read.
//!
//! Invariant: only the process that announced it is signalled, and it ends by itself.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::data::job::{FigureSource, Job};
use crate::error::{Error, Failure};
use crate::measure::run_outcome::Outcome;
use crate::measure::running_command::Runner;
use crate::report::run_report::Kind;

/// Time in which other work ends after a program has gone to sleep.
const SETTLE: Duration = Duration::from_millis(200);

/// Runs a job whose program writes its process id into the job's gauge and sleeps. The figure is
/// its resident memory in KiB.
pub fn look(runner: &Runner, job: &Job, kind: Kind, prefix: &[OsString]) -> Result<Outcome, Error> {
    let mut running = runner.start(job, kind, prefix)?;
    let FigureSource::Told(awake) = &job.gauge else {
        return Err(Failure::NoFigure(kind.name()).into());
    };
    let pid = running.until(|| said(awake))?;
    std::thread::sleep(SETTLE);
    let own = Resident::of(pid)?;
    let beside = match running.id() {
        id if kind == Kind::Runahead => Some(Resident::of(id.cast_signed())?),
        _ => None,
    };
    if let Some(pid) = Pid::from_raw(pid) {
        kill_process(pid, Signal::USR1)
            .map_err(|e| Error::system("signal", format!("process {pid}"))(e.into()))?;
    }
    let mut outcome = running.finish(job)?;
    outcome.figure = Some(own.rss);
    outcome.more.insert("Pss in KiB".into(), own.pss);
    if let Some(supervisor) = beside {
        outcome.more.insert("Rss of runahead itself in KiB".into(), supervisor.rss);
        outcome.more.insert("Pss of runahead itself in KiB".into(), supervisor.pss);
    }
    Ok(outcome)
}

/// Returns the number on a complete line: one that is still being written has no end.
fn said(file: &Path) -> Option<i32> {
    fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Sizes in KiB.
#[derive(Debug, PartialEq)]
struct Resident {
    rss: f64,
    pss: f64,
}

impl Resident {
    fn of(pid: i32) -> Result<Self, Error> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).map_err(Error::system("read", &path))?;
        let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        Self::parse(&text).ok_or_else(|| Error::system("understand", &path)(invalid()))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix("kB")?.trim().parse().ok()
        };
        Some(Self { rss: field("Rss:")?, pss: field("Pss:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_read() {
        let text =
            "5500-7ff r--p 0 00:00 0 [rollup]\nRss:    1404 kB\nPss:     112 kB\nPss_Dirty: 9 kB\n";
        assert_eq!(Resident::parse(text), Some(Resident { rss: 1404.0, pss: 112.0 }));
        assert_eq!(Resident::parse("Rss: 1 kB\n"), None);
    }
}
