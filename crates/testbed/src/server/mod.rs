//! The server process: serves one FUSE connection and one control socket until the file system is
//! unmounted.
//!
//! The process is the program that uses this library, executed again: [`crate::server_start`] sets
//! an environment variable, and a constructor in this module takes over before `main` when it is
//! set. So a test of another crate needs no second binary that may be missing, or older than the
//! library.
//!
//! Invariant: the server mounts and unmounts nothing. It ends when its connection ends, for
//! whatever reason, and the kernel drops the connection when the server is killed.
//!
//! # Safety
//!
//! The unsafe code is the constructor and what it needs before `main`: its section, descriptor 0,
//! the environment, and one scheduling call that rustix does not have.

#[allow(unsafe_code)]
mod backing_file;
pub(crate) mod control;
mod deferred_replies;
mod disk;
mod kernel_limits;
mod share;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use fuser::{Config as FuseConfig, Filesystem, Session, SessionACL};
use serde::{Deserialize, Serialize};

use crate::model::{Jitter, Model, Service};
use crate::{Step, mounts, path_bytes};
use deferred_replies::Pacer;

pub(crate) use disk::IMAGE_NAME;

/// Holds a [`Config`] in JSON for the process that is to be a server.
pub(crate) const ENVIRONMENT: &str = "RUNAHEAD_TESTBED_SERVE";

/// Configuration of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) export: ServedStorage,
    pub(crate) service: Service,
    pub(crate) jitter: Jitter,
    /// True if the delay is on from the start.
    pub(crate) delay: bool,
    #[serde(with = "path_bytes")]
    pub(crate) socket: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ServedStorage {
    /// File of this size, backed by an unnamed file in this directory.
    Disk {
        size: u64,
        #[serde(with = "path_bytes")]
        backing_dir: PathBuf,
    },
    /// The directory `source`.
    Share {
        #[serde(with = "path_bytes")]
        source: PathBuf,
        timeout: Duration,
        late_error: Option<i32>,
    },
}

/// The server's first and only words to the process that started it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StartReport {
    Ready,
    Failed {
        step: Step,
        #[serde(with = "path_bytes")]
        path: PathBuf,
        errno: i32,
    },
}

/// Failure that stopped the server from starting.
struct Failure(Step, PathBuf, io::Error);

impl Failure {
    fn at(step: Step, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self(step, path, error)
    }
}

/// Runs before `main` in every process that links this library; does nothing unless asked to serve.
#[used]
#[allow(unsafe_code)]
// SAFETY: the section holds pointers to functions that are called before `main`, with arguments
// that C's convention lets `serve_if_asked` ignore.
#[unsafe(link_section = ".init_array")]
pub(crate) static SERVE_IF_ASKED: extern "C" fn() = serve_if_asked;

#[allow(unsafe_code)]
extern "C" fn serve_if_asked() {
    let Some(config) = std::env::var_os(ENVIRONMENT) else {
        return;
    };
    // A program that inherits the variable by accident fails here rather than in a place that is
    // hard to find.
    let config: Config = match serde_json::from_slice(config.as_encoded_bytes()) {
        Ok(config) => config,
        Err(e) => {
            eprintln!("runahead-testbed: {ENVIRONMENT} does not hold a configuration: {e}");
            std::process::exit(2);
        }
    };
    // SAFETY: `launch` starts this process with the FUSE connection as descriptor 0, and nothing in
    // it ran before this constructor that could have taken ownership of it.
    let connection = unsafe { OwnedFd::from_raw_fd(0) };
    let code = match start(config, connection) {
        Ok(()) => 0,
        Err(Failure(step, path, error)) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            report_start(&StartReport::Failed { step, path, errno });
            1
        }
    };
    std::process::exit(code);
}

fn start(config: Config, connection: OwnedFd) -> Result<(), Failure> {
    detach_from_caller();
    behave_like_hardware();
    let pacer = Pacer::new(Model::new(config.service, config.jitter), config.delay);
    let socket = &config.socket;
    let listener = UnixListener::bind(socket).map_err(Failure::at(Step::Listen, socket))?;
    match config.export {
        ServedStorage::Disk { size, backing_dir } => {
            let backing = backing_file::BackingFile::create(&backing_dir, size)
                .map_err(Failure::at(Step::CreateBacking, backing_dir))?;
            let disk = disk::DiskFs::new(backing, pacer.clone());
            // One reader: a request costs it a few microseconds, and it keeps requests in order.
            serve(disk, connection, 1, pacer, &listener, |_| Ok(()))
        }
        ServedStorage::Share { source, timeout, late_error } => {
            let share = share::ShareFs::new(&source, timeout, late_error, pacer.clone())
                .map_err(Failure::at(Step::OpenSource, source))?;
            let names = share.root_names();
            // A few readers: each carries its request out while it is delayed, and that may wait
            // for a real disk.
            serve(share, connection, 4, pacer, &listener, move |notify| names.forget_all(notify))
        }
    }
}

fn serve<F: Filesystem>(
    filesystem: F,
    connection: OwnedFd,
    readers: usize,
    pacer: Pacer,
    listener: &UnixListener,
    make_cold: impl Fn(&fuser::Notifier) -> io::Result<()>,
) -> Result<(), Failure> {
    mounts::leave();
    let mut fuse = FuseConfig::default();
    fuse.n_threads = Some(readers);
    // Who may use the mount is the kernel's business (allow_other and default_permissions), not the
    // library's.
    let session = Session::from_fd(filesystem, connection, SessionACL::All, fuse)
        .map_err(Failure::at(Step::Negotiate, "/dev/fuse"))?;
    let notifier = session.notifier();
    let threads = || -> io::Result<()> {
        let timer = pacer.clone();
        std::thread::Builder::new().name("timer".into()).spawn(move || timer.run())?;
        std::thread::Builder::new().name("connection".into()).spawn(move || {
            match session.run() {
                Ok(()) => std::process::exit(0),
                Err(e) => {
                    eprintln!("runahead-testbed: the FUSE connection failed: {e}");
                    std::process::exit(1);
                }
            }
        })?;
        Ok(())
    };
    threads().map_err(Failure::at(Step::StartServer, "/proc/self/exe"))?;
    report_start(&StartReport::Ready);
    control::serve(listener, &pacer, || make_cold(&notifier))
}

/// Detaches from the caller's terminal, directory and mask, so that none of them keeps or ends the
/// server.
#[allow(unsafe_code)]
fn detach_from_caller() {
    // SAFETY: no other thread exists yet that could read the environment.
    unsafe { std::env::remove_var(ENVIRONMENT) };
    // Fails only for a process group leader, which a fresh child is not.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    rustix::process::umask(rustix::fs::Mode::empty());
    let _ = rustix::thread::set_name(c"runahead-testbed");
}

/// A disk does not wait for a processor, nor for memory that only its own writes can free. All this
/// needs root; without it the server works, with less exact timing under load.
#[allow(unsafe_code)]
fn behave_like_hardware() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limits.maximum, maximum: limits.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
    // The default slack of 50 µs would come on top of every latency. Threads inherit it.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    // The kernel reads an `int`. musl's sched_setscheduler(3) always fails: called directly.
    let lowest: libc::c_int = 1;
    // SAFETY: the kernel reads one `int` from a valid pointer; 0 means the calling thread.
    let _ = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const lowest)
    };
}

/// Tells the starter how it went and lets go of its pipe, for which it may be waiting to be closed.
fn report_start(report: &StartReport) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    let _ = io::stdout().write_all(&line);
    let _ = io::stdout().flush();
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
