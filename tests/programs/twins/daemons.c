/* Processes that leave: sessions, orphans, other names, roots, users and namespaces. */
#include "twin.h"
#include <grp.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <linux/capability.h>

static void wait_for_file(const char *path)
{
	struct stat st;
	for (int i = 0; i < 10000 && stat(path, &st); i++)
		usleep(1000);
}

/* Written under another name first, so that a reader that waits for it sees all of it. */
static void leave(const char *name, const char *text)
{
	char *other = in_work("unfinished");
	write_file(other, text, 0644);
	must(rename(other, in_work(name)));
}

CASE(forked_twice)
{
	must(prctl(PR_SET_CHILD_SUBREAPER, 1));
	pid_t child = must(fork());
	if (child == 0) {
		must(setsid());
		if (must(fork()))
			_exit(0);
		char text[100];
		while (getppid() == getpgrp())
			usleep(500);
		umask(0);
		must(chdir("/"));
		int null = must(open("/dev/null", O_RDWR));
		dup2(null, 0), dup2(null, 1), dup2(null, 2);
		stall(10, 10);
		snprintf(text, sizeof text, "leads %d, session of its parent %d\n", getsid(0) == getpid(), getsid(0) == getpgrp());
		leave("daemon", text);
		_exit(33);
	}
	ended("first", child);
	wait_for_file(in_work("daemon"));
	int status;
	ask(wait(&status) != child);
	print_status("daemon", status);
}

/* An orphan that only init adopts; the harness sees what it leaves. */
CASE(that_outlives_its_parent)
{
	pid_t child = must(fork());
	if (child == 0) {
		setsid();
		if (must(fork()))
			_exit(0);
		close(0), close(1), close(2);
		stall(10, 10);
		leave("alive", "still running\n");
		_exit(0);
	}
	ended("first", child);
	wait_for_file(in_work("alive"));
}

static volatile int told;
static void tell(int s) { told++; }

CASE(death_of_a_parent)
{
	int p[2];
	char c;
	must(pipe(p));
	must(prctl(PR_SET_CHILD_SUBREAPER, 1));
	pid_t child = must(fork());
	if (child == 0) {
		pid_t mine = must(fork());
		if (mine == 0) {
			sigset_t usr1 = set_of(SIGUSR1, 0), old;
			sigprocmask(SIG_BLOCK, &usr1, &old);
			on(SIGUSR1, tell, 0);
			must(prctl(PR_SET_PDEATHSIG, SIGUSR1));
			must(write(p[1], "x", 1));
			stall(10, 10);
			while (!told)
				sigsuspend(&old);
			int signal = 0;
			prctl(PR_GET_PDEATHSIG, &signal);
			_exit(told + 10 * (signal == SIGUSR1));
		}
		must(read(p[0], &c, 1));
		stall(30, 3);
		_exit(0);
	}
	ended("parent", child);
	int status;
	must(wait(&status));
	print_status("child", status);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	pid_t third = must(fork());
	if (third == 0) {
		int signal = -1;
		prctl(PR_GET_PDEATHSIG, &signal);
		_exit(signal);
	}
	ended("not inherited", third);
}

CASE(names)
{
	char name[20], comm[20] = "";
	must(prctl(PR_SET_NAME, "a name that is too long"));
	stall(10, 5);
	prctl(PR_GET_NAME, name);
	int fd = must(open("/proc/self/comm", O_RDWR));
	read(fd, comm, 19);
	printf("%s %s", name, comm);
	must(write(fd, "by file", 7));
	prctl(PR_GET_NAME, name);
	puts(name);
	ended("true", ({ pid_t p = fork(); if (!p) execl("/bin/sh", "sh", "-c", "cat /proc/$$/comm", (char *)0); p; }));
}

CASE(dumpable)
{
	show(prctl(PR_SET_DUMPABLE, 0));
	stall(10, 10);
	show(prctl(PR_GET_DUMPABLE));
	struct stat st;
	show(stat("/proc/self/mem", &st));
	printf("owner %d\n", st.st_uid);
	show(prctl(PR_SET_DUMPABLE, 2));
	show(prctl(PR_SET_DUMPABLE, 1));
	stall(20, 10);
	show(prctl(PR_GET_DUMPABLE));
}

CASE(sessions_and_groups)
{
	pid_t child = must(fork());
	if (child == 0) {
		ask(setsid() == getpid());
		show(setsid());
		show(setpgid(0, 0));
		stall(10, 3);
		pid_t inner = must(fork());
		if (inner == 0) {
			show(setpgid(0, 0));
			ask(getpgrp() == getpid());
			show(setpgid(0, 1));
			show(open("/dev/tty", O_RDWR));
			_exit(0);
		}
		ended("inner", inner);
		show(setpgid(inner, inner));
		show(getpgid(inner));
		show(tcgetpgrp(0));
		_exit(0);
	}
	ended("child", child);
	show(getsid(999999));
}

CASE(another_root)
{
	pid_t child = must(fork());
	if (child == 0) {
		char buf[10] = "";
		must(mkdir(in_work("root"), 0755));
		write_file(in_work("root/file"), "inside", 0644);
		int out = must(open(".", O_RDONLY | O_DIRECTORY));
		stall(10, 3);
		must(chroot(in_work("root")));
		must(chdir("/"));
		int fd = must(open("/file", O_RDONLY));
		read(fd, buf, 6);
		puts(buf);
		show(open("/etc/passwd", O_RDONLY));
		must(fchdir(out));
		fd = must(open("many/20", O_RDONLY));
		show(read(fd, buf, 9));
		printf("%.9s\n", buf);
		show(open("/many/20", O_RDONLY));
		_exit(4);
	}
	ended("child", child);
	stall(20, 3);
}

CASE(another_user)
{
	write_file(in_work("secret"), "for root", 0600);
	chmod(getenv("W"), 0777);
	pid_t child = must(fork());
	if (child == 0) {
		show(open(in_work("secret"), O_RDONLY) >= 0);
		must(setgroups(0, 0));
		must(setresgid(65534, 65534, 65534));
		must(setresuid(65534, 65534, 65534));
		show(open(in_work("secret"), O_RDONLY));
		show(setuid(0));
		show(chroot("/"));
		show(kill(1, 0));
		int fd = open(in_work("of nobody"), O_WRONLY | O_CREAT, 0644);
		printf("%d %d %d %d\n", fd >= 0, getuid(), geteuid(), prctl(PR_GET_DUMPABLE));
		_exit(6);
	}
	ended("child", child);
	struct stat st;
	show(stat(in_work("of nobody"), &st));
	printf("owner %d\n", st.st_uid);
	chmod(getenv("W"), 0755);
}

CASE(another_file_user)
{
	write_file(in_work("secret"), "for root", 0600);
	for (int i = 0; i < 3; i++) {
		show(syscall(SYS_setfsuid, 65534));
		show(open(in_work("secret"), O_RDONLY));
		stall(10 + 10 * i, 3);
		show(syscall(SYS_setfsuid, 0));
		int fd = open(in_work("secret"), O_RDONLY);
		ask(fd >= 0);
		close(fd);
	}
	must(seteuid(65534));
	show(open(in_work("secret"), O_RDONLY));
	must(seteuid(0));
	ask(open(in_work("secret"), O_RDONLY) >= 0);
	stall(40, 4);
}

static void *becomes_nobody(void *arg)
{
	must(syscall(SYS_setresuid, -1, 65534, -1));
	printf("this thread %d\n", (int)syscall(SYS_geteuid));
	return 0;
}

CASE(another_user_in_one_thread)
{
	pthread_t t;
	pthread_create(&t, 0, becomes_nobody, 0);
	stall(10, 5);
	pthread_join(t, 0);
	printf("the first %d\n", geteuid());
	stall(20, 5);
}

CASE(mounts_of_its_own)
{
	pid_t child = must(fork());
	if (child == 0) {
		char *at = in_work("mnt");
		struct statfs s;
		must(mkdir(at, 0700));
		must(unshare(CLONE_NEWNS));
		must(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
		must(mount("twin", at, "tmpfs", 0, "size=64k"));
		stall(10, 5);
		write_file(in_work("mnt/file"), "on tmpfs", 0600);
		statfs(at, &s);
		printf("%lx\n", (long)s.f_type);
		must(chdir(at));
		show(umount(at));
		must(chdir("/"));
		stall(20, 5);
		show(umount(at));
		show(umount(at));
		_exit(0);
	}
	ended("child", child);
	show(rmdir(in_work("mnt")));
}

CASE(users_of_its_own)
{
	pid_t child = must(fork());
	if (child == 0) {
		show(unshare(CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWNET));
		printf("uid %d\n", getuid());
		FILE *f = fopen("/proc/self/uid_map", "w");
		fputs("0 0 1", f);
		show(fclose(f));
		printf("uid %d\n", getuid());
		stall(10, 5);
		show(sethostname("inside", 6));
		_exit(0);
	}
	ended("child", child);
	stall(20, 5);
}

CASE(fewer_capabilities)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { 0 };
	write_file(in_work("closed"), "text", 0);
	ask(open(in_work("closed"), O_RDONLY) >= 0);
	must(syscall(SYS_capset, &h, d));
	show(open(in_work("closed"), O_RDONLY));
	stall(10, 10);
	show(chown(in_work("closed"), 1, 1));
	show(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	stall(20, 10);
	ended("child", ({ pid_t p = fork(); if (!p) execl("/bin/sh", "sh", "-c", "cat \"$W/closed\" 2> /dev/null; echo $?", (char *)0); p; }));
}
