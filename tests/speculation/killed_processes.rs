//! `kill -9` at random moments: of a process that speculates, of its settler, of the service that
//! both ask, and of the supervisor.
//!
//! The others end by themselves. A file and a pipe contain a prefix of what a run without
//! speculation writes. `RUNAHEAD_FULL=1` runs it a thousand times.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use runahead_tests::{Run, Seed, apart, bindings, drain, processes, programs, scratch};

/// The process that is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Whom {
    Nobody,
    Client,
    Receiver,
    Service,
    Supervisor,
}

/// Arguments of the client: questions, microseconds between them, and right predictions per
/// hundred.
const WORK: [&str; 3] = ["1500", "20", "60"];
/// Microseconds until the service answers.
const LATENCY: &str = "150";
/// Latest moment of the kill; a run takes about as long.
const LATEST_US: u64 = 700_000;

/// Programs that only this test runs, and their working directory.
struct Place {
    dir: PathBuf,
    client: PathBuf,
    service: PathBuf,
}

/// Result of a run.
#[derive(Debug)]
struct Seen {
    /// True if a process existed that could be killed.
    killed: bool,
    /// Exit status of runahead.
    status: ExitStatus,
    piped: String,
    filed: String,
    complaints: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = scratch().join(name);
        std::fs::create_dir(&dir).expect("the scratch directory is ours");
        let (client, service) = (dir.join("client"), dir.join("service"));
        bindings::compile_speculating(&programs::source("killed_client"), &client);
        let source = bindings::workspace().join("examples/speculate/service.c");
        bindings::compile_speculating(&source, &service);
        Place { dir, client, service }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    fn start_service(&self) -> Child {
        let mut command = Command::new(&self.service);
        command.arg(self.socket()).arg(LATENCY).stdin(Stdio::null());
        let service = command.spawn().expect("the service starts");
        let listens = || {
            const LISTENING: &str = "00010000";
            let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
            let (name, mut lines) = (self.socket().display().to_string(), sockets.lines());
            lines.any(|line| line.ends_with(&name) && line.contains(LISTENING))
        };
        assert!(processes::eventually(listens), "the service does not listen");
        service
    }

    fn run(&self) -> Run {
        let [client, socket] =
            [&self.client, &self.socket()].map(|path| path.as_os_str().to_owned());
        let arguments = WORK.map(Into::into);
        Run::new([client, socket].into_iter().chain(arguments))
            .env("KILLED_FILE", self.dir.join("file"))
    }

    /// The client and its receiver, as far as they are there.
    fn find(&self, whom: Whom, supervisor: i32) -> Option<i32> {
        let running = processes::running(&self.client);
        let child_of = |parent: i32| {
            running.iter().copied().find(|pid| processes::parent(*pid) == Some(parent))
        };
        match whom {
            Whom::Client => child_of(supervisor),
            Whom::Receiver => child_of(child_of(supervisor)?),
            _ => None,
        }
    }

    /// Runs `run` once and kills `whom` after `delay`.
    fn disturbed(&self, run: &Run, whom: Whom, delay: Duration) -> Seen {
        let mut service = self.start_service();
        let mut child = run.command().spawn().expect("it starts");
        let supervisor = child.id() as i32;
        let (piped, complaints) = (
            drain(child.stdout.take().expect("a pipe")),
            drain(child.stderr.take().expect("a pipe")),
        );
        std::thread::sleep(delay);
        let victim = match whom {
            Whom::Nobody => None,
            Whom::Service => Some(service.id() as i32),
            Whom::Supervisor => Some(supervisor),
            Whom::Client | Whom::Receiver => self.find(whom, supervisor),
        };
        // Our own children remain until they are waited for.
        let killed = victim.is_some_and(|pid| {
            let is_there = !matches!(processes::state(pid), None | Some('Z'));
            is_there && processes::kill(pid, libc::SIGKILL)
        });
        let mut ended = None;
        let is_over = processes::eventually(|| {
            ended = ended.or_else(|| child.try_wait().expect("a child of ours"));
            ended.is_some() && processes::running(&self.client).is_empty()
        });
        let who = || processes::describe(supervisor);
        assert!(is_over, "{whom:?} after {delay:?}: {ended:?}, and there are still:\n{}", who());
        // A service without any client waits for the first.
        if self.socket().exists() {
            processes::kill(service.id() as i32, libc::SIGKILL);
        }
        let is_over = processes::eventually(|| service.try_wait().expect("ours").is_some());
        assert!(is_over, "{whom:?} after {delay:?}: the service still has a client");
        let _ = std::fs::remove_file(self.socket());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let patience = Duration::from_secs(5);
        let all = |pipe: std::sync::mpsc::Receiver<Vec<u8>>| {
            text(pipe.recv_timeout(patience).expect("no writer is left"))
        };
        let file = self.dir.join("file");
        let filed = text(std::fs::read(&file).unwrap_or_default());
        let _ = std::fs::remove_file(file);
        let (piped, complaints) = (all(piped), all(complaints));
        Seen { killed, status: ended.expect("it has ended"), piped, filed, complaints }
    }

    /// Output of a run without speculation.
    fn expected(&self) -> String {
        let seen = self.disturbed(&self.run(), Whom::Nobody, Duration::ZERO);
        assert!(seen.status.success() && seen.piped == seen.filed, "{seen:?}");
        seen.piped
    }
}

impl Drop for Place {
    /// Ends what a failed test has left.
    fn drop(&mut self) {
        for program in [&self.client, &self.service] {
            for pid in processes::running(program) {
                processes::kill(pid, libc::SIGKILL);
            }
        }
    }
}

/// Describes the fault of a result.
fn wrong(seen: &Seen, whom: Whom, expected: &str) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    for (what, text) in [("pipe", &seen.piped), ("file", &seen.filed)] {
        if !expected.starts_with(text.as_str()) {
            return Some(format!("what went to the {what} never was"));
        }
    }
    let is_whole = seen.piped == expected && seen.filed == expected;
    // A shell reports a command that a signal ended in this way.
    let signal = seen.status.signal().or_else(|| seen.status.code().map(|code| code - 128));
    let as_it_should = match whom {
        _ if !seen.killed => seen.status.success() && is_whole,
        Whom::Nobody => false,
        Whom::Client => signal == Some(libc::SIGKILL),
        // The client goes on by itself, if it had begun.
        Whom::Supervisor => signal == Some(libc::SIGKILL) && (is_whole || seen.filed.is_empty()),
        Whom::Receiver | Whom::Service => match seen.status.code() {
            Some(0) => is_whole,
            // It says why: the service has gone, or was never there.
            Some(1) => !seen.complaints.is_empty(),
            _ => signal == Some(libc::SIGPIPE),
        },
    };
    (!as_it_should).then(|| "it ended in another way than without us".into())
}

fn speculating(run: &Run) -> Run {
    run.ahead(&["--require", "--speculate"])
}

#[test]
fn kills_leave_no_process_and_no_speculative_output() {
    let _apart = apart();
    let place = Place::new("kill");
    let times = if runahead_tests::full() { 1000 } else { 100 };
    let (expected, run) = (place.expected(), speculating(&place.run()));
    let mut seed = Seed::new();
    let all = [Whom::Client, Whom::Receiver, Whom::Service, Whom::Supervisor];
    let (mut killed, mut whole) = ([0; 4], [0; 4]);
    for iteration in 0..times {
        let which = seed.below(4) as usize;
        let (whom, delay) = (all[which], Duration::from_micros(seed.below(LATEST_US)));
        let seen = place.disturbed(&run, whom, delay);
        killed[which] += u32::from(seen.killed);
        whole[which] += u32::from(seen.piped == expected);
        if let Some(why) = wrong(&seen, whom, &expected) {
            panic!("{iteration}, {whom:?} after {delay:?}: {why}: {seen:#?}");
        }
    }
    eprintln!("killed, of {all:?}: {killed:?} of {times} times; {whole:?} wrote everything");
    assert!(killed.iter().all(|count| *count > 0), "a process never existed: {killed:?}");
}

/// An undisturbed run writes what it writes without runahead.
#[test]
fn an_undisturbed_client_writes_the_same() {
    let _apart = apart();
    let place = Place::new("undisturbed");
    let seen = place.disturbed(&speculating(&place.run()), Whom::Nobody, Duration::ZERO);
    assert_eq!(wrong(&seen, Whom::Nobody, &place.expected()), None, "{seen:#?}");
}

/// The plant: output that depends on what is only predicted, and goes out.
#[test]
fn planted_speculative_output_is_detected() {
    let _apart = apart();
    let place = Place::new("planted");
    let expected = place.expected();
    let run = speculating(&place.run().env("KILLED_LETS_OUT", "1"));
    let mut seed = Seed::new();
    let found = (0..10).any(|_| {
        let delay = Duration::from_micros(LATEST_US / 2 + seed.below(LATEST_US / 2));
        let seen = place.disturbed(&run, Whom::Client, delay);
        wrong(&seen, Whom::Client, &expected).is_some_and(|why| why.contains("never was"))
    });
    assert!(found, "ten runs that let out what they predict, and nothing was found");
}
