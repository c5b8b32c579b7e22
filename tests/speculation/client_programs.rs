//! Programs that speculate by themselves: the clients of `examples/speculate`, in C, Rust and
//! Python. They print and return the same as without runahead, for right and wrong predictions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use runahead_tests::processes::{self, eventually};
use runahead_tests::{
    End, Link, Outcome, Run, apart, available, bindings, drain, installed, kernel_facilities,
    programs, scratch,
};

/// Longer than any test.
const NEVER_US: &str = "600000000";

/// Folder of the examples.
fn example(name: &str) -> PathBuf {
    bindings::workspace().join("examples/speculate").join(name)
}

/// The service, which waits for its client.
struct Service {
    socket: PathBuf,
    process: Child,
}

impl Service {
    fn start(latency_us: &str) -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let program =
            PROGRAM.get_or_init(|| bindings::compile(&example("service.c"), &[], Link::Static));
        let directory = tempfile::tempdir_in(scratch()).expect("the directory is ours").keep();
        let socket = directory.join("socket");
        let mut command = Command::new(program);
        let command = command.arg(&socket).arg(latency_us).stdout(Stdio::piped());
        let process = command.spawn().expect("it was just compiled");
        let pid = process.id() as i32;
        // Once it has its name it sleeps first when it accepts.
        let is_there = || socket.exists() && processes::state(pid) == Some('S');
        assert!(eventually(is_there), "the service does not start");
        Service { socket, process }
    }

    /// The arguments of a client that asks it.
    fn asked(&self, args: [&str; 3]) -> impl Iterator<Item = OsString> {
        [self.socket.clone().into()].into_iter().chain(args.map(OsString::from))
    }

    /// Waits for the service to end. Returns the number of questions, and of simultaneous ones;
    /// `None` if it was killed.
    fn end(mut self) -> Option<[u64; 2]> {
        let text = drain(self.process.stdout.take().expect("a pipe"));
        assert!(
            eventually(|| self.process.try_wait().is_ok_and(|status| status.is_some())),
            "the service has a client"
        );
        let text = text.recv().expect("it has ended");
        let text = String::from_utf8(text).expect("words");
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[questions, "questions,", "at", "most", most, "at", "once"] = &words[..] else {
            assert_eq!(text, "");
            return None;
        };
        Some([questions, most].map(|word| word.parse().expect("a number")))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A test that failed left it running.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The clients, as their command lines begin.
fn clients() -> Vec<Vec<OsString>> {
    static CLIENTS: OnceLock<Vec<Vec<OsString>>> = OnceLock::new();
    let find = || {
        let mut clients: Vec<Vec<OsString>> = programs::BOTH
            .map(|link| bindings::compile(&example("client.c"), &["speculate"], link))
            .map(|client| vec![client.into()])
            .into();
        clients.push(vec![bindings::example("runahead-client", "client").into()]);
        if available(installed("python3")).is_some() {
            clients.push(vec![bindings::interpreter().into(), example("client.py").into()]);
        }
        clients
    };
    CLIENTS.get_or_init(find).clone()
}

/// A client with these arguments, and its command line.
fn run(client: &[OsString], args: impl IntoIterator<Item = OsString>) -> (Run, Vec<OsString>) {
    let argv: Vec<OsString> = client.iter().cloned().chain(args).collect();
    let run = bindings::python(Run::new(&argv)).env("LD_LIBRARY_PATH", bindings::library_path());
    (run, argv)
}

/// Returns the command, behind runahead if it `speculates`.
fn either_way(run: &Run, speculates: bool) -> Run {
    if speculates { run.ahead(&["--speculate", "--require"]) } else { run.clone() }
}

#[test]
fn clients_print_the_same_for_right_and_wrong_predictions() {
    let _apart = apart();
    let mut first: Option<Outcome> = None;
    for client in clients() {
        for percent in ["100", "90", "50"] {
            for speculates in [false, true] {
                let service = Service::start("1000");
                let (run, _) = run(&client, service.asked(["200", "50", percent]));
                let run = either_way(&run, speculates);
                let outcome = run.run();
                let asked = service.end().expect("the service still runs");
                let same = first.get_or_insert_with(|| outcome.clone());
                assert_eq!(same.end, End::Exit(0), "{run}: {same:?}");
                assert_eq!(same.text().lines().count(), 3, "{run}: {same:?}");
                assert_eq!(*same, outcome, "{run}");
                // It did go on before it was answered, and was taken back as often as it had to be.
                let [questions, most] = asked;
                assert!(if speculates { most > 1 } else { most == 1 }, "{run}: {asked:?}");
                let is_often = questions > 200;
                assert_eq!(is_often, speculates && percent != "100", "{run}: {asked:?}");
            }
        }
    }
}

#[test]
fn clients_report_the_same_errors() {
    let _apart = apart();
    let wrong = ["", "nowhere", "nowhere 1 1 1 1", "nowhere x 1 1", "nowhere 1 -1 1"];
    for client in clients() {
        for speculates in [false, true] {
            for (args, complaint, status) in wrong
                .map(|args| (args, "usage: client SOCKET CALLS MICROSECONDS PERCENT", 2))
                .into_iter()
                .chain([("nowhere 1 1 1", "nowhere: No such file or directory", 1)])
            {
                let words = args.split_whitespace().map(OsString::from);
                let (run, _) = run(&client, words);
                let run = either_way(&run, speculates);
                let outcome = run.run();
                let seen = (outcome.end, outcome.text(), outcome.complaints());
                assert_eq!(
                    seen,
                    (End::Exit(status), String::new(), format!("{complaint}\n")),
                    "{run}"
                );
            }
        }
    }
}

/// The process that ends while predictions are open.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Receiver,
    Service,
}

/// The client with that command line and its receiver, once the client only waits.
fn waiting(argv: &[OsString]) -> Option<[i32; 2]> {
    const LOOKS: usize = 20;
    let mut found = None;
    let mut slept = 0;
    let look = || {
        let ours = |pid: i32| processes::command_line(pid) == argv;
        found = processes::all().filter(|&pid| ours(pid)).find_map(|receiver| {
            let client = processes::parent(receiver)?;
            ours(client).then_some([client, receiver])
        });
        let sleeps = |pid: &i32| processes::state(*pid) == Some('S');
        slept = if found.is_some_and(|pids| pids.iter().all(sleeps)) { slept + 1 } else { 0 };
        slept == LOOKS
    };
    if eventually(look) { found } else { None }
}

#[test]
fn clients_end_if_the_service_dies() {
    let _apart = apart();
    for client in clients() {
        for ends in [Ends::Receiver, Ends::Service] {
            for speculates in [false, true] {
                let service = Service::start(NEVER_US);
                let (run, argv) = run(&client, service.asked(["1000000", "50", "100"]));
                let run = either_way(&run, speculates);
                let outcome = std::thread::scope(|scope| {
                    let outcome = scope.spawn(|| run.run());
                    let pids = waiting(&argv);
                    let whom = match (ends, pids) {
                        (Ends::Receiver, Some([_, receiver])) => receiver,
                        // Without a client it must not hang either.
                        _ => service.process.id() as i32,
                    };
                    processes::kill(whom, libc::SIGKILL);
                    assert!(pids.is_some(), "{run}: {:?}", outcome.join());
                    outcome.join().expect("it ends or is ended")
                });
                // As it ends natively.
                let expected = (End::Exit(1), String::new(), "the service has gone\n".to_owned());
                let seen = (outcome.end, outcome.text(), outcome.complaints());
                assert_eq!(seen, expected, "{run}, {ends:?}");
                match service.end() {
                    Some([_, most]) => assert_eq!(most > 1, speculates, "{run}, {ends:?}: {most}"),
                    None => assert_eq!(ends, Ends::Service),
                }
            }
        }
    }
}

#[test]
fn the_python_package_passes_its_tests_with_and_without_runahead() {
    let _apart = apart();
    let Some(()) = available(installed("python3")) else { return };
    let tests = bindings::python_tests("test_speculate.py");
    for run in [tests.clone(), either_way(&tests.env("RUNAHEAD_SPECULATES", "1"), true)] {
        let outcome = run.run();
        assert_eq!(outcome.end, End::Exit(0), "{run}: {outcome:?}");
        assert!(outcome.complaints().contains("Ran 6 tests"), "{outcome:?}");
    }
}

/// Each has what a library without a runtime must bring, and that only once may be in a program.
#[test]
fn a_program_links_with_both_c_libraries() {
    let _apart = apart();
    const TEXT: &str = "#include <runahead_disclose.h>\n#include <runahead_speculate.h>\n\
        int main(void) { uint64_t id; return -runahead_spec_begin(&id, 0) + runahead_cancel_all(); }\n";
    let source = scratch().join("both.c");
    std::fs::write(&source, TEXT).expect("the directory is ours");
    for link in programs::BOTH {
        let program = bindings::compile(&source, &["disclose", "speculate"], link);
        let run = Run::new([program]).env("LD_LIBRARY_PATH", bindings::library_path());
        assert_eq!(run.run().end, End::Exit(libc::EBADF), "{run}");
    }
}

/// Held output, restored state, order, threads, and settlers that end, as the program and another
/// process see them.
#[test]
fn outcomes_are_as_predicted_for_program_and_observer() {
    let _apart = apart();
    let source = programs::source("predicted_outcomes");
    let program = bindings::compile(&source, &["speculate"], Link::Static);
    let directory = tempfile::tempdir_in(scratch()).expect("the directory is ours");
    let run = Run::new([program]).dir(directory.path());
    let plain = run.run();
    assert_eq!((plain.text().as_str(), plain.complaints().as_str()), ("no session\n", ""));
    let ours = run.ahead(&["--speculate"]).run();
    assert_eq!((ours.text().as_str(), ours.complaints().as_str()), ("as it should be\n", ""));
}

/// Processes that read what another has only said so far, and children that may never have been.
#[test]
fn dependent_processes_are_rolled_back() {
    let _apart = apart();
    let source = programs::source("pipe_dependents");
    let program = bindings::compile(&source, &["speculate"], Link::Static);
    let program = program.to_str().expect("a plain path");
    for by in ["pipes", "sockets"] {
        for [lines, wrong_in, us] in [["40", "0", "5000"], ["40", "3", "5000"], ["60", "1", "200"]]
        {
            let run = Run::new([program, lines, wrong_in, us, by]);
            let (plain, ours) = (run.run(), run.ahead(&["--speculate"]).run());
            assert_eq!(plain, ours, "{lines} {wrong_in} {us} {by}");
        }
        let run = Run::new([program, "40", "0", "5000", by]);
        let told = run.ahead(&["--speculate", "--stats"]).run();
        let depended = told.complaints().lines().find_map(|line| {
            let (_, rest) = line.split_once("refused; ")?;
            rest.split(' ').next()?.parse::<u32>().ok()
        });
        assert!(depended.is_some_and(|times| times > 10), "{depended:?} of {told:?}");
    }
}

/// Stores and calls of which the kernel cannot know when memory is protected by mprotect(2).
#[test]
fn memory_is_restored_where_stores_fault() {
    let _apart = apart();
    let source = programs::source("predicted_stores");
    let program = bindings::compile(&source, &["speculate"], Link::Dynamic);
    let run = Run::new([program]).env("LD_LIBRARY_PATH", bindings::library_path());
    let plain = run.run();
    assert_eq!((plain.text().as_str(), plain.complaints().as_str()), ("no session\n", ""));
    let ours = run.ahead(&["--speculate"]).run();
    assert_eq!((ours.text().as_str(), ours.complaints().as_str()), ("as it should be\n", ""));
}

/// A container refuses userfaultfd(2): memory is copied before the first store.
#[test]
fn clients_speculate_where_userfaultfd_is_refused() {
    let _apart = apart();
    let confine = env!("CARGO_BIN_EXE_confine");
    let tests = [
        "client_programs::clients_print_the_same_for_right_and_wrong_predictions",
        "client_programs::outcomes_are_as_predicted_for_program_and_observer",
        "client_programs::dependent_processes_are_rolled_back",
        "client_programs::memory_is_restored_where_stores_fault",
    ];
    kernel_facilities::without_userfaultfd(confine, &tests);
    let service = Service::start("1000");
    let (run, _) = run(&clients()[0], service.asked(["100", "50", "90"]));
    let refused = [confine, "--deny=userfaultfd:EPERM", "--"];
    let run = run.ahead(&["--speculate", "--require", "--stats"]);
    let told = run.behind(refused.map(AsRef::as_ref)).run();
    let is_said = told.complaints().contains("where userfaultfd(2) is refused");
    assert!(is_said, "{told:?}");
}

/// Runs the cases of children that execute other programs with a prediction open.
const EXECUTED: [&[&str]; 8] = [
    &["sh", "-c", "echo $ANSWER; /bin/echo two | cat; exit 3"],
    &["bash", "-c", "x=$(/bin/echo $ANSWER); echo $x >&2; exec cat /etc/hostname"],
    &["cat", "/etc/hostname", "/nonexistent"],
    &["env", "-i", "/bin/sh", "-c", "kill -9 $$"],
    &["nonexistent-program"],
    &["/etc/hostname"],
    &["python3", "-c", "import os, sys; print(os.environ['ANSWER']); sys.exit(7)"],
    &["perl", "-e", "print $ENV{ANSWER}; exec 'nonexistent-program' or print ' no'"],
];

fn executes() -> String {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    let compile = || {
        let source = programs::source("predicted_exec");
        let program = bindings::compile(&source, &["speculate"], Link::Static);
        program.to_str().expect("a plain path").to_owned()
    };
    PROGRAM.get_or_init(compile).clone()
}

/// Programs that a child executes depend on what it depends on.
#[test]
fn children_execute_programs_under_a_prediction() {
    let _apart = apart();
    let program = executes();
    for command in EXECUTED.into_iter().filter(|command| !command[0].starts_with("py")) {
        for how in ["fork", "vfork", "spawn"] {
            for wrong in ["0", "1"] {
                let argv = [&program[..], wrong, how].into_iter().chain(command.iter().copied());
                let run = Run::new(argv);
                let (plain, ours) = (run.run(), run.ahead(&["--speculate"]).run());
                assert_eq!(plain, ours, "{run}");
            }
        }
    }
    for wrong in ["0", "1"] {
        let run = Run::new([&program[..], wrong, "fork", &program, "has"]);
        let (plain, ours) = (run.run(), run.ahead(&["--speculate"]).run());
        assert!(plain.text().contains("8 is ignored"), "{plain:?}");
        assert_eq!(plain, ours, "{run}");
    }
}

/// Children are executed before the outcome is known, unless they cannot be followed. A wrong
/// prediction ends them. A child that is killed meanwhile has no part in the outcome.
#[test]
fn programs_start_before_the_outcome_is_known() {
    let _apart = apart();
    let program = executes();
    let seen = |wrong: &str, how: &str| {
        let argv = [&program[..], wrong, how, "sh", "-c", "echo $ANSWER; exit 5"];
        let outcome = Run::new(argv).ahead(&["--speculate"]).run();
        (outcome.text(), outcome.complaints())
    };
    let told = |text: &str, complaints: &str| (text.to_owned(), complaints.to_owned());
    for wrong in ["0", "1"] {
        assert_eq!(seen(wrong, "fork+"), told("42\n1280\n", "a child is sh\n"), "{wrong}");
        assert_eq!(seen(wrong, "fork-o"), told("42\n1280\n", ""), "{wrong}");
        let killed = if wrong == "0" { "9\n" } else { "42\n1280\n" };
        assert_eq!(seen(wrong, "forkk"), told(killed, ""), "{wrong}");
        assert_eq!(seen(wrong, "forkp"), told("", ""), "{wrong}");
    }
}

/// The plant: a program that was executed too early, and lets something out.
#[test]
fn planted_output_before_the_outcome_is_detected() {
    let _apart = apart();
    let program = executes();
    // The process that waits for it has another name for it.
    let other = scratch().join("other");
    std::os::unix::fs::symlink(&program, &other).expect("the directory is ours");
    let other = other.to_str().expect("a plain path");
    let run = Run::new([&program[..], "1", "fork+", other, "says"]);
    let (plain, ours) = (run.run(), run.ahead(&["--speculate"]).run());
    assert_eq!(plain.text(), "420\n");
    assert_ne!(plain, ours, "{run}");
}
