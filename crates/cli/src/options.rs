//! The command line, each option defined once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use runahead_supervisor::Without;

const EXIT_STATUS: &str = "\
Exit status:
  that of COMMAND; if a signal ended it, the same signal ends runahead
  2     usage error
  125   runahead itself failed, or --require kept COMMAND from running
  126   COMMAND cannot be executed
  127   COMMAND was not found";

const TRY_HELP: &str = "\
COMMAND runs at full speed and sees what it changes; nobody else does. Held apart are files, directories, links, permissions
and attributes. Not held apart: what it sends to terminals, networks (see --network) and other programs, and what is done to files that were
open for writing before. Programs with privileges of their own (sudo) run without them, and cannot change anything.

  runahead try -- make            runahead try status            runahead try commit
  runahead try -- ./agent.sh      runahead try diff              runahead try undo
  runahead try --commit-if 'make test' -- sed -i s/a/b/ src/*.c

In COMMAND all of this works too: a try inside it starts from what COMMAND has changed so far, and what is committed there is part of that.

Exit status:
  that of COMMAND; if a signal ended it, the same signal ends runahead
  1     something could not be done with a try
  2     usage error
  3     nothing was committed, as somebody else has changed the same meanwhile, or tries inside are not decided
  125   runahead itself failed, or COMMAND cannot be confined here
  126   COMMAND cannot be executed
  127   COMMAND was not found
With --commit-if: that of COMMAND, or if that is 0, of CHECK; 3 as above, and then the try is kept.";

/// Hides storage latency: a harmless copy of the program runs ahead and what it would read is
/// fetched in parallel.
#[derive(Debug, Parser)]
#[command(name = "runahead", version, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    pub task: Task,
}

impl Cli {
    /// From the command `line` of this process, its name first; a wrong one ends it with the usage and status 2.
    pub fn parse_or_exit(line: impl Iterator<Item = OsString>) -> Self {
        let parsed = Cli::try_parse_from(line).and_then(Cli::checked);
        parsed.unwrap_or_else(|mut error| {
            // Somebody who left out what stands between us and a command.
            if error.kind() == ErrorKind::InvalidSubcommand
                && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
            {
                let tip =
                    format!("to run a command, put `run --` before it: runahead run -- {word}");
                let tips = ContextValue::StyledStrs(vec![tip.into()]);
                error.insert(ContextKind::Suggested, tips);
            }
            // clap leaves the usage out where it is only a value that is wrong.
            if error.use_stderr() && error.get(ContextKind::Usage).is_none() {
                let mut command = Cli::command();
                command.build();
                if let Some(run) = command.find_subcommand_mut("run") {
                    let usage = ContextValue::StyledStr(run.render_usage());
                    error.insert(ContextKind::Usage, usage);
                }
            }
            error.exit()
        })
    }
}

impl Cli {
    /// `--stats json:FILE` has no value, and a command of that name is nobody's.
    fn checked(self) -> Result<Self, clap::Error> {
        let Task::Run(run) = &self.task else { return Ok(self) };
        let first = run.command.first().and_then(|word| word.to_str()).unwrap_or_default();
        if run.stats.is_some() && first.starts_with("json:") {
            let text = format!("`{first}` would be the command: write --stats={first}\n");
            return Err(Cli::command().error(ErrorKind::InvalidValue, text));
        }
        Ok(self)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Run a command, fetching ahead what it will read
    #[command(after_help = EXIT_STATUS)]
    Run(Run),
    /// Run a command, and hold what it changes apart until you commit or undo it
    #[command(after_help = TRY_HELP)]
    Try(Try),
    /// What is remembered of earlier runs
    History(History),
}

/// `runahead try`.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct Try {
    /// Where tries are kept, in place of $XDG_STATE_HOME/runahead/tries or ~/.local/state/runahead/tries. Best on the file
    /// system of what is changed: then a commit renames, and copies nothing
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    #[command(subcommand)]
    pub task: Option<TryTask>,
    #[command(flatten)]
    pub run: TryRun,
}

/// A command that is to be tried.
#[derive(Debug, Args)]
pub struct TryRun {
    /// After COMMAND, run CHECK by /bin/sh where it sees what COMMAND has changed; commit if both exit with 0, undo otherwise
    #[arg(long, value_name = "CHECK")]
    pub commit_if: Option<OsString>,

    /// What COMMAND may reach beside files: sockets of networks and of other programs. What went out cannot be undone
    #[arg(long, value_enum, default_value_t = Network::Allow)]
    pub network: Network,

    /// Run COMMAND also where the kernel cannot keep it from changing files (Landlock, Linux 6.2), so that only the agent does
    #[arg(long)]
    pub unprotected: bool,

    /// Say nothing in the end
    #[arg(long, short)]
    pub quiet: bool,

    /// Run COMMAND in the view of this try, which is being decided
    #[arg(long, hide = true, value_name = "ID")]
    pub inside: Option<String>,

    /// Fault that a test injects
    #[cfg(feature = "fault-injection")]
    #[arg(long, hide = true, value_name = "FAULT", value_parser = ["writes", "unconfined"])]
    pub plant: Vec<String>,

    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What a tried command may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Network {
    /// All that it could without us
    Allow,
    /// Not possible yet
    Hold,
    /// Only what belongs to the try
    Refuse,
}

/// What to do with tries. Without an ID: with the newest.
#[derive(Debug, Subcommand)]
pub enum TryTask {
    /// Which names it would change, and which of them somebody else has changed meanwhile (!)
    Status {
        /// Its name, or as much of it as is unambiguous
        id: Option<String>,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// What it would change, line by line
    Diff {
        /// Its name, or as much of it as is unambiguous
        id: Option<String>,
        /// Which names, and how many lines of each are added and removed, as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make it real, unless somebody else has changed something of it meanwhile (exit status 3)
    Commit {
        /// Its name, or as much of it as is unambiguous
        id: Option<String>,
        /// Also where somebody else has changed something, which is overwritten
        #[arg(long)]
        force: bool,
    },
    /// Drop it, and all that it has changed
    Undo {
        /// Its name, or as much of it as is unambiguous
        id: Option<String>,
    },
    /// List all that are neither committed nor undone, the newest last
    List {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
}

/// `runahead history`.
#[derive(Debug, Args)]
pub struct History {
    #[command(subcommand)]
    pub task: HistoryTask,
}

/// What to do with what is remembered.
#[derive(Debug, Subcommand)]
pub enum HistoryTask {
    /// List the records, the one that was of use last first
    List {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Print what a record holds: each access in its order
    Show {
        /// The record: its name in `runahead history list`, or as much of it as is unambiguous; or the name of a file
        record: OsString,
    },
    /// Remove records
    Forget {
        /// Names in `runahead history list`, or as much of them as is unambiguous
        #[arg(required_unless_present = "all")]
        records: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "records")]
        all: bool,
    },
    /// Remember nothing from now on, and replay nothing
    Disable,
    /// Remember again
    Enable,
    /// Record nothing of what lies in a directory; without one, list those
    Exclude {
        /// The directory
        directory: Option<PathBuf>,
        /// Record it again
        #[arg(long, requires = "directory")]
        undo: bool,
    },
}

/// Options of `runahead run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Say afterwards what was done: on stderr, with --stats=- on stdout, or with --stats=json:FILE as JSON in
    /// FILE (- is stdout)
    #[arg(long, value_name = "json:FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "text")]
    pub stats: Option<Destination>,

    /// Record in FILE what COMMAND reads, to be replayed later
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Fetch from the start what COMMAND read when FILE was recorded, as long as it does the same
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,

    /// Remember what COMMAND reads also where it does not wait for it, and say if that cannot be done
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub learn: bool,

    /// Remember nothing of this run, and fetch nothing because of earlier ones. Otherwise what COMMAND reads once it
    /// has waited for storage is kept below $XDG_STATE_HOME/runahead or ~/.local/state/runahead, 256 MiB at
    /// most (see `runahead history`)
    #[arg(long, conflicts_with = "learn")]
    pub no_learn: bool,

    /// COMMAND speculates by itself, as docs/guide/speculation.md has it: it predicts answers of slow services and goes on, with
    /// its output held until they are confirmed
    #[arg(long, conflicts_with_all = ["record", "replay", "learn"])]
    pub speculate: bool,

    /// Fail (exit status 125) rather than run COMMAND natively when it cannot be helped
    #[arg(long)]
    pub require: bool,

    /// Fault that a test or a measurement injects
    #[cfg(feature = "fault-injection")]
    #[arg(long, hide = true, value_name = "FAULT", value_parser = ["rubbish"])]
    pub plant: Vec<String>,

    /// For tests and measurements: a mechanism that is to be switched off
    #[arg(long, hide = true, value_name = "MECHANISM", value_parser = Without::NAMES)]
    pub without: Vec<String>,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Where statistics go, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// As JSON and not as text.
    pub json: bool,
    pub sink: Sink,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    Stderr,
    /// One that we were started with.
    Descriptor(i32),
    File(PathBuf),
}

/// The descriptor that a name stands for: our own, which is another one, or closed, once the command runs.
fn descriptor(name: &str) -> Option<i32> {
    let number = |dir| name.strip_prefix(dir)?.parse().ok().filter(|&fd: &i32| fd >= 0);
    match name {
        "-" | "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => number("/dev/fd/").or_else(|| number("/proc/self/fd/")),
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (json, name) = match text.strip_prefix("json:") {
            Some("") => return Err("a file name must follow `json:`".into()),
            Some(name) => (true, name),
            None => (false, text),
        };
        let place = match descriptor(name) {
            Some(fd) => Sink::Descriptor(fd),
            None if json => Sink::File(name.into()),
            None if text == "text" => Sink::Stderr,
            None => return Err("give --stats alone, --stats=-, or --stats=json:FILE".into()),
        };
        Ok(Destination { json, sink: place })
    }
}

/// Adds `plants`: true if a test injects the fault of that name.
macro_rules! injects_faults {
    ($options:ty) => {
        impl $options {
            #[cfg(feature = "fault-injection")]
            pub fn plants(&self, fault: &str) -> bool {
                self.plant.iter().any(|plant| plant == fault)
            }

            /// False: faults are injected by a build with the feature `fault-injection` only.
            #[cfg(not(feature = "fault-injection"))]
            pub const fn plants(&self, _fault: &str) -> bool {
                false
            }
        }
    };
}

injects_faults!(Run);
injects_faults!(TryRun);
