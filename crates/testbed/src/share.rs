//! A slow share: a directory passed through with a delay on every message, as over a network.
//!
//! Invariant: the source directory is changed by nothing but the users of the share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::{check_jitter, check_service};
use crate::model::{Jitter, Service};
use crate::server::{Config, ServedStorage};
use crate::storage::StartArguments;
use crate::storage_records::canonical;
use crate::{Error, Kind, Missing, OwnedStorage, Step, Storage, probe};

/// The kernel's `max_background` is a 16-bit number.
const FUSE_DEPTH: u32 = u16::MAX as u32;

/// Options of a share.
#[derive(Debug, Clone)]
pub struct ShareOptions {
    /// The directory to show.
    pub source: PathBuf,
    /// Mount point: an empty directory outside `source`.
    pub dir: PathBuf,
    /// Delay of one request.
    pub latency: Duration,
    /// Requests in service at a time, 1 to 65535.
    pub parallel: u32,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Time for which the kernel may cache attributes, names and absent names.
    pub attr_timeout: Duration,
    /// True if the delay is on from the start.
    pub delay: bool,
    /// Written data is lost: the file's next flush (close(2)) or fsync(2) is answered by this
    /// errno, once after each write. If not given, a close costs no message.
    pub late_error: Option<i32>,
    /// A program that links this library, to be the server; the running one if not given.
    pub server_exe: Option<PathBuf>,
}

impl ShareOptions {
    /// 10 ms, 128 requests in parallel, no jitter, attributes valid for 60 s, delay on.
    #[must_use]
    pub fn new(source: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            dir: dir.into(),
            latency: Duration::from_millis(10),
            parallel: 128,
            jitter: Jitter::NONE,
            attr_timeout: Duration::from_secs(60),
            delay: true,
            late_error: None,
            server_exe: None,
        }
    }

    /// Serves `parallel` requests at a time, each in `latency`.
    #[must_use]
    pub fn parallel(mut self, latency: Duration, parallel: u32) -> Self {
        self.latency = latency;
        self.parallel = parallel;
        self
    }

    /// Varies the delay by up to `fraction` of it, repeatably.
    #[must_use]
    pub fn jitter(mut self, fraction: f64, seed: u64) -> Self {
        self.jitter = Jitter { fraction, seed };
        self
    }

    /// Sets how long the kernel may rely on attributes and names.
    #[must_use]
    pub fn attr_timeout(mut self, timeout: Duration) -> Self {
        self.attr_timeout = timeout;
        self
    }

    /// Has writes fail late, with this errno.
    #[must_use]
    pub fn late_error(mut self, errno: i32) -> Self {
        self.late_error = Some(errno);
        self
    }

    /// Sets if the delay is on from the start.
    #[must_use]
    pub fn delay(mut self, on: bool) -> Self {
        self.delay = on;
        self
    }
}

/// A share that is up; see [`OwnedStorage`].
pub type Share = OwnedStorage<ShareOptions>;

impl Share {
    /// Probes if a share can be brought up here.
    ///
    /// # Errors
    /// Missing FUSE, or for an ordinary user `fusermount3`.
    pub fn probe() -> Result<(), Missing> {
        probe::share()
    }

    /// Brings a share up, mounted and usable.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Missing`], [`Error::NotEmpty`], [`Error::NotADirectory`],
    /// [`Error::Nested`], [`Error::AlreadyUp`], or the step that failed; then nothing is left up.
    pub fn up(options: &ShareOptions) -> Result<Self, Error> {
        let service = Service::Parallel { latency: options.latency, parallel: options.parallel };
        check_service(service, FUSE_DEPTH)?;
        check_jitter(options.jitter)?;
        probe::share()?;
        let source = canonical_source(&options.source)?;
        let dir = canonical(&options.dir)?;
        if dir.starts_with(&source) {
            return Err(Error::Nested { dir, source_dir: source });
        }
        let start = StartArguments {
            dir: &dir,
            kind: Kind::Share,
            server_exe: options.server_exe.as_deref(),
        };
        let mut storage = Storage::start(&start, |socket| Config {
            export: ServedStorage::Share {
                source,
                timeout: options.attr_timeout,
                late_error: options.late_error,
            },
            service,
            jitter: options.jitter,
            delay: options.delay,
            socket,
        })?;
        storage.or_clean_up(|storage| storage.reset_stats())?;
        Ok(Self::new(storage))
    }
}

fn canonical_source(source: &Path) -> Result<PathBuf, Error> {
    match std::fs::canonicalize(source) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(Error::NotADirectory(source.to_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::NotADirectory(source.to_owned()))
        }
        Err(e) => Err(Error::system(Step::OpenSource, source)(e)),
    }
}
