/* A thread changes its credentials, filters or limits while others run handlers that block every
 * signal, and make calls in them. */
#include "twin.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

extern char **environ;
static volatile sig_atomic_t handled;
static int go_on[2];

/* From a place of its own, so that none of the calls has been met before. */
static void handler(int s)
{
	raw(SYS_getppid, 0, 0, 0, 0, 0, 0);
	raw(SYS_getuid, 0, 0, 0, 0, 0, 0);
	stall(30 + handled, 1);
	handled++;
}

static void install(int signal)
{
	struct sigaction a = { .sa_handler = handler, .sa_flags = SA_RESTART };
	sigfillset(&a.sa_mask);
	must(sigaction(signal, &a, 0));
}

static void *waits(void *arg)
{
	sigset_t all, before;
	char c;
	stall(10, 4);
	while (read(go_on[0], &c, 1) != 1)
		;
	sigfillset(&all);
	must(-pthread_sigmask(SIG_SETMASK, &all, &before));
	stall(14, 1);
	must(-pthread_sigmask(SIG_SETMASK, &before, 0));
	raise(SIGUSR2);
	stall(15, 2);
	return arg;
}

static void until(int count)
{
	while (handled < count)
		usleep(1000);
}

static void *changes(void *change)
{
	((void (*)(void))change)();
	install(SIGUSR1);
	stall(20, 2);
	return 0;
}

/* `change` is made by this thread, or by another than the first. */
static void compare(void (*change)(void), int in_other)
{
	pthread_t t, other;
	int status;
	pid_t pid;
	char *argv[] = { "true", 0 };
	must(pipe(go_on));
	install(SIGUSR2);
	must(-pthread_create(&t, 0, waits, 0));
	usleep(20000);
	if (in_other) {
		must(-pthread_create(&other, 0, changes, (void *)change));
		must(-pthread_join(other, 0));
	} else {
		changes((void *)change);
	}
	must(-pthread_kill(t, SIGUSR1));
	until(1);
	must(-pthread_kill(t, SIGUSR2));
	until(2);
	must(write(go_on[1], "x", 1));
	must(-pthread_join(t, 0));
	raise(SIGUSR1);
	printf("handled %d\n", handled);
	fflush(stdout);
	if (!(pid = must(fork()))) {
		raise(SIGUSR1);
		stall(24, 2);
		_exit(handled);
	}
	ended("child", pid);
	must(-posix_spawnp(&pid, "true", 0, 0, argv, environ));
	must(waitpid(pid, &status, 0));
	print_status("true", status);
}

static void subreaper(void)
{
	must(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
}

static void users(void)
{
	must(raw(SYS_setresuid, -1, -1, -1, 0, 0, 0) == 0 ? 0 : -1);
}

static void directory(void)
{
	must(unshare(CLONE_FS));
}

static void filter(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { 1, &allow };
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}

static void clock_stays(void)
{
	must(prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0));
}

CASE(one_becomes_a_subreaper)
{
	compare(subreaper, 0);
}

CASE(another_becomes_a_subreaper)
{
	compare(subreaper, 1);
}

CASE(one_sets_its_users)
{
	compare(users, 0);
}

CASE(another_sets_its_users)
{
	compare(users, 1);
}

CASE(one_leaves_the_others_directory)
{
	compare(directory, 0);
}

CASE(another_leaves_the_others_directory)
{
	compare(directory, 1);
}

CASE(one_has_a_filter)
{
	compare(filter, 0);
}

CASE(another_has_a_filter)
{
	compare(filter, 1);
}

CASE(another_sets_its_clock)
{
	compare(clock_stays, 1);
}
