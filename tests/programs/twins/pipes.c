/* Pipes and what waits on many things at once. */
#include "twin.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <linux/io_uring.h>

/* A pipe ends with its last writer, and no later than that process can be waited for. */
CASE(end_of_file_and_end_of_child)
{
	for (int i = 0; i < 10; i++) {
		int p[2], n = 0;
		char buf[100];
		must(pipe(p));
		pid_t child = must(fork());
		if (child == 0) {
			close(p[0]);
			stall(20 + i, 2);
			must(write(p[1], "text", 4));
			_exit(i);
		}
		close(p[1]);
		stall(30 + i, 1);
		ssize_t got;
		while ((got = must(read(p[0], buf, sizeof buf))) > 0)
			n += got;
		printf("%d ", n);
		ended("child", child);
		struct pollfd f = { p[0], POLLIN, 0 };
		show(poll(&f, 1, 0));
		printf("%x\n", f.revents);
		close(p[0]);
	}
}

/* After a child has been waited for, no other process has its end of the pipe. */
CASE(no_writer_is_left)
{
	int left = 0;
	for (int i = 0; i < 20; i++) {
		int p[2];
		char c;
		must(pipe2(p, O_NONBLOCK));
		pid_t child = must(fork());
		if (child == 0) {
			stall(i, 3);
			_exit(0);
		}
		close(p[1]);
		must(waitpid(child, 0, 0));
		left += read(p[0], &c, 1) != 0;
		close(p[0]);
	}
	printf("left %d\n", left);
}

CASE(no_reader_is_left)
{
	int wrote = 0;
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 20; i++) {
		int p[2];
		must(pipe(p));
		pid_t child = must(fork());
		if (child == 0) {
			stall(i, 3);
			_exit(0);
		}
		close(p[0]);
		must(waitpid(child, 0, 0));
		wrote += write(p[1], "x", 1) == 1;
		close(p[1]);
	}
	printf("wrote %d\n", wrote);
	pid_t child = must(fork());
	if (child == 0) {
		int p[2];
		signal(SIGPIPE, SIG_DFL);
		must(pipe(p));
		stall(40, 3);
		close(p[0]);
		write(p[1], "x", 1);
		_exit(0);
	}
	ended("child", child);
}

/* A descriptor that is closed during a read elsewhere is closed. */
CASE(closed_between_stalls)
{
	int left = 0;
	for (int i = 0; i < 30; i++) {
		int p[2];
		char c;
		must(pipe2(p, O_NONBLOCK));
		stall(i, 2);
		close(p[1]);
		left += read(p[0], &c, 1) != 0;
		close(p[0]);
		int s[2];
		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
		stall(30 + i, 1);
		close(s[0]);
		left += read(s[1], &c, 1) != 0;
		close(s[1]);
	}
	printf("left %d\n", left);
}

CASE(full_and_partial)
{
	static char buf[200000];
	int p[2];
	must(pipe(p));
	printf("%d\n", fcntl(p[0], F_GETPIPE_SZ) >= 4096);
	pid_t child = must(fork());
	if (child == 0) {
		close(p[0]);
		stall(20, 3);
		_exit(must(write(p[1], buf, sizeof buf)) == sizeof buf ? 0 : 1);
	}
	close(p[1]);
	long total = 0, n;
	while ((n = must(read(p[0], buf, 70000))) > 0) {
		total += n;
		stall(total % 64, 1);
	}
	printf("%ld\n", total);
	ended("child", child);
}

CASE(polled_together)
{
	int p[2], e = must(eventfd(0, EFD_NONBLOCK)), ep = must(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event ev = { EPOLLIN, { .u32 = 1 } }, got[4];
	must(pipe(p));
	must(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev));
	ev.data.u32 = 2, ev.events = EPOLLIN | EPOLLET;
	must(epoll_ctl(ep, EPOLL_CTL_ADD, e, &ev));
	int file = must(open("data", O_RDONLY));
	show(epoll_ctl(ep, EPOLL_CTL_ADD, file, &ev));
	show(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev));
	show(epoll_wait(ep, got, 4, 0));
	for (int i = 0; i < 5; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(20 + i, 2);
			if (i % 2)
				must(write(p[1], "x", 1));
			else
				must(eventfd_write(e, 1 + i));
			_exit(0);
		}
		int n = epoll_wait(ep, got, 4, -1);
		printf("%d: %d\n", n, got[0].data.u32);
		uint64_t v = 0;
		char c;
		if (i % 2)
			read(p[0], &c, 1);
		else
			show(read(e, &v, 8)), printf("%d\n", (int)v);
		ended("child", child);
	}
	show(epoll_wait(ep, got, 4, 0));
	show(epoll_wait(ep, got, 0, 0));
	show(epoll_wait(file, got, 1, 0));
	show(read(e, got, 8));
	show(read(e, got, 4));
}

CASE(sockets_between_processes)
{
	int s[2];
	char buf[100];
	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s));
	pid_t child = must(fork());
	if (child == 0) {
		close(s[0]);
		for (ssize_t n; (n = must(read(s[1], buf, sizeof buf))) > 0;) {
			stall(20 + n, 1);
			must(write(s[1], buf, n / 2 + 1));
		}
		_exit(9);
	}
	close(s[1]);
	for (int i = 2; i < 12; i++) {
		must(write(s[0], "0123456789abc", i));
		printf("%zd ", read(s[0], buf, sizeof buf));
	}
	struct ucred who;
	socklen_t len = sizeof who;
	must(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &who, &len));
	printf("%s\n", yes(who.pid == getpid()));
	shutdown(s[0], SHUT_WR);
	show(read(s[0], buf, 10));
	ended("child", child);
}

CASE(spliced_and_teed)
{
	int a[2], b[2];
	char buf[5000];
	must(pipe(a)), must(pipe(b));
	for (int i = 0; i < 6; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 30 + i);
		int fd = must(open(name, O_RDONLY));
		loff_t at = 100 * i;
		printf("%zd ", splice(fd, &at, a[1], 0, 3000, 0));
		printf("%zd ", tee(a[0], b[1], 3000, 0));
		memset(buf, 0, sizeof buf);
		ssize_t n = read(a[0], buf, 3000);
		printf("%zd %u ", n, sum(buf, n));
		n = read(b[0], buf, 3000);
		printf("%zd %u\n", n, sum(buf, n));
		struct iovec v = { "text", 4 };
		printf("%zd\n", vmsplice(a[1], &v, 1, 0));
		must(read(a[0], buf, 4));
		close(fd);
	}
}

/* A writer that does not block gets the length that fits, and then reads all of it itself. */
CASE(as_much_as_there_is_room_for)
{
	static char buf[30000];
	for (int i = 0; i < 24; i++) {
		int p[2], size = i % 3 == 0 ? 100 : i % 3 == 1 ? 4096 : 30000, calls = 0;
		long wrote = 0, got = 0;
		ssize_t n;
		if (i % 2)
			must(pipe2(p, O_NONBLOCK));
		else
			must(socketpair(AF_UNIX, i % 4 ? SOCK_STREAM : SOCK_SEQPACKET, 0, p));
		fcntl(p[0], F_SETFL, O_NONBLOCK);
		fcntl(p[1], F_SETFL, O_NONBLOCK);
		stall(20 + i % 20, 1);
		for (; (n = write(p[1], buf, size)) > 0; wrote += n)
			calls++;
		printf("%d %ld %s ", calls, wrote, strerror(errno));
		while ((n = read(p[0], buf, sizeof buf)) > 0)
			got += n;
		printf("%ld\n", got);
		close(p[0]);
		close(p[1]);
	}
}

static void *reads_to_the_end(void *fd)
{
	static char buf[5000];
	ssize_t n;
	long got = 0;
	while ((n = must(read((long)fd, buf, sizeof buf))) > 0)
		got += n;
	return (void *)got;
}

/* More than there is room for, because a thread reads it. */
CASE(a_thread_reads_what_another_writes)
{
	static char buf[50000];
	for (int i = 0; i < 8; i++) {
		int p[2];
		pthread_t t;
		void *got;
		if (i % 2)
			must(pipe(p));
		else
			must(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
		must(pthread_create(&t, 0, reads_to_the_end, (void *)(long)p[0]));
		for (int k = 0; k < 12; k++)
			if (must(write(p[1], buf, k % 3 ? 50000 : 3000)) < 3000)
				puts("not all");
		close(p[1]);
		pthread_join(t, &got);
		printf("%ld\n", (long)got);
		close(p[0]);
	}
}

/* A ring of the program's own: its calls are made by the kernel. */
CASE(a_ring)
{
	struct io_uring_params p = { 0 };
	int ring = syscall(SYS_io_uring_setup, 8, &p);
	if (ring < 0) {
		puts("not here");
		return;
	}
	size_t sq = p.sq_off.array + p.sq_entries * 4, cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), len = sq > cq ? sq : cq;
	char *m = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	volatile unsigned *tail = (void *)(m + p.sq_off.tail), *head = (void *)(m + p.cq_off.head);
	static char buf[8192];
	for (int i = 0; i < 20; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 20 + i);
		int fd = must(open(name, O_RDONLY));
		sqes[0] = (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = fd, .addr = (long)buf, .len = 4000, .off = i, .user_data = 100 + i };
		((unsigned *)(m + p.sq_off.array))[*tail % p.sq_entries] = 0;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		must(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0));
		struct io_uring_cqe *c = (void *)(m + p.cq_off.cqes);
		c += *head % p.cq_entries;
		printf("%d %d %u\n", (int)c->user_data, c->res, sum(buf, 4000));
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
		close(fd);
	}
}
