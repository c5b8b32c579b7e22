//! A slow disk: ext4 on a loop device over a file whose requests the server delays.
//!
//! Invariant: the file system is made and mounted without delay, whatever the options; the delay
//! starts with the first request of the user.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::loop_device::{self, LoopDevice};
use crate::model::{Jitter, Service};
use crate::server::{Config, IMAGE_NAME, ServedStorage};
use crate::storage::StartArguments;
use crate::{Error, InvalidOption, Kind, Missing, OwnedStorage, Step, Storage, mounts, probe};

/// A loop device has this many requests in flight at most (its `hw_queue_depth`).
const LOOP_DEPTH: u32 = 128;

const SMALLEST: u64 = 16 << 20;

/// Options of a disk.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// Mount point: an empty directory.
    pub dir: PathBuf,
    /// Size in bytes, a multiple of 4096. Blocks never written take no space.
    pub size: u64,
    /// Queue model by which requests are served.
    pub service: Service,
    /// Variation of service times.
    pub jitter: Jitter,
    /// Directory for the (unnamed, sparse) file that holds the disk's content.
    pub backing_dir: PathBuf,
    /// True if the delay is on once the disk is up; false to populate it first.
    pub delay: bool,
    /// A program that links this library, to be the server; the running one if not given.
    pub server_exe: Option<PathBuf>,
}

impl DiskOptions {
    /// 2 GiB, 5 ms, 128 requests in parallel, no jitter, backed in `/var/tmp`, delay on.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            size: 2 << 30,
            service: Service::Parallel { latency: Duration::from_millis(5), parallel: LOOP_DEPTH },
            jitter: Jitter::NONE,
            backing_dir: "/var/tmp".into(),
            delay: true,
            server_exe: None,
        }
    }

    /// Sets the size in bytes.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Serves `parallel` requests at a time (1 to 128), each in `latency`.
    #[must_use]
    pub fn parallel(mut self, latency: Duration, parallel: u32) -> Self {
        self.service = Service::Parallel { latency, parallel };
        self
    }

    /// Serves as an array of rotating disks; see [`Service::Spindles`].
    #[must_use]
    pub fn spindles(mut self, spindles: u32, stripe: u64, seek: Duration) -> Self {
        self.service = Service::Spindles { spindles, stripe, seek };
        self
    }

    /// Varies service times by up to `fraction` of them, repeatably.
    #[must_use]
    pub fn jitter(mut self, fraction: f64, seed: u64) -> Self {
        self.jitter = Jitter { fraction, seed };
        self
    }

    /// Sets if the delay is on once the disk is up.
    #[must_use]
    pub fn delay(mut self, on: bool) -> Self {
        self.delay = on;
        self
    }

    fn check(&self) -> Result<(), InvalidOption> {
        if self.size < SMALLEST || !self.size.is_multiple_of(4096) {
            return Err(InvalidOption::Size(self.size));
        }
        check_service(self.service, LOOP_DEPTH)?;
        check_jitter(self.jitter)
    }
}

/// Refuses what [`crate::model::Model`] cannot serve, or the kernel cannot keep in flight (`max`).
pub(crate) fn check_service(service: Service, max: u32) -> Result<(), InvalidOption> {
    match service {
        Service::Parallel { parallel, .. } if !(1..=max).contains(&parallel) => {
            Err(InvalidOption::Parallel { given: parallel, max })
        }
        Service::Spindles { spindles, .. } if !(1..=LOOP_DEPTH).contains(&spindles) => {
            Err(InvalidOption::Spindles(spindles))
        }
        Service::Spindles { stripe, .. } if stripe == 0 || !stripe.is_multiple_of(512) => {
            Err(InvalidOption::Stripe(stripe))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_jitter(jitter: Jitter) -> Result<(), InvalidOption> {
    if (0.0..=1.0).contains(&jitter.fraction) { Ok(()) } else { Err(InvalidOption::Jitter) }
}

/// A disk that is up; see [`OwnedStorage`].
pub type Disk = OwnedStorage<DiskOptions>;

impl Disk {
    /// Probes if a disk can be brought up here.
    ///
    /// # Errors
    /// Missing root, FUSE, loop devices or `mkfs.ext4`.
    pub fn probe() -> Result<(), Missing> {
        probe::disk()
    }

    /// Brings a disk up with an empty ext4 file system, mounted and usable.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Missing`], [`Error::NotEmpty`], [`Error::NotADirectory`],
    /// [`Error::AlreadyUp`], or the step that failed; then nothing is left up.
    pub fn up(options: &DiskOptions) -> Result<Self, Error> {
        options.check()?;
        probe::disk()?;
        let backing_dir = std::path::absolute(&options.backing_dir)
            .map_err(Error::system(Step::CreateBacking, &options.backing_dir))?;
        let start = StartArguments {
            dir: &options.dir,
            kind: Kind::Disk,
            server_exe: options.server_exe.as_deref(),
        };
        let mut storage = Storage::start(&start, |socket| Config {
            export: ServedStorage::Disk { size: options.size, backing_dir },
            service: options.service,
            jitter: options.jitter,
            delay: false,
            socket,
        })?;
        storage.or_clean_up(|storage| {
            make_and_mount(storage, options)?;
            if options.delay {
                storage.set_delay(true)?;
            }
            storage.reset_stats()
        })?;
        Ok(Self::new(storage))
    }
}

fn make_and_mount(storage: &mut Storage, options: &DiskOptions) -> Result<(), Error> {
    let image = storage.fuse_mount_point().join(IMAGE_NAME);
    let attach_failed = |e| Error::system(Step::AttachLoop, &image)(e);
    let file = OpenOptions::new().read(true).write(true).open(&image).map_err(attach_failed)?;
    let device = LoopDevice::attach(&file).map_err(attach_failed)?;
    storage.record_loop(device.number)?;
    if matches!(options.service, Service::Spindles { .. }) {
        device.mark_rotational();
    }
    device.set_read_ahead();
    let node = loop_device::node(device.number);
    make_filesystem(&node)?;
    mounts::mount_ext4(&node, storage.dir())?;
    // An empty disk is empty; fsck makes the directory again if it ever needs it.
    let lost = storage.dir().join("lost+found");
    std::fs::remove_dir(&lost).map_err(Error::system(Step::MountDisk, lost))
}

fn make_filesystem(device: &Path) -> Result<(), Error> {
    const PROGRAM: &str = "mkfs.ext4";
    let path = probe::find_program(PROGRAM).unwrap_or_else(|| PROGRAM.into());
    let output = Command::new(path)
        // Complete tables at once: the kernel would write them later, in the middle of a
        // measurement.
        .args(["-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
        .arg(device)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(Error::system(Step::MakeFilesystem, device))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Helper {
        program: PROGRAM,
        status: output.status,
        path: device.to_owned(),
        message: mounts::last_line(&output.stderr),
    })
}
