/* clone and clone3, with all that can be shared or not. */
#include "twin.h"
#include <linux/sched.h>
#include <sys/utsname.h>

static char stack[256 << 10] __attribute__((aligned(64)));
#define TOP (stack + sizeof stack)
static volatile int shared;

static int reads(void *arg)
{
	stall(20, 3);
	shared += (long)arg;
	return (long)arg;
}

CASE(with_a_stack_of_its_own)
{
	pid_t child = must(clone(reads, TOP, SIGCHLD, (void *)4));
	ended("child", child);
	printf("shared %d\n", shared);
}

CASE(with_its_memory_shared)
{
	for (long i = 1; i < 4; i++) {
		pid_t child = must(clone(reads, TOP, CLONE_VM | SIGCHLD, (void *)i));
		ended("child", child);
		printf("shared %d\n", shared);
	}
}

CASE(like_vfork)
{
	for (long i = 1; i < 6; i++) {
		pid_t child = must(clone(reads, TOP, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)i));
		printf("shared %d\n", shared);
		ended("child", child);
	}
}

static volatile long totals[2];

static int raw_reader(void *arg)
{
	char name[] = "many/30";
	for (int i = 0; i < 10; i++) {
		name[6] = '0' + i;
		totals[0] += raw_read_file(name);
	}
	raw(SYS_exit, 3, 0, 0, 0, 0, 0);
	return 0;
}

CASE(two_processes_on_one_memory_read)
{
	char name[] = "many/40";
	pid_t child = must(clone(raw_reader, TOP, CLONE_VM | SIGCHLD, 0));
	for (int i = 0; i < 10; i++) {
		name[6] = '0' + i;
		totals[1] += raw_read_file(name);
	}
	ended("child", child);
	printf("%ld %ld\n", totals[0], totals[1]);
}

static int opens(void *arg)
{
	int fd = open("many/33", O_RDONLY);
	close((long)arg);
	_exit(fd);
}

CASE(descriptors_shared_and_not_memory)
{
	for (int i = 0; i < 3; i++) {
		int fd = must(open("data", O_RDONLY));
		pid_t child = must(clone(opens, TOP, CLONE_FILES | SIGCHLD, (void *)(long)fd));
		ended("its descriptor", child);
		printf("ours: %s, its: %s\n", yes(fcntl(fd, F_GETFD) == 0), yes(fcntl(4, F_GETFD) == 0));
		char buf[100];
		show(read(4, buf, 100));
		printf("%.3s\n", buf);
		close(4);
		stall(40 + i, 1);
	}
}

static int unshares_files(void *arg)
{
	must(unshare(CLONE_FILES));
	stall(10, 2);
	close((long)arg);
	_exit(must(open("data", O_RDONLY)));
}

CASE(descriptors_shared_and_unshared)
{
	int fd = must(open("data", O_RDONLY));
	pid_t child = must(clone(unshares_files, TOP, CLONE_FILES | SIGCHLD, (void *)(long)fd));
	ended("its descriptor", child);
	ask(fcntl(fd, F_GETFD) == 0);
}

static int changes_directory(void *arg)
{
	must(chdir(arg));
	umask(077);
	_exit(0);
}

CASE(working_directory_shared)
{
	struct stat st;
	umask(022);
	ended("child", must(clone(changes_directory, TOP, CLONE_FS | SIGCHLD, "many")));
	printf("%d, umask %o\n", stat("07", &st), umask(0));
	stall(10, 2);
	int fd = must(open("08", O_RDONLY));
	ask(fcntl(fd, F_GETFD) == 0);
	ended("child", must(clone(changes_directory, TOP, SIGCHLD, "..")));
	ask(stat("07", &st) == 0);
}

CASE(a_sibling_by_clone_parent)
{
	pid_t middle = must(fork());
	if (middle == 0) {
		static int p[2];
		must(pipe(p));
		pid_t sibling = must(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0));
		if (sibling == 0) {
			stall(10, 3);
			_exit(12);
		}
		show(wait(0));
		stall(20, 3);
		_exit(13);
	}
	int status, exits = 0;
	ended("middle", middle);
	pid_t other = must(wait(&status));
	ask(other != middle);
	print_status("sibling", status);
	show(wait(&exits));
}

static void handler(int s) {}

static int sets_handler(void *arg)
{
	on(SIGUSR1, handler, SA_RESTART);
	on(SIGSYS, SIG_IGN, 0);
	_exit(0);
}

CASE(handlers_shared)
{
	struct sigaction a;
	ended("child", must(clone(sets_handler, TOP, CLONE_VM | CLONE_SIGHAND | SIGCHLD, 0)));
	sigaction(SIGUSR1, 0, &a);
	printf("%s %d\n", yes(a.sa_handler == handler), !!(a.sa_flags & SA_RESTART));
	sigaction(SIGSYS, 0, &a);
	ask(a.sa_handler == SIG_IGN);
	on(SIGUSR1, SIG_DFL, 0);
	on(SIGSYS, SIG_DFL, 0);
	ended("child", must(clone(sets_handler, TOP, CLONE_VM | SIGCHLD, 0)));
	sigaction(SIGUSR1, 0, &a);
	ask(a.sa_handler == SIG_DFL);
	stall(20, 2);
}

static volatile int got_usr1;
static void count_usr1(int s) { got_usr1++; }

CASE(another_exit_signal)
{
	int status = 0;
	on(SIGUSR1, count_usr1, 0);
	pid_t child = must(clone(reads, TOP, SIGUSR1, (void *)6));
	show(waitpid(child, &status, 0));
	ask(waitpid(child, &status, __WCLONE) == child);
	print_status("child", status);
	stall(30, 3);
	printf("usr1 %d\n", got_usr1);
}

CASE(no_exit_signal)
{
	int status = 0;
	for (int i = 0; i < 3; i++) {
		pid_t child = must(clone(reads, TOP, 0, (void *)5));
		show(wait(&status));
		show(waitpid(child, &status, 0));
		ask(waitpid(-1, &status, __WCLONE) == child);
		print_status("child", status);
		show(waitpid(-1, &status, __WALL));
	}
}

CASE(identifiers_written_at_birth_and_death)
{
	pid_t *ids = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ids[1] = 7;
	pid_t child = must(syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, 0, &ids[0], &ids[1], 0));
	if (child == 0) {
		stall(10, 3);
		_exit(ids[1] == getpid());
	}
	ask(ids[0] == child);
	ended("child found itself", child);
	ask(ids[1] == child);
}

CASE(a_host_of_its_own)
{
	struct utsname u, before;
	uname(&before);
	pid_t child = must(syscall(SYS_clone, CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0));
	if (child == 0) {
		must(sethostname("twin", 4));
		stall(10, 4);
		uname(&u);
		puts(u.nodename);
		_exit(0);
	}
	ended("child", child);
	uname(&u);
	ask(!strcmp(u.nodename, before.nodename));
}
