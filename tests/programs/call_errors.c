/* Every error that a path, a buffer or a descriptor can earn, cold and warm. */
#include "program_helpers.h"
#define BAD ((void *)16)

static void paths(void)
{
	struct stat st;
	struct statx x;
	char text[100], longest[5000];
	memset(longest, 'a', sizeof longest);
	longest[sizeof longest - 1] = 0;
	show(open("nothing", O_RDONLY));
	show(open("odd/nothing/below", O_RDONLY));
	show(open("odd/hard/below", O_RDONLY));
	show(open("odd/loop", O_RDONLY));
	show(open("odd/link", O_RDONLY | O_NOFOLLOW));
	show(open("odd/dangling", O_RDONLY));
	show(open("odd/hard", O_RDONLY | O_DIRECTORY));
	show(open("odd", O_WRONLY));
	show(open("", O_RDONLY));
	show(open(longest, O_RDONLY));
	show(openat(77, "x", O_RDONLY));
	show(stat("nothing", &st));
	show(stat("odd/loop", &st));
	show(stat(longest, &st));
	show(lstat("odd/hard/below", &st));
	show(access("odd/dangling", F_OK));
	show(readlink("nothing", text, 10));
	show(chdir("odd/hard"));
	show(statx(77, "x", 0, STATX_BASIC_STATS, &x));
	int fd = must(open("odd", O_RDONLY));
	show(read(fd, text, 10));
	show(pread(fd, text, 10, 0));
	close(fd);
	fd = must(open("odd/hard", O_RDONLY));
	show(syscall(SYS_getdents64, fd, text, 100));
	show(write(fd, "x", 1));
	close(fd);
	fd = must(open("many/01", O_WRONLY));
	show(read(fd, text, 10));
	close(fd);
	fd = must(open("many/02", O_PATH));
	show(read(fd, text, 10));
	close(fd);
	show(read(fd, text, 10));
	show(close(fd));
}

static void pointers(void)
{
	struct stat st;
	struct statx x;
	struct open_how how = { .flags = O_RDONLY };
	show(open(BAD, O_RDONLY));
	show(open(0, O_RDONLY));
	show(openat(AT_FDCWD, BAD, O_RDONLY | O_CREAT, 0600));
	show(syscall(SYS_stat, BAD, &st));
	show(syscall(SYS_stat, "many/03", BAD));
	show(syscall(SYS_lstat, BAD, &st));
	show(syscall(SYS_newfstatat, AT_FDCWD, BAD, &st, 0));
	show(syscall(SYS_newfstatat, AT_FDCWD, "many/04", BAD, 0));
	show(syscall(SYS_statx, AT_FDCWD, BAD, 0, STATX_TYPE, &x));
	show(syscall(SYS_statx, AT_FDCWD, "many/05", 0, STATX_TYPE, BAD));
	show(syscall(SYS_access, BAD, F_OK));
	show(syscall(SYS_faccessat2, AT_FDCWD, BAD, F_OK, 0));
	show(syscall(SYS_readlink, BAD, &st, 10));
	show(syscall(SYS_readlink, "odd/link", BAD, 10));
	show(syscall(SYS_openat2, AT_FDCWD, BAD, &how, sizeof how));
	show(syscall(SYS_openat2, AT_FDCWD, "many/06", BAD, sizeof how));
	show(syscall(SYS_chdir, BAD));
	int fd = must(open("many/07", O_RDONLY));
	show(read(fd, BAD, 100));
	show(pread(fd, BAD, 100, 0));
	show(syscall(SYS_readv, fd, BAD, 2));
	struct iovec v[2] = { { BAD, 10 }, { &st, 10 } };
	show(readv(fd, v, 2));
	show(preadv(fd, v, 2, 0));
	char *edge = last_page();
	show(read(fd, edge + 4000, 4096));
	show(lseek(fd, 0, SEEK_CUR));
	show(pread(fd, edge + 4095, 100, 0));
	fd = must(open("odd", O_RDONLY));
	show(syscall(SYS_getdents64, fd, BAD, 1000));
}

/* Wrong arguments that the kernel sees before it looks at the path. */
static void earlier(void)
{
	struct stat st;
	struct statx x;
	struct open_how how = { .flags = O_RDONLY };
	show(syscall(SYS_access, BAD, 0x7777));
	show(syscall(SYS_faccessat2, AT_FDCWD, BAD, 0x7777, 0));
	show(syscall(SYS_faccessat2, AT_FDCWD, BAD, R_OK, 0x70000000));
	show(syscall(SYS_readlink, BAD, &st, 0));
	show(syscall(SYS_readlinkat, AT_FDCWD, BAD, &st, -1));
	show(syscall(SYS_newfstatat, AT_FDCWD, BAD, &st, 0x70000000));
	show(syscall(SYS_statx, AT_FDCWD, BAD, 0x70000000, STATX_TYPE, &x));
	show(syscall(SYS_openat2, AT_FDCWD, BAD, &how, 3));
	show(syscall(SYS_open, BAD, O_TMPFILE | O_RDONLY, 0600));
	show(syscall(SYS_clone3, BAD, 88));
	show(syscall(SYS_rt_sigaction, SIGUSR1, BAD, 0, 8));
	show(syscall(SYS_rt_sigprocmask, SIG_BLOCK, BAD, 0, 8));
	show(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, BAD, 8));
	show(syscall(SYS_rt_sigsuspend, BAD, 8));
	show(syscall(SYS_ppoll, 0, 0, 0, BAD, 8));
	show(syscall(SYS_pselect6, 0, 0, 0, 0, 0, BAD));
	show(syscall(SYS_sigaltstack, BAD, 0));
	show(syscall(SYS_futex, BAD, 0, 0, 0, 0, 0));
	show(syscall(SYS_execve, BAD, 0, 0));
}

/* A result that overwrites the path, in the last bytes that are mapped. */
static void overlapping(void)
{
	char *end = last_page() + 4096;
	char *path = strcpy(end - 16, "odd/dangling");
	path = memmove(end - 13, path, 13);
	ssize_t n = readlink(path, end - 7, 7);
	printf("readlink over itself: %zd %.*s\n", n, (int)n, end - 7);
	char *stat_at = end - sizeof(struct stat);
	strcpy(stat_at, "data");
	int ret = syscall(SYS_stat, stat_at, stat_at);
	printf("stat over itself: %d %ld\n", ret, (long)((struct stat *)stat_at)->st_size);
	/* At the very end of the mapping a string that fills the page. */
	memcpy(end - 8, "many/08", 8);
	show(open(end - 8, O_RDONLY) >= 0);
}

static void offsets(void)
{
	char buf[100];
	struct iovec v = { buf, 10 };
	int fd = must(open("many/09", O_RDONLY));
	show(pread(fd, buf, 10, -1));
	show(preadv(fd, &v, 1, -1));
	show(pread(fd, buf, 10, -2));
	show(preadv2(fd, &v, 1, -1, 0));
	show(lseek(fd, 0, SEEK_CUR));
	show(pread(fd, buf, 10, 1L << 40));
	show(pread(fd, buf, 10, INT64_MAX));
	show(read(fd, buf, 0));
	show(syscall(SYS_read, fd, buf, -1L));
	show(syscall(SYS_readv, fd, &v, -1));
	show(lseek(fd, -1, SEEK_SET));
	show(lseek(fd, 0, SEEK_CUR));
}

static void limits(void)
{
	struct stat st;
	struct rlimit few = { 12, 12 };
	must(setrlimit(RLIMIT_NOFILE, &few));
	char name[32];
	for (int i = 10; i < 25; i++) {
		snprintf(name, sizeof name, "many/%02d", i);
		show(open(name, O_RDONLY));
		show(stat(name, &st));
	}
	show(close(7));
	show(stat("many/30", &st));
	show(open("many/31", O_RDONLY));
	show(dup(3));
	show(syscall(SYS_close_range, 4, 9, 0));
	show(open("many/32", O_RDONLY));
	show(fcntl(3, F_DUPFD, 8));
	show(dup2(3, 5));
	show(dup2(3, 12));
	show(read(5, name, 1));
	show(lseek(3, 0, SEEK_CUR));
}

int main(int argc, char **argv)
{
	for (int again = 0; again < 2; again++) {
		if (!strcmp(argv[1], "paths"))
			paths();
		else if (!strcmp(argv[1], "pointers"))
			pointers();
		else if (!strcmp(argv[1], "earlier"))
			earlier();
		else if (!strcmp(argv[1], "overlapping"))
			overlapping();
		else if (!strcmp(argv[1], "offsets"))
			offsets();
		else if (!again)
			limits();
	}
	return 0;
}
