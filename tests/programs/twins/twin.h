/* Shared parts of all twins. A file holds many cases: `PROGRAM CASE` runs one. Further arguments
 * mean a later stage of it, started by exec. A case must print the same in every run: no
 * identifiers, addresses or times, only relations between them.
 *
 * TREE is the cold tree that it runs in, W an empty directory to write to. */
#pragma once
#include <stdlib.h>
#ifndef __GLIBC__
#define strerrorname_np strerror
#endif
#include "../program_helpers.h"
#include <sched.h>

struct twin {
	const char *name;
	void (*run)(char **more);
};
#define CASE(n)                                                                                            \
	static void n(char **more);                                                                        \
	static const struct twin twin_##n __attribute__((used, section("twins"), aligned(8))) = { #n, n }; \
	static void n(char **more)
extern const struct twin __start_twins[], __stop_twins[];

/* Reads `count` cold files, from number `first` (below 64) on. */
static inline void stall(int first, int count)
{
	static const char *tree;
	if (!tree)
		tree = getenv("TREE") ? getenv("TREE") : ".";
	for (int i = first; i < first + count; i++) {
		char name[4096], buf[6000];
		int n = i % 64, got = 0;
		snprintf(name, sizeof name, "%s/many/%02d", tree, n);
		int fd = must(open(name, O_RDONLY | O_CLOEXEC));
		for (ssize_t r; (r = read(fd, buf + got, sizeof buf - got)) != 0;) {
			if (r < 0 && errno == EINTR)
				continue;
			must(r);
			got += r;
		}
		close(fd);
		if (got != 5000 + n || buf[0] != 'a' + n % 26 || buf[got - 1] != buf[0]) {
			dprintf(2, "many/%02d: %d bytes, from %d to %d\n", n, got, buf[0], buf[got - 1]);
			_exit(98);
		}
	}
}

/* The path of `name` in the directory to write to. */
static inline char *in_work(const char *name)
{
	static char paths[8][4096];
	static int next;
	char *path = paths[next++ % 8];
	snprintf(path, 4096, "%s/%s", getenv("W"), name);
	return path;
}

static inline void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = must(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
	must(write(fd, text, strlen(text)));
	must(fchmod(fd, mode));
	must(close(fd));
}

static inline void print_status(const char *what, int status)
{
	if (WIFEXITED(status))
		printf("%s: exited %d\n", what, WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		printf("%s: killed by %d%s\n", what, WTERMSIG(status), WCOREDUMP(status) ? ", core" : "");
	else if (WIFSTOPPED(status))
		printf("%s: stopped by %d\n", what, WSTOPSIG(status));
	else
		printf("%s: status %x\n", what, status);
	fflush(stdout);
}

/* Waits for `pid`, whatever signal its end sends, and says how it ended. */
static inline void ended(const char *what, pid_t pid)
{
	int status = 0;
	pid_t got;
	do
		got = waitpid(pid, &status, __WALL);
	while (got == -1 && errno == EINTR);
	if (got != pid)
		printf("%s: waited for another\n", what);
	print_status(what, status);
}

/* Until a thread of this process waits in a call. */
static inline void until_it_sleeps(pid_t tid)
{
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
	for (int i = 0; i < 10000; i++) {
		FILE *f = fopen(path, "re");
		char *state = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : 0;
		if (f)
			fclose(f);
		if (state && state[2] == 'S')
			return;
		usleep(1000);
	}
}

static inline const char *yes(int b)
{
	return b ? "yes" : "no";
}
#define ask(question) printf("%s: %s\n", #question, yes(question))

/* A call made right here, by an instruction of its own. */
static inline __attribute__((always_inline)) long raw(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long ret;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
}

/* Reads a file by raw calls: nothing else is safe in a process that shares memory and thread
 * pointer with another. Returns the bytes that were read, or a negative errno. */
static inline long raw_read_file(const char *name)
{
	char buf[512];
	long total = 0, n, fd = raw(SYS_open, (long)name, O_RDONLY, 0, 0, 0, 0);
	if (fd < 0)
		return fd;
	while ((n = raw(SYS_read, fd, (long)buf, sizeof buf, 0, 0, 0)) > 0)
		total += n;
	raw(SYS_close, fd, 0, 0, 0, 0, 0);
	return n < 0 ? n : total;
}

static inline void on(int signal, void (*handler)(int), int flags)
{
	struct sigaction a = {};
	a.sa_handler = handler;
	a.sa_flags = flags;
	must(sigaction(signal, &a, 0));
}

static inline void on_info(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction a = {};
	a.sa_sigaction = handler;
	a.sa_flags = flags | SA_SIGINFO;
	must(sigaction(signal, &a, 0));
}

/* SIGALRM again and again, so that none is lost by coming too early; 0 ends it. */
static inline void every(int usec)
{
	struct itimerval t = { { 0, usec }, { 0, usec } };
	must(setitimer(ITIMER_REAL, &t, 0));
}

static inline sigset_t set_of(int a, int b)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, a);
	if (b)
		sigaddset(&s, b);
	return s;
}

/* The number behind `field` in a file like /proc/self/status, or -1. */
static inline long proc_number(const char *path, const char *field, int base)
{
	char line[512];
	long n = -1;
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, field, strlen(field)))
			n = strtoul(line + strlen(field), 0, base);
	if (f)
		fclose(f);
	return n;
}

/* The path of this program, wherever it is. */
static char own_path[4096];

static inline char *self(void)
{
	return own_path;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	readlink("/proc/self/exe", own_path, sizeof own_path - 1);
	for (const struct twin *t = __start_twins; argc > 1 && t < __stop_twins; t++)
		if (!strcmp(t->name, argv[1])) {
			if (!argv[2])
				stall(0, 4);
			t->run(argv + 2);
			if (!argv[2])
				stall(60, 4);
			fflush(stdout);
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 97;
}
