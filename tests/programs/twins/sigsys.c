/* SIGSYS and seccomp in the hands of the program. */
#include "twin.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <ucontext.h>

static volatile sig_atomic_t caught, code, number, arch;

static void on_sys(int s, siginfo_t *i, void *context)
{
	caught++;
	code = i->si_code;
	number = i->si_code == 1 ? i->si_syscall : -1;
	arch = i->si_code == 1 && i->si_arch == AUDIT_ARCH_X86_64;
	if (i->si_code == 1)
		((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 1234;
}

/* `action` for call `nr`, everything else is allowed. */
static int filter_with(unsigned flags, unsigned action, int nr)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, f };
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static int filter(unsigned action, int nr)
{
	return filter_with(0, action, nr);
}

CASE(trapped_calls)
{
	on_info(SIGSYS, on_sys, 0);
	must(filter(SECCOMP_RET_TRAP | 5, SYS_getpgrp));
	for (int i = 0; i < 20; i++) {
		long ret = syscall(SYS_getpgrp);
		printf("%ld caught %d code %d call %s arch %d\n", ret, caught, code, yes(number == SYS_getpgrp), arch);
		stall(10 + i, 1);
	}
}

CASE(trapped_reads)
{
	on_info(SIGSYS, on_sys, SA_RESTART);
	int fd = must(open("many/30", O_RDONLY));
	char c = 0;
	must(filter(SECCOMP_RET_TRAP, SYS_pread64));
	for (int i = 0; i < 10; i++)
		printf("%ld %d\n", (long)pread(fd, &c, 1, i), c);
	stall(20, 5);
	printf("caught %d\n", caught);
}

CASE(trapped_without_a_handler)
{
	for (int i = 0; i < 3; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			if (i == 1)
				on(SIGSYS, SIG_IGN, 0);
			sigset_t sys = set_of(SIGSYS, 0);
			if (i == 2) {
				on_info(SIGSYS, on_sys, 0);
				sigprocmask(SIG_BLOCK, &sys, 0);
			}
			must(filter(SECCOMP_RET_TRAP, SYS_getpgrp));
			stall(10, 3);
			syscall(SYS_getpgrp);
			_exit(3);
		}
		ended("child", child);
	}
}

CASE(refused_calls)
{
	must(filter(SECCOMP_RET_ERRNO | ENOTUNIQ, SYS_getpgrp));
	must(filter(SECCOMP_RET_ERRNO | EXDEV, SYS_statfs));
	for (int i = 0; i < 10; i++) {
		show(syscall(SYS_getpgrp));
		show(syscall(SYS_statfs, 0, 0));
		stall(20 + i, 1);
	}
	printf("%d\n", prctl(PR_GET_SECCOMP));
	char line[16];
	FILE *f = popen("grep -c . many/10; exit 6", "r");
	puts(fgets(line, sizeof line, f) ? line : "nothing");
	print_status("child", pclose(f));
}

CASE(deadly_calls)
{
	unsigned actions[] = { SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD };
	for (int i = 0; i < 2; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			must(filter(actions[i], SYS_getpgrp));
			stall(10, 4);
			syscall(SYS_getpgrp);
			_exit(1);
		}
		ended("child", child);
	}
}

/* A filter over an execve: the program that follows lives under it. */
CASE(kept_over_exec)
{
	if (more[0]) {
		show(syscall(SYS_getpgrp));
		stall(10, 5);
		printf("%d %d\n", prctl(PR_GET_SECCOMP), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
		return;
	}
	pid_t child = must(fork());
	if (child == 0) {
		must(filter(SECCOMP_RET_ERRNO | ENOTUNIQ, SYS_getpgrp));
		execl(self(), "x", "kept_over_exec", "1", (char *)0);
	}
	ended("child", child);
	show(syscall(SYS_getpgrp) > 0);
}

CASE(strict_mode)
{
	for (int i = 0; i < 2; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(10, 4);
			must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
			raw(SYS_write, 1, (long)"confined\n", 9, 0, 0, 0);
			if (i)
				raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
			raw(SYS_exit, 7, 0, 0, 0, 0, 0);
		}
		ended("child", child);
	}
}

/* A filter that is told about calls by a supervisor of its own. */
CASE(calls_that_another_answers)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, f };
	int s[2];
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	pid_t child = must(fork());
	if (child == 0) {
		must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		int fd = must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
		must(write(s[1], &fd, sizeof fd));
		for (int i = 0; i < 5; i++) {
			printf("answer %ld\n", syscall(SYS_getpgrp));
			stall(20 + i, 1);
		}
		_exit(0);
	}
	int theirs;
	must(read(s[0], &theirs, sizeof theirs));
	int pidfd = must(syscall(SYS_pidfd_open, child, 0));
	int fd = must(syscall(SYS_pidfd_getfd, pidfd, theirs, 0));
	for (int i = 0; i < 5; i++) {
		struct seccomp_notif n = { 0 };
		must(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &n));
		struct seccomp_notif_resp r = { .id = n.id, .val = n.pid == child ? 100 + i : 0 };
		must(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &r));
	}
	ended("child", child);
}

static void again(int s, siginfo_t *i, void *c)
{
	caught++;
	if (caught < 5)
		raise(SIGSYS);
	stall(20 + caught, 1);
}

CASE(sent_to_itself)
{
	on_info(SIGSYS, again, SA_NODEFER);
	raise(SIGSYS);
	printf("%d\n", caught);
	sigqueue(getpid(), SIGSYS, (union sigval){ .sival_int = 3 });
	printf("%d\n", caught);
	on_info(SIGSYS, on_sys, SA_RESETHAND);
	kill(getpid(), SIGSYS);
	printf("%d code %d\n", caught, code);
	struct sigaction a;
	sigaction(SIGSYS, 0, &a);
	ask(a.sa_handler == SIG_DFL);
	pid_t child = must(fork());
	if (child == 0) {
		kill(getpid(), SIGSYS);
		_exit(1);
	}
	ended("child", child);
}

static void *gets_it(void *arg)
{
	sigset_t sys = set_of(SIGSYS, 0);
	int s = 0;
	siginfo_t info;
	sigwaitinfo(&sys, &info);
	s = info.si_signo;
	printf("%d by %d value %d\n", s, info.si_code, info.si_value.sival_int);
	return 0;
}

CASE(waited_for_by_a_thread)
{
	sigset_t sys = set_of(SIGSYS, 0);
	pthread_sigmask(SIG_BLOCK, &sys, 0);
	for (int i = 0; i < 3; i++) {
		pthread_t t;
		pthread_create(&t, 0, gets_it, 0);
		stall(20 + i, 2);
		pthread_sigqueue(t, SIGSYS, (union sigval){ .sival_int = i });
		pthread_join(t, 0);
	}
}

static atomic_int calling, seen;

/* Calls in an endless row, each of which is to have its own result. */
static void *calls(void *arg)
{
	sigset_t sys = set_of(SIGSYS, 0);
	calling++;
	for (int last = 0; !last;) {
		last = seen;
		if (raw(SYS_rt_sigprocmask, SIG_BLOCK, (long)&sys, 0, 8, 0, 0) != 0)
			return "another result";
		for (volatile int i = 0; i < 200; i++)
			;
	}
	return 0;
}

/* A thread sets a filter for all threads; calls that the others make at that moment continue. */
CASE(filter_amid_calls)
{
	enum { THREADS = 3 };
	for (int i = 0; i < 20; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			pthread_t t[THREADS];
			int wrong = 0;
			for (int n = 0; n < THREADS; n++)
				pthread_create(&t[n], 0, calls, 0);
			while (calling < THREADS)
				sched_yield();
			usleep(200 * i);
			must(filter_with(SECCOMP_FILTER_FLAG_TSYNC, SECCOMP_RET_ERRNO | 5, SYS_getpgrp));
			seen = 1;
			for (int n = 0; n < THREADS; n++) {
				void *result;
				pthread_join(t[n], &result);
				wrong += result != 0;
			}
			_exit(wrong);
		}
		ended("child", child);
	}
}

CASE(death_by_it)
{
	stall(10, 5);
	raise(SIGSYS);
	puts("not reached");
}

CASE(death_by_it_as_a_child)
{
	for (int i = 0; i < 4; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			stall(10, 5);
			if (i == 0)
				kill(getpid(), SIGSYS);
			if (i == 1)
				raw(SYS_tkill, gettid(), SIGSYS, 0, 0, 0, 0);
			if (i == 2)
				execl("/bin/sh", "sh", "-c", "kill -SYS $$", (char *)0);
			for (;;)
				pause();
		}
		if (i == 3)
			kill(child, SIGSYS);
		ended("child", child);
	}
}

static void full(int s, siginfo_t *i, void *context)
{
	sigset_t now;
	struct sigaction a;
	sigprocmask(SIG_BLOCK, 0, &now);
	sigaction(s, 0, &a);
	printf("%d: sys %d, before %d, again %d\n", s, sigismember(&now, SIGSYS),
	       sigismember(&((ucontext_t *)context)->uc_sigmask, SIGSYS), a.sa_sigaction == full);
	stall(20 + s, 1);
}

/* A mask with everything in it: what the action reads as, and what its handler finds. */
CASE(with_a_full_mask)
{
	struct sigaction a = { .sa_sigaction = full, .sa_flags = SA_SIGINFO }, old;
	sigset_t sys = set_of(SIGSYS, 0), now;
	sigfillset(&a.sa_mask);
	must(sigaction(SIGUSR1, &a, 0));
	a.sa_flags |= SA_RESETHAND;
	must(sigaction(SIGUSR2, &a, 0));
	for (int i = 0; i < 4; i++) {
		sigprocmask(i % 2 ? SIG_BLOCK : SIG_UNBLOCK, &sys, 0);
		raise(SIGUSR1);
		sigprocmask(SIG_BLOCK, 0, &now);
		printf("after: sys %d\n", sigismember(&now, SIGSYS));
	}
	raise(SIGUSR2);
	must(sigaction(SIGUSR2, 0, &old));
	printf("default %d, sys %d\n", old.sa_handler == SIG_DFL, sigismember(&old.sa_mask, SIGSYS));
	must(sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = SIG_IGN }, &old));
	printf("same %d, sys %d, flags %x\n", old.sa_sigaction == full, sigismember(&old.sa_mask, SIGSYS), old.sa_flags & ~0x4000000);
	must(sigaction(SIGUSR1, &a, &old));
	printf("ignored %d, sys %d\n", old.sa_handler == SIG_IGN, sigismember(&old.sa_mask, SIGSYS));
	show(syscall(SYS_rt_sigaction, SIGUSR1, 16, 0, 8));
	show(syscall(SYS_rt_sigaction, SIGUSR1, 0, 16, 8));
	show(syscall(SYS_rt_sigaction, SIGKILL, &a, 0, 8));
	show(syscall(SYS_rt_sigaction, 65, 0, &old, 8));
	show(syscall(SYS_rt_sigaction, SIGUSR1, &a, 0, 4));
	show(syscall(SYS_rt_sigprocmask, 7, &sys, 0, 8));
	show(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 16, 0, 8));
	show(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, 16, 8));
	show(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, 0, 4));
}

static void end_of_it(int s, siginfo_t *i, void *context)
{
	printf("end: %d by %d\n", s, i->si_code);
}

/* SIGSYS that comes while a handler's mask has it comes when the handler has ended. */
static void sends_sys(int s)
{
	raise(SIGSYS);
	printf("sent\n");
	stall(30, 2);
}

CASE(blocked_by_the_mask_of_a_handler)
{
	struct sigaction a = { .sa_handler = sends_sys };
	on_info(SIGSYS, end_of_it, 0);
	sigfillset(&a.sa_mask);
	must(sigaction(SIGUSR1, &a, 0));
	for (int i = 0; i < 3; i++) {
		raise(SIGUSR1);
		stall(10 + i, 1);
	}
}
