//! Runs a command with faults planted in the agent, and says what became of the effects that
//! shadows tried: `plant effects COMMAND...` or `plant panic ACCESS COMMAND...`. Or puts the policy that logs calls in the
//! target's place: `plant logged FILE COMMAND...` writes to the file what it counted ([`Logged`]). Or the one that does to calls
//! what the program asks for: `plant tried COMMAND...`.
//!
//! The last line on stderr is `planted: refused=N done=N syncs=N`.

use std::path::PathBuf;
use std::process::ExitCode;

use runahead_inject::Command;
use runahead_supervisor::{Ended, Faults, Options, Without};
use runahead_tests::counts::Logged;

fn main() -> ExitCode {
    // SAFETY: no handler. (Rust's start ignores it, which the command would inherit.)
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut args = std::env::args_os().skip(1);
    let mut counted = None;
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
        Some("speculated") => {
            counted = Some((room(), PathBuf::from("/dev/null")));
            let seed = args.next().and_then(|n| n.to_str()?.parse().ok());
            let without = Without { unwatched: true, ..Without::default() };
            Faults { speculated: Some(seed.expect("a seed")), without, ..Faults::default() }
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
        if file == std::path::Path::new("/dev/null") {
            let word = |n: usize| u64::from_ne_bytes(tables[8 * n..][..8].try_into().expect("8"));
            let reasons: Vec<_> = (0..256).map(|n| (n, word(6 + n))).filter(|r| r.1 != 0).collect();
            let mean = |n: usize, of: u64| word(n) / of.max(1);
            let (all, ticks) =
                (word(0) + word(1), [(3, word(0) + word(1)), (4, word(0)), (5, word(1))]);
            let [checkpoint, commit, rollback] = ticks.map(|(n, of)| mean(n, of));
            eprintln!(
                "ticks: all={all} checkpoint={checkpoint} commit={commit} rollback={rollback}"
            );
            eprintln!(
                "speculated: committed={} failed={} refused={} {reasons:?}",
                word(0),
                word(1),
                word(2)
            );
        }
        std::fs::write(file, Logged::of_memory(&tables).to_string()).expect("it can be written");
    }
    match ended {
        Ok((ended, stats)) => {
            let (refused, done) = stats.planted;
            eprintln!("planted: refused={refused} done={done} syncs={}", stats.syncs.count);
            match ended {
                Ended::Exited(status) => ExitCode::from(status as u8),
                Ended::Signaled(signal) => ExitCode::from(128 + signal as u8),
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(125)
        }
    }
}

/// Makes the file in which the agents count: room for three tables of 512, and four words (`agent/src/logged.rs`).
fn room() -> PathBuf {
    let path = format!("/dev/shm/runahead-calls-{}", std::process::id());
    std::fs::write(&path, [0u8; 3 * 4096 + 4 * 8]).expect("there is memory");
    path.into()
}

/// A fault that nobody meets shows nothing, so the agent must be in.
fn required() -> Options {
    Options { require: true, ..Options::default() }
}
