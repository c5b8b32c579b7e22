//! The command line, each option defined once.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Measures commands on slow storage, plain and under runahead, against an oracle.
#[derive(Debug, Parser)]
#[command(
    name = "runahead-bench",
    version,
    after_help = "Exit status: 0 done (rows may miss their target); 1 not possible, or a row \
                  failed; 2 wrong command line; 130 interrupted."
)]
pub struct Cli {
    #[command(subcommand)]
    pub task: Task,
}

/// A task.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Measure rows and print the table (needs root, FUSE, strace and linux-source)
    Run(Run),
    /// Measure costs of speculation to a process, and gains of a client of a slow service (needs a
    /// C compiler)
    Speculate(Speculate),
    /// Measure the cost of a sync, by the memory that the target has (needs root, FUSE and a C
    /// compiler)
    Syncs(Syncs),
    /// Print the names of all rows
    List,
    /// Print the document that belongs to a JSON file of results
    Render {
        /// Written by `run`
        file: PathBuf,
    },
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Rows to measure, or the groups `cold`, `ablation`, `futile`, `warm`, `cost`, `everyday` and
    /// `everyday-STORAGE` (`slow`, `cloud`, `ssd`, `spindle`, `memory`, `busy`, `share`); all but
    /// the everyday rows if not given
    #[arg(long = "row", value_name = "NAME", value_delimiter = ',')]
    pub rows: Vec<String>,

    /// Pairs of cold runs, 0 for the oracle alone [default: 5; quick and everyday: 1]
    #[arg(long)]
    pub pairs: Option<usize>,

    /// Pairs of warm runs [default: 15; quick: 2]
    #[arg(long)]
    pub warm_pairs: Option<usize>,

    /// Runs of the oracle, 0 for none [default: 3; quick: 1]
    #[arg(long)]
    pub oracle_runs: Option<usize>,

    /// Threads of the oracle, instead of what suits each storage
    #[arg(long, value_parser = at_least_one)]
    pub oracle_threads: Option<usize>,

    /// Write BENCHMARKS.json here, and keep outputs that differ
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Write the document here and its JSON beside it; rows not measured now keep their results
    #[arg(long, value_name = "FILE")]
    pub write_md: Option<PathBuf>,

    /// Seconds after which a run has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub timeout: u64,

    /// Few files, little latency, one pair: tests the harness, and the figures mean nothing
    #[arg(long)]
    pub quick: bool,

    /// Mechanisms of runahead that are switched off in all rows, as by its own option of this name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub without: Vec<String>,

    /// The Debian system of the everyday rows, which `scripts/everyday-root` has made
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    #[command(flatten)]
    pub subject: Subject,

    /// Measure only plain and the oracle
    #[arg(long, conflicts_with = "runahead")]
    pub without_runahead: bool,
}

/// Options of `speculate`.
#[derive(Debug, Args)]
pub struct Speculate {
    /// Runs of each client
    #[arg(long, default_value_t = 3)]
    pub pairs: usize,

    /// Write the tables here
    #[arg(long, value_name = "FILE")]
    pub write_md: Option<PathBuf>,

    #[command(flatten)]
    pub subject: Subject,
}

/// Options of `syncs`.
#[derive(Debug, Args)]
pub struct Syncs {
    /// Runs for each size
    #[arg(long, default_value_t = 3)]
    pub pairs: usize,

    /// Mechanisms of runahead that are switched off besides `guesses`, as by its own option of this
    /// name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub without: Vec<String>,

    /// Reads that the target waits for [default: 200; quick: 10]. With few reads, syncs of much
    /// memory do not pay and are not made
    #[arg(long)]
    pub reads: Option<u64>,

    /// Write the table here, every run in a line, to be plotted
    #[arg(long, value_name = "FILE")]
    pub write_csv: Option<PathBuf>,

    /// Little memory, few reads: tests the harness, and the figures mean nothing
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub subject: Subject,
}

/// The program under test.
#[derive(Debug, Args)]
pub struct Subject {
    /// The runahead to use [default: beside this program, else target/release/runahead]
    #[arg(long, value_name = "PATH")]
    pub runahead: Option<PathBuf>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a number of at least 1".into()),
        Ok(n) => Ok(n),
    }
}
