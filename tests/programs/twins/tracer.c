/* Programs that trace others: a debugger's first steps. */
#include "twin.h"
#include <elf.h>
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
