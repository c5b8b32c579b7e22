/* Limits: programs that have hardly any of something. */
#include "twin.h"

static void limit(int what, rlim_t value)
{
	struct rlimit r = { value, value };
	must(setrlimit(what, &r));
}

static unsigned read_by(const char *name)
{
	char buf[6000];
	int fd = open(name, O_RDONLY);
	if (fd < 0)
		return errno;
	ssize_t n = read(fd, buf, sizeof buf);
	close(fd);
	return n < 0 ? 1000 + errno : sum(buf, n);
}

CASE(few_descriptors)
{
	limit(RLIMIT_NOFILE, 8);
	int fds[10], n = 0;
	while (n < 10 && (fds[n] = open("data", O_RDONLY)) >= 0)
		n++;
	printf("%d opened, then %s\n", n, strerrorname_np(errno));
	show(dup(0));
	show(socket(AF_UNIX, SOCK_STREAM, 0));
	show(fcntl(0, F_DUPFD, 8));
	int p[2];
	show(pipe(p));
	close(fds[--n]);
	for (int i = 0; i < 20; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 10 + i);
		printf("%u\n", read_by(name));
	}
	show(open("data", O_RDONLY));
	close(7);
}

CASE(no_descriptor_at_all)
{
	char buf[100];
	struct stat st;
	int fd = must(open("many/20", O_RDONLY));
	limit(RLIMIT_NOFILE, 0);
	show(open("data", O_RDONLY));
	show(read(fd, buf, 100));
	show(pread(fd, buf, 100, 3000));
	show(stat("many/21", &st));
	printf("%d\n", (int)st.st_size);
	show(access("many/22", R_OK));
	show(readlink("odd/link", buf, 100));
	pid_t child = must(fork());
	if (child == 0)
		_exit(read(fd, buf, 50));
	ended("child", child);
	_exit(3);
}

CASE(lower_than_what_is_open)
{
	int fd = must(open("many/20", O_RDONLY)), high = must(fcntl(fd, F_DUPFD, 90));
	char buf[100];
	limit(RLIMIT_NOFILE, 20);
	show(read(high, buf, 100));
	stall(30, 10);
	show(dup2(fd, 90));
	show(dup2(fd, 19));
	show(close(high));
	show(dup2(fd, 90));
	struct pollfd many[30] = { 0 };
	show(poll(many, 30, 0));
}

CASE(little_address_space)
{
	pid_t child = must(fork());
	if (child == 0) {
		long pages = 0;
		FILE *f = fopen("/proc/self/statm", "r");
		fscanf(f, "%ld", &pages);
		fclose(f);
		limit(RLIMIT_AS, (pages << 12) + (8 << 20));
		ask(mmap(0, 64 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
		stall(10, 10);
		ask(malloc(32 << 20) == 0);
		stall(20, 10);
		pid_t inner = must(fork());
		if (inner == 0) {
			stall(30, 5);
			_exit(4);
		}
		ended("inner", inner);
		_exit(5);
	}
	ended("child", child);
}

CASE(a_small_heap)
{
	limit(RLIMIT_DATA, 4 << 20);
	ask(sbrk(64 << 20) == (void *)-1);
	stall(10, 10);
	ask(mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	stall(20, 10);
	pid_t child = must(fork());
	if (child == 0) {
		stall(30, 5);
		execl("/bin/echo", "echo", "an echo", (char *)0);
	}
	ended("child", child);
}

CASE(a_small_stack)
{
	if (more[0]) {
		struct rlimit r;
		getrlimit(RLIMIT_STACK, &r);
		printf("%ld\n", (long)r.rlim_cur);
		stall(10, 10);
		pid_t child = must(fork());
		if (child == 0) {
			stall(20, 10);
			_exit(2);
		}
		ended("child", child);
		return;
	}
	limit(RLIMIT_STACK, 128 << 10);
	stall(30, 5);
	execl(self(), "x", "a_small_stack", "1", (char *)0);
}

CASE(small_files)
{
	limit(RLIMIT_FSIZE, 5000);
	signal(SIGXFSZ, SIG_IGN);
	int fd = must(open(in_work("file"), O_RDWR | O_CREAT, 0600));
	char buf[4096] = { 'x' };
	show(write(fd, buf, 4096));
	show(write(fd, buf, 4096));
	show(write(fd, buf, 4096));
	show(ftruncate(fd, 5001));
	stall(10, 10);
	show(lseek(fd, 0, SEEK_END));
	pid_t child = must(fork());
	if (child == 0) {
		signal(SIGXFSZ, SIG_DFL);
		stall(20, 3);
		write(fd, buf, 1);
		_exit(0);
	}
	ended("child", child);
}

CASE(no_more_processes)
{
	chmod(getenv("W"), 0777);
	pid_t child = must(fork());
	if (child == 0) {
		must(setgid(65533));
		must(setuid(65533));
		limit(RLIMIT_NPROC, 2);
		int n = 0;
		pid_t first = fork();
		if (first == 0) {
			pause();
			_exit(0);
		}
		n += first > 0;
		errno = 0;
		show(fork());
		show(vfork());
		int error = pthread_create(&(pthread_t){ 0 }, 0, (void *(*)(void *))pause, 0);
		printf("%s\n", strerrorname_np(error));
		stall(10, 10);
		kill(first, SIGKILL);
		ended("first", first);
		first = fork();
		if (first == 0)
			_exit(9);
		ended("again", first);
		_exit(n);
	}
	ended("child", child);
	chmod(getenv("W"), 0755);
}

CASE(little_processor_time)
{
	pid_t child = must(fork());
	if (child == 0) {
		struct rlimit r = { 1, 2 };
		must(setrlimit(RLIMIT_CPU, &r));
		stall(10, 10);
		kill(getpid(), SIGXCPU);
		_exit(0);
	}
	ended("child", child);
}

CASE(limits_of_another)
{
	struct rlimit r = { 55, 66 }, old;
	int p[2];
	char c;
	must(pipe(p));
	pid_t child = must(fork());
	if (child == 0) {
		close(p[1]);
		read(p[0], &c, 1);
		getrlimit(RLIMIT_NOFILE, &r);
		stall(10, 5);
		_exit(r.rlim_cur);
	}
	show(prlimit(child, RLIMIT_NOFILE, &r, &old));
	show(prlimit(999999, RLIMIT_NOFILE, &r, 0));
	close(p[1]);
	ended("child", child);
}
