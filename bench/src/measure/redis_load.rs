//! Redis under its own benchmark.
//!
//! Invariant: the server, with all that is put in front of it, has one processor and the benchmark
//! another, if there are two. What the server holds in the end is compared, too.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use runahead_harness::{last_line, require_program};

use crate::data::allowed_processors;
use crate::data::job::{Job, set_environment};
use crate::error::{Error, Failure};
use crate::measure::run_outcome::{Outcome, digest};
use crate::measure::running_command::Runner;
use crate::report::run_report::Kind;
use crate::rows::tree_commands::REDIS_SOCKET;

/// Time in which the server answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// The key that redis-benchmark sets and gets.
const KEY: &str = "key:__rand_int__";

/// Load that the benchmark makes.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests of each kind.
    pub requests: u64,
    /// Requests that are sent before an answer is waited for.
    pub pipeline: u32,
}

/// Runs the server `job`, puts `load` on it, and ends it. The figure is requests per second.
pub fn serve(
    runner: &Runner,
    job: &Job,
    kind: Kind,
    prefix: &[OsString],
    load: Load,
) -> Result<Outcome, Error> {
    let (server_cpu, benchmark_cpu) = allowed_processors::two_processors();
    let socket = job.cwd.join(REDIS_SOCKET);
    let mut running = runner.start(job, kind, &[pinned(server_cpu)?, prefix.to_vec()].concat())?;
    let mut connection = running.until(|| Connection::open(&socket))?;
    let rates = benchmark(&socket, benchmark_cpu, load)?;
    let held = [connection.ask("DBSIZE")?, connection.ask(&format!("GET {KEY}"))?].join(" ");
    connection.say("SHUTDOWN NOSAVE")?;
    let files = running.files().clone();
    let mut outcome = running.finish(job)?;
    let mut file = OpenOptions::new()
        .append(true)
        .open(&files.stdout)
        .map_err(Error::system("open", &files.stdout))?;
    writeln!(file, "{held}").map_err(Error::system("write", &files.stdout))?;
    outcome.stdout = digest(&files.stdout)?;
    // All requests over all time.
    let seconds_each: f64 = rates.iter().map(|(_, rate)| 1.0 / rate).sum();
    outcome.figure = Some(rates.len() as f64 / seconds_each);
    outcome.more =
        rates.into_iter().map(|(name, rate)| (format!("{name} per second"), rate)).collect();
    Ok(outcome)
}

/// Words that execute what follows them on one processor.
fn pinned(processor: Option<usize>) -> Result<Vec<OsString>, Error> {
    let Some(processor) = processor else { return Ok(Vec::new()) };
    let taskset = require_program("taskset", "util-linux")?;
    Ok(vec![taskset.into(), "-c".into(), processor.to_string().into()])
}

fn benchmark(
    socket: &Path,
    processor: Option<usize>,
    load: Load,
) -> Result<Vec<(String, f64)>, Error> {
    let program = require_program("redis-benchmark", "redis-tools")?;
    let words = [pinned(processor)?, vec![program.into()]].concat();
    let (requests, pipeline) = (load.requests.to_string(), load.pipeline.to_string());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["-t", "set,get", "-c", "50", "--csv", "-n", &requests, "-P", &pipeline, "-s"])
        .arg(socket);
    set_environment(&mut command);
    let output = command.output().map_err(Error::system("run", "redis-benchmark"))?;
    let rates = parse(&String::from_utf8_lossy(&output.stdout));
    if output.status.success() && rates.len() == 2 {
        return Ok(rates);
    }
    let last = last_line(&output.stderr);
    // It has nothing else to fail on than the server.
    Err(Failure::Server(format!("redis-benchmark: {}: {last}", output.status)).into())
}

/// Returns name and requests per second of each line of `"SET","1234.5",...`.
fn parse(csv: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        let mut fields = line.split(',').map(|field| field.trim_matches('"'));
        Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
    };
    // The headings have no number.
    csv.lines().filter_map(line).collect()
}

struct Connection(BufReader<UnixStream>);

impl Connection {
    /// Connects to a server that answers.
    fn open(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut connection = Self(BufReader::new(stream));
        (connection.ask("PING").ok()? == "+PONG").then_some(connection)
    }

    fn say(&mut self, what: &str) -> Result<(), Error> {
        let lost = |e: std::io::Error| Failure::Server(e.to_string());
        Ok(self.0.get_mut().write_all(format!("{what}\r\n").as_bytes()).map_err(lost)?)
    }

    /// Returns the answer as it comes; of a string its length and value.
    fn ask(&mut self, what: &str) -> Result<String, Error> {
        self.say(what)?;
        let first = self.line()?;
        match first.starts_with('$') && first != "$-1" {
            true => Ok(format!("{first} {}", self.line()?)),
            false => Ok(first),
        }
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(|e| Failure::Server(e.to_string()))?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(Failure::Server("the connection ended".to_owned()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn rates_are_read() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"80000.50\",\"0.3\"\n\"GET\",\"90000\",\"0.2\"\n";
        assert_eq!(parse(csv), [("SET".to_owned(), 80000.5), ("GET".to_owned(), 90000.0)]);
    }

    #[test]
    fn a_server_that_goes_away_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for (question, answer) in [("PING", "+PONG\r\n"), ("GET a", "$3\r\nxxx\r\n")] {
                let mut asked = vec![0; question.len() + 2];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut connection = Connection::open(&path).unwrap();
        assert_eq!(connection.ask("GET a").unwrap(), "$3 xxx");
        server.join().unwrap();
        assert!(connection.ask("GET a").is_err());
    }
}
