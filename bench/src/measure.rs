//! One row: the recording, the pairs, the oracle.
//!
//! Invariant: before each cold run, of whatever kind, the storage is made cold and then the programs
//! are made warm, in the same way; kinds alternate in who goes first.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Failure};
use crate::figures::{Summary, Verdict};
use crate::job::{Digest, Job, Kind, Outcome, Runner};
use crate::oracle::accesses::Access;
use crate::oracle::record;
use crate::oracle::replay::Replay;
use crate::output::note;
use crate::programs::Programs;
use crate::report::{OracleReport, RowReport, RunReport, Settings};
use crate::rows::{Cache, Row};
use crate::site::Site;
use crate::sys;

/// How often a disturbed run is made before it is taken as it is.
const TRIES: usize = 3;

/// What is the same for all rows.
pub struct Bench {
    /// Makes the runs.
    pub runner: Runner,
    /// The program under test; none to measure only plain and the oracle.
    pub runahead: Option<PathBuf>,
    /// How often.
    pub settings: Settings,
    /// Threads of the oracle, if not what its storage needs.
    pub oracle_threads: Option<usize>,
    /// Where outputs that differ are kept.
    pub keep: PathBuf,
}

/// A row being measured.
struct Measurement<'a> {
    bench: &'a Bench,
    row: &'a Row,
    site: &'a Site,
    job: Job,
    programs: Programs,
    accesses: Arc<Vec<Access>>,
    /// What every run must give: the first plain run's.
    expected: Option<Outcome>,
    runs: Vec<RunReport>,
    /// Runahead's own statistics, by pair.
    stats: Vec<(usize, serde_json::Value)>,
}

impl Bench {
    /// Measures `row`; failures of the row itself are in the report.
    ///
    /// # Errors
    /// What prevents measuring anything more.
    pub fn measure(&self, row: &Row, site: &Site) -> Result<RowReport, Error> {
        let job = row.work.job(site.root(), self.runner.out.join("archive.tar"))?;
        let mut m = Measurement {
            bench: self,
            row,
            site,
            programs: Programs::of(&job, self.runahead.as_deref())?,
            job,
            accesses: Arc::default(),
            expected: None,
            runs: Vec::new(),
            stats: Vec::new(),
        };
        let failure = match m.all() {
            Ok(()) => None,
            Err(Error::Failure(failure)) => Some(failure.to_string()),
            Err(other) => return Err(other),
        };
        m.report(failure)
    }

    fn oracle_threads(&self, row: &Row) -> usize {
        self.oracle_threads.unwrap_or_else(|| row.place.oracle().threads)
    }
}

impl Measurement<'_> {
    fn all(&mut self) -> Result<(), Error> {
        self.record()?;
        self.site.set_delay(true)?;
        let settings = &self.bench.settings;
        let (pairs, oracles) = match self.row.cache {
            Cache::Cold => (settings.pairs, settings.oracle_runs),
            Cache::Warm => {
                self.warm_up()?;
                (settings.warm_pairs, 0)
            }
        };
        for pair in 1..=pairs {
            let mut order = [Kind::Plain, Kind::Runahead];
            if pair % 2 == 0 {
                order.reverse();
            }
            let mut line = Vec::new();
            for kind in order {
                if kind == Kind::Plain || self.bench.runahead.is_some() {
                    let outcome = self.run(kind, pair)?;
                    line.push(format!("{} {:.3} s", kind.name(), outcome.elapsed.as_secs_f64()));
                }
            }
            self.say(&format!("pair {pair}/{pairs}: {}", line.join(", ")));
        }
        for n in 1..=oracles {
            let outcome = self.run(Kind::Oracle, n)?;
            self.say(&format!("oracle {n}/{oracles}: {:.3} s", outcome.elapsed.as_secs_f64()));
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        note!("{:<20} {text}", self.row.name);
    }

    /// Without delay. It is also the run that brings access times up to date (relatime), so that no
    /// later run writes.
    fn record(&mut self) -> Result<(), Error> {
        self.site.set_delay(false)?;
        let (outcome, mut accesses) =
            record::record(&self.bench.runner, &self.job, self.site.root())?;
        self.require_success(&outcome)?;
        if accesses.list.is_empty() {
            return Err(Failure::NothingRecorded(self.job.program.to_owned()).into());
        }
        if self.row.place.oracle().lookups_first {
            accesses.put_lookups_first();
        }
        self.accesses = Arc::new(accesses.list);
        self.programs.add(accesses.elsewhere);
        Ok(())
    }

    /// Everything in memory, and both kinds of run once, untimed.
    fn warm_up(&mut self) -> Result<(), Error> {
        for kind in [Kind::Plain, Kind::Runahead] {
            if kind == Kind::Plain || self.bench.runahead.is_some() {
                self.run(kind, 0)?;
            }
        }
        self.runs.clear();
        self.stats.clear();
        Ok(())
    }

    /// One run from the row's state of memory, again if somebody else changed that meanwhile.
    fn run(&mut self, kind: Kind, pair: usize) -> Result<Outcome, Error> {
        let mut tries = 1;
        loop {
            self.prepare(tries)?;
            let dropped = sys::times_caches_dropped();
            let (outcome, stats) = self.run_once(kind)?;
            let disturbed = sys::times_caches_dropped() != dropped;
            if disturbed && tries < TRIES {
                self.say(&format!("{}: another process dropped the caches; again", kind.name()));
                tries += 1;
                continue;
            }
            let served = self.site.stats()?;
            self.runs.push(RunReport {
                kind,
                pair,
                seconds: outcome.elapsed.as_secs_f64(),
                exit: outcome.exit.clone(),
                requests: served.requests,
                read_bytes: served.read_bytes,
                max_in_service: served.max_in_service,
                disturbed,
            });
            self.stats.extend(stats.map(|stats| (pair, stats)));
            self.compare(kind, &outcome)?;
            return Ok(outcome);
        }
    }

    fn prepare(&self, tries: usize) -> Result<(), Error> {
        match self.row.cache {
            Cache::Cold => {
                self.site.make_cold()?;
                self.programs.warm()?;
            }
            Cache::Warm if tries > 1 => {
                self.programs.warm()?;
                self.bench.runner.run(&self.job, Kind::Recording, &[])?;
            }
            Cache::Warm => {}
        }
        self.site.reset_stats()
    }

    /// The outcome, and runahead's own statistics.
    fn run_once(&self, kind: Kind) -> Result<(Outcome, Option<serde_json::Value>), Error> {
        match (kind, &self.bench.runahead) {
            (Kind::Runahead, Some(runahead)) => self.run_ahead(runahead),
            (Kind::Oracle, _) => Ok((self.run_with_oracle()?, None)),
            _ => Ok((self.bench.runner.run(&self.job, kind, &[])?, None)),
        }
    }

    fn run_ahead(&self, runahead: &Path) -> Result<(Outcome, Option<serde_json::Value>), Error> {
        let file = self.bench.runner.out.join("stats.json");
        let _ = fs::remove_file(&file);
        let prefix = under_runahead(runahead, Some(&file));
        let outcome = self.bench.runner.run(&self.job, Kind::Runahead, &prefix)?;
        // A runahead that died left none; then exit status or output differ, which is reported.
        let stats: Option<serde_json::Value> =
            fs::read(&file).ok().and_then(|json| serde_json::from_slice(&json).ok());
        let native = stats.as_ref().and_then(|stats| stats.get("native")?.as_str());
        match native {
            Some(why) => Err(Failure::Native(why.to_owned()).into()),
            None => Ok((outcome, stats)),
        }
    }

    fn run_with_oracle(&self) -> Result<Outcome, Error> {
        let threads = self.bench.oracle_threads(self.row);
        let replay = Replay::prepare(Arc::clone(&self.accesses), threads)?;
        replay.start();
        let outcome = self.bench.runner.run(&self.job, Kind::Oracle, &[]);
        replay.stop();
        outcome
    }

    fn require_success(&self, outcome: &Outcome) -> Result<(), Error> {
        if outcome.ok {
            return Ok(());
        }
        let message = fs::read(&outcome.files.stderr).map(|text| sys::last_line(&text));
        let failure = Failure::Plain {
            command: self.job.program.to_owned(),
            exit: outcome.exit.clone(),
            message: message.unwrap_or_default(),
        };
        Err(failure.into())
    }

    /// Holds an outcome against the first plain one, whichever came first.
    fn compare(&mut self, kind: Kind, outcome: &Outcome) -> Result<(), Error> {
        if kind == Kind::Plain {
            self.require_success(outcome)?;
        }
        let Some(expected) = &self.expected else {
            self.expected = Some(outcome.clone());
            return Ok(());
        };
        let Some((what, plain, other)) = difference(expected, outcome) else { return Ok(()) };
        let kept = self.bench.keep.join(self.row.name);
        keep([expected, outcome], &kept)?;
        Err(Failure::Differs { what, kind: kind.name(), plain, other, kept }.into())
    }

    fn report(self, failure: Option<String>) -> Result<RowReport, Error> {
        let Self { bench, row, runs, .. } = self;
        let mut summary = Summary::of(&runs, row.cache, row.target, failure.is_some());
        let quick = bench.settings.quick;
        if quick && failure.is_none() {
            summary.verdict = Verdict::Open;
        }
        let oracle =
            OracleReport { accesses: self.accesses.len(), threads: bench.oracle_threads(row) };
        let runahead_stats = median_pair(&runs)
            .and_then(|pair| self.stats.into_iter().find(|(n, _)| *n == pair))
            .map(|(_, stats)| stats);
        Ok(RowReport {
            name: row.name.to_owned(),
            about: row.about.to_owned(),
            command: describe(&self.job),
            program: self.programs.version()?,
            storage: row.place.describe(quick),
            cache: row.cache,
            target: row.target,
            measured: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            oracle: runs.iter().any(|run| run.kind == Kind::Oracle).then_some(oracle),
            runs,
            summary,
            runahead_stats,
            failure,
        })
    }
}

/// What to put in front of a command.
pub fn under_runahead(runahead: &Path, stats: Option<&Path>) -> Vec<OsString> {
    let mut prefix: Vec<OsString> = vec![runahead.into(), "run".into()];
    if let Some(file) = stats {
        let mut option = OsString::from("--stats=json:");
        option.push(file);
        prefix.push(option);
    }
    prefix.push("--".into());
    prefix
}

/// What differs, and both values of it.
pub fn difference(plain: &Outcome, other: &Outcome) -> Option<(&'static str, String, String)> {
    if plain.exit != other.exit {
        return Some(("exit status", plain.exit.clone(), other.exit.clone()));
    }
    let text = |d: &Digest| format!("{} bytes, sha256 {:.16}", d.bytes, d.sha256);
    let absent = Digest { bytes: 0, sha256: "absent".into() };
    let archive = |o: &Outcome| o.artefact.clone().unwrap_or_else(|| absent.clone());
    [
        ("standard output", plain.stdout.clone(), other.stdout.clone()),
        ("standard error", plain.stderr.clone(), other.stderr.clone()),
        ("the archive", archive(plain), archive(other)),
    ]
    .into_iter()
    .find(|(_, plain, other)| plain != other)
    .map(|(what, plain, other)| (what, text(&plain), text(&other)))
}

fn keep(outcomes: [&Outcome; 2], dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::system("create", dir))?;
    for file in outcomes.iter().flat_map(|o| [&o.files.stdout, &o.files.stderr]) {
        let to = dir.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(Error::system("keep a copy at", &to))?;
    }
    Ok(())
}

/// The pair whose run under runahead took the median time (the lower of two).
fn median_pair(runs: &[RunReport]) -> Option<usize> {
    let mut runs: Vec<_> = runs.iter().filter(|run| run.kind == Kind::Runahead).collect();
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    runs.get(runs.len().saturating_sub(1) / 2).map(|run| run.pair)
}

/// The command as a person would write it, with most of many names left out.
fn describe(job: &Job) -> String {
    const SHOWN: usize = 6;
    let archive = job.artefact.as_ref().map(|path| path.as_os_str());
    let shown = job.args.iter().take(SHOWN).map(|arg| match archive {
        Some(archive) if archive == arg => "ARCHIVE".into(),
        _ => arg.to_string_lossy(),
    });
    let words: Vec<_> = shown.collect();
    let rest = match job.args.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(" ... ({n} more names)"),
    };
    format!("{} {}{rest}", job.program, words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(script: &str, dir: &Path) -> Outcome {
        let artefact = Some(dir.join("archive"));
        let args = vec!["-c".into(), script.into()];
        let job = Job { program: "sh", package: "dash", args, cwd: dir.into(), artefact };
        let runner = Runner { out: dir.into(), limit: Duration::from_secs(60) };
        runner.run(&job, Kind::Plain, &[]).unwrap()
    }

    #[test]
    fn every_planted_difference_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let same = "echo a; echo b >&2; echo c > archive; exit 1";
        let plain = outcome(same, dir.path());
        assert_eq!(difference(&plain, &outcome(same, dir.path())), None);
        for (script, what) in [
            ("echo a; echo b >&2; echo c > archive; exit 0", "exit status"),
            ("echo a; echo b >&2; echo c > archive; kill -9 $$", "exit status"),
            ("echo A; echo b >&2; echo c > archive; exit 1", "standard output"),
            ("echo a; echo B >&2; echo c > archive; exit 1", "standard error"),
            ("echo a; echo b >&2; echo C > archive; exit 1", "the archive"),
            ("echo a; echo b >&2; exit 1", "the archive"),
        ] {
            let found = difference(&plain, &outcome(script, dir.path()));
            assert_eq!(found.map(|(what, ..)| what), Some(what), "{script}");
        }
    }
}
