/* Facts that a program can find out about itself. */
#include "twin.h"
#include <elf.h>
#include <asm/prctl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <linux/futex.h>

extern char **environ;

CASE(auxiliary_vector)
{
	char **e = environ;
	while (*e++)
		;
	for (ElfW(auxv_t) *a = (void *)e; a->a_type; a++)
		switch (a->a_type) {
		case AT_PHENT: case AT_PAGESZ: case AT_FLAGS: case AT_UID: case AT_EUID: case AT_GID: case AT_EGID:
		case AT_SECURE: case AT_CLKTCK: case AT_HWCAP: case AT_HWCAP2: case AT_PHNUM: case AT_MINSIGSTKSZ:
			printf("%ld: %lx\n", (long)a->a_type, (long)a->a_un.a_val);
			break;
		default:
			printf("%ld: %s\n", (long)a->a_type, a->a_un.a_val ? "something" : "nothing");
		}
	char name[4096], comm[20];
	ask(realpath((char *)getauxval(AT_EXECFN), name) && !strcmp(name, self()));
	ask(!strcmp((char *)getauxval(AT_PLATFORM), "x86_64"));
	prctl(PR_GET_NAME, comm);
	ask(!strncmp(strrchr(name, '/') + 1, comm, 15));
	ask(getauxval(AT_PHDR) % 8 == 0);
	ask(!memcmp((void *)getauxval(AT_SYSINFO_EHDR), ELFMAG, 4));
}

CASE(the_stack_at_the_start)
{
	char *last = 0, *exec = (char *)getauxval(AT_EXECFN);
	int in_order = 1;
	for (char **e = environ; *e; e++) {
		in_order &= !last || *e == last + strlen(last) + 1;
		last = *e;
	}
	ask(in_order);
	ask(last + strlen(last) + 1 == exec);
	ask((char *)&in_order < (char *)environ);
}

CASE(command_line_and_environment)
{
	char text[8192];
	int fd = must(open("/proc/self/cmdline", O_RDONLY));
	ssize_t n = must(read(fd, text, sizeof text));
	for (char *p = text, *end = text + n; p < end; p += strlen(p) + 1)
		printf("[%s]\n", strrchr(p, '/') ? strrchr(p, '/') + 1 : p);
	close(fd);
	fd = must(open("/proc/self/environ", O_RDONLY));
	n = must(read(fd, text, sizeof text));
	for (char *p = text, *end = text + n; p < end; p += strlen(p) + 1)
		printf("%s\n", p);
}

CASE(open_descriptors)
{
	char path[300], target[4096];
	for (int round = 0; round < 2; round++) {
		DIR *d = opendir("/proc/self/fd");
		for (struct dirent *e; (e = readdir(d));) {
			if (e->d_name[0] == '.')
				continue;
			snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
			ssize_t n = readlink(path, target, sizeof target - 1);
			target[n > 0 ? n : 0] = 0;
			char *kind = strchr(target, ':');
			printf("%s -> %.*s\n", e->d_name, kind ? (int)(kind - target) : atoi(e->d_name) < 3 ? 50 : 5, target);
		}
		closedir(d);
		stall(10, 10);
	}
}

CASE(numbers_of_descriptors)
{
	int fds[40], p[2], s[2];
	for (int i = 0; i < 40; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", i);
		fds[i] = open(name, O_RDONLY);
	}
	printf("%d to %d\n", fds[0], fds[39]);
	close(fds[7]), close(fds[3]);
	pipe(p);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	printf("%d %d %d %d\n", p[0], p[1], s[0], s[1]);
	printf("%d %d %d\n", dup(0), fcntl(0, F_DUPFD, 20), fcntl(0, F_DUPFD, 200));
	for (int fd = 1000; fd < 1100; fd++)
		if (fcntl(fd, F_GETFD) != -1)
			printf("%d is open\n", fd);
	show(syscall(SYS_close_range, 3, ~0u, 0));
	stall(50, 5);
	show(open("data", O_RDONLY));
}

CASE(status_of_the_process)
{
	char line[512];
	const char *fields[] = { "Tgid", "PPid", "TracerPid", "Uid", "Gid", "FDSize", "Groups", "Kthread", "Threads", "SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp:", "Seccomp_filters", "Umask", "CoreDumping", "THP_enabled", "Cpus_allowed_list", "VmLck", "VmPin", "VmSwap" };
	FILE *f = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, f))
		for (int i = 0; i < sizeof fields / sizeof *fields; i++)
			if (!strncmp(line, fields[i], strlen(fields[i]))) {
				if (!strcmp(fields[i], "Tgid"))
					printf("Tgid %s\n", yes(atoi(line + 5) == getpid()));
				else if (!strcmp(fields[i], "PPid"))
					printf("PPid %s\n", yes(atoi(line + 5) == getppid()));
				else if (strcmp(fields[i], "SigQ"))
					fputs(line, stdout);
			}
	fclose(f);
	/* Without SIGSYS, which is known to show. */
	printf("caught %lx\n", proc_number("/proc/self/status", "SigCgt:", 16) & ~(1l << 30));
}

static void print_file(const char *path)
{
	char line[512];
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		fputs(line, stdout);
	if (f)
		fclose(f);
}

CASE(limits_and_settings)
{
	print_file("/proc/self/limits");
	print_file("/proc/self/oom_score_adj");
	print_file("/proc/self/coredump_filter");
	print_file("/proc/self/cgroup");
	print_file("/proc/self/personality");
	print_file("/proc/self/timerslack_ns");
	for (int i = 0; i < 16; i++) {
		struct rlimit r, again;
		getrlimit(i, &r);
		must(setrlimit(i, &r));
		getrlimit(i, &again);
		printf("%d: %lx %lx %d\n", i, (long)r.rlim_cur, (long)r.rlim_max, !memcmp(&r, &again, sizeof r));
	}
}

CASE(what_prctl_says)
{
	int signal = -1, reaper = -1, tsc = -1;
	unsigned long tid = 0;
	show(prctl(PR_GET_DUMPABLE));
	show(prctl(PR_GET_KEEPCAPS));
	show(prctl(PR_GET_PDEATHSIG, &signal));
	show(prctl(PR_GET_CHILD_SUBREAPER, &reaper));
	show(prctl(PR_GET_TSC, &tsc));
	printf("%d %d %d\n", signal, reaper, tsc);
	show(prctl(PR_GET_SECCOMP));
	show(prctl(PR_GET_SECUREBITS));
	show(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	show(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	show(prctl(PR_GET_TIMERSLACK));
	show(prctl(PR_GET_TIMING));
	show(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
	show(prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0));
	show(prctl(66 /* PR_GET_MDWE */, 0, 0, 0, 0));
	show(prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0));
	show(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0, 0));
	show(prctl(PR_CAPBSET_READ, 21));
	show(prctl(PR_GET_TID_ADDRESS, &tid));
	ask(tid != 0);
	show(personality(0xffffffff));
	show(sched_getscheduler(0));
	show(getpriority(PRIO_PROCESS, 0));
	show(syscall(SYS_ioprio_get, 1, 0));
	cpu_set_t set;
	show(sched_getaffinity(0, sizeof set, &set) >= 0 ? CPU_COUNT(&set) : -1);
}

CASE(no_children_of_ours)
{
	char path[100], line[100];
	int status;
	for (int round = 0; round < 3; round++) {
		snprintf(path, sizeof path, "/proc/self/task/%d/children", gettid());
		FILE *f = fopen(path, "r");
		printf("children: [%s]\n", f && fgets(line, sizeof line, f) ? "some" : "");
		if (f)
			fclose(f);
		show(waitpid(-1, &status, WNOHANG | __WALL));
		stall(10 + 10 * round, 8);
	}
	struct stat st;
	stat("/proc/self/task", &st);
	printf("threads %d\n", (int)st.st_nlink - 2);
}

CASE(the_heap)
{
	/* The library has made its own allocations by now. */
	puts("begin");
	stall(5, 1);
	char *start = sbrk(0), *p = sbrk(1 << 20);
	memset(p, 1, 1 << 20);
	stall(10, 5);
	char *above = sbrk(0), *old = sbrk(-(1 << 20)), *below = sbrk(0);
	printf("%d %d %d %d\n", p == start, above == start + (1 << 20), old == above, below == start);
	ask(sbrk(1l << 46) == (void *)-1);
	for (int i = 0; i < 64; i++) {
		char *q = sbrk(65536);
		q[0] = q[65535] = i;
	}
	ask(sbrk(0) == start + (64 << 16));
}

CASE(lists_and_addresses_of_the_thread)
{
	void *head = 0;
	size_t len = 0;
	show(syscall(SYS_get_robust_list, 0, &head, &len));
	printf("%d, length %zu\n", head != 0, len);
	ask(syscall(SYS_set_tid_address, &len) == gettid());
	unsigned long fs = 0, gs = 1;
	show(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs));
	show(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs));
	ask(fs == (unsigned long)pthread_self());
	printf("gs %lx\n", gs);
	unsigned cpu = -1;
	ask(syscall(SYS_getcpu, &cpu, 0, 0) == 0 && cpu < 4096);
}

/* Control words, and vector registers that live through calls. */
CASE(state_of_the_processor)
{
	unsigned short x87 = 0;
	unsigned mx = 0, bad = 0;
	__asm__ volatile("fnstcw %0\n\tstmxcsr %1" : "=m"(x87), "=m"(mx));
	printf("%x %x\n", x87, mx & 0xffc0);
	mx = 0x7f80, x87 = 0x27f;
	__asm__ volatile("fldcw %0\n\tldmxcsr %1" ::"m"(x87), "m"(mx));
	for (int i = 0; i < 40; i++) {
		char name[] = "many/10", buf[100];
		double in[2] = { i + 0.5, -i }, out[2] = { 0 };
		long fd, n, flags;
		name[6] += i % 10;
		__asm__ volatile("movupd %0, %%xmm9\n\tmovupd %0, %%xmm15\n\tfld1" ::"m"(in) : "xmm9", "xmm15");
		fd = raw(SYS_open, (long)name, O_RDONLY, 0, 0, 0, 0);
		n = raw(SYS_read, fd, (long)buf, 100, 0, 0, 0);
		raw(SYS_close, fd, 0, 0, 0, 0, 0);
		double one = 0;
		__asm__ volatile("fstpl %1\n\tmovupd %%xmm9, %0\n\tpushfq\n\tpopq %2" : "=m"(out), "=m"(one), "=r"(flags)::"xmm9");
		bad += memcmp(in, out, sizeof in) || one != 1 || n != 100 || (flags & 0x400);
		__asm__ volatile("movupd %%xmm15, %0" : "=m"(out));
		bad += !!memcmp(in, out, sizeof in);
	}
	__asm__ volatile("fnstcw %0\n\tstmxcsr %1" : "=m"(x87), "=m"(mx));
	printf("%x %x, bad %u\n", x87, mx & 0xffc0, bad);
	mx = 0x1f80;
	__asm__ volatile("ldmxcsr %0\n\tfninit" ::"m"(mx));
}

/* Code that is mapped to be shared stays as it is in its file, however often its calls are made. */
CASE(shared_code_is_not_written)
{
	unsigned char page[4096], now[4096];
	const unsigned char code[] = { 0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3, 0x90, 0x90, 0x90, 0x90 };
	memset(page, 0x90, sizeof page);
	memcpy(page + 64, code, sizeof code);
	int fd = must(open(in_work("code"), O_RDWR | O_CREAT, 0600));
	must(write(fd, page, sizeof page));
	void *room = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int flags = MAP_SHARED; flags <= MAP_SHARED_VALIDATE; flags += MAP_SHARED_VALIDATE - MAP_SHARED) {
		unsigned char *at = mmap(0, 4096, PROT_READ | PROT_EXEC, flags, fd, 0);
		must(at == MAP_FAILED ? -1 : 0);
		if (flags == MAP_SHARED_VALIDATE)
			at = mremap(at, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, room);
		long (*call)(void) = (void *)(at + 64);
		int wrong = 0;
		for (int i = 0; i < 200; i++)
			wrong += call() != getppid();
		printf("%d: wrong %d\n", flags, wrong);
		must(pread(fd, now, sizeof now, 0));
		ask(!memcmp(page, now, sizeof page));
		ask(!memcmp(page, at, sizeof page));
	}
}
