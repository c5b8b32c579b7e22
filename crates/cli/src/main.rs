//! The `runahead` command: options in, the command's own exit status out.
//!
//! Nothing is written to the command's output. Messages go to stderr, before the command starts or
//! after it has ended. In between `runahead` keeps none of the command's descriptors, except stderr
//! if `--stats` may have to report an error there.
#![no_main]

mod command_end;
mod history_command;
mod interrupted_commit;
mod left_processes;
mod options;
mod try_command;
mod try_decision;
mod valid_command;

use std::ffi::{CStr, OsStr, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::exit;

use command_end::{close_stdio, end_like, launch_status, report_error, say};
use options::{Cli, Destination, Sink, Task};
use runahead_history::session::{HistoryOptions, Learning, Plan};
use runahead_inject::{Command, LaunchError};
use runahead_supervisor::{Faults, KeptDescriptors, Options, SessionError, Without};

/// Allocator of builds with musl; `Cargo.toml` has the reason.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// C's entry point instead of Rust's.
///
/// The standard library's start changes the disposition of SIGPIPE and opens missing descriptors,
/// and the command would inherit both.
///
/// # Safety
/// Called by the C library, once, with its usual arguments.
// SAFETY: with `no_main` nothing else defines it, and it has the type by which the C library's
// start calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: i32, argv: *const *const c_char) -> i32 {
    // Without its own start the standard library gets no arguments from some C libraries.
    let line = (0..argc as usize).map(|n| {
        // SAFETY: there are that many strings, for the life of the process.
        let argument = unsafe { CStr::from_ptr(*argv.add(n)) };
        OsStr::from_bytes(argument.to_bytes()).to_owned()
    });
    runahead_supervisor::signal_blocking::block();
    match Cli::parse_or_exit(line).task {
        Task::Run(run) => {
            let status = run_command(&run);
            close_stdio();
            exit(status)
        }
        Task::Try(task) => {
            let status = try_command::execute_task(&task);
            close_stdio();
            exit(status)
        }
        Task::History(history) => {
            runahead_supervisor::signal_blocking::unblock();
            exit(history_command::run(&history.task))
        }
    }
}

fn run_command(run: &options::Run) -> i32 {
    let Some((program, args)) = run.command.split_first() else { return 2 };
    let command = Command { program: program.clone(), args: args.to_vec() };
    let learn = match (run.learn, run.no_learn) {
        (true, _) => Learning::Always,
        (_, true) => Learning::Off,
        _ => Learning::WhereItWaits,
    };
    let asked = HistoryOptions { record: run.record.clone(), replay: run.replay.clone(), learn };
    let plan = Plan::new(&asked, &command, |line| say!("{line}"));
    // With statistics or a record, a failure to write them is reported on stderr.
    let speaks = run.stats.is_some() || plan.as_ref().is_some_and(|plan| plan.complains());
    let keep = if speaks { KeptDescriptors::Stderr } else { KeptDescriptors::Nothing };
    let mut without = Without::default();
    run.without.iter().for_each(|name| _ = without.switch_off(name));
    let faults = Faults { plant_rubbish: run.plants("rubbish"), without, ..Faults::default() };
    let duplicate = run.stats.as_ref().and_then(duplicate_destination);
    let file = duplicate.as_ref().and_then(|file| file.as_ref().ok());
    let also = file.map(AsRawFd::as_raw_fd);
    let options = Options {
        require: run.require,
        kept_descriptors: keep,
        also_kept_fd: also,
        faults,
        speculate: run.speculate,
        history: plan,
        ..Options::default()
    };
    let outcome = runahead_supervisor::run(&command, &options, |why| {
        say!("running natively: {why}");
    });
    match outcome {
        Ok((ended, stats)) => {
            let complaints = stats.history.iter().flat_map(|history| &history.complaints);
            complaints.for_each(|line| say!("{line}"));
            if let Some(destination) = &run.stats {
                // A reader that has ended must not change the exit status.
                // SAFETY: no handler is installed.
                unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
                report(destination, duplicate, &stats);
            }
            end_like(ended)
        }
        Err(SessionError::Launch(LaunchError::Process(errno))) if !run.require => {
            exec_instead(run, &command, format!("no process can be started beside it ({errno})"))
        }
        Err(SessionError::TooFewProcesses(limit)) if !run.require => {
            exec_instead(run, &command, limit.to_string())
        }
        Err(error) => report_error(&error),
    }
}

/// Executes the command in this process: none can be started beside it.
fn exec_instead(run: &options::Run, command: &Command, why: String) -> i32 {
    say!("running natively: {why}");
    if let Some(path) = &run.record {
        say!("not recorded in {}: the command runs natively", path.display());
    }
    if let Some(destination) = &run.stats {
        report(
            destination,
            duplicate_destination(destination),
            &runahead_supervisor::Stats::of_native(why),
        );
    }
    runahead_supervisor::signal_blocking::unblock();
    let error = runahead_inject::exec_instead(command);
    say!("{error}");
    launch_status(&error)
}

/// Duplicates the descriptor that statistics are written to, so that the command's stays separate.
fn duplicate_destination(destination: &Destination) -> Option<std::io::Result<OwnedFd>> {
    let Sink::Descriptor(number) = destination.sink else { return None };
    // SAFETY: duplicates a descriptor, which may be closed; programs do not inherit the copy.
    let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) };
    Some(match fd {
        -1 => Err(std::io::Error::last_os_error()),
        // SAFETY: a new descriptor of ours.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    })
}

fn report(
    destination: &Destination,
    duplicate: Option<std::io::Result<OwnedFd>>,
    stats: &runahead_supervisor::Stats,
) {
    let text = match destination.json {
        true => serde_json::to_vec_pretty(stats).unwrap_or_default(),
        false => stats.to_string().into_bytes(),
    };
    let (path, written) = match (&destination.sink, duplicate) {
        (Sink::File(path), _) => (path.clone(), std::fs::write(path, text)),
        (Sink::Descriptor(number), Some(file)) => {
            let written = file.and_then(|file| File::from(file).write_all(&text));
            (format!("descriptor {number}").into(), written)
        }
        _ => (PathBuf::new(), Ok(_ = std::io::stderr().write_all(&text))),
    };
    if let Err(error) = written {
        say!("cannot write statistics to {}: {error}", path.display());
    }
}
