//! Loop devices: a block device over a file.
//!
//! Invariant: a device made here does direct I/O (nothing is cached twice) and detaches by itself
//! when its last user is gone.
//!
//! # Safety
//!
//! The unsafe code is three ioctls of `loop(4)`; the structures' layouts are asserted against the
//! kernel's sizes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, makedev, mknodat};

const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const LOOP_MAJOR: u32 = 7;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

/// An attached device. It stays attached while this or a mount holds it open.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    pub(crate) number: u32,
    _hold: File,
}

/// Kernel readahead for a sequential reader, in KiB: the kernel's default for disks up to 6.17.
/// Later kernels use 20 times as much for some loop devices and for rotational disks (twice the
/// largest request), which changes plain runs of programs that map files.
const READ_AHEAD_KIB: u32 = 128;

/// `/dev/loopN`.
pub(crate) fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

impl LoopDevice {
    /// Attaches a free device to `file`.
    pub(crate) fn attach(file: &File) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        loop {
            // SAFETY: LOOP_CTL_GET_FREE takes no argument and touches no memory of ours.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
            ensure_node(number)?;
            let device = OpenOptions::new().read(true).write(true).open(node(number))?;
            match configure(&device, file) {
                Ok(()) => {
                    let device = Self { number, _hold: device };
                    return device.require_direct_io();
                }
                // Another process took this device between the two calls.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The kernel falls back to buffered I/O without an error; that would hide the latency behind a
    /// second cache.
    fn require_direct_io(self) -> io::Result<Self> {
        let flag = std::fs::read_to_string(sysfs(self.number).join("loop/dio"))?;
        if flag.trim() == "1" { Ok(self) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Tells the block layer that this device turns; schedulers may care, so failure does not
    /// matter.
    pub(crate) fn mark_rotational(&self) {
        let _ = std::fs::write(sysfs(self.number).join("queue/rotational"), "1");
    }

    /// Has the kernel read as far ahead as on the disks that most people have. Where sysfs cannot
    /// be written to it stays as it is.
    pub(crate) fn set_read_ahead(&self) {
        let path = sysfs(self.number).join("queue/read_ahead_kb");
        let _ = std::fs::write(path, READ_AHEAD_KIB.to_string());
    }
}

fn sysfs(number: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/loop{number}"))
}

fn configure(device: &File, file: &File) -> io::Result<()> {
    let mut config = LoopConfig {
        fd: file.as_raw_fd() as u32,
        block_size: 512,
        info: LoopInfo64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel copies one `struct loop_config` from `config`, which has its layout and
    // outlives the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw mut config) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Containers often have a static /dev without the nodes of new devices.
fn ensure_node(number: u32) -> io::Result<()> {
    let path = node(number);
    match std::fs::metadata(&path) {
        Ok(found) if found.file_type().is_block_device() => Ok(()),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => {
            let device = makedev(LOOP_MAJOR, number);
            let mode = Mode::RUSR | Mode::WUSR;
            match mknodat(rustix::fs::CWD, &path, FileType::BlockDevice, mode, device) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
                Err(e) => Err(e.into()),
            }
        }
    }
}

/// True if the device is attached to `file` (a path as it was when attached).
pub(crate) fn is_attached_to(number: u32, file: &Path) -> bool {
    std::fs::read_to_string(sysfs(number).join("loop/backing_file"))
        .is_ok_and(|name| Path::new(name.trim_end()).starts_with(file))
}

/// Waits until the device has let go of `file`, which it does by itself soon after its last user;
/// asks for it if it does not.
pub(crate) fn detach(number: u32, file: &Path) -> io::Result<()> {
    let asked_after = Instant::now() + Duration::from_millis(500);
    let give_up = asked_after + Duration::from_secs(2);
    let mut asked = false;
    while is_attached_to(number, file) {
        let now = Instant::now();
        if now > give_up {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        if now > asked_after && !asked {
            asked = true;
            let device = File::open(node(number))?;
            // SAFETY: LOOP_CLR_FD takes no argument and touches no memory of ours.
            if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) } < 0 {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::ENXIO) {
                    return Err(error);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
