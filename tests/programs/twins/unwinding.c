/* Unwinding the stack from a signal handler finds the program's calls, and no others. */
#include "twin.h"
#include <execinfo.h>
#include <poll.h>
#include <pthread.h>
#include <sys/select.h>

#define ROUNDS 12

static int pipes[2];
static FILE *in;

static volatile pid_t waiter;

static void start(pthread_t *t, void *(*body)(void *))
{
	waiter = 0;
	must(pthread_create(t, 0, body, 0));
	while (!waiter)
		usleep(100);
	until_it_sleeps(waiter);
}

static void *gets_a_line(void *p)
{
	char line[100];
	waiter = gettid();
	if (fgets(line, sizeof line, in))
		printf("thread: %s", line);
	return 0;
}

/* The lock of the stream is free again. */
CASE(cancelled_in_fgets)
{
	char line[100];
	must(pipe(pipes));
	in = fdopen(pipes[0], "r");
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t t;
		void *result;
		start(&t, gets_a_line);
		pthread_cancel(t);
		pthread_join(t, &result);
		ask(result == PTHREAD_CANCELED);
		fflush(stdout);
		alarm(10);
		must(write(pipes[1], "hello\n", 6));
		printf("main: %s", fgets(line, sizeof line, in));
		alarm(0);
		stall(10 + i, 1);
	}
}

static void left(void *what)
{
	printf("left %s\n", (char *)what);
}

static void *reads(void *p)
{
	char c;
	pthread_cleanup_push(left, "outer");
	pthread_cleanup_push(left, "inner");
	waiter = gettid();
	for (;;)
		must(read(pipes[0], &c, 1));
	pthread_cleanup_pop(1);
	pthread_cleanup_pop(1);
	return 0;
}

CASE(cancelled_in_read)
{
	must(pipe(pipes));
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t t;
		void *result;
		start(&t, reads);
		for (int n = 0; n < i; n++) {
			must(write(pipes[1], "x", 1));
			usleep(100);
		}
		until_it_sleeps(waiter);
		pthread_cancel(t);
		pthread_join(t, &result);
		ask(result == PTHREAD_CANCELED);
		stall(10 + i, 1);
	}
}

/* Addresses at which the interrupted functions continue. */
static void *expected[2];
static volatile int found, handled;

static void looks(int s)
{
	void *all[64];
	int n = backtrace(all, 64);
	for (int e = 0; e < 2; e++)
		for (int i = 0; i < n; i++)
			if (all[i] == expected[e]) {
				found++;
				break;
			}
	handled++;
}

static int how;

static __attribute__((noinline)) void waits(void)
{
	char c;
	struct timespec long_time = { .tv_sec = 20 };
	struct pollfd poll = { .fd = pipes[0], .events = POLLIN };
	fd_set set;
	sigset_t none = set_of(SIGUSR2, 0);
	FD_ZERO(&set);
	FD_SET(pipes[0], &set);
	expected[1] = __builtin_return_address(0);
	errno = 0;
	int ret = how == 0 ? read(pipes[0], &c, 1)
		: how == 1 ? ppoll(&poll, 1, &long_time, &none)
		: how == 2 ? pselect(pipes[0] + 1, &set, 0, 0, &long_time, &none)
		: how == 3 ? nanosleep(&long_time, 0)
			   : sigsuspend(&none);
	if (ret == -1 && errno != EINTR)
		exit(90);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void outer(void)
{
	expected[0] = __builtin_return_address(0);
	waits();
	__asm__ volatile("" ::: "memory");
}

static void *is_interrupted(void *p)
{
	waiter = gettid();
	outer();
	return 0;
}

CASE(traces_from_handlers)
{
	void *some[4];
	backtrace(some, 4); /* loads what it needs */
	must(pipe(pipes));
	for (int i = 0; i < 5 * ROUNDS; i++) {
		pthread_t t;
		on(SIGUSR1, looks, i % 2 ? SA_RESTART : 0);
		how = i % 5;
		start(&t, is_interrupted);
		pthread_kill(t, SIGUSR1);
		if (i % 2 && how == 0) {
			while (handled <= i)
				usleep(100);
			must(write(pipes[1], "x", 1));
		}
		pthread_join(t, 0);
		printf("handled %d, found %d\n", handled, found);
		stall(10 + i, 1);
	}
}
