/* Ends of a child, as its parent sees them. */
#include "twin.h"

CASE(exit_statuses)
{
	int given[] = { 0, 1, 127, 128, 200, 255, 256 + 3, -1 };
	for (int i = 0; i < 8; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(10 + i, 1);
			if (i % 2)
				raw(SYS_exit, given[i], 0, 0, 0, 0, 0);
			_exit(given[i]);
		}
		ended("child", child);
	}
}

/* Each signal's default action, seen by the parent. */
CASE(every_signal)
{
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	for (int s = 1; s <= 64; s++) {
		pid_t child = must(fork());
		int status;
		if (child == 0) {
			if (s % 8 == 0)
				stall(s % 60, 1);
			raw(SYS_kill, getpid(), s, 0, 0, 0, 0);
			_exit(50);
		}
		must(waitpid(child, &status, WUNTRACED));
		printf("signal %d ", s);
		print_status("", status);
		if (WIFSTOPPED(status)) {
			kill(child, SIGKILL);
			ended("then", child);
		}
	}
}

CASE(a_core)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	must(chdir(getenv("W")));
	if (setrlimit(RLIMIT_CORE, &all))
		puts("no permission");
	int signals[] = { SIGABRT, SIGSEGV, SIGQUIT, SIGSYS, SIGTERM };
	for (int i = 0; i < 5; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(10, 2);
			kill(getpid(), signals[i]);
		}
		ended("child", child);
	}
	system("rm -f core*");
}
