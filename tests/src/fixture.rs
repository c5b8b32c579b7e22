//! The slow disk that the tests of one binary share, one test at a time.

use std::ffi::CString;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

use runahead_testbed::{Disk, DiskOptions, drop_caches};

use crate::exit_tasks::at_exit;
use crate::{Outcome, Run, programs, scratch, tree};

/// Long enough to be a stall, short enough for many tests.
const LATENCY: Duration = Duration::from_millis(2);
const BYTES: u64 = 512 << 20;

/// A slow disk with a tree on it (see [`tree::populate`]), and a directory to write to.
pub struct Fixture {
    disk: Option<Disk>,
    dir: PathBuf,
    work: PathBuf,
}

static FIXTURE: OnceLock<Mutex<Fixture>> = OnceLock::new();
/// Written by tests with the fixture, one at a time; read by tests that must not run beside those.
static TURNS: RwLock<()> = RwLock::new(());

/// The fixture, in the hands of one test.
pub struct FixtureGuard {
    fixture: MutexGuard<'static, Fixture>,
    _turn: RwLockWriteGuard<'static, ()>,
}

impl Deref for FixtureGuard {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

/// The fixture of this test binary, for one test: it drops the whole machine's caches. The error is
/// the reason to skip.
pub fn fixture() -> Result<FixtureGuard, String> {
    Disk::probe().map_err(|missing| missing.to_string())?;
    let turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
    let fixture = FIXTURE.get_or_init(|| Mutex::new(Fixture::up()));
    Ok(FixtureGuard {
        fixture: fixture.lock().unwrap_or_else(PoisonError::into_inner),
        _turn: turn,
    })
}

/// Keeps tests with the fixture waiting until it is dropped. Tests that hold one run in parallel.
pub fn apart() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}

fn take_down() {
    if let Some(fixture) = FIXTURE.get() {
        let mut fixture = fixture.lock().unwrap_or_else(PoisonError::into_inner);
        fixture.detach();
        fixture.disk.take();
    }
}

impl Fixture {
    fn up() -> Self {
        let dir = scratch().join("slow");
        let work = scratch().join("work");
        std::fs::create_dir(&dir).expect("the scratch directory is ours");
        let options = DiskOptions::new(&dir).size(BYTES).parallel(LATENCY, 64).delay(false);
        let disk = Disk::up(&options).expect("a disk comes up");
        at_exit(take_down);
        tree::populate(&dir).expect("an empty disk can be filled");
        disk.set_delay(true).expect("the disk's server answers");
        Fixture { disk: Some(disk), dir, work }
    }

    /// Root of the slow tree.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// An empty directory on ordinary storage, for what programs write; `$W` for them.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Changes the slow tree without waiting for it.
    pub fn change(&self, change: impl FnOnce(&Path)) {
        let disk = self.disk.as_ref().expect("up until exit");
        disk.set_delay(false).expect("the disk's server answers");
        change(&self.dir);
        disk.set_delay(true).expect("the disk's server answers");
    }

    /// Unmounts what a failed test has mounted in the work directory.
    fn detach(&self) {
        // SAFETY: a string that lives.
        unsafe { libc::umount2(c_path(&self.work.join("mnt")).as_ptr(), libc::MNT_DETACH) };
    }

    /// Empties the work directory and the machine's caches.
    pub fn reset(&self) {
        self.detach();
        let _ = std::fs::remove_dir_all(&self.work);
        std::fs::create_dir(&self.work).expect("the scratch directory is ours");
        drop_caches().expect("root drops caches");
    }

    /// A command to be run in the slow tree.
    pub fn run(&self, argv: &[&str]) -> Run {
        Run::new(argv).dir(&self.dir).env("W", &self.work)
    }

    /// A C program to be run in the slow tree.
    pub fn run_program(&self, name: &str, link: programs::Link, args: &[&str]) -> Run {
        let path = programs::program(name, link);
        let argv: Vec<_> =
            std::iter::once(path.as_os_str()).chain(args.iter().map(|a| a.as_ref())).collect();
        Run::new(argv).dir(&self.dir).env("W", &self.work)
    }

    /// Runs a command from cold caches and with an empty work directory.
    pub fn cold(&self, run: &Run) -> Outcome {
        self.reset();
        run.run()
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths hold no NUL")
}
