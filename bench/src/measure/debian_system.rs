//! A Debian system on a storage, ready to be worked in, and a command that is run in it.
//!
//! Invariant: what is mounted, what is copied into memory and what keeps the processors busy is gone when the value
//! is, also after an error.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use runahead_harness::{interrupt, note};
use runahead_testbed::{Disk, DiskOptions, Share, ShareOptions, drop_caches};
use tempfile::TempDir;

use crate::data::system_programs as sys;
use crate::error::Error;
use crate::measure::busy_processors::Spinners;
use crate::measure::everyday::{Medium, Storage, switches};
use crate::options::Everyday;
use crate::report::everyday_tables::{Measurement, Row, Way};
use crate::rows::everyday_commands::IMAGE;

/// Of the disk: the system and room to spare. What is not used takes no space.
const DISK_BYTES: u64 = 16 << 30;

/// Of the image of a container, with room to spare.
const IMAGE_BYTES: u64 = 2 << 30;

/// Requests that the share serves at a time.
const SHARE_PARALLEL: u32 = 128;

/// Where runahead, its statistics and its records are, inside.
const OURS: &str = "opt/runahead";

/// See the module.
pub struct System {
    root: PathBuf,
    /// Seen inside as [`OURS`], in memory.
    ours: TempDir,
    mounted: Vec<PathBuf>,
    slow: Slow,
    spinners: Option<Spinners>,
    /// Mechanisms of runahead that are switched off.
    without: Vec<String>,
}

/// The storage itself.
enum Slow {
    Disk(Disk),
    /// With the directory that it shows. That one is in memory, where no request waits for the machine's own disk.
    Share(Share, TempDir),
    Memory,
}

impl Slow {
    fn storage(&self) -> Option<&runahead_testbed::Storage> {
        match self {
            Self::Disk(disk) => Some(disk.storage()),
            Self::Share(share, _) => Some(share.storage()),
            Self::Memory => None,
        }
    }

    fn down(self) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => Ok(disk.down()?),
            Self::Share(share, _source) => Ok(share.down()?),
            Self::Memory => Ok(()),
        }
    }
}

/// What came of one run.
struct Outcome {
    took: Measurement,
    end: End,
}

/// What has to be the same however a command is run.
#[derive(Clone, PartialEq)]
struct End {
    well: bool,
    output: Vec<u8>,
}

impl System {
    /// Brings the storage up and puts the system on it.
    ///
    /// # Errors
    /// Nothing is left up then.
    pub fn up(options: &Everyday, runahead: &Path, storage: &Storage) -> Result<Self, Error> {
        let ours = in_memory()?;
        let copy = ours.path().join("runahead");
        fs::copy(runahead, &copy).map_err(Error::system("copy", runahead))?;
        let root = ours.path().with_extension("root");
        fs::create_dir_all(&root).map_err(Error::system("create", &root))?;
        let mut system = System {
            root,
            ours,
            mounted: Vec::new(),
            slow: Slow::Memory,
            spinners: None,
            without: options.without.clone(),
        };
        system.fill(&options.root, storage)?;
        for dir in ["proc", "dev", "tmp", OURS] {
            let dir = system.root.join(dir);
            fs::create_dir_all(&dir).map_err(Error::system("create", &dir))?;
        }
        system.mount(&["-t", "proc", "proc"].map(AsRef::as_ref), "proc")?;
        system.mount(&["--bind", "/dev"].map(AsRef::as_ref), "dev")?;
        system.mount(&["-t", "tmpfs", "tmpfs"].map(AsRef::as_ref), "tmp")?;
        let ours = system.ours.path().as_os_str().to_owned();
        system.mount(&["--bind".as_ref(), &ours], OURS)?;
        if let Some(slow) = system.slow.storage() {
            slow.set_delay(true)?;
        }
        system.spinners = storage.busy.then(Spinners::start).transpose()?;
        Ok(system)
    }

    fn fill(&mut self, source: &Path, storage: &Storage) -> Result<(), Error> {
        let copying = || note!("{}: copying from {}", storage.name, source.display());
        match storage.medium {
            Medium::Disk(how) => {
                let options = how(DiskOptions::new(&self.root).size(DISK_BYTES).delay(false));
                self.slow = Slow::Disk(Disk::up(&options)?);
                copying();
                copy(source, &["."], &self.root)
            }
            Medium::Share(latency) => {
                let image = in_memory()?;
                sys::require_space(image.path(), IMAGE_BYTES)?;
                copying();
                copy(source, IMAGE, image.path())?;
                let options = ShareOptions::new(image.path(), &self.root);
                let options = options.parallel(latency, SHARE_PARALLEL).delay(false);
                self.slow = Slow::Share(Share::up(&options)?, image);
                Ok(())
            }
            Medium::Memory => self.mount(&["--bind".as_ref(), source.as_os_str()], ""),
        }
    }

    fn mount(&mut self, what: &[&OsStr], at: &str) -> Result<(), Error> {
        let at = self.root.join(at);
        let mut mount = Command::new("mount");
        mount.args(what).arg(&at);
        sys::run_helper("mount", mount, &at)?;
        self.mounted.push(at);
        Ok(())
    }

    /// Runs a command in all ways, in each of `pairs` rounds.
    ///
    /// # Errors
    /// The storage failed, or the command could not be started.
    pub fn measure(&self, name: &'static str, line: &str, pairs: usize) -> Result<Row, Error> {
        // Where all is in memory it is so before the first.
        if self.slow.storage().is_none() {
            self.run(name, line, Way::Plain)?;
        }
        let mut row = Row { name, rounds: Vec::new(), same: true };
        let mut expected = None;
        for _ in 0..pairs.max(1) {
            self.forget(name)?;
            let mut round = [Measurement::default(); 3];
            for (way, took) in Way::ALL.into_iter().zip(&mut round) {
                let outcome = self.run(name, line, way)?;
                *took = outcome.took;
                row.same &= *expected.get_or_insert_with(|| outcome.end.clone()) == outcome.end;
            }
            row.rounds.push(round);
        }
        Ok(row)
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
        interrupt::check()?;
        let stats = self.ours.path().join("stats.json");
        let _ = fs::remove_file(&stats);
        let mut command = Command::new("chroot");
        command.arg(&self.root);
        if way != Way::Plain {
            command.arg(format!("/{OURS}/runahead")).arg("run").args(switches(&self.without));
            command.arg(format!("--stats=json:/{OURS}/stats.json")).arg("--");
        }
        command.args(["/bin/sh", "-c", line]).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/root").env("LC_ALL", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("XDG_STATE_HOME", format!("/{OURS}/state/{name}"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        if let Some(storage) = self.slow.storage() {
            // (The testbed's own way has a share forget names that are in use, too: what is mounted there goes.)
            drop_caches()?;
            storage.reset_stats()?;
        }
        let before = children();
        let began = Instant::now();
        let output = command.output().map_err(Error::system("run", "chroot"))?;
        let elapsed = began.elapsed().as_secs_f64();
        let used = children() - before;
        let served = self.slow.storage().map(|storage| storage.stats()).transpose()?;
        // Shadows are nobody's children.
        let shadows = fs::read(&stats).ok().and_then(|text| {
            let stats: serde_json::Value = serde_json::from_slice(&text).ok()?;
            stats["shadow_cpu_seconds"].as_f64()
        });
        let took = Measurement {
            elapsed,
            processor: used + shadows.unwrap_or(0.0),
            bytes: served.map(|served| served.read_bytes as f64),
        };
        Ok(Outcome { took, end: End { well: output.status.success(), output: output.stdout } })
    }

    /// Takes it down. Dropping does so too, but has nobody to tell what went wrong.
    ///
    /// # Errors
    /// The testbed's.
    pub fn down(mut self) -> Result<(), Error> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Error> {
        self.spinners = None;
        for at in std::mem::take(&mut self.mounted).iter().rev() {
            let _ = Command::new("umount").arg(at).status();
        }
        std::mem::replace(&mut self.slow, Slow::Memory).down()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.take_down();
        let _ = fs::remove_dir(&self.root);
    }
}

/// A directory that is removed in the end.
fn in_memory() -> Result<TempDir, Error> {
    tempfile::tempdir_in("/dev/shm").map_err(Error::system("create", "/dev/shm"))
}

/// Copies these files and directories, named as seen from `source`, to the same places below `to`.
fn copy(source: &Path, what: &[&str], to: &Path) -> Result<(), Error> {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--parents", "--"]).args(what).arg(to).current_dir(source);
    sys::run_helper("cp", copy, to)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_children_is_counted() {
        let before = children();
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", spin]).status().expect("a shell").success());
        assert!(children() > before);
    }

    #[test]
    fn a_copy_is_of_what_is_named_or_of_all() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("usr/bin")).unwrap();
        fs::create_dir_all(from.path().join("data")).unwrap();
        fs::write(from.path().join("usr/bin/x"), "x").unwrap();
        std::os::unix::fs::symlink("usr/bin", from.path().join("bin")).unwrap();
        copy(from.path(), &["bin", "usr/bin"], to.path()).unwrap();
        assert!(to.path().join("bin/x").is_file() && to.path().join("bin").is_symlink());
        assert!(!to.path().join("data").exists());
        copy(from.path(), &["."], to.path()).unwrap();
        assert!(to.path().join("data").is_dir());
    }
}
