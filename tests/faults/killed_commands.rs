//! The supervisor, a template, a runner or all of them killed at a random moment of a real command.
//!
//! Around the stop at exec, for some 100 µs, the program dies with its supervisor; that is so by
//! intent (ARCHITECTURE.md), and is left out: the moment is one after the command has created
//! `$W/started`. A later exec of the command is such a moment again, so the command that has the
//! supervisor killed does not exec.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use runahead_harness::write_program;
use runahead_tests::{
    Fixture, Link, Outcome, Run, Seed, available, fixture, full, processes, scratch,
};
use runahead_tests::{programs, tree};

use crate::confined_runs::{Failures, Seen, difference, plain};

/// The processes that are killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Whom {
    Supervisor,
    Template,
    Runner,
    Everybody,
}

/// A command that executes a copy of its program, so that its processes can be told from others.
struct Command {
    argv: Vec<String>,
    program: std::path::PathBuf,
    /// It execs other programs after its start.
    execs: bool,
}

fn commands() -> Vec<Command> {
    let copy = |from: &str| {
        let to = scratch().join(format!("killed-{}", from.rsplit('/').next().unwrap_or("it")));
        let bytes = std::fs::read(from).expect("the program is there");
        write_program(&to, bytes, 0o755).expect("the scratch directory is ours");
        to
    };
    let sh = copy("/bin/sh");
    let script = |text: &str| {
        let text = format!(": > $W/started; {text}");
        vec![plain(&sh), "-c".to_owned(), text]
    };
    // All built in: many reads, and no other program.
    let alone = "for f in many/* src/d0/*.c; do read -r line < $f; echo \"$line\"; done; exit 5";
    let starts = "for d in 0 1 3; do grep -c needle src/d$d/*.c; done; cat many/* | cksum > $W/sum; \
                  (exit 7); echo status $?; exit 3";
    let work = programs::program("announced_reads", Link::Static);
    vec![
        Command { argv: script(alone), program: sh.clone(), execs: false },
        Command { argv: script(starts), program: sh.clone(), execs: true },
        Command { argv: vec![plain(&work), "started".into()], program: work, execs: false },
    ]
}

/// Shadows of the command, each with whether it is a template. A template leads a process group,
/// which its runners share. Children of the command itself stay in `group` and are left alone.
fn shadows(command: &Command, group: i32) -> Vec<(i32, bool)> {
    processes::running(&command.program)
        .into_iter()
        // SAFETY: asks for a number.
        .map(|pid| (pid, unsafe { libc::getpgid(pid) }))
        .filter(|&(_, led_by)| led_by != group && led_by != -1)
        .map(|(pid, led_by)| (pid, led_by == pid))
        .collect()
}

/// Kills `whom`. The supervisor leads the process group that the command is in.
fn kill(command: &Command, supervisor: i32, whom: Whom) -> usize {
    let mut killed = 0;
    for (pid, template) in shadows(command, supervisor) {
        let chosen = match whom {
            Whom::Supervisor => false,
            Whom::Template => template,
            Whom::Runner => !template,
            Whom::Everybody => true,
        };
        killed += usize::from(chosen && processes::kill(pid, libc::SIGKILL));
    }
    if matches!(whom, Whom::Supervisor | Whom::Everybody) {
        processes::kill(supervisor, libc::SIGKILL);
    }
    killed
}

/// Runs the command once; returns the shadows that were killed. The exit status is known only if
/// the supervisor survived.
fn disturbed(fixture: &Fixture, command: &Command, whom: Whom, delay: Duration) -> (Seen, usize) {
    fixture.reset();
    let (out, err) = (scratch().join("killed.out"), scratch().join("killed.err"));
    let file = |path: &Path| std::fs::File::create(path).expect("the scratch directory is ours");
    let mut run = Run::new(&command.argv).dir(fixture.dir()).env("W", fixture.work());
    run = run.ahead(&[]);
    let mut started = run.command();
    started.stdout(file(&out)).stderr(file(&err));
    let mut child = started.spawn().expect("runahead starts");
    let mark = fixture.work().join("started");
    assert!(processes::eventually(|| mark.exists()), "{run}: it does not start");
    let supervisor = child.id() as i32;
    std::thread::sleep(delay);
    let killed = kill(command, supervisor, whom);
    let status = child.wait().expect("a child can be waited for");
    let gone = || {
        processes::running(&command.program)
            .into_iter()
            .all(|pid| processes::state(pid).is_none_or(|s| s == 'Z'))
    };
    assert!(processes::eventually(gone), "{run}: something is still there");
    let end = match status.code() {
        Some(code) => runahead_tests::End::Exit(code),
        None => runahead_tests::End::Signal(9),
    };
    let read = |path: &Path| std::fs::read(path).expect("ours");
    let outcome = Outcome { end, stdout: read(&out), stderr: read(&err) };
    (Seen { outcome, files: files(fixture) }, killed)
}

fn files(fixture: &Fixture) -> BTreeMap<std::path::PathBuf, String> {
    tree::snapshot(fixture.work())
}

#[test]
fn kills_at_random_moments_change_no_result() {
    let Some(fixture) = available(fixture()) else { return };
    let commands = commands();
    let mut seed = Seed::new();
    let natively: Vec<Seen> = commands
        .iter()
        .map(|command| {
            fixture.reset();
            let run = Run::new(&command.argv).dir(fixture.dir()).env("W", fixture.work());
            Seen { outcome: run.run(), files: files(&fixture) }
        })
        .collect();
    let (mut killed, mut failures) = (0, Failures::default());
    let runs = if full() { 1000 } else { 40 };
    for number in 0..runs {
        let which = seed.below(commands.len() as u64) as usize;
        let (command, right) = (&commands[which], &natively[which]);
        let everyone = [Whom::Template, Whom::Runner, Whom::Supervisor, Whom::Everybody];
        let whom = everyone[seed.below(if command.execs { 2 } else { 4 }) as usize];
        let delay = Duration::from_micros(seed.below(80_000));
        let (mut seen, shadows) = disturbed(&fixture, command, whom, delay);
        killed += shadows;
        if matches!(whom, Whom::Supervisor | Whom::Everybody) {
            // No supervisor is left to pass the status on.
            seen.outcome.end = right.outcome.end;
        }
        let case = format!("run {number}, command {which}, {whom:?} after {delay:?}");
        failures.note(&case, difference(right, &seen).map_or(Ok(()), Err));
    }
    eprintln!("{runs} runs, {killed} shadows killed");
    assert!(killed > 0, "no shadow was there to be killed");
    failures.none();
}
