//! Common parts of disks and shares: a mount point, a server, a record, and the way down.
//!
//! Invariant: taking down undoes, in reverse order, whatever of coming up has happened, and every
//! step of it is harmless when there is nothing to undo. So the same function cleans up after a
//! failed start, a killed server and a killed `up`.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use crate::process::ProcessId;
use crate::server::control::{Answer, ControlRequest, ask};
use crate::server::{Config, ServedStorage};
use crate::server_start::StartingServer;
use crate::storage_records::{Record, StateDir, canonical};
use crate::{Error, Kind, Missing, Stats, Step, loop_device, mounts};

/// Time that an orphaned server has to notice that its mount is gone before it is killed.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// Handle of storage of either kind that is up. Dropping it changes nothing.
#[derive(Debug)]
pub struct Storage {
    dir: PathBuf,
    kind: Kind,
    state: StateDir,
    record: Record,
    /// The server, if this process started it and so has to reap it.
    child: Option<Child>,
}

/// Arguments of [`Storage::start`] beyond the server's own configuration.
pub(crate) struct StartArguments<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) kind: Kind,
    pub(crate) server_exe: Option<&'a Path>,
}

impl Storage {
    /// The storage that is up at `dir`, alive or not.
    ///
    /// # Errors
    /// [`Error::NotUp`] if this user has none there.
    pub fn find(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = canonical(dir.as_ref())?;
        let state = StateDir::find(&dir).ok_or_else(|| Error::NotUp(dir.clone()))?;
        let record =
            state.read()?.unwrap_or(Record { kind: Kind::Share, server: None, loop_number: None });
        Ok(Self { dir, kind: record.kind, state, record, child: None })
    }

    /// Mount point.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Kind of the storage.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The process that serves it.
    #[must_use]
    pub fn server_pid(&self) -> Option<i32> {
        self.record.server.map(ProcessId::pid)
    }

    /// Counts of requests since it came up or was last reset.
    ///
    /// # Errors
    /// [`Error::ServerGone`] if the server was killed.
    pub fn stats(&self) -> Result<Stats, Error> {
        match self.ask(ControlRequest::Stats)? {
            Answer::Stats(stats) => Ok(stats),
            Answer::Done | Answer::Failed(_) => {
                Err(self.gone(std::io::ErrorKind::InvalidData.into()))
            }
        }
    }

    /// Sets all counters to zero.
    ///
    /// # Errors
    /// [`Error::ServerGone`] if the server was killed.
    pub fn reset_stats(&self) -> Result<(), Error> {
        self.tell(ControlRequest::Reset, Step::Inspect)
    }

    /// Switches the delay. Before it is switched on, a disk's dirty data are written, so that what
    /// was populated fast is not written slowly later.
    ///
    /// # Errors
    /// [`Error::ServerGone`] if the server was killed; [`Error::System`] if writing failed.
    pub fn set_delay(&self, on: bool) -> Result<(), Error> {
        if on && self.kind == Kind::Disk {
            mounts::sync_filesystem(&self.dir)?;
        }
        self.tell(ControlRequest::Delay(on), Step::Inspect)
    }

    /// Makes the storage as cold as just after a mount. As root this drops the whole machine's
    /// caches; an ordinary user's share is made cold alone: what is in use (open files, working
    /// directories) keeps its names.
    ///
    /// # Errors
    /// [`Missing::DropCaches`] for a disk without root; [`Error::ServerGone`] if the server was
    /// killed.
    pub fn make_cold(&self) -> Result<(), Error> {
        if crate::drop_caches::can_drop() {
            crate::drop_caches()?;
        } else if self.kind == Kind::Disk {
            return Err(Missing::DropCaches.into());
        }
        match self.kind {
            Kind::Disk => Ok(()),
            Kind::Share => self.tell(ControlRequest::MakeCold, Step::DropCaches),
        }
    }

    /// Unmounts, detaches, ends the server and removes its files. Works after a crash of the
    /// server, too.
    ///
    /// # Errors
    /// [`Error::Busy`] if files are in use (then everything is still up); [`Error::System`] if a
    /// step failed.
    pub fn down(mut self) -> Result<(), Error> {
        self.take_down(false)
    }

    pub(crate) fn start(
        start: &StartArguments<'_>,
        make_config: impl FnOnce(PathBuf) -> Config,
    ) -> Result<Self, Error> {
        let dir = canonical(start.dir)?;
        require_free(&dir)?;
        let state = StateDir::create(&dir)?;
        let record = Record { kind: start.kind, server: None, loop_number: None };
        let mut storage = Self { dir, kind: start.kind, state, record, child: None };
        let config = make_config(storage.state.socket());
        storage.or_clean_up(|storage| storage.serve(&config, start.server_exe))?;
        Ok(storage)
    }

    fn serve(&mut self, config: &Config, exe: Option<&Path>) -> Result<(), Error> {
        self.state.write(&self.record)?;
        let at = self.fuse_mount_point();
        if matches!(config.export, ServedStorage::Disk { .. }) {
            std::fs::create_dir(&at).map_err(Error::system(Step::KeepRecord, &at))?;
        }
        let connection = mounts::mount_fuse(&at)?;
        let starting = StartingServer::spawn(config, connection, &self.state.log(), exe)?;
        let pid = ProcessId::of(starting.child.id())
            .map_err(Error::system(Step::StartServer, &self.dir))?;
        self.record.server = Some(pid);
        self.state.write(&self.record)?;
        self.child = Some(starting.wait(&self.dir)?);
        // The first request of a mount goes through here and not through the caller's first system
        // call.
        std::fs::metadata(&at).map_err(Error::system(Step::Inspect, &at))?;
        Ok(())
    }

    /// Runs a step of coming up; if it fails, nothing stays up.
    pub(crate) fn or_clean_up(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let result = step(self);
        if result.is_err() {
            // The step's error is the one to report.
            let _ = self.take_down(true);
        }
        result
    }

    /// Records a loop device before a file system is mounted from it.
    pub(crate) fn record_loop(&mut self, number: u32) -> Result<(), Error> {
        self.record.loop_number = Some(number);
        self.state.write(&self.record)
    }

    /// Mount point of the FUSE file system: the share itself, or the one below a disk.
    pub(crate) fn fuse_mount_point(&self) -> PathBuf {
        match self.kind {
            Kind::Disk => self.state.fuse_dir(),
            Kind::Share => self.dir.clone(),
        }
    }

    /// Everything in reverse. `lazy`: what is in use is detached and loses its storage, instead of
    /// keeping it up.
    pub(crate) fn take_down(&mut self, lazy: bool) -> Result<(), Error> {
        self.unmount_disk(lazy)?;
        let at = self.fuse_mount_point();
        if mounts::mounted_at(&at)?.last().is_some_and(mounts::Mounted::is_our_fuse) {
            // Only the loop device, now detached, uses what lies below a disk.
            mounts::unmount(&at, lazy || self.kind == Kind::Disk)?;
        }
        if let Some(server) = self.record.server {
            server.end(SERVER_PATIENCE).map_err(Error::system(Step::EndServer, &self.dir))?;
        }
        if let Some(mut child) = self.child.take() {
            // It has ended; this only reaps it.
            let _ = child.wait();
        }
        self.state.remove()
    }

    fn unmount_disk(&self, lazy: bool) -> Result<(), Error> {
        let Some(number) = self.record.loop_number else {
            return Ok(());
        };
        let device = loop_device::node(number);
        let mounted = mounts::mounted_at(&self.dir)?;
        if mounted.last().is_some_and(|m| mounts::is_source(m, &device)) {
            // What is dirty is written now; at the disk's speed that could take minutes. A dead
            // server has no delay.
            let delayed =
                self.stats().is_ok_and(|stats| stats.delay) && self.tell_delay(false).is_ok();
            if let Err(e) = mounts::unmount(&self.dir, lazy) {
                if delayed {
                    self.tell_delay(true)?;
                }
                return Err(e);
            }
        }
        match loop_device::detach(number, &self.state.fuse_dir()) {
            // Still in use by what was mounted lazily; it goes with its last user.
            Err(_) if lazy => Ok(()),
            other => other.map_err(Error::system(Step::DetachLoop, device)),
        }
    }

    fn tell_delay(&self, on: bool) -> Result<(), Error> {
        self.tell(ControlRequest::Delay(on), Step::Inspect)
    }

    fn ask(&self, what: ControlRequest) -> Result<Answer, Error> {
        ask(&self.dir, &self.state.socket(), what)
    }

    fn tell(&self, what: ControlRequest, step: Step) -> Result<(), Error> {
        match self.ask(what)? {
            Answer::Failed(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                Err(Error::system(step, &self.dir)(error))
            }
            Answer::Done | Answer::Stats(_) => Ok(()),
        }
    }

    fn gone(&self, source: std::io::Error) -> Error {
        Error::ServerGone { dir: self.dir.clone(), source }
    }
}

/// Refuses a mount point that is in use, after clearing away what a crashed server left without
/// mounts.
fn require_free(dir: &Path) -> Result<(), Error> {
    if let Some(state) = StateDir::find(dir) {
        let left_over = state.read()?.is_some_and(|record| record.is_dead());
        if !left_over || !mounts::mounted_at(dir)?.is_empty() {
            return Err(Error::AlreadyUp(dir.to_owned()));
        }
        Storage::find(dir)?.take_down(true)?;
    }
    if !dir.is_dir() {
        return Err(Error::NotADirectory(dir.to_owned()));
    }
    let mut entries = std::fs::read_dir(dir).map_err(Error::system(Step::Inspect, dir))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Error::NotEmpty(dir.to_owned())),
    }
}
