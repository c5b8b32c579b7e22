//! Recording a run with strace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use runahead_harness::require_program;

use crate::data::compile_program as compile;
use crate::data::job::Job;
use crate::error::Error;
use crate::measure::job_run::run;
use crate::measure::oracle::access_list::{Accesses, Collector};
use crate::measure::oracle::strace_lines::Parser;
use crate::measure::run_outcome::Outcome;
use crate::measure::running_command::Runner;
use crate::measure::user_files;
use crate::report::run_report::Kind;

/// System calls that are recorded. Not every architecture has those with `?`.
const CALLS: &str = "trace=?open,openat,?openat2,?stat,?lstat,?newfstatat,?statx,?access,\
    ?faccessat,?faccessat2,?readlink,?readlinkat,?getxattr,?lgetxattr,?listxattr,?llistxattr,\
    chdir,execve,read,readv,pread64,?preadv,?preadv2,?getdents,?getdents64,mmap,lseek,\
    ?copy_file_range,?sendfile,?splice";

const INCORE: &str = include_str!("../../../programs/pages_in_core.c");

/// Runs `job` under strace and lists its accesses, those below `root` apart from the others. All of
/// a mapping counts as accessed; of a job that touches little of it, what is in memory in the end.
pub fn record(runner: &Runner, job: &Job, root: &Path) -> Result<(Outcome, Accesses), Error> {
    let strace = require_program("strace", "strace")?;
    let file = user_files::file(&runner.out, job, "recording.strace")?;
    let mut prefix: Vec<OsString> = vec![strace.into()];
    // Strings as hexadecimal (-xx), buffers left out (-s 0), descriptors with their paths (-y).
    prefix.extend(
        ["-f", "-qq", "-y", "-xx", "-s", "0", "--seccomp-bpf", "-e", CALLS, "-o"].map(Into::into),
    );
    prefix.extend([file.clone().into(), "--".into()]);
    let outcome = run(runner, job, Kind::Recording, &prefix)?;

    let failed = |e: std::io::Error| Error::system("read", &file)(e);
    let incore =
        job.touches.then(|| compile::program("incore", INCORE, &runner.out)).transpose()?;
    let touched = |path: &Path, range| match &incore {
        Some(incore) => in_memory(incore, path, range),
        None => vec![range],
    };
    let mut parser = Parser::default();
    let mut collector = Collector::new(root, &job.cwd, &touched);
    for line in BufReader::new(File::open(&file).map_err(failed)?).lines() {
        if let Some(call) = parser.line(&line.map_err(failed)?) {
            collector.call(&call);
        }
    }
    // Recordings of large trees are large, and this is memory.
    std::fs::remove_file(&file).map_err(Error::system("remove", &file))?;
    Ok((outcome, collector.finish()))
}

/// Returns the pieces of a file's range that are in memory, by the program `incore`; none if it
/// fails.
fn in_memory(incore: &Path, path: &Path, range: Range<u64>) -> Vec<Range<u64>> {
    let range = [range.start, range.end].map(|number| number.to_string());
    let Ok(output) = Command::new(incore).arg(path).args(range).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    let piece = |line: &str| {
        let (start, end) = line.split_once(' ')?;
        Some(start.parse().ok()?..end.parse().ok()?)
    };
    text.lines().filter_map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_just_written_is_in_memory_up_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let incore = compile::program("incore", INCORE, dir.path()).unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, [1; 10_000]).unwrap();
        let piece = |range| in_memory(&incore, &file, range).pop();
        assert_eq!(piece(0..1 << 40), Some(0..12288));
        assert_eq!(piece(4096..8192), Some(4096..8192));
        assert_eq!(piece(1 << 20..2 << 20), None);
    }
}
