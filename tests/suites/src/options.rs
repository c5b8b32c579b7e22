//! The command line, each option defined once.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use runahead_testbed::unit_parsing::parse_duration;

const EXAMPLES: &str = "\
Examples:
  runahead-suites run --sample 24 --seed 7      24 units of the quick suites, chosen by seed 7
  runahead-suites run --all --budget 2m         of each suite as many units as 2 minutes have room for
  runahead-suites run --all --write-md target/suites.md
  runahead-suites run --suite cpython --unit test_os --unit test_signal
  runahead-suites run --suite bash --suite git --speculate --budget 5m --seed 3
  runahead-suites shell --suite cpython --unit test_os

Exit status: 0 no difference; 1 runahead made a difference; 2 wrong command line; 3 not possible;
4 a suite could not be downloaded or built; 130 interrupted.";

/// Runs other projects' test suites natively and under runahead from cold storage, and compares.
///
/// It needs root (a slow disk, namespaces); the tests themselves run as a user without rights. What
/// is downloaded and built stays in $XDG_CACHE_HOME/runahead/suites.
#[derive(Debug, Parser)]
#[command(name = "runahead-suites", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub task: Task,
}

/// A task.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Run units both ways and compare
    Run(Run),
    /// Download and build suites, without running them
    Prepare {
        /// Suites; all if not given
        #[arg(long = "suite", value_name = "NAME")]
        suites: Vec<String>,
    },
    /// Print suites, and the units of prepared ones
    List {
        /// Suites; all if not given
        #[arg(long = "suite", value_name = "NAME")]
        suites: Vec<String>,
    },
    /// Open a shell in the namespaces of a unit, with a cold slow disk; it prints the unit's
    /// command
    Shell(Shell),
    /// Print the document that belongs to a JSON file of results
    Render {
        /// Written by `run`
        file: PathBuf,
    },
}

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES,
          group = ArgGroup::new("which").required(true).multiple(true).args(["all", "sample", "suites"]))]
pub struct Run {
    /// Every unit of the chosen suites; of all suites if none is chosen
    #[arg(long, conflicts_with_all = ["sample", "units"])]
    pub all: bool,

    /// N units chosen at random, in turn from each chosen suite; if none is chosen, from those that
    /// are quickly prepared. Units known to be slow are left out
    #[arg(long, value_name = "N", conflicts_with_all = ["units", "budget"])]
    pub sample: Option<usize>,

    /// Time for each suite: its units are begun in a random order until this is used up. A unit
    /// that takes longer than this natively is left out
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "units")]
    pub budget: Option<Duration>,

    /// Seed of the choice of `--sample` and `--budget`, and of the predictions of `--speculate`
    /// [default: another one each time, which is printed]
    #[arg(long)]
    pub seed: Option<u64>,

    /// A suite (see `list`); may be repeated
    #[arg(long = "suite", value_name = "NAME")]
    pub suites: Vec<String>,

    /// A unit of the chosen suite; may be repeated; all if not given
    #[arg(long = "unit", value_name = "NAME", requires = "suites")]
    pub units: Vec<String>,

    /// Run natively only: which units pass, and how long they take
    #[arg(long, conflicts_with = "write_md")]
    pub native_only: bool,

    /// Run natively twice instead of natively and ahead: a difference is then not runahead's
    #[arg(long, conflicts_with_all = ["native_only", "write_md"])]
    pub native_twice: bool,

    /// Instead of running ahead, plant right and wrong predictions after calls that the seed picks,
    /// in every process of a unit: they are committed or rolled back, and nothing may differ
    #[arg(long, conflicts_with_all = ["native_only", "native_twice", "write_md"])]
    pub speculate: bool,

    /// Units at a time, each on a slow disk of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub jobs: u8,

    /// Further runs of both kinds of a unit that differs
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub reruns: usize,

    /// Time of one request to the disk
    #[arg(long, value_parser = parse_duration, default_value = "1ms")]
    pub latency: Duration,

    /// Seconds that a native run may take, instead of the suite's own limit; a run under runahead
    /// may take three times what the native one took, and a minute more
    #[arg(long, value_name = "SECONDS")]
    pub limit: Option<u64>,

    /// Keep outputs of units that differ here [default: below the cache, differs/]
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,

    /// Write results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the document here and its JSON beside it; units not run now keep their results if they
    /// were run with the same runahead
    #[arg(long, value_name = "FILE")]
    pub write_md: Option<PathBuf>,

    #[command(flatten)]
    pub subject: Subject,
}

/// Options of `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// The suite
    #[arg(long, value_name = "NAME")]
    pub suite: String,

    /// The unit whose command is shown, and is $UNIT in the shell
    #[arg(long, value_name = "NAME")]
    pub unit: String,

    /// Time of one request to the disk
    #[arg(long, value_parser = parse_duration, default_value = "1ms")]
    pub latency: Duration,

    #[command(flatten)]
    pub subject: Subject,

    /// Run this instead of an interactive shell, as `sh -c` does
    #[arg(long, short = 'c', value_name = "SCRIPT")]
    pub command: Option<String>,
}

/// The program under test.
#[derive(Debug, Args)]
pub struct Subject {
    /// The runahead to use [default: beside this program]
    #[arg(long, value_name = "PATH", env = "RUNAHEAD_BIN")]
    pub runahead: Option<PathBuf>,

    /// The program that plants predictions [default: plant, beside this program]
    #[arg(long, value_name = "PATH")]
    pub plant: Option<PathBuf>,
}
