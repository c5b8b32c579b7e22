/* Prints what a program can see of how it was started. */
#include "program_helpers.h"
#include <sched.h>

extern char **environ;

int main(int argc, char **argv)
{
	char line[4096], path[64], to[4096];
	for (int i = 0; i < argc; i++)
		printf("arg %s\n", argv[i]);
	for (char **e = environ; *e; e++)
		printf("env %s\n", *e);
	for (int fd = 0; fd < 256; fd++) {
		int flags = fcntl(fd, F_GETFD);
		if (flags == -1)
			continue;
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, to, sizeof to);
		printf("fd %d: %x %x %.*s\n", fd, flags, fcntl(fd, F_GETFL), to[0] == '/' ? (int)n : 5, to);
	}
	FILE *f = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, "Sig", 3) || !strncmp(line, "Cap", 3) || !strncmp(line, "NoNewPrivs", 10) ||
		    !strncmp(line, "Seccomp:", 8) || !strncmp(line, "Tracer", 6) || !strncmp(line, "Threads", 7) ||
		    !strncmp(line, "Uid", 3) || !strncmp(line, "Groups", 6) || !strncmp(line, "Umask", 5))
			if (strncmp(line, "SigCgt", 6) && strncmp(line, "SigQ", 4))
				fputs(line, stdout);
	for (int r = 0; r < RLIM_NLIMITS; r++) {
		struct rlimit limit;
		getrlimit(r, &limit);
		printf("limit %d: %lx %lx\n", r, (long)limit.rlim_cur, (long)limit.rlim_max);
	}
	printf("policy %d nice %d dumpable %d subreaper\n", sched_getscheduler(0), getpriority(PRIO_PROCESS, 0),
	       prctl(PR_GET_DUMPABLE));
	printf("group leader %d\n", getpgrp() == getpid() || getpgrp() == getppid());
	printf("cwd %s\n", getcwd(line, sizeof line));
	for (int s = 1; s < 65; s++) {
		struct sigaction a;
		if (sigaction(s, 0, &a) == 0 && (a.sa_handler != SIG_DFL || a.sa_flags))
			printf("signal %d: %s %x\n", s, a.sa_handler == SIG_IGN ? "ignored" : "other", a.sa_flags);
	}
	return 0;
}
