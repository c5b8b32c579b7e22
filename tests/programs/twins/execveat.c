/* execveat, programs that have no name, and scripts. */
#include "twin.h"
#include <sys/auxv.h>

extern char **environ;

static void names(const char *which)
{
	char comm[20] = "", line[64] = "";
	prctl(PR_GET_NAME, comm);
	char *exec = (char *)getauxval(AT_EXECFN);
	char *slash = strrchr(exec, '/');
	FILE *f = fopen("/proc/self/cmdline", "r");
	fread(line, 1, sizeof line - 1, f);
	fclose(f);
	printf("%s: comm %s, executed as .../%s\n", which, comm, slash ? slash + 1 : exec);
	stall(20, 3);
}

/* A copy of this program without a name. */
static int copy(unsigned flags)
{
	int fd = must(memfd_create("twin", flags)), from = must(open("/proc/self/exe", O_RDONLY));
	while (must(sendfile(fd, from, 0, 1 << 20)) > 0)
		;
	close(from);
	return fd;
}

CASE(a_file_without_a_name)
{
	if (more[0]) {
		char target[100] = "";
		names(more[0]);
		must(readlink("/proc/self/exe", target, sizeof target - 1));
		puts(target);
		return;
	}
	for (int i = 0; i < 3; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			int fd = copy(i == 1 ? MFD_CLOEXEC : 0);
			char *argv[] = { "nameless", "a_file_without_a_name", "1", 0 };
			if (i == 2)
				fexecve(fd, argv, environ);
			syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
			_exit(errno);
		}
		ended("child", child);
	}
}

CASE(scripts_without_a_name)
{
	char *argv[] = { "script", 0 };
	for (int cloexec = 0; cloexec < 2; cloexec++) {
		pid_t child = must(fork());
		if (child == 0) {
			int fd = must(memfd_create("script", cloexec ? MFD_CLOEXEC : 0));
			const char *text = "#!/bin/sh\nread -r x < many/21; echo a script; exit 5\n";
			must(write(fd, text, strlen(text)));
			show(syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH));
			_exit(1);
		}
		ended("child", child);
	}
}

CASE(relative_to_a_directory)
{
	if (more[0])
		return names(more[0]);
	char *argv[] = { "relative", "relative_to_a_directory", "at", 0 };
	must(symlink(self(), in_work("link")));
	int dir = must(open(getenv("W"), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	show(syscall(SYS_execveat, dir, "link", argv, environ, AT_SYMLINK_NOFOLLOW));
	show(syscall(SYS_execveat, dir, "", argv, environ, 0));
	show(syscall(SYS_execveat, dir, "", argv, environ, AT_EMPTY_PATH));
	show(syscall(SYS_execveat, 99, "link", argv, environ, 0));
	show(syscall(SYS_execveat, dir, "link", argv, environ, 0x80));
	stall(10, 3);
	syscall(SYS_execveat, dir, "link", argv, environ, 0);
}

CASE(a_path_descriptor)
{
	if (more[0])
		return names(more[0]);
	char *argv[] = { "path", "a_path_descriptor", "place", 0 };
	int fd = must(open("/proc/self/exe", O_PATH | O_CLOEXEC));
	syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
}

static char *script(const char *name, const char *interpreter, const char *rest)
{
	char text[6000], *path = in_work(name);
	snprintf(text, sizeof text, "#!%s%s", interpreter, rest);
	write_file(path, text, 0755);
	return path;
}

static void run(char *path)
{
	char *argv[] = { "given name", "one", "two words", 0 };
	pid_t child = must(fork());
	if (child == 0) {
		execv(path, argv);
		_exit(errno);
	}
	ended("script", child);
}

CASE(with_arguments)
{
	if (more[0]) {
		char *slash;
		for (char **a = more; *a; a++)
			printf("[%s]", (slash = strrchr(*a, '/')) ? slash + 1 : *a);
		puts("");
		names("script");
		return;
	}
	char *me = self();
	run(script("plain", me, " with_arguments\n"));
	run(script("spaces", me, "  \t with_arguments \t \n"));
	run(script("no newline", me, " with_arguments"));
	run(script("no argument", me, "\nwith_arguments\n"));
	run(script("one argument", me, " with_arguments with several words\n"));
	run(script("carriage", me, " with_arguments\r\n"));
}

CASE(nested)
{
	if (more[0]) {
		int n = 0;
		for (; more[n]; n++)
			;
		printf("%d arguments, last %s\n", n, more[n - 1]);
		stall(30, 2);
		return;
	}
	char name[8] = "s0", last[4096];
	strcpy(last, script(name, self(), " nested\n"));
	for (int i = 1; i < 7; i++) {
		name[1]++;
		strcpy(last, script(name, last, i % 2 ? "\n" : " level\n"));
		run(last);
	}
}

CASE(broken)
{
	char *long_name = malloc(5000);
	memset(long_name, 'x', 4999);
	long_name[0] = '/', long_name[4999] = 0;
	run(script("no such interpreter", "/no/such/interpreter", "\n"));
	run(script("interpreter is a directory", "/bin/", "\n"));
	run(script("interpreter not executable", "/etc/passwd", "\n"));
	run(script("nothing", "", "\n"));
	run(script("blank", "   ", "\n"));
	run(script("long", long_name, "\n"));
	run(script("itself", in_work("itself"), "\n"));
	write_file(in_work("hash"), "#", 0755);
	run(in_work("hash"));
	stall(10, 5);
}

CASE(handed_to_a_shell)
{
	write_file(in_work("text"), "echo text of a shell; read -r x < many/33; exit 4\n", 0755);
	pid_t child = must(fork());
	if (child == 0) {
		execlp(in_work("text"), "text", (char *)0);
		_exit(errno);
	}
	ended("execlp", child);
	print_status("system", system(in_work("text")));
}

/* Everything that a shell does, on cold files. */
static void shell(const char *text)
{
	char *path = script("script", "/bin/sh", "\n");
	FILE *f = fopen(path, "a");
	fputs(text, f);
	fclose(f);
	run(path);
}

CASE(loops_of_programs)
{
	shell("for i in 10 11 12 13 14 15 16 17; do head -c 3 many/$i; echo; done\n"
	      "cat many/2? | tr -d a-m | wc -c; ls many | sort -r | head -n 3\n"
	      "x=$(cat many/30 | wc -c); y=`wc -c < many/31`; echo $x $y; test -s many/32 && echo there\n");
}

CASE(jobs_of_a_shell)
{
	shell("(read -r x < many/40; exit 3) & p=$!; cat many/41 > /dev/null & wait $p; echo $?; wait; echo $?\n"
	      "trap 'echo trapped' USR1; kill -USR1 $$; trap 'echo at the end' EXIT\n"
	      "sh -c 'kill -9 $$'; echo $?; sh -c 'exec sh -c \"exit 7\"'; echo $?; no-such-command 2> /dev/null; echo $?\n"
	      "while read -r a b; do echo \"$b $a\"; done <<end\n1 2\n3 4\nend\n"
	      "exec 5< many/42; head -c 2 <&5; exec 5<&-; umask 027; : > $W/made; set -- *; echo $#\n");
}

CASE(pipes_of_a_shell)
{
	shell("cat big | head -c 5 | wc -c; yes | head -n 3; cat many/5? | md5sum\n"
	      "mkfifo $W/fifo; cat $W/fifo & head -c 4 many/01 > $W/fifo; wait; rm $W/fifo\n"
	      "for i in 1 2 3; do (cat many/0$i; exit $i) | wc -c; done; cat many/0? > $W/all; wc -c < $W/all\n");
}
