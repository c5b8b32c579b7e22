/* Waiting for children: which ones are found, the reported status, and the error without children.
 */
#include "twin.h"
#include <sys/times.h>

CASE(nobody_to_wait_for)
{
	siginfo_t info;
	show(wait(0));
	show(waitpid(-1, 0, WNOHANG));
	show(waitpid(-1, 0, __WALL | WNOHANG));
	show(waitpid(-1, 0, __WCLONE));
	show(waitpid(-1, 0, __WNOTHREAD));
	show(waitpid(0, 0, 0));
	show(waitpid(getpid(), 0, 0));
	show(waitpid(getppid(), 0, 0));
	show(waitpid(1, 0, 0));
	show(waitpid(-999999, 0, 0));
	show(waitpid(-1, 0, 0x40000));
	show(waitid(P_ALL, 0, &info, WEXITED | __WALL));
	show(waitid(P_ALL, 0, &info, WNOHANG));
	show(waitid(P_PID, getpid(), &info, WEXITED | WNOHANG));
	show(waitid(P_PIDFD, 0, &info, WEXITED));
	show(waitid(P_PIDFD, 55, &info, WEXITED));
	show(waitid(P_PGID, 0, &info, WEXITED));
	show(waitid(77, 0, &info, WEXITED));
	int fd = must(syscall(SYS_pidfd_open, getpid(), 0));
	show(waitid(P_PIDFD, fd, &info, WEXITED));
	stall(10, 10);
	show(waitpid(-1, 0, __WALL));
}

static void tell(const char *what, siginfo_t *i, pid_t child)
{
	printf("%s: signal %d, child %s, uid %d, code %d, status %d\n", what, i->si_signo, yes(i->si_pid == child), (int)i->si_uid, i->si_code, i->si_status);
}

CASE(looking_without_taking)
{
	siginfo_t info;
	pid_t child = must(fork());
	if (child == 0) {
		stall(10, 3);
		_exit(31);
	}
	for (int i = 0; i < 3; i++) {
		memset(&info, 0, sizeof info);
		show(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
		tell("looked", &info, child);
		stall(20 + i, 1);
	}
	show(waitid(P_ALL, 0, &info, WEXITED));
	show(waitid(P_ALL, 0, &info, WEXITED));
}

CASE(not_over_yet)
{
	int p[2], status = 0x1234;
	siginfo_t info;
	must(pipe(p));
	pid_t child = must(fork());
	if (child == 0) {
		char c;
		read(p[0], &c, 1);
		_exit(1);
	}
	show(waitpid(child, &status, WNOHANG));
	printf("%x\n", status);
	memset(&info, 0x55, sizeof info);
	show(waitid(P_ALL, 0, &info, WEXITED | WNOHANG));
	printf("%d %d\n", info.si_pid, info.si_signo);
	stall(10, 5);
	must(write(p[1], "x", 1));
	ended("child", child);
}

CASE(stopped_and_continued)
{
	int status;
	siginfo_t info;
	for (int round = 0; round < 3; round++) {
		pid_t child = must(fork());
		if (child == 0)
			for (;;)
				stall(round * 20, 20);
		kill(child, round == 2 ? SIGTSTP : SIGSTOP);
		ask(waitpid(child, &status, WUNTRACED) == child);
		print_status("child", status);
		kill(child, SIGCONT);
		ask(waitpid(child, &status, WCONTINUED) == child);
		printf("continued %d\n", WIFCONTINUED(status));
		kill(child, SIGSTOP);
		must(waitid(P_PID, child, &info, WSTOPPED | WNOWAIT));
		tell("stopped", &info, child);
		must(waitid(P_PID, child, &info, WSTOPPED));
		kill(child, SIGCONT);
		must(waitid(P_PID, child, &info, WCONTINUED));
		tell("continued", &info, child);
		kill(child, SIGKILL);
		must(waitid(P_PID, child, &info, WEXITED));
		tell("killed", &info, child);
	}
}

CASE(by_group)
{
	int go[2], status;
	char c;
	must(pipe(go));
	pid_t a = must(fork());
	if (a == 0) {
		read(go[0], &c, 1);
		_exit(1);
	}
	must(setpgid(a, a));
	pid_t b = must(fork());
	if (b == 0) {
		read(go[0], &c, 1);
		_exit(2);
	}
	must(setpgid(b, a));
	pid_t mine = must(fork());
	if (mine == 0) {
		stall(10, 4);
		_exit(3);
	}
	ask(waitpid(0, &status, 0) == mine);
	print_status("mine", status);
	show(waitpid(0, &status, 0));
	show(waitpid(-a, &status, WNOHANG));
	must(write(go[1], "xx", 2));
	int sum = 0;
	for (int i = 0; i < 2; i++) {
		pid_t got = waitpid(-a, &status, 0);
		sum += got == a ? WEXITSTATUS(status) : got == b ? 10 * WEXITSTATUS(status) : 1000;
	}
	printf("%d\n", sum);
	show(waitpid(-a, &status, 0));
}

CASE(in_another_order)
{
	pid_t pids[10];
	for (int i = 0; i < 10; i++)
		if ((pids[i] = must(fork())) == 0) {
			stall(20 + i, 1);
			_exit(i);
		}
	for (int i = 9; i >= 0; i -= 2)
		ended("odd", pids[i]);
	stall(40, 3);
	for (int i = 0; i < 10; i += 2)
		ended("even", pids[i]);
}

CASE(by_descriptor)
{
	siginfo_t info;
	int p[2];
	char c;
	must(pipe(p));
	pid_t child = must(fork());
	if (child == 0) {
		read(p[0], &c, 1);
		_exit(17);
	}
	int fd = must(syscall(SYS_pidfd_open, child, 0));
	struct pollfd f = { fd, POLLIN, 0 };
	show(poll(&f, 1, 0));
	show(waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG));
	show(syscall(SYS_pidfd_getfd, fd, p[0], 0) >= 0);
	write(p[1], "x", 1);
	show(poll(&f, 1, -1));
	show(syscall(SYS_pidfd_send_signal, fd, SIGTERM, 0, 0));
	show(waitid(P_PIDFD, fd, &info, WEXITED));
	tell("child", &info, child);
	show(fcntl(fd, F_SETFL, O_NONBLOCK));
	show(waitid(P_PIDFD, fd, &info, WEXITED));
}

CASE(what_children_used)
{
	struct rusage u;
	struct tms t;
	must(getrusage(RUSAGE_CHILDREN, &u));
	printf("before: %ld s, %ld KiB, faults %ld, blocks %ld\n", (long)u.ru_utime.tv_sec, u.ru_maxrss, u.ru_majflt + u.ru_minflt, u.ru_inblock);
	times(&t);
	printf("ticks %ld %ld\n", (long)t.tms_cutime, (long)t.tms_cstime);
	stall(10, 20);
	must(getrusage(RUSAGE_CHILDREN, &u));
	printf("still: %ld KiB, faults %ld, switches %ld\n", u.ru_maxrss, u.ru_majflt + u.ru_minflt, u.ru_nvcsw + u.ru_nivcsw);
	pid_t child = must(fork());
	if (child == 0) {
		for (struct tms now = { 0 }; now.tms_utime + now.tms_stime < 3; times(&now))
			;
		_exit(0);
	}
	int status;
	must(wait4(child, &status, 0, &u));
	ask(u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec >= 20000);
	times(&t);
	ask(t.tms_cutime + t.tms_cstime >= 2);
}

static volatile int alarms;
static void count_alarm(int s) { alarms++; }

CASE(interrupted_waits)
{
	for (int restart = 0; restart < 2; restart++) {
		int p[2], interrupted = 0, status;
		char c;
		must(pipe(p));
		pid_t child = must(fork());
		if (child == 0) {
			read(p[0], &c, 1);
			stall(10, 2);
			_exit(8);
		}
		alarms = 0;
		on(SIGALRM, count_alarm, restart ? SA_RESTART : 0);
		every(5000);
		if (!restart) {
			while (waitpid(child, &status, 0) == -1 && interrupted < 3)
				interrupted += errno == EINTR;
			printf("interrupted %d\n", interrupted);
		} else {
			while (alarms < 3)
				pause();
		}
		write(p[1], "x", 1);
		ask(!restart || waitpid(child, &status, 0) == child);
		every(0);
		if (!restart)
			must(waitpid(child, &status, 0));
		print_status("child", status);
	}
}

static pid_t of_thread;

static void *makes_child(void *arg)
{
	of_thread = must(fork());
	if (of_thread == 0) {
		stall(10, 2);
		_exit(6);
	}
	if (arg)
		ended("by its thread", of_thread);
	return 0;
}

CASE(children_of_threads)
{
	pthread_t t;
	int status;
	pthread_create(&t, 0, makes_child, (void *)1);
	pthread_join(t, 0);
	pthread_create(&t, 0, makes_child, 0);
	pthread_join(t, 0);
	ended("by another", of_thread);
	show(waitpid(-1, &status, __WNOTHREAD));
}

static volatile int over;

static void *waits_for_storage(void *go)
{
	stall(4, 50);
	over = 1;
	if (go)
		must(write(*(int *)go, "x", 1));
	return 0;
}

/* Whatever kind of child it asks for, none but its own is found. */
CASE(all_kinds_beside_a_thread)
{
	pthread_t t;
	long found = 0;
	must(-pthread_create(&t, 0, waits_for_storage, 0));
	while (!over) {
		siginfo_t info;
		errno = 0;
		found += waitpid(-1, 0, __WALL | WNOHANG) != -1 || errno != ECHILD;
		found += waitpid(0, 0, __WCLONE | WNOHANG) != -1 || errno != ECHILD;
		found += waitid(P_ALL, 0, &info, WEXITED | __WALL | WNOHANG | WNOWAIT) != -1 || errno != ECHILD;
	}
	pthread_join(t, 0);
	printf("found %ld\n", found);
}

CASE(all_kinds_for_long)
{
	pthread_t t;
	int go[2], status = 0;
	must(pipe(go));
	pid_t child = must(fork());
	if (child == 0) {
		char c;
		must(read(go[0], &c, 1));
		_exit(7);
	}
	must(-pthread_create(&t, 0, waits_for_storage, &go[1]));
	pid_t got = waitpid(-1, &status, __WALL);
	ask(got == child);
	print_status("child", status);
	pthread_join(t, 0);
}
