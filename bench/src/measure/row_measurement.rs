//! One row: the recording, the pairs, the oracle.
//!
//! Invariant: before each cold run, of whatever kind, the storage is made cold and then the programs
//! are made warm, in the same way; kinds alternate in who goes first.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use runahead_harness::note;

use crate::data::job::{Job, Kind, Outcome};
use crate::data::system_programs as sys;
use crate::error::{Error, Failure};
use crate::measure::command_runner::Runner;
use crate::measure::oracle::access_list::{Access, Accesses};
use crate::measure::oracle::record_run as record;
use crate::measure::oracle::replay_accesses::Replay;
use crate::measure::outcome_difference::{difference, keep};
use crate::measure::rubbish_hints as planted;
use crate::measure::slow_storage::Site;
use crate::measure::surroundings as around;
use crate::measure::warm_programs::Programs;
use crate::report::command_text::describe;
use crate::report::results::{OracleReport, RowReport, RunReport, Settings};
use crate::report::summary::{Judged, Summary, Verdict};
use crate::rows::catalog::{Cache, Row};
use crate::rows::commands::Ground;

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
    /// The program under test, where the job's user can run it.
    runahead: Option<PathBuf>,
    accesses: Arc<Vec<Access>>,
    /// What runahead itself recorded of a run.
    history: Option<PathBuf>,
    /// Programs that the recorded run started.
    starts: Option<usize>,
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
        match self.begin(row, site) {
            Ok(mut m) => {
                let failure = match m.all() {
                    Ok(()) => None,
                    Err(Error::Failure(failure)) => Some(failure.to_string()),
                    Err(other) => return Err(other),
                };
                m.report(failure)
            }
            // Nothing has been run.
            Err(Error::Failure(failure)) => {
                let job = Job::new("", "", site.root());
                self.measurement(row, site, job, Programs::default(), None)
                    .report(Some(failure.to_string()))
            }
            Err(other) => Err(other),
        }
    }

    fn begin<'a>(&'a self, row: &'a Row, site: &'a Site) -> Result<Measurement<'a>, Error> {
        let (root, out, quick) = (site.root(), &self.runner.out, self.settings.quick);
        let mut job = row.work.job(&Ground { root, out, quick })?;
        job.options.extend(row.without.iter().flat_map(|what| ["--without".into(), what.into()]));
        let runahead = around::usable(self.runahead.as_deref(), &job, out)?;
        let programs = Programs::of(&job, runahead.as_deref(), root)?;
        Ok(self.measurement(row, site, job, programs, runahead))
    }

    fn measurement<'a>(
        &'a self,
        row: &'a Row,
        site: &'a Site,
        job: Job,
        programs: Programs,
        runahead: Option<PathBuf>,
    ) -> Measurement<'a> {
        Measurement {
            bench: self,
            row,
            site,
            job,
            programs,
            runahead,
            accesses: Arc::default(),
            history: None,
            starts: None,
            expected: None,
            runs: Vec::new(),
            stats: Vec::new(),
        }
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
            Cache::Cold if self.row.cost.is_some() || self.row.without.is_some() => {
                (settings.pairs, 0)
            }
            Cache::Cold => (settings.pairs, settings.oracle_runs),
            Cache::Warm => {
                self.warm_up()?;
                let pairs =
                    if self.row.work.is_long() { settings.pairs } else { settings.warm_pairs };
                (pairs, 0)
            }
        };
        for pair in 1..=pairs {
            let mut order = vec![Kind::Plain, Kind::Runahead];
            order.extend(self.row.without.map(|_| Kind::Whole));
            if pair % 2 == 0 {
                order.reverse();
            }
            let mut line = Vec::new();
            for kind in order {
                if kind == Kind::Plain || self.runahead.is_some() {
                    let outcome = self.run(kind, pair)?;
                    line.push(format!("{} {}", kind.name(), self.show(&outcome)));
                }
            }
            self.say(&format!("pair {pair}/{pairs}: {}", line.join(", ")));
        }
        for n in 1..=oracles {
            // One would read for a command with little memory what has no room there.
            if self.job.memory.is_none() {
                let outcome = self.run(Kind::Oracle, n)?;
                self.say(&format!("oracle {n}/{oracles}: {:.3} s", outcome.elapsed.as_secs_f64()));
            }
            if self.history.is_some() {
                let outcome = self.run(Kind::Replay, n)?;
                self.say(&format!("replay {n}/{oracles}: {:.3} s", outcome.elapsed.as_secs_f64()));
            }
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        note!("{:<28} {text}", self.row.name);
    }

    fn show(&self, outcome: &Outcome) -> String {
        match (outcome.figure, &self.row.cost) {
            (Some(figure), Some(cost)) => cost.unit.show(figure),
            _ => format!("{:.3} s", outcome.elapsed.as_secs_f64()),
        }
    }

    /// Without delay. It is also the run that brings access times up to date (relatime), so that no
    /// later run writes.
    fn record(&mut self) -> Result<(), Error> {
        self.site.set_delay(false)?;
        self.programs.ask_version()?;
        // Where there is nothing to gain there is no oracle; from storage, the run without delay is made
        // all the same.
        if !self.row.place.has_storage() {
            return Ok(());
        }
        // (What is swapped out is no access to anything.)
        if self.row.cost.is_some() || self.job.swap.is_some() {
            return match self.row.cache {
                Cache::Warm => Ok(()),
                Cache::Cold => {
                    let outcome = self.bench.runner.run(&self.job, Kind::Recording, &[])?;
                    self.require_success(&outcome)
                }
            };
        }
        let (outcome, mut accesses) = self.record_accesses()?;
        self.require_success(&outcome)?;
        if accesses.list.is_empty() {
            return Err(Failure::NothingRecorded(self.job.name()).into());
        }
        self.starts = Some(accesses.starts);
        if self.row.place.oracle().lookups_first {
            accesses.put_lookups_first();
        }
        self.accesses = Arc::new(accesses.list);
        self.programs.add(accesses.elsewhere);
        let replays = self.row.cache == Cache::Cold && self.row.without.is_none();
        if replays && self.bench.settings.oracle_runs > 0 {
            self.record_history()?;
        }
        Ok(())
    }

    /// What a command touches of what it maps is told by what is in memory after it; so there is nothing before it,
    /// and nobody drops the caches meanwhile.
    fn record_accesses(&self) -> Result<(Outcome, Accesses), Error> {
        let mut tries = 1;
        loop {
            if self.job.touches {
                self.site.make_cold()?;
            }
            let dropped = sys::times_caches_dropped();
            let recorded = record::record(&self.bench.runner, &self.job, self.site.root())?;
            let disturbed = self.job.touches && sys::times_caches_dropped() != dropped;
            if !disturbed || tries == TRIES {
                return Ok(recorded);
            }
            tries += 1;
        }
    }

    /// Has runahead record what the command reads, for `--replay`.
    fn record_history(&mut self) -> Result<(), Error> {
        let Some(runahead) = &self.runahead else { return Ok(()) };
        let runner = &self.bench.runner;
        if self.job.touches {
            self.site.make_cold()?;
        }
        let file = around::directory(&runner.out, &self.job, "history")?.join("run");
        let prefix = under_runahead(runahead, None, &option("--record=", &file));
        let outcome = runner.run(&self.job, Kind::Recording, &prefix)?;
        self.require_success(&outcome)?;
        if !file.is_file() {
            return Err(Failure::NothingRecorded(self.job.name()).into());
        }
        self.history = Some(file);
        Ok(())
    }

    /// Everything in memory, and both kinds of run once, untimed.
    fn warm_up(&mut self) -> Result<(), Error> {
        for kind in [Kind::Plain, Kind::Runahead] {
            if kind == Kind::Plain || self.runahead.is_some() {
                self.run(kind, 0)?;
            }
        }
        self.runs.clear();
        self.stats.clear();
        Ok(())
    }

    /// One run from the row's state of memory, again if somebody else changed that meanwhile. Pair
    /// 0 is the one that brings everything into memory.
    fn run(&mut self, kind: Kind, pair: usize) -> Result<Outcome, Error> {
        let mut tries = 1;
        loop {
            self.prepare(tries)?;
            let dropped = sys::times_caches_dropped();
            let (outcome, stats) = self.run_once(kind)?;
            let served = self.site.stats()?;
            // Between two warm runs somebody may have done so, too.
            let was_cold = self.row.cache == Cache::Warm && pair > 0 && served.read_bytes > 0;
            let disturbed = sys::times_caches_dropped() != dropped || was_cold;
            if disturbed && tries < TRIES {
                self.say(&format!("{}: another process dropped the caches; again", kind.name()));
                tries += 1;
                continue;
            }
            self.runs.push(RunReport {
                kind,
                pair,
                seconds: outcome.elapsed.as_secs_f64(),
                figure: outcome.figure,
                more: outcome.more.clone(),
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
        match (kind, &self.runahead) {
            (Kind::Runahead | Kind::Whole, Some(runahead)) => self.run_ahead(kind, runahead),
            (Kind::Oracle, _) => Ok((self.run_with_oracle()?, None)),
            (Kind::Replay, Some(runahead)) => {
                let history = self.history.as_deref().unwrap_or(Path::new(""));
                let prefix = under_runahead(runahead, None, &option("--replay=", history));
                Ok((self.bench.runner.run(&self.job, kind, &prefix)?, None))
            }
            _ => Ok((self.bench.runner.run(&self.job, kind, &[])?, None)),
        }
    }

    fn run_ahead(
        &self,
        kind: Kind,
        runahead: &Path,
    ) -> Result<(Outcome, Option<serde_json::Value>), Error> {
        let options = if kind == Kind::Whole { &[] } else { &self.job.options[..] };
        let file = around::file(&self.bench.runner.out, &self.job, "stats.json")?;
        let prefix = under_runahead(runahead, Some(&file), options);
        let mut outcome = self.bench.runner.run(&self.job, kind, &prefix)?;
        // A runahead that died left none; then exit status or output differ, which is reported.
        let stats: Option<serde_json::Value> =
            fs::read(&file).ok().and_then(|json| serde_json::from_slice(&json).ok());
        // A quick run may be over before anything is stopped.
        if planted::is_planted(options) && !self.bench.settings.quick {
            let milliseconds = 1e3 * planted::stopped(stats.as_ref())?;
            outcome.more.insert("slowest stop in ms".into(), milliseconds);
        }
        let native = stats.as_ref().and_then(|stats| stats.get("native")?.as_str());
        match native {
            Some(why) => Err(Failure::Native(why.to_owned()).into()),
            // Those of the row itself are kept.
            None => Ok((outcome, stats.filter(|_| kind == Kind::Runahead))),
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
            command: self.job.name(),
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
        let Self { bench, row, site, runs, .. } = self;
        let judged = match row.cost {
            Some(cost) => Judged::Cost(row.cache, cost),
            None if row.without.is_some() => Judged::Nothing,
            None => Judged::Ratio(row.cache, row.target),
        };
        let mut summary = Summary::of(&runs, judged, failure.is_some());
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
            command: describe(&self.job, &[site.root(), &bench.runner.out]),
            program: self.programs.version,
            storage: row.place.describe(quick),
            content: site.content(row)?,
            starts: self.starts,
            cost: row.cost,
            without: row.without.map(str::to_owned),
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

/// An option and the file that is its value.
fn option(name: &str, file: &Path) -> [OsString; 1] {
    let mut option = OsString::from(name);
    option.push(file);
    [option]
}

/// What to put in front of a command.
pub fn under_runahead(
    runahead: &Path,
    stats: Option<&Path>,
    options: &[OsString],
) -> Vec<OsString> {
    let mut prefix: Vec<OsString> = vec![runahead.into(), "run".into()];
    // What is measured is a first run, unless the options say otherwise.
    let about_history = |option: &OsString| {
        let option = option.as_encoded_bytes();
        ["--record", "--replay", "--learn"].iter().any(|name| option.starts_with(name.as_bytes()))
    };
    if !options.iter().any(about_history) {
        prefix.push("--no-learn".into());
    }
    prefix.extend(stats.into_iter().flat_map(|file| option("--stats=json:", file)));
    prefix.extend_from_slice(options);
    prefix.push("--".into());
    prefix
}

/// The pair whose run under runahead took the median time (the lower of two).
fn median_pair(runs: &[RunReport]) -> Option<usize> {
    let mut runs: Vec<_> = runs.iter().filter(|run| run.kind == Kind::Runahead).collect();
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    runs.get(runs.len().saturating_sub(1) / 2).map(|run| run.pair)
}
