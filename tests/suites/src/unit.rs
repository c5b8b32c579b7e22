//! One unit, both ways, and again if the ways differ.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::compare::compare;
use crate::disk::SlowDisk;
use crate::error::Error;
use crate::half::{self, End, Half, How};
use crate::prepare::Ready;
use crate::report::Outcome;
use crate::results::Status;

/// How units are run.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What comes after the native half.
    pub second: Second,
    /// Instead of the suite's limit.
    pub limit: Option<Duration>,
    /// What a native half may take at most, whatever its limit.
    pub most: Option<Duration>,
    /// How often a differing unit is run again, each way.
    pub reruns: usize,
    /// Outputs of differing units.
    pub keep: PathBuf,
}

/// What comes after the native half.
#[derive(Debug, Clone)]
pub enum Second {
    /// Under this runahead.
    Ahead(PathBuf),
    /// Another native one: the harness against itself.
    Native,
    /// One with predictions, by this planter and the run's seed.
    Planted(PathBuf, u64),
    /// None.
    Nothing,
}

impl Rules {
    /// Runs a unit as often as it takes to tell. `out` is a worker's own directory.
    ///
    /// # Errors
    /// A half could not be run.
    pub fn run(
        &self,
        ready: &Ready,
        unit: &str,
        disk: &SlowDisk,
        out: &Path,
    ) -> Result<Outcome, Error> {
        let own_limit = self.limit.unwrap_or(Duration::from_secs(ready.suite.limit));
        let native_limit = self.most.map_or(own_limit, |most| own_limit.min(most));
        let command = (ready.suite.command)(unit, &ready.version, &ready.tree);
        let is_written_seen =
            matches!(self.second, Second::Planted(..)) && command.format.repeats_itself();
        let half = |name: &str, n: usize, front: &[String], limit| {
            half::run(
                disk,
                &command,
                front,
                How { limit, is_written_seen },
                &out.join(format!("{name}-{n}")),
            )
        };
        let mut native = vec![half("native", 1, &[], native_limit)?];
        if native[0].end == End::TimedOut {
            clear(out)?;
            let text = format!("does not end natively within {} s", native_limit.as_secs());
            return Ok(outcome(unit, &native, &[], Some(text)));
        }
        let mut times = 3.0;
        let front = match &self.second {
            Second::Nothing => {
                clear(out)?;
                return Ok(outcome(unit, &native, &[], None));
            }
            Second::Native => Vec::new(),
            Second::Ahead(path) => half::front(path),
            Second::Planted(plant, seed) => {
                if let Some((_, why)) = ready.suite.unplanted.iter().find(|(name, _)| *name == unit)
                {
                    clear(out)?;
                    return Ok(outcome(unit, &native, &[], Some((*why).to_owned())));
                }
                times = PLANTED_TIMES;
                half::planter(plant, unit_seed(*seed, unit))
            }
        };
        let patience = own_limit.min(Duration::from_secs(60));
        let limit = Duration::from_secs_f64(native[0].seconds * times) + patience;
        let mut ahead = vec![half("ahead", 1, &front, limit)?];
        if compare(&native, &ahead) != Default::default() {
            for n in 2..self.reruns + 2 {
                native.push(half("native", n, &[], native_limit)?);
                ahead.push(half("ahead", n, &front, limit)?);
            }
            self.keep(ready.suite.name, unit, out)?;
        }
        clear(out)?;
        Ok(outcome(unit, &native, &ahead, None))
    }

    /// Where the outputs of a differing unit are kept.
    pub fn kept(&self, suite: &str, unit: &str) -> PathBuf {
        self.keep.join(suite).join(unit.replace('/', "-"))
    }

    fn keep(&self, suite: &str, unit: &str, out: &Path) -> Result<(), Error> {
        let to = self.kept(suite, unit);
        let _ = fs::remove_dir_all(&to);
        fs::create_dir_all(&to).map_err(Error::system("create", &to))?;
        let (from, to) = (format!("{}/.", out.display()), to.display().to_string());
        crate::system::helper(&["cp", "-r", &from, &to]).map(drop)
    }
}

/// What a half with predictions may take, in times of the native one: one call in four has one, and whoever waits for its
/// outcome waits for some of a millisecond.
const PLANTED_TIMES: f64 = 20.0;

/// A unit's own, so that units do not all begin alike, whichever others are run.
fn unit_seed(seed: u64, unit: &str) -> u64 {
    let digest = Sha256::digest(format!("{seed} {unit}"));
    digest[..4].iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

fn clear(out: &Path) -> Result<(), Error> {
    fs::remove_dir_all(out).map_err(Error::system("remove", out))
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
