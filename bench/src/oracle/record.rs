//! Recording a run with strace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::accesses::{Accesses, Collector};
use super::trace::Parser;
use crate::around;
use crate::error::Error;
use crate::job::{Job, Kind, Outcome};
use crate::runner::Runner;
use crate::sys;

/// `?`: not every architecture has all of them.
const CALLS: &str = "trace=?open,openat,?openat2,?stat,?lstat,?newfstatat,?statx,?access,\
    ?faccessat,?faccessat2,?readlink,?readlinkat,?getxattr,?lgetxattr,?listxattr,?llistxattr,\
    chdir,execve,read,readv,pread64,?preadv,?preadv2,?getdents,?getdents64,mmap,lseek,\
    ?copy_file_range,?sendfile,?splice";

/// Runs `job` under strace and lists its accesses, those below `root` apart from the others.
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
    let (mut parser, mut collector) = (Parser::default(), Collector::new(root, &job.cwd));
    for line in BufReader::new(File::open(&file).map_err(failed)?).lines() {
        if let Some(call) = parser.line(&line.map_err(failed)?) {
            collector.call(&call);
        }
    }
    // Recordings of large trees are large, and this is memory.
    std::fs::remove_file(&file).map_err(Error::system("remove", &file))?;
    Ok((outcome, collector.finish()))
}
