/* exec in programs with threads: one is left. */
#include "twin.h"

static void go(const char *name, const char *stage)
{
	char *argv[] = { "again", (char *)name, (char *)stage, 0 };
	execv(self(), argv);
	perror("exec");
	_exit(96);
}

static volatile int stop, ready;

static void *reads(void *arg)
{
	__sync_fetch_and_add(&ready, 1);
	for (int i = 0; !stop; i++)
		stall(i, 1);
	return 0;
}

static void *waits(void *arg)
{
	int p[2];
	char c;
	must(pipe(p));
	__sync_fetch_and_add(&ready, 1);
	read(p[0], &c, 1);
	return 0;
}

static void with_threads(void)
{
	pthread_t t;
	for (int i = 0; i < 3; i++)
		pthread_create(&t, 0, i % 2 ? waits : reads, 0);
	while (ready < 3)
		usleep(1000);
}

static void alone(char **more)
{
	struct stat st;
	must(stat("/proc/self/task", &st));
	printf("%d threads, first %d, same process %d\n", (int)st.st_nlink - 2, gettid() == getpid(), atoi(more[0]) == getpid());
	stall(40, 5);
}

static void *goes(void *name)
{
	char pid[20];
	snprintf(pid, sizeof pid, "%d", getpid());
	go(name, pid);
	return 0;
}

CASE(while_threads_run)
{
	if (more[0])
		return alone(more);
	with_threads();
	goes("while_threads_run");
}

CASE(from_a_thread)
{
	if (more[0])
		return alone(more);
	pthread_t t;
	with_threads();
	pthread_create(&t, 0, goes, "from_a_thread");
	pthread_join(t, 0);
}

CASE(from_a_thread_whose_first_thread_is_over)
{
	if (more[0])
		return alone(more);
	pthread_t t;
	pthread_create(&t, 0, goes, "from_a_thread_whose_first_thread_is_over");
	pthread_exit(0);
}

CASE(from_a_thread_in_a_child)
{
	pthread_t t;
	for (int i = 0; i < 5; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			with_threads();
			pthread_create(&t, 0, goes, "while_threads_run");
			pthread_join(t, 0);
		}
		ended("child", child);
	}
}

static void *fails(void *arg)
{
	char *argv[] = { "x", 0 };
	for (int i = 0; i < 50; i++)
		if (execv(i % 2 ? "odd/none" : "data", argv) != -1)
			_exit(1);
	return 0;
}

CASE(failing_while_threads_run)
{
	pthread_t t;
	with_threads();
	pthread_create(&t, 0, fails, 0);
	fails(0);
	pthread_join(t, 0);
	stop = 1;
	stall(10, 5);
	puts("still here");
}
