//! The `runahead-testbed` command: the library from a shell.
//!
//! Invariant: one sentence on stderr for a failure; 2 if the command line has to change, 1 if
//! something else has to.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use runahead_testbed::model::{Jitter, Service};
use runahead_testbed::unit_parsing::{parse_duration, parse_percent, parse_size};
use runahead_testbed::{Disk, DiskOptions, Error, Kind, Share, ShareOptions, Storage, drop_caches};

/// Storage with a chosen latency, parallelism and stripe.
///
/// Sizes are written 4096, 64KiB, 2GiB or 2GB; durations 250us, 5ms or 1.5s.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit status: 0 done; 1 not possible here or now; 2 wrong command line."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A block device with ext4 on it (needs root).
    #[command(subcommand)]
    Disk(DiskCommand),
    /// A directory shown through a slow network.
    #[command(subcommand)]
    Share(ShareCommand),
    /// Print what the storage at DIR was asked.
    Stats {
        /// Mount point.
        dir: PathBuf,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
        /// Set the counters to zero afterwards.
        #[arg(long)]
        reset: bool,
    },
    /// Switch the delay of the storage at DIR, for instance to populate it.
    Delay {
        /// Mount point.
        dir: PathBuf,
        /// New state.
        state: Switch,
    },
    /// Drop what the kernel caches: everything as root; without root, of the share at DIR.
    Cold {
        /// Mount point.
        dir: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Subcommand)]
enum DiskCommand {
    /// Bring a disk up, mounted at DIR.
    Up(DiskUp),
    /// Take the disk at DIR down; works after a crash, too.
    Down {
        /// Mount point.
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum ShareCommand {
    /// Show SRC at DIR.
    Up(ShareUp),
    /// Take the share at DIR down; works after a crash, too.
    Down {
        /// Mount point.
        dir: PathBuf,
    },
}

#[derive(Args)]
struct CommonOptions {
    /// Vary each service time by up to this much, e.g. 20%.
    #[arg(long, value_parser = parse_percent, default_value = "0%")]
    jitter: f64,
    /// Seed of the variation.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Start with the delay off.
    #[arg(long)]
    no_delay: bool,
}

impl CommonOptions {
    fn jitter(&self) -> Jitter {
        Jitter { fraction: self.jitter, seed: self.seed }
    }
}

#[derive(Args)]
struct DiskUp {
    /// Size of the disk; what is never written takes no space.
    #[arg(long, value_parser = parse_size, default_value = "2GiB")]
    size: u64,
    /// Time in service of one request.
    #[arg(long, value_parser = parse_duration, default_value = "5ms", conflicts_with = "spindles")]
    latency: Duration,
    /// Requests in service at a time, at most 128; others queue.
    #[arg(long, default_value_t = 128, conflicts_with = "spindles")]
    parallel: u32,
    /// Rotating disks instead: how many share the blocks; each serves one request at a time.
    #[arg(long)]
    spindles: Option<u32>,
    /// Bytes on one spindle before the next follows.
    #[arg(long, value_parser = parse_size, default_value = "64KiB", requires = "spindles")]
    stripe: u64,
    /// Time in service of a request that does not continue the spindle's previous one; one that
    /// does moves at 150 MB/s.
    #[arg(long, value_parser = parse_duration, default_value = "12ms", requires = "spindles")]
    seek: Duration,
    /// Directory for the unnamed file that holds the content.
    #[arg(long, value_name = "PATH", default_value = "/var/tmp")]
    backing: PathBuf,
    #[command(flatten)]
    common: CommonOptions,
    /// Mount point: an empty directory.
    dir: PathBuf,
}

#[derive(Args)]
struct ShareUp {
    /// Delay of each request.
    #[arg(long, value_parser = parse_duration, default_value = "10ms")]
    latency: Duration,
    /// Requests in service at a time; others queue.
    #[arg(long, default_value_t = 128)]
    parallel: u32,
    /// Time for which the kernel may cache attributes and names, absent ones included.
    #[arg(long, value_parser = parse_duration, default_value = "60s")]
    attr_timeout: Duration,
    #[command(flatten)]
    common: CommonOptions,
    /// Directory to show.
    src: PathBuf,
    /// Mount point: an empty directory outside SRC.
    dir: PathBuf,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("runahead-testbed: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}

fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Disk(DiskCommand::Up(up)) => Disk::up(&up.options()).map(|disk| drop(disk.keep())),
        Command::Share(ShareCommand::Up(up)) => {
            Share::up(&up.options()).map(|share| drop(share.keep()))
        }
        Command::Disk(DiskCommand::Down { dir }) => down(dir, Kind::Disk),
        Command::Share(ShareCommand::Down { dir }) => down(dir, Kind::Share),
        Command::Stats { dir, json, reset } => {
            let storage = Storage::find(dir)?;
            let stats = storage.stats()?;
            // Counters and names only: there is nothing in them that JSON cannot hold.
            let text = if json {
                serde_json::to_string(&stats).unwrap_or_default()
            } else {
                stats.to_string()
            };
            // Written in one piece. A reader that closes early (`| grep -q`) is no failure, and the
            // counters are still to be reset.
            match std::io::stdout().write_all(format!("{text}\n").as_bytes()) {
                Err(e) if e.kind() != ErrorKind::BrokenPipe => return Err(Error::Output(e)),
                _ => {}
            }
            if reset { storage.reset_stats() } else { Ok(()) }
        }
        Command::Delay { dir, state } => Storage::find(dir)?.set_delay(matches!(state, Switch::On)),
        Command::Cold { dir: Some(dir) } => Storage::find(dir)?.make_cold(),
        Command::Cold { dir: None } => drop_caches(),
    }
}

fn down(dir: PathBuf, asked: Kind) -> Result<(), Error> {
    let storage = Storage::find(dir)?;
    if storage.kind() != asked {
        return Err(Error::WrongKind {
            dir: storage.dir().to_owned(),
            actual: storage.kind(),
            asked,
        });
    }
    storage.down()
}

impl DiskUp {
    fn options(self) -> DiskOptions {
        let service = match self.spindles {
            None => Service::Parallel { latency: self.latency, parallel: self.parallel },
            Some(spindles) => Service::Spindles { spindles, stripe: self.stripe, seek: self.seek },
        };
        DiskOptions {
            size: self.size,
            service,
            jitter: self.common.jitter(),
            backing_dir: self.backing,
            delay: !self.common.no_delay,
            ..DiskOptions::new(self.dir)
        }
    }
}

impl ShareUp {
    fn options(self) -> ShareOptions {
        ShareOptions {
            latency: self.latency,
            parallel: self.parallel,
            jitter: self.common.jitter(),
            attr_timeout: self.attr_timeout,
            delay: !self.common.no_delay,
            ..ShareOptions::new(self.src, self.dir)
        }
    }
}
