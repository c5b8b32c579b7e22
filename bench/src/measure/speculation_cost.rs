//! `runahead-bench speculate`: what speculating costs a process, and what a client of a slow service gains by it.
//!
//! All is measured in one go with the C programs of `bench/programs/speculates.c` and `examples/speculate`; figures are medians of the
//! program's own, or of whole runs. Papers' figures are those of Nightingale 2005, sections 5.1 and 8.
//!
//! Invariant: a client's output is compared with that of a plain run, whatever its predictions.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use runahead_harness::{note, say};

use crate::data::system_programs as sys;
use crate::error::Error;
use crate::measure::bench_run::subject;
use crate::options::Speculate;
use crate::report::machine::Machine;
use crate::report::summary::median;

/// Where the programs' sources lie, and the library is declared.
const SOURCES: [(&str, &str); 3] = [
    ("speculates", "bench/programs/speculates.c"),
    ("service", "examples/speculate/service.c"),
    ("client", "examples/speculate/client.c"),
];
const HEADERS: &str = "bindings/c";

/// Megabytes resident, pages written since the last checkpoint, rounds; what Nightingale 2005 has for a checkpoint (a fork of his kernel's).
const SIZES: [(u32, u32, u32, &str); 6] = [
    (4, 10, 200, "52"),
    (64, 10, 200, "6,300"),
    (64, 1_000, 100, ""),
    (1_024, 10, 100, ""),
    (1_024, 1_000, 50, ""),
    (1_024, 50_000, 10, ""),
];
/// What is asked for: microseconds for checkpoint and commit, few pages written; for rollbacks, by pages; for the held byte; for each of
/// many predictions; a loop's times native; a client's time over the bound.
const ASKED: &str = "Asked for: 100 µs each for checkpoint and commit with few pages written; rollbacks of 10, 1,000 and 50,000 pages in 200, 1,000 and \
     35,000 µs; 1,000 µs from the verdict to the held byte; 100 µs each to begin and to commit one of many; loops of reads, of writes to a pipe and to a \
     file at most 1.3, 1.5 and 1.5 times native; clients within 1.25 of the bound.\n\n";
/// Processes, and predictions that each has open at once.
const MANY: (u32, u32) = (200, 10);
const LOOPS: [(&str, &str); 3] = [
    ("r", "`read` of 8 bytes of a file"),
    ("p", "`write` of 64 bytes to a pipe that a child reads"),
    ("f", "`write` of 256 bytes to a file"),
];
/// What an answer takes, and how many are asked for.
const SERVICES: [(Duration, u32); 4] = [
    (Duration::from_micros(100), 3_000),
    (Duration::from_millis(1), 1_000),
    (Duration::from_millis(10), 300),
    (Duration::from_millis(30), 200),
];
const PERCENTS: [u32; 4] = [100, 99, 90, 50];
/// With this status `speculates` ends if the process cannot go on with a prediction.
const CANNOT: i32 = 3;
/// Between two calls of the client.
const COMPUTES: Duration = Duration::from_micros(200);

struct Bench {
    runahead: PathBuf,
    dir: tempfile::TempDir,
    pairs: usize,
}

/// Measures, and prints the tables. False if outputs differed.
///
/// # Errors
/// What prevented it.
pub fn speculate(options: &Speculate) -> Result<bool, Error> {
    let dir = tempfile::tempdir()
        .map_err(Error::system("create a directory in", &std::env::temp_dir()))?;
    let bench = Bench { runahead: subject(&options.subject)?, dir, pairs: options.pairs };
    bench.compile()?;
    let Machine { cores, processor, kernel, .. } = Machine::this();
    let mut document = format!(
        "# What speculating costs, and what it gains\n\n`make bench ROW=speculate`, on {cores} x {processor}, Linux {kernel}, in \
         one go. {ASKED}"
    );
    if bench.ask(false, &["userfaultfd"])? != [1.0] {
        document += "userfaultfd(2) is refused here: memory is copied before the first store to it (decision 54).\n\n";
    }
    document += &bench.checkpoints()?;
    document += &bench.loops()?;
    let (table, same) = bench.clients()?;
    document += &table;
    say!("{}", document.trim_end());
    if let Some(path) = &options.write_md {
        fs::write(path, &document).map_err(Error::system("write", path))?;
    }
    Ok(same)
}

impl Bench {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn compile(&self) -> Result<(), Error> {
        let cc = sys::require_program("cc", "gcc")?;
        let exe =
            std::env::current_exe().map_err(Error::system("find", Path::new("this program")))?;
        let library = exe.with_file_name("librunahead_speculate.a");
        for (name, source) in SOURCES {
            let output = Command::new(&cc)
                .args(["-O2", "-Wall", "-Wno-unused-result", "-I", HEADERS, "-o"])
                .arg(self.at(name))
                .args([Path::new(source), &library])
                .output()
                .map_err(Error::system("run", &cc))?;
            helped("cc", Path::new(source), &output)?;
        }
        Ok(())
    }

    /// The words that `speculates` prints.
    fn ask(&self, speculates: bool, args: &[&str]) -> Result<Vec<f64>, Error> {
        let program = self.at("speculates");
        let mut command = match speculates {
            true => self.speculating(&program),
            false => Command::new(&program),
        };
        let output = command.args(args).current_dir(self.dir.path()).output();
        let output = output.map_err(Error::system("run", &program))?;
        helped("speculates", &program, &output)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }

    fn speculating(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.runahead);
        command.args(["run", "--speculate", "--"]).arg(program);
        command
    }

    fn checkpoints(&self) -> Result<String, Error> {
        let mut table = String::from(
            "Microseconds, medians. A process with one thread and so much memory, of which random pages, one store each, are written \
             before each checkpoint, and again before it is taken back. (*waits*: what is written is more than may be open.)\n\n\
             | resident, pages written | checkpoint | Nightingale 2005 | commit | rollback |\n|---|---|---|---|---|\n",
        );
        for (megabytes, pages, rounds, paper) in SIZES {
            let words = [megabytes, pages, rounds].map(|word| word.to_string());
            let args: Vec<&str> =
                std::iter::once("checkpoint").chain(words.iter().map(String::as_str)).collect();
            let us = |ns: f64| format!("{:.0}", ns / 1e3);
            let [taken, committed, back] = match self.ask(true, &args) {
                Err(Error::Helper { status, .. }) if status.code() == Some(CANNOT) => {
                    ["waits".to_owned(), String::new(), String::new()]
                }
                took => match took?[..] {
                    [taken, committed, back] => [taken, committed, back].map(us),
                    _ => return Err(self.silent()),
                },
            };
            let line =
                format!("| {megabytes} MB, {pages} | {taken} | {paper} | {committed} | {back} |");
            note!("{line}");
            _ = writeln!(table, "{line}");
        }
        let released = self.ask(true, &["release", "200"])?;
        let &[released] = &released[..] else { return Err(self.silent()) };
        _ = writeln!(
            table,
            "\nFrom the verdict, in another process, to the byte that was held, in a third one's pipe, while the speculative process \
             computes: {:.0} µs.\n",
            released / 1e3
        );
        let (processes, each) = MANY;
        let words = [processes, each].map(|word| word.to_string());
        let took = self.ask(true, &["many", &words[0], &words[1]])?;
        let &[begun, committed] = &took[..] else { return Err(self.silent()) };
        _ = writeln!(
            table,
            "{} predictions open at once, {each} in each of {processes} processes: {:.0} µs to begin one, {:.0} µs to commit one.\n",
            processes * each,
            begun / 1e3,
            committed / 1e3
        );
        Ok(table)
    }

    fn loops(&self) -> Result<String, Error> {
        let mut table = String::from(
            "Nanoseconds a call, medians of 41 times 1,000 (400 to the pipe): natively, in a session that may speculate, and while it does.\n\n\
             | loop | natively | may | speculates | times native |\n|---|---|---|---|---|\n",
        );
        for (what, about) in LOOPS {
            let natively = self.ask(false, &["loop", what])?;
            let ours = self.ask(true, &["loop", what])?;
            let (&[natively, _], &[may, speculates]) = (&natively[..], &ours[..]) else {
                return Err(self.silent());
            };
            let times = speculates / natively;
            let line =
                format!("| {about} | {natively:.0} | {may:.0} | {speculates:.0} | {times:.2} |");
            note!("{line}");
            _ = writeln!(table, "{line}");
        }
        table.push('\n');
        Ok(table)
    }

    fn clients(&self) -> Result<(String, bool), Error> {
        let mut table = format!(
            "A client (`examples/speculate/client.c`) that computes {} µs between two questions, each of which depends on the answer \
             before; medians of {} runs of the whole command, start of runahead included. The bound is what no rollback can beat: all \
             computing, and the wait for each answer that was not as predicted, and for the last.\n\n\
             | an answer takes, questions | right | plain | speculating | times faster | over the bound | same output |\n\
             |---|---|---|---|---|---|---|\n",
            COMPUTES.as_micros(),
            self.pairs
        );
        let mut all_same = true;
        for (latency, questions) in SERVICES {
            for percent in PERCENTS {
                let mut took = [Vec::new(), Vec::new()];
                let mut same = true;
                for _ in 0..self.pairs {
                    let plain = self.client(false, latency, questions, percent)?;
                    let ours = self.client(true, latency, questions, percent)?;
                    same &= plain.1 == ours.1;
                    took[0].push(plain.0);
                    took[1].push(ours.0);
                }
                let [plain, ours] = took.map(|took| median(took.into_iter()).unwrap_or(f64::NAN));
                let bound = bound(latency, questions, percent).as_secs_f64();
                let line = format!(
                    "| {latency:?}, {questions} | {percent} % | {plain:.2} s | {ours:.2} s | {:.1} | {:.2} | {} |",
                    plain / ours,
                    ours / bound,
                    if same { "yes" } else { "**no**" }
                );
                note!("{line}");
                _ = writeln!(table, "{line}");
                all_same &= same;
            }
        }
        Ok((table, all_same))
    }

    /// Seconds, and what it printed and how it ended.
    fn client(
        &self,
        speculates: bool,
        latency: Duration,
        questions: u32,
        percent: u32,
    ) -> Result<(f64, Output), Error> {
        let (service, client, socket) = (self.at("service"), self.at("client"), self.at("socket"));
        let mut serving = Command::new(&service)
            .args([socket.as_os_str(), latency.as_micros().to_string().as_ref()])
            .stdin(Stdio::null())
            .spawn()
            .map(Serving)
            .map_err(Error::system("run", &service))?;
        while !socket.exists() {
            if let Ok(Some(status)) = serving.0.try_wait() {
                let message = "it ended before it was asked".to_owned();
                return Err(Error::Helper { program: "service", status, path: socket, message });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut command =
            if speculates { self.speculating(&client) } else { Command::new(&client) };
        let words = [u64::from(questions), COMPUTES.as_micros() as u64, u64::from(percent)];
        command.arg(&socket).args(words.map(|word| word.to_string())).stdin(Stdio::null());
        let began = Instant::now();
        let output = command.output().map_err(Error::system("run", &client))?;
        Ok((began.elapsed().as_secs_f64(), output))
    }

    fn silent(&self) -> Error {
        let message = "speculates did not print its figures".to_owned();
        Error::NotMade { path: self.at("speculates"), message }
    }
}

/// A service, which is ended with this.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn helped(program: &'static str, path: &Path, output: &Output) -> Result<(), Error> {
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Helper {
            program,
            status: output.status,
            path: path.to_owned(),
            message: sys::last_line(&output.stderr),
        }),
    }
}

/// See the table's text.
fn bound(latency: Duration, questions: u32, percent: u32) -> Duration {
    let wrong = (0..questions).filter(|&question| is_wrong(question, percent)).count() as u32;
    COMPUTES * questions + latency * wrong + latency
}

/// As `predict` in `client.c` has it.
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
