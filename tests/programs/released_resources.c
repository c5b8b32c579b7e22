/* Gives something up while a shadow lives, and shows that it is really free. */
#include "program_helpers.h"
#include <sys/file.h>

/* Closes its output, says so elsewhere, and lives on until it is told. */
static void end_of_file(int fd)
{
	char c;
	stall_on(0, 20);
	must(write(fd, "last words\n", 11));
	close(fd);
	/* Ends when the test, which has seen the end of the pipe, closes its side of our input. */
	must(read(0, &c, 1));
	must(write(2, "after\n", 6));
}

static void locks(void)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/lock", getenv("W"));
	for (int i = 0; i < 20; i++) {
		int mine = must(open(path, O_RDWR | O_CREAT, 0600));
		must(flock(mine, LOCK_EX));
		struct flock whole = { .l_type = F_WRLCK };
		must(fcntl(mine, F_OFD_SETLK, &whole));
		stall_on(i * 3, 3);
		close(mine);
		int other = must(open(path, O_RDWR));
		show(flock(other, LOCK_EX | LOCK_NB));
		show(fcntl(other, F_OFD_SETLK, &whole));
		close(other);
	}
}

static void text_busy(void)
{
	char path[4096];
	for (int i = 0; i < 10; i++) {
		snprintf(path, sizeof path, "%s/script%d", getenv("W"), i);
		int fd = must(open(path, O_WRONLY | O_CREAT | O_EXCL, 0700)), in = must(open("/bin/true", O_RDONLY));
		while (sendfile(fd, in, 0, 1 << 20) > 0)
			;
		stall_on(i * 6, 6);
		close(fd);
		pid_t pid = must(vfork());
		if (pid == 0) {
			execl(path, path, NULL);
			_exit(errno);
		}
		int status;
		must(waitpid(pid, &status, 0));
		printf("%d: %x\n", i, status);
	}
}

/* A pipe between two of the program's own ends: the last writer gone means the end. */
static void own_pipe(void)
{
	char buf[64];
	for (int i = 0; i < 20; i++) {
		int p[2], s[2];
		must(pipe(p));
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
		stall_on(i * 3, 3);
		must(write(p[1], "abc", 3));
		close(p[1]);
		close(s[1]);
		show(read(p[0], buf, 64));
		show(read(p[0], buf, 64));
		show(read(s[0], buf, 64));
		show(send(s[0], "x", 1, MSG_NOSIGNAL));
		close(p[0]);
		close(s[0]);
	}
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[1], "eof"))
		end_of_file(argv[2] ? atoi(argv[2]) : 1);
	else if (!strcmp(argv[1], "input")) {
		char c;
		stall_on(0, 20);
		must(read(0, &c, 1));
		close(0);
		puts("closed");
		fflush(stdout);
		must(open(argv[2], O_RDONLY));
		puts("ended");
	}
	else if (!strcmp(argv[1], "locks"))
		locks();
	else if (!strcmp(argv[1], "text"))
		text_busy();
	else
		own_pipe();
	return 0;
}
