//! `runahead-bench everyday`: commands that people wait for, with real packages, on seven kinds of storage.
//!
//! A whole Debian system lies on the storage (`scripts/everyday-root` makes it), nothing of it in memory; on the
//! network share, as much of it as the image of a container has. Each command runs plainly; under runahead for the
//! first time, knowing nothing of earlier runs; and a second time, as a user has it who runs a command again.
//! Nothing is recorded in advance.
//!
//! [`system`] brings a storage up and runs a command on it, beside [`spinners`] where processors are to be busy;
//! [`list`] has the commands, and [`table`] shows what their runs took.
//!
//! Invariant: what is printed of a command was measured in one go, its outputs compared.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::report::everyday_tables;
use runahead_harness::{note, say};
use runahead_testbed::DiskOptions;

use crate::error::Error;
use crate::measure::bench_run::subject;
use crate::options::Everyday;

use crate::measure::debian_system::System;
use crate::rows::everyday_commands::{COMMANDS, IMAGE_COMMANDS};

/// What the document begins with.
const HEAD: &str = include_str!("../report/everyday.md");

/// A kind of storage.
pub struct Storage {
    pub name: &'static str,
    pub about: &'static str,
    pub medium: Medium,
    /// Whether other programs keep all processors busy meanwhile.
    pub busy: bool,
}

/// What a storage is made of.
#[derive(Clone, Copy)]
pub enum Medium {
    Disk(fn(DiskOptions) -> DiskOptions),
    /// A network share, by the time that it takes to answer.
    Share(Duration),
    /// Nothing waits.
    Memory,
}

impl Storage {
    const fn new(name: &'static str, about: &'static str, medium: Medium) -> Self {
        Self { name, about, medium, busy: false }
    }

    /// What can be run on it.
    fn commands(&self) -> &'static [(&'static str, &'static str)] {
        match self.medium {
            Medium::Share(_) => IMAGE_COMMANDS,
            Medium::Disk(_) | Medium::Memory => COMMANDS,
        }
    }
}

const CLOUD: Medium = Medium::Disk(|disk| disk.parallel(Duration::from_micros(500), 64));

const STORAGES: [Storage; 7] = [
    Storage::new(
        "slow",
        "5 ms, 128 requests at a time",
        Medium::Disk(|disk| disk.parallel(Duration::from_millis(5), 128)),
    ),
    Storage::new("cloud", "0.5 ms, 64 at a time: a good cloud disk", CLOUD),
    Storage::new(
        "ssd",
        "0.1 ms, 32 at a time",
        Medium::Disk(|disk| disk.parallel(Duration::from_micros(100), 32)),
    ),
    Storage::new(
        "spindle",
        "one spindle that seeks for 8 ms",
        Medium::Disk(|disk| disk.spindles(1, 64 << 10, Duration::from_millis(8))),
    ),
    Storage::new("memory", "everything in memory", Medium::Memory),
    Storage {
        busy: true,
        ..Storage::new(
            "busy",
            "0.5 ms, 64 at a time, while other programs keep all processors busy",
            CLOUD,
        )
    },
    Storage::new(
        "share",
        "a network share of 10 ms, 128 at a time, with the image of a container",
        Medium::Share(Duration::from_millis(10)),
    ),
];

/// Measures, and prints a table for each storage. False if outputs differed.
///
/// # Errors
/// What prevented it.
pub fn everyday(options: &Everyday) -> Result<bool, Error> {
    let runahead = subject(&options.subject)?;
    require_mechanisms(&runahead, &options.without)?;
    let chosen = |name: &str, given: &[String]| given.is_empty() || given.iter().any(|g| g == name);
    let mut document = String::new();
    let mut same = true;
    for storage in STORAGES.iter().filter(|storage| chosen(storage.name, &options.storage)) {
        let of_it = storage.commands().iter();
        let commands: Vec<_> = of_it.filter(|(name, _)| chosen(name, &options.command)).collect();
        // To bring it up takes a minute.
        if commands.is_empty() {
            continue;
        }
        let system = System::up(options, &runahead, storage)?;
        let mut rows = Vec::new();
        for &&(name, line) in &commands {
            let row = system.measure(name, line, options.pairs)?;
            note!("{}: {}", storage.name, everyday_tables::line(&row));
            same &= row.same;
            rows.push(row);
        }
        system.down()?;
        document += &everyday_tables::table(&title(storage, &options.without), &rows);
    }
    say!("{}", document.trim_end());
    if let Some(path) = &options.write_md {
        let runs = match options.pairs {
            1 => "One run of each, in this order: differences of less than a tenth say nothing."
                .into(),
            runs => format!("The median of {runs} runs of each, in this order."),
        };
        fs::write(path, format!("{HEAD}{runs}\n\n{document}"))
            .map_err(Error::system("write", path))?;
    }
    Ok(same)
}

/// Refuses a name that `runahead run --without` does not know, which would make every run fail.
fn require_mechanisms(runahead: &Path, without: &[String]) -> Result<(), Error> {
    if without.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(runahead);
    command.arg("run").args(switches(without)).args(["--no-learn", "--", "true"]);
    let output = command.output().map_err(Error::system("run", runahead))?;
    if output.status.success() {
        return Ok(());
    }
    // What is wrong comes first, the usage after it.
    let said = String::from_utf8_lossy(&output.stderr);
    let message = said.lines().next().unwrap_or_default().to_owned();
    let (program, status, path) = ("runahead", output.status, runahead.to_owned());
    Err(Error::Helper { program, status, path, message })
}

/// The options of `runahead run` that switch these mechanisms off.
pub fn switches(without: &[String]) -> impl Iterator<Item = &str> {
    without.iter().flat_map(|mechanism| ["--without", mechanism])
}

fn title(storage: &Storage, without: &[String]) -> String {
    let switched_off = match without {
        [] => String::new(),
        some => format!(" (runahead without {})", some.join(", ")),
    };
    format!("{}: {}{switched_off}", storage.name, storage.about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_storages_too() {
        let unique = |mut names: Vec<&str>| {
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            names.len() == all
        };
        // `--command` chooses of both lists.
        assert!(unique(COMMANDS.iter().chain(IMAGE_COMMANDS).map(|(name, _)| *name).collect()));
        assert!(unique(STORAGES.iter().map(|storage| storage.name).collect()));
    }

    #[test]
    fn a_container_has_commands_of_its_own_and_one_storage_is_busy() {
        let named = |name| STORAGES.iter().find(|storage| storage.name == name).expect("a storage");
        assert!(named("share").commands().iter().any(|(name, _)| *name == "web-server"));
        assert!(named("busy").commands().iter().any(|(name, _)| *name == "pandas"));
        assert!(STORAGES.iter().all(|storage| storage.busy == (storage.name == "busy")));
    }

    #[test]
    fn what_is_switched_off_is_passed_on_and_said() {
        let without = ["guesses", "stale"].map(str::to_owned);
        let passed: Vec<_> = switches(&without).collect();
        assert_eq!(passed, ["--without", "guesses", "--without", "stale"]);
        assert!(title(&STORAGES[0], &without).ends_with("(runahead without guesses, stale)"));
        assert_eq!(title(&STORAGES[4], &[]), "memory: everything in memory");
    }
}
