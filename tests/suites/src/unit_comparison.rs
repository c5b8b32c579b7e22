//! Comparison of one unit's runs, natively and under runahead, repeated if the two differ.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runahead_harness::{remove, run_helper};
use sha2::{Digest, Sha256};

use crate::case_differences::compare;
use crate::error::Error;
use crate::results::test_cases::Status;
use crate::results_file::Outcome;
use crate::slow_disk::SlowDisk;
use crate::suite_cache::PreparedSuite;
use crate::unit_run::{self as half, End, Half, RunConditions};

/// Rules by which units are run.
#[derive(Debug, Clone)]
pub struct Rules {
    pub second: SecondRun,
    /// Limit instead of the suite's.
    pub limit: Option<Duration>,
    /// Upper bound of a native run's limit.
    pub most: Option<Duration>,
    /// Further runs of a unit that differs, of each kind.
    pub reruns: usize,
    /// Directory for outputs of units that differ.
    pub keep: PathBuf,
}

/// The run after the native one.
#[derive(Debug, Clone)]
pub enum SecondRun {
    /// A run under this runahead.
    Runahead(PathBuf),
    /// Another native run: the harness against itself.
    Native,
    /// A run with predictions, by this planter and the seed.
    Planted(PathBuf, u64),
    Nothing,
}

impl Rules {
    /// Runs a unit until the verdict is clear. `out` is a worker's own directory.
    pub fn run(
        &self,
        ready: &PreparedSuite,
        unit: &str,
        disk: &SlowDisk,
        out: &Path,
    ) -> Result<Outcome, Error> {
        let own_limit = self.limit.unwrap_or(Duration::from_secs(ready.suite.limit));
        let native_limit = self.most.map_or(own_limit, |most| own_limit.min(most));
        let command = (ready.suite.command)(unit, &ready.version, &ready.tree);
        let is_written_seen =
            matches!(self.second, SecondRun::Planted(..)) && command.format.repeats_itself();
        let half = |name: &str, n: usize, prefix: &[String], limit| {
            half::run(
                disk,
                &command,
                prefix,
                RunConditions { limit, is_written_seen },
                &out.join(format!("{name}-{n}")),
            )
        };
        let mut native = vec![half("native", 1, &[], native_limit)?];
        if native[0].end == End::TimedOut {
            remove(out)?;
            let text = format!("does not end natively within {} s", native_limit.as_secs());
            return Ok(outcome(unit, &native, &[], Some(text)));
        }
        let mut times = 3.0;
        let prefix = match &self.second {
            SecondRun::Nothing => {
                remove(out)?;
                return Ok(outcome(unit, &native, &[], None));
            }
            SecondRun::Native => Vec::new(),
            SecondRun::Runahead(path) => half::runahead_prefix(path),
            SecondRun::Planted(plant, seed) => {
                if let Some((_, why)) = ready.suite.unplanted.iter().find(|(name, _)| *name == unit)
                {
                    remove(out)?;
                    return Ok(outcome(unit, &native, &[], Some((*why).to_owned())));
                }
                times = PLANTED_TIMES;
                half::planter(plant, unit_seed(*seed, unit))
            }
        };
        let patience = own_limit.min(Duration::from_secs(60));
        let limit = Duration::from_secs_f64(native[0].seconds * times) + patience;
        let mut ahead = vec![half("ahead", 1, &prefix, limit)?];
        if compare(&native, &ahead) != Default::default() {
            for n in 2..self.reruns + 2 {
                native.push(half("native", n, &[], native_limit)?);
                ahead.push(half("ahead", n, &prefix, limit)?);
            }
            self.keep(ready.suite.name, unit, out)?;
        }
        remove(out)?;
        Ok(outcome(unit, &native, &ahead, None))
    }

    /// Directory for the outputs of a unit that differs.
    pub fn kept(&self, suite: &str, unit: &str) -> PathBuf {
        self.keep.join(suite).join(unit.replace('/', "-"))
    }

    fn keep(&self, suite: &str, unit: &str, out: &Path) -> Result<(), Error> {
        let to = self.kept(suite, unit);
        remove(&to)?;
        fs::create_dir_all(&to).map_err(Error::system("create", &to))?;
        run_helper(std::process::Command::new("cp").arg("-r").args([&out.join("."), &to]))?;
        Ok(())
    }
}

/// Limit of a run with predictions, in times of the native one: one call in four has a prediction,
/// and a process that waits for its outcome waits for a part of a millisecond.
const PLANTED_TIMES: f64 = 20.0;

/// Seed of a unit, so that units do not all begin alike. It does not depend on which other units
/// run.
fn unit_seed(seed: u64, unit: &str) -> u64 {
    let digest = Sha256::digest(format!("{seed} {unit}"));
    digest[..4].iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

fn outcome(unit: &str, native: &[Half], ahead: &[Half], left_out: Option<String>) -> Outcome {
    let first = &native[0];
    let count =
        |wanted: &[Status]| first.cases.values().filter(|status| wanted.contains(status)).count();
    Outcome {
        unit: unit.to_owned(),
        end: first.end,
        cases: first.cases.len(),
        failed: count(&[Status::Fail, Status::Error]),
        skipped: count(&[Status::Skip]),
        native_seconds: first.seconds,
        native_requests: first.requests,
        ahead_seconds: ahead.first().map(|half| half.seconds),
        ahead: ahead.first().map(|half| half.ahead.clone()),
        verdict: compare(native, ahead),
        left_out,
    }
}
