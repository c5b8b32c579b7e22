/* Files shared, locked, watched, copied, unlinked; FIFOs. */
#include "twin.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/inotify.h>

CASE(offsets_shared_by_dup)
{
	char buf[1000];
	int fd = must(open("many/30", O_RDONLY)), two = must(dup(fd)), other = must(open("many/30", O_RDONLY));
	for (int i = 0; i < 6; i++) {
		must(read(i % 2 ? fd : two, buf, 300 + i));
		printf("%ld %ld %ld\n", (long)lseek(fd, 0, SEEK_CUR), (long)lseek(two, 0, SEEK_CUR), (long)lseek(other, 0, SEEK_CUR));
		stall(20 + i, 1);
	}
	show(dup2(other, fd) == fd);
	show(lseek(fd, 0, SEEK_CUR));
	show(syscall(SYS_kcmp, getpid(), getpid(), 0, fd, other));
	show(dup3(fd, fd, 0));
	show(dup2(fd, fd) == fd);
	show(dup2(77, 5));
	show(fcntl(fd, F_DUPFD, -1));
}

CASE(offsets_sent_to_another_process)
{
	int s[2];
	char buf[200], control[CMSG_SPACE(sizeof(int))] = { 0 };
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	struct iovec v = { buf, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	pid_t child = must(fork());
	if (child == 0) {
		must(recvmsg(s[1], &m, 0));
		int fd = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&m));
		must(read(fd, buf, 150));
		stall(20, 3);
		must(read(fd, buf, 10));
		_exit(buf[0]);
	}
	int fd = must(open("many/40", O_RDONLY));
	must(read(fd, buf, 100));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd) };
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	must(sendmsg(s[0], &m, 0));
	ended("child", child);
	show(lseek(fd, 0, SEEK_CUR));
}

CASE(unlinked_and_still_open)
{
	char buf[20] = "";
	struct stat st;
	int fd = must(open(in_work("gone"), O_RDWR | O_CREAT, 0600));
	must(write(fd, "still there", 11));
	must(fsync(fd));
	must(unlink(in_work("gone")));
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	stall(20, 5);
	show(pread(fd, buf, 19, 0));
	puts(buf);
	fstat(fd, &st);
	printf("links %d\n", (int)st.st_nlink);
	write_file(in_work("gone"), "another", 0600);
	show(pread(fd, buf, 19, 0));
	puts(buf);
	int again = must(open(in_work("gone"), O_RDONLY));
	show(read(again, buf, 19));
	must(rename(in_work("gone"), in_work("moved")));
	write_file(in_work("gone"), "a third one", 0600);
	show(pread(again, buf, 19, 0));
	stall(30, 5);
	again = must(open(in_work("gone"), O_RDONLY));
	show(pread(again, buf, 19, 0));
	puts(buf);
}

CASE(appended)
{
	int fd = must(open(in_work("log"), O_WRONLY | O_CREAT | O_APPEND, 0600));
	for (int i = 0; i < 4; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(20 + i, 2);
			dprintf(fd, "line %d\n", i);
			must(pwrite(fd, "end\n", 4, 0));
			_exit(0);
		}
		ended("child", child);
	}
	show(lseek(fd, 0, SEEK_CUR));
	show(fcntl(fd, F_SETFL, 0));
	show(pwrite(fd, "LINE", 4, 0));
}

CASE(locks_of_records)
{
	struct flock l = { .l_type = F_WRLCK, .l_start = 10, .l_len = 5 }, got;
	int fd = must(open(in_work("locked"), O_RDWR | O_CREAT, 0600));
	must(fcntl(fd, F_SETLK, &l));
	stall(10, 10);
	pid_t child = must(fork());
	if (child == 0) {
		got = l;
		must(fcntl(fd, F_GETLK, &got));
		printf("%d by the parent %d, at %ld\n", got.l_type, got.l_pid == getppid(), (long)got.l_start);
		show(fcntl(fd, F_SETLK, &l));
		l.l_start = 100;
		show(fcntl(fd, F_SETLK, &l));
		/* Closing any descriptor of a file gives up its locks: the child's, not the parent's. */
		close(must(open(in_work("locked"), O_RDONLY)));
		_exit(0);
	}
	ended("child", child);
	/* A lease is also granted if only we have the file open. */
	child = must(fork());
	if (child == 0) {
		got = l;
		must(fcntl(fd, F_GETLK, &got));
		_exit(got.l_type == F_WRLCK);
	}
	ended("still locked", child);
	close(must(open(in_work("locked"), O_RDONLY)));
	child = must(fork());
	if (child == 0) {
		got = l;
		must(fcntl(fd, F_GETLK, &got));
		_exit(got.l_type == F_WRLCK);
	}
	ended("no more", child);
}

CASE(locks_that_are_waited_for)
{
	struct flock l = { .l_type = F_WRLCK };
	int p[2];
	char c;
	must(pipe(p));
	int fd = must(open(in_work("locked"), O_RDWR | O_CREAT, 0600));
	pid_t child = must(fork());
	if (child == 0) {
		must(fcntl(fd, F_SETLKW, &l));
		must(write(p[1], "x", 1));
		stall(20, 10);
		must(write(fd, "first\n", 6));
		_exit(0);
	}
	must(read(p[0], &c, 1));
	stall(10, 3);
	must(fcntl(fd, F_SETLKW, &l));
	must(write(fd, "second\n", 7));
	ended("child", child);
	l.l_type = F_UNLCK;
	show(fcntl(fd, F_SETLK, &l));
}

CASE(locks_of_open_files)
{
	int fd = must(open(in_work("locked"), O_RDWR | O_CREAT, 0600)), other = must(open(in_work("locked"), O_RDWR));
	show(flock(fd, LOCK_EX));
	stall(10, 10);
	show(flock(other, LOCK_EX | LOCK_NB));
	pid_t child = must(fork());
	if (child == 0) {
		show(flock(fd, LOCK_EX | LOCK_NB));
		close(fd);
		show(flock(other, LOCK_SH | LOCK_NB));
		_exit(0);
	}
	ended("child", child);
	/* Held by every holder of the open file, and released with the last. */
	show(flock(other, LOCK_EX | LOCK_NB));
	close(fd);
	show(flock(other, LOCK_EX | LOCK_NB));
	struct flock l = { .l_type = F_WRLCK };
	show(fcntl(other, F_OFD_SETLK, &l));
	stall(20, 10);
	int third = must(open(in_work("locked"), O_RDWR));
	show(fcntl(third, F_OFD_SETLK, &l));
	close(other);
	show(fcntl(third, F_OFD_SETLK, &l));
	show(flock(third, LOCK_EX | LOCK_NB));
}

static volatile int broken;
static void on_break(int s) { broken++; }

CASE(leases)
{
	on(SIGIO, on_break, SA_RESTART);
	write_file(in_work("leased"), "text", 0600);
	int fd = must(open(in_work("leased"), O_RDONLY));
	show(fcntl(fd, F_SETLEASE, F_RDLCK));
	stall(10, 20);
	show(fcntl(fd, F_GETLEASE));
	printf("broken %d\n", broken);
	pid_t child = must(fork());
	if (child == 0)
		_exit(open(in_work("leased"), O_WRONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK);
	ended("refused", child);
	printf("broken %d\n", broken);
	show(fcntl(fd, F_SETLEASE, F_UNLCK));
	show(open(in_work("leased"), O_WRONLY | O_NONBLOCK) >= 0);
}

/* Changes are told. Opens and reads are not asked for here: those of others may show. */
CASE(watched_for_changes)
{
	char buf[4096] __attribute__((aligned(8)));
	int fd = must(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	must(inotify_add_watch(fd, getenv("W"), IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVE | IN_CLOSE_WRITE));
	must(inotify_add_watch(fd, "many", IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVE | IN_CLOSE_WRITE));
	stall(10, 20);
	write_file(in_work("a"), "text", 0600);
	must(rename(in_work("a"), in_work("b")));
	stall(30, 20);
	must(unlink(in_work("b")));
	ssize_t n;
	while ((n = read(fd, buf, sizeof buf)) > 0)
		for (char *p = buf; p < buf + n; p += sizeof(struct inotify_event) + ((struct inotify_event *)p)->len)
			printf("%x %s\n", ((struct inotify_event *)p)->mask, ((struct inotify_event *)p)->name);
	puts(strerrorname_np(errno));
}

CASE(copied_by_the_kernel)
{
	int in = must(open("big", O_RDONLY)), out = must(open(in_work("copy"), O_RDWR | O_CREAT, 0600));
	off_t from = 100000, to = 0;
	show(copy_file_range(in, &from, out, &to, 200000, 0));
	printf("%ld %ld %ld\n", (long)from, (long)to, (long)lseek(in, 0, SEEK_CUR));
	off_t at = 5;
	show(lseek(out, 0, SEEK_END));
	show(sendfile(out, in, &at, 100000));
	printf("%ld\n", (long)at);
	show(sendfile(out, in, 0, 1000));
	show(lseek(in, 0, SEEK_CUR));
	int p[2];
	must(pipe(p));
	loff_t where = 1 << 20;
	show(splice(in, &where, p[1], 0, 30000, 0));
	show(splice(p[0], 0, out, 0, 30000, 0));
	show(splice(in, 0, out, 0, 1, 0));
	show(copy_file_range(in, 0, out, 0, 10, 77));
	show(lseek(out, 0, SEEK_END));
	static char buf[400000];
	show(pread(out, buf, sizeof buf, 0));
	printf("%u\n", sum(buf, 331000));
	must(ftruncate(out, 1000));
}

CASE(sparse_ones)
{
	struct stat st;
	int fd = must(open(in_work("sparse"), O_RDWR | O_CREAT, 0600));
	must(pwrite(fd, "end", 3, 1 << 20));
	show(lseek(fd, 0, SEEK_DATA));
	show(lseek(fd, 0, SEEK_HOLE));
	must(fallocate(fd, 0, 0, 8192));
	must(pwrite(fd, "abc", 3, 4096));
	must(fallocate(fd, 3 /* PUNCH_HOLE | KEEP_SIZE */, 4096, 4096));
	stall(20, 5);
	char c = 1;
	must(pread(fd, &c, 1, 4097));
	printf("%d\n", c);
	must(fsync(fd));
	fstat(fd, &st);
	printf("%ld, few blocks %d\n", (long)st.st_size, st.st_blocks < 64);
	must(ftruncate(fd, 5));
}

static volatile int alarms;
static void count(int s) { alarms++; }

CASE(fifos_that_are_waited_for)
{
	char buf[100] = "";
	must(mkfifo(in_work("fifo"), 0600));
	on(SIGALRM, count, 0);
	every(3000);
	show(open(in_work("fifo"), O_RDONLY));
	show(open(in_work("fifo"), O_WRONLY));
	every(0);
	show(open(in_work("fifo"), O_WRONLY | O_NONBLOCK));
	for (int i = 0; i < 4; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(20 + i, 2);
			int out = must(open(in_work("fifo"), O_WRONLY));
			stall(30 + i, 1);
			must(write(out, "through", 7));
			_exit(0);
		}
		int in = must(open(in_work("fifo"), O_RDONLY));
		show(read(in, buf, 100));
		show(read(in, buf, 100));
		close(in);
		ended("child", child);
	}
	on(SIGALRM, count, SA_RESTART);
	every(3000);
	pid_t child = must(fork());
	if (child == 0) {
		while (usleep(20000))
			;
		_exit(open(in_work("fifo"), O_WRONLY) < 0);
	}
	show(open(in_work("fifo"), O_RDONLY) >= 0);
	every(0);
	ended("child", child);
}

CASE(times_that_are_set)
{
	struct timespec t[2] = { { 1, 5 }, { 1234567890, 987654321 } };
	struct stat st;
	for (int i = 0; i < 4; i++) {
		char name[8];
		snprintf(name, sizeof name, "t%d", i);
		write_file(in_work(name), "x", 0600);
		stall(20 + i, 2);
		must(utimensat(AT_FDCWD, in_work(name), t, 0));
		stat(in_work(name), &st);
		printf("%ld.%ld %ld.%ld\n", (long)st.st_atim.tv_sec, st.st_atim.tv_nsec, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	}
}

CASE(closed_descriptors_are_not_listed)
{
	char buf[100];
	for (int i = 0; i < 4; i++) {
		int fd = must(open("many/31", O_RDONLY)), count = 0;
		must(read(fd, buf, sizeof buf));
		stall(20 + i, 1);
		must(close(fd));
		DIR *list = opendir("/proc/self/fd");
		for (struct dirent *entry; (entry = readdir(list));)
			count += entry->d_name[0] != '.';
		closedir(list);
		printf("%d\n", count);
	}
}
