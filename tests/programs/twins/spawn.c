/* posix_spawn with its attributes and file actions, and what is built on it. */
#include "twin.h"
#include <spawn.h>

extern char **environ;

/* Prints what a spawned stage finds. */
static void report(void)
{
	sigset_t now;
	struct sigaction a;
	sigprocmask(SIG_BLOCK, 0, &now);
	printf("blocked usr1 %d sys %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS));
	sigaction(SIGUSR2, 0, &a);
	printf("usr2 ignored %d\n", a.sa_handler == SIG_IGN);
	sigaction(SIGSYS, 0, &a);
	printf("sys ignored %d\n", a.sa_handler == SIG_IGN);
	printf("leads its group %d, its session %d\n", getpgrp() == getpid(), getsid(0) == getpid());
	for (int fd = 0; fd < 12; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("descriptor %d\n", fd);
	char line[16] = "";
	if (fcntl(5, F_GETFD) >= 0 && read(5, line, 10) > 0)
		printf("%.10s\n", line);
	stall(20, 3);
}

static void spawn_stage(const char *name, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes)
{
	pid_t child = 0;
	char *argv[] = { self(), (char *)name, "stage", 0 };
	int error = posix_spawn(&child, argv[0], actions, attributes, argv, environ);
	if (error)
		printf("spawn: %s\n", strerrorname_np(error));
	else
		ended("child", child);
	stall(30, 2);
}

CASE(plainly)
{
	if (more[0])
		return report();
	on(SIGUSR2, SIG_IGN, 0);
	for (int i = 0; i < 3; i++)
		spawn_stage("plainly", 0, 0);
}

CASE(with_masks_and_defaults)
{
	if (more[0])
		return report();
	posix_spawnattr_t a;
	sigset_t mask = set_of(SIGUSR1, SIGSYS), defaults = set_of(SIGUSR2, 0);
	on(SIGUSR2, SIG_IGN, 0);
	on(SIGSYS, SIG_IGN, 0);
	posix_spawnattr_init(&a);
	posix_spawnattr_setsigmask(&a, &mask);
	posix_spawnattr_setsigdefault(&a, &defaults);
	posix_spawnattr_setflags(&a, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	spawn_stage("with_masks_and_defaults", 0, &a);
	defaults = set_of(SIGSYS, 0);
	posix_spawnattr_setsigdefault(&a, &defaults);
	spawn_stage("with_masks_and_defaults", 0, &a);
}

CASE(in_a_group_or_session)
{
	if (more[0])
		return report();
	posix_spawnattr_t a;
	posix_spawnattr_init(&a);
	posix_spawnattr_setpgroup(&a, 0);
	posix_spawnattr_setflags(&a, POSIX_SPAWN_SETPGROUP);
	spawn_stage("in_a_group_or_session", 0, &a);
	posix_spawnattr_setflags(&a, POSIX_SPAWN_SETSID);
	spawn_stage("in_a_group_or_session", 0, &a);
	posix_spawnattr_setpgroup(&a, 1);
	posix_spawnattr_setflags(&a, POSIX_SPAWN_SETPGROUP);
	spawn_stage("in_a_group_or_session", 0, &a);
}

CASE(with_a_schedule)
{
	if (more[0]) {
		printf("policy %d\n", sched_getscheduler(0));
		return;
	}
	posix_spawnattr_t a;
	struct sched_param p = { 0 };
	posix_spawnattr_init(&a);
	posix_spawnattr_setschedpolicy(&a, SCHED_BATCH);
	posix_spawnattr_setschedparam(&a, &p);
	posix_spawnattr_setflags(&a, POSIX_SPAWN_SETSCHEDULER | POSIX_SPAWN_RESETIDS);
	spawn_stage("with_a_schedule", 0, &a);
	printf("ours %d\n", sched_getscheduler(0));
}

CASE(with_file_actions)
{
	if (more[0])
		return report();
	posix_spawn_file_actions_t f;
	posix_spawn_file_actions_init(&f);
	int closed = must(open("data", O_RDONLY)), kept = must(open("big", O_RDONLY));
	posix_spawn_file_actions_addopen(&f, 5, "many/21", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&f, kept, 9);
	posix_spawn_file_actions_addclose(&f, closed);
	posix_spawn_file_actions_addopen(&f, 1, in_work("out"), O_WRONLY | O_CREAT, 0640);
	spawn_stage("with_file_actions", &f, 0);
	posix_spawn_file_actions_addchdir_np(&f, "many");
	posix_spawn_file_actions_addopen(&f, 5, "23", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&f, 1, in_work("out2"), O_WRONLY | O_CREAT, 0604);
	spawn_stage("with_file_actions", &f, 0);
}

CASE(actions_that_fail)
{
	posix_spawn_file_actions_t f;
	posix_spawn_file_actions_init(&f);
	posix_spawn_file_actions_addopen(&f, 5, "odd/no such file", O_RDONLY, 0);
	spawn_stage("actions_that_fail", &f, 0);
	show(wait(0));
	posix_spawn_file_actions_init(&f);
	posix_spawn_file_actions_adddup2(&f, 77, 78);
	spawn_stage("actions_that_fail", &f, 0);
	show(wait(0));
	pid_t child;
	char *argv[] = { "x", 0 };
	for (const char **path = (const char *[]){ "odd/nothing", "odd", "odd/loop", "data", "odd/empty", 0 }; *path; path++) {
		int error = posix_spawn(&child, *path, 0, 0, argv, environ);
		printf("%s: %s\n", *path, strerrorname_np(error));
	}
	printf("by PATH: %s\n", strerrorname_np(posix_spawnp(&child, "no-such-program-anywhere", 0, 0, argv, environ)));
	show(wait(0));
}

CASE(shells_and_pipes)
{
	char line[100];
	print_status("system", system("cat many/1? | wc -c; exit 3"));
	print_status("system", system("kill -TERM $$"));
	print_status("no such command", system("no-such-command 2>/dev/null"));
	FILE *f = popen("head -c 5 many/20; exit 9", "r");
	fgets(line, sizeof line, f);
	puts(line);
	print_status("pclose", pclose(f));
	f = popen("cat >&2", "w");
	fprintf(f, "through a pipe\n");
	print_status("pclose", pclose(f));
}

static void *spawner(void *arg)
{
	char *argv[] = { "/bin/sh", "-c", "read -r x < many/2$N; exit $N", 0 };
	char n[8];
	snprintf(n, sizeof n, "N=%ld", (long)arg);
	char *env[] = { n, 0 };
	long total = 0;
	for (int i = 0; i < 6; i++) {
		pid_t child;
		int status = 0;
		if (posix_spawn(&child, argv[0], 0, 0, argv, env) || waitpid(child, &status, 0) != child)
			return (void *)-1;
		total += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
	}
	return (void *)total;
}

CASE(by_four_threads)
{
	pthread_t t[4];
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], 0, spawner, (void *)i);
	stall(10, 10);
	for (int i = 0; i < 4; i++) {
		void *total;
		pthread_join(t[i], &total);
		printf("%ld\n", (long)total);
	}
}

CASE(hundred_programs)
{
	char *argv[] = { "true", 0 };
	int good = 0, status;
	for (int i = 0; i < 100; i++) {
		pid_t child;
		if (posix_spawnp(&child, "true", 0, 0, argv, environ) == 0 && waitpid(child, &status, 0) == child && status == 0)
			good++;
	}
	printf("%d\n", good);
}
