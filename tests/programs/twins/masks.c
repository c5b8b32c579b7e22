/* Blocked signals, waiting for signals, queues of signals; SIGSYS among them. */
#include "twin.h"
#include <sys/epoll.h>
#include <sys/signalfd.h>

static volatile sig_atomic_t caught;
static void count(int s) { caught++; }

CASE(every_bit_comes_back)
{
	unsigned long set, old, now;
	int wrong = 0;
	for (int bit = 0; bit < 64; bit++) {
		set = 1ul << bit;
		must(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &set, &old, 8));
		must(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, &now, 8));
		if (now != (bit == SIGKILL - 1 || bit == SIGSTOP - 1 ? 0 : set))
			printf("%d: %lx\n", bit, now), wrong++;
		if (bit % 8 == 0)
			stall(bit, 1);
	}
	set = ~0ul;
	must(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &set, 0, 8));
	set = 0x40000001;
	must(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, &old, 8));
	must(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, 0, &now, 8));
	printf("%lx %lx, wrong %d\n", old, now, wrong);
}

static void *in_thread(void *arg)
{
	sigset_t now, hup = set_of(SIGHUP, 0);
	pthread_sigmask(SIG_BLOCK, &hup, &now);
	stall(20, 3);
	printf("usr1 %d sys %d hup %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS), sigismember(&now, SIGHUP));
	return 0;
}

CASE(inherited_by_threads)
{
	sigset_t some = set_of(SIGUSR1, SIGSYS), now;
	pthread_t t;
	pthread_sigmask(SIG_BLOCK, &some, 0);
	pthread_create(&t, 0, in_thread, 0);
	pthread_join(t, 0);
	pthread_sigmask(SIG_BLOCK, 0, &now);
	printf("usr1 %d sys %d hup %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS), sigismember(&now, SIGHUP));
}

CASE(pending_until_unblocked)
{
	int signals[] = { SIGUSR1, SIGCHLD, SIGSYS, SIGRTMIN + 3, SIGSEGV };
	sigset_t all, none, pending;
	sigfillset(&all);
	sigemptyset(&none);
	for (int i = 0; i < 5; i++)
		on(signals[i], count, 0);
	for (int round = 0; round < 3; round++) {
		sigprocmask(SIG_SETMASK, &all, 0);
		caught = 0;
		for (int i = 0; i < 5; i++)
			kill(getpid(), signals[i]), kill(getpid(), signals[i]);
		stall(10 + 5 * round, 4);
		sigpending(&pending);
		for (int i = 0; i < 5; i++)
			printf("%d", sigismember(&pending, signals[i]));
		printf(" %d ", caught);
		sigprocmask(SIG_SETMASK, &none, 0);
		printf("%d\n", caught);
	}
}

static void wait_with_mask(int how, const sigset_t *mask)
{
	struct timespec second = { 20, 0 };
	struct epoll_event e;
	int ep = must(epoll_create1(0));
	struct itimerval soon = { { 0, 0 }, { 0, 5000 } };
	setitimer(ITIMER_REAL, &soon, 0);
	errno = 0;
	int ret = how == 0 ? sigsuspend(mask)
		: how == 1 ? ppoll(0, 0, &second, mask)
		: how == 2 ? pselect(0, 0, 0, 0, &second, mask)
		: how == 3 ? epoll_pwait(ep, &e, 1, 20000, mask)
			   : syscall(SYS_epoll_pwait2, ep, &e, 1, &second, mask, 8);
	printf("%d: %d %s, caught %d\n", how, ret, strerrorname_np(errno), caught);
	close(ep);
}

/* SIGALRM is blocked but for the wait; SIGSYS is in every mask. */
CASE(waits_with_a_mask)
{
	sigset_t all, now;
	sigfillset(&all);
	on(SIGALRM, count, 0);
	must(sigprocmask(SIG_SETMASK, &all, 0));
	sigdelset(&all, SIGALRM);
	for (int how = 0; how < 5; how++) {
		wait_with_mask(how, &all);
		stall(10 + how, 1);
		sigprocmask(SIG_BLOCK, 0, &now);
		printf("alarm %d sys %d usr1 %d\n", sigismember(&now, SIGALRM), sigismember(&now, SIGSYS), sigismember(&now, SIGUSR1));
	}
}

/* A call site for calls of any number, used often enough to be patched first. */
CASE(by_one_site)
{
	struct kernel_action {
		void *handler;
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} action = { 0 };
	unsigned long all = ~0ul, none = 0, old = 0, usr1 = 1ul << (SIGUSR1 - 1);
	if (more[0]) {
		printf("executed: %s\n", more[0]);
		return;
	}
	for (int i = 0; i < 40; i++)
		must(syscall(SYS_getppid));
	for (int round = 0; round < 3; round++) {
		must(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8));
		printf("before: %lx\n", old);
		stall(10 + 8 * round, 2);
		on(SIGUSR1, count, 0);
		must(syscall(SYS_rt_sigaction, SIGUSR1, 0, &action, 8));
		printf("handler %d mask %lx\n", action.handler == (void *)count, action.mask);
		action.mask = ~0ul;
		must(syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, 8));
		must(syscall(SYS_rt_sigaction, SIGUSR1, 0, &action, 8));
		printf("mask %d\n", (int)(action.mask >> (SIGSYS - 1) & 1));
		kill(getpid(), SIGUSR1);
		printf("%d then ", caught);
		all &= ~usr1;
		printf("%ld ", syscall(SYS_rt_sigsuspend, &all, 8L));
		all |= usr1;
		printf("%d\n", caught);
		must(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, &old, 8));
		printf("in it: %d %d\n", (int)(old >> (SIGSYS - 1) & 1), (int)(old >> (SIGUSR1 - 1) & 1));
		stall(12 + 8 * round, 2);
		long child = must(syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L));
		if (!child) {
			stall(14 + 8 * round, 2);
			char *args[] = { "again", "by_one_site", "well", 0 };
			if (round)
				syscall(SYS_execve, self(), args, environ);
			_exit(7);
		}
		int status = 0;
		printf("%d ", waitpid(child, &status, 0) == child);
		printf("ended %x\n", status);
		fflush(stdout);
	}
}

/* A pending signal comes at the wait, and only then. */
CASE(pending_at_the_wait)
{
	sigset_t usr1 = set_of(SIGUSR1, SIGSYS), none;
	struct timespec none_at_all = { 0, 0 };
	sigemptyset(&none);
	on(SIGUSR1, count, SA_RESTART);
	on(SIGSYS, count, SA_RESTART);
	sigprocmask(SIG_BLOCK, &usr1, 0);
	for (int i = 0; i < 5; i++) {
		kill(getpid(), i % 2 ? SIGSYS : SIGUSR1);
		stall(20 + i, 1);
		printf("%d then ", caught);
		show(i < 3 ? sigsuspend(&none) : ppoll(0, 0, &none_at_all, &none));
		printf("%d\n", caught);
	}
}

CASE(taken_without_a_handler)
{
	sigset_t set = set_of(SIGUSR1, SIGUSR2), none;
	siginfo_t info;
	struct timespec soon = { 0, 3000000 }, at_once = { 0, 0 };
	sigprocmask(SIG_BLOCK, &set, 0);
	sigemptyset(&none);
	show(sigtimedwait(&set, &info, &at_once));
	show(sigtimedwait(&set, &info, &soon));
	for (int i = 0; i < 4; i++) {
		int s = 0;
		sigqueue(getpid(), i % 2 ? SIGUSR1 : SIGUSR2, (union sigval){ .sival_int = 100 + i });
		stall(20 + i, 1);
		show(sigwaitinfo(&set, &info));
		printf("%d code %d value %d mine %d\n", info.si_signo, info.si_code, info.si_value.sival_int, info.si_pid == getpid());
		kill(getpid(), SIGUSR1);
		show(sigwait(&set, &s));
		printf("%d\n", s);
	}
	show(sigtimedwait(&none, &info, &soon));
	show(syscall(SYS_rt_sigtimedwait, 16, 0, 0, 8));
	struct timespec wrong = { 0, -5 };
	show(sigtimedwait(&set, 0, &wrong));
}

CASE(read_from_a_descriptor)
{
	sigset_t set = set_of(SIGUSR1, SIGSYS), usr2 = set_of(SIGUSR2, 0);
	struct signalfd_siginfo i;
	sigprocmask(SIG_BLOCK, &set, 0);
	sigprocmask(SIG_BLOCK, &usr2, 0);
	int fd = must(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
	show(read(fd, &i, sizeof i));
	for (int n = 0; n < 4; n++) {
		kill(getpid(), n % 2 ? SIGSYS : SIGUSR1);
		stall(30 + n, 1);
		show(read(fd, &i, sizeof i));
		printf("%d code %d mine %d\n", i.ssi_signo, i.ssi_code, i.ssi_pid == getpid());
	}
	show(signalfd(fd, &usr2, 0) == fd);
	kill(getpid(), SIGUSR2);
	struct pollfd f = { fd, POLLIN, 0 };
	show(poll(&f, 1, 0));
	show(read(fd, &i, 10));
	show(read(fd, &i, sizeof i));
	printf("%d\n", i.ssi_signo);
	show(signalfd(0, &set, 0));
}

static int order[40], values[40], n_order;

static void queued(int s, siginfo_t *i, void *c)
{
	order[n_order] = s - SIGRTMIN;
	values[n_order++] = i->si_value.sival_int;
}

CASE(queues_keep_order_and_values)
{
	sigset_t all, none;
	sigfillset(&all);
	sigemptyset(&none);
	for (int s = 0; s < 4; s++)
		on_info(SIGRTMIN + s, queued, 0);
	sigprocmask(SIG_SETMASK, &all, 0);
	for (int i = 0; i < 20; i++)
		must(sigqueue(getpid(), SIGRTMIN + (i * 3) % 4, (union sigval){ .sival_int = i }));
	stall(10, 10);
	sigprocmask(SIG_SETMASK, &none, 0);
	for (int i = 0; i < n_order; i++)
		printf("%d:%d ", order[i], values[i]);
	puts("");
}

CASE(queues_have_an_end)
{
	sigset_t all;
	struct rlimit r = { 10, 10 };
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, 0);
	must(setrlimit(RLIMIT_SIGPENDING, &r));
	int queued = 0;
	/* The limit counts all signals of the user: those of other processes, too. */
	while (queued < 50 && sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 1 }) == 0)
		queued++;
	printf("%d %s\n", queued <= 10, strerrorname_np(errno));
	stall(20, 3);
	show(kill(getpid(), SIGUSR1));
	siginfo_t info;
	sigset_t rt = set_of(SIGRTMIN, 0);
	int got = 0;
	struct timespec at_once = { 0, 0 };
	while (sigtimedwait(&rt, &info, &at_once) == SIGRTMIN)
		got++;
	ask(got == queued);
}

static void usr1_during(int s)
{
	caught++;
	sigset_t now;
	sigprocmask(SIG_BLOCK, 0, &now);
	printf("in it: usr1 %d usr2 %d sys %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2), sigismember(&now, SIGSYS));
	sigaddset(&now, SIGTERM);
	sigprocmask(SIG_SETMASK, &now, 0);
}

CASE(mask_within_and_after_a_handler)
{
	struct sigaction a = { .sa_handler = usr1_during };
	sigset_t now;
	sigaddset(&a.sa_mask, SIGUSR2);
	sigaddset(&a.sa_mask, SIGSYS);
	must(sigaction(SIGUSR1, &a, 0));
	for (int i = 0; i < 5; i++) {
		raise(SIGUSR1);
		sigprocmask(SIG_BLOCK, 0, &now);
		printf("after: usr1 %d usr2 %d sys %d term %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2), sigismember(&now, SIGSYS), sigismember(&now, SIGTERM));
		stall(20 + i, 1);
	}
}

static void reads_a_file(int s)
{
	caught++;
	stall(20 + caught, 1);
}

/* A handler that runs because its signal is unblocked, while SIGSYS stays blocked. */
CASE(unblocked_while_another_stays_blocked)
{
	sigset_t both = set_of(SIGUSR1, SIGSYS), one = set_of(SIGUSR1, 0), now;
	on(SIGUSR1, reads_a_file, 0);
	for (int i = 0; i < 5; i++) {
		must(sigprocmask(SIG_BLOCK, &both, 0));
		kill(getpid(), SIGUSR1);
		must(sigprocmask(SIG_UNBLOCK, &one, 0));
		sigprocmask(SIG_BLOCK, 0, &now);
		printf("%d usr1 %d sys %d\n", caught, sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS));
	}
}

static sigjmp_buf back;
static void jump(int s) { siglongjmp(back, 1 + (s == SIGUSR2)); }

CASE(jumps_that_restore_it_or_not)
{
	sigset_t now;
	on(SIGUSR1, jump, 0);
	for (int saved = 0; saved < 2; saved++) {
		for (volatile int i = 0; i < 3; i++) {
			if (sigsetjmp(back, saved) == 0)
				kill(getpid(), SIGUSR1);
			sigprocmask(SIG_BLOCK, 0, &now);
			printf("saved %d: usr1 %d\n", saved, sigismember(&now, SIGUSR1));
			stall(20 + i, 1);
			sigset_t usr1 = set_of(SIGUSR1, 0);
			sigprocmask(SIG_UNBLOCK, &usr1, 0);
		}
	}
}

CASE(ignored_ones)
{
	on(SIGUSR1, SIG_IGN, 0);
	on(SIGPIPE, SIG_IGN, 0);
	on(SIGSYS, SIG_IGN, 0);
	for (int i = 0; i < 5; i++) {
		kill(getpid(), SIGUSR1);
		kill(getpid(), SIGSYS);
		raise(SIGSYS);
		stall(20 + i, 1);
	}
	int p[2];
	must(pipe(p));
	close(p[0]);
	show(write(p[1], "x", 1));
	sigset_t set = set_of(SIGUSR1, SIGSYS), pending;
	sigprocmask(SIG_BLOCK, &set, 0);
	kill(getpid(), SIGUSR1);
	sigpending(&pending);
	printf("%d\n", sigismember(&pending, SIGUSR1));
	puts("alive");
}

CASE(between_processes)
{
	sigset_t chld = set_of(SIGUSR1, SIGUSR2), old;
	sigprocmask(SIG_BLOCK, &chld, &old);
	on(SIGUSR1, count, 0);
	on(SIGUSR2, count, 0);
	pid_t me = getpid(), child = must(fork());
	if (child == 0) {
		for (int i = 0; i < 20; i++) {
			kill(me, SIGUSR2);
			stall(i, 1);
			while (caught <= i)
				sigsuspend(&old);
		}
		_exit(caught);
	}
	for (int i = 0; i < 20; i++) {
		while (caught <= i)
			sigsuspend(&old);
		stall(30 + i, 1);
		kill(child, SIGUSR1);
	}
	ended("child", child);
	printf("%d\n", caught);
}
