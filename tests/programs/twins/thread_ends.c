/* Ends of threads, and of processes that have threads. */
#include "twin.h"

static void cleanup(void *arg)
{
	stall(50, 2);
	printf("cleaned up %ld\n", (long)arg);
}

static void *cancelled(void *arg)
{
	int p[2];
	char c;
	must(pipe(p));
	pthread_cleanup_push(cleanup, arg);
	if ((long)arg == 1)
		for (;;)
			stall(20, 30);
	if ((long)arg == 2)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
	if ((long)arg == 2)
		for (;;)
			;
	if ((long)arg == 3)
		for (;;)
			pause();
	read(p[0], &c, 1);
	pthread_cleanup_pop(0);
	return 0;
}

CASE(cancelled_ones)
{
	for (long i = 0; i < 4; i++) {
		pthread_t t;
		void *got;
		pthread_create(&t, 0, cancelled, (void *)i);
		stall(10 + i, 2);
		usleep(20000);
		pthread_cancel(t);
		pthread_join(t, &got);
		ask(got == PTHREAD_CANCELED);
	}
}

static void *last_one(void *arg)
{
	usleep(20000);
	stall(20, 5);
	puts("the last thread");
	exit(11);
}

CASE(the_first_thread_ends_first)
{
	pthread_t t;
	pthread_create(&t, 0, last_one, 0);
	pthread_exit(0);
}

/* Waits until the first thread is a zombie. */
static void await_the_first_end(void)
{
	char text[200], state = 0;
	while (state != 'Z') {
		int fd = must(open("/proc/self/stat", O_RDONLY));
		ssize_t n = must(read(fd, text, sizeof text - 1));
		text[n] = 0;
		close(fd);
		state = strrchr(text, ')')[2];
	}
}

/* Ends by itself then; the last to end gives the status. */
static void *after_the_first(void *arg)
{
	await_the_first_end();
	stall(20, 3);
	raw(SYS_exit, 5, 0, 0, 0, 0, 0);
	return 0;
}

CASE(the_first_thread_ends_by_call)
{
	pid_t child = must(fork());
	if (child == 0) {
		pthread_t t;
		pthread_create(&t, 0, last_one, 0);
		raw(SYS_exit, 3, 0, 0, 0, 0, 0);
	}
	ended("by its other thread", child);
	child = must(fork());
	if (child == 0) {
		pthread_t t;
		pthread_create(&t, 0, after_the_first, 0);
		raw(SYS_exit, 3, 0, 0, 0, 0, 0);
	}
	ended("by its last thread", child);
}

/* What a thread may still do once the first thread is a zombie: the kernel has no memory and no
 * descriptors under the number of the process then. */
static void told(int number)
{
	write(1, "handler\n", 8);
}

static void *says(void *arg)
{
	puts(arg);
	return 0;
}

static void *works_on(void *arg)
{
	pthread_t t;
	sigset_t set;
	char *line = 0;
	size_t room = 0;
	int p[2];

	await_the_first_end();
	pthread_create(&t, 0, says, "a thread of it");
	pthread_join(t, 0);
	kill(getpid(), SIGUSR2);
	stall(0, 5);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	ask(pthread_sigmask(SIG_BLOCK, &set, 0));
	fflush(stdout);
	ask(system("echo a shell; exit 3"));
	pid_t child = must(vfork());
	if (child == 0)
		_exit(4);
	ended("a vfork child", child);
	child = must(fork());
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", "exit 6", NULL);
		_exit(99);
	}
	ended("an exec", child);
	must(pipe(p));
	must(fcntl(p[0], F_DUPFD, 50));
	write_file(in_work("after the first"), "text\n", 0644);
	FILE *f = fopen(in_work("after the first"), "r");
	getline(&line, &room, f);
	printf("%s%s\n", line, access("/proc/thread-self/fd/50", F_OK) ? "no descriptor" : "a descriptor");
	void *map = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(map, 1, 1 << 20);
	must(munmap(map, 1 << 20));
	stall(10, 20);
	exit(7);
}

CASE(a_thread_works_after_the_first)
{
	pid_t child = must(fork());
	if (child == 0) {
		pthread_t t;
		signal(SIGUSR2, told);
		pthread_create(&t, 0, works_on, 0);
		pthread_exit(0);
	}
	ended("a process without its first thread", child);
}

static void *reads_for_ever(void *arg)
{
	for (long i = (long)arg;; i++)
		stall(i % 64, 1);
	return 0;
}

static void *blocked_for_ever(void *arg)
{
	int p[2];
	char c;
	must(pipe(p));
	read(p[0], &c, 1);
	return 0;
}

CASE(exit_while_others_read)
{
	for (int i = 0; i < 10; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			pthread_t t;
			for (long n = 0; n < 3; n++)
				pthread_create(&t, 0, reads_for_ever, (void *)(n * 20));
			pthread_create(&t, 0, blocked_for_ever, 0);
			usleep(1000 * i);
			if (i % 2)
				_exit(i);
			raise(SIGTERM);
		}
		ended("child", child);
	}
}

static void *exits(void *arg)
{
	usleep(5000);
	_exit(44);
}

CASE(exit_from_a_thread)
{
	pid_t child = must(fork());
	if (child == 0) {
		pthread_t t;
		pthread_create(&t, 0, reads_for_ever, 0);
		pthread_create(&t, 0, exits, 0);
		reads_for_ever((void *)30);
	}
	ended("child", child);
}

static pthread_mutex_t robust;

static void *dies_with_it(void *arg)
{
	pthread_mutex_lock(&robust);
	stall(20, 3);
	return 0;
}

CASE(robust_mutexes)
{
	pthread_mutexattr_t a;
	pthread_t t;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &a);
	for (int i = 0; i < 5; i++) {
		pthread_create(&t, 0, dies_with_it, 0);
		pthread_join(t, 0);
		puts(strerrorname_np(pthread_mutex_lock(&robust)));
		pthread_mutex_consistent(&robust);
		pthread_mutex_unlock(&robust);
	}
	/* And over the end of a process. */
	pthread_mutex_t *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(shared, &a);
	for (int i = 0; i < 5; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			pthread_mutex_lock(shared);
			stall(30, 3);
			raise(SIGKILL);
		}
		ended("owner", child);
		puts(strerrorname_np(pthread_mutex_lock(shared)));
		pthread_mutex_consistent(shared);
		pthread_mutex_unlock(shared);
	}
}
