//! Commands on the tree, and commands that need nothing of a storage.
//!
//! Invariant: a command names what it works on by paths that are the same in every run.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use runahead_harness::{find_program, remove};

use crate::data::compile_program as compile;
use crate::data::copy_tree::regular_files;
use crate::data::job::{CommandEnd, FigureSource, Fresh, Job, JobPlaces};
use crate::data::linux_source::PATTERN;
use crate::data::redis_source;
use crate::error::Error;

/// Files that [`grep_files`] names: the first in the order of names.
const NAMED: usize = 2000;

/// Directory of the tree on the storage under test.
pub const TREE: &str = "tree";
/// The tree again, as a git repository.
pub const REPO: &str = "repo";
/// A git directory whose working tree is [`TREE`] itself.
pub const GIT_DIR: &str = "tree.git";
/// A file of [`DATA_BYTES`] bytes.
pub const DATA: &str = "data";
/// Small enough for the processor's own cache, which leaves the call itself to be measured.
pub const DATA_BYTES: usize = 1 << 20;
/// Socket of the redis server, in its working directory.
pub const REDIS_SOCKET: &str = "redis.sock";

const PREAD: &str = include_str!("../../programs/pread_loop.c");
const SLEEPER: &str = include_str!("../../programs/sleeping_process.c");

type Result<T, E = Error> = std::result::Result<T, E>;

/// `grep -c` over named files.
pub fn grep_files(ground: &JobPlaces<'_>) -> Result<Job> {
    let files = regular_files(ground.root, Path::new(TREE))?;
    let job = Job::new("grep", "grep", ground.root).args(["-c", PATTERN]);
    Ok(job.args(files.into_iter().take(NAMED)))
}

/// `grep -r`.
pub fn grep_r(ground: &JobPlaces<'_>) -> Result<Job> {
    Ok(Job::new("grep", "grep", ground.root).args(["-r", PATTERN, TREE]))
}

/// `tar cf`.
pub fn tar(ground: &JobPlaces<'_>) -> Result<Job> {
    let archive = ground.out.join("archive.tar");
    let job = Job::new("tar", "tar", ground.root).args(["cf"]).args([&archive]).args([TREE]);
    Ok(Job { artefact: Some(archive), ..job })
}

/// `find -size`.
pub fn find_size(ground: &JobPlaces<'_>) -> Result<Job> {
    Ok(Job::new("find", "findutils", ground.root).args([TREE, "-size", "+100k"]))
}

/// `du -s`.
pub fn du(ground: &JobPlaces<'_>) -> Result<Job> {
    Ok(Job::new("du", "coreutils", ground.root).args(["-s", TREE]))
}

/// `ls -lR`.
pub fn ls_lr(ground: &JobPlaces<'_>) -> Result<Job> {
    Ok(Job::new("ls", "coreutils", ground.root).args(["-lR", TREE]))
}

/// `git status`, in one thread.
pub fn git_status(ground: &JobPlaces<'_>) -> Result<Job> {
    let job = Job::new("git", "git", &ground.root.join(REPO));
    Ok(job.args(["-c", "core.preloadIndex=false", "status"]))
}

/// `git status` with git's own threads, of [`TREE`], which has no git directory in it.
pub fn git_status_apart(ground: &JobPlaces<'_>) -> Result<Job> {
    let git_dir = format!("--git-dir=../{GIT_DIR}");
    let job = Job::new("git", "git", &ground.root.join(TREE));
    Ok(job.args([&git_dir, "--work-tree=.", "status"]))
}

/// Millions of `pread`.
pub fn pread(ground: &JobPlaces<'_>) -> Result<Job> {
    let program = compile::program("pread", PREAD, ground.out)?;
    let told = ground.out.join("pread.told");
    let calls = ground.size("4000000", "100000");
    let job = Job::new(program, "gcc", ground.root).args([DATA, calls]).args([&told]);
    Ok(Job { gauge: FigureSource::Told(told), ..job })
}

/// `/bin/true`, a thousand times from Debian's `sh`.
pub fn dash(ground: &JobPlaces<'_>) -> Result<Job> {
    starts("dash", ground)
}

/// `/bin/true`, a thousand times from the shell with more startup.
pub fn bash(ground: &JobPlaces<'_>) -> Result<Job> {
    starts("bash", ground)
}

fn starts(shell: &'static str, ground: &JobPlaces<'_>) -> Result<Job> {
    let times = ground.size(1000, 50);
    let script = format!("i=0; while [ $i -lt {times} ]; do /bin/true; i=$((i+1)); done; echo $i");
    let job = Job::new(shell, shell, ground.root).args(["-c", &script]);
    Ok(Job { gauge: FigureSource::MicrosecondsEach(times), ..job })
}

/// A process that sleeps; started by a shell if it is a `child`, else the first process.
pub fn sleeper(child: bool, ground: &JobPlaces<'_>) -> Result<Job> {
    let program = compile::program("sleeper", SLEEPER, ground.out)?;
    let awake = ground.out.join("sleeper.pid");
    let job = match child {
        false => Job::new(program, "gcc", ground.root).args([&awake]),
        // The last word keeps the shell from becoming the program.
        true => Job::new("dash", "dash", ground.root)
            .args(["-c", "\"$0\" \"$1\"; exit $?"])
            .args([program, awake.clone()]),
    };
    Ok(Job { manner: CommandEnd::Sleeping, gauge: FigureSource::Told(awake), ..job })
}

/// `make -j2` of redis, with the C library's allocator, and without what it would print of this
/// machine and time.
pub fn build(ground: &JobPlaces<'_>) -> Result<Job> {
    let root = ground.root;
    let dir = root.join("build");
    let job = Job::new("make", "make", root).args(["-j2", "-C"]).args([&dir]);
    let (targets, artefact): (&[&str], _) = ground.size(
        (&["MALLOC=libc", "SOURCE_DATE_EPOCH=1"], "src/redis-server"),
        (&["-C", "deps/hiredis", "libhiredis.a"], "deps/hiredis/libhiredis.a"),
    );
    Ok(Job {
        // For the compiler's files between its parts.
        env: vec![("TMPDIR", root.into())],
        artefact: Some(dir.join(artefact)),
        fresh: Some(Fresh { from: Some(redis_source::redis()?), dir }),
        unordered: true,
        ..job.args(targets)
    })
}

/// A server that writes nothing, and listens only where its benchmark is.
pub fn redis(pipeline: u32, ground: &JobPlaces<'_>) -> Result<Job> {
    let root = ground.root;
    // The package with the benchmark has the server, too, under another name. The package
    // `redis-server` would start it as a service of this machine.
    let server = match (find_program("redis-server"), find_program("redis-check-rdb")) {
        (Some(server), _) => server,
        (None, Some(same)) => {
            let server = root.join("redis-server");
            // A link that exists is another row's.
            let _ = symlink(same, &server);
            server
        }
        (None, None) => PathBuf::from("redis-server"),
    };
    let requests = ground.size(if pipeline == 1 { 150_000 } else { 1_000_000 }, 5_000);
    let socket = root.join(REDIS_SOCKET);
    // A socket that was left over would be taken for that of a running server.
    remove(&socket)?;
    let job = Job::new(server, "redis-tools", root)
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .args(["--logfile", "redis.log", "--unixsocket"])
        .args([socket]);
    Ok(Job { manner: CommandEnd::Serving { requests, pipeline }, ..job })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_below_a_shell_is_not_the_shell() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let job = sleeper(true, &JobPlaces { root: dir, dir, out: dir, quick: true }).unwrap();
        assert!(job.args[1].to_string_lossy().ends_with("exit $?"));
        assert_eq!(job.manner, CommandEnd::Sleeping);
    }
}
