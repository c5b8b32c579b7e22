/* clone3, whose arguments lie in memory. */
#include "twin.h"
#include <linux/sched.h>

static char stack[256 << 10] __attribute__((aligned(64)));
#define TOP (stack + sizeof stack)
static volatile int shared;

/* clone3 whose child calls `body` on the stack given in `args`; it never returns. */
static long clone3_call(struct clone_args *args, size_t size, void (*body)(void))
{
	long ret;
	register void (*f)(void) __asm__("r12") = body;
	__asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tcall *%%r12\n\thlt\n1:"
			 : "=a"(ret) : "a"((long)SYS_clone3), "D"(args), "S"(size), "r"(f) : "rcx", "r11", "memory", "rdx", "r8", "r9", "r10");
	return ret;
}

static long clone3_fork(struct clone_args *args)
{
	return syscall(SYS_clone3, args, sizeof *args);
}

static void handler(int s) {}

CASE(clone3_with_a_pidfd)
{
	int fd = -1;
	siginfo_t info = { 0 };
	struct clone_args args = { .flags = CLONE_PIDFD, .pidfd = (long)&fd, .exit_signal = SIGCHLD };
	pid_t child = must(clone3_fork(&args));
	if (child == 0) {
		stall(10, 3);
		_exit(21);
	}
	struct pollfd poll_fd = { fd, POLLIN, 0 };
	printf("descriptor %d\n", fd);
	show(poll(&poll_fd, 1, -1));
	show(waitid(P_PIDFD, fd, &info, WEXITED));
	printf("%s, code %d, status %d\n", yes(info.si_pid == child), info.si_code, info.si_status);
	show(waitid(P_PIDFD, fd, &info, WEXITED));
	show(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0));
}

CASE(clone3_with_chosen_numbers)
{
	pid_t outer = must(fork());
	if (outer == 0) {
		pid_t one = 1, many[] = { 4242 };
		must(unshare(CLONE_NEWPID));
		struct clone_args args = { .set_tid = (long)&one, .set_tid_size = 1, .exit_signal = SIGCHLD };
		pid_t init = must(clone3_fork(&args));
		if (init == 0) {
			printf("init is %d, its parent %d\n", getpid(), getppid());
			args.set_tid = (long)many;
			pid_t child = must(clone3_fork(&args));
			if (child == 0) {
				stall(10, 3);
				printf("child is %d, its parent %d\n", getpid(), getppid());
				_exit(1);
			}
			siginfo_t info;
			must(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
			printf("made %d\n", child);
			show(clone3_fork(&args));
			ended("child", child);
			_exit(2);
		}
		ended("init", init);
		_exit(3);
	}
	ended("outer", outer);
}

CASE(clone3_that_clears_handlers)
{
	struct sigaction a;
	on(SIGUSR1, handler, 0);
	on(SIGUSR2, SIG_IGN, 0);
	struct clone_args args = { .flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD };
	pid_t child = must(clone3_fork(&args));
	if (child == 0) {
		stall(10, 3);
		sigaction(SIGUSR1, 0, &a);
		ask(a.sa_handler == SIG_DFL);
		sigaction(SIGUSR2, 0, &a);
		ask(a.sa_handler == SIG_IGN);
		sigaction(SIGSYS, 0, &a);
		ask(a.sa_handler == SIG_DFL);
		_exit(0);
	}
	ended("child", child);
	sigaction(SIGUSR1, 0, &a);
	ask(a.sa_handler == handler);
}

static void on_given_stack(void)
{
	char here;
	shared = &here > stack && &here < TOP;
	raw_read_file("many/25");
	raw(SYS_exit, 9, 0, 0, 0, 0, 0);
}

CASE(clone3_on_a_stack)
{
	unsigned flags[] = { CLONE_VM | CLONE_VFORK, CLONE_VM, CLONE_VM | CLONE_FS | CLONE_FILES };
	for (int i = 0; i < 3; i++) {
		shared = 0;
		struct clone_args args = { .flags = flags[i], .stack = (long)stack, .stack_size = sizeof stack, .exit_signal = SIGCHLD };
		pid_t child = must(clone3_call(&args, sizeof args, on_given_stack));
		ended("child", child);
		printf("on its stack: %d\n", shared);
	}
}

CASE(clone3_refused)
{
	char large[4096] = { 0 };
	struct clone_args args = { .exit_signal = SIGCHLD };
	show(syscall(SYS_clone3, &args, 8));
	show(syscall(SYS_clone3, 16, sizeof args));
	show(syscall(SYS_clone3, &args, 5000));
	large[200] = 1;
	show(syscall(SYS_clone3, large, sizeof large));
	args.exit_signal = 900;
	show(clone3_fork(&args));
	args = (struct clone_args){ .flags = CLONE_SIGHAND };
	show(clone3_fork(&args));
	args = (struct clone_args){ .flags = CLONE_THREAD | CLONE_SIGHAND };
	show(clone3_fork(&args));
	args = (struct clone_args){ .stack_size = 4096 };
	show(clone3_fork(&args));
	args = (struct clone_args){ .flags = CLONE_PARENT_SETTID | CLONE_NEWNS | CLONE_FS };
	show(clone3_fork(&args));
	args = (struct clone_args){ .flags = 1ul << 60 };
	show(clone3_fork(&args));
	show(syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0));
	show(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS, 0, 0, 0, 0));
	show(syscall(SYS_unshare, 1));
	show(wait(0));
}
