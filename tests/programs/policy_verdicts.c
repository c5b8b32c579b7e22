/* Asks the scripted policy that tests plant to delay calls, to repeat them, and to stop all
 * threads, and prints the results. Without that policy the calls are ordinary ones: the kernel
 * ignores the further arguments. */
#include "program_helpers.h"
#include <time.h>

#define ASKS 0x72616861736b7321l
enum { WAIT = 1, WAKE, AGAIN, STOP, DO_NOT_STOP };
enum { SPINS, CALLS, MADE, COUNTERS };

static volatile uint64_t counters[16];
static volatile int over;
static volatile sig_atomic_t ticks;

static long ask(long nr, long a, long b, long c, long d, long what)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = what, r9 __asm__("r9") = ASKS;
	long ret = nr;
	__asm__ volatile("syscall" : "+a"(ret) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
}

static long ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void tick(int signal)
{
	(void)signal;
	ticks++;
}

static void *waker(void *unused)
{
	(void)unused;
	usleep(100000);
	ask(SYS_getuid, 0, 0, 0, 0, WAKE);
	return 0;
}

/* A write waits until another thread wakes it. Handlers run meanwhile, and its arguments are
 * preserved. */
static void waits(int file)
{
	pthread_t thread;
	struct itimerval timer = { { 0, 10000 }, { 0, 10000 } };
	char text[8] = "";
	signal(SIGALRM, tick);
	must(pthread_create(&thread, 0, waker, 0));
	must(setitimer(ITIMER_REAL, &timer, 0));
	long since = ms(), ret = ask(SYS_pwrite64, file, (long)"abc", 3, 5, WAIT), took = ms() - since;
	memset(&timer, 0, sizeof timer);
	must(setitimer(ITIMER_REAL, &timer, 0));
	must(pthread_join(thread, 0));
	must(pread(file, text, 3, 5));
	printf("waited: %ld %s, %s, %s\n", ret, text, took >= 90 ? "long" : "not", ticks >= 3 ? "with signals" : "undisturbed");
}

static void again(int file)
{
	must(lseek(file, 0, SEEK_SET));
	must(ftruncate(file, 0));
	long ret = ask(SYS_write, file, (long)"xy", 2, 4, AGAIN);
	printf("made again: %ld, %ld bytes\n", ret, (long)must(lseek(file, 0, SEEK_END)));
}

static void *spin(void *unused)
{
	(void)unused;
	while (!over)
		counters[SPINS]++;
	return 0;
}

static void *call(void *unused)
{
	(void)unused;
	while (!over) {
		counters[CALLS]++;
		getppid();
	}
	return 0;
}

static void *nothing(void *unused)
{
	return unused;
}

static void *make_threads(void *unused)
{
	pthread_t thread;
	(void)unused;
	while (!over) {
		counters[MADE]++;
		must(pthread_create(&thread, 0, nothing, 0));
		must(pthread_join(thread, 0));
	}
	return 0;
}

static void *read_pipe(void *pipe)
{
	char c = 0;
	long ret = read(((int *)pipe)[0], &c, 1);
	return (void *)(ret == 1 && c == 'r' ? 1l : -1l);
}

static void *wait_for_pipe(void *pipe)
{
	struct pollfd p = { ((int *)pipe)[0], POLLIN, 0 };
	return (void *)(long)(poll(&p, 1, 20000) == 1 ? 1 : -errno);
}

static void *sleep_long(void *unused)
{
	struct timespec t = { 0, 300000000 };
	(void)unused;
	return (void *)(long)(nanosleep(&t, 0) == 0 ? 1 : -errno);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static int is_told;

static void *listen_long(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	while (!is_told)
		pthread_cond_wait(&told, &lock);
	pthread_mutex_unlock(&lock);
	return (void *)1l;
}

static void *stop_too(void *unused)
{
	long most = 0;
	while (!over) {
		long moved = ask(SYS_getgid, (long)counters, COUNTERS, 500, 0, STOP);
		if (moved > most)
			most = moved;
		/* Shorter than the others' sleeps, which go on with what is left of them. */
		usleep(2500);
	}
	(void)unused;
	return (void *)(most + 1);
}

/* Threads that compute, call, make threads and wait; and one that also stops the others. */
static void stops(long what, int rounds)
{
	enum { THREADS = 9 };
	pthread_t threads[THREADS];
	void *(*work[THREADS])(void *) = { spin, call, make_threads, read_pipe, wait_for_pipe, sleep_long, listen_long, stop_too, spin };
	int pipes[2], others[2], stopped = 0, refused = 0, failed = 0;
	long moved = 0, come;
	if (what != STOP)
		work[7] = spin;

	must(pipe(pipes));
	must(pipe(others));
	for (int n = 0; n < THREADS; n++)
		must(pthread_create(&threads[n], 0, work[n], n == 4 ? others : pipes));
	usleep(20000);
	for (int n = 0; n < rounds; n++) {
		long ret = ask(SYS_getuid, (long)counters, COUNTERS, 5000, 0, what);
		if (ret == -EAGAIN)
			refused++;
		else if (ret < 0)
			failed++;
		else
			stopped++, moved += ret;
		usleep(1000 * (n % 5));
	}
	over = 1;
	pthread_mutex_lock(&lock);
	is_told = 1;
	pthread_cond_broadcast(&told);
	pthread_mutex_unlock(&lock);
	must(write(pipes[1], "r", 1));
	must(write(others[1], "p", 1));
	for (int n = 0; n < THREADS; n++) {
		void *ret = 0;
		must(pthread_join(threads[n], &ret));
		come = (long)ret;
		if (come != 0 && come != 1)
			printf("thread %d: %ld\n", n, come);
	}
	fprintf(stderr, "stopped %d times, refused %d, failed %d\n", stopped, refused, failed);
	printf("stopped: %s, %s\n", failed == 0 && stopped >= rounds / 10 ? "often" : "seldom", moved ? "some moved" : "none moved");
}

int main(int argc, char **argv)
{
	int file = must(open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600));
	setbuf(stdout, 0);
	(void)argc;
	waits(file);
	again(file);
	stops(strcmp(argv[2], "stop") ? DO_NOT_STOP : STOP, 60);
	return 0;
}
