//! File attributes: true ones of files in memory, probable ones of others.

use linux_raw_sys::general as k;
use runahead_abi::HintKind;
use runahead_estimators::{Entry, Identity};

use super::name_lookup::LookupResult;
use super::runner::{CallAnswer, Runner};
use super::shadow_descriptors::{Backing, Descriptor, LIKELY_FILE_BYTES};
use crate::plane::Call;
use crate::sys::{self, Fd};

/// Probable attributes of a name that is not in memory.
fn guessed_attributes(name: Identity, kind: u32, entry: Option<Entry>) -> k::statx {
    // SAFETY: statx is integers, for which zero is valid.
    let mut stat: k::statx = unsafe { core::mem::zeroed() };
    let permissions = if kind == k::S_IFDIR { 0o755 } else { 0o644 };
    stat.stx_mask = k::STATX_BASIC_STATS;
    stat.stx_mode = (kind | permissions) as u16;
    stat.stx_ino = entry.map_or(name.raw() >> 16, |e| e.inode);
    // Programs that count links take a directory with two for one without subdirectories.
    stat.stx_nlink = if kind == k::S_IFDIR { 3 } else { 1 };
    stat.stx_size = if kind == k::S_IFREG { LIKELY_FILE_BYTES } else { 4096 };
    stat.stx_blocks = stat.stx_size.div_ceil(512);
    stat.stx_blksize = 4096;
    stat
}

impl Runner {
    /// Entry for `name` that a directory listing contained.
    fn known_entry(&self, name: Identity) -> Option<Entry> {
        self.session.shared().entries.find(name)
    }

    /// Type bits of the mode of `name`, if a directory listing contained it.
    pub(super) fn known_kind(&self, name: Identity) -> Option<u32> {
        match u32::from(self.known_entry(name)?.kind) {
            k::DT_DIR => Some(k::S_IFDIR),
            k::DT_REG => Some(k::S_IFREG),
            k::DT_LNK => Some(k::S_IFLNK),
            _ => None,
        }
    }

    pub(super) fn stat(&mut self, dir: Fd, path: u64, out: u64, flags: u32) -> CallAnswer {
        if flags & k::AT_EMPTY_PATH != 0 && self.is_empty(path) {
            return self.stat_fd(dir, out);
        }
        match self.attributes(dir, path, flags & k::AT_SYMLINK_NOFOLLOW == 0)? {
            Ok(stat) => Ok(write_stat(&stat, out)),
            Err(e) => Ok(e),
        }
    }

    /// Attributes of a name. The inner error is the program's.
    fn attributes(
        &mut self,
        dir: Fd,
        path: u64,
        follow: bool,
    ) -> Result<Result<k::statx, i64>, super::runner::Stop> {
        let name = match self.name(dir, path) {
            Ok(name) => name,
            Err(e) => return Ok(Err(e)),
        };
        self.count_access()?;
        Ok(match self.look_up(&name, HintKind::Lookup, follow) {
            LookupResult::Found(fd, stat) => {
                let _ = sys::close(fd);
                Ok(stat)
            }
            LookupResult::Cold => {
                let kind = self.known_kind(name.identity).unwrap_or(k::S_IFREG);
                // A link leads to something else, most often a file.
                let kind = if follow && kind == k::S_IFLNK { k::S_IFREG } else { kind };
                Ok(guessed_attributes(name.identity, kind, self.known_entry(name.identity)))
            }
            LookupResult::Error(e) => Err(e),
        })
    }

    pub(super) fn stat_fd(&mut self, fd: Fd, out: u64) -> CallAnswer {
        Ok(match self.attributes_fd(fd) {
            Ok(stat) => write_stat(&stat, out),
            Err(e) => e,
        })
    }

    fn attributes_fd(&mut self, fd: Fd) -> Result<k::statx, i64> {
        let Some(&mut Descriptor { backing: behind, identity, .. }) = self.descriptors.get(fd)
        else {
            return Err(sys::fail(sys::EBADF));
        };
        match behind {
            Backing::File(real) | Backing::Directory(real) => {
                sys::statx_fd(real, k::STATX_BASIC_STATS).map_err(|e| sys::fail(e.0))
            }
            Backing::ColdFile => {
                Ok(guessed_attributes(identity, k::S_IFREG, self.known_entry(identity)))
            }
            Backing::ColdDirectory => {
                Ok(guessed_attributes(identity, k::S_IFDIR, self.known_entry(identity)))
            }
            Backing::Sink | Backing::Pipe | Backing::Free => {
                Ok(guessed_attributes(identity, k::S_IFIFO, None))
            }
        }
    }

    pub(super) fn statx(&mut self, call: &Call) -> CallAnswer {
        let [_, path, flags, _, out, _] = call.args;
        let flags = flags as u32;
        let stat = if flags & k::AT_EMPTY_PATH != 0 && self.is_empty(path) {
            self.attributes_fd(call.fd(0))
        } else {
            self.attributes(call.fd(0), path, flags & k::AT_SYMLINK_NOFOLLOW == 0)?
        };
        match stat {
            Ok(stat) => {
                // SAFETY: the program's struct statx, in a process that may fault.
                unsafe { (out as *mut k::statx).write_unaligned(stat) };
                Ok(0)
            }
            Err(e) => Ok(e),
        }
    }

    fn is_empty(&self, path: u64) -> bool {
        // SAFETY: the program's string, in a process that may fault.
        path == 0 || unsafe { *(path as *const u8) } == 0
    }
}

/// Writes `stat` to the program's memory in the older structure of stat(2).
fn write_stat(stat: &k::statx, out: u64) -> i64 {
    // SAFETY: stat is integers, for which zero is valid.
    let mut old: k::stat = unsafe { core::mem::zeroed() };
    let device = |major: u32, minor: u32| {
        // The kernel's encoding of device numbers for user space (new_encode_dev).
        u64::from(minor & 0xff | (major & 0xfff) << 8) | u64::from(minor & !0xff) << 12
    };
    old.st_dev = device(stat.stx_dev_major, stat.stx_dev_minor);
    old.st_ino = stat.stx_ino;
    old.st_nlink = stat.stx_nlink.into();
    old.st_mode = stat.stx_mode.into();
    old.st_uid = stat.stx_uid;
    old.st_gid = stat.stx_gid;
    old.st_rdev = device(stat.stx_rdev_major, stat.stx_rdev_minor);
    old.st_size = stat.stx_size as i64;
    old.st_blksize = stat.stx_blksize.into();
    old.st_blocks = stat.stx_blocks as i64;
    old.st_atime = stat.stx_atime.tv_sec as u64;
    old.st_atime_nsec = stat.stx_atime.tv_nsec.into();
    old.st_mtime = stat.stx_mtime.tv_sec as u64;
    old.st_mtime_nsec = stat.stx_mtime.tv_nsec.into();
    old.st_ctime = stat.stx_ctime.tv_sec as u64;
    old.st_ctime_nsec = stat.stx_ctime.tv_nsec.into();
    // SAFETY: the program's struct stat, in a process that may fault.
    unsafe { (out as *mut k::stat).write_unaligned(old) };
    0
}
