/* Signals to a parent about its children. */
#include "twin.h"

CASE(no_zombies)
{
	struct sigaction a = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT };
	must(sigaction(SIGCHLD, &a, 0));
	for (int i = 0; i < 5; i++)
		if (must(fork()) == 0) {
			stall(10 + i, 2);
			_exit(i);
		}
	show(wait(0));
	a = (struct sigaction){ .sa_handler = SIG_IGN };
	must(sigaction(SIGCHLD, &a, 0));
	pid_t child = must(fork());
	if (child == 0) {
		stall(20, 2);
		_exit(0);
	}
	show(waitpid(child, 0, 0));
	print_status("system", system("exit 4"));
}

static volatile int children, good, codes[8];
static volatile pid_t expected;

static void on_child(int s, siginfo_t *i, void *c)
{
	children++;
	good += i->si_pid == expected;
	codes[i->si_code & 7]++;
}

CASE(one_signal_for_each_child)
{
	sigset_t chld = set_of(SIGCHLD, 0), old;
	on_info(SIGCHLD, on_child, SA_RESTART);
	for (int i = 0; i < 15; i++) {
		sigprocmask(SIG_BLOCK, &chld, &old);
		expected = must(fork());
		if (expected == 0) {
			stall(10 + i, 1);
			if (i % 3 == 0)
				raise(SIGKILL);
			_exit(i);
		}
		stall(30 + i, 2);
		while (children == i)
			sigsuspend(&old);
		sigprocmask(SIG_SETMASK, &old, 0);
		must(waitpid(expected, 0, 0));
	}
	stall(50, 5);
	printf("%d signals, %d good, exited %d, killed %d\n", children, good, codes[CLD_EXITED], codes[CLD_KILLED]);
}

static void stop_and_go(int flags)
{
	int status, told = !(flags & SA_NOCLDSTOP);
	children = 0;
	memset((void *)codes, 0, sizeof codes);
	on_info(SIGCHLD, on_child, SA_RESTART | flags);
	expected = must(fork());
	if (expected == 0)
		for (;;)
			pause();
	kill(expected, SIGSTOP);
	must(waitpid(expected, &status, WUNTRACED));
	/* The signal may come a little later than the news. */
	while (told && !codes[CLD_STOPPED])
		usleep(1000);
	kill(expected, SIGCONT);
	must(waitpid(expected, &status, WCONTINUED));
	while (told && !codes[CLD_CONTINUED])
		usleep(1000);
	kill(expected, SIGTERM);
	ended("child", expected);
	stall(10, 2);
	printf("stopped %d, continued %d, killed %d\n", codes[CLD_STOPPED], codes[CLD_CONTINUED], codes[CLD_KILLED]);
}

CASE(signals_for_stops)
{
	stop_and_go(0);
	stop_and_go(SA_NOCLDSTOP);
}
