//! `runahead-bench speculate`: costs of speculation to a process, and gains of a client of a slow
//! service.
//!
//! All is measured in one go with the C programs of `bench/programs/speculation_costs.c` and
//! `examples/speculate`; figures are medians of the program's own, or of whole runs. Papers'
//! figures are those of Nightingale 2005, sections 5.1 and 8.
//!
//! Invariant: a client's output is compared with that of a plain run, whatever its predictions.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use runahead_harness::markdown::{Table, wrapped};
use runahead_harness::{note, require_program, run_helper, say, subject, write_at_once};

use crate::error::Error;
use crate::options::Speculate;
use crate::report::machine::Machine;
use crate::report::row_summary::median;

/// Sources of the programs.
const SOURCES: [(&str, &str); 3] = [
    ("speculates", "bench/programs/speculation_costs.c"),
    ("service", "examples/speculate/service.c"),
    ("client", "examples/speculate/client.c"),
];
/// Directory in which the library is declared.
const HEADERS: &str = "bindings/c";

/// Megabytes resident, pages written since the last checkpoint, rounds, and the microseconds of a
/// checkpoint (a fork of the kernel) in Nightingale 2005.
const SIZES: [(u32, u32, u32, &str); 6] = [
    (4, 10, 200, "52"),
    (64, 10, 200, "6,300"),
    (64, 1_000, 100, ""),
    (1_024, 10, 100, ""),
    (1_024, 1_000, 50, ""),
    (1_024, 50_000, 10, ""),
];
/// Limits on the figures.
const ASKED: &str = "Asked for:

- 100 µs each for checkpoint and commit with few pages written;
- rollbacks of 10, 1,000 and 50,000 pages in 200, 1,000 and 35,000 µs;
- 1,000 µs from the verdict to the held byte;
- 100 µs each to begin and to commit one of many;
- loops of reads, of writes to a pipe and to a file at most 1.3, 1.5 and 1.5 times native;
- clients within 1.25 of the bound.
";
const CHECKPOINTS: &str = "
Medians in microseconds, of a process with one thread and as much memory as the first column says. Random pages, one store each, are written before each
checkpoint, and again before the rollback. *waits*: more was written than may be open.
";
const LOOPS_TEXT: &str = "
Nanoseconds a call, medians of 41 times 1,000 (400 to the pipe): natively, in a session that may speculate, and while it does.
";
/// Processes, and predictions that each has open at once.
const MANY: (u32, u32) = (200, 10);
const LOOPS: [(&str, &str); 3] = [
    ("r", "`read` of 8 bytes of a file"),
    ("p", "`write` of 64 bytes to a pipe that a child reads"),
    ("f", "`write` of 256 bytes to a file"),
];
/// Time of an answer, and the number of questions.
const SERVICES: [(Duration, u32); 4] = [
    (Duration::from_micros(100), 3_000),
    (Duration::from_millis(1), 1_000),
    (Duration::from_millis(10), 300),
    (Duration::from_millis(30), 200),
];
const PERCENTS: [u32; 4] = [100, 99, 90, 50];
/// Exit status of `speculates` if the process cannot continue on a prediction.
const CANNOT: i32 = 3;
/// Time that the client computes between two calls.
const COMPUTES: Duration = Duration::from_micros(200);

struct Bench {
    runahead: PathBuf,
    dir: tempfile::TempDir,
    pairs: usize,
}

/// Measures, and prints the tables. False if outputs differed.
pub fn speculate(options: &Speculate) -> Result<bool, Error> {
    let dir = tempfile::tempdir()
        .map_err(Error::system("create a directory in", &std::env::temp_dir()))?;
    let runahead = subject("runahead", options.subject.runahead.as_deref())?;
    let bench = Bench { runahead, dir, pairs: options.pairs };
    bench.compile()?;
    let Machine { cores, processor, kernel, .. } = Machine::this();
    let mut document = format!(
        "# What speculating costs, and what it gains\n\n{}\n\n{ASKED}",
        wrapped(
            &format!(
                "This document is for those who work on speculation. `make bench ROW=speculate` \
                 measured it in one go, on {cores} x {processor}, Linux {kernel}."
            ),
            ""
        )
    );
    if bench.ask(false, &["userfaultfd"])? != [1.0] {
        document += "\nuserfaultfd(2) is refused here: memory is copied before the first store to it (decision 54).\n";
    }
    document += &bench.checkpoints()?;
    document += &bench.loops()?;
    let (table, same) = bench.clients()?;
    document += &table;
    say!("{}", document.trim_end());
    if let Some(path) = &options.write_md {
        write_at_once(path, &document)?;
    }
    Ok(same)
}

impl Bench {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn compile(&self) -> Result<(), Error> {
        let cc = require_program("cc", "gcc")?;
        let exe =
            std::env::current_exe().map_err(Error::system("find", Path::new("this program")))?;
        let library = exe.with_file_name("librunahead_speculate.a");
        for (name, source) in SOURCES {
            let mut cc = Command::new(&cc);
            cc.args(["-O2", "-Wall", "-Wno-unused-result", "-I", HEADERS, "-o"]);
            run_helper(cc.arg(self.at(name)).args([Path::new(source), &library]))?;
        }
        Ok(())
    }

    /// Returns the numbers that `speculates` prints.
    fn ask(&self, speculates: bool, args: &[&str]) -> Result<Vec<f64>, Error> {
        let mut command = self.program("speculates", speculates);
        let output = run_helper(command.args(args).current_dir(self.dir.path()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }

    /// A program, in a session that may speculate or not.
    fn program(&self, name: &str, speculates: bool) -> Command {
        if !speculates {
            return Command::new(self.at(name));
        }
        let mut command = Command::new(&self.runahead);
        command.args(["run", "--speculate", "--"]).arg(self.at(name));
        command
    }

    fn checkpoints(&self) -> Result<String, Error> {
        let mut table = Table::new([
            "resident, pages written",
            "checkpoint",
            "Nightingale 2005",
            "commit",
            "rollback",
        ]);
        for (megabytes, pages, rounds, paper) in SIZES {
            let words = [megabytes, pages, rounds].map(|word| word.to_string());
            let us = |ns: f64| format!("{:.0}", ns / 1e3);
            let asked = self.ask(true, &["checkpoint", &words[0], &words[1], &words[2]]);
            let [checkpoint, commit, rollback] = match asked {
                Err(Error::Harness(runahead_harness::Error::Helper { status, .. }))
                    if status.code() == Some(CANNOT) =>
                {
                    ["waits".to_owned(), String::new(), String::new()]
                }
                times => match times?[..] {
                    [checkpoint, commit, rollback] => [checkpoint, commit, rollback].map(us),
                    _ => return Err(self.silent()),
                },
            };
            let sizes = format!("{megabytes} MB, {pages}");
            note!(
                "{}",
                table.row([sizes, checkpoint, paper.to_owned(), commit, rollback]).last_line()
            );
        }
        let released = self.ask(true, &["release", "200"])?;
        let &[released] = &released[..] else { return Err(self.silent()) };
        let released = format!(
            "From the verdict, in another process, to the byte that was held, in a third one's pipe, while the speculative process computes: {:.0} µs.",
            released / 1e3
        );
        let (processes, each) = MANY;
        let words = [processes, each].map(|word| word.to_string());
        let times = self.ask(true, &["many", &words[0], &words[1]])?;
        let &[begun, committed] = &times[..] else { return Err(self.silent()) };
        let many = format!(
            "{} predictions open at once, {each} in each of {processes} processes: {:.0} µs to begin one, {:.0} µs to commit one.",
            processes * each,
            begun / 1e3,
            committed / 1e3
        );
        Ok(format!("{CHECKPOINTS}\n{}\n{}\n\n{many}\n", table.markdown(), wrapped(&released, "")))
    }

    fn loops(&self) -> Result<String, Error> {
        let mut table = Table::new(["loop", "natively", "may", "speculates", "times native"]);
        for (what, about) in LOOPS {
            let natively = self.ask(false, &["loop", what])?;
            let ours = self.ask(true, &["loop", what])?;
            let (&[natively, _], &[may, speculates]) = (&natively[..], &ours[..]) else {
                return Err(self.silent());
            };
            let times = [natively, may, speculates].map(|ns| format!("{ns:.0}"));
            let [natively_text, may, speculates_text] = times;
            let ratio = format!("{:.2}", speculates / natively);
            let about = about.to_owned();
            note!("{}", table.row([about, natively_text, may, speculates_text, ratio]).last_line());
        }
        Ok(format!("{LOOPS_TEXT}\n{}", table.markdown()))
    }

    fn clients(&self) -> Result<(String, bool), Error> {
        let text = format!(
            "A client (`examples/speculate/client.c`) computes {} µs between two questions, each of which depends on the \
             answer before. Times are medians of {} runs of the whole command, start of runahead included. The bound is \
             what no rollback can beat: all computing, and the wait for the last answer and for each answer that was \
             mispredicted.",
            COMPUTES.as_micros(),
            self.pairs
        );
        let mut table = Table::new([
            "an answer takes, questions",
            "right",
            "plain",
            "speculating",
            "times faster",
            "over the bound",
            "same output",
        ]);
        let mut all_same = true;
        for (latency, questions) in SERVICES {
            for percent in PERCENTS {
                let mut times = [Vec::new(), Vec::new()];
                let mut same = true;
                for _ in 0..self.pairs {
                    let plain = self.client(false, latency, questions, percent)?;
                    let ours = self.client(true, latency, questions, percent)?;
                    same &= plain.1 == ours.1;
                    times[0].push(plain.0);
                    times[1].push(ours.0);
                }
                let [plain, ours] =
                    times.map(|times| median(times.into_iter()).unwrap_or(f64::NAN));
                let bound = bound(latency, questions, percent).as_secs_f64();
                table.row([
                    format!("{latency:?}, {questions}"),
                    format!("{percent} %"),
                    format!("{plain:.2} s"),
                    format!("{ours:.2} s"),
                    format!("{:.1}", plain / ours),
                    format!("{:.2}", ours / bound),
                    if same { "yes" } else { "**no**" }.to_owned(),
                ]);
                note!("{}", table.last_line());
                all_same &= same;
            }
        }
        Ok((format!("\n{}\n\n{}", wrapped(&text, ""), table.markdown()), all_same))
    }

    /// Runs the client; returns its seconds, and its output and end.
    fn client(
        &self,
        speculates: bool,
        latency: Duration,
        questions: u32,
        percent: u32,
    ) -> Result<(f64, Output), Error> {
        let (service, socket) = (self.at("service"), self.at("socket"));
        let mut serving = Command::new(&service)
            .args([socket.as_os_str(), latency.as_micros().to_string().as_ref()])
            .stdin(Stdio::null())
            .spawn()
            .map(RunningService)
            .map_err(Error::system("run", &service))?;
        while !socket.exists() {
            if let Ok(Some(status)) = serving.0.try_wait() {
                let message = format!("the service ended before its first question: {status}");
                return Err(Error::NotMade { path: socket, message });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut command = self.program("client", speculates);
        let words = [u64::from(questions), COMPUTES.as_micros() as u64, u64::from(percent)];
        command.arg(&socket).args(words.map(|word| word.to_string()));
        let began = Instant::now();
        let output = command.output().map_err(Error::system("run", command.get_program()))?;
        Ok((began.elapsed().as_secs_f64(), output))
    }

    fn silent(&self) -> Error {
        let message = "speculates did not print its figures".to_owned();
        Error::NotMade { path: self.at("speculates"), message }
    }
}

/// A service, which ends when this is dropped.
struct RunningService(Child);

impl Drop for RunningService {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Least time of a client: all computing, and the wait for each answer that was not as predicted,
/// and for the last.
fn bound(latency: Duration, questions: u32, percent: u32) -> Duration {
    let wrong = (0..questions).filter(|&question| is_wrong(question, percent)).count() as u32;
    COMPUTES * questions + latency * wrong + latency
}

/// True if the prediction of this answer is wrong, as `predict` in `client.c` has it.
fn is_wrong(question: u32, percent: u32) -> bool {
    let mut number = u64::from(question);
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number ^ number >> 31) % 100 >= u64::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_has_all_computing_and_each_wait_that_cannot_be_hidden() {
        let ms = Duration::from_millis;
        assert_eq!(bound(ms(30), 100, 100), ms(20) + ms(30));
        let wrong = (0..1000).filter(|&question| is_wrong(question, 90)).count();
        assert!((60..140).contains(&wrong), "{wrong}");
        assert_eq!(bound(ms(1), 1000, 90), ms(200) + ms(1) * wrong as u32 + ms(1));
    }
}
