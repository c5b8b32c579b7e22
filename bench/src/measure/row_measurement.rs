//! Measurement of one row: the recording, the pairs, the oracle.
//!
//! Invariant: before each cold run, of any kind, the storage is made cold and then the programs are
//! made warm, in the same way; kinds alternate in who goes first. Everyday rows have nothing in
//! memory, programs included, and a fixed order: plain, a first run, a second run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use runahead_harness::{last_line, note, remove};
use serde_json::Value;

use crate::data::job::{Job, JobPlaces};
use crate::error::{Error, Failure};
use crate::measure::job_run::run;
use crate::measure::oracle::access_list::{Access, Accesses};
use crate::measure::oracle::record_run::record;
use crate::measure::oracle::replay_accesses::Replay;
use crate::measure::rubbish_hints::{faulty_runahead, is_planted};
use crate::measure::run_outcome::{Outcome, difference, keep};
use crate::measure::runahead_prefix::{option, switches, under_runahead};
use crate::measure::running_command::Runner;
use crate::measure::slow_storage::FilledStorage;
use crate::measure::user_files;
use crate::measure::warm_programs::Programs;
use crate::report::command_text::describe;
use crate::report::json_results::{OracleReport, RowReport, Settings};
use crate::report::row_summary::{RowMeasure, Summary, Verdict};
use crate::report::run_report::{Kind, RunReport};
use crate::rows::row_definition::{Cache, Content, Row};
use crate::rows::storage_kinds::Medium;

/// Tries of a run that is disturbed each time.
const TRIES: usize = 3;

/// Settings that are the same for all rows.
pub struct Bench {
    pub runner: Runner,
    /// The program under test; none to measure only plain and the oracle.
    pub runahead: Option<PathBuf>,
    /// Start of its SHA-256.
    pub build: Option<String>,
    pub settings: Settings,
    /// Threads of the oracle, if not what its storage needs.
    pub oracle_threads: Option<usize>,
    /// Mechanisms that are switched off in all rows.
    pub without: Vec<String>,
    /// Directory for outputs that differ.
    pub keep: PathBuf,
}

/// A row being measured.
struct Measurement<'a> {
    bench: &'a Bench,
    row: &'a Row,
    site: &'a FilledStorage,
    job: Job,
    programs: Programs,
    /// The program under test, where the job's user can run it.
    runahead: Option<PathBuf>,
    accesses: Arc<Vec<Access>>,
    /// Runahead's own recording of a run.
    history: Option<PathBuf>,
    /// Programs that the recorded run started.
    starts: Option<usize>,
    /// The first plain run, with which every other is compared.
    expected: Option<Outcome>,
    runs: Vec<RunReport>,
    /// Runahead's own statistics, by pair.
    stats: Vec<(usize, Value)>,
}

impl Bench {
    /// Measures `row`; failures of the row itself are in the report.
    pub fn measure(&self, row: &Row, site: &FilledStorage) -> Result<RowReport, Error> {
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

    fn begin<'a>(
        &'a self,
        row: &'a Row,
        site: &'a FilledStorage,
    ) -> Result<Measurement<'a>, Error> {
        let (root, out, quick) = (site.root(), &*self.runner.out, self.settings.quick);
        let mut job = row.job(&JobPlaces { root, dir: root, out, quick })?;
        job.options.extend(switches(row.without));
        job.options.extend(switches(&self.without));
        let runahead = user_files::usable(self.runahead.as_deref(), &job, out)?;
        let programs = match row.is_everyday() {
            true => Programs::default(),
            false => Programs::of(&job, runahead.as_deref(), root)?,
        };
        Ok(self.measurement(row, site, job, programs, runahead))
    }

    fn measurement<'a>(
        &'a self,
        row: &'a Row,
        site: &'a FilledStorage,
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
        self.site.set_delay(false)?;
        if !self.row.is_everyday() {
            self.record()?;
        }
        self.site.set_delay(true)?;
        let settings = &self.bench.settings;
        let (pairs, oracles) = match self.row.cache {
            _ if self.row.is_everyday() => {
                if self.row.place.medium == Medium::Memory {
                    self.warm_up(&[Kind::Plain])?;
                }
                (settings.pairs.max(1), 0)
            }
            Cache::Cold if self.row.cost.is_some() || self.row.without.is_some() => {
                (settings.pairs, 0)
            }
            Cache::Cold => (settings.pairs, settings.oracle_runs),
            Cache::Warm => {
                self.warm_up(&[Kind::Plain, Kind::Runahead])?;
                (if self.row.long { settings.pairs } else { settings.warm_pairs }, 0)
            }
        };
        for pair in 1..=pairs {
            self.pair(pair, pairs)?;
        }
        for n in 1..=oracles {
            // An oracle would read for a command with little memory what has no room there.
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

    /// Runs all kinds once.
    fn pair(&mut self, pair: usize, pairs: usize) -> Result<(), Error> {
        let mut order = vec![Kind::Plain, Kind::Runahead];
        order.extend(self.row.without.map(|_| Kind::Whole));
        if let Some(inside) = &self.job.inside {
            remove(&inside.state)?;
            order.push(Kind::Again);
        } else if pair.is_multiple_of(2) {
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

    /// Records a run without delay. It is also the run that brings access times up to date
    /// (relatime), so that no later run writes.
    fn record(&mut self) -> Result<(), Error> {
        self.programs.ask_version()?;
        if self.row.content == Content::Nothing {
            return Ok(());
        }
        // Where there is nothing to gain there is no oracle, and what is swapped out is no access
        // to anything. From storage, the run without delay is made all the same.
        if self.row.cost.is_some() || self.job.swap.is_some() {
            return match self.row.cache {
                Cache::Warm => Ok(()),
                Cache::Cold => {
                    let outcome = run(&self.bench.runner, &self.job, Kind::Recording, &[])?;
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

    /// Records the accesses. The pages that a command touches of a mapping are those in memory
    /// after it; so there are none before it, and no other process may drop the caches meanwhile.
    fn record_accesses(&self) -> Result<(Outcome, Accesses), Error> {
        let mut tries = 1;
        loop {
            if self.job.touches {
                self.site.make_cold()?;
            }
            let dropped = times_caches_dropped();
            let recorded = record(&self.bench.runner, &self.job, self.site.root())?;
            let disturbed = self.job.touches && times_caches_dropped() != dropped;
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
        let file = user_files::directory(&runner.out, &self.job, "history")?.join("run");
        let prefix = under_runahead(runahead, None, &option("--record=", &file), false);
        let outcome = run(runner, &self.job, Kind::Recording, &prefix)?;
        self.require_success(&outcome)?;
        if !file.is_file() {
            return Err(Failure::NothingRecorded(self.job.name()).into());
        }
        self.history = Some(file);
        Ok(())
    }

    /// Brings everything into memory by untimed runs.
    fn warm_up(&mut self, kinds: &[Kind]) -> Result<(), Error> {
        for &kind in kinds {
            if kind == Kind::Plain || self.runahead.is_some() {
                self.run(kind, 0)?;
            }
        }
        self.runs.clear();
        self.stats.clear();
        Ok(())
    }

    /// Makes a run from the row's state of memory, again if another process changed that meanwhile.
    /// Pair 0 is the one that brings everything into memory.
    fn run(&mut self, kind: Kind, pair: usize) -> Result<Outcome, Error> {
        let mut tries = 1;
        loop {
            self.prepare(tries)?;
            let dropped = times_caches_dropped();
            let (outcome, stats) = self.run_once(kind)?;
            let served = self.site.stats()?;
            // Between two warm runs another process may have done so, too.
            let was_cold = self.row.cache == Cache::Warm && pair > 0 && served.read_bytes > 0;
            let disturbed = times_caches_dropped() != dropped || was_cold;
            // A second run of an everyday row cannot be made again: it would be a third.
            if disturbed && tries < TRIES && !self.row.is_everyday() {
                self.say(&format!("{}: another process dropped the caches; again", kind.name()));
                tries += 1;
                continue;
            }
            // Shadows are not waited for.
            let shadows = stats.as_ref().and_then(|stats| stats["shadow_cpu_seconds"].as_f64());
            self.runs.push(RunReport {
                kind,
                pair,
                seconds: outcome.elapsed.as_secs_f64(),
                figure: outcome.figure,
                processor: Some(outcome.processor + shadows.unwrap_or(0.0)),
                more: outcome.more.clone(),
                exit: outcome.exit.clone(),
                requests: served.requests,
                read_bytes: served.read_bytes,
                max_in_service: served.max_in_service,
                disturbed,
            });
            // Those of the row itself are kept.
            let stats = stats.filter(|_| kind == Kind::Runahead);
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
                run(&self.bench.runner, &self.job, Kind::Recording, &[])?;
            }
            Cache::Warm => {}
        }
        self.site.reset_stats()
    }

    /// Returns the outcome, and runahead's own statistics.
    fn run_once(&self, kind: Kind) -> Result<(Outcome, Option<Value>), Error> {
        let runner = &self.bench.runner;
        match (kind, &self.runahead) {
            (Kind::Runahead | Kind::Whole | Kind::Again, Some(runahead)) => {
                self.run_ahead(kind, runahead)
            }
            (Kind::Oracle, _) => Ok((self.run_with_oracle()?, None)),
            (Kind::Replay, Some(runahead)) => {
                let history = self.history.as_deref().unwrap_or(Path::new(""));
                let prefix = under_runahead(runahead, None, &option("--replay=", history), false);
                Ok((run(runner, &self.job, kind, &prefix)?, None))
            }
            _ => Ok((run(runner, &self.job, kind, &[])?, None)),
        }
    }

    fn run_ahead(&self, kind: Kind, runahead: &Path) -> Result<(Outcome, Option<Value>), Error> {
        let options = if kind == Kind::Whole { &[] } else { &self.job.options[..] };
        let file = user_files::file(&self.bench.runner.out, &self.job, "stats.json")?;
        let faulty = if is_planted(options) { Some(faulty_runahead()?) } else { None };
        let runahead = faulty.as_deref().unwrap_or(runahead);
        let prefix = match &self.job.inside {
            None => under_runahead(runahead, Some(&file), options, false),
            Some(inside) => {
                let seen = |path: &Path| match path.strip_prefix(&inside.outside) {
                    Ok(below) => inside.inside.join(below),
                    Err(_) => path.to_owned(),
                };
                under_runahead(&seen(runahead), Some(&seen(&file)), options, true)
            }
        };
        let outcome = run(&self.bench.runner, &self.job, kind, &prefix)?;
        // A runahead that died left none; then exit status or output differ, which is reported.
        let stats: Option<Value> =
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
        let outcome = run(&self.bench.runner, &self.job, Kind::Oracle, &[]);
        replay.stop();
        outcome
    }

    fn require_success(&self, outcome: &Outcome) -> Result<(), Error> {
        if outcome.ok {
            return Ok(());
        }
        let message = fs::read(&outcome.files.stderr).map(|text| last_line(&text));
        let failure = Failure::Plain {
            command: self.job.name(),
            exit: outcome.exit.clone(),
            message: message.unwrap_or_default(),
        };
        Err(failure.into())
    }

    /// Compares an outcome with the first plain one, whichever of the two came first.
    fn compare(&mut self, kind: Kind, outcome: &Outcome) -> Result<(), Error> {
        if kind == Kind::Plain {
            self.require_success(outcome)?;
        }
        let Some(expected) = &self.expected else {
            self.expected = Some(outcome.clone());
            return Ok(());
        };
        let Some((what, plain, other)) = difference(expected, outcome) else { return Ok(()) };
        let kept = self.bench.keep.join(&self.row.name);
        keep([expected, outcome], &kept)?;
        Err(Failure::Differs { what, kind: kind.name(), plain, other, kept }.into())
    }

    fn report(self, failure: Option<String>) -> Result<RowReport, Error> {
        let Self { bench, row, site, runs, .. } = self;
        let judged = match row.cost {
            Some(cost) => RowMeasure::Cost(row.cache, cost),
            None if row.without.is_some() || row.is_everyday() => RowMeasure::Nothing,
            None => RowMeasure::Ratio(row.cache, row.target),
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
            name: row.name.clone(),
            about: row.about.to_owned(),
            command: describe(&self.job, &[site.root(), &bench.runner.out]),
            program: self.programs.version,
            storage: row.place.describe(quick),
            content: site.content(row)?,
            starts: self.starts,
            cost: row.cost,
            without: row.without.map(str::to_owned),
            everyday: row.is_everyday().then(|| everyday_title(row, &bench.without)),
            cache: row.cache,
            target: row.target,
            measured: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            build: bench.build.clone(),
            oracle: runs.iter().any(|run| run.kind == Kind::Oracle).then_some(oracle),
            runs,
            summary,
            runahead_stats,
            failure,
        })
    }
}

/// Title of the everyday table in which a row stands.
fn everyday_title(row: &Row, without: &[String]) -> String {
    let storage = row.place.name.trim_start_matches("everyday-");
    match without {
        [] => format!("{storage}: {}", row.place.about),
        some => format!("{storage}: {} (runahead without {})", row.place.about, some.join(", ")),
    }
}

/// Number of times that the kernel's caches have been dropped since it started.
fn times_caches_dropped() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let dropped = counters.lines().filter_map(|line| line.strip_prefix("drop_"));
    dropped.filter_map(|line| line.split_once(' ')?.1.trim().parse::<u64>().ok()).sum()
}

/// The pair whose run under runahead took the median time (the lower of two).
fn median_pair(runs: &[RunReport]) -> Option<usize> {
    let mut runs: Vec<_> = runs.iter().filter(|run| run.kind == Kind::Runahead).collect();
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    runs.get(runs.len().saturating_sub(1) / 2).map(|run| run.pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::row_selection::select;

    #[test]
    fn a_title_names_the_storage_and_what_is_switched_off() {
        let rows = select(&["everyday".to_owned()]).unwrap();
        let title = |storage: &str, without: &[&str]| {
            let row = rows.iter().find(|row| row.place.name == storage).unwrap();
            everyday_title(row, &without.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
        };
        assert!(
            title("everyday-slow", &["guesses", "stale"])
                .ends_with("(runahead without guesses, stale)")
        );
        assert_eq!(title("everyday-memory", &[]), "memory: everything in memory");
    }
}
