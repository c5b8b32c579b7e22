/* Timers, sleeps, clocks and profilers. */
#include "twin.h"
#include <time.h>
#include <sys/timerfd.h>
#include <ucontext.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <linux/futex.h>

static volatile sig_atomic_t caught, wrong;
static void count(int s) { caught++; }

CASE(alarms_come_once)
{
	on(SIGALRM, count, 0);
	for (int i = 0; i < 3; i++) {
		struct itimerval t = { { 0, 0 }, { 0, 5000 } };
		int before = caught;
		must(setitimer(ITIMER_REAL, &t, 0));
		while (caught == before)
			stall(i * 5, 1);
		stall(20 + i * 10, 10);
		must(getitimer(ITIMER_REAL, &t));
		printf("%d, left %ld\n", caught, (long)t.it_value.tv_usec);
	}
	alarm(100);
	ask(alarm(0) >= 99);
}

CASE(alarm_kills)
{
	pid_t child = must(fork());
	if (child == 0) {
		ualarm(20000, 0);
		for (;;)
			stall(0, 64);
	}
	ended("child", child);
}

static void profile(int s, siginfo_t *i, void *context)
{
	caught++;
	if (((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] == 0)
		wrong++;
}

static volatile int enough;

static void *work(void *arg)
{
	for (long i = 0; !enough; i++)
		stall(i % 64, 1);
	return 0;
}

CASE(profiler_over_threads)
{
	pthread_t t[2];
	struct itimerval every_ms = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
	on_info(SIGPROF, profile, SA_RESTART);
	must(setitimer(ITIMER_PROF, &every_ms, 0));
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], 0, work, 0);
	while (caught < 15)
		stall(0, 10);
	enough = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], 0);
	setitimer(ITIMER_PROF, &never, 0);
	printf("%d, wrong %d\n", caught >= 15, wrong);
}

CASE(virtual_time)
{
	struct itimerval every_ms = { { 0, 1000 }, { 0, 1000 } };
	on(SIGVTALRM, count, SA_RESTART);
	must(setitimer(ITIMER_VIRTUAL, &every_ms, 0));
	for (int i = 0; caught < 3; i++)
		if (i % 10000 == 0)
			stall(i / 10000 % 64, 1);
	ask(caught >= 3);
}

static volatile int by_thread;
static pid_t target;
static void in_which(int s, siginfo_t *i, void *c) { caught++, by_thread += gettid() == target && i->si_value.sival_int == 55 && i->si_code == SI_TIMER; }

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static void *has_timer(void *arg)
{
	timer_t id;
	target = gettid();
	struct sigevent e = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 55 };
	e.sigev_notify_thread_id = target;
	must(timer_create(CLOCK_MONOTONIC, &e, &id));
	struct itimerspec t = { { 0, 2000000 }, { 0, 2000000 } };
	must(timer_settime(id, 0, &t, 0));
	while (caught < 10)
		stall(20, 5);
	timer_delete(id);
	return 0;
}

CASE(timer_of_a_thread)
{
	pthread_t t;
	on_info(SIGRTMIN, in_which, SA_RESTART);
	pthread_create(&t, 0, has_timer, 0);
	while (caught < 10)
		stall(40, 5);
	pthread_join(t, 0);
	ask(by_thread == caught);
}

static void notified(union sigval v)
{
	stall(30, 1);
	__sync_fetch_and_add(&caught, v.sival_int);
}

CASE(timer_that_makes_threads)
{
	timer_t id;
	struct sigevent e = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = notified, .sigev_value.sival_int = 7 };
	must(timer_create(CLOCK_REALTIME, &e, &id));
	for (int i = 0; i < 5; i++) {
		struct itimerspec t = { { 0, 0 }, { 0, 1000000 } };
		must(timer_settime(id, 0, &t, 0));
		while (caught < 7 * (i + 1))
			usleep(500);
	}
	timer_delete(id);
	printf("%d\n", caught);
}

CASE(timers_that_ask_wrongly)
{
	timer_t id;
	struct itimerspec t = { { 0, 0 }, { 0, 2000000000 } };
	show(timer_create(99, 0, &id));
	must(timer_create(CLOCK_MONOTONIC, 0, &id));
	show(timer_settime(id, 0, &t, 0));
	show(timer_gettime(id, (void *)8));
	show(timer_getoverrun(id));
	show(timer_delete(id));
	show(syscall(SYS_timer_delete, 999));
	show(setitimer(9, 0, 0));
	show(nanosleep(&t.it_value, 0));
	show(nanosleep((void *)8, 0));
	stall(10, 10);
}

CASE(timer_descriptors)
{
	uint64_t n;
	int fd = must(timerfd_create(CLOCK_MONOTONIC, 0));
	struct itimerspec t = { { 0, 0 }, { 0, 3000000 } };
	for (int i = 0; i < 5; i++) {
		must(timerfd_settime(fd, 0, &t, 0));
		show(read(fd, &n, sizeof n));
		printf("%d\n", (int)n);
		stall(20 + i, 2);
	}
	must(fcntl(fd, F_SETFL, O_NONBLOCK));
	show(read(fd, &n, sizeof n));
	show(read(fd, &n, 4));
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

CASE(sleeps_are_long_enough)
{
	struct timespec t = { 0, 15000000 }, left;
	on(SIGALRM, count, SA_RESTART);
	for (int i = 0; i < 5; i++) {
		int64_t start = now();
		if (i % 2)
			every(4000);
		left = t;
		int rounds = 0;
		while (i % 2 == 0 ? nanosleep(&left, &left) : clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left))
			rounds++;
		every(0);
		printf("%d %d\n", now() - start >= 15000000, i % 2 ? rounds > 0 : rounds);
		stall(20 + i, 2);
	}
	/* A sleep that is stopped and continued goes on. */
	pid_t child = must(fork());
	if (child == 0) {
		struct timespec long_one = { 0, 60000000 };
		int64_t start = now();
		int ret = nanosleep(&long_one, 0);
		_exit(ret ? 99 : now() - start >= 60000000);
	}
	int status;
	usleep(10000);
	kill(child, SIGSTOP);
	must(waitpid(child, &status, WUNTRACED));
	kill(child, SIGCONT);
	ended("child", child);
}

CASE(clocks_agree)
{
	struct timespec a, b, c;
	int bad = 0;
	for (int i = 0; i < 200; i++) {
		must(clock_gettime(CLOCK_MONOTONIC, &a));
		must(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &b));
		must(clock_gettime(CLOCK_MONOTONIC, &c));
		int64_t x = a.tv_sec * 1000000000ll + a.tv_nsec, y = b.tv_sec * 1000000000ll + b.tv_nsec, z = c.tv_sec * 1000000000ll + c.tv_nsec;
		bad += x > y || y > z;
		if (i % 20 == 0)
			stall(i % 64, 1);
	}
	printf("bad %d\n", bad);
	/* Time of the processor is spent by this process alone, not by copies of it. */
	struct timespec cpu;
	must(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu));
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	int64_t used = (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000ll + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000ll;
	int64_t difference = used - (cpu.tv_sec * 1000000000ll + cpu.tv_nsec);
	ask(difference > -50000000 && difference < 50000000);
}

/* Threads that call all the time, beside which others wait. */
static volatile int over;

static void *calls(void *arg)
{
	sigset_t alarm = set_of(SIGALRM, 0);
	must(sigprocmask(SIG_BLOCK, &alarm, 0));
	for (int i = 0; !over; i++)
		if (i % 64)
			getppid();
		else
			stall(i / 64, 1);
	return 0;
}

static pthread_t busy[2];

static void begin_busy(void)
{
	over = 0;
	for (int i = 0; i < 2; i++)
		must(-pthread_create(&busy[i], 0, calls, 0));
}

static void end_busy(void)
{
	over = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(busy[i], 0);
}

/* Each wait times out after 40 ms. */
static long waits_in_vain(int how, int *pipes, int sem)
{
	struct timespec time = { 0, 40000000 }, untouched = { 47, 11 };
	struct timeval val = { 0, 40000 };
	struct pollfd poll_for = { pipes[0], POLLIN, 0 };
	struct epoll_event event = { EPOLLIN };
	struct sembuf take = { 0, -1, 0 };
	sigset_t some = set_of(SIGUSR2, 0);
	int word = 0, ret = -2;
	fd_set set;
	FD_ZERO(&set);
	FD_SET(pipes[0], &set);
	errno = 0;
	if (how == 0)
		ret = nanosleep(&time, &untouched);
	else if (how == 1)
		ret = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &untouched);
	else if (how == 2)
		ret = poll(&poll_for, 1, 40);
	else if (how == 3)
		ret = select(pipes[0] + 1, &set, 0, 0, &val);
	else if (how == 4)
		ret = ppoll(&poll_for, 1, &time, 0);
	else if (how == 5)
		ret = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time);
	else if (how == 6)
		ret = semtimedop(sem, &take, 1, &time);
	else if (how == 7)
		ret = sigtimedwait(&some, 0, &time);
	else {
		int fd = must(epoll_create1(EPOLL_CLOEXEC));
		must(epoll_ctl(fd, EPOLL_CTL_ADD, pipes[0], &event));
		ret = epoll_wait(fd, &event, 1, 40);
		close(fd);
	}
	if (untouched.tv_sec != 47 || untouched.tv_nsec != 11)
		return -99;
	return ret == -1 ? -errno : ret;
}

CASE(timeouts_beside_busy_threads)
{
	int pipes[2], sem = must(semget(IPC_PRIVATE, 1, 0600));
	sigset_t some = set_of(SIGUSR2, 0);
	must(pipe(pipes));
	must(sigprocmask(SIG_BLOCK, &some, 0));
	begin_busy();
	for (int how = 0; how < 9; how++) {
		int64_t start = now();
		long ret = waits_in_vain(how, pipes, sem);
		printf("%d: %ld, %s\n", how, ret, now() - start >= 40000000 ? "long enough" : "not");
	}
	end_busy();
	must(semctl(sem, 0, IPC_RMID));
}

/* A signal comes while they wait, and interrupts them, or does not. */
CASE(interrupted_beside_busy_threads)
{
	int pipes[2];
	char c;
	must(pipe(pipes));
	begin_busy();
	for (int i = 0; i < 16; i++) {
		struct itimerval once = { { 0, 0 }, { 0, 150000 } };
		struct timespec time = { 20, 0 }, rest = { 0, 0 };
		int ret;
		on(SIGALRM, count, i % 4 < 2 ? 0 : SA_RESTART);
		must(setitimer(ITIMER_REAL, &once, 0));
		errno = 0;
		if (i % 4 == 0)
			ret = read(pipes[0], &c, 1);
		else if (i % 4 == 1)
			ret = pause();
		else if (i % 4 == 2)
			ret = nanosleep(&time, &rest);
		else {
			struct pollfd poll_for = { pipes[0], POLLIN, 0 };
			ret = poll(&poll_for, 1, 20000);
		}
		printf("%d: %s, caught %d, %s\n", ret, strerrorname_np(errno), caught, rest.tv_sec == 19 ? "with a rest" : "without");
	}
	end_busy();
}
