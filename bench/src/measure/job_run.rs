//! A run of a job from its preparation to its outcome.

use std::ffi::OsString;
use std::fs;

use indicatif::ProgressBar;
use runahead_harness::remove;
use runahead_testbed::Swap;

use crate::data::copy_tree::{Links, copy_tree};
use crate::data::job::{CommandEnd, FigureSource, Fresh, Job};
use crate::error::{Error, Failure};
use crate::measure::control_group::Group;
use crate::measure::run_outcome::Outcome;
use crate::measure::running_command::Runner;
use crate::measure::{redis_load, resident_memory};
use crate::report::run_report::Kind;

/// Runs `job`, with `prefix` in front of it, to its end. A run that takes too long, or is
/// interrupted, is killed.
pub fn run(runner: &Runner, job: &Job, kind: Kind, prefix: &[OsString]) -> Result<Outcome, Error> {
    if let FigureSource::Told(file) = &job.gauge {
        remove(file)?;
    }
    if let Some(file) = &job.artefact {
        remove(file)?;
    }
    if let Some(fresh) = &job.fresh {
        make_fresh(fresh)?;
    }
    let swapped = |bytes| Swap::on(&job.cwd, bytes).map_err(|e| Failure::NoSwap(e.to_string()));
    let _swap = job.swap.map(swapped).transpose()?;
    let limited = |bytes| Group::with_memory(bytes, job.swap.is_some());
    let group = job.memory.map(limited).transpose()?;
    let inside = group.as_ref().map(|group| {
        let around = group.words().into_iter().chain(job.around.clone()).collect();
        Job { around, ..job.clone() }
    });
    let job = inside.as_ref().unwrap_or(job);
    let outcome = match job.manner {
        CommandEnd::Itself => runner.start(job, kind, prefix)?.finish(job),
        CommandEnd::Serving { requests, pipeline } => {
            let load = redis_load::Load { requests, pipeline };
            redis_load::serve(runner, job, kind, prefix, load)
        }
        CommandEnd::Sleeping => resident_memory::look(runner, job, kind, prefix),
    };
    if let Some(fresh) = &job.fresh {
        remove(&fresh.dir)?;
    }
    outcome
}

fn make_fresh(fresh: &Fresh) -> Result<(), Error> {
    remove(&fresh.dir)?;
    match &fresh.from {
        Some(from) => {
            let hidden = ProgressBar::hidden();
            copy_tree(from, &fresh.dir, usize::MAX, Links::Keep, &hidden).map(drop)
        }
        None => fs::create_dir(&fresh.dir).map_err(Error::system("create", &fresh.dir)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::measure::run_outcome::difference;
    use crate::measure::running_command::processor_of_children;

    fn shell(script: &str) -> Job {
        Job::new("sh", "dash", Path::new("/")).args(["-c", script])
    }

    #[test]
    fn an_outcome_has_exit_status_or_signal_and_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let run = |script| run(&runner, &shell(script), Kind::Plain, &[]).unwrap();
        let one = run("echo out; echo err >&2; exit 3");
        assert_eq!((one.exit.as_str(), one.ok), ("exit 3", false));
        assert_eq!((one.stdout.bytes, one.stderr.bytes), (4, 4));
        assert_ne!(one.stdout, run("echo OUT").stdout);
        assert_eq!(run("kill -9 $$").exit, "signal 9");
    }

    #[test]
    fn a_text_in_the_output_can_be_required_and_input_given() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let input = dir.path().join("input");
        fs::write(&input, "count = 7\n").unwrap();
        let job = Job { input: Some(input), says: Some("count = "), ..shell("cat") };
        assert!(run(&runner, &job, Kind::Plain, &[]).unwrap().ok);
        let silent = Job { says: Some("count = "), ..shell("echo error") };
        assert!(!run(&runner, &silent, Kind::Plain, &[]).unwrap().ok);
        let words = Job { around: vec!["env".into(), "A=b".into()], ..shell("test $A = b") };
        assert!(run(&runner, &words, Kind::Plain, &[]).unwrap().ok);
    }

    #[test]
    fn a_run_over_its_limit_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_millis(300) };
        let start = Instant::now();
        let job = shell("trap '' TERM; sleep 100 & echo $!; wait; wait");
        let result = run(&runner, &job, Kind::Runahead, &[]);
        assert!(matches!(result, Err(Error::Failure(Failure::TimedOut { .. }))));
        assert!(start.elapsed() < Duration::from_secs(20));
        let pid = fs::read_to_string(dir.path().join("runahead.stdout")).unwrap();
        // Killed, it may take a moment to end, and is a zombie until its new parent notices.
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z") {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_fresh_directory_exists_for_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("f"), "text").unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let fresh = Some(Fresh { from: Some(from.clone()), dir: to.clone() });
        let script = format!("cat {0}/f && echo more > {0}/f", to.display());
        let job = Job { fresh, ..shell(&script) };
        let first = run(&runner, &job, Kind::Plain, &[]).unwrap();
        assert_eq!((first.exit.as_str(), first.stdout.bytes), ("exit 0", 4));
        assert_eq!(run(&runner, &job, Kind::Plain, &[]).unwrap().stdout, first.stdout);
        assert!(!to.exists() && from.join("f").exists());
    }

    #[test]
    fn figures_are_divided_time_or_read_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let told = dir.path().join("told");
        let job = Job {
            gauge: FigureSource::Told(told.clone()),
            ..shell(&format!("echo 12.5 > {}", told.display()))
        };
        assert_eq!(run(&runner, &job, Kind::Plain, &[]).unwrap().figure, Some(12.5));
        let job = Job { gauge: FigureSource::Told(told), ..shell("true") };
        assert_eq!(run(&runner, &job, Kind::Plain, &[]).unwrap().figure, None, "an older figure");
        let job = Job { gauge: FigureSource::MicrosecondsEach(10), ..shell("sleep 0.1") };
        assert!(run(&runner, &job, Kind::Plain, &[]).unwrap().figure >= Some(10_000.0));
    }

    #[test]
    fn a_wait_ends_with_the_process_or_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_millis(300) };
        let wait = |script| {
            let mut running = runner.start(&shell(script), Kind::Plain, &[]).unwrap();
            running.until(|| None::<()>)
        };
        let ended = wait("exit 7");
        assert!(
            matches!(ended, Err(Error::Failure(Failure::Ended { exit, .. })) if exit == "exit 7")
        );
        assert!(matches!(wait("sleep 100"), Err(Error::Failure(Failure::TimedOut { .. }))));
    }

    #[test]
    fn every_planted_difference_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let outcome = |script| {
            let job = Job::new("sh", "dash", dir.path()).args(["-c", script]);
            let job = Job { artefact: Some(dir.path().join("archive")), ..job };
            run(&runner, &job, Kind::Plain, &[]).unwrap()
        };
        let same = "echo a; echo b >&2; echo c > archive; exit 1";
        let plain = outcome(same);
        assert_eq!(difference(&plain, &outcome(same)), None);
        for (script, what) in [
            ("echo a; echo b >&2; echo c > archive; exit 0", "exit status"),
            ("echo a; echo b >&2; echo c > archive; kill -9 $$", "exit status"),
            ("echo A; echo b >&2; echo c > archive; exit 1", "standard output"),
            ("echo a; echo B >&2; echo c > archive; exit 1", "standard error"),
            ("echo a; echo b >&2; echo C > archive; exit 1", "the file it writes"),
            ("echo a; echo b >&2; exit 1", "the file it writes"),
        ] {
            let found = difference(&plain, &outcome(script));
            assert_eq!(found.map(|(what, ..)| what), Some(what), "{script}");
        }
    }

    #[test]
    fn a_group_limits_what_runs_in_it_and_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let run = |script: &str| {
            let job = Job::new("sh", "dash", Path::new("/")).args(["-c", script]);
            super::run(&runner, &Job { memory: Some(32 << 20), ..job }, Kind::Plain, &[])
        };
        let output = match run("cat /proc/self/cgroup") {
            Err(Error::Failure(Failure::NoControl(why))) => {
                println!("skipped: {why}");
                return;
            }
            other => other.unwrap(),
        };
        let text = fs::read_to_string(output.files.stdout).unwrap();
        assert!(text.contains("runahead-bench-"), "{text}");
        // 100 MB in the memory of a process that may have 32.
        let hog = run("x=$(head -c 100000000 /dev/zero | tr '\\0' a); echo ${#x}").unwrap();
        assert_ne!(hog.exit, "exit 0");
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let left = crate::measure::control_group::controller(&mounts)
            .unwrap()
            .root
            .join(format!("runahead-bench-{}", std::process::id()));
        assert!(!left.exists());
    }

    #[test]
    fn another_users_files_and_runahead_are_its_own() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};

        use crate::data::other_user::{UNPRIVILEGED, as_unprivileged};
        use crate::measure::user_files::{file, usable};
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can become another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::write(&closed, "program").unwrap();
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        let own = Job::new("id", "coreutils", Path::new("/")).args(["-u"]);
        assert_eq!(usable(Some(&closed), &own, dir.path()).unwrap().as_ref(), Some(&closed));
        let job = Job { around: as_unprivileged(), owner: Some(UNPRIVILEGED), ..own };
        let copy = usable(Some(&closed), &job, dir.path()).unwrap().unwrap();
        assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(file(dir.path(), &job, "f").unwrap()).unwrap().uid(), UNPRIVILEGED);
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let outcome = run(&runner, &job, Kind::Plain, &[]).unwrap();
        assert_eq!(fs::read_to_string(outcome.files.stdout).unwrap(), "65534\n");
    }

    #[test]
    fn processor_time_of_children_is_counted() {
        let before = processor_of_children();
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(
            std::process::Command::new("sh")
                .args(["-c", spin])
                .status()
                .expect("a shell")
                .success()
        );
        assert!(processor_of_children() > before);
    }

    #[test]
    fn a_sleeper_is_measured_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let ground = crate::data::job::JobPlaces {
            root: dir.path(),
            dir: dir.path(),
            out: dir.path(),
            quick: true,
        };
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        for child in [false, true] {
            let job = crate::rows::tree_commands::sleeper(child, &ground).unwrap();
            let outcome = run(&runner, &job, Kind::Plain, &[]).unwrap();
            assert_eq!((outcome.exit.as_str(), outcome.stdout.bytes), ("exit 0", 2));
            // It has 8 MiB of its own; a shell has not.
            assert!(outcome.figure > Some(8192.0), "{:?}", outcome.figure);
        }
    }
}
