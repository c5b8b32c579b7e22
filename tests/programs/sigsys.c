/* SIGSYS belongs to the program, too. */
#include "program_helpers.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

static volatile sig_atomic_t caught, code, call;

static void on_sys(int s, siginfo_t *i, void *c)
{
	char buf[16];
	int fd = open("many/50", O_RDONLY);
	if (fd >= 0 && read(fd, buf, 16) == 16)
		caught++;
	if (fd >= 0)
		close(fd);
	code = i->si_code;
	call = i->si_syscall;
}

static void install(void)
{
	struct sigaction a = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO }, old;
	sigaddset(&a.sa_mask, SIGSYS);
	sigaddset(&a.sa_mask, SIGUSR2);
	must(sigaction(SIGSYS, &a, &old));
	printf("before: %d %x\n", old.sa_handler == SIG_DFL, old.sa_flags);
	must(sigaction(SIGSYS, 0, &old));
	printf("now: %d %x, masks sys %d usr2 %d\n", old.sa_sigaction == on_sys, old.sa_flags & ~0x04000000,
	       sigismember(&old.sa_mask, SIGSYS), sigismember(&old.sa_mask, SIGUSR2));
}

static void blocked(const char *when)
{
	sigset_t now;
	must(sigprocmask(SIG_BLOCK, 0, &now));
	printf("%s: sys %d usr1 %d\n", when, sigismember(&now, SIGSYS), sigismember(&now, SIGUSR1));
	fflush(stdout);
}

static void masks(void)
{
	sigset_t sys, both, old;
	sigemptyset(&sys);
	sigaddset(&sys, SIGSYS);
	both = sys;
	sigaddset(&both, SIGUSR1);
	blocked("at first");
	must(sigprocmask(SIG_BLOCK, &sys, &old));
	blocked("blocked");
	stall_on(0, 5);
	must(sigprocmask(SIG_BLOCK, &both, 0));
	must(sigprocmask(SIG_UNBLOCK, &sys, &old));
	printf("old: sys %d usr1 %d\n", sigismember(&old, SIGSYS), sigismember(&old, SIGUSR1));
	blocked("unblocked");
	must(sigprocmask(SIG_SETMASK, &both, 0));
	blocked("set");
	fflush(stdout);
	if (fork() == 0) {
		blocked("child");
		_exit(0);
	}
	wait(0);
	struct sigaction a = { .sa_handler = SIG_IGN }, got;
	sigfillset(&a.sa_mask);
	must(sigaction(SIGUSR2, &a, 0));
	must(sigaction(SIGUSR2, 0, &got));
	printf("sa_mask: sys %d kill %d\n", sigismember(&got.sa_mask, SIGSYS), sigismember(&got.sa_mask, SIGKILL));
	must(sigaction(SIGWINCH, 0, &got));
	printf("another's: sys %d\n", sigismember(&got.sa_mask, SIGSYS));
}

static void sent(void)
{
	install();
	stall_on(0, 5);
	must(kill(getpid(), SIGSYS));
	printf("caught %d, by kill %d\n", caught, code == SI_USER);
	must(raise(SIGSYS));
	printf("caught %d, by tkill %d\n", caught, code == SI_TKILL);
	sigset_t sys;
	sigemptyset(&sys);
	sigaddset(&sys, SIGSYS);
	must(sigprocmask(SIG_BLOCK, &sys, 0));
	must(kill(getpid(), SIGSYS));
	printf("blocked: caught %d\n", caught);
	sigset_t pending;
	sigpending(&pending);
	printf("pending %d\n", sigismember(&pending, SIGSYS));
	must(sigprocmask(SIG_UNBLOCK, &sys, 0));
	printf("unblocked: caught %d\n", caught);
	must(sigprocmask(SIG_BLOCK, &sys, 0));
	must(kill(getpid(), SIGSYS));
}

static void filter(unsigned action, int number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, code };
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

/* A filter that allows only write and exit_group: not even the return from a signal. */
static void strict(int by_prctl)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { 5, code };
	stall_on(0, 5);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (by_prctl)
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
	else
		must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
	must(write(1, "confined\n", 9));
	_exit(5);
}

int main(int argc, char **argv)
{
	const char *what = argv[1];
	if (!strcmp(what, "masks"))
		masks();
	else if (!strcmp(what, "sent"))
		sent();
	else if (!strcmp(what, "killed")) {
		stall_on(0, 5);
		must(kill(getpid(), SIGSYS));
	} else if (!strcmp(what, "ignored")) {
		signal(SIGSYS, SIG_IGN);
		stall_on(0, 5);
		must(kill(getpid(), SIGSYS));
		fflush(stdout);
		if (fork() == 0)
			execlp("sh", "sh", "-c", "kill -SYS $$; echo ignored here, too", NULL);
		wait(0);
	} else if (!strcmp(what, "trap")) {
		install();
		stall_on(0, 5);
		filter(SECCOMP_RET_TRAP, SYS_getpgrp);
		getpgrp();
		printf("caught %d, code %d, call %d\n", caught, code, call);
		stall_on(5, 5);
	} else if (!strcmp(what, "errno")) {
		stall_on(0, 5);
		filter(SECCOMP_RET_ERRNO | ENOTUNIQ, SYS_getpgrp);
		show(syscall(SYS_getpgrp));
		filter(SECCOMP_RET_ERRNO | ENOTUNIQ, SYS_openat2);
		filter(SECCOMP_RET_ERRNO | ENOTUNIQ, SYS_preadv2);
		stall_on(5, 5);
	} else if (!strcmp(what, "strict"))
		strict(0);
	else if (!strcmp(what, "strict by prctl"))
		strict(1);
	printf("end\n");
	return 0;
}
