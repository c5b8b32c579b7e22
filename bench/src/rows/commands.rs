//! The commands of the table.
//!
//! Invariant: what a command works on is named by paths that are the same in every run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::data::compile_program as compile;
use crate::data::copy_tree as copy;
use crate::data::datasets::{Data, Task};
use crate::data::job::{Fresh, Gauge, Job, Manner};
use crate::data::redis_source as project;
use crate::data::share_programs::{self as apps, App};
use crate::data::system_programs as sys;
use crate::error::Error;

/// Occurs in an eighth of the kernel's files, so that output is neither nothing nor everything.
pub const PATTERN: &str = "mutex_lock";

/// How many files the rows that name files name: the first in the order of names.
const NAMED: usize = 2000;

/// The directories on the storage under test.
pub const TREE: &str = "tree";
/// The tree again, as a git repository.
pub const REPO: &str = "repo";
/// A git directory whose working tree is [`TREE`] itself.
pub const GIT_DIR: &str = "tree.git";
/// A file of [`DATA_BYTES`] bytes.
pub const DATA: &str = "data";
/// Small enough for the processor's own cache, which leaves the call itself to be measured.
pub const DATA_BYTES: usize = 1 << 20;

const PREAD: &str = include_str!("../../programs/pread.c");
const SLEEPER: &str = include_str!("../../programs/sleeper.c");

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `grep -c` over named files.
    GrepFiles,
    /// `grep -r`.
    GrepR,
    /// `tar cf`.
    Tar,
    /// `find -size`.
    FindSize,
    /// `du -s`.
    Du,
    /// `ls -lR`.
    LsLR,
    /// `git status`, in one thread.
    GitStatus,
    /// `git status` as it comes, of [`TREE`], which is not changed by being a repository.
    GitStatusApart,
    /// A program that is on the storage itself.
    Program(App),
    /// `make -j2`.
    Build,
    /// Millions of `pread`.
    Pread,
    /// Thousand times `/bin/true`.
    Starts(Shell),
    /// A server under its own benchmark.
    Redis {
        /// Requests that are sent before an answer is waited for.
        pipeline: u32,
    },
    /// A process that sleeps.
    Resident {
        /// Started by a shell, instead of being the first process.
        child: bool,
    },
    /// Of what is on a storage instead of the tree.
    Data(Task),
}

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// Debian's `sh`.
    Dash,
    /// The one with more startup.
    Bash,
}

/// What a command is given to work with.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// Root of the storage.
    pub root: &'a Path,
    /// Directory in memory, for what is written.
    pub out: &'a Path,
    /// As little as shows that it works.
    pub quick: bool,
}

impl Work {
    /// The command.
    ///
    /// # Errors
    /// The tree cannot be listed, a program of ours cannot be compiled,
    /// [`crate::error::Failure::NotInstalled`].
    pub fn job(self, ground: &Ground<'_>) -> Result<Job, Error> {
        let Ground { root, out, quick } = *ground;
        let of = |full: u32, little: u32| if quick { little } else { full };
        Ok(match self {
            Self::GrepFiles => {
                let files = copy::regular_files(root, Path::new(TREE))?;
                let job = Job::new("grep", "grep", root).args(["-c", PATTERN]);
                job.args(files.into_iter().take(NAMED))
            }
            Self::GrepR => Job::new("grep", "grep", root).args(["-r", PATTERN, TREE]),
            Self::Tar => {
                let archive = out.join("archive.tar");
                let job = Job::new("tar", "tar", root).args(["cf"]).args([&archive]).args([TREE]);
                Job { artefact: Some(archive), ..job }
            }
            Self::FindSize => Job::new("find", "findutils", root).args([TREE, "-size", "+100k"]),
            Self::Du => Job::new("du", "coreutils", root).args(["-s", TREE]),
            Self::LsLR => Job::new("ls", "coreutils", root).args(["-lR", TREE]),
            Self::GitStatus => Job::new("git", "git", &root.join(REPO)).args([
                "-c",
                "core.preloadIndex=false",
                "status",
            ]),
            Self::GitStatusApart => Job::new("git", "git", &root.join(TREE)).args([
                &format!("--git-dir=../{GIT_DIR}"),
                "--work-tree=.",
                "status",
            ]),
            Self::Program(app) => apps::job(app, root, out)?,
            Self::Build => build(root, quick)?,
            Self::Pread => {
                let program = compile::program("pread", PREAD, out)?;
                let told = out.join("pread.told");
                let calls = of(4_000_000, 100_000).to_string();
                let job = Job::new(program, "gcc", root).args([DATA, &calls]).args([&told]);
                Job { gauge: Gauge::Told(told), ..job }
            }
            Self::Starts(shell) => {
                let times = of(1000, 50);
                let script = format!(
                    "i=0; while [ $i -lt {times} ]; do /bin/true; i=$((i+1)); done; echo $i"
                );
                let job = shell.job(root).args(["-c", &script]);
                Job { gauge: Gauge::MicrosecondsEach(times), ..job }
            }
            Self::Redis { pipeline } => redis(root, pipeline, quick),
            Self::Resident { child } => {
                let program = compile::program("sleeper", SLEEPER, out)?;
                let awake = out.join("sleeper.pid");
                let job = match child {
                    false => Job::new(program, "gcc", root).args([&awake]),
                    // The last word keeps the shell from becoming the program.
                    true => Shell::Dash
                        .job(root)
                        .args(["-c", "\"$0\" \"$1\"; exit $?"])
                        .args([program, awake.clone()]),
                };
                Job { manner: Manner::Sleeping, gauge: Gauge::Told(awake), ..job }
            }
            Self::Data(task) => task.job(ground)?,
        })
    }

    /// What is on its storage instead of the tree.
    pub fn data(self) -> Option<Data> {
        match self {
            Self::Data(task) => Some(task.data()),
            _ => None,
        }
    }

    /// What has to be installed on its storage.
    pub fn app(self) -> Option<App> {
        match self {
            Self::Program(app) => Some(app),
            _ => None,
        }
    }

    /// Whether one run takes so long that there are as many pairs as of cold runs.
    pub fn is_long(self) -> bool {
        self == Self::Build
    }
}

impl Shell {
    fn job(self, cwd: &Path) -> Job {
        match self {
            Self::Dash => Job::new("dash", "dash", cwd),
            Self::Bash => Job::new("bash", "bash", cwd),
        }
    }
}

/// Redis with the C library's allocator, without what it would say of this machine and time.
fn build(root: &Path, quick: bool) -> Result<Job, Error> {
    let dir = root.join("build");
    let job = Job::new("make", "make", root).args(["-j2", "-C"]).args([&dir]);
    let (targets, artefact): (&[&str], _) = match quick {
        true => (&["-C", "deps/hiredis", "libhiredis.a"], "deps/hiredis/libhiredis.a"),
        false => (&["MALLOC=libc", "SOURCE_DATE_EPOCH=1"], "src/redis-server"),
    };
    Ok(Job {
        // For the compiler's files between its parts.
        env: vec![("TMPDIR", root.into())],
        artefact: Some(dir.join(artefact)),
        fresh: Some(Fresh { from: Some(project::redis()?), dir }),
        unordered: true,
        ..job.args(targets)
    })
}

/// A server that writes nothing, and listens only where its benchmark is.
fn redis(root: &Path, pipeline: u32, quick: bool) -> Job {
    // The package with the benchmark has the server, too, under another name; the other package
    // would only make a service of it that runs on this machine from then on.
    let server = match (sys::find_program("redis-server"), sys::find_program("redis-check-rdb")) {
        (Some(server), _) => server,
        (None, Some(same)) => {
            let server = root.join("redis-server");
            // One that is there is of another row.
            let _ = std::os::unix::fs::symlink(same, &server);
            server
        }
        (None, None) => PathBuf::from("redis-server"),
    };
    let requests = match (quick, pipeline) {
        (true, _) => 5_000,
        (false, 1) => 150_000,
        (false, _) => 1_000_000,
    };
    let socket = root.join(crate::measure::redis_load::SOCKET);
    // A socket that was left would be taken for a server that is there.
    let _ = fs::remove_file(&socket);
    let job = Job::new(server, "redis-tools", root)
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .args(["--logfile", "redis.log", "--unixsocket"])
        .args([socket]);
    Job { manner: Manner::Serving { requests, pipeline }, ..job }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_below_a_shell_is_not_the_shell() {
        let dir = tempfile::tempdir().unwrap();
        let ground = Ground { root: dir.path(), out: dir.path(), quick: true };
        let job = Work::Resident { child: true }.job(&ground).unwrap();
        assert!(job.args[1].to_string_lossy().ends_with("exit $?"));
        assert_eq!(job.manner, Manner::Sleeping);
    }
}
