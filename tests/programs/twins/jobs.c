/* Job control: a small shell on a terminal of its own, and what its user types. */
#include "twin.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static int terminal;

/* Reads from the terminal until `text` has come; says so. */
static void expect(const char *text)
{
	static char buf[4096];
	static int have;
	while (!memmem(buf, have, text, strlen(text))) {
		ssize_t n = read(terminal, buf + have, sizeof buf - have - 1);
		if (n <= 0) {
			printf("never came: %s\n", text);
			return;
		}
		have += n;
	}
	char *end = (char *)memmem(buf, have, text, strlen(text)) + strlen(text);
	have -= end - buf;
	memmove(buf, end, have);
	printf("%s\n", text);
}

static void type(const char *text)
{
	must(write(terminal, text, strlen(text)));
}

/* A session with a terminal, whose first process runs `body`. */
static pid_t session(void (*body)(void))
{
	struct winsize size = { 24, 80, 0, 0 };
	struct termios t;
	pid_t pid = must(forkpty(&terminal, 0, 0, &size));
	if (pid == 0) {
		must(tcgetattr(0, &t));
		t.c_lflag &= ~ECHO;
		t.c_oflag &= ~OPOST;
		must(tcsetattr(0, TCSANOW, &t));
		setvbuf(stdout, 0, _IONBF, 0);
		signal(SIGTTOU, SIG_IGN);
		body();
		_exit(0);
	}
	return pid;
}

/* A job in a group of its own, in the foreground; returns its status when it stops or ends. */
static pid_t start_job(void (*job)(void), int foreground)
{
	pid_t pid = must(fork());
	if (pid == 0) {
		setpgid(0, 0);
		if (foreground)
			tcsetpgrp(0, getpid());
		signal(SIGTTOU, SIG_DFL);
		job();
		_exit(0);
	}
	setpgid(pid, pid);
	if (foreground)
		tcsetpgrp(0, pid);
	return pid;
}

static int wait_job(pid_t pid)
{
	int status;
	must(waitpid(pid, &status, WUNTRACED));
	tcsetpgrp(0, getpgrp());
	return status;
}

static void reads_for_ever(void)
{
	puts("[working]");
	for (int i = 0;; i++)
		stall(i % 64, 1);
}

static void interrupts(void)
{
	for (int i = 0; i < 2; i++) {
		int status = wait_job(start_job(reads_for_ever, 1));
		printf("[ended by %d]", WTERMSIG(status));
		stall(10, 3);
	}
}

CASE(typed_interrupt_and_quit)
{
	pid_t shell = session(interrupts);
	expect("[working]");
	type("\003");
	expect("[ended by 2]");
	expect("[working]");
	type("\034");
	expect("[ended by 3]");
	ended("shell", shell);
}

static volatile int continued;
static void on_continue(int s) { continued++; }

static void says_when_continued(void)
{
	on(SIGCONT, on_continue, 0);
	puts("[working]");
	for (int i = 0; !continued; i++)
		stall(i % 64, 1);
	puts("[continued]");
	stall(20, 5);
	_exit(7);
}

static void stops_and_continues(void)
{
	pid_t job = start_job(says_when_continued, 1);
	int status = wait_job(job);
	printf("[stopped by %d]", WSTOPSIG(status));
	char line[20] = "";
	if (read(0, line, sizeof line) > 0 && !strncmp(line, "fg", 2)) {
		tcsetpgrp(0, job);
		kill(-job, SIGCONT);
		status = wait_job(job);
		printf("[ended with %d]", WEXITSTATUS(status));
	}
}

CASE(typed_suspend_and_foreground)
{
	pid_t shell = session(stops_and_continues);
	expect("[working]");
	type("\032");
	expect("[stopped by 20]");
	type("fg\n");
	expect("[continued]");
	expect("[ended with 7]");
	ended("shell", shell);
}

static void reads_the_terminal(void)
{
	char line[20] = "";
	stall(20, 2);
	ssize_t n = read(0, line, sizeof line);
	printf("[read %zd]", n);
	_exit(3);
}

static void background_reads(void)
{
	pid_t job = start_job(reads_the_terminal, 0);
	int status;
	must(waitpid(job, &status, WUNTRACED));
	printf("[stopped by %d]", WSTOPSIG(status));
	tcsetpgrp(0, job);
	kill(-job, SIGCONT);
	status = wait_job(job);
	printf("[ended with %d]", WEXITSTATUS(status));
}

CASE(reading_in_the_background)
{
	pid_t shell = session(background_reads);
	expect("[stopped by 21]");
	type("abc\n");
	expect("[read 4]");
	expect("[ended with 3]");
	ended("shell", shell);
}

static void sets_the_terminal(void)
{
	struct termios t;
	stall(30, 2);
	tcgetattr(0, &t);
	tcsetattr(0, TCSANOW, &t);
	_exit(4);
}

static void background_writes(void)
{
	pid_t job = start_job(sets_the_terminal, 0);
	int status;
	must(waitpid(job, &status, WUNTRACED));
	printf("[stopped by %d]", WSTOPSIG(status));
	kill(-job, SIGCONT);
	must(waitpid(job, &status, WUNTRACED));
	printf("[again by %d]", WSTOPSIG(status));
	tcsetpgrp(0, job);
	kill(-job, SIGCONT);
	printf("[ended with %d]", WEXITSTATUS(wait_job(job)));
}

CASE(setting_the_terminal_in_the_background)
{
	pid_t shell = session(background_writes);
	expect("[stopped by 22]");
	expect("[again by 22]");
	expect("[ended with 4]");
	ended("shell", shell);
}

static volatile int resized;
static void on_size(int s) { resized++; }

static void tells_its_size(void)
{
	struct winsize w;
	on(SIGWINCH, on_size, SA_RESTART);
	puts("[ready]");
	for (int i = 0; i < 3; i++) {
		while (resized <= i)
			stall(10 + i, 1);
		must(ioctl(0, TIOCGWINSZ, &w));
		printf("[%d by %d]", w.ws_row, w.ws_col);
	}
}

CASE(size_of_the_window)
{
	pid_t shell = session(tells_its_size);
	expect("[ready]");
	for (int i = 0; i < 3; i++) {
		char text[40];
		struct winsize w = { 30 + i, 100 + i, 0, 0 };
		must(ioctl(terminal, TIOCSWINSZ, &w));
		snprintf(text, sizeof text, "[%d by %d]", 30 + i, 100 + i);
		expect(text);
	}
	ended("shell", shell);
}

static volatile int hung_up;
static void on_hangup(int s) { hung_up = 1; }

static void waits_for_the_end(void)
{
	on(SIGHUP, on_hangup, 0);
	puts("[ready]");
	while (!hung_up)
		stall(20, 3);
	char c;
	ssize_t n = read(0, &c, 1);
	_exit(n == 0 || (n == -1 && errno == EIO) ? 5 : 6);
}

CASE(terminal_that_goes_away)
{
	pid_t shell = session(waits_for_the_end);
	expect("[ready]");
	close(terminal);
	ended("shell", shell);
}

static void real_shell(void)
{
	execl("/bin/sh", "sh", "-i", (char *)0);
}

/* The usual shell, interactive. */
CASE(an_interactive_shell)
{
	setenv("PS1", "", 1);
	setenv("ENV", "", 1);
	pid_t shell = session(real_shell);
	type("echo [a$((1+1))b]; cat many/20 | wc -c\n");
	expect("[a2b]");
	expect("5020");
	type("sh -c 'echo [up]; exec sleep 100'\n");
	expect("[up]");
	type("\003");
	type("echo [$?]\n");
	expect("[130]");
	type("sh -c 'echo [again]; exec sleep 100'\n");
	expect("[again]");
	type("\032");
	expect("Stopped");
	type("kill %1; fg %1 > /dev/null; echo [$?]\n");
	expect("[143]");
	type("(exit 5); exit\n");
	ended("shell", shell);
}

/* Orphaned groups that are stopped get SIGHUP and SIGCONT. */
CASE(orphaned_while_stopped)
{
	int status;
	must(prctl(PR_SET_CHILD_SUBREAPER, 1));
	pid_t leader = must(fork());
	if (leader == 0) {
		setsid();
		pid_t job = must(fork());
		if (job == 0) {
			setpgid(0, 0);
			on(SIGHUP, on_hangup, 0);
			stall(10, 3);
			raise(SIGSTOP);
			stall(20, 3);
			_exit(hung_up ? 11 : 12);
		}
		must(waitpid(job, &status, WUNTRACED));
		_exit(0);
	}
	ended("leader", leader);
	must(wait(&status));
	print_status("job", status);
}

CASE(signals_to_a_group)
{
	int p[2], status, total = 0;
	char c;
	must(pipe(p));
	pid_t leader = must(fork());
	if (leader == 0) {
		setpgid(0, 0);
		for (int i = 0; i < 4; i++)
			if (must(fork()) == 0)
				break;
		must(write(p[1], "x", 1));
		for (int i = 0;; i++)
			stall(i % 64, 1);
	}
	setpgid(leader, leader);
	close(p[1]);
	for (int i = 0; i < 5; i++)
		total += must(read(p[0], &c, 1));
	must(kill(-leader, SIGTERM));
	must(waitpid(leader, &status, 0));
	print_status("leader", status);
	/* The pipe ends when all of them have ended. */
	printf("%d %zd\n", total, read(p[0], &c, 1));
}
