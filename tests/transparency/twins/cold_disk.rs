//! The slow disk with the cases' programs and inputs, and how one case is run on it.
//!
//! Invariant: before each run nothing of the disk is in memory. Its file system is mounted anew for
//! that, so that the rest of the machine keeps its caches.

use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use runahead_testbed::{Disk, DiskOptions};
use runahead_tests::{Run, processes, scratch, tree};

use super::case_catalog::{self as catalog, Build, Case};
use super::file_snapshot::snapshot;
use super::observed_run::{Form, Launcher, Seen};

const LATENCY: Duration = Duration::from_millis(2);
const BYTES: u64 = 1 << 30;
/// `BLKFLSBUF` of `linux/fs.h`: write and forget what is cached of a device.
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// The disk, for one test at a time.
pub struct Slow {
    disk: Option<Disk>,
    /// Keeps the loop device attached while nothing is mounted from it.
    device: Option<File>,
    node: CString,
    dir: PathBuf,
    compiled: Mutex<HashSet<(&'static str, Build)>>,
}

static SLOW: OnceLock<Mutex<Slow>> = OnceLock::new();

/// The disk of this test binary; the error is the reason to skip.
pub fn slow() -> Result<MutexGuard<'static, Slow>, String> {
    Disk::probe().map_err(|missing| missing.to_string())?;
    let slow = SLOW.get_or_init(|| Mutex::new(Slow::up()));
    Ok(slow.lock().unwrap_or_else(PoisonError::into_inner))
}

extern "C" fn take_down() {
    if let Some(slow) = SLOW.get() {
        let mut slow = slow.lock().unwrap_or_else(PoisonError::into_inner);
        slow.device.take();
        slow.disk.take();
    }
}

impl Slow {
    fn up() -> Self {
        let dir = scratch().join("twins");
        fs::create_dir(&dir).expect("the scratch directory is ours");
        let options = DiskOptions::new(&dir).size(BYTES).parallel(LATENCY, 64).delay(false);
        let disk = Disk::up(&options).expect("a disk comes up");
        // SAFETY: registers a function that does not unwind; atexit(3) may be called at any time.
        unsafe { libc::atexit(take_down) };
        tree::populate(&dir).expect("an empty disk can be filled");
        fs::create_dir(dir.join("bin")).expect("an empty disk has room");
        let node = mounted_from(&dir);
        let device = File::open(&node).expect("root opens devices");
        let node = c_path(&node);
        Slow { disk: Some(disk), device: Some(device), node, dir, compiled: Mutex::default() }
    }

    fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("up until exit")
    }

    /// Builds what is still missing, two at a time.
    pub fn compile(&self, chosen: &[(Case, Build)]) {
        self.disk().set_delay(false).expect("the disk's server answers");
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = Vec::new();
        for (case, build) in chosen {
            if compiled.insert((case.source(), *build)) {
                wanted.push((case.source(), *build));
            }
        }
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some((source, build)) =
                        wanted.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        compile(source, *build, &self.program(source, *build));
                    }
                });
            }
        });
    }

    fn program(&self, source: &str, build: Build) -> PathBuf {
        self.dir.join("bin").join(format!("{source}-{build:?}").to_lowercase())
    }

    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Empties the directory to write to and forgets all that is cached of the disk.
    fn reset(&self) {
        let disk = self.disk();
        disk.set_delay(false).expect("the disk's server answers");
        let _ = fs::remove_file(self.dir.join("planted"));
        let _ = fs::remove_dir_all(self.work());
        fs::create_dir(self.work()).expect("the disk has room");
        let dir = c_path(&self.dir);
        // SAFETY: a string that lives.
        let unmounted = || unsafe { libc::umount2(dir.as_ptr(), 0) } == 0;
        assert!(processes::eventually(unmounted), "{} stays in use", self.dir.display());
        // Another mount namespace may hold a copy; then the file system stays, and stays warm.
        let name = self.node.to_string_lossy().replace("/dev/", "/sys/fs/ext4/");
        let closed = processes::eventually(|| !Path::new(&name).exists());
        assert!(closed, "{name} is still mounted somewhere: {:?}", holders(&self.dir));
        let device = self.device.as_ref().expect("open until exit").as_raw_fd();
        // SAFETY: the descriptor is open, and this request has no argument.
        let flushed = unsafe { libc::ioctl(device, BLKFLSBUF, 0) };
        assert_eq!(flushed, 0, "BLKFLSBUF: {}", std::io::Error::last_os_error());
        // SAFETY: three strings that live, and no data.
        let mounted = unsafe {
            libc::mount(self.node.as_ptr(), dir.as_ptr(), c"ext4".as_ptr(), 0, std::ptr::null())
        };
        assert_eq!(mounted, 0, "mount: {}", std::io::Error::last_os_error());
        disk.set_delay(true).expect("the disk's server answers");
    }

    fn run(&self, case: &Case, build: Build, form: Form, launcher: &Launcher) -> Run {
        let program = self.program(case.source(), build).into_os_string();
        let argv: Vec<OsString> = match form {
            Form::Direct => vec![program, case.name().into()],
            // The name is an argument, so that the script need not quote it.
            Form::ChildOfAShell => {
                let script = "\"$0\" \"$1\"; echo status $?";
                ["/bin/sh".into(), "-c".into(), script.into(), program, case.name().into()].into()
            }
        };
        let before = match launcher {
            Launcher::Native => &[],
            Launcher::Wrapped(words) => words.as_slice(),
        };
        Run::new(before.iter().chain(&argv))
            .dir(&self.dir)
            .env("W", self.work())
            .env("TREE", &self.dir)
    }

    /// The command line, to be pasted into a shell.
    pub fn command(&self, case: &Case, build: Build, form: Form) -> String {
        self.run(case, build, form, &Launcher::Native).to_string()
    }

    /// Runs a case from cold storage.
    pub fn observe(&self, case: &Case, build: Build, form: Form, launcher: &Launcher) -> Seen {
        self.look(&self.run(case, build, form, launcher))
    }

    /// Runs a case from cold storage under runahead; also says how many syncs there were.
    pub fn observe_ahead(&self, case: &Case, build: Build, form: Form) -> (Seen, u64) {
        let report = scratch().join("twins.json");
        let _ = fs::remove_file(&report);
        let option = format!("--stats=json:{}", report.display());
        let run = self.run(case, build, form, &Launcher::Native);
        let seen = self.look(&run.ahead(&["--require", &option]));
        let stats: serde_json::Value = fs::read(&report)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .unwrap_or_default();
        (seen, stats["syncs"]["count"].as_u64().unwrap_or(0))
    }

    fn look(&self, run: &Run) -> Seen {
        self.reset();
        let outcome = run.run();
        // What only ends a little later is no difference.
        let give_up = Instant::now() + Duration::from_secs(3);
        while !self.users().is_empty() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut left = Vec::new();
        for pid in self.users() {
            left.push(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
            // It was started for this run: it lives on this disk.
            processes::kill(pid, libc::SIGKILL);
        }
        left.sort();
        Seen { outcome, files: snapshot(&self.work()), left }
    }

    /// Processes whose program or working directory is on the disk.
    fn users(&self) -> Vec<i32> {
        let on_disk = |pid: &i32| {
            ["exe", "cwd"].iter().any(|link| {
                fs::read_link(format!("/proc/{pid}/{link}")).is_ok_and(|p| p.starts_with(&self.dir))
            })
        };
        processes::all().filter(on_disk).collect()
    }
}

fn compile(source: &str, build: Build, output: &Path) {
    let (compiler, flags) = build.compiler();
    let status = Command::new(compiler)
        .args(["-O1", "-g", "-pthread", "-D_GNU_SOURCE", "-Wall"])
        // The programs make wrong calls on purpose, and need not look at all results.
        .args(["-Wno-nonnull", "-Wno-array-bounds", "-Wno-stringop-overflow"])
        .args(["-Wno-stringop-overread", "-Wno-unused-result"])
        .args(flags)
        .arg("-o")
        .arg(output)
        .arg(catalog::source_path(source))
        .args(build.libraries())
        .status()
        .unwrap_or_else(|e| panic!("{compiler} cannot be run: {e}"));
    assert!(status.success(), "compiling {source} as {build:?} failed: {status}");
}

/// The device that is mounted at `dir`.
fn mounted_from(dir: &Path) -> PathBuf {
    let dir = dir.canonicalize().expect("it was just made");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let mut lines = mounts.lines().map(|line| line.split(' '));
    let found = lines.find_map(|mut words| {
        let device = words.next()?;
        (Path::new(words.next()?) == dir).then(|| PathBuf::from(device))
    });
    found.expect("the disk is mounted")
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths hold no NUL")
}

/// Processes that see something mounted at `dir`.
fn holders(dir: &Path) -> Vec<String> {
    let sees = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/mountinfo"))
            .is_ok_and(|text| text.contains(&*dir.to_string_lossy()))
    };
    let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    processes::all().filter(sees).map(|pid| format!("{pid} {}", name(pid).trim_end())).collect()
}
