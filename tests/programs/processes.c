/* Children, threads, and what they see of each other. */
#include "program_helpers.h"
#include <linux/sched.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/statfs.h>

extern char **environ;

static void waits(void)
{
	siginfo_t info = { 0 };
	int status = 0;
	stall_on(0, 20);
	show(wait(0));
	show(waitpid(-1, 0, __WALL));
	show(waitpid(-1, 0, __WCLONE | WNOHANG));
	show(waitpid(0, 0, WNOHANG));
	show(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WALL));
	pid_t child = must(fork());
	if (child == 0) {
		stall_on(20, 5);
		_exit(9);
	}
	stall_on(25, 5);
	show(waitpid(-1, &status, __WALL) == child);
	printf("status %x\n", status);
	show(wait(0));
	struct rusage usage;
	show(getrusage(RUSAGE_CHILDREN, &usage));
}

static int child_body(void *arg)
{
	char text[64];
	snprintf(text, sizeof text, "child %s, parent is %s\n", (char *)arg, getppid() == getpgid(0) || getppid() > 1 ? "there" : "gone");
	must(write(1, text, strlen(text)));
	int fd = must(open("many/33", O_RDONLY));
	char buf[100];
	must(read(fd, buf, 100));
	_exit(4);
}

static void end_of(const char *what, pid_t pid)
{
	int status = 0;
	pid_t got = waitpid(pid, &status, __WALL);
	printf("%s: %d, status %x\n", what, got == pid, status);
	fflush(stdout);
	stall_on(0, 2);
}

static void ways(void)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	char *echo[] = { "echo", "from another program", NULL };
	stall_on(0, 10);
	fflush(stdout);
	for (int i = 0; i < 12; i++) {
		pid_t me = getpid(), pid = must(fork());
		if (pid == 0) {
			if (getppid() != me)
				_exit(1);
			child_body("fork");
		}
		end_of("fork", pid);
	}
	for (int i = 0; i < 12; i++) {
		pid_t pid = must(vfork());
		if (pid == 0) {
			execvp("echo", echo);
			_exit(1);
		}
		end_of("vfork", pid);
		must(posix_spawnp(&pid, "echo", 0, 0, echo, environ));
		end_of("spawn", pid);
		pid = must(clone(child_body, stack + sizeof stack, SIGCHLD, "clone"));
		end_of("clone", pid);
		pid = must(clone(child_body, stack + sizeof stack, CLONE_VFORK | SIGCHLD, "clone vfork"));
		end_of("clone vfork", pid);
		struct clone_args args = { .exit_signal = SIGCHLD };
		pid = must(syscall(SYS_clone3, &args, sizeof args));
		if (pid == 0)
			child_body("clone3");
		end_of("clone3", pid);
		if (system("echo a shell; exit 6") != 6 << 8)
			puts("system failed");
		FILE *f = popen("echo a pipe", "r");
		char line[64] = "";
		if (!fgets(line, sizeof line, f))
			puts("no line");
		printf("%s%x\n", line, pclose(f));
	}
	pid_t pid = must(clone(child_body, stack + sizeof stack, CLONE_VM | SIGCHLD, "clone vm"));
	end_of("clone vm", pid);
}

static void *reader(void *arg)
{
	long me = (long)arg;
	unsigned h = 0;
	char name[32], buf[3000];
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 64; i++) {
			struct stat st;
			snprintf(name, sizeof name, "many/%02ld", (i * (me * 2 + 1)) % 64);
			int fd = must(open(name, O_RDONLY));
			ssize_t n;
			while ((n = must(read(fd, buf, sizeof buf))) > 0)
				h = h * 31 + sum(buf, n);
			must(fstat(fd, &st));
			h += st.st_size;
			must(close(fd));
		}
	return (void *)(long)h;
}

static void threads(void)
{
	pthread_t t[4];
	void *h;
	stall_on(0, 10);
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], 0, reader, (void *)i);
	printf("main %u\n", (unsigned)(long)reader((void *)4));
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &h);
		printf("%d: %u\n", i, (unsigned)(long)h);
	}
	stall_on(10, 10);
}

/* The attributes of every second file of the tree's directories, as git's index is compared. */
static void *looker(void *arg)
{
	long sizes = 0;
	for (int dir = 0; dir < 12; dir++) {
		for (long file = (long)arg; file < 20; file += 2) {
			struct stat st;
			char name[64];
			if (dir % 3 == 2)
				snprintf(name, sizeof name, "src/d%d/d%d/f%ld.c", dir - 1, dir, file);
			else
				snprintf(name, sizeof name, "src/d%d/f%ld.c", dir, file);
			must(stat(name, &st));
			sizes += st.st_size;
		}
	}
	return (void *)sizes;
}

static void lookers(void)
{
	pthread_t t[2];
	void *sizes;
	stall_on(0, 10);
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], 0, looker, (void *)i);
	for (int i = 0; i < 2; i++) {
		pthread_join(t[i], &sizes);
		printf("%d: %ld\n", i, (long)sizes);
	}
}

/* open(2) gives the lowest free number, whatever other threads only look at. */
static void *lowest(void *arg)
{
	long wrong = 0;
	for (int i = 0; i < 30000; i++) {
		int fd = open("/dev/null", O_RDONLY);
		wrong += fd != 3;
		close(fd);
	}
	return (void *)wrong;
}

static volatile int done;

static void numbers(void)
{
	pthread_t t;
	struct stat st;
	char name[64];
	void *wrong;
	stall_on(0, 10);
	pthread_create(&t, 0, lowest, 0);
	for (int i = 0; i < 240 * 20; i++) {
		snprintf(name, sizeof name, "many/%02d", i % 64);
		stat(name, &st);
	}
	pthread_join(t, &wrong);
	printf("wrong numbers: %ld\n", (long)wrong);
}

static void *replace(void *arg)
{
	int p[2];
	must(pipe(p));
	must(dup2(p[0], 30));
	must(write(p[1], "five!", 5));
	return 0;
}

static void replaced(void)
{
	pthread_t t;
	char buf[100];
	int fd = must(open("data", O_RDONLY));
	must(dup2(fd, 30));
	must(read(30, buf, 10));
	pthread_create(&t, 0, replace, 0);
	pthread_join(t, 0);
	stall_on(0, 3);
	show(read(30, buf, 100));
}

static void exec_self(char **argv)
{
	stall_on(0, 10);
	char *next[] = { argv[0], "exec", "again", NULL };
	if (argv[2]) {
		printf("%s %s\n", argv[1], argv[2]);
		show(dup(0));
		return;
	}
	execv("/proc/self/exe", next);
}

static void *exec_thread(void *argv)
{
	exec_self(argv);
	return 0;
}

/* Calls by the 32-bit entry, which number calls differently. */
static void compat(void)
{
	long ret;
	stall_on(0, 5);
	for (int i = 0; i < 20; i++) {
		__asm__ volatile("int $0x80" : "=a"(ret) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
		printf("getpid %d\n", ret == getpid());
		__asm__ volatile("int $0x80" : "=a"(ret) : "a"(3L), "b"(99L), "c"(0L), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
		printf("read %ld\n", ret);
	}
}

/* A shared mapping longer than its file: an access behind the end faults. */
static void on_bus(int s)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/handler ran", getenv("W"));
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	if (fd >= 0)
		close(fd);
	_exit(3);
}

static void beyond_the_end(void)
{
	signal(SIGBUS, on_bus);
	char path[4096];
	snprintf(path, sizeof path, "%s/short", getenv("W"));
	int fd = must(open(path, O_RDWR | O_CREAT, 0600));
	must(write(fd, "x", 1));
	char *p = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	stall_on(0, 20);
	printf("%c\n", p[0]);
}

/* A lease is broken, with a signal, when another process opens the file. */
static void lease(void)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/leased", getenv("W"));
	int fd = must(open(path, O_RDWR | O_CREAT, 0600));
	must(fcntl(fd, F_SETLEASE, F_WRLCK));
	stall_on(0, 20);
	show(fcntl(fd, F_GETLEASE) == F_WRLCK);
}

/* Files that are closed and directories that are left are not in use any more. */
static void unmount(void)
{
	char file[] = "file";
	char at[4096];
	snprintf(at, sizeof at, "%s/mnt", getenv("W"));
	must(mkdir(at, 0700));
	must(mount("none", at, "tmpfs", 0, 0));
	int slow = must(open(".", O_RDONLY | O_DIRECTORY));
	must(chdir(at));
	int fd = must(open(file, O_RDWR | O_CREAT, 0600));
	must(ftruncate(fd, 0));
	char page[4096] = { 1 };
	for (int i = 0; i < 256; i++)
		must(write(fd, page, sizeof page));
	char name[32], buf[8192];
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "many/%02d", i);
		int in = must(openat(slow, name, O_RDONLY));
		must(read(in, buf, sizeof buf));
		close(in);
	}
	must(close(fd));
	must(unlink(file));
	must(fchdir(slow));
	show(umount(at));
}

int main(int argc, char **argv)
{
	const char *what = argv[1];
	pthread_t t;
	if (!strcmp(what, "waits"))
		waits();
	else if (!strcmp(what, "ways"))
		ways();
	else if (!strcmp(what, "threads"))
		threads();
	else if (!strcmp(what, "lookers"))
		lookers();
	else if (!strcmp(what, "numbers"))
		numbers();
	else if (!strcmp(what, "replaced"))
		replaced();
	else if (!strcmp(what, "exec"))
		exec_self(argv);
	else if (!strcmp(what, "exec in thread") && !argv[2]) {
		pthread_create(&t, 0, exec_thread, argv);
		pthread_join(t, 0);
	} else if (!strcmp(what, "compat"))
		compat();
	else if (!strcmp(what, "beyond"))
		beyond_the_end();
	else if (!strcmp(what, "lease"))
		lease();
	else if (!strcmp(what, "unmount"))
		unmount();
	return 0;
}
