/* Files, directories and everything about them. The working directory is the suite's tree. */
#define OPEN_HOW(FLAGS, MODE) (&(struct open_how){ .flags = (FLAGS), .mode = (MODE) }), sizeof(struct open_how)

ONE(open_create, SYS_open, "tree/made", "made", O_CREAT | O_WRONLY, 0600)
ONE(open_truncate, SYS_open, "tree/file:size", "file", O_WRONLY | O_TRUNC)
ONE(open_fifo, SYS_open, "tree/fifo:reader", "fifo", O_RDONLY | O_NONBLOCK)
ONE(openat_create, SYS_openat, "tree/made", AT_FDCWD, "made", O_CREAT | O_RDWR, 0600)
ONE(openat_truncate, SYS_openat, "tree/file:size", AT_FDCWD, "file", O_RDONLY | O_TRUNC)
ONE(openat_temporary, SYS_openat, "space", AT_FDCWD, ".", O_TMPFILE | O_RDWR, 0600)
ONE(openat2_create, SYS_openat2, "tree/made", AT_FDCWD, "made", OPEN_HOW(O_CREAT | O_WRONLY, 0600))
ONE(openat2_create_to_read, SYS_openat2, "tree/made", AT_FDCWD, "made", OPEN_HOW(O_CREAT | O_RDONLY, 0600))
ONE(openat2_truncate, SYS_openat2, "tree/file:size", AT_FDCWD, "file", OPEN_HOW(O_RDONLY | O_TRUNC, 0))
ONE(openat2_temporary, SYS_openat2, "space", AT_FDCWD, ".", OPEN_HOW(O_TMPFILE | O_RDWR, 0600))
LEAK(openat2_fifo, SYS_openat2, "tree/fifo:reader", 0,
     "no rule tells a FIFO from a file: the agent looks (O_PATH) before it opens")
{
	return T(SYS_openat2, AT_FDCWD, "fifo", OPEN_HOW(O_RDONLY | O_NONBLOCK, 0));
}
LEAK(openat2_device, SYS_openat2, "pts", 0,
     "no rule tells a device from a file: the agent looks (O_PATH) before it opens")
{
	return T(SYS_openat2, AT_FDCWD, "/dev/pts/ptmx", OPEN_HOW(O_RDONLY | O_NOCTTY, 0));
}
CASE(openat2_write, SYS_openat2, "tree/file:content")
{
	int fd = T(SYS_openat2, AT_FDCWD, "file", OPEN_HOW(O_WRONLY, 0));
	return FAILED(fd) ? fd : T(SYS_write, fd, "leak", 4);
}
CASE(open_again_write, SYS_openat2, "tree/file:content")
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%ld", N(file));
	int fd = T(SYS_openat2, AT_FDCWD, path, OPEN_HOW(O_RDWR, 0));
	return FAILED(fd) ? fd : T(SYS_pwrite64, fd, "leak", 4, 0);
}
ONE(creat, SYS_creat, "tree/made", "made", 0600)
ONE(truncate, SYS_truncate, "tree/file:size", "file", 3)
ONE(ftruncate, SYS_ftruncate, "tree/file:size", N(file), 3)
ONE(fallocate, SYS_fallocate, "tree/file:size", N(file), 0, 0, 100000)
ONE(fallocate_hole, SYS_fallocate, "tree/file:content", N(file), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)
ONE(rename, SYS_rename, "tree/made", "victim", "made")
ONE(renameat, SYS_renameat, "tree/made", AT_FDCWD, "victim", AT_FDCWD, "made")
ONE(renameat2, SYS_renameat2, "tree/victim:ino", AT_FDCWD, "victim", AT_FDCWD, "file", RENAME_EXCHANGE)
ONE(mkdir, SYS_mkdir, "tree/made", "made", 0700)
ONE(mkdirat, SYS_mkdirat, "tree/made", AT_FDCWD, "made", 0700)
ONE(rmdir, SYS_rmdir, "tree/empty", "empty")
ONE(link, SYS_link, "tree/made", "file", "made")
ONE(linkat, SYS_linkat, "tree/made", AT_FDCWD, "file", AT_FDCWD, "made", 0)
ONE(symlink, SYS_symlink, "tree/made", "file", "made")
ONE(symlinkat, SYS_symlinkat, "tree/made", "file", AT_FDCWD, "made")
ONE(unlink, SYS_unlink, "tree/victim", "victim")
ONE(unlinkat, SYS_unlinkat, "tree/victim", AT_FDCWD, "victim", 0)
ONE(unlinkat_directory, SYS_unlinkat, "tree/empty", AT_FDCWD, "empty", AT_REMOVEDIR)
ONE(mknod, SYS_mknod, "tree/made", "made", S_IFIFO | 0600, 0)
ONE(mknodat, SYS_mknodat, "tree/made", AT_FDCWD, "made", S_IFCHR | 0600, 0x103)
ONE(chmod, SYS_chmod, "tree/file:mode", "file", 0777)
ONE(fchmod, SYS_fchmod, "tree/file:mode", N(file), 0777)
ONE(fchmodat, SYS_fchmodat, "tree/file:mode", AT_FDCWD, "file", 0777)
ONE(fchmodat2, SYS_fchmodat2, "tree/file:mode", AT_FDCWD, "file", 0777, 0)
ONE(chown, SYS_chown, "tree/file:owner", "file", 1234, 1234)
ONE(fchown, SYS_fchown, "tree/file:owner", N(file), 1234, 1234)
ONE(lchown, SYS_lchown, "tree/link:owner", "link", 1234, 1234)
ONE(fchownat, SYS_fchownat, "tree/file:owner", AT_FDCWD, "file", 1234, 1234, 0)
ONE(utime, SYS_utime, "tree/file:mtime", "file", 0)
ONE(utimes, SYS_utimes, "tree/file:mtime", "file", 0)
ONE(futimesat, SYS_futimesat, "tree/file:mtime", AT_FDCWD, "file", 0)
ONE(utimensat, SYS_utimensat, "tree/file:mtime", AT_FDCWD, "file", 0, 0)
ONE(setxattr, SYS_setxattr, "tree/file:xattr", "file", "trusted.leak", "x", 1, 0)
ONE(lsetxattr, SYS_lsetxattr, "tree/file:xattr", "file", "trusted.leak", "x", 1, 0)
ONE(fsetxattr, SYS_fsetxattr, "tree/file:xattr", N(file), "trusted.leak", "x", 1, 0)
ONE(setxattrat, SYS_setxattrat, "tree/file:xattr", AT_FDCWD, "file", 0, "trusted.leak", ((long[]){ (long)"x", 1 }), 16)
ONE(removexattr, SYS_removexattr, "tree/file:xattr", "file", "trusted.old")
ONE(lremovexattr, SYS_lremovexattr, "tree/file:xattr", "file", "trusted.old")
ONE(fremovexattr, SYS_fremovexattr, "tree/file:xattr", N(file), "trusted.old")
ONE(removexattrat, SYS_removexattrat, "tree/file:xattr", AT_FDCWD, "file", 0, "trusted.old")
/* FS_XFLAG_NODUMP */
ONE(file_setattr, SYS_file_setattr, "tree/file:flags", AT_FDCWD, "file", ((long[]){ 0x80, 0, 0 }), 24, 0)
/* FS_IOC_SETFLAGS, FS_NODUMP_FL */
ONE(ioctl_file_flags, SYS_ioctl, "tree/file:flags", N(file), 0x40086602, &(long){ 0x40 })
CASE(open_by_handle_at, SYS_open_by_handle_at, "tree/file:size")
{
	struct { struct file_handle head; char bytes[128]; } handle = { .head.handle_bytes = 128 };
	int id;
	long ret = T(SYS_name_to_handle_at, AT_FDCWD, "file", &handle, &id, 0);
	return FAILED(ret) ? ret : T(SYS_open_by_handle_at, N(directory), &handle, O_WRONLY | O_TRUNC);
}
/* Reading leaves a trace, too: access times, and the offsets that a description shares. */
ONE(read_offset, SYS_read, "fd/file:info", N(file), buffer, 4)
ONE(readv_offset, SYS_readv, "fd/file:info", N(file), (&(struct iovec){ buffer, 4 }), 1)
ONE(pread64_time, SYS_pread64, "tree/file:atime", N(file), buffer, 4, 0)
ONE(preadv_time, SYS_preadv, "tree/file:atime", N(file), (&(struct iovec){ buffer, 4 }), 1, 0, 0)
ONE(preadv2_time, SYS_preadv2, "tree/file:atime", N(file), (&(struct iovec){ buffer, 4 }), 1, 0, 0, 0)
LEAK(open_read_time, SYS_pread64, "tree/foreign:atime", 0,
     "the flag by which openat2 reads without a trace lies in memory, where no filter looks")
{
	int fd = T(SYS_openat2, AT_FDCWD, "foreign", OPEN_HOW(O_RDONLY | O_NOATIME, 0));
	if (FAILED(fd) || (fd = T(SYS_openat2, AT_FDCWD, "foreign", OPEN_HOW(O_RDONLY, 0))) < 0)
		return fd;
	return T(SYS_pread64, fd, buffer, 4, 0);
}
ONE(readlink_time, SYS_readlink, "tree/link:atime", "link", buffer, 64)
LEAK(readlinkat_time, SYS_readlinkat, "tree/link:atime", 0,
     "reading a link's text is what the call is for, and the kernel notes the time")
{
	return T(SYS_readlinkat, AT_FDCWD, "link", buffer, 64);
}
ONE(lseek, SYS_lseek, "fd/file:info", N(file), 9, SEEK_SET)
ONE(getdents, SYS_getdents, "fd/directory:info", N(directory), buffer, 64)
ONE(getdents64, SYS_getdents64, "fd/directory:info", N(directory), buffer, 64)
/* Writing. */
ONE(write_file, SYS_write, "tree/file:content", N(file), "leak", 4)
ONE(writev_file, SYS_writev, "tree/file:content", N(file), (&(struct iovec){ "leak", 4 }), 1)
ONE(pwrite64, SYS_pwrite64, "tree/file:content", N(file), "leak", 4, 0)
ONE(pwritev, SYS_pwritev, "tree/file:content", N(file), (&(struct iovec){ "leak", 4 }), 1, 0, 0)
ONE(pwritev2, SYS_pwritev2, "tree/file:content", N(file), (&(struct iovec){ "leak", 4 }), 1, 0, 0, 0)
ONE(copy_file_range, SYS_copy_file_range, "tree/other:content", N(file), (&(long){ 0 }), N(other), (&(long){ 0 }), 8, 0)
ONE(sendfile_file, SYS_sendfile, "tree/other:content", N(other), N(file), (&(long){ 0 }), 8)
CASE(io_submit, SYS_io_submit, "tree/file:content")
{
	long context = 0;
	struct { long data; int key, flags; short op, prio; int fd; long buf, len, offset, r; int f, e; } block = {
		.op = 1 /* PWRITE */, .fd = N(file), .buf = (long)"leak", .len = 4 };
	void *blocks[] = { &block };
	long ret = T(SYS_io_setup, 4, &context);
	return FAILED(ret) ? ret : T(SYS_io_submit, context, 1, blocks);
}
ONE(io_setup, SYS_io_setup, "shadow/shared maps", 4, buffer)
/* Locks. */
#define LOCK(TYPE) (&(struct flock){ .l_type = (TYPE), .l_len = 10 })
ONE(flock, SYS_flock, "locks", N(file), LOCK_SH | LOCK_NB)
ONE(fcntl_lock, SYS_fcntl, "locks", N(file), F_SETLK, LOCK(F_WRLCK))
ONE(fcntl_lock_wait, SYS_fcntl, "locks", N(file), F_SETLKW, LOCK(F_RDLCK))
ONE(fcntl_open_lock, SYS_fcntl, "locks", N(file), F_OFD_SETLK, LOCK(F_WRLCK))
ONE(fcntl_lease, SYS_fcntl, "locks", N(leased), F_SETLEASE, F_RDLCK)
