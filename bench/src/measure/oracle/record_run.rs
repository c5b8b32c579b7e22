//! Recording a run with strace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use crate::data::compile_program as compile;
use crate::data::job::{Job, Kind, Outcome};
use crate::data::system_programs as sys;
use crate::error::Error;
use crate::measure::command_runner::Runner;
use crate::measure::oracle::access_list::{Accesses, Collector};
use crate::measure::oracle::strace_lines::Parser;
use crate::measure::surroundings as around;

/// `?`: not every architecture has all of them.
const CALLS: &str = "trace=?open,openat,?openat2,?stat,?lstat,?newfstatat,?statx,?access,\
    ?faccessat,?faccessat2,?readlink,?readlinkat,?getxattr,?lgetxattr,?listxattr,?llistxattr,\
    chdir,execve,read,readv,pread64,?preadv,?preadv2,?getdents,?getdents64,mmap,lseek,\
    ?copy_file_range,?sendfile,?splice";

const INCORE: &str = include_str!("../../../programs/incore.c");

/// Runs `job` under strace and lists its accesses, those below `root` apart from the others. All of a mapping counts as
/// accessed; of a job that touches little of it, what is in memory in the end.
///
/// # Errors
/// [`Error::NoProgram`] without strace, or the run failed.
pub fn record(runner: &Runner, job: &Job, root: &Path) -> Result<(Outcome, Accesses), Error> {
    let strace = sys::require_program("strace", "strace")?;
    let file = around::file(&runner.out, job, "recording.strace")?;
    let mut prefix: Vec<OsString> = vec![strace.into()];
    // Strings as hexadecimal (-xx), buffers left out (-s 0), descriptors with their paths (-y).
    prefix.extend(
        ["-f", "-qq", "-y", "-xx", "-s", "0", "--seccomp-bpf", "-e", CALLS, "-o"].map(Into::into),
    );
    prefix.extend([file.clone().into(), "--".into()]);
    let outcome = runner.run(job, Kind::Recording, &prefix)?;

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

/// Which pieces of a file's range are in memory, as the program `incore` says it; none if it cannot.
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
    fn what_was_written_just_now_is_in_memory_up_to_its_end() {
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
