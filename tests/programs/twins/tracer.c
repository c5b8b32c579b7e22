/* Programs that trace others: a debugger's first steps. */
#include "twin.h"
#include <dirent.h>
#include <elf.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#define P(request, pid, a, b) ptrace(request, pid, (void *)(long)(a), (void *)(long)(b))

static pid_t traced(void (*body)(void))
{
	pid_t child = must(fork());
	if (child == 0) {
		must(P(PTRACE_TRACEME, 0, 0, 0));
		raise(SIGSTOP);
		body();
		_exit(3);
	}
	int status;
	must(waitpid(child, &status, 0));
	print_status("first", status);
	return child;
}

static void some_calls(void)
{
	for (int i = 0; i < 5; i++) {
		raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
		raw(SYS_open, (long)"many/20", O_RDONLY, 0, 0, 0, 0);
	}
	raw(SYS_exit_group, 3, 0, 0, 0, 0, 0);
}

/* Each call of the child, by number. */
CASE(calls_of_a_child)
{
	int status, calls = 0;
	pid_t child = traced(some_calls);
	must(P(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
	for (;;) {
		must(P(PTRACE_SYSCALL, child, 0, 0));
		must(waitpid(child, &status, 0));
		if (!WIFSTOPPED(status))
			break;
		struct user_regs_struct r;
		must(P(PTRACE_GETREGS, child, 0, &r));
		if (calls++ < 30)
			printf("%x %ld\n", WSTOPSIG(status), (long)r.orig_rax);
		if (calls % 8 == 0)
			stall(30 + calls % 30, 1);
	}
	print_status("child", status);
	printf("%d stops\n", calls);
}

static void becomes_another(void)
{
	execl("/bin/sh", "sh", "-c", "exit 6", (char *)0);
}

/* A program that execs under a tracer: its own stops, and no others. */
CASE(exec_of_a_child)
{
	for (int option = 0; option < 2; option++) {
		int status, stops = 0;
		pid_t child = traced(becomes_another);
		must(P(PTRACE_SETOPTIONS, child, 0, (option ? PTRACE_O_TRACEEXEC : 0) | PTRACE_O_EXITKILL));
		for (int signal = 0;; stops++) {
			must(P(PTRACE_CONT, child, 0, signal));
			must(waitpid(child, &status, 0));
			if (!WIFSTOPPED(status))
				break;
			signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
			printf("stop %x\n", status >> 8);
		}
		print_status("child", status);
		printf("%d stops\n", stops);
		stall(20, 3);
	}
}

/* Debuggers start programs so, some by vfork: the tracer waits until the exec. */
CASE(asked_for_before_an_exec)
{
	for (int i = 0; i < 6; i++) {
		int status;
		pid_t child = must(i % 2 ? vfork() : fork());
		if (child == 0) {
			P(PTRACE_TRACEME, 0, 0, 0);
			execl("/bin/sh", "sh", "-c", "read -r line < many/30; exit 6", (char *)0);
			_exit(127);
		}
		must(waitpid(child, &status, 0));
		print_status("first", status);
		must(P(PTRACE_CONT, child, 0, 0));
		must(waitpid(child, &status, 0));
		print_status("then", status);
		stall(20 + i, 1);
	}
}

static void forks_and_execs(void)
{
	pid_t child = must(fork());
	if (child == 0)
		execl("/bin/true", "true", (char *)0);
	ended("grandchild", child);
}

CASE(children_of_a_child)
{
	int status, forks = 0, execs = 0, exits = 0, ends = 0;
	pid_t child = traced(forks_and_execs);
	must(P(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT));
	must(P(PTRACE_CONT, child, 0, 0));
	while (ends < 2) {
		pid_t pid = must(waitpid(-1, &status, __WALL));
		int event = status >> 16, signal = 0;
		if (!WIFSTOPPED(status)) {
			ends++;
			continue;
		}
		if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE)
			forks++;
		else if (event == PTRACE_EVENT_EXEC)
			execs++;
		else if (event == PTRACE_EVENT_EXIT)
			exits++;
		else if (WSTOPSIG(status) != SIGSTOP)
			signal = WSTOPSIG(status);
		must(P(PTRACE_CONT, pid, 0, signal));
	}
	printf("forks %d, execs %d, exits %d\n", forks, execs, exits);
	stall(20, 5);
}

static void works(void)
{
	for (int i = 0;; i++)
		stall(i % 64, 1);
}

CASE(attached_while_it_reads)
{
	for (int i = 0; i < 5; i++) {
		int status;
		pid_t child = must(fork());
		if (child == 0)
			works();
		usleep(3000 * i);
		if (i % 2) {
			must(P(PTRACE_SEIZE, child, 0, 0));
			must(P(PTRACE_INTERRUPT, child, 0, 0));
		} else
			must(P(PTRACE_ATTACH, child, 0, 0));
		must(waitpid(child, &status, __WALL));
		printf("%x\n", status >> 8);
		struct user_regs_struct r;
		show(P(PTRACE_GETREGS, child, 0, &r));
		errno = 0;
		P(PTRACE_PEEKDATA, child, r.rsp, 0);
		printf("%d\n", errno);
		show(P(PTRACE_DETACH, child, 0, 0));
		stall(30, 2);
		kill(child, SIGKILL);
		ended("child", child);
	}
}

static int gate[2];

/* Reads from one place until it has to wait, and then makes calls from places that made none. */
static void waits_and_calls(void)
{
	char byte;
	for (int i = 0; i < 20; i++)
		raw(SYS_read, gate[0], (long)&byte, 1, 0, 0, 0);
	some_calls();
}

static pid_t waiting_child(void)
{
	must(pipe(gate));
	must(write(gate[1], "1234567890123456789", 19));
	pid_t child = must(fork());
	if (child == 0)
		waits_and_calls();
	char path[64], line[512] = "";
	snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
	for (int i = 0; i < 5000 && !strstr(line, ") S "); i++) {
		FILE *f = fopen(path, "re");
		if (!f || !fgets(line, sizeof line, f))
			line[0] = 0;
		if (f)
			fclose(f);
		usleep(1000);
	}
	return child;
}

static void print_stop(pid_t child, const char *what)
{
	int status;
	struct user_regs_struct r;
	must(waitpid(child, &status, __WALL));
	must(P(PTRACE_GETREGS, child, 0, &r));
	printf("%s: %x, call %ld\n", what, status >> 8, (long)r.orig_rax);
}

/* A crash handler, a sandbox, a test runner: the child stops as often as it does natively. */
CASE(calls_of_an_attached_child)
{
	for (int seizes = 0; seizes < 2; seizes++) {
		int status, calls = 0;
		pid_t child = waiting_child();
		stall(20 + 5 * seizes, 3);
		if (seizes) {
			must(P(PTRACE_SEIZE, child, 0, PTRACE_O_TRACESYSGOOD));
			must(P(PTRACE_INTERRUPT, child, 0, 0));
		} else
			must(P(PTRACE_ATTACH, child, 0, 0));
		print_stop(child, "attached");
		must(P(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
		must(write(gate[1], "x", 1));
		for (;;) {
			must(P(PTRACE_SYSCALL, child, 0, 0));
			must(waitpid(child, &status, 0));
			if (!WIFSTOPPED(status))
				break;
			struct user_regs_struct r;
			must(P(PTRACE_GETREGS, child, 0, &r));
			if (calls++ < 40)
				printf("%x %ld\n", WSTOPSIG(status), (long)r.orig_rax);
		}
		print_status("child", status);
		printf("%d stops\n", calls);
		close(gate[0]);
		close(gate[1]);
	}
}

static void forks_after_a_while(void)
{
	char byte;
	raw(SYS_read, gate[0], (long)&byte, 1, 0, 0, 0);
	stall(40, 2);
	forks_and_execs();
	_exit(5);
}

/* A tracer that follows children of the one that it has attached to. */
CASE(children_of_an_attached_child)
{
	int status, forks = 0, execs = 0, ends = 0, others = 0;
	must(pipe(gate));
	pid_t child = must(fork());
	if (child == 0)
		forks_after_a_while();
	usleep(10000);
	must(P(PTRACE_SEIZE, child, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC));
	must(write(gate[1], "x", 1));
	while (ends < 2) {
		pid_t pid = must(waitpid(-1, &status, __WALL));
		int event = status >> 16, signal = 0;
		if (!WIFSTOPPED(status)) {
			ends++;
			continue;
		}
		if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE)
			forks++;
		else if (event == PTRACE_EVENT_EXEC)
			execs++;
		else if (!event) {
			others += WSTOPSIG(status) != SIGCHLD;
			signal = WSTOPSIG(status);
		}
		must(P(PTRACE_CONT, pid, 0, signal));
	}
	printf("forks %d, execs %d, other signals %d\n", forks, execs, others);
}

static void *reads_and_calls(void *unused)
{
	char byte;
	(void)unused;
	raw(SYS_read, gate[0], (long)&byte, 1, 0, 0, 0);
	for (int i = 0; i < 20; i++)
		raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
	stall(50, 2);
	return 0;
}

static void has_threads(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, reads_and_calls, 0);
	reads_and_calls(0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	_exit(6);
}

/* All threads of a child, the last one first: none gets a signal that it does not get natively. */
CASE(threads_of_an_attached_child)
{
	int status, signals = 0, ends = 0;
	must(pipe(gate));
	pid_t child = must(fork()), threads[8];
	if (child == 0)
		has_threads();
	usleep(50000);
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task", (int)child);
	DIR *list = opendir(path);
	int count = 0;
	for (struct dirent *entry; (entry = readdir(list)) && count < 8;)
		if (entry->d_name[0] != '.')
			threads[count++] = atoi(entry->d_name);
	closedir(list);
	printf("%d threads\n", count);
	for (int i = count; i-- > 0;)
		must(P(PTRACE_SEIZE, threads[i], 0, PTRACE_O_EXITKILL));
	must(write(gate[1], "1234", 4));
	while (ends < count) {
		pid_t pid = must(waitpid(-1, &status, __WALL));
		if (!WIFSTOPPED(status)) {
			ends++;
			continue;
		}
		signals++;
		must(P(PTRACE_CONT, pid, 0, status >> 16 ? 0 : WSTOPSIG(status)));
	}
	printf("%d signals\n", signals);
}

static void sleeps(void)
{
	struct timespec t = { 0, 400000000 };
	int result = nanosleep(&t, 0);
	_exit(result ? 1 : 2);
}

/* A wait that is not over with the tracer's stop. */
CASE(attached_while_it_sleeps)
{
	for (int seizes = 0; seizes < 2; seizes++) {
		int status;
		pid_t child = must(fork());
		if (child == 0)
			sleeps();
		usleep(100000);
		if (seizes) {
			must(P(PTRACE_SEIZE, child, 0, 0));
			must(P(PTRACE_INTERRUPT, child, 0, 0));
		} else
			must(P(PTRACE_ATTACH, child, 0, 0));
		must(waitpid(child, &status, __WALL));
		printf("%x\n", status >> 8);
		must(P(PTRACE_DETACH, child, 0, 0));
		ended("child", child);
		stall(30, 2);
	}
}

static volatile int counter;

static void counts(void)
{
	for (int i = 0; i < 10; i++)
		counter++;
	__asm__ volatile("int3");
	counter++;
	raise(SIGUSR1);
	_exit(counter);
}

CASE(stops_memory_and_signals)
{
	int status;
	pid_t child = traced(counts);
	must(P(PTRACE_POKEDATA, child, &counter, 50));
	must(P(PTRACE_CONT, child, 0, 0));
	must(waitpid(child, &status, 0));
	print_status("breakpoint", status);
	siginfo_t info;
	must(P(PTRACE_GETSIGINFO, child, 0, &info));
	printf("code %x, counter %d\n", info.si_code, (int)P(PTRACE_PEEKDATA, child, &counter, 0));
	stall(20, 5);
	must(P(PTRACE_CONT, child, 0, 0));
	must(waitpid(child, &status, 0));
	print_status("signal", status);
	must(P(PTRACE_CONT, child, 0, 0));
	ended("child", child);
	child = traced(counts);
	int steps = 0;
	do {
		must(P(PTRACE_SINGLESTEP, child, 0, 0));
		must(waitpid(child, &status, 0));
	} while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP && ++steps < 20);
	printf("%d steps\n", steps);
	kill(child, SIGKILL);
	ended("child", child);
}

CASE(what_is_refused)
{
	show(P(PTRACE_ATTACH, getpid(), 0, 0));
	show(P(PTRACE_ATTACH, 999999, 0, 0));
	show(P(PTRACE_CONT, getppid(), 0, 0));
	pid_t child = must(fork());
	if (child == 0) {
		show(P(PTRACE_TRACEME, 0, 0, 0));
		show(P(PTRACE_TRACEME, 0, 0, 0));
		_exit(0);
	}
	ended("child", child);
	/* A child may look at its parent's memory. */
	static int value = 4711;
	int got = 0;
	child = must(fork());
	if (child == 0) {
		struct iovec here = { &got, 4 }, there = { &value, 4 };
		stall(10, 3);
		show(process_vm_readv(getppid(), &here, 1, &there, 1, 0));
		printf("%d\n", got);
		_exit(0);
	}
	ended("child", child);
}

/* A program that is traced from its start, by strace, a common debugger. */
CASE(under_strace)
{
	if (more[0]) {
		stall(10, 10);
		printf("traced: %s\n", yes(proc_number("/proc/self/status", "TracerPid:", 10) != 0));
		return;
	}
	pid_t child = must(fork());
	if (child == 0) {
		execlp("strace", "strace", "-f", "-qq", "-e", "trace=getpgrp", "-o", "/dev/null", self(), "under_strace", "1", (char *)0);
		_exit(127);
	}
	ended("child", child);
}
