//! Runs a command to its end and collects everything that its user can see.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Long enough for any command here, many times over.
const PATIENCE: Duration = Duration::from_secs(30);

/// End of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this status.
    Exit(i32),
    /// This signal killed it.
    Signal(i32),
    /// It did not end within half a minute.
    Hung,
    /// It ended, but something still held its output open seconds later.
    Held,
}

/// Visible result of a command.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// End of the command.
    pub end: End,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// Its output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its complaints as text.
    pub fn complaints(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3000;
        let cut = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
            if bytes.len() > SHOWN { format!("{text}... ({} bytes)", bytes.len()) } else { text }
        };
        write!(
            f,
            "{:?}\n--- stdout\n{}\n--- stderr\n{}\n---",
            self.end,
            cut(&self.stdout),
            cut(&self.stderr)
        )
    }
}

/// Placeholder for [`Run::ahead`]: no option about history, as by default.
pub const LEARNING: &str = "(as by default)";

/// Name of the variable that gives `--without` to all runs: with `copies`, for example, all
/// shadows get large memory as they touch it.
const WITHOUT: &str = "RUNAHEAD_WITHOUT";

/// A command to run.
#[derive(Debug, Clone)]
pub struct Run {
    argv: Vec<OsString>,
    dir: PathBuf,
    env: Vec<(OsString, OsString)>,
    stdin: Option<Vec<u8>>,
}

impl Run {
    /// Runs `argv[0]` in `/` with no input.
    pub fn new(argv: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let argv = argv.into_iter().map(|a| a.as_ref().to_owned()).collect();
        Run { argv, dir: "/".into(), env: Vec::new(), stdin: None }
    }

    /// Returns the command behind `runahead run OPTIONS --`. It uses no history unless an option
    /// is about that, so that shadows do the same each time.
    pub fn ahead(&self, options: &[&str]) -> Self {
        let mut argv: Vec<OsString> = vec![crate::runahead_for(options).into(), "run".into()];
        let about_history = ["--learn", "--record", "--replay", "--no-learn", LEARNING];
        if !options.iter().any(|option| about_history.iter().any(|name| option.starts_with(name))) {
            argv.push("--no-learn".into());
        }
        if let Some(what) = std::env::var_os(WITHOUT) {
            argv.extend(["--without".into(), what]);
        }
        argv.extend(options.iter().filter(|option| **option != LEARNING).map(OsString::from));
        argv.push("--".into());
        argv.extend(self.argv.iter().cloned());
        Run { argv, ..self.clone() }
    }

    /// Returns the command behind another one.
    pub fn behind<'a>(&self, other: impl IntoIterator<Item = &'a OsStr>) -> Self {
        let other = other.into_iter().map(OsStr::to_owned);
        Run { argv: other.chain(self.argv.iter().cloned()).collect(), ..self.clone() }
    }

    /// Sets the working directory.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Gives it these bytes as input, through a pipe.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Returns the command, not yet started. It leads a process group of its own, as a shell's job
    /// does.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).current_dir(&self.dir).env("LC_ALL", "C");
        command.envs(self.env.iter().map(|(n, v)| (n, v))).process_group(0);
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let heed = || {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                // SAFETY: concerns the new process only.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // Tests that a script started in the background ignore these signals, and their children
        // would too.
        // SAFETY: signal(2) may be called after a fork.
        unsafe { command.pre_exec(heed) };
        command
    }

    /// Runs it.
    pub fn run(&self) -> Outcome {
        self.finish(self.command())
    }

    /// Runs `command`, which [`Run::command`] made and the caller has changed.
    pub fn finish(&self, mut command: Command) -> Outcome {
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{self}: {e}"));
        if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), self.stdin.clone()) {
            // It may end without reading all of it.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        collect(child)
    }
}

/// The command line, to be pasted into a shell.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cd {};", self.dir.display())?;
        for (name, value) in &self.env {
            write!(f, " {}={:?}", name.display(), value.display().to_string())?;
        }
        self.argv.iter().try_for_each(|arg| write!(f, " {:?}", arg.display().to_string()))
    }
}

/// Collects what a started command does until its end.
pub(crate) fn collect(mut child: Child) -> Outcome {
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    let give_up = Instant::now() + PATIENCE;
    let end = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => {
                break status
                    .code()
                    .map_or_else(|| End::Signal(status.signal().unwrap_or(0)), End::Exit);
            }
            None if Instant::now() > give_up => {
                eprintln!("it does not end:\n{}", crate::processes::describe(child.id() as i32));
                crate::processes::kill(-(child.id() as i32), libc::SIGKILL);
                let _ = child.wait();
                break End::Hung;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut held = false;
    let mut take = |pipe: Option<Receiver<Vec<u8>>>| match pipe
        .map(|p| p.recv_timeout(Duration::from_secs(5)))
    {
        Some(Ok(bytes)) => bytes,
        Some(Err(_)) => {
            held = true;
            Vec::new()
        }
        None => Vec::new(),
    };
    let (stdout, stderr) = (take(stdout), take(stderr));
    let end = if held && end != End::Hung { End::Held } else { end };
    Outcome { end, stdout, stderr }
}

/// Reads a pipe to its end, on the side; the bytes come when it has been seen.
pub fn drain(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}
