//! Operations of a share on its source directory, one function for each kind of request.
//!
//! Invariant: every call names its object by a node's descriptor, or by one name relative to it,
//! and follows no symbolic link: those are the client's to follow.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use fuser::{FileAttr, INodeNo, Request, TimeOrNow};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawDir, RawDirEntry, RenameFlags, SeekFrom, StatVfs,
    Timespec, Timestamps, Uid, chownat, fstatvfs, linkat, mkdirat, mknodat, openat, readlinkat,
    renameat_with, seek, symlinkat, unlinkat, utimensat,
};

use super::node_table::{Node, NodeTable, attributes};

/// Descriptors of files just created, kept because their mode may forbid to open them again for
/// writing (0444), as an ordinary user. Zero-message opens know no release, so the oldest goes when
/// the table is full.
const CREATED_KEPT: usize = 64;

/// Changes that a setattr makes; `None` leaves a field as it is.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
}

/// The source directory.
#[derive(Debug)]
pub(super) struct SourceDirectory {
    pub(super) nodes: Arc<NodeTable>,
    created: Mutex<std::collections::VecDeque<(u64, Arc<File>)>>,
    /// True if files made for other users can be given to them.
    privileged: bool,
}

impl SourceDirectory {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, dir, flags, Mode::empty())?;
        Ok(Self {
            nodes: Arc::new(NodeTable::new(root)?),
            created: Mutex::default(),
            privileged: rustix::process::geteuid().is_root(),
        })
    }

    fn node(&self, ino: INodeNo) -> io::Result<Arc<Node>> {
        let stale = || io::Error::from_raw_os_error(libc::ESTALE);
        self.nodes.get(ino).ok_or_else(stale)
    }

    pub(super) fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let parent = self.node(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.enter(openat(&parent.fd, name, flags, Mode::empty())?)
    }

    /// Makes the node of an open inode known to the kernel.
    fn enter(&self, fd: OwnedFd) -> io::Result<FileAttr> {
        let stat = rustix::fs::statat(&fd, c"", AtFlags::EMPTY_PATH)?;
        let node = self.nodes.look_up(fd, &stat);
        Ok(attributes(node.id, &stat))
    }

    /// The root shows its own inode number too, though its node has another.
    pub(super) fn attributes(&self, ino: INodeNo) -> io::Result<FileAttr> {
        let node = self.node(ino)?;
        let stat = node.stat()?;
        let shown = if ino == INodeNo::ROOT { stat.st_ino } else { node.id };
        Ok(attributes(shown, &stat))
    }

    pub(super) fn change(&self, ino: INodeNo, changes: &Changes) -> io::Result<FileAttr> {
        let node = self.node(ino)?;
        if let Some(mode) = changes.mode {
            rustix::fs::chmod(node.proc_path(), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let uid = changes.uid.map(Uid::from_raw);
            let gid = changes.gid.map(Gid::from_raw);
            chownat(&node.fd, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = changes.size {
            self.writable(&node)?.set_len(size)?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.atime)?,
                last_modification: timespec(changes.mtime)?,
            };
            utimensat(&node.fd, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        self.attributes(ino)
    }

    pub(super) fn read_link(&self, ino: INodeNo) -> io::Result<Vec<u8>> {
        let node = self.node(ino)?;
        Ok(readlinkat(&node.fd, c"", Vec::new())?.into_bytes())
    }

    pub(super) fn read(&self, ino: INodeNo, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let node = self.node(ino)?;
        let open = || {
            openat(
                rustix::fs::CWD,
                node.proc_path(),
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        let file = match open() {
            Ok(fd) => Arc::new(File::from(fd)),
            Err(rustix::io::Errno::ACCESS) => self.just_created(node.id)?,
            Err(e) => return Err(e.into()),
        };
        let size = size as usize;
        let mut data = Vec::with_capacity(size);
        while data.len() < size {
            let at = offset + data.len() as u64;
            if rustix::io::pread(&*file, rustix::buffer::spare_capacity(&mut data), at)? == 0 {
                break;
            }
        }
        data.truncate(size);
        Ok(data)
    }

    pub(super) fn write(&self, ino: INodeNo, offset: u64, data: &[u8]) -> io::Result<u32> {
        self.writable(&*self.node(ino)?)?.write_all_at(data, offset)?;
        Ok(data.len() as u32)
    }

    pub(super) fn sync(&self, ino: INodeNo) -> io::Result<()> {
        let node = self.node(ino)?;
        let fd = openat(
            rustix::fs::CWD,
            node.proc_path(),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(rustix::fs::fsync(fd)?)
    }

    fn writable(&self, node: &Node) -> io::Result<Arc<File>> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(rustix::fs::CWD, node.proc_path(), flags, Mode::empty()) {
            Ok(fd) => Ok(Arc::new(fd.into())),
            Err(rustix::io::Errno::ACCESS) => self.just_created(node.id),
            Err(e) => Err(e.into()),
        }
    }

    fn just_created(&self, id: u64) -> io::Result<Arc<File>> {
        let created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        let found = created.iter().rev().find(|(of, _)| *of == id);
        let (_, file) = found.ok_or(io::ErrorKind::PermissionDenied)?;
        Ok(Arc::clone(file))
    }

    /// Calls `each` with inode, cookie of the entry after it, type and name, from cookie `from`
    /// until it returns false. The directory is opened anew each time, since a client does not say
    /// when it has finished.
    pub(super) fn list(
        &self,
        ino: INodeNo,
        from: u64,
        mut each: impl FnMut(&RawDirEntry<'_>) -> bool,
    ) -> io::Result<()> {
        let node = self.node(ino)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&node.fd, c".", flags, Mode::empty())?;
        if from != 0 {
            // Cookies are opaque; lseek takes them as signed numbers and gives them back.
            seek(&dir, SeekFrom::Start(from))?;
        }
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            if !each(&entry?) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> io::Result<FileAttr> {
        let parent = self.node(parent)?;
        // The kernel places appended data and needs no direct I/O; reading back is needed for
        // partial pages.
        let kept = OFlags::from_bits_retain(flags as u32) & (OFlags::EXCL | OFlags::TRUNC);
        let flags = kept | OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&parent.fd, name, flags, Mode::from_raw_mode(mode & 0o7777))?;
        self.give(request, &parent, name)?;
        let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let attr = self.enter(openat(&parent.fd, name, path, Mode::empty())?)?;
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        if created.len() == CREATED_KEPT {
            created.pop_front();
        }
        created.push_back((attr.ino.0, Arc::new(file.into())));
        Ok(attr)
    }

    pub(super) fn make_node(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        device: u32,
    ) -> io::Result<FileAttr> {
        let dir = self.node(parent)?;
        let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
        mknodat(&dir.fd, name, kind, mode, u64::from(device))?;
        self.give(request, &dir, name)?;
        self.look_up(parent, name)
    }

    pub(super) fn make_dir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<FileAttr> {
        let dir = self.node(parent)?;
        mkdirat(&dir.fd, name, Mode::from_raw_mode(mode & 0o7777))?;
        self.give(request, &dir, name)?;
        self.look_up(parent, name)
    }

    pub(super) fn make_link(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
    ) -> io::Result<FileAttr> {
        let dir = self.node(parent)?;
        symlinkat(target, &dir.fd, name)?;
        self.give(request, &dir, name)?;
        self.look_up(parent, name)
    }

    /// Gives what root made for another user to that user. A directory with the set-group-id bit
    /// gives its own group.
    fn give(&self, request: &Request, parent: &Node, name: &OsStr) -> io::Result<()> {
        if !self.privileged || (request.uid(), request.gid()) == (0, 0) {
            return Ok(());
        }
        let inherits = parent.stat()?.st_mode & libc::S_ISGID != 0;
        let gid = (!inherits).then(|| Gid::from_raw(request.gid()));
        let uid = Some(Uid::from_raw(request.uid()));
        Ok(chownat(&parent.fd, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(super) fn link(&self, ino: INodeNo, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let (node, dir) = (self.node(ino)?, self.node(parent)?);
        let follow = AtFlags::SYMLINK_FOLLOW;
        linkat(rustix::fs::CWD, node.proc_path(), &dir.fd, name, follow)?;
        self.look_up(parent, name)
    }

    pub(super) fn unlink(&self, parent: INodeNo, name: &OsStr, flags: AtFlags) -> io::Result<()> {
        Ok(unlinkat(&self.node(parent)?.fd, name, flags)?)
    }

    pub(super) fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: u32,
    ) -> io::Result<()> {
        let (old, new) = (self.node(from.0)?, self.node(to.0)?);
        let flags = RenameFlags::from_bits_retain(flags);
        Ok(renameat_with(&old.fd, from.1, &new.fd, to.1, flags)?)
    }

    pub(super) fn space(&self) -> io::Result<StatVfs> {
        Ok(fstatvfs(&self.nodes.root().fd)?)
    }
}

fn timespec(time: Option<TimeOrNow>) -> io::Result<Timespec> {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let time = match time {
        None => return Ok(special(rustix::fs::UTIME_OMIT)),
        Some(TimeOrNow::Now) => return Ok(special(rustix::fs::UTIME_NOW)),
        Some(TimeOrNow::SpecificTime(time)) => time,
    };
    let range = |_| io::Error::from_raw_os_error(libc::EINVAL);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timespec::try_from(after).map_err(range),
        Err(before) => {
            // Nanoseconds count forward also before 1970.
            let before = before.duration();
            let whole = before.as_secs() + u64::from(before.subsec_nanos() > 0);
            let tv_sec = -i64::try_from(whole).map_err(range)?;
            let tv_nsec = i64::from((1_000_000_000 - before.subsec_nanos()) % 1_000_000_000);
            Ok(Timespec { tv_sec, tv_nsec })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970() {
        let time = SystemTime::UNIX_EPOCH - Duration::new(1, 250_000_000);
        let spec = timespec(Some(TimeOrNow::SpecificTime(time))).unwrap();
        assert_eq!((spec.tv_sec, spec.tv_nsec), (-2, 750_000_000));
        assert_eq!(timespec(None).unwrap().tv_nsec, rustix::fs::UTIME_OMIT);
    }
}
