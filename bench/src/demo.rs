//! `runahead-bench demo`: one command on cold slow storage, plain and under runahead.
//!
//! Invariant: the last line of standard output is the result, in a form that scripts can rely on;
//! nothing is left up or on disk but the unpacked source in the cache.

use std::fs;
use std::time::Duration;

use runahead_harness::say;
use runahead_testbed::model::Service;
use runahead_testbed::{Disk, Share};

use crate::compare::difference;
use crate::error::{Error, Failure};
use crate::job::{Job, Kind, Outcome};
use crate::measure::under_runahead;
use crate::options::Demo;
use crate::place::Place;
use crate::programs::Programs;
use crate::run::subject;
use crate::runner::Runner;
use crate::site::{Content, Repository, Scratch, Site};
use crate::work::{Ground, Work};
use crate::{progress, source, sys};

/// Files on the share: plain takes about half a minute.
const SHARE_FILES: usize = 1000;
const SPACE: u64 = 320 << 20;
const LIMIT: Duration = Duration::from_secs(900);

/// Shows it. False if the outputs differ.
///
/// # Errors
/// What prevented it.
pub fn demo(options: &Demo) -> Result<bool, Error> {
    let runahead = subject(&options.subject)?;
    let (place, files) = choose()?;
    let source = source::linux_or_any(SHARE_FILES)?;
    let scratch = Scratch::new(SPACE)?;
    let out = scratch.path().join("out");
    fs::create_dir(&out).map_err(Error::system("create", &out))?;
    let content = Content {
        source: &source,
        files,
        repository: Repository::None,
        apps: &[],
        data: None,
        quick: false,
    };
    let site = Site::up(&scratch, place, content)?;
    let job = Work::GrepR.job(&Ground { root: site.root(), out: &out, quick: false })?;
    explain(&site, place, &source.what);
    // Once without delay: access times are then up to date, and no later run writes.
    let runner = Runner { out, limit: LIMIT };
    runner.run(&job, Kind::Recording, &[])?;
    site.set_delay(true)?;

    let programs = Programs::of(&job, Some(&runahead), site.root())?;
    let show = |kind, prefix: &[_]| show(&site, &programs, &runner, &job, kind, prefix);
    let plain = show(Kind::Plain, &[])?;
    let ahead = show(Kind::Runahead, &under_runahead(&runahead, None, &[]))?;
    site.down()?;
    if !plain.ok {
        let message = fs::read(&plain.files.stderr).map(|text| sys::last_line(&text));
        return Err(Failure::Plain {
            command: job.name(),
            exit: plain.exit,
            message: message.unwrap_or_default(),
        }
        .into());
    }
    let different = difference(&plain, &ahead);
    if let Some((what, plain, ahead)) = &different {
        say!("{what}: plain {plain}; under runahead {ahead}");
    }
    let (a, b) = (plain.elapsed.as_secs_f64(), ahead.elapsed.as_secs_f64());
    let outputs = if different.is_none() { "identical" } else { "DIFFERENT" };
    say!("demo: plain={a:.2}s runahead={b:.2}s speedup={:.1}x outputs={outputs}", a / b);
    Ok(different.is_none())
}

/// A disk where that is possible, else a share of a part.
fn choose() -> Result<(Place, usize), Error> {
    let Err(no_disk) = Disk::probe() else { return Ok((Place::Disk, usize::MAX)) };
    say!("{no_disk}");
    Share::probe().map_err(runahead_testbed::Error::from)?;
    Ok((Place::Share, SHARE_FILES))
}

fn explain(site: &Site, place: Place, what: &str) {
    let census = site.census();
    let how = match place.service(false) {
        Service::Parallel { latency, .. } if place == Place::Share => {
            format!("a slow share, as over a network: {latency:?} for each request")
        }
        Service::Parallel { latency, parallel } => {
            format!("a slow disk: {latency:?} for each request, {parallel} at a time")
        }
        Service::Spindles { spindles, .. } => format!("{spindles} rotating disks"),
    };
    say!("On {how}: {what}, {} files, {} MiB.", census.files, census.bytes >> 20);
    say!("grep -r searches it twice with nothing in memory: once by itself, one wait after the");
    say!("other, once under runahead, which fetches in parallel what grep will read next.");
}

fn show(
    site: &Site,
    programs: &Programs,
    runner: &Runner,
    job: &Job,
    kind: Kind,
    prefix: &[std::ffi::OsString],
) -> Result<Outcome, Error> {
    site.make_cold()?;
    programs.warm()?;
    let message = if kind == Kind::Plain { "grep -r, plain" } else { "grep -r, under runahead" };
    let clock = progress::clock(message);
    let outcome = runner.run(job, kind, prefix);
    clock.finish_and_clear();
    let outcome = outcome?;
    say!("  {message}: {:.2} s", outcome.elapsed.as_secs_f64());
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_small_enough_to_wait_for() {
        let Service::Parallel { latency, .. } = Place::Share.service(false) else {
            panic!("a share has one latency")
        };
        // Lookup, open or attributes, and data: at most three waits a file.
        assert!(latency * 3 * SHARE_FILES as u32 <= Duration::from_secs(40));
    }
}
