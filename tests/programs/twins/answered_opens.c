/* Programs that decide about the opens of others: leases (fcntl(2)), permission events
 * (fanotify(7)). */
#include "twin.h"
#include <poll.h>
#include <sys/fanotify.h>

static volatile sig_atomic_t broken;

static void count(int s)
{
	broken++;
}

/* A file of 64 KiB in W that is not in memory. */
static void cold_file(const char *name)
{
	static char bytes[65536];
	memset(bytes, 'x', sizeof bytes);
	int fd = must(open(in_work(name), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	must(write(fd, bytes, sizeof bytes));
	must(fsync(fd));
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
}

CASE(a_lease_is_kept_while_it_waits)
{
	char name[20], bytes[4096];
	on(SIGIO, count, SA_RESTART);
	for (int i = 0; i < 12; i++) {
		snprintf(name, sizeof name, "file%d", i);
		cold_file(name);
	}
	for (int i = 0; i < 12; i++) {
		snprintf(name, sizeof name, "file%d", i);
		int fd = must(open(in_work(name), O_RDWR | O_CLOEXEC));
		show(fcntl(fd, F_SETLEASE, F_WRLCK));
		stall(4 + 4 * i, 4);
		show(fcntl(fd, F_GETLEASE));
		fcntl(fd, F_SETLEASE, F_UNLCK);
		close(fd);
		/* A shadow foresees this while the program waits above. */
		fd = must(open(in_work(name), O_RDONLY | O_CLOEXEC));
		must(read(fd, bytes, sizeof bytes));
		close(fd);
	}
	printf("broken %d times\n", (int)broken);
}

CASE(a_lease_by_default_action)
{
	/* SIGIO ends who has no handler: it is not to come. */
	cold_file("file");
	int fd = must(open(in_work("file"), O_RDWR | O_CLOEXEC));
	must(fcntl(fd, F_SETLEASE, F_WRLCK));
	stall(10, 10);
	must(fcntl(fd, F_SETLEASE, F_UNLCK));
	close(fd);
	char bytes[4096];
	fd = must(open(in_work("file"), O_RDONLY | O_CLOEXEC));
	must(read(fd, bytes, sizeof bytes));
}

CASE(a_lease_of_a_parent)
{
	/* Children run ahead, too. */
	cold_file("file");
	on(SIGIO, count, SA_RESTART);
	int fd = must(open(in_work("file"), O_RDWR | O_CLOEXEC)), go[2];
	must(pipe(go));
	pid_t child = must(fork());
	if (child == 0) {
		char bytes[4096];
		close(fd), close(go[1]);
		stall(10, 10);
		while (read(go[0], bytes, 1) < 0)
			;
		fd = must(open(in_work("file"), O_RDONLY | O_CLOEXEC));
		must(read(fd, bytes, sizeof bytes));
		_exit(0);
	}
	close(go[0]);
	/* The child has it open, too, for a moment: so may a lease be refused. */
	while (fcntl(fd, F_SETLEASE, F_WRLCK) == -1 && errno == EAGAIN)
		usleep(1000);
	stall(30, 10);
	printf("lease %d, broken %d times\n", fcntl(fd, F_GETLEASE), (int)broken);
	must(fcntl(fd, F_SETLEASE, F_UNLCK));
	must(write(go[1], "x", 1));
	ended("child", child);
}

/* Answers `count` events, and says whose they were. */
static void answer(int group, int count, pid_t child)
{
	char events[4096] __attribute__((aligned(8)));
	for (int n = 0; n < count;) {
		ssize_t got = must(read(group, events, sizeof events));
		struct fanotify_event_metadata *e = (void *)events;
		for (; FAN_EVENT_OK(e, got); e = FAN_EVENT_NEXT(e, got), n++) {
			struct fanotify_response r = { e->fd, FAN_ALLOW };
			printf("event %d: %s%s\n", n, e->mask & FAN_OPEN_PERM ? "open" : "?", e->pid == child ? "" : ", of a stranger");
			must(write(group, &r, sizeof r));
			close(e->fd);
		}
	}
}

CASE(opens_that_are_allowed)
{
	enum { FILES = 8 };
	char name[20], byte;
	int group = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
	if (group == -1) {
		printf("no permission events: %s\n", strerror(errno));
		return;
	}
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "file%d", i);
		cold_file(name);
		must(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, in_work(name)));
	}
	fflush(stdout);
	pid_t child = must(fork());
	if (child == 0) {
		stall(10, 4);
		for (int i = 0; i < FILES; i++) {
			snprintf(name, sizeof name, "file%d", i);
			int fd = must(open(in_work(name), O_RDONLY | O_CLOEXEC));
			must(read(fd, &byte, 1));
			close(fd);
		}
		_exit(0);
	}
	answer(group, FILES, child);
	ended("child", child);
	struct pollfd left = { group, POLLIN, 0 };
	show(poll(&left, 1, 0));
}
