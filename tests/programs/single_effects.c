/* After a stall, with a shadow running ahead of it, does things that must be done once. */
#include "program_helpers.h"
#include <sys/ipc.h>
#include <sys/shm.h>

static volatile sig_atomic_t signals;

static void count(int s)
{
	signals++;
}

static char *at(const char *name)
{
	static char path[2][4096];
	static int which;
	which = !which;
	snprintf(path[which], sizeof path[which], "%s/%s", getenv("W"), name);
	return path[which];
}

int main(void)
{
	signal(SIGUSR1, count);
	int log = must(open(at("log"), O_WRONLY | O_APPEND | O_CREAT, 0644));
	int plain = must(open(at("plain"), O_RDWR | O_CREAT | O_TRUNC, 0644));
	must(ftruncate(plain, 4096));
	unsigned *in_file = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0);
	unsigned *anonymous = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int segment = must(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600));
	unsigned *sysv = shmat(segment, 0, 0);
	must(shmctl(segment, IPC_RMID, 0));
	int p[2], pair[2];
	must(pipe2(p, O_NONBLOCK));
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	snprintf(name.sun_path, sizeof name.sun_path, "%s/s", getenv("W"));
	int listener = must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	must(bind(listener, (struct sockaddr *)&name, sizeof name));
	must(listen(listener, 100));
	for (int i = 0; i < 12; i++) {
		char a[32], b[32];
		snprintf(a, sizeof a, "a%d", i);
		snprintf(b, sizeof b, "b%d", i);
		close(must(open(at(a), O_CREAT | O_WRONLY, 0600)));
	}
	/* Each round: a stall, and then the effects, which a shadow of that stall reaches as well. */
	for (int i = 0; i < 12; i++) {
		char a[32], b[32], d[32];
		snprintf(a, sizeof a, "a%d", i);
		snprintf(b, sizeof b, "b%d", i);
		snprintf(d, sizeof d, "d%d", i);
		stall_on(i * 5, 1);
		must(write(log, "once\n", 5));
		must(pwrite(plain, "z", 1, 2000 + i));
		++*in_file, ++*anonymous, ++*sysv;
		must(write(p[1], "p", 1));
		must(send(pair[0], "d", 1, 0));
		int s = must(socket(AF_UNIX, SOCK_STREAM, 0));
		must(connect(s, (struct sockaddr *)&name, sizeof name));
		close(s);
		must(kill(getpid(), SIGUSR1));
		must(rename(at(a), at(b)));
		must(chmod(at(b), 0640 + i % 8));
		must(mkdir(at(d), 0700));
		if (i % 2)
			must(unlink(at(b)));
		close(must(open(at("log"), O_WRONLY | O_CREAT | O_APPEND, 0600)));
		close(must(open(at(d), O_RDONLY)));
		void *more = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0);
		++((unsigned *)more)[1];
		munmap(more, 4096);
		if (i == 5 && fork() == 0)
			_exit(must(write(log, "child\n", 6)) != 6);
		if (i == 5) { // Its line comes before ours.
			siginfo_t info;
			must(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT));
		}
		stall_on(i * 5 + 1, 4);
	}
	char buf[4096];
	int datagrams = 0, connections = 0;
	printf("file %u %u, anonymous %u, sysv %u, signals %d\n", in_file[0], in_file[1], *anonymous, *sysv, signals);
	printf("pipe %zd\n", read(p[0], buf, sizeof buf));
	while (recv(pair[1], buf, sizeof buf, MSG_DONTWAIT) > 0)
		datagrams++;
	while (accept(listener, 0, 0) >= 0)
		connections++;
	printf("datagrams %d, connections %d\n", datagrams, connections);
	printf("children %d\n", wait(0) > 0);
	unlink(name.sun_path);
	return 0;
}
