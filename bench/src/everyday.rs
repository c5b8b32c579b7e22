//! `runahead-bench everyday`: commands that people wait for, with real packages, on five kinds of storage.
//!
//! A whole Debian system lies on the storage (`scripts/everyday-root` makes it), nothing of it in memory. Each command
//! runs plainly; under runahead for the first time, knowing nothing of earlier runs; and a second time, as a user
//! has it who runs a command again. Nothing is recorded in advance.
//!
//! Invariant: what is printed of a command was measured in one go, its outputs compared.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use runahead_harness::{note, say};
use runahead_testbed::{Disk, DiskOptions};

use crate::error::Error;
use crate::options::Everyday;
use crate::run::subject;
use crate::sys;

mod list;

use list::COMMANDS;

/// Of the disk: the system and room to spare. What is not used takes no space.
const DISK_BYTES: u64 = 16 << 30;

/// A kind of storage.
struct Storage {
    name: &'static str,
    about: &'static str,
    /// `None`: all is in memory.
    disk: Option<fn(DiskOptions) -> DiskOptions>,
}

const STORAGES: [Storage; 5] = [
    Storage {
        name: "slow",
        about: "5 ms, 128 requests at a time",
        disk: Some(|disk| disk.parallel(Duration::from_millis(5), 128)),
    },
    Storage {
        name: "cloud",
        about: "0.5 ms, 64 at a time: a good cloud disk",
        disk: Some(|disk| disk.parallel(Duration::from_micros(500), 64)),
    },
    Storage {
        name: "ssd",
        about: "0.1 ms, 32 at a time",
        disk: Some(|disk| disk.parallel(Duration::from_micros(100), 32)),
    },
    Storage {
        name: "spindle",
        about: "one spindle that seeks for 8 ms",
        disk: Some(|disk| disk.spindles(1, 64 << 10, Duration::from_millis(8))),
    },
    Storage { name: "memory", about: "everything in memory", disk: None },
];

/// How a command is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    First,
    Again,
}

/// What came of one run.
struct Outcome {
    elapsed: f64,
    /// Of the command and all that is ours.
    processor: f64,
    ended_well: bool,
    output: Vec<u8>,
}

/// One command on one storage: medians.
struct Row {
    name: &'static str,
    plain: (f64, f64),
    first: (f64, f64),
    again: (f64, f64),
    same: bool,
}

/// Measures, and prints a table for each storage. False if outputs differed.
///
/// # Errors
/// What prevented it.
pub fn everyday(options: &Everyday) -> Result<bool, Error> {
    let runahead = subject(&options.subject)?;
    let chosen = |name: &str, given: &[String]| given.is_empty() || given.iter().any(|g| g == name);
    let mut document = String::new();
    let mut same = true;
    for storage in STORAGES.iter().filter(|storage| chosen(storage.name, &options.storage)) {
        let system = System::up(&options.root, &runahead, storage)?;
        let mut rows = Vec::new();
        for &(name, line) in COMMANDS.iter().filter(|(name, _)| chosen(name, &options.command)) {
            let row = system.measure(name, line, options.pairs)?;
            note!("{}: {}", storage.name, text(&row));
            same &= row.same;
            rows.push(row);
        }
        system.down()?;
        document += &table(storage, &rows);
    }
    say!("{}", document.trim_end());
    if let Some(path) = &options.write_md {
        fs::write(path, document).map_err(Error::system("write", path))?;
    }
    Ok(same)
}

/// A Debian system on a storage, ready to be worked in.
struct System {
    root: PathBuf,
    /// Seen inside as [`OURS`], in memory.
    ours: tempfile::TempDir,
    mounted: Vec<PathBuf>,
    disk: Option<Disk>,
}

/// Where runahead, its statistics and its records are, inside.
const OURS: &str = "opt/runahead";

impl System {
    fn up(source: &Path, runahead: &Path, storage: &Storage) -> Result<Self, Error> {
        let ours = tempfile::tempdir_in("/dev/shm").map_err(Error::system("create", "/dev/shm"))?;
        let copy = ours.path().join("runahead");
        fs::copy(runahead, &copy).map_err(Error::system("copy", runahead))?;
        let root = ours.path().with_extension("root");
        fs::create_dir_all(&root).map_err(Error::system("create", &root))?;
        let disk = match storage.disk {
            Some(how) => {
                let options = how(DiskOptions::new(&root).size(DISK_BYTES).delay(false));
                Some(Disk::up(&options)?)
            }
            None => None,
        };
        let mut system = System { root, ours, mounted: Vec::new(), disk };
        let root = system.root.clone();
        match &system.disk {
            Some(disk) => {
                note!("{}: copying {}", storage.name, source.display());
                let mut copy = Command::new("cp");
                copy.args(["-a", "--"]).arg(source.join(".")).arg(&root);
                sys::run_helper("cp", copy, &root)?;
                disk.storage().set_delay(true)?;
            }
            None => system.mount(&["--bind".as_ref(), source.as_os_str()], "")?,
        }
        for dir in ["proc", "dev", "tmp", OURS] {
            let dir = root.join(dir);
            fs::create_dir_all(&dir).map_err(Error::system("create", &dir))?;
        }
        system.mount(&["-t", "proc", "proc"].map(AsRef::as_ref), "proc")?;
        system.mount(&["--bind", "/dev"].map(AsRef::as_ref), "dev")?;
        system.mount(&["-t", "tmpfs", "tmpfs"].map(AsRef::as_ref), "tmp")?;
        let ours = system.ours.path().as_os_str().to_owned();
        system.mount(&["--bind".as_ref(), &ours], OURS)?;
        Ok(system)
    }

    fn mount(&mut self, what: &[&std::ffi::OsStr], at: &str) -> Result<(), Error> {
        let at = self.root.join(at);
        let mut mount = Command::new("mount");
        mount.args(what).arg(&at);
        sys::run_helper("mount", mount, &at)?;
        self.mounted.push(at);
        Ok(())
    }

    fn measure(&self, name: &'static str, line: &str, pairs: usize) -> Result<Row, Error> {
        let mut runs: [Vec<Outcome>; 3] = Default::default();
        // Where all is in memory it is so before the first.
        if self.disk.is_none() {
            self.run(name, line, Way::Plain)?;
        }
        for _ in 0..pairs.max(1) {
            self.forget(name)?;
            for (way, runs) in [Way::Plain, Way::First, Way::Again].into_iter().zip(&mut runs) {
                runs.push(self.run(name, line, way)?);
            }
        }
        let expected = &runs[0][0];
        let is_same =
            |run: &Outcome| run.ended_well == expected.ended_well && run.output == expected.output;
        let same = runs.iter().flatten().all(is_same);
        let [plain, first, again] = runs.each_ref().map(|runs| {
            let median = |of: fn(&Outcome) -> f64| {
                let mut all: Vec<f64> = runs.iter().map(of).collect();
                all.sort_by(f64::total_cmp);
                all[(all.len() - 1) / 2]
            };
            (median(|run| run.elapsed), median(|run| run.processor))
        });
        Ok(Row { name, plain, first, again, same })
    }

    /// Nothing is known of earlier runs of it.
    fn forget(&self, name: &str) -> Result<(), Error> {
        let state = self.ours.path().join("state").join(name);
        match fs::remove_dir_all(&state) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::system("remove", &state)(error))
            }
            _ => Ok(()),
        }
    }

    fn run(&self, name: &str, line: &str, way: Way) -> Result<Outcome, Error> {
        if let Some(disk) = &self.disk {
            disk.storage().make_cold()?;
        }
        let stats = self.ours.path().join("stats.json");
        let _ = fs::remove_file(&stats);
        let mut command = Command::new("chroot");
        command.arg(&self.root);
        if way != Way::Plain {
            command.arg(format!("/{OURS}/runahead")).arg("run");
            command.arg(format!("--stats=json:/{OURS}/stats.json")).arg("--");
        }
        command.args(["/bin/sh", "-c", line]).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/root").env("LC_ALL", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("XDG_STATE_HOME", format!("/{OURS}/state/{name}"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let before = children();
        let began = Instant::now();
        let output = command.output().map_err(Error::system("run", "chroot"))?;
        let elapsed = began.elapsed().as_secs_f64();
        // Shadows are nobody's children.
        let shadows = fs::read(&stats).ok().and_then(|text| {
            let stats: serde_json::Value = serde_json::from_slice(&text).ok()?;
            stats["shadow_cpu_seconds"].as_f64()
        });
        let processor = children() - before + shadows.unwrap_or(0.0);
        let ended_well = output.status.success();
        Ok(Outcome { elapsed, processor, ended_well, output: output.stdout })
    }

    fn down(mut self) -> Result<(), Error> {
        self.unmount();
        match self.disk.take() {
            Some(disk) => Ok(disk.down()?),
            None => Ok(()),
        }
    }

    fn unmount(&mut self) {
        for at in std::mem::take(&mut self.mounted).iter().rev() {
            let _ = Command::new("umount").arg(at).status();
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.unmount();
        if let Some(disk) = self.disk.take() {
            let _ = disk.down();
        }
        let _ = fs::remove_dir(&self.root);
    }
}

/// Processor time of all children that were waited for, in seconds.
fn children() -> f64 {
    let Ok(text) = fs::read_to_string("/proc/self/stat") else { return 0.0 };
    // Behind the name, which may hold anything: proc_pid_stat(5), cutime and cstime.
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) / rustix::param::clock_ticks_per_second() as f64
}

fn text(row: &Row) -> String {
    let times = |(elapsed, _): (f64, f64)| row.plain.0 / elapsed.max(1e-3);
    let processor = |(_, used): (f64, f64)| format!("{:.2}", used);
    let mut line = String::new();
    let _ = write!(
        line,
        "| {} | {:.2} | {:.2} | {:.2} | {} | {} | {} | {} |",
        row.name,
        row.plain.0,
        times(row.first),
        times(row.again),
        processor(row.plain),
        processor(row.first),
        processor(row.again),
        if row.same { "same" } else { "DIFFERENT" },
    );
    line
}

fn table(storage: &Storage, rows: &[Row]) -> String {
    let mut text_of = format!(
        "### {}: {}\n\n| command | plain, s | first run, times faster | second run | processor, s: plain | first | second | outputs |\n|---|---|---|---|---|---|---|---|\n",
        storage.name, storage.about
    );
    rows.iter().for_each(|row| _ = writeln!(text_of, "{}", text(row)));
    let summary = |of: fn(&Row) -> f64| {
        let mut all: Vec<f64> = rows.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        match all.as_slice() {
            [] => (0.0, 0.0),
            all => (all[(all.len() - 1) / 2], all[0]),
        }
    };
    let (first, slowest) = summary(|row| row.plain.0 / row.first.0.max(1e-3));
    let (again, slowest_again) = summary(|row| row.plain.0 / row.again.0.max(1e-3));
    let _ = writeln!(
        text_of,
        "\nFirst run: median {first:.2}, slowest {slowest:.2}. Second run: median {again:.2}, slowest {slowest_again:.2}.\n"
    );
    text_of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_storages_too() {
        let unique: std::collections::HashSet<_> = COMMANDS.iter().map(|(name, _)| name).collect();
        assert_eq!(unique.len(), COMMANDS.len());
        let unique: std::collections::HashSet<_> = STORAGES.iter().map(|s| s.name).collect();
        assert_eq!(unique.len(), STORAGES.len());
    }

    #[test]
    fn a_table_says_what_is_typical_and_what_is_worst() {
        let row = |name, first: f64| Row {
            name,
            plain: (10.0, 1.0),
            first: (first, 1.5),
            again: (1.0, 1.0),
            same: first < 9.0,
        };
        let text = table(&STORAGES[0], &[row("a", 5.0), row("b", 2.0), row("c", 12.5)]);
        assert!(
            text.contains("| a | 10.00 | 2.00 | 10.00 | 1.00 | 1.50 | 1.00 | same |"),
            "{text}"
        );
        assert!(text.contains("First run: median 2.00, slowest 0.80."), "{text}");
        assert!(text.contains("DIFFERENT"), "{text}");
    }

    #[test]
    fn processor_time_of_children_is_counted() {
        let before = children();
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", spin]).status().expect("a shell").success());
        assert!(children() > before);
    }
}
