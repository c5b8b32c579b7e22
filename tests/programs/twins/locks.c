/* Locks of a process, of an open file, or of a description: what keeps them, and what releases
 * them. Stages of a case are this program again. */
#include "twin.h"
#include <sys/file.h>

static int lock(int fd, int command, int type)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET };
	return fcntl(fd, command, &l);
}

/* The lock that another process would meet if it wrote to `path`, and whether it is the caller's.
 */
static void say_lock(const char *what, const char *path)
{
	fflush(stdout);
	pid_t owner = getpid(), child = must(fork());
	if (child == 0) {
		struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		int fd = must(open(path, O_RDONLY | O_CLOEXEC));
		must(fcntl(fd, F_GETLK, &l));
		const char *type = l.l_type == F_UNLCK ? "none" : l.l_type == F_RDLCK ? "a read lock" : "a write lock";
		printf("%s: %s%s\n", what, type, l.l_type != F_UNLCK && l.l_pid == owner ? ", the caller's" : "");
		fflush(stdout);
		_exit(0);
	}
	must(waitpid(child, 0, 0));
}

/* A file in W with a lock on all of it. */
static int locked(const char *name, const char *text)
{
	write_file(in_work(name), text, 0755);
	int fd = must(open(in_work(name), O_RDWR));
	must(lock(fd, F_SETLK, F_WRLCK));
	return fd;
}

static void go(const char *path, const char *name, const char *stage)
{
	char *argv[] = { "again", (char *)name, (char *)stage, 0 };
	execv(path, argv);
	printf("exec: %s\n", strerror(errno));
}

CASE(kept_over_exec)
{
	if (more[0]) {
		say_lock("after exec", in_work("file"));
		return;
	}
	locked("file", "text\n");
	stall(10, 3);
	go(self(), "kept_over_exec", "1");
}

CASE(of_the_program_that_is_executed)
{
	if (more[0]) {
		say_lock("after exec", self());
		return;
	}
	int fd = must(open(self(), O_RDONLY));
	must(lock(fd, F_SETLK, F_RDLCK));
	stall(10, 3);
	say_lock("before", self());
	go(self(), "of_the_program_that_is_executed", "1");
}

CASE(of_a_program_that_cannot_be_executed)
{
	locked("script", "#!/nonexistent/interpreter\n");
	locked("text", "no program at all\n");
	locked("cut", "\177ELF\2\1\1");
	stall(10, 3);
	const char *names[] = { "script", "text", "cut" };
	for (int i = 0; i < 3; i++) {
		go(in_work(names[i]), "x", "1");
		say_lock(names[i], in_work(names[i]));
	}
}

CASE(of_a_program_that_is_written_to)
{
	/* The exec gets as far as opening it. */
	char copy[9000];
	snprintf(copy, sizeof copy, "cp /bin/true %s", in_work("copy"));
	must(system(copy));
	int fd = must(open(in_work("copy"), O_RDWR));
	must(lock(fd, F_SETLK, F_WRLCK));
	stall(10, 3);
	for (int i = 0; i < 3; i++)
		go(in_work("copy"), "x", "1");
	say_lock("after three execs", in_work("copy"));
	show(must(open("data", O_RDONLY)) - fd);
}

CASE(of_a_script_and_its_interpreter)
{
	/* #! gives one argument, and then the script's name. */
	if (more[0]) {
		say_lock("the script", in_work("script"));
		say_lock("its interpreter", self());
		return;
	}
	char text[9000];
	snprintf(text, sizeof text, "#!%s of_a_script_and_its_interpreter\n", self());
	locked("script", text);
	/* A script that is open for writing is not executed. */
	int fd = must(open(in_work("script"), O_RDONLY)), own = must(open(self(), O_RDONLY));
	for (int other = 3; other < fd; other++)
		close(other);
	must(lock(fd, F_SETLK, F_RDLCK));
	must(lock(own, F_SETLK, F_RDLCK));
	stall(10, 3);
	go(in_work("script"), "x", "1");
}

CASE(by_descriptor)
{
	if (more[0]) {
		say_lock("after exec", self());
		return;
	}
	int fd = must(open(self(), O_RDONLY));
	must(lock(fd, F_SETLK, F_RDLCK));
	stall(10, 3);
	char *argv[] = { "again", "by_descriptor", "1", 0 };
	extern char **environ;
	must(syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH));
}

CASE(executed_by_a_child)
{
	int fd = must(open(self(), O_RDONLY));
	if (more[0]) {
		/* Its own: none is inherited. */
		say_lock("in the child", self());
		return;
	}
	must(lock(fd, F_SETLK, F_RDLCK));
	for (int i = 0; i < 2; i++) {
		stall(10 + 3 * i, 3);
		pid_t child = must(i ? vfork() : fork());
		if (child == 0) {
			char *argv[] = { "again", "executed_by_a_child", "1", 0 };
			execv(self(), argv);
			_exit(96);
		}
		ended("child", child);
		say_lock("in the parent", self());
	}
}

CASE(while_files_are_waited_for)
{
	int fd = locked("file", "text\n");
	char byte;
	for (int i = 0; i < 5; i++) {
		stall(10 + 4 * i, 4);
		must(fdatasync(fd));
		must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
		must(pread(fd, &byte, 1, 0));
		struct stat st;
		must(stat(in_work("file"), &st));
		must(access(in_work("file"), R_OK));
		say_lock("after waits", in_work("file"));
	}
	/* And as ever by a close of any descriptor. */
	must(close(must(open(in_work("file"), O_RDONLY))));
	say_lock("after a close", in_work("file"));
}

CASE(of_descriptions)
{
	if (more[0]) {
		say_lock("of a description", in_work("ofd"));
		int fd = must(open(in_work("flock"), O_RDONLY));
		show(flock(fd, LOCK_EX | LOCK_NB));
		return;
	}
	write_file(in_work("ofd"), "#!/nonexistent\n", 0755);
	write_file(in_work("flock"), "#!/nonexistent\n", 0755);
	must(lock(must(open(in_work("ofd"), O_RDWR)), F_OFD_SETLK, F_WRLCK));
	must(flock(must(open(in_work("flock"), O_RDWR)), LOCK_EX));
	stall(10, 3);
	go(in_work("ofd"), "x", "1");
	go(in_work("flock"), "x", "1");
	go(self(), "of_descriptions", "1");
}
