//! System calls of the overlay on names.
//!
//! Names are addresses of NUL-terminated strings, the agent's or the program's. The kernel checks
//! the latter.

use linux_raw_sys::general as k;
use runahead_abi::overlay::Origin;
use runahead_abi::{FileId, device_number};

use super::layer::Layer;
use super::view_path::ViewPath;
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Makes a call whose arguments are numbers, and addresses of memory that lives as long as the
/// call.
macro_rules! syscall {
    ($nr:expr $(, $arg:expr)*) => {{
        let given = [$($arg as u64),*];
        let mut args = [0u64; 6];
        args[..given.len()].copy_from_slice(&given);
        // SAFETY: every pointer is to a live object of the size that the call expects, or is the
        // program's, and the kernel is asked for what the program has asked for.
        sys::check(unsafe { sys::raw($nr, args) })
    }};
}
pub(super) use syscall;

/// Makes a call as [`syscall!`], on a name of the layer's lower tree or a descriptor that may be of
/// it.
macro_rules! lower_syscall {
    ($layer:expr, $nr:expr $(, $arg:expr)*) => {{
        let given = [$($arg as u64),*];
        let mut args = [0u64; 6];
        args[..given.len()].copy_from_slice(&given);
        // SAFETY: as in [`syscall!`].
        unsafe { $crate::overlay::lower_layer::lower_syscall($layer, $nr, args) }
    }};
}
pub(super) use lower_syscall;

/// Metadata that statx(2) is asked for.
const WANTED: u32 = k::STATX_BASIC_STATS;

/// Metadata of an entry.
#[derive(Clone, Copy)]
pub(super) struct Stat {
    origin: Origin,
    /// Last access: seconds and nanoseconds.
    accessed: [i64; 2],
    pub owner: u32,
    pub group: u32,
    pub links: u32,
    /// Bits `STATX_ATTR_*`.
    pub attributes: u32,
}

impl Stat {
    /// Reads the metadata at `path`, as the kernel has it. Symbolic links are not followed.
    pub(super) fn of_path(path: u64) -> Result<Self> {
        Self::from_statx(|statx| {
            let flags = k::AT_SYMLINK_NOFOLLOW;
            syscall!(nr::STATX, AT_FDCWD, path, flags, WANTED, statx)
        })
    }

    /// Reads the metadata at `name` in the lower tree. Symbolic links are not followed.
    pub(super) fn lower(name: &ViewPath) -> Result<Self> {
        let (path, flags) = (name.lower_address(), k::AT_SYMLINK_NOFOLLOW);
        Self::from_statx(|statx| {
            lower_syscall!(name.layer(), nr::STATX, AT_FDCWD, path, flags, WANTED, statx)
        })
    }

    /// Reads the metadata of what a path of the program leads to in the lower tree, with all links
    /// followed.
    pub(super) fn lower_followed(layer: Layer, dir: Fd, path: u64) -> Result<Self> {
        Self::from_statx(|statx| lower_syscall!(layer, nr::STATX, dir, path, 0, WANTED, statx))
    }

    /// Reads the metadata of a descriptor of the lower tree.
    pub(super) fn of_lower_fd(layer: Layer, fd: Fd) -> Result<Self> {
        let empty = c"".as_ptr();
        Self::from_statx(|statx| {
            lower_syscall!(layer, nr::STATX, fd, empty, k::AT_EMPTY_PATH, WANTED, statx)
        })
    }

    /// Reads the metadata of a descriptor, as the kernel has it.
    pub(super) fn of_fd(fd: Fd) -> Result<Self> {
        let empty = c"".as_ptr();
        Self::from_statx(|statx| syscall!(nr::STATX, fd, empty, k::AT_EMPTY_PATH, WANTED, statx))
    }

    #[inline(always)]
    fn from_statx(make: impl FnOnce(*mut k::statx) -> Result<u64>) -> Result<Self> {
        // SAFETY: integers, for which zero is valid.
        let mut statx: k::statx = unsafe { core::mem::zeroed() };
        make(&raw mut statx)?;
        Ok(Stat::from(&statx))
    }

    /// Bits of `S_IFMT`.
    pub(super) fn kind(&self) -> u32 {
        self.origin.mode as u32 & k::S_IFMT
    }

    pub(super) fn mode(&self) -> u32 {
        self.origin.mode as u32 & !k::S_IFMT
    }

    /// Size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.origin.size
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == k::S_IFDIR
    }

    /// True if the entry is immutable or append-only: it cannot be removed.
    pub(super) fn is_protected(&self) -> bool {
        self.attributes & (k::STATX_ATTR_IMMUTABLE | k::STATX_ATTR_APPEND) != 0
    }

    /// Returns what is recorded before the first change.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Times of the last access and the last modification, for utimensat(2): seconds and
    /// nanoseconds each.
    pub(super) fn times(&self) -> [i64; 4] {
        let ([a, b], [c, d]) = (self.accessed, self.origin.mtime.map(|part| part as i64));
        [a, b, c, d]
    }
}

impl From<&k::statx> for Stat {
    fn from(statx: &k::statx) -> Self {
        let time = |t: k::statx_timestamp| [t.tv_sec as u64, t.tv_nsec.into()];
        let device = device_number(statx.stx_dev_major, statx.stx_dev_minor);
        let origin = Origin {
            file: FileId { device, inode: statx.stx_ino },
            mode: statx.stx_mode.into(),
            size: statx.stx_size,
            mtime: time(statx.stx_mtime),
            ctime: time(statx.stx_ctime),
        };
        Stat {
            origin,
            accessed: time(statx.stx_atime).map(|part| part as i64),
            owner: statx.stx_uid,
            group: statx.stx_gid,
            links: statx.stx_nlink,
            attributes: statx.stx_attributes as u32,
        }
    }
}

/// A descriptor that is closed on drop.
pub(super) struct OpenFile(pub Fd);

impl OpenFile {
    /// Opens a name that is no symbolic link, by openat(2).
    pub(super) fn at(path: u64, flags: u32, mode: u32) -> Result<Self> {
        let flags = flags | k::O_CLOEXEC | k::O_NOFOLLOW;
        syscall!(nr::OPENAT, AT_FDCWD, path, flags, mode).map(|fd| OpenFile(fd as Fd))
    }

    /// Opens a name of the lower tree for reading, if it is no symbolic link.
    pub(super) fn lower(name: &ViewPath, flags: u32) -> Result<Self> {
        let flags = flags | k::O_CLOEXEC | k::O_NOFOLLOW;
        let fd =
            lower_syscall!(name.layer(), nr::OPENAT, AT_FDCWD, name.lower_address(), flags, 0)?;
        Ok(OpenFile(fd as Fd))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let _ = sys::close(self.0);
    }
}

/// Checks access with the effective user, as opening does (faccessat2(2)).
pub(super) fn access(path: u64, how: u32) -> Result<u64> {
    let flags = k::AT_EACCESS | k::AT_SYMLINK_NOFOLLOW;
    syscall!(nr::FACCESSAT2, AT_FDCWD, path, how, flags)
}

/// Checks access to a name of the lower tree with the effective user.
pub(super) fn access_lower(name: &ViewPath, how: u32) -> Result<u64> {
    let flags = k::AT_EACCESS | k::AT_SYMLINK_NOFOLLOW;
    lower_syscall!(name.layer(), nr::FACCESSAT2, AT_FDCWD, name.lower_address(), how, flags)
}

/// Reads a symbolic link of the lower tree.
pub(super) fn readlink_lower(name: &ViewPath, to: &mut [u8]) -> Result<usize> {
    let (at, room) = (to.as_mut_ptr(), to.len());
    let len =
        lower_syscall!(name.layer(), nr::READLINKAT, AT_FDCWD, name.lower_address(), at, room)?;
    Ok(len as usize)
}

/// Reads records of a directory of the lower tree, by getdents64(2).
pub(super) fn getdents_lower(layer: Layer, directory: Fd, to: &mut [u8]) -> Result<usize> {
    let (at, room) = (to.as_mut_ptr(), to.len());
    lower_syscall!(layer, nr::GETDENTS64, directory, at, room).map(|len| len as usize)
}

pub(super) fn mkdir(path: u64, mode: u32) -> Result<u64> {
    syscall!(nr::MKDIR, path, mode)
}

pub(super) fn rmdir(path: u64) -> Result<u64> {
    syscall!(nr::RMDIR, path)
}

pub(super) fn unlink(path: u64) -> Result<u64> {
    syscall!(nr::UNLINK, path)
}

pub(super) fn symlink(text: u64, path: u64) -> Result<u64> {
    syscall!(nr::SYMLINK, text, path)
}

pub(super) fn rename(from: u64, to: u64, flags: u32) -> Result<u64> {
    syscall!(nr::RENAMEAT2, AT_FDCWD, from, AT_FDCWD, to, flags)
}

/// Makes a link, by link(2). A symbolic link is not followed.
pub(super) fn link(from: u64, to: u64) -> Result<u64> {
    syscall!(nr::LINK, from, to)
}

/// Changes the owner, by lchown(2) with `token`.
pub(super) fn chown(path: u64, owner: u32, group: u32, token: u64) -> Result<u64> {
    syscall!(nr::LCHOWN, path, owner, group, 0, 0, token)
}

/// Changes the permissions, by chmod(2) with `token`. `path` is no symbolic link.
pub(super) fn chmod(path: u64, mode: u32, token: u64) -> Result<u64> {
    syscall!(nr::CHMOD, path, mode, 0, 0, 0, token)
}

/// Sets the times, by utimensat(2) with `token`. A symbolic link is not followed.
pub(super) fn set_times(path: u64, times: &[i64; 4], token: u64) -> Result<u64> {
    syscall!(nr::UTIMENSAT, AT_FDCWD, path, times.as_ptr(), k::AT_SYMLINK_NOFOLLOW, 0, token)
}

/// Writes all of `bytes`.
pub(super) fn write_all(fd: Fd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match syscall!(nr::WRITE, fd, bytes.as_ptr(), bytes.len()) {
            Ok(0) => return Err(Errno(sys::EIO)),
            Ok(written) => bytes = &bytes[written as usize..],
            Err(Errno(sys::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
