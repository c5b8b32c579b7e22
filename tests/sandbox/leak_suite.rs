//! The leak suite: no other process can observe a call of a shadow.
//!
//! `programs/leak.c` reads a byte that its shadow does not have. If the byte is what the shadow
//! assumes, it makes one harmful system call; its target never does. Each case is run in a world
//! of its own (`src/bin/leak`), which is compared before and after, in three ways:
//!
//! * as it is: the agent's own restraint. Nothing may change;
//! * marked: the runner makes the call as it stands, so that only the kernel's refusal is left.
//!   Nothing may change, and the refusal must be the sandbox's (EPERM, EACCES) unless the call is
//!   one of [`LET_THROUGH`];
//! * unguarded: the same without a sandbox. The harm that the case names must be observed, or the
//!   checks check nothing.
//!
//! A program that speculates by itself is tested likewise. It begins, makes the call, and is
//! compared before the outcome is known and after the rollback. Nothing may change either time. If
//! it allows output before the outcome, or does not speculate at all, the harm that the case names
//! must be observed.
//!
//! Besides the cases, every number up to 600 and beyond is called with arguments of several
//! shapes. `RUNAHEAD_FULL=1` runs everything, otherwise a sample is drawn (`RUNAHEAD_SEED`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use runahead_testbed::{Disk, DiskOptions};
use runahead_tests::{
    Link, Seed, apart, available, installed, names_of_calls, programs, root, scratch,
};

/// Ways in which nothing may change, as at the head of this file. `older`: marked, with the
/// Landlock of Linux 5.13; `mirrored`: marked, with large memory kept out of the fork.
const MODES: [&str; 4] = ["asis", "marked", "older", "mirrored"];

/// Calls that the sandbox makes for a shadow with some arguments at least, because they only read
/// or concern the caller alone. What any of them may change that can be seen is in [`OWN`].
const LET_THROUGH: &[&str] = &[
    "arch_prctl",
    "brk",
    "cachestat",
    "capget",
    "chdir",
    "clock_getres",
    "clock_gettime",
    "close",
    "close_range",
    "exit",
    "exit_group",
    "fstatfs",
    "futex",
    "getcpu",
    "getcwd",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getpid",
    "getppid",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "getrusage",
    "gettimeofday",
    "getuid",
    "lseek",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "openat2",
    "prctl",
    "pread64",
    "preadv2",
    "prlimit64",
    "readlinkat",
    "rt_sigreturn",
    "sched_getaffinity",
    "statx",
    "sysinfo",
    "time",
    "times",
    "uname",
    "wait4",
];
/// Changes that a permitted call may make to the shadow itself: descriptors and working directory.
const OWN: &[&str] = &["shadow/fd", "shadow/cwd"];
/// uretprobe(2) and uprobe(2), which the kernel lets through every filter; they do nothing but
/// for a process that a tracer with root's rights has put them into, and end any other.
const PROBES: [i64; 2] = [335, 336];
/// cachestat(2), for headers that do not know it.
const CACHESTAT: i64 = 451;
/// The highest number that is called in any case.
const HIGHEST: i64 = 600;
/// Ways in which the program itself speculates, with inherited files and with one of its own.
const SPECULATIVE: [&str; 2] = ["speculative", "own"];
/// Calls that write, which a program may have go out at once.
const ALLOWED: [&str; 8] = [
    "write_pipe",
    "writev_pipe",
    "write_event",
    "write_socket",
    "sendto",
    "write_terminal",
    "write_file",
    "pwrite64",
];
/// Calls that do more than their effect: made in the agent's place, they do not return there.
const ELSEWHERE: [i64; 9] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
];
/// Cases without harm when a speculative process makes the call. Their output is held, or they
/// store into memory that is only readable. A waiting process has a timer anyway.
const UNHARMED: [&str; 6] = [
    "writev_file",
    "openat2_write",
    "open_again_write",
    "mremap_again",
    "futex_wake_op",
    "timer_create",
];
/// Changes by a call of a speculative process that only reads: access times of the world's files,
/// if the file system records them. The world's own look reads otherwise.
const READ: &str = ":atime";
/// Added to a number, the call of the x32 interface.
const X32: i64 = 0x4000_0000;
/// Shapes of arguments that `leak.c` has.
const SHAPES: u64 = 7;
/// Runs of a case that no shadow reaches, or whose shadow ends before its call returns
/// (unguarded).
const RUNS: u32 = 3;
/// Worlds at a time.
const WORKERS: usize = 4;
const COLD_BYTES: usize = 16 << 20;
/// Long enough for a shadow to be made and to come to the call.
const LATENCY: Duration = Duration::from_millis(30);

/// A line of `leak --list`.
struct Case {
    nr: i64,
    seen: String,
    unsafe_because: String,
    restraint: String,
}

/// Result of one run of a case or of a number.
#[derive(Debug, Clone)]
struct Outcome {
    mode: String,
    case: String,
    attempts: u32,
    result: Option<i64>,
    changed: Vec<String>,
}

struct Suite {
    _disk: Disk,
    quota: Option<Quota>,
    cold: Vec<PathBuf>,
    cases: BTreeMap<String, Case>,
    seed: Seed,
    /// A sample is one in so many of what it is elsewhere: on a machine that is emulated.
    part: usize,
    full: bool,
}

/// A small file system with quotas, mounted while this lives.
struct Quota(PathBuf);

impl Quota {
    fn up(dir: &Path) -> Option<Self> {
        let (image, at) = (dir.join("quota.img"), dir.join("quota.mnt"));
        std::fs::write(&image, vec![0; 4 << 20]).expect("the scratch directory is ours");
        std::fs::create_dir(&at).expect("the scratch directory is ours");
        let run = |program: &str, args: &[&str], path: &[&Path]| {
            let status = Command::new(program).args(args).args(path).stderr(Stdio::null()).status();
            status.is_ok_and(|s| s.success())
        };
        let made = run("mkfs.ext4", &["-q", "-F", "-O", "quota"], &[&image])
            && run("mount", &["-o", "loop,usrquota"], &[&image, &at]);
        if !made {
            return None;
        }
        let quota = Quota(at);
        let mounts = std::fs::read_to_string("/proc/mounts").expect("/proc is mounted");
        let at = quota.0.to_str().expect("a plain path");
        let line = mounts.lines().find(|l| l.split(' ').nth(1) == Some(at))?;
        let device = line.split(' ').next()?;
        std::fs::write(dir.join("quota"), device).expect("the scratch directory is ours");
        Some(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

impl Suite {
    fn up(name: &str) -> Option<Self> {
        let needed = root()
            .and_then(|()| Disk::probe().map_err(|missing| missing.to_string()))
            .and_then(|()| installed("unshare"));
        available(needed)?;
        let dir = scratch().join(name);
        let slow = dir.join("slow");
        std::fs::create_dir_all(&slow).expect("the scratch directory is ours");
        let options = DiskOptions::new(&slow).size(256 << 20).parallel(LATENCY, 64).delay(false);
        let disk = Disk::up(&options).expect("a disk comes up");
        let cold = (0..WORKERS).map(|n| slow.join(format!("cold{n}"))).collect::<Vec<_>>();
        for path in &cold {
            let mut file = std::fs::File::create(path).expect("an empty disk");
            file.write_all(&vec![b'N'; COLD_BYTES]).expect("an empty disk");
            file.sync_all().expect("an empty disk");
        }
        disk.set_delay(true).expect("the disk's server answers");
        let list = Command::new(programs::program("leak", Link::Dynamic)).arg("--list").output();
        let list = String::from_utf8(list.expect("it can be run").stdout).expect("text");
        let cases = list.lines().map(case).collect();
        let full = runahead_tests::full();
        let quota = Quota::up(&dir);
        let part = std::env::var("RUNAHEAD_LEAK_PART").ok().and_then(|part| part.parse().ok());
        let (seed, part) = (Seed::new(), part.unwrap_or(1));
        Some(Suite { _disk: disk, quota, cold, cases, seed, part, full })
    }

    /// Returns `jobs`, or a sample of `size` of them in random order.
    fn sample(&mut self, mut jobs: Vec<String>, size: usize) -> Vec<String> {
        for last in (1..jobs.len()).rev() {
            jobs.swap(last, self.seed.below(last as u64 + 1) as usize);
        }
        if !self.full {
            jobs.truncate(size.div_ceil(self.part));
        }
        jobs
    }

    /// Cases that can be run here, in `mode`.
    fn cases_for(&self, mode: &str) -> Vec<String> {
        let here = |name: &String| self.quota.is_some() || !name.starts_with("quotactl");
        self.cases.keys().filter(|n| here(n)).map(|name| format!("{mode} {name}")).collect()
    }

    fn run(&self, jobs: &[String]) -> Vec<Outcome> {
        let (next, done) =
            (Mutex::new(jobs.iter().rev().cloned().collect()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for (n, cold) in self.cold.iter().enumerate() {
                let (next, done) = (&next, &done);
                let world =
                    cold.parent().and_then(Path::parent).expect("a path").join(format!("w{n}"));
                std::fs::create_dir_all(&world).expect("the scratch directory is ours");
                let link = programs::BOTH[n % 2];
                scope.spawn(move || {
                    work(&world, &programs::program("leak", link), cold, next, done)
                });
            }
        });
        let done = done.into_inner().expect("no panic");
        assert_eq!(done.len(), jobs.len(), "not everything was run");
        done
    }

    fn case(&self, outcome: &Outcome) -> Case {
        let number = |text: &str| text.split(':').nth(1).and_then(|n| n.parse().ok());
        match self.cases.get(&outcome.case) {
            Some(it) => Case {
                nr: it.nr,
                seen: it.seen.clone(),
                unsafe_because: it.unsafe_because.clone(),
                restraint: it.restraint.clone(),
            },
            None => Case {
                nr: number(&outcome.case).expect("a number"),
                seen: String::new(),
                unsafe_because: String::new(),
                restraint: String::new(),
            },
        }
    }
}

fn case(line: &str) -> (String, Case) {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, nr, seen, unsafe_because, restraint] = fields[..] else { panic!("{line:?}") };
    let case = Case {
        nr: nr.parse().expect("a number"),
        seen: seen.into(),
        unsafe_because: unsafe_because.into(),
        restraint: restraint.into(),
    };
    (name.into(), case)
}

/// Runs jobs until there are none: one world after the other, since one in which something has
/// changed is of no further use.
fn work(
    world: &Path,
    program: &Path,
    cold: &Path,
    next: &Mutex<Vec<String>>,
    done: &Mutex<Vec<Outcome>>,
) {
    const BATCH: usize = 24;
    let mut mine: Vec<String> = Vec::new();
    loop {
        if mine.is_empty() {
            let mut next = next.lock().expect("no panic");
            let rest = next.len().saturating_sub(BATCH);
            mine = next.split_off(rest);
            mine.reverse();
        }
        if mine.is_empty() {
            return;
        }
        let outcomes = live(world, program, cold, &mine);
        mine.drain(..outcomes.len());
        done.lock().expect("no panic").extend(outcomes);
    }
}

/// Makes one world and runs as many of `jobs` as it survives.
fn live(world: &Path, program: &Path, cold: &Path, jobs: &[String]) -> Vec<Outcome> {
    let mut child = Command::new("unshare")
        .args(["--kill-child=KILL", "--pid", "--fork", "--mount", "--uts", "--ipc", "--net"])
        .args(["--mount-proc", "--", env!("CARGO_BIN_EXE_leak"), "suite"])
        .args([world, program, cold])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare can be run");
    let mut input = child.stdin.take().expect("a pipe");
    // It may end without reading all of it.
    let _ = input.write_all((jobs.join("\n") + "\n").as_bytes());
    drop(input);
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let outcomes: Vec<Outcome> =
        output.lines().map_while(|l| l.ok()).map(|l| outcome(&l)).collect();
    let ended = child.wait_with_output().expect("a child");
    assert!(
        !outcomes.is_empty(),
        "a world that cannot be made, or was destroyed, at {:?}: {:?}\n{}",
        jobs[0],
        ended.status,
        String::from_utf8_lossy(&ended.stderr)
    );
    outcomes
}

fn outcome(line: &str) -> Outcome {
    let fields: Vec<&str> = line.split('\t').collect();
    let [mode, case, attempts, result, changed] = fields[..] else { panic!("{line:?}") };
    Outcome {
        mode: mode.into(),
        case: case.into(),
        attempts: attempts.parse().expect("a number"),
        result: result.parse().ok(),
        changed: changed.split(';').filter(|c| !c.is_empty()).map(str::to_owned).collect(),
    }
}

/// The kernel's table, as its headers tell: names and numbers.
fn table() -> BTreeMap<i64, String> {
    let mut table = names_of_calls();
    table.entry(CACHESTAT).or_insert_with(|| "cachestat".into());
    assert!(table.len() > 300 && table[&0] == "read", "the kernel's headers: {table:?}");
    table
}

/// Every number, once in each of `modes` and shapes; the x32 twins of what is known with one.
fn numbers(
    modes: &[&str],
    table: &BTreeMap<i64, String>,
    seed: &mut Seed,
    full: bool,
) -> Vec<String> {
    let last = table.keys().last().map_or(HIGHEST, |&n| HIGHEST.max(n + 64));
    let others = [X32, X32 + 1, X32 + 59, X32 + 62, X32 + 87, X32 + 520, i64::from(i32::MAX), -1];
    let mut jobs = Vec::new();
    for nr in (0..=last).chain(others) {
        if full {
            jobs.extend(modes.iter().flat_map(|mode| {
                (0..SHAPES).map(move |shape| format!("{mode} number:{nr}:{shape}"))
            }));
        } else {
            let mode = modes[seed.below(modes.len() as u64) as usize];
            jobs.push(format!("{mode} number:{nr}:{}", seed.below(SHAPES)));
        }
    }
    jobs
}

/// True if `call` of a shadow must be refused. A number below 0 is no call, or one that is refused
/// only by death.
fn is_refused(outcome: &Outcome, call: i64, let_through: &BTreeSet<i64>) -> bool {
    outcome.mode != "asis" && call >= 0 && !let_through.contains(&call)
}

/// Calls by which a speculative process makes a child: fork(2), and clone(2) as that.
const FORKS: [i64; 2] = [libc::SYS_fork, libc::SYS_clone];

/// Describes the fault of a run in which nothing may change.
fn wrong(suite: &Suite, outcome: &Outcome, let_through: &BTreeSet<i64>) -> Option<String> {
    let case = suite.case(outcome);
    if outcome.attempts == 0 {
        return Some(format!("no process reached the call: {:?}", outcome.changed));
    }
    let is_speculative = SPECULATIVE.contains(&outcome.mode.as_str());
    let marked = outcome.mode != "asis" && !is_speculative;
    let reads = |key: &&String| is_speculative && key.ends_with(READ);
    // A child exists and is visible; what it does is not.
    let forks = is_speculative && FORKS.contains(&case.nr);
    let is_there =
        |key: &&String| forks && (key.starts_with("processes/") || key.as_str() == "ipc/shm");
    let ours = marked && (let_through.contains(&case.nr) || !case.restraint.is_empty());
    let may = |key: &&String| {
        (ours && OWN.iter().any(|own| key.starts_with(own)))
            || (marked && !case.restraint.is_empty() && key.starts_with(&case.seen))
    };
    let leaked: Vec<_> =
        outcome.changed.iter().filter(|key| !may(key) && !reads(key) && !is_there(key)).collect();
    if !leaked.is_empty() {
        return Some(format!("leaked: {leaked:?}"));
    }
    if is_speculative || !is_refused(outcome, case.nr, let_through) {
        return None;
    }
    match outcome.result {
        Some(errno) if errno == i64::from(-libc::EPERM) || errno == i64::from(-libc::EACCES) => {
            None
        }
        other => Some(format!("the sandbox let it through: {other:?}")),
    }
}

#[test]
fn no_call_of_a_shadow_is_observed() {
    let _apart = apart();
    let Some(mut suite) = Suite::up("leak") else { return };
    let table = table();
    let number = |name: &&str| table.iter().find(|(_, n)| n == name).map(|(nr, _)| *nr);
    let let_through: BTreeSet<i64> = LET_THROUGH.iter().filter_map(number).collect();
    assert_eq!(let_through.len(), LET_THROUGH.len(), "a name that the kernel does not know");
    let let_through = let_through.into_iter().chain(PROBES).collect();
    let mut jobs = Vec::new();
    for mode in MODES {
        let cases = suite.cases_for(mode);
        jobs.extend(suite.sample(cases, 100));
    }
    let full = suite.full;
    let numbers = numbers(&MODES, &table, &mut suite.seed, full);
    jobs.extend(suite.sample(numbers, 400));
    let mut outcomes = suite.run(&jobs);
    for _ in 1..RUNS {
        // On a busy machine a shadow may be late, or end before it reports the result of the call.
        let is_told =
            |o: &Outcome| o.result.is_some() || !is_refused(o, suite.case(o).nr, &let_through);
        let late =
            outcomes.extract_if(.., |o| o.attempts == 0 || (o.changed.is_empty() && !is_told(o)));
        let late: Vec<String> = late.map(|o| format!("{} {}", o.mode, o.case)).collect();
        outcomes.extend(suite.run(&late));
    }
    let name = |o: &Outcome| {
        let nr = suite.case(o).nr;
        format!("{} {} ({})", o.mode, o.case, table.get(&nr).map_or("no name", |n| n))
    };
    let failures: Vec<String> = outcomes
        .iter()
        .filter_map(|o| wrong(&suite, o, &let_through).map(|w| format!("{}: {w}: {o:?}", name(o))))
        .collect();
    for mode in MODES {
        let of = |o: &&Outcome| o.mode == mode;
        let called: BTreeSet<i64> = outcomes.iter().filter(of).map(|o| suite.case(o).nr).collect();
        let runs = outcomes.iter().filter(of).count();
        let refused = outcomes.iter().filter(of).filter(|o| o.result == Some(-1)).count();
        eprintln!("{mode}: {runs} runs of {} calls, {refused} answered EPERM", called.len());
    }
    assert!(failures.is_empty(), "{} leaks:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn no_call_of_a_speculative_process_is_observed() {
    let _apart = apart();
    let Some(mut suite) = Suite::up("leak-speculative") else { return };
    let table = table();
    let cases = SPECULATIVE.iter().flat_map(|mode| suite.cases_for(mode)).collect();
    let mut jobs = suite.sample(cases, 100);
    let full = suite.full;
    let numbers = numbers(&SPECULATIVE, &table, &mut suite.seed, full);
    jobs.extend(suite.sample(numbers, 300));
    let outcomes = suite.run(&jobs);
    let name = |o: &Outcome| table.get(&suite.case(o).nr).map_or("no name", |name| name);
    let failures: Vec<String> = outcomes
        .iter()
        .filter_map(|o| {
            wrong(&suite, o, &BTreeSet::new()).map(|w| format!("{}: {w}: {o:?}", name(o)))
        })
        .collect();
    let called: BTreeSet<i64> = outcomes.iter().map(|o| suite.case(o).nr).collect();
    let answered = outcomes.iter().filter(|o| o.result.is_some()).count();
    eprintln!(
        "speculative: {} runs of {} calls, {answered} answered before the outcome was known, the others waited",
        outcomes.len(),
        called.len()
    );
    assert!(failures.is_empty(), "{} leaks:\n{}", failures.len(), failures.join("\n"));
}

/// Runs `jobs` and fails unless the harm of each is observed. A call that this kernel lacks does
/// none.
fn all_are_seen(suite: &mut Suite, jobs: &[String]) {
    let outcomes = suite.run(jobs);
    let is_seen = |o: &&Outcome| {
        let harm = &suite.case(o).seen;
        o.changed.iter().any(|key| key.starts_with(harm))
    };
    let unknown = |o: &&Outcome| o.result == Some(i64::from(-libc::ENOSYS));
    let blind: Vec<_> = outcomes.iter().filter(|o| !is_seen(o) && !unknown(o)).collect();
    eprintln!("{} harms seen of {}", outcomes.iter().filter(is_seen).count(), outcomes.len());
    assert!(blind.is_empty(), "{} are not seen:\n{blind:#?}", blind.len());
}

/// Plant for the test above: output before the outcome is observed, and so are effects of a
/// program that does not speculate.
#[test]
fn planted_output_of_a_speculative_process_is_observed() {
    let _apart = apart();
    let Some(mut suite) = Suite::up("leak-allowed") else { return };
    let mut jobs: Vec<String> = ALLOWED.iter().map(|name| format!("allowed {name}")).collect();
    let mut native = suite.cases_for("native");
    // The supervisor does not pass on what a command sends to it.
    native.retain(|job| {
        let name = &job["native ".len()..];
        suite.cases[name].unsafe_because.is_empty() && name != "kill_parent"
    });
    jobs.extend(suite.sample(native, 60));
    all_are_seen(&mut suite, &jobs);
}

/// Plant for the table of calls: a call that is made although it must wait is observed before the
/// outcome is known.
#[test]
fn planted_calls_that_do_not_wait_are_observed() {
    let _apart = apart();
    let Some(mut suite) = Suite::up("leak-let-out") else { return };
    let mut all = suite.cases_for("let-out");
    all.retain(|job| {
        let name = &job["let-out ".len()..];
        let case = &suite.cases[name];
        let is_made = case.nr >= 0 && !ELSEWHERE.contains(&case.nr) && name != "kill_parent";
        let is_harm = !ALLOWED.contains(&name) && !UNHARMED.contains(&name);
        case.unsafe_because.is_empty() && is_made && is_harm
    });
    let jobs = suite.sample(all, 60);
    all_are_seen(&mut suite, &jobs);
}

/// The plant for the first test: without the sandbox every check must see its harm.
#[test]
fn every_harm_is_observed_without_the_sandbox() {
    let _apart = apart();
    let Some(mut suite) = Suite::up("leak-unguarded") else { return };
    let all = suite.cases_for("unguarded");
    let is_safe = |job: &String| {
        let name = job.split(' ').nth(1).unwrap_or_default();
        suite.cases[name].unsafe_because.is_empty()
    };
    let (safe, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_safe);
    for job in &kept {
        let name = job.split(' ').nth(1).unwrap_or_default();
        eprintln!("not carried out: {name}: {}", suite.cases[name].unsafe_because);
    }
    let mut jobs = suite.sample(safe, 100);
    let (mut seen, mut missing, mut blind, mut ended) = (0, Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ended.clear();
        for outcome in suite.run(&std::mem::take(&mut jobs)) {
            let harm = &suite.case(&outcome).seen;
            let is_seen = outcome.changed.iter().any(|key| key.starts_with(harm));
            match outcome.result {
                _ if is_seen => seen += 1,
                Some(errno) if errno == i64::from(-libc::ENOSYS) => missing.push(outcome.case),
                Some(_) => blind.push(format!("{outcome:?}, but not {harm}")),
                // It was ended before its call was over, and may have done nothing.
                None => {
                    ended.push(format!("{outcome:?}, but not {harm}"));
                    jobs.push(format!("unguarded {}", outcome.case));
                }
            }
        }
        if jobs.is_empty() {
            break;
        }
    }
    blind.extend(ended);
    eprintln!(
        "unguarded: {seen} harms seen, {} that this kernel does not know: {missing:?}",
        missing.len()
    );
    assert!(blind.is_empty(), "{} checks see nothing:\n{}", blind.len(), blind.join("\n"));
    assert!(
        missing.len() * 10 < (seen + missing.len()).max(40),
        "too much is missing: {missing:?}"
    );
}
