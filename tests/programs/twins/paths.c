/* Names: bad ones, ways to open, descriptors that are only places, directories read bit by bit. */
#include "twin.h"
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <utime.h>

#ifndef __GLIBC__
#define dirent64 dirent
#endif

CASE(bad_pointers)
{
	char *wrong[] = { 0, (char *)16, (char *)-1, (char *)(1ul << 63) };
	struct stat st;
	struct open_how how = { .flags = O_RDONLY };
	char buf[512];
	for (int i = 0; i < 4; i++) {
		char *p = wrong[i];
		show(open(p, O_RDONLY));
		show(syscall(SYS_openat, AT_FDCWD, p, O_RDONLY));
		show(syscall(SYS_stat, p, &st));
		show(syscall(SYS_lstat, p, &st));
		show(syscall(SYS_newfstatat, AT_FDCWD, p, &st, 0));
		show(syscall(SYS_statx, AT_FDCWD, p, 0, 0x7ff, buf));
		show(access(p, R_OK));
		show(syscall(SYS_faccessat2, AT_FDCWD, p, R_OK, 0));
		show(syscall(SYS_readlink, p, buf, 100));
		show(syscall(SYS_getxattr, p, "user.x", buf, 100));
		show(syscall(SYS_statfs, p, buf));
		show(chdir(p));
		show(syscall(SYS_mkdir, p, 0700));
		show(syscall(SYS_unlink, p));
		show(syscall(SYS_rename, p, "x"));
		show(syscall(SYS_openat2, AT_FDCWD, p, &how, sizeof how));
		stall(10 + i, 1);
	}
	show(syscall(SYS_stat, "many/20", 16));
	show(syscall(SYS_newfstatat, AT_FDCWD, "many/21", 16, 0));
	show(syscall(SYS_statx, AT_FDCWD, "many/22", 0, 0x7ff, 16));
	show(syscall(SYS_readlink, "odd/link", 16, 10));
	show(syscall(SYS_getcwd, 16, 100));
	show(syscall(SYS_getdents64, 0, 16, 100));
}

CASE(names_at_the_end_of_memory)
{
	char *page = last_page();
	struct stat st;
	strcpy(page + 4096 - 8, "many/30");
	show(stat(page + 4096 - 8, &st));
	memcpy(page + 4096 - 7, "many/31", 7);
	show(open(page + 4096 - 7, O_RDONLY));
	show(stat(page + 4096 - 7, &st));
	memset(page, 'a', 4096);
	show(open(page, O_RDONLY));
	char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	strcpy(two + 4093, "many/32");
	int fd = open(two + 4093, O_RDONLY);
	show(fd);
	show(read(fd, page, 100));
}

CASE(long_and_odd_names)
{
	char name[5000];
	struct stat st;
	memset(name, 'a', 256), name[256] = 0;
	show(open(name, O_RDONLY));
	name[255] = 0;
	show(open(name, O_RDONLY));
	for (int i = 0; i < 4090; i += 2)
		memcpy(name + i, "./", 2);
	strcpy(name + 4080, "many/33");
	show(stat(name, &st));
	strcpy(name + 4090, "many/33");
	show(stat(name, &st));
	const char *odd[] = { "", ".", "..", "/", "//", "./many/../many/34", "many/34/", "many//35", "many/", "many/.", "odd/link", "odd/dangling", "odd/loop", "odd/to a directory/f1.c", "odd/hard/below", "nothing/below", "odd/with\nnewline", "-n", 0 };
	for (const char **o = odd; *o; o++) {
		int fd = open(*o, O_RDONLY);
		printf("[%s] %s", *o, fd >= 0 ? "opened" : strerrorname_np(errno));
		printf(" %d %d %d %d\n", stat(*o, &st), lstat(*o, &st), access(*o, R_OK), open(*o, O_RDONLY | O_NOFOLLOW) >= 0);
		syscall(SYS_close_range, 3, ~0u, 0);
	}
}

CASE(ways_to_open)
{
	struct open_how how = { .flags = O_RDONLY };
	unsigned long resolve[] = { RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_XDEV, 0 };
	const char *names[] = { "many/40", "../many/41", "odd/link", "/many/42", "odd/to a directory/f2.c", "/proc/self/exe", "odd/loop", "nothing" };
	int dir = must(open(".", O_RDONLY | O_DIRECTORY));
	for (int r = 0; r < 6; r++)
		for (int n = 0; n < 8; n++) {
			how.resolve = resolve[r];
			int fd = syscall(SYS_openat2, dir, names[n], &how, sizeof how);
			printf("%lx %s: %s\n", resolve[r], names[n], fd >= 0 ? "opened" : strerrorname_np(errno));
			if (fd >= 0)
				close(fd);
		}
	how = (struct open_how){ .flags = O_RDONLY, .mode = 1 };
	show(syscall(SYS_openat2, dir, "data", &how, sizeof how));
	how = (struct open_how){ .flags = 1ul << 40 };
	show(syscall(SYS_openat2, dir, "data", &how, sizeof how));
	how = (struct open_how){ .flags = O_RDONLY, .resolve = 1ul << 40 };
	show(syscall(SYS_openat2, dir, "data", &how, sizeof how));
	show(syscall(SYS_openat2, dir, "data", &how, 8));
	show(openat(dir, "many/43", O_RDONLY | O_DIRECTORY));
	show(openat(dir, "many", O_WRONLY));
	show(openat(dir, "many/44", O_RDONLY | O_CREAT | O_EXCL, 0600));
	show(openat(99, "data", O_RDONLY));
	show(openat(0, "data", O_RDONLY));
}

/* Asked for what is in memory only, both answers are right. */
CASE(only_what_is_cached)
{
	struct open_how how = { .flags = O_RDONLY, .resolve = RESOLVE_CACHED };
	int bad = 0;
	for (int i = 0; i < 20; i++) {
		char name[20], c = 0;
		snprintf(name, sizeof name, "many/%02d", 20 + i);
		int fd = syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how);
		if (fd < 0) {
			bad += errno != EAGAIN;
			fd = must(open(name, O_RDONLY));
		}
		must(read(fd, &c, 1));
		bad += c != 'a' + (20 + i) % 26;
		close(fd);
		fd = syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how);
		bad += fd < 0 && errno != EAGAIN;
		if (fd >= 0)
			close(fd);
	}
	printf("bad %d\n", bad);
}

CASE(files_without_a_name)
{
	char path[64], buf[10] = "";
	int fd = open(getenv("W"), O_TMPFILE | O_RDWR, 0640);
	show(fd >= 0);
	must(write(fd, "nameless", 8));
	stall(20, 5);
	struct stat st;
	fstat(fd, &st);
	printf("links %d\n", (int)st.st_nlink);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	show(linkat(AT_FDCWD, path, AT_FDCWD, in_work("named"), AT_SYMLINK_FOLLOW));
	int again = must(open(in_work("named"), O_RDONLY));
	show(read(again, buf, 9));
	puts(buf);
	int never = must(open(getenv("W"), O_TMPFILE | O_WRONLY | O_EXCL, 0600));
	snprintf(path, sizeof path, "/proc/self/fd/%d", never);
	show(linkat(AT_FDCWD, path, AT_FDCWD, in_work("never"), AT_SYMLINK_FOLLOW));
}

CASE(descriptors_that_are_places)
{
	char buf[10];
	struct stat st;
	int path = must(open("many/30", O_PATH)), link = must(open("odd/link", O_PATH | O_NOFOLLOW)), dir = must(open("many", O_PATH));
	show(read(path, buf, 1));
	show(fstat(path, &st));
	printf("%d\n", (int)st.st_size);
	show(fstat(link, &st));
	printf("%d\n", S_ISLNK(st.st_mode));
	show(readlinkat(link, "", buf, 10));
	show(fstatat(path, "", &st, AT_EMPTY_PATH));
	show(openat(dir, "31", O_RDONLY) >= 0);
	show(fchdir(dir));
	show(stat("32", &st));
	show(fchmod(path, 0600));
	show(lseek(path, 0, SEEK_SET));
	show(mmap(0, 4096, PROT_READ, MAP_PRIVATE, path, 0) == MAP_FAILED ? -1 : 0);
	show(fcntl(path, F_GETFL) & O_PATH ? 1 : 0);
	snprintf(buf, sizeof buf, "%d", path);
	char again[40];
	snprintf(again, sizeof again, "/proc/self/fd/%s", buf);
	int fd = must(open(again, O_RDONLY));
	show(read(fd, buf, 5));
	printf("%.5s\n", buf);
}

CASE(opened_again_through_proc)
{
	char path[64], target[4096], buf[100];
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof path, "many/%02d", 30 + i);
		int fd = must(open(path, O_RDONLY));
		must(read(fd, buf, 60));
		snprintf(path, sizeof path, i % 2 ? "/proc/self/fd/%d" : "/dev/fd/%d", fd);
		int again = must(open(path, O_RDONLY));
		printf("%ld %ld ", (long)lseek(fd, 0, SEEK_CUR), (long)lseek(again, 0, SEEK_CUR));
		ssize_t n = must(readlink(path, target, sizeof target - 1));
		target[n] = 0;
		puts(strrchr(target, '/'));
		snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
		printf("pos %ld flags %lo\n", proc_number(path, "pos:", 10), proc_number(path, "flags:", 8));
		close(fd), close(again);
	}
	show(open("/proc/self/fd/77", O_RDONLY));
	show(readlink("/proc/self/fd/77", target, 10));
}

static unsigned entries(int fd, size_t size)
{
	char *buf = malloc(size);
	unsigned h = 0, n = 0;
	long got;
	while ((got = syscall(SYS_getdents64, fd, buf, size)) > 0)
		for (long at = 0; at < got; n++) {
			struct dirent64 *e = (void *)(buf + at);
			/* Random order. */
			h += sum(e->d_name, strlen(e->d_name)) * (e->d_type + 1);
			at += e->d_reclen;
		}
	free(buf);
	printf("%zu: %u entries, %u, then %ld\n", size, n, h, got);
	return n;
}

CASE(directories_bit_by_bit)
{
	size_t sizes[] = { 24, 32, 48, 100, 1000, 32768 };
	for (int i = 0; i < 6; i++) {
		int fd = must(open("many", O_RDONLY | O_DIRECTORY));
		entries(fd, sizes[i]);
		show(lseek(fd, 0, SEEK_SET));
		entries(fd, 300);
		close(fd);
	}
	int fd = must(open("many", O_RDONLY | O_DIRECTORY));
	char buf[400];
	show(syscall(SYS_getdents64, fd, buf, 10));
	show(syscall(SYS_getdents64, fd, 16, 1000));
	show(syscall(SYS_getdents64, 0, buf, 400));
	show(syscall(SYS_getdents, fd, buf, 400) > 0);
	show(read(fd, buf, 10));
}

CASE(directories_that_change)
{
	int n = 0;
	for (int i = 0; i < 30; i++) {
		char name[20];
		snprintf(name, sizeof name, "f%d", i);
		write_file(in_work(name), name, 0600);
	}
	DIR *d = opendir(getenv("W"));
	stall(20, 5);
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] == 'f') {
			must(unlinkat(dirfd(d), e->d_name, 0));
			n++;
		}
	printf("%d\n", n);
	rewinddir(d);
	while (readdir(d))
		n++;
	printf("%d\n", n);
	show(rmdir(in_work("none")));
	must(mkdir(in_work("sub"), 0700));
	must(chdir(in_work("sub")));
	must(rmdir(in_work("sub")));
	char cwd[100];
	show(getcwd(cwd, 100) ? 0 : -1);
	show(open(".", O_RDONLY | O_DIRECTORY) >= 0);
	show(open("x", O_WRONLY | O_CREAT, 0600));
	stall(30, 5);
}

CASE(attributes)
{
	struct stat st;
	struct statfs fs;
	char value[20] = "", *path = in_work("file");
	write_file(path, "text", 0640);
	show(setxattr(path, "user.twin", "value", 5, 0));
	stall(20, 5);
	show(getxattr(path, "user.twin", value, 20));
	puts(value);
	show(getxattr(path, "user.none", value, 20));
	show(listxattr("many/30", value, 20) >= 0);
	show(getxattr("many/31", "user.none", value, 20));
	struct utimbuf t = { 1000000000, 1100000000 };
	show(utime(path, &t));
	stat(path, &st);
	printf("%ld %ld %o\n", (long)st.st_atime, (long)st.st_mtime, st.st_mode);
	show(link(path, in_work("second")));
	show(symlink("file", in_work("link")));
	show(rename(in_work("second"), in_work("third")));
	show(syscall(SYS_renameat2, AT_FDCWD, in_work("third"), AT_FDCWD, in_work("link"),
	             1 /* RENAME_NOREPLACE */));
	show(syscall(SYS_renameat2, AT_FDCWD, in_work("third"), AT_FDCWD, in_work("link"),
	             2 /* RENAME_EXCHANGE */));
	show(statfs(path, &fs));
	printf("%lx\n", (long)fs.f_type);
	show(mknod(in_work("device"), S_IFCHR | 0600, 0x103));
	show(mkfifo(in_work("fifo"), 0604));
	show(truncate(path, 2));
	lstat(in_work("third"), &st);
	printf("%d\n", S_ISLNK(st.st_mode));
}

/* Access times: that of a file that is read is what it would have been. */
CASE(access_times)
{
	struct stat st;
	struct timespec old[2] = { { 1000000000, 0 }, { 1100000000, 0 } };
	char buf[10];
	for (int i = 0; i < 6; i++) {
		char name[20];
		snprintf(name, sizeof name, "read%d", i);
		write_file(in_work(name), "text to be read", 0600);
		must(utimensat(AT_FDCWD, in_work(name), old, 0));
	}
	stall(10, 10);
	for (int i = 0; i < 6; i++) {
		char name[20];
		snprintf(name, sizeof name, "read%d", i);
		int fd = must(open(in_work(name), O_RDONLY | (i == 2 ? O_NOATIME : 0)));
		if (i == 1 || i == 2)
			must(read(fd, buf, 10));
		if (i == 3)
			must(pread(fd, buf, 0, 0));
		if (i == 4)
			printf("%c\n", *(char *)mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
		close(fd);
		stat(in_work(name), &st);
		printf("%d: %s\n", i, st.st_atime == 1000000000 ? "as it was" : "read");
	}
	int again = 0;
	for (int i = 0; i < 6; i++) {
		char name[20];
		snprintf(name, sizeof name, "read%d", i);
		stat(in_work(name), &st);
		again = again * 2 + (st.st_atime == 1000000000);
	}
	printf("%d\n", again);
}
