//! Command line; each option is defined once.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
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
Only COMMAND sees its changes. Kept apart are changes of files, directories, links,
permissions and attributes. Not kept apart is what COMMAND sends to terminals, networks (see --network) and other
programs, and what it writes to files that were open for writing before. Programs with privileges of their own (sudo)
run without them, and cannot change anything.

  runahead try -- make            runahead try status            runahead try commit
  runahead try -- ./agent.sh      runahead try diff              runahead try undo
  runahead try --commit-if 'make test' -- sed -i s/a/b/ src/*.c
  runahead try commit src/ Makefile          runahead try undo ./notes

All of this works in COMMAND too: a nested try starts from what COMMAND has changed so far, and a commit there becomes
part of COMMAND's changes.

Exit status:
  that of COMMAND; if a signal ended it, the same signal ends runahead
  1     an operation on a try failed
  2     usage error
  3     nothing was committed: another process has changed the same names meanwhile, or nested tries are neither
        committed nor undone
  125   runahead itself failed, or COMMAND cannot be confined here
  126   COMMAND cannot be executed
  127   COMMAND was not found
With --commit-if: that of COMMAND, or of CHECK if COMMAND exits with 0. After 3, as above, the try is kept.";

/// Hides storage latency: a harmless copy of the program runs ahead, and what it would read is
/// fetched in parallel.
#[derive(Debug, Parser)]
#[command(name = "runahead", version, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    pub task: Task,
}

impl Cli {
    /// Parses the command line, the program's name first. A wrong one ends the process with the
    /// usage and status 2.
    pub fn parse_or_exit(line: impl Iterator<Item = OsString>) -> Self {
        let line: Vec<_> = line.collect();
        let ends_in_dashes = line.last().is_some_and(|word| word == "--");
        let parsed = Cli::try_parse_from(line).and_then(|parsed| parsed.checked(ends_in_dashes));
        parsed.unwrap_or_else(|mut error| {
            // The user left out the subcommand.
            if error.kind() == ErrorKind::InvalidSubcommand
                && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
            {
                let tip =
                    format!("to run a command, put `run --` before it: runahead run -- {word}");
                let tips = ContextValue::StyledStrs(vec![tip.into()]);
                error.insert(ContextKind::Suggested, tips);
            }
            // clap leaves out the usage if only a value is wrong.
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
    /// Refuses `--stats json:FILE`: there `json:FILE` would be the command. Refuses an empty path
    /// of a try, and a `--` without any: both would mean more than was meant.
    fn checked(self, ends_in_dashes: bool) -> Result<Self, clap::Error> {
        if let Task::Try(Try {
            task: Some(TryTask::Commit { choice, .. } | TryTask::Undo { choice, .. }),
            ..
        }) = &self.task
        {
            let text = match choice.paths().iter().any(|path| path.is_empty()) {
                true => "a PATH is empty\n",
                false if ends_in_dashes => "a PATH must follow `--`\n",
                false => return Ok(self),
            };
            return Err(Cli::command().error(ErrorKind::InvalidValue, text));
        }
        let Task::Run(run) = &self.task else { return Ok(self) };
        let first = run.command.first().and_then(|word| word.to_str()).unwrap_or_default();
        if run.stats.is_some() && first.starts_with("json:") {
            let text = format!("`{first}` would be the command: write --stats={first}\n");
            return Err(Cli::command().error(ErrorKind::InvalidValue, text));
        }
        Ok(self)
    }
}

/// Subcommand.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Run a command and prefetch what it will read
    #[command(after_help = EXIT_STATUS)]
    Run(Run),
    /// Run a command and keep its changes apart until you commit or undo them
    #[command(after_help = TRY_HELP)]
    Try(Try),
    /// List, show and remove records of earlier runs
    History(History),
}

/// Arguments of `runahead try`.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct Try {
    /// Keep tries in DIR instead of $XDG_STATE_HOME/runahead/tries or
    /// ~/.local/state/runahead/tries. On the file system of the changed files a commit renames and
    /// copies nothing
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    #[command(subcommand)]
    pub task: Option<TryTask>,
    #[command(flatten)]
    pub run: TryRun,
}

/// Command to be tried, and its options.
#[derive(Debug, Args)]
pub struct TryRun {
    /// After COMMAND, run CHECK by /bin/sh in the view of COMMAND's changes; commit if both exit
    /// with 0, undo otherwise
    #[arg(long, value_name = "CHECK")]
    pub commit_if: Option<OsString>,

    /// Allow or refuse COMMAND sockets of networks and of other programs. What was sent cannot be
    /// undone
    #[arg(long, value_enum, default_value_t = Network::Allow)]
    pub network: Network,

    /// Run COMMAND even if the kernel cannot keep it from changing files (Landlock, Linux 6.2):
    /// then only the agent does
    #[arg(long)]
    pub unprotected: bool,

    /// Compare what COMMAND has read before --commit-if commits, or ignore its changes by other
    /// processes
    #[arg(long, value_enum, default_value_t = Reads::Check)]
    pub reads: Reads,

    /// Print no summary after COMMAND
    #[arg(long, short)]
    pub quiet: bool,

    /// Wait for the processes that COMMAND leaves behind, so that the try lasts until the last of
    /// them ends. This is the default; SIGINT, SIGTERM, SIGHUP and SIGQUIT then do what --end does
    #[arg(long, conflicts_with = "end")]
    pub wait: bool,

    /// End the processes that COMMAND leaves behind, by SIGTERM, and after 5 seconds by SIGKILL
    #[arg(long)]
    pub end: bool,

    /// Leave the processes that COMMAND leaves behind
    #[arg(long, hide = true)]
    pub leave: bool,

    /// Run COMMAND in the view of this try, while it is committed or shown
    #[arg(long, hide = true, value_name = "ID")]
    pub inside: Option<String>,

    /// Fault that a test injects
    #[cfg(feature = "fault-injection")]
    #[arg(long, hide = true, value_name = "FAULT", value_parser = ["writes", "reads", "unconfined"])]
    pub plant: Vec<String>,

    /// Command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Treatment of changes by other processes to what a tried command has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Reads {
    /// Commit nothing if something that was read has changed
    Check,
    /// Compare nothing that was read
    Ignore,
}

/// Network access of a tried command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Network {
    /// COMMAND may use every socket that it could use without runahead
    Allow,
    /// Reserved: refused with an error
    Hold,
    /// COMMAND may only use sockets of the try
    Refuse,
}

/// Show, commit or undo tries. Without an ID the newest is meant that was begun in the working
/// directory or above it.
#[derive(Debug, Subcommand)]
pub enum TryTask {
    /// List the names that a try changes; ! marks those that another process has changed meanwhile
    Status {
        /// Name of the try, or an unambiguous prefix
        id: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show the changes of a try line by line
    Diff {
        /// Name of the try, or an unambiguous prefix
        id: Option<String>,
        /// Print the names with their numbers of added and removed lines, as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Tell whether nothing that a try has read or changed was changed by another process meanwhile
    /// (exit status 0, otherwise 3)
    Valid {
        /// Name of the try, or an unambiguous prefix
        id: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Apply the changes of a try, unless another process has meanwhile changed a name that the try
    /// has changed or read (exit status 3)
    Commit {
        #[command(flatten)]
        choice: Choice,
        /// Overwrite what another process has changed meanwhile
        #[arg(long)]
        force: bool,
        /// Compare what the try has read, or ignore its changes by other processes
        #[arg(long, value_enum, default_value_t = Reads::Check)]
        reads: Reads,
        /// Do not print what was done
        #[arg(long, short)]
        quiet: bool,
    },
    /// Drop a try and its changes
    Undo {
        #[command(flatten)]
        choice: Choice,
        /// Do not print what was done
        #[arg(long, short)]
        quiet: bool,
    },
    /// List the tries that are neither committed nor undone, the newest last
    List {
        /// Print a JSON object per line
        #[arg(long)]
        json: bool,
    },
}

/// Try, and some of its changes.
#[derive(Debug, Args)]
pub struct Choice {
    /// Name of the try, or an unambiguous prefix; then paths. The first word is a path, too, if it
    /// has a `/` or is `.` or `..`. Only the changes at and below the paths are committed or
    /// undone, and the others stay in the try
    #[arg(value_name = "ID|PATH")]
    words: Vec<OsString>,
    /// Paths, with or without a `/`
    #[arg(last = true, value_name = "PATH")]
    last: Vec<OsString>,
}

impl Choice {
    /// Name of the try, if it is given.
    pub fn id(&self) -> Option<String> {
        let first = self.words.first().filter(|word| !is_path(word))?;
        Some(first.to_string_lossy().into_owned())
    }

    /// The paths that are given.
    pub fn paths(&self) -> Vec<OsString> {
        let names = usize::from(self.id().is_some());
        self.words[names..].iter().chain(&self.last).cloned().collect()
    }
}

/// True for a first word that is a path.
fn is_path(word: &OsString) -> bool {
    word == "." || word == ".." || word.as_bytes().contains(&b'/')
}

/// Arguments of `runahead history`.
#[derive(Debug, Args)]
pub struct History {
    #[command(subcommand)]
    pub task: HistoryTask,
}

/// Task on the records of earlier runs.
#[derive(Debug, Subcommand)]
pub enum HistoryTask {
    /// List the records, the most recently used first
    List {
        /// Print a JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print the accesses of a record in order
    Show {
        /// Name of the record in `runahead history list`, or an unambiguous prefix; or a record
        /// file
        record: OsString,
    },
    /// Remove records
    Forget {
        /// Names in `runahead history list`, or unambiguous prefixes
        #[arg(required_unless_present = "all")]
        records: Vec<String>,
        /// Remove all records
        #[arg(long, conflicts_with = "records")]
        all: bool,
    },
    /// Stop recording and replaying
    Disable,
    /// Record and replay again
    Enable,
    /// Record no accesses below a directory; without one, list the excluded directories
    Exclude {
        /// Directory to exclude
        directory: Option<PathBuf>,
        /// Record accesses below the directory again
        #[arg(long, requires = "directory")]
        undo: bool,
    },
}

/// Options of `runahead run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Print statistics after the run: on stderr, with --stats=- on stdout, or with
    /// --stats=json:FILE as JSON in FILE (- is stdout)
    #[arg(long, value_name = "json:FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "text")]
    pub stats: Option<Destination>,

    /// Record in FILE what COMMAND reads, to be replayed later
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Prefetch from the start what COMMAND read when FILE was recorded, as long as it does the
    /// same
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,

    /// Record what COMMAND reads even if it does not wait for it, and report if that fails
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub learn: bool,

    /// Record nothing of this run, and prefetch nothing because of earlier ones. By default what
    /// COMMAND reads after it has waited for storage is recorded below $XDG_STATE_HOME/runahead or
    /// ~/.local/state/runahead, at most 256 MiB (see `runahead history`)
    #[arg(long, conflicts_with = "learn")]
    pub no_learn: bool,

    /// Let COMMAND speculate (docs/guide/speculation.md): it predicts answers of slow services and
    /// continues, with its output held until they are confirmed
    #[arg(long, conflicts_with_all = ["record", "replay", "learn"])]
    pub speculate: bool,

    /// Fail (exit status 125) instead of running COMMAND natively when it cannot be accelerated
    #[arg(long)]
    pub require: bool,

    /// Fault that a test or a measurement injects
    #[cfg(feature = "fault-injection")]
    #[arg(long, hide = true, value_name = "FAULT", value_parser = ["rubbish"])]
    pub plant: Vec<String>,

    /// Switch off a mechanism, for tests and measurements
    #[arg(long, hide = true, value_name = "MECHANISM", value_parser = Without::NAMES)]
    pub without: Vec<String>,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Destination and format of statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// JSON instead of text.
    pub json: bool,
    pub sink: Sink,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    Stderr,
    /// Descriptor that `runahead` inherited.
    Descriptor(i32),
    File(PathBuf),
}

/// Returns the descriptor that a name stands for. It is resolved now: while the command runs the
/// number is closed or reused.
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
        let sink = match descriptor(name) {
            Some(fd) => Sink::Descriptor(fd),
            None if json => Sink::File(name.into()),
            None if text == "text" => Sink::Stderr,
            None => return Err("give --stats alone, --stats=-, or --stats=json:FILE".into()),
        };
        Ok(Destination { json, sink })
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
