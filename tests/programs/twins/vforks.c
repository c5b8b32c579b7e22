/* vfork: the child borrows the memory, and the parent waits for it. */
#include "twin.h"

static volatile int seen;

CASE(vfork_shares_memory_and_comes_first)
{
	for (int i = 0; i < 10; i++) {
		seen = 0;
		pid_t child = vfork();
		if (child == 0) {
			seen = 42 + i;
			_exit(7);
		}
		printf("parent sees %d\n", seen);
		ended("child", child);
		stall(10 + i, 1);
	}
}

CASE(vfork_whose_exec_fails)
{
	static int why;
	char *argv[] = { "nothing", 0 };
	pid_t child = vfork();
	if (child == 0) {
		execv("odd/no such program", argv);
		why = errno;
		_exit(127);
	}
	ended("child", child);
	puts(strerrorname_np(why));
}

static void *vfork_thread(void *arg)
{
	char *argv[] = { "true", 0 };
	for (int i = 0; i < 10; i++) {
		pid_t child = vfork();
		if (child == 0) {
			execv("/bin/true", argv);
			_exit(1);
		}
		int status;
		if (waitpid(child, &status, 0) != child || status)
			puts("wrong");
	}
	return 0;
}

CASE(vfork_in_several_threads)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], 0, vfork_thread, 0);
	stall(10, 20);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
	puts("all came back");
}

CASE(vfork_child_that_opens_and_reads)
{
	static unsigned got;
	char buf[4096];
	for (int i = 0; i < 5; i++) {
		pid_t child = vfork();
		if (child == 0) {
			char name[] = "many/40";
			name[6] += i;
			int fd = open(name, O_RDONLY);
			got = read(fd, buf, sizeof buf) == sizeof buf ? sum(buf, sizeof buf) : 0;
			_exit(fd);
		}
		ended("its descriptor", child);
		printf("%u; closed here: %s\n", got, yes(fcntl(3, F_GETFD) == -1));
	}
}

CASE(vfork_child_killed)
{
	for (int i = 0; i < 3; i++) {
		pid_t child = vfork();
		if (child == 0) {
			raw(SYS_kill, raw(SYS_getpid, 0, 0, 0, 0, 0, 0), i ? SIGKILL : SIGSEGV, 0, 0, 0, 0);
			_exit(0);
		}
		ended("child", child);
		stall(50 + i, 1);
	}
}
