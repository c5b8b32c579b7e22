//! Runs a command with faults planted in the agent, and reports the effects that shadows tried.
//!
//! * `plant effects COMMAND...` and `plant panic ACCESS COMMAND...` plant a fault.
//! * `plant logged FILE COMMAND...` replaces the target's policy by the one that counts calls, and
//!   writes the counts to the file ([`PolicyCounts`]).
//! * `plant tried COMMAND...` replaces it by the policy that does to calls what the program asks
//!   for.
//! * `plant speculated SEED FILE COMMAND...` speculates after calls that the seed picks, and adds
//!   a line of results to the file ([`PredictionCounts`]). It prints nothing itself.
//!
//! The last line on stderr is `planted: refused=N done=N syncs=N`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use runahead_inject::Command;
use runahead_supervisor::{Ended, Faults, Options, Without};
use runahead_tests::call_counts::PolicyCounts;
use runahead_tests::prediction_counts::PredictionCounts;

fn main() -> ExitCode {
    // SAFETY: no handler. Rust's start ignores the signal, which the command would inherit.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut args = std::env::args_os().skip(1);
    let (mut counted, mut speculated) = (None, None);
    let faults = match args.next().as_deref().and_then(|what| what.to_str()) {
        Some("effects") => Faults { plant_effects: true, ..Faults::default() },
        Some("none") => Faults::default(),
        Some("tried") => Faults { tried: true, ..Faults::default() },
        Some("logged") => {
            counted = Some((room(), PathBuf::from(args.next().expect("a file"))));
            // Every program is to have it.
            let without = Without { unwatched: true, ..Without::default() };
            Faults { logged: true, without, ..Faults::default() }
        }
        Some(what @ ("speculated" | "speculated-wrongly")) => {
            let seed = args.next().and_then(|n| n.to_str()?.parse().ok());
            speculated = Some((room(), PathBuf::from(args.next().expect("a file"))));
            let without = Without { unwatched: true, ..Without::default() };
            let speculated_wrongly = what != "speculated";
            let speculated = Some(seed.expect("a seed"));
            Faults { speculated, speculated_wrongly, without, ..Faults::default() }
        }
        Some("panic") => {
            let at = args.next().and_then(|n| n.to_str()?.parse().ok());
            Faults { panic_at: at.expect("the number of an access"), ..Faults::default() }
        }
        other => panic!("not a fault: {other:?}"),
    };
    let program = args.next().expect("a command");
    let command = Command { program, args: args.collect() };
    let options = Options { faults, ..required() };
    let ended = runahead_supervisor::run(&command, &options, |why| eprintln!("natively: {why}"));
    if let Some((memory, file)) = counted {
        let tables = std::fs::read(&memory).expect("it is there");
        std::fs::remove_file(&memory).expect("it is ours");
        std::fs::write(file, PolicyCounts::of_memory(&tables).to_string())
            .expect("it can be written");
    }
    let is_silent = speculated.is_some();
    if let Some((memory, file)) = speculated {
        let tables = std::fs::read(&memory).expect("it is there");
        std::fs::remove_file(&memory).expect("it is ours");
        let seen = PredictionCounts::of_memory(&tables).to_string();
        let mut file =
            std::fs::File::options().append(true).create(true).open(file).expect("a file");
        file.write_all(seen.as_bytes()).expect("it can be written");
    }
    match ended {
        Ok((ended, stats)) => {
            let (refused, done) = (stats.planted_refused, stats.planted_done);
            if !is_silent {
                eprintln!("planted: refused={refused} done={done} syncs={}", stats.syncs.count);
            }
            match ended {
                Ended::Exited(status) => ExitCode::from(status as u8),
                Ended::Signaled(signal) => {
                    if is_silent {
                        end_by(signal);
                    }
                    ExitCode::from(128 + signal as u8)
                }
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(125)
        }
    }
}

/// Ends this process as the command was.
fn end_by(signal: i32) {
    // SAFETY: no handler; the signal is this process's own.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Makes the file in which the agents count: three tables of 512 and four words.
fn room() -> PathBuf {
    let path = format!("/dev/shm/runahead-calls-{}", std::process::id());
    std::fs::write(&path, [0u8; 3 * 4096 + 4 * 8]).expect("there is memory");
    path.into()
}

/// A fault that no run meets shows nothing, so the agent must be in the program.
fn required() -> Options {
    Options { require: true, ..Options::default() }
}
