/* Writes that fail, or that are short: their caller gets the error, and at once. */
#include "twin.h"
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <netinet/in.h>

/* Each of some calls a few times, with stalls between them. */
#define EACH(...)                           \
	for (int n = 0; n < 6; n++) {       \
		stall(20 + 3 * n, 1);       \
		__VA_ARGS__;                \
	}

static char text[10000];

CASE(devices)
{
	int full = must(open("/dev/full", O_WRONLY)), null = must(open("/dev/null", O_WRONLY));
	EACH(show(write(full, "text", 4)); show(write(null, "text", 4)); show(write(full, "text", 0));
	     show(pwrite(full, "text", 4, 5)); show(pwrite(null, "text", 4, 5)));
}

CASE(files_that_are_calls)
{
	int fd = must(open("/proc/self/oom_score_adj", O_RDWR));
	char buf[20] = { 0 };
	EACH(show(write(fd, "text", 4)); show(pwrite(fd, "70000", 5, 0)); show(pwrite(fd, n % 2 ? "7" : "8", 1, 0));
	     show(pread(fd, buf, 19, 0)); printf("%s", buf));
}

CASE(counters)
{
	int fd = must(eventfd(0, EFD_NONBLOCK));
	uint64_t one = 1, most = -2, none = -1;
	EACH(show(write(fd, &one, 4)); show(write(fd, &none, 8)); show(write(fd, &one, 8)); show(write(fd, &most, 8));
	     show(read(fd, &one, 8)); printf("%lu\n", one); one = 1);
}

CASE(sealed_memory)
{
	int fd = must(memfd_create("memory", MFD_ALLOW_SEALING)), other = dup(fd), third = must(memfd_create("more", 0));
	EACH(show(write(other, text, 1000)); show(write(third, text, 1000)));
	must(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	EACH(show(write(other, text, 1000)); show(pwrite(other, text, 100, 5900)); show(pwrite(other, text, 101, 5900)));
	must(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	EACH(show(write(other, text, 1000)); show(pwrite(other, text, 1, 0)));
}

CASE(shut_down)
{
	signal(SIGPIPE, SIG_IGN);
	EACH(int s[2]; must(socketpair(AF_UNIX, n % 2 ? SOCK_STREAM : SOCK_SEQPACKET, 0, s)); show(write(s[0], "text", 4));
	     shutdown(s[0], SHUT_WR); show(write(s[0], "text", 4)); show(send(s[0], "text", 4, MSG_NOSIGNAL));
	     show(write(s[1], "text", 4)); shutdown(s[0], SHUT_RD); show(write(s[1], "text", 4)); close(s[0]);
	     show(write(s[1], "text", 4)); close(s[1]));
}

/* A stream of the internet, within this machine. */
CASE(shut_down_far_away)
{
	signal(SIGPIPE, SIG_IGN);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;
	int l = must(socket(AF_INET, SOCK_STREAM, 0));
	must(bind(l, (void *)&at, len));
	must(listen(l, 1));
	must(getsockname(l, (void *)&at, &len));
	EACH(int a = must(socket(AF_INET, SOCK_STREAM, 0)); show(write(a, "text", 4)); must(connect(a, (void *)&at, len));
	     int b = must(accept(l, 0, 0)); char buf[10]; show(write(a, "text", 4)); show(read(b, buf, 10));
	     shutdown(a, SHUT_WR); show(write(a, "text", 4)); show(read(b, buf, 10)); show(write(b, "text", 4));
	     show(read(a, buf, 10)); close(b); close(a));
}

CASE(messages)
{
	EACH(int a = must(socket(AF_UNIX, SOCK_DGRAM, 0)); int b = must(socket(AF_INET, SOCK_DGRAM, 0)); int s[2];
	     must(socketpair(AF_UNIX, SOCK_DGRAM, 0, s)); int size = 4000;
	     must(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size)); show(write(a, "text", 4));
	     show(send(a, "text", 4, 0)); show(write(b, "text", 4)); show(write(s[0], text, 9000));
	     show(send(s[0], text, 9000, 0)); show(send(s[0], "text", 4, MSG_OOB)); show(send(s[0], "text", 4, 0));
	     show(read(s[1], text, 9000)); close(a); close(b); close(s[0]); close(s[1]));
}

CASE(what_it_is_not)
{
	int p[2], fd = must(open(in_work("file"), O_RDWR | O_CREAT, 0600));
	must(pipe(p));
	EACH(show(send(fd, "text", 4, 0)); show(send(p[1], "text", 4, 0)); show(pwrite(p[1], "text", 4, 0));
	     show(write(p[0], "text", 4)); show(write(p[1], "text", 4)); show(pwrite(fd, "text", 4, -1)));
	char buf[100];
	show(read(p[0], buf, 100));
}

CASE(only_for_reading)
{
	int fd = must(open(in_work("file"), O_RDONLY | O_CREAT, 0600)), path = must(open(in_work("file"), O_PATH));
	EACH(show(write(fd, "text", 4)); show(pwrite(fd, "text", 4, 9)); show(write(path, "text", 4)); show(write(99, "text", 4)));
}

/* Bytes up to the end of mapped memory are written. */
CASE(memory_that_ends)
{
	signal(SIGPIPE, SIG_IGN);
	int p[2], s[2], fd = must(open(in_work("file"), O_RDWR | O_CREAT, 0600));
	char *end = last_page() + 4096, buf[1000];
	must(pipe(p)), must(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	struct iovec v[2] = { { "text", 4 }, { end - 10, 20 } };
	EACH(show(write(fd, end - 100, 200)); show(write(fd, end, 100)); show(writev(fd, v, 2)); show(pwrite(fd, end - 7, 8, 4000));
	     show(write(p[1], end - 100, 200)); show(write(p[1], end, 1)); show(writev(p[1], v, 2)); show(write(s[1], end, 1));
	     show(lseek(fd, 0, SEEK_CUR)); show(write(p[1], "x", 1)); show(read(p[0], buf, 1000)));
}

CASE(places_where_no_file_ends)
{
	int fd = must(open(in_work("file"), O_RDWR | O_CREAT, 0600));
	const off_t last = 0x7fffffffffffffff;
	EACH(show(pwrite(fd, "text", 4, last)); show(pwrite(fd, "text", 4, last - 3)); show(pwrite(fd, "text", 4, last - 5000));
	     show(pwrite(fd, "text", 4, ((off_t)1 << 32) + n)); show(lseek(fd, last - 5, SEEK_SET)); show(write(fd, "text", 4)));
	must(ftruncate(fd, 0));
}

static void limit(rlim_t most)
{
	struct rlimit r;
	must(getrlimit(RLIMIT_FSIZE, &r));
	r.rlim_cur = most;
	must(setrlimit(RLIMIT_FSIZE, &r));
}

/* A file size limit that is reached by a growing file, in several ways. */
CASE(as_large_as_a_file_may_be)
{
	signal(SIGXFSZ, SIG_IGN);
	limit(20000);
	int fd = must(open(in_work("file"), O_RDWR | O_CREAT, 0600)), other = must(dup(fd));
	int end = must(open(in_work("file"), O_WRONLY | O_APPEND)), start = must(open(in_work("file"), O_WRONLY));
	EACH(show(write(fd, text, 700)); show(write(other, text, 700)); show(write(end, text, 700)); show(write(start, text, 2000));
	     show(pwrite(start, text, 10, 19900 + 20 * n)); show(pwrite(end, text, 100, 0)); show(write(end, "x", 1)));
	show(lseek(fd, 0, SEEK_CUR));
	limit(RLIM_INFINITY);
	EACH(show(write(end, text, 10000)));
	limit(20010);
	EACH(show(write(end, text, 1)); show(write(fd, text, 1)));
}

/* And of a file system that is full. */
CASE(no_room_left)
{
	must(unshare(CLONE_NEWNS));
	must(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
	must(mkdir(in_work("small"), 0700));
	must(mount("none", in_work("small"), "tmpfs", 0, "size=40k"));
	int fd = must(open(in_work("small/file"), O_RDWR | O_CREAT, 0600));
	EACH(show(write(fd, text, 10000)); show(pwrite(fd, "text", 4, 90000 + 9000 * n)); show(write(fd, "text", 4)));
	must(ftruncate(fd, 0));
	EACH(show(pwrite(fd, text, 10000, 4096 * n)));
	must(close(fd));
	must(umount(in_work("small")));
	must(rmdir(in_work("small")));
}
