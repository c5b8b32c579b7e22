/* Signals around calls that wait: for a slow file, a pipe, a signal. */
#include "program_helpers.h"
#include <ucontext.h>

static volatile sig_atomic_t caught, nested;
static int pipes[2];

static void every(int usec)
{
	struct itimerval t = { { 0, usec }, { 0, usec } };
	must(setitimer(ITIMER_REAL, &t, 0));
}

static void handle(int signal, void (*handler)(int), int flags)
{
	struct sigaction a = { .sa_handler = handler, .sa_flags = flags };
	must(sigaction(signal, &a, 0));
}

static void count(int s)
{
	caught++;
}

/* A handler that uses files, cold ones too. */
static void use_files(int s)
{
	int saved = errno;
	char buf[64], name[32];
	struct stat st;
	snprintf(name, sizeof name, "src/d%d/f%d.c", (nested / 20) % 2, nested % 20);
	int fd = open(name, O_RDONLY);
	if (fd < 0 || read(fd, buf, 64) != 64 || fstat(fd, &st) || memcmp(buf, "int ", 4))
		_exit(77);
	close(fd);
	nested++;
	caught++;
	errno = saved;
}

static unsigned read_all(const char *name, int size)
{
	static char buf[1 << 17];
	unsigned h = 0;
	int fd = must(open(name, O_RDONLY));
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (;;) {
		ssize_t n = read(fd, buf, size);
		if (n < 0) {
			printf("read: %s\n", strerrorname_np(errno));
			break;
		}
		if (n == 0)
			break;
		h = h * 31 + sum(buf, n);
	}
	close(fd);
	return h;
}

static void files(int flags, void (*handler)(int))
{
	handle(SIGALRM, handler, flags);
	every(700);
	printf("data %u\n", read_all("data", 5000));
	for (int i = 0; i < 20; i++) {
		char name[32];
		snprintf(name, sizeof name, "many/%02d", i);
		printf("%s %u\n", name, read_all(name, 999));
	}
	while (caught <= 10)
		;
	every(0);
	printf("caught some: %d\n", caught > 10);
}

static void pipes_wait(int flags)
{
	char c;
	must(pipe(pipes));
	handle(SIGALRM, count, flags);
	stall_on(0, 5);
	if (fork() == 0) {
		for (int i = 0; i < 3; i++)
			usleep(50000), must(write(pipes[1], "x", 1));
		_exit(0);
	}
	every(15000);
	int interrupted = 0, got = 0;
	while (got < 3) {
		ssize_t n = read(pipes[0], &c, 1);
		if (n == 1)
			got++;
		else if (errno == EINTR)
			interrupted++;
		else
			break;
	}
	every(0);
	printf("got %d, interrupted: %d\n", got, interrupted > 0);
	wait(0);
}

static sigjmp_buf back;

static void jump(int s)
{
	caught++;
	siglongjmp(back, 1);
}

static __attribute__((noinline)) void blocked_read(int depth, int fd)
{
	char pad[512], c;
	memset(pad, depth, sizeof pad);
	__asm__ volatile("" ::"r"(pad) : "memory");
	if (depth)
		blocked_read(depth - 1, fd);
	else if (read(fd, &c, 1) == 1)
		_exit(78);
	__asm__ volatile("" ::"r"(pad) : "memory");
}

static void jumps(void)
{
	must(pipe(pipes));
	stall_on(0, 5);
	handle(SIGALRM, jump, 0);
	for (volatile int i = 0; i < 200; i++) {
		if (sigsetjmp(back, 1) == 0) {
			every(500 + i * 17 % 3000);
			if (i % 2)
				blocked_read(i % 20, pipes[0]);
			else
				for (;;)
					read_all("big", 65536);
		}
		every(0);
		char name[32];
		snprintf(name, sizeof name, "many/%02d", i % 64);
		printf("%d %u\n", i, read_all(name, 4000));
	}
	printf("caught enough: %d\n", caught >= 200);
}

/* A handler on the program's own stack may use as much of it as it likes. */
static void deep(int s)
{
	volatile char room[2 << 20];
	for (size_t i = 0; i < sizeof room; i += 4096)
		room[i] = 1;
	caught += room[4096];
}

static void suspend(void)
{
	sigset_t all, none;
	sigfillset(&all);
	sigemptyset(&none);
	stall_on(0, 5);
	handle(SIGALRM, use_files, 0);
	handle(SIGUSR1, use_files, 0);
	sigset_t but_alarm = all;
	sigdelset(&but_alarm, SIGALRM);
	struct itimerval once = { { 0, 0 }, { 0, 20000 } };
	struct timespec second = { 1, 0 };
	must(sigprocmask(SIG_SETMASK, &all, 0));
	setitimer(ITIMER_REAL, &once, 0);
	show(sigsuspend(&but_alarm));
	setitimer(ITIMER_REAL, &once, 0);
	show(ppoll(0, 0, &second, &but_alarm));
	setitimer(ITIMER_REAL, &once, 0);
	show(pselect(0, 0, 0, 0, &second, &but_alarm));
	kill(getpid(), SIGUSR1);
	printf("caught %d, still %d\n", caught, sigismember(&all, SIGUSR1));
	sigset_t now;
	sigprocmask(SIG_SETMASK, &none, &now);
	printf("mask had usr1 %d sys %d alarm %d; caught %d\n", sigismember(&now, SIGUSR1),
	       sigismember(&now, SIGSYS), sigismember(&now, SIGALRM), caught);
	struct timespec soon = { 0, 1000000 };
	show(ppoll(0, 0, &soon, 0));
	show(pselect(0, 0, 0, 0, &soon, &all));
}

/* A whole mask set by changing the frame that the handler returns to. */
static void block_all(int s, siginfo_t *i, void *context)
{
	sigfillset(&((ucontext_t *)context)->uc_sigmask);
}

static void frame(void)
{
	struct sigaction a = { .sa_sigaction = block_all, .sa_flags = SA_SIGINFO };
	must(sigaction(SIGUSR1, &a, 0));
	raise(SIGUSR1);
	stall_on(0, 3);
	sigset_t now;
	sigprocmask(SIG_BLOCK, 0, &now);
	printf("usr1 %d sys %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS));
}

static void segv(int s, siginfo_t *i, void *context)
{
	caught++;
	siglongjmp(back, 1);
}

static void recover(void)
{
	struct sigaction a = { .sa_sigaction = segv, .sa_flags = SA_SIGINFO };
	must(sigaction(SIGSEGV, &a, 0));
	must(sigaction(SIGBUS, &a, 0));
	for (volatile int i = 0; i < 40; i++) {
		if (sigsetjmp(back, 1) == 0)
			*(volatile int *)16 = 1;
		stall_on(i, 1);
	}
	printf("caught %d\n", caught);
}

/* A descriptor that a handler replaces while a call waits. */
static void replace(int s)
{
	if (!caught++) {
		must(pipe(pipes));
		must(dup2(pipes[0], 30));
		must(write(pipes[1], "five!", 5));
	}
}

static void replaced(void)
{
	char buf[100];
	int fd = must(open("data", O_RDONLY));
	must(dup2(fd, 30));
	must(read(30, buf, 10));
	handle(SIGALRM, replace, SA_RESTART);
	struct itimerval once = { { 0, 0 }, { 0, 3000 } };
	setitimer(ITIMER_REAL, &once, 0);
	stall_on(0, 30);
	while (!caught)
		;
	show(read(30, buf, 100));
}

/* Counts the deliveries of a signal that is sent once. */
static void counter(void)
{
	handle(SIGINT, count, SA_RESTART);
	handle(SIGTERM, count, SA_RESTART);
	stall_on(0, 20);
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < 40; i++)
		usleep(10000);
	printf("%d times\n", caught);
	fflush(stdout);
	_exit(7);
}

int main(int argc, char **argv)
{
	const char *what = argv[1];
	if (!strcmp(what, "files"))
		files(0, count);
	else if (!strcmp(what, "files restart"))
		files(SA_RESTART, count);
	else if (!strcmp(what, "files in handler"))
		files(SA_RESTART, use_files);
	else if (!strcmp(what, "pipes"))
		pipes_wait(0);
	else if (!strcmp(what, "pipes restart"))
		pipes_wait(SA_RESTART);
	else if (!strcmp(what, "jumps"))
		jumps();
	else if (!strcmp(what, "deep"))
		files(SA_RESTART, deep);
	else if (!strcmp(what, "suspend"))
		suspend();
	else if (!strcmp(what, "frame"))
		frame();
	else if (!strcmp(what, "recover"))
		recover();
	else if (!strcmp(what, "replaced"))
		replaced();
	else if (!strcmp(what, "counter"))
		counter();
	return 0;
}
