/* exec: its errors, what it passes on, and what it keeps. Stages of a case are this program again.
 */
#include "twin.h"
#include <sys/stat.h>

extern char **environ;

static void go(const char *name, const char *stage)
{
	char *argv[] = { "again", (char *)name, (char *)stage, 0 };
	execv(self(), argv);
	perror("exec");
	_exit(96);
}

CASE(ways_to_fail)
{
	char *argv[] = { "x", 0 }, *bad[] = { (char *)16, 0 };
	char longest[5000];
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	write_file(in_work("text"), "not a program\n", 0755);
	write_file(in_work("forbidden"), "#!/bin/sh\n", 0644);
	write_file(in_work("nothing"), "", 0755);
	write_file(in_work("cut"), "\177ELF\2\1\1", 0755);
	show(execv("odd/none", argv));
	show(execv("odd/none/either", argv));
	show(execv("data/below", argv));
	show(execv("odd", argv));
	show(execv("odd/loop", argv));
	show(execv("odd/dangling", argv));
	show(execv("data", argv));
	show(execv("", argv));
	show(execv(longest, argv));
	stall(10, 3);
	show(execv((char *)16, argv));
	show(execv("/bin/true", bad));
	show(execv("/bin/true", (char **)16));
	show(execve("/bin/true", argv, bad));
	show(execve("/bin/true", argv, (char **)24));
	const char *names[] = { "text", "forbidden", "nothing", "cut" };
	for (int i = 0; i < 4; i++) {
		printf("%s ", names[i]);
		show(execv(in_work(names[i]), argv));
	}
	show(execv("/dev/null", argv));
	show(execv("/proc/self/mem", argv));
}

CASE(too_much_to_pass)
{
	size_t large = 200 << 10;
	char *text = malloc(large + 1), *argv[] = { "true", text, 0 };
	memset(text, 'x', large);
	text[large] = 0;
	show(execv("/bin/true", argv));
	char **many = calloc(400001, sizeof *many);
	text[50] = 0;
	for (int i = 0; i < 400000; i++)
		many[i] = text;
	show(execv("/bin/true", many));
	show(execve("/bin/true", argv, many));
	stall(10, 5);
}

CASE(while_it_is_written_to)
{
	char *argv[] = { "copy", "x", 0 }, copy[4096], *path = in_work("copy");
	snprintf(copy, sizeof copy, "cp /bin/true %s", path);
	must(system(copy));
	int fd = must(open(path, O_WRONLY));
	show(execv(path, argv));
	close(fd);
	pid_t child = must(fork());
	if (child == 0)
		execv(path, argv);
	ended("child", child);
}

/* The argv that arrives. */
static void arguments(char **more)
{
	int n = 0, hash = 0;
	for (; more[n]; n++)
		hash = hash * 31 + strlen(more[n]) + (unsigned char)more[n][0];
	printf("%d more, %d, first `%.20s`\n", n, hash, more[0]);
	stall(20, 2);
}

CASE(many_arguments)
{
	if (more[0])
		return arguments(more);
	char *large = malloc(100001), *argv[2003] = { self(), "many_arguments" };
	memset(large, 'y', 100000);
	large[100000] = 0;
	for (int i = 2; i < 2002; i++)
		argv[i] = i % 7 ? "an argument" : "";
	argv[500] = large;
	execv("/proc/self/exe", argv);
}

CASE(empty_and_odd_arguments)
{
	if (more[0])
		return arguments(more);
	char *argv[] = { "", "empty_and_odd_arguments", "", "two words", "new\nline", "\377\376", "--", 0 };
	execv("/proc/self/exe", argv);
}

CASE(no_arguments_at_all)
{
	char *none[] = { 0 };
	pid_t child = must(fork());
	if (child == 0)
		execve(self(), none, environ);
	ended("without a name", child);
	child = must(fork());
	if (child == 0)
		execve(self(), 0, 0);
	ended("without anything", child);
}

CASE(environments)
{
	if (more[0]) {
		for (char **e = environ; *e; e++)
			printf("[%s]\n", *e);
		if (atoi(more[0]) == 1)
			execve("/proc/self/exe", (char *[]){ "a", "environments", "2", 0 }, (char *[]){ 0 });
		return;
	}
	char *odd[] = { "A=1", "A=2", "nothing", "=x", "", "LD_LIBRARY_PATH=/nowhere", "RUNAHEAD_X=1", 0 };
	execve("/proc/self/exe", (char *[]){ "a", "environments", "1", 0 }, odd);
}

static void nothing(int s) {}

CASE(what_is_kept)
{
	if (more[0]) {
		sigset_t now;
		struct sigaction a;
		struct itimerval t;
		struct rlimit r;
		stack_t alt;
		char name[20];
		sigprocmask(SIG_BLOCK, 0, &now);
		printf("blocked usr1 %d sys %d hup %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS), sigismember(&now, SIGHUP));
		sigpending(&now);
		printf("pending usr1 %d sys %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS));
		int signals[] = { SIGINT, SIGUSR2, SIGTERM, SIGSYS, SIGCHLD };
		for (int i = 0; i < 5; i++) {
			sigaction(signals[i], 0, &a);
			printf("%d: ignored %d default %d flags %x\n", signals[i], a.sa_handler == SIG_IGN, a.sa_handler == SIG_DFL, a.sa_flags);
		}
		getitimer(ITIMER_REAL, &t);
		ask(t.it_value.tv_sec > 900);
		getrlimit(RLIMIT_NOFILE, &r);
		printf("limit %ld, nice %d, umask %o\n", (long)r.rlim_cur, getpriority(PRIO_PROCESS, 0), umask(0));
		sigaltstack(0, &alt);
		printf("alternate stack %d\n", alt.ss_flags);
		prctl(PR_GET_NAME, name);
		puts(name);
		printf("slack %d, death %s\n", prctl(PR_GET_TIMERSLACK), yes(atol(more[0]) == getpid()));
		struct stat st;
		ask(stat("07", &st) == 0);
		stall(10, 3);
		return;
	}
	sigset_t some = set_of(SIGUSR1, SIGSYS);
	on(SIGINT, SIG_IGN, 0);
	on(SIGUSR2, nothing, SA_RESTART);
	on(SIGTERM, nothing, 0);
	on(SIGSYS, SIG_IGN, 0);
	sigprocmask(SIG_BLOCK, &some, 0);
	raise(SIGUSR1);
	struct itimerval t = { { 0, 0 }, { 1000, 0 } };
	setitimer(ITIMER_REAL, &t, 0);
	struct rlimit r = { 77, 99 };
	setrlimit(RLIMIT_NOFILE, &r);
	nice(4);
	umask(031);
	static char stack[1 << 16];
	stack_t alt = { .ss_sp = stack, .ss_size = sizeof stack };
	sigaltstack(&alt, 0);
	prctl(PR_SET_NAME, "before");
	prctl(PR_SET_TIMERSLACK, 12345);
	must(chdir("many"));
	char pid[20];
	snprintf(pid, sizeof pid, "%d", getpid());
	go("what_is_kept", pid);
}

CASE(a_handler_of_sigsys_is_not_kept)
{
	if (more[0]) {
		struct sigaction a;
		sigaction(SIGSYS, 0, &a);
		printf("default %d, flags %x\n", a.sa_handler == SIG_DFL, a.sa_flags);
		stall(10, 3);
		kill(getpid(), SIGSYS);
		return;
	}
	on(SIGSYS, nothing, SA_RESTART);
	kill(getpid(), SIGSYS);
	pid_t child = must(fork());
	if (child == 0)
		go("a_handler_of_sigsys_is_not_kept", "1");
	ended("child", child);
}

static void list_descriptors(void)
{
	for (int fd = 0; fd < 2000; fd++) {
		int flags = fcntl(fd, F_GETFD), mode = fcntl(fd, F_GETFL);
		if (flags >= 0 && (fd < 3 || fd >= 20))
			printf("%d: %d %o\n", fd, flags, fd < 3 ? 0 : mode & ~O_LARGEFILE);
	}
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	printf("%d in all\n", n);
}

CASE(descriptors_that_stay)
{
	if (more[0]) {
		list_descriptors();
		char c[8] = "";
		must(read(30, c, 4));
		puts(c);
		return;
	}
	int fd = must(open("many/22", O_RDONLY | O_CLOEXEC));
	must(dup2(fd, 30));
	must(dup3(fd, 31, O_CLOEXEC));
	must(fcntl(fd, F_DUPFD_CLOEXEC, 1900));
	must(fcntl(fd, F_DUPFD, 1901));
	must(read(fd, (char[100]){ 0 }, 50));
	list_descriptors();
	go("descriptors_that_stay", "1");
}

CASE(without_standard_descriptors)
{
	if (more[0]) {
		int a = open("data", O_RDONLY), b = open("big", O_RDONLY), c = open("data", O_RDONLY);
		int out = open(in_work("found"), O_WRONLY | O_CREAT, 0600);
		dprintf(out, "%d %d %d %d\n", a, b, c, out);
		stall(10, 3);
		_exit(a + b + c);
	}
	fflush(stdout);
	pid_t child = must(fork());
	if (child == 0) {
		close(0), close(1), close(2);
		go("without_standard_descriptors", "1");
	}
	ended("child", child);
}

CASE(twenty_in_a_row)
{
	int n = more[0] ? atoi(more[0]) : 0;
	char next[20];
	stall(10 + n, 2);
	if (n == 20) {
		puts("the last");
		return;
	}
	snprintf(next, sizeof next, "%d", n + 1);
	go("twenty_in_a_row", next);
}

CASE(a_program_with_another_owner)
{
	if (more[0]) {
		printf("real %d, effective %d\n", getuid(), geteuid());
		stall(10, 2);
		return;
	}
	char command[9000], *path = in_work("owned");
	snprintf(command, sizeof command, "cp '%s' '%s' && chown 65534 '%s' && chmod 4755 '%s'", self(), path, path, path);
	print_status("made", system(command));
	pid_t child = must(fork());
	if (child == 0)
		execl(path, path, "a_program_with_another_owner", "1", (char *)0);
	ended("child", child);
	unlink(path);
}
