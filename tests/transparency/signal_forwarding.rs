//! Signals that are sent to runahead reach the command, each once.
//!
//! Each run leads a process group in this process's session. In an orphaned group, as of a test
//! that no shell has started, the kernel would discard SIGTSTP.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use runahead_harness::write_program;
use runahead_tests::processes::{eventually, kill, running, state};
use runahead_tests::{
    End, Link, Run, apart, available, installed, programs, root, runahead, scratch,
};

/// A run that is ended with all its group when the test is over, however that ends.
struct Started {
    child: Child,
    out: PathBuf,
}

impl Started {
    fn new(run: &Run, name: &str) -> Self {
        let out = scratch().join(name);
        let file = File::create(&out).expect("the scratch directory is ours");
        let mut command = run.command();
        command.stdout(file).stderr(Stdio::null());
        Started { child: command.spawn().expect("runahead starts"), out }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    fn wait_for(&self, line: &str) {
        let there = || self.text().lines().any(|l| l == line);
        assert!(eventually(there), "no {line:?} in {:?}", self.text());
    }

    /// Waits for the end, at most 10 s.
    fn end(&mut self) -> End {
        let mut status = None;
        let ended = eventually(|| {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        match status.filter(|_| ended) {
            Some(status) => {
                status.code().map_or(End::Signal(status.signal().unwrap_or(0)), End::Exit)
            }
            None => End::Hung,
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        kill(-self.pid(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Copy of the program that only this test runs.
fn receiver(name: &str) -> PathBuf {
    let path = scratch().join(name);
    let bytes =
        std::fs::read(programs::program("received_signals", Link::Static)).expect("compiled");
    write_program(&path, bytes, 0o755).expect("the scratch directory is ours");
    path
}

/// Ends what a failed test has left.
struct Clean<'a>(&'a Path);

impl Drop for Clean<'_> {
    fn drop(&mut self) {
        running(self.0).into_iter().for_each(|pid| _ = kill(pid, libc::SIGKILL));
    }
}

fn ahead(argv: [&Path; 2]) -> Run {
    Run::new(argv).ahead(&["--require"])
}

fn queue(pid: i32, signal: i32, value: i32) {
    let value = libc::sigval { sival_ptr: value as usize as *mut libc::c_void };
    // SAFETY: a number is sent, and the receiver does not use it as an address.
    let sent = unsafe { libc::sigqueue(pid, signal, value) };
    assert_eq!(sent, 0, "{signal}");
}

#[test]
fn each_signal_is_forwarded_once() {
    let _apart = apart();
    let program = receiver("receives-all");
    let _clean = Clean(&program);
    let mut run = Started::new(&ahead([&program, Path::new("all")]), "received");
    run.wait_for("ready");
    // SIGSYS is ours; 32 and 33 are the C library's; SIGCONT is looked at below.
    let left_out = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCONT, libc::SIGSYS, 32, 33, 64];
    let mut expected = vec!["ready".to_owned()];
    for signal in (1..=64).filter(|signal| !left_out.contains(signal)) {
        let value = if signal >= 34 { signal * 10 } else { -1 };
        match signal {
            34.. => queue(run.pid(), signal, value),
            _ => assert!(kill(run.pid(), signal)),
        }
        expected.push(format!("got {signal} {value}"));
        run.wait_for(expected.last().expect("just pushed"));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(kill(run.pid(), 64));
    expected.push("got 64 -1".into());
    assert_eq!(run.end(), End::Exit(0));
    assert_eq!(run.text().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn signals_at_the_start_are_forwarded() {
    let _apart = apart();
    let program = receiver("receives-early");
    let _clean = Clean(&program);
    for turn in 0..60 {
        let run = ahead([&program, Path::new("quiet")]);
        let mut run = Started::new(&run, "early");
        std::thread::sleep(Duration::from_micros(turn * 70));
        assert!(kill(run.pid(), libc::SIGTERM));
        assert_eq!(run.end(), End::Signal(libc::SIGTERM), "turn {turn}");
        assert!(eventually(|| running(&program).is_empty()), "turn {turn}: it runs on");
    }
}

#[test]
fn signals_of_the_command_to_its_group_arrive_once() {
    let _apart = apart();
    let program = receiver("receives-own");
    let _clean = Clean(&program);
    let run = Run::new([&program, Path::new("group")]);
    let (plain, outcome) = (run.run(), run.ahead(&["--require"]).run());
    assert!(plain.text().ends_with("caught 1\n"), "{plain:?}");
    assert_eq!((outcome.end, outcome.text()), (plain.end, plain.text()));
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let (Some(()), Some(())) = (available(root()), available(installed("unshare"))) else { return };
    let inside = |command: &str| {
        let script = format!("{command} {} broadcast; exit $?", program.display());
        Run::new(unshare.into_iter().chain(["sh", "-c", &script])).run()
    };
    let plain = inside("");
    let Some(()) = available((plain.end == End::Exit(0)).then_some(()).ok_or(format!("{plain:?}")))
    else {
        return;
    };
    let outcome = inside(&format!("{} run --no-learn --require --", runahead().display()));
    assert_eq!((outcome.end, outcome.text()), (plain.end, plain.text()), "{outcome:?}");
}

/// Sends signals to runahead alone, and to the group as a terminal does.
#[test]
fn stopping_runahead_stops_the_command() {
    let _apart = apart();
    let program = receiver("receives-stops");
    let _clean = Clean(&program);
    for whole_group in [false, true] {
        let mut run = Started::new(&ahead([&program, Path::new("quiet")]), "stops");
        run.wait_for("ready");
        let command = running(&program)[0];
        let both = |stopped: bool| {
            let is = |pid| state(pid).map(|letter| letter == 'T');
            eventually(|| [run.pid(), command].into_iter().all(|pid| is(pid) == Some(stopped)))
        };
        let whom = if whole_group { -run.pid() } else { run.pid() };
        for turn in 0..3 {
            assert!(kill(whom, libc::SIGTSTP));
            assert!(both(true), "group: {whole_group}, turn {turn}: not stopped");
            assert!(kill(whom, libc::SIGCONT));
            assert!(both(false), "group: {whole_group}, turn {turn}: not continued");
        }
        assert!(kill(run.pid(), libc::SIGTERM));
        assert_eq!(run.end(), End::Signal(libc::SIGTERM));
    }
}

/// Statistics go to a FIFO without a reader.
#[test]
fn a_signal_after_the_command_ends_runahead() {
    let _apart = apart();
    let fifo = scratch().join("without-reader");
    assert_eq!(Run::new([Path::new("mkfifo"), &fifo]).run().end, End::Exit(0));
    let done = scratch().join("done");
    let option = format!("--stats=json:{}", fifo.display());
    let run = Run::new([Path::new("touch"), &done]).ahead(&[&option]);
    let mut run = Started::new(&run, "after");
    assert!(eventually(|| done.exists()), "the command did nothing");
    // It is collected, and runahead waits for a reader.
    let pid = run.pid();
    assert!(eventually(|| children(pid).is_empty()), "the command has not ended");
    std::thread::sleep(Duration::from_millis(300));
    assert!(kill(pid, libc::SIGTERM));
    assert_eq!(run.end(), End::Signal(libc::SIGTERM));
}

fn children(pid: i32) -> String {
    let mut text = String::new();
    let path = format!("/proc/{pid}/task/{pid}/children");
    let _ = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    text
}
