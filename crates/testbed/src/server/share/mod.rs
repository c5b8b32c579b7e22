//! The FUSE file system of a share: a directory as an NFSv3 mount with cached attributes would show
//! it.
//!
//! Names (absent ones too) and attributes are cached by the kernel for the given time, pages until
//! they are evicted; opening costs no message (OPEN and OPENDIR are answered once with ENOSYS), and
//! there is no `RWF_NOWAIT`. Every request that reaches the server is carried out at once and
//! answered when its delay is over, so the source's own storage adds nothing as long as it is the
//! faster.
//!
//! Invariant: requests that only tell the server's abilities (ENOSYS, once a mount) are neither
//! delayed nor counted; all others are.

mod kernel_cache;
mod late_errors;
mod node_table;
mod source_directory;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::AtFlags;

use super::deferred_replies::Pacer;
use crate::model::Access;
use crate::stats::Op;
use kernel_cache::RootNames;
use late_errors::LateErrors;
use source_directory::{Changes, SourceDirectory};

/// Node ids are never reused while the kernel knows them, so one generation is enough.
const GENERATION: Generation = Generation(0);

/// File system of a share.
pub(super) struct ShareFs {
    source: SourceDirectory,
    timeout: Duration,
    names: RootNames,
    late: LateErrors,
    pacer: Pacer,
}

impl ShareFs {
    pub(super) fn new(
        dir: &Path,
        timeout: Duration,
        late_error: Option<i32>,
        pacer: Pacer,
    ) -> io::Result<Self> {
        let source = SourceDirectory::open(dir)?;
        let names = RootNames::new(source.nodes.clone());
        Ok(Self { source, timeout, names, late: LateErrors::new(late_error), pacer })
    }

    pub(super) fn root_names(&self) -> RootNames {
        self.names.clone()
    }

    fn control(&self, op: Op, job: impl FnOnce() + Send + 'static) {
        self.pacer.submit(op, Access::Control, 0, job);
    }

    fn send_entry(&self, op: Op, result: io::Result<FileAttr>, reply: ReplyEntry) {
        let timeout = self.timeout;
        self.control(op, move || match result {
            Ok(attr) => reply.entry(&timeout, &attr, GENERATION),
            Err(e) => reply.error(e.into()),
        });
    }

    fn send_attr(&self, op: Op, result: io::Result<FileAttr>, reply: ReplyAttr) {
        let timeout = self.timeout;
        self.control(op, move || match result {
            Ok(attr) => reply.attr(&timeout, &attr),
            Err(e) => reply.error(e.into()),
        });
    }

    fn send_empty(&self, op: Op, result: io::Result<()>, reply: ReplyEmpty) {
        self.control(op, move || match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        });
    }

    fn send_data(&self, op: Op, offset: u64, result: io::Result<Vec<u8>>, reply: ReplyData) {
        let len = result.as_ref().map_or(0, |data| data.len() as u64);
        self.pacer.submit(op, Access::Data { offset, len }, len, move || match result {
            Ok(data) => reply.data(&data),
            Err(e) => reply.error(e.into()),
        });
    }
}

impl Filesystem for ShareFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        super::kernel_limits::lift_kernel_limits(config);
        let required = InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO;
        config
            .add_capabilities(required)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        // Newer than the rest, and only saves messages.
        let _ = config.add_capabilities(InitFlags::FUSE_CACHE_SYMLINKS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.names.record(parent, name);
        let result = match self.source.look_up(parent, name) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(ABSENT),
            other => other,
        };
        self.send_entry(Op::Lookup, result, reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.source.nodes.forget(ino, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.send_attr(Op::Getattr, self.source.attributes(ino), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes { mode, uid, gid, size, atime, mtime };
        self.send_attr(Op::Setattr, self.source.change(ino, &changes), reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.send_data(Op::Readlink, 0, self.source.read_link(ino), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.names.record(parent, name);
        let result = self.source.make_node(request, parent, name, mode, rdev);
        self.send_entry(Op::Mknod, result, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.names.record(parent, name);
        self.send_entry(Op::Mkdir, self.source.make_dir(request, parent, name, mode), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.names.record(parent, name);
        let result = self.source.make_link(request, parent, name, target);
        self.send_entry(Op::Symlink, result, reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.names.record(parent, name);
        self.send_entry(Op::Link, self.source.link(ino, parent, name), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.source.unlink(parent, name, AtFlags::empty());
        self.send_empty(Op::Unlink, result, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.source.unlink(parent, name, AtFlags::REMOVEDIR);
        self.send_empty(Op::Rmdir, result, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.names.record(newparent, newname);
        let result = self.source.rename((parent, name), (newparent, newname), flags.bits());
        self.send_empty(Op::Rename, result, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    /// Reports errors of late writes; nothing is buffered that closing would have to write.
    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if !self.late.is_on() {
            return reply.error(Errno::ENOSYS);
        }
        self.send_empty(Op::Flush, self.late.settle(ino), reply);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.names.record(parent, name);
        let result = self.source.create(request, parent, name, mode, flags);
        let timeout = self.timeout;
        self.control(Op::Create, move || match result {
            Ok(attr) => {
                let keep = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&timeout, &attr, GENERATION, FileHandle(0), keep);
            }
            Err(e) => reply.error(e.into()),
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.send_data(Op::Read, offset, self.source.read(ino, offset, size), reply);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let result = self.source.write(ino, offset, data);
        self.late.wrote(ino);
        let len = data.len() as u64;
        self.pacer.submit(Op::Write, Access::Data { offset, len }, len, move || match result {
            Ok(written) => reply.written(written),
            Err(e) => reply.error(e.into()),
        });
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let result = self.source.sync(ino).and(self.late.settle(ino));
        self.send_empty(Op::Fsync, result, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.send_empty(Op::Fsync, self.source.sync(ino), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let result = self.source.list(ino, offset, |entry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = node_table::kind(entry.file_type());
            !reply.add(INodeNo(entry.ino()), entry.next_entry_cookie(), kind, name)
        });
        self.control(Op::Readdir, move || match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let result = self.source.space();
        self.control(Op::Statfs, move || match result {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(e) => reply.error(e.into()),
        });
    }
}

/// An entry with node 0 tells the kernel that the name is absent, and for how long it may rely on
/// that; an error would not be cached.
const ABSENT: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};
