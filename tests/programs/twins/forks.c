/* fork and vfork: what a child is, what it shares, and what it does not. */
#include "twin.h"
#include <sched.h>

CASE(who_is_who)
{
	int p[2];
	pid_t ids[3], me = getpid();
	must(pipe(p));
	pid_t child = must(fork());
	if (child == 0) {
		stall(10, 3);
		ids[0] = getpid(), ids[1] = getppid(), ids[2] = gettid();
		must(write(p[1], ids, sizeof ids));
		_exit(0);
	}
	must(read(p[0], ids, sizeof ids));
	ask(ids[0] == child);
	ask(ids[1] == me);
	ask(ids[2] == child);
	ended("child", child);
}

static int global = 1;

CASE(memory_is_copied)
{
	int local = 1;
	char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *private = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t child = must(fork());
	if (child == 0) {
		stall(10, 5);
		global = local = *shared = *private = 2;
		_exit(global + local + *shared + *private);
	}
	stall(20, 5);
	ended("child", child);
	printf("%d %d %d %d\n", global, local, *shared, *private);
}

CASE(offsets_are_shared)
{
	char buf[5000];
	int fd = must(open("many/30", O_RDONLY)), big = must(open("big", O_RDONLY));
	for (int i = 0; i < 5; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			must(read(fd, buf, 700));
			must(lseek(big, 300000, SEEK_CUR));
			_exit(must(read(big, buf, 10)) == 10 ? buf[0] & 0x7f : 1);
		}
		ended("child", child);
		show(lseek(fd, 0, SEEK_CUR));
		show(lseek(big, 0, SEEK_CUR));
		show(read(big, buf, 100));
		printf("sum %u\n", sum(buf, 100));
	}
}

CASE(a_directory_stream_is_shared)
{
	char buf[256];
	int fd = must(open("many", O_RDONLY | O_DIRECTORY));
	long total = 0, mine = 0, n;
	pid_t child = must(fork());
	if (child == 0)
		_exit(must(syscall(SYS_getdents64, fd, buf, sizeof buf)) > 0 ? 0 : 1);
	ended("child", child);
	while ((n = must(syscall(SYS_getdents64, fd, buf, sizeof buf))) > 0)
		mine += n;
	must(lseek(fd, 0, SEEK_SET));
	while ((n = must(syscall(SYS_getdents64, fd, buf, sizeof buf))) > 0)
		total += n;
	printf("%d\n", mine < total && mine > total - 256);
}

CASE(unflushed_text_is_written_twice)
{
	FILE *f = fopen(in_work("text"), "w");
	fprintf(f, "before the fork\n");
	pid_t child = must(fork());
	fprintf(f, child ? "parent\n" : "child\n");
	if (child == 0)
		exit(3);
	ended("child", child);
	fclose(f);
}

static int grow(int depth, int width)
{
	int total = 1, status;
	stall(depth * 7, 2);
	if (depth == 0)
		return 1;
	for (int i = 0; i < width; i++)
		if (must(fork()) == 0)
			_exit(grow(depth - 1, width));
	while (wait(&status) > 0)
		total += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
	return total;
}

CASE(a_tree_of_processes)
{
	printf("%d processes\n", grow(3, 3));
}

CASE(one_after_another)
{
	int total = 0, status;
	for (int i = 0; i < 60; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(i, 1);
			_exit(i);
		}
		must(waitpid(child, &status, 0));
		total += WEXITSTATUS(status);
	}
	printf("%d\n", total);
}

CASE(many_at_once)
{
	int go[2], total = 0, status, count = 0;
	char c;
	must(pipe(go));
	for (int i = 0; i < 40; i++)
		if (must(fork()) == 0) {
			close(go[1]);
			if (read(go[0], &c, 1) != 0)
				_exit(99);
			stall(i, 2);
			_exit(i);
		}
	close(go[0]);
	close(go[1]);
	while (wait(&status) > 0)
		count++, total += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
	printf("%d ended, %d\n", count, total);
}

static volatile pid_t forked;

static void fork_here(int s)
{
	forked = fork();
	if (forked == 0) {
		stall(33, 2);
		_exit(5);
	}
}

CASE(in_a_handler)
{
	on(SIGUSR1, fork_here, 0);
	for (int i = 0; i < 5; i++) {
		raise(SIGUSR1);
		ended("child", forked);
		stall(10 + i, 1);
	}
}

/* The child of a thread has one thread, the copy of it. */
static void *fork_thread(void *arg)
{
	pid_t child = must(fork());
	if (child == 0) {
		stall(20, 3);
		struct stat st;
		must(stat("/proc/self/task", &st));
		_exit((getpid() == gettid()) + 2 * (st.st_nlink == 3) + 4 * (arg == (void *)77));
	}
	ended("child of a thread", child);
	return 0;
}

CASE(in_a_thread)
{
	pthread_t t;
	for (int i = 0; i < 5; i++) {
		pthread_create(&t, 0, fork_thread, (void *)77);
		stall(30 + i, 1);
		pthread_join(t, 0);
	}
}

static volatile int stop;

static void *busy(void *arg)
{
	unsigned long n = 0;
	while (!stop) {
		free(malloc(100 + n % 1000));
		stall(n++ % 64, 1);
	}
	return 0;
}

CASE(while_threads_run)
{
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], 0, busy, 0);
	for (int i = 0; i < 25; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			free(malloc(1000));
			stall(i, 1);
			exit(i);
		}
		ended("child", child);
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], 0);
}

static void prepare(void) { puts("prepare"); }
static void parent(void) { puts("parent"); }
static void child_side(void) { dprintf(2, "child\n"); }
static void at_end(void) { dprintf(2, "at exit\n"); }

CASE(handlers_of_atfork_and_atexit)
{
	pthread_atfork(prepare, parent, child_side);
	atexit(at_end);
	pid_t child = must(fork());
	if (child == 0)
		_exit(1);
	ended("without", child);
	child = must(fork());
	if (child == 0)
		exit(2);
	ended("with", child);
}

CASE(what_a_child_inherits)
{
	sigset_t some = set_of(SIGUSR2, SIGSYS), now;
	on(SIGUSR1, SIG_IGN, 0);
	on(SIGALRM, fork_here, 0);
	must(sigprocmask(SIG_BLOCK, &some, 0));
	raise(SIGUSR2);
	alarm(1000);
	umask(027);
	must(prctl(PR_SET_NAME, "twin name"));
	pid_t child = must(fork());
	if (child == 0) {
		char name[20];
		struct sigaction a;
		stall(10, 3);
		sigprocmask(SIG_BLOCK, 0, &now);
		printf("blocked usr2 %d sys %d usr1 %d\n", sigismember(&now, SIGUSR2), sigismember(&now, SIGSYS), sigismember(&now, SIGUSR1));
		sigpending(&now);
		printf("pending usr2 %d\n", sigismember(&now, SIGUSR2));
		sigaction(SIGUSR1, 0, &a);
		ask(a.sa_handler == SIG_IGN);
		sigaction(SIGALRM, 0, &a);
		ask(a.sa_handler == fork_here);
		printf("alarm %u, umask %o\n", alarm(0), umask(0));
		prctl(PR_GET_NAME, name);
		puts(name);
		_exit(0);
	}
	ended("child", child);
	ask(alarm(0) > 900);
}

CASE(killed_at_once)
{
	for (int i = 0; i < 30; i++) {
		pid_t child = must(fork());
		if (child == 0)
			for (;;)
				stall(i, 60);
		must(kill(child, i % 3 ? SIGKILL : SIGTERM));
		ended("child", child);
	}
}

/* A name space whose first process has ended has no more of them. */
CASE(first_in_a_name_space)
{
	if (unshare(CLONE_NEWPID)) {
		puts("not permitted");
		return;
	}
	stall(10, 1);
	pid_t first = must(fork());
	if (first == 0) {
		printf("number %d\n", getpid());
		pid_t second = must(fork());
		if (second == 0) {
			puts("second");
			_exit(0);
		}
		must(waitpid(second, 0, 0));
		_exit(0);
	}
	ended("first", first);
}
