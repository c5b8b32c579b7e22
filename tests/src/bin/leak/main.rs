//! Runs the cases of `programs/leak.c` and prints the changes that an outsider observed.
//!
//! `leak run MODE PROGRAM ARGS...` is a session of the supervisor's library. `asis` is the shadow
//! as it is. In `marked` its runners make the harmful call under the sandbox, in `unguarded`
//! without one. In `speculative`, `own`, `let-out`, `allowed` and `native` the program itself
//! makes the call, and speculates or not (`leak.c`).
//!
//! `leak suite PROGRAM COLD` is the first process of its own namespaces. It makes a world that can
//! be harmed, reads lines `MODE CASE`, and runs each case in it.

mod bystander_process;
mod case_run;
mod checked_calls;
mod process;
mod test_world;
mod world_objects;
mod world_snapshot;

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use runahead_inject::Command;
use runahead_supervisor::{Ended, Faults, Options, Without};

/// Exit status of a suite whose world has changed: it is of no further use.
const SPENT: u8 = 3;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    match words.as_slice() {
        ["run", mode, program, rest @ ..] => run(mode, program, rest),
        ["suite", dir, program, cold] => suite(Path::new(dir), program, Path::new(cold)),
        other => panic!("not a use of this program: {other:?}"),
    }
}

fn run(mode: &str, program: &str, args: &[&str]) -> ExitCode {
    let faults = match mode {
        "asis" => Faults::default(),
        "marked" => Faults { plant_marked: true, ..Faults::default() },
        // With what a kernel has that cannot deny truncation.
        "older" => Faults { plant_marked: true, landlock: Some(1), ..Faults::default() },
        // Shadows get large memory as they touch it.
        "mirrored" => Faults { plant_marked: true, without: mirrored(), ..Faults::default() },
        "unguarded" => Faults { plant_marked: true, no_sandbox: true, ..Faults::default() },
        "let-out" => Faults { lets_out: true, ..Faults::default() },
        way if case_run::speculates(way) => Faults::default(),
        other => panic!("not a mode: {other}"),
    };
    let speculate = case_run::speculates(mode);
    let faults = Faults { keep_shadows: !speculate, ..faults };
    let command = Command { program: program.into(), args: args.iter().map(Into::into).collect() };
    let options = Options { require: true, speculate, faults, ..Options::default() };
    match runahead_supervisor::run(&command, &options, |why| eprintln!("natively: {why}")) {
        Ok((Ended::Exited(status), _)) => ExitCode::from(status as u8),
        Ok((Ended::Signaled(signal), _)) => ExitCode::from(128 + signal as u8),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(125)
        }
    }
}

fn mirrored() -> Without {
    Without { copies: true, ..Without::default() }
}

fn suite(dir: &Path, program: &str, cold: &Path) -> ExitCode {
    let world = test_world::World::build(dir);
    let mut rounds = case_run::CaseEnvironment::new(&world, program, cold);
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the list of cases");
        let (mode, case) = line.split_once(' ').expect("MODE CASE");
        let round = rounds.round(mode, case);
        let mut out = std::io::stdout().lock();
        writeln!(out, "{mode}\t{case}\t{round}").and_then(|()| out.flush()).expect("a reader");
        if !round.changed.is_empty() {
            return ExitCode::from(SPENT);
        }
    }
    ExitCode::SUCCESS
}
