//! The FUSE file system under a disk: one directory with one file, [`IMAGE_NAME`], for the
//! loop device.
//!
//! Invariant: data move when a request arrives (writes) or when it is answered (reads), so a read
//! that was answered after a write to the same block was answered sees that write.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, ReplyXattr, Request, WriteFlags,
};

use super::backing_file::BackingFile;
use super::deferred_replies::Pacer;
use crate::model::Access;
use crate::stats::Op;

/// Name of the one file in the FUSE file system below a disk.
pub(crate) const IMAGE_NAME: &str = "disk";
const IMAGE: INodeNo = INodeNo(2);
/// Validity of attributes: only the kernel changes them.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// File system below a disk.
pub(super) struct DiskFs {
    backing: Arc<BackingFile>,
    pacer: Pacer,
}

impl DiskFs {
    pub(super) fn new(backing: BackingFile, pacer: Pacer) -> Self {
        Self { backing: Arc::new(backing), pacer }
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let image = ino == IMAGE;
        FileAttr {
            ino,
            size: if image { self.backing.size() } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if image { FileType::RegularFile } else { FileType::Directory },
            perm: if image { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for DiskFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        super::kernel_limits::lift_kernel_limits(config);
        // Without it the loop device's requests would be served one after the other.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == IMAGE_NAME {
            reply.entry(&FOR_EVER, &self.attr(IMAGE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = u64::from(size);
        let backing = Arc::clone(&self.backing);
        self.pacer.submit(Op::Read, Access::Data { offset, len }, len, move || {
            reply.data(backing.read(offset, len));
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.backing.write(offset, data);
        let len = data.len() as u64;
        self.pacer.submit(Op::Write, Access::Data { offset, len }, len, move || match written {
            Ok(()) => reply.written(len as u32),
            Err(e) => reply.error(e.into()),
        });
    }

    /// The disk's cache flush. Nothing outlives the server, so there is nothing to flush; it takes
    /// its time all the same.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.pacer.submit(Op::Fsync, Access::Control, 0, move || reply.ok());
    }

    /// The disk's discard and write-zeroes, which the loop device asks for with these modes.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.backing.discard(offset, length);
        self.pacer.submit(Op::Discard, Access::Control, 0, move || match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        });
    }

    /// Answers that it is not supported; the kernel stops asking after the first answer.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}
