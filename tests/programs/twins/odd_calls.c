/* Calls from odd places, by odd ways, with odd numbers. */
#include "twin.h"
#include <ucontext.h>

static const char *names[] = { "many/20", "many/21", "many/22", "many/23", "many/24" };
static char buf[8192];

/* A function of the shape of syscall(2) at `at`. */
static const unsigned char CODE[] = {
	0x48, 0x89, 0xf8,             /* mov %rdi, %rax */
	0x48, 0x89, 0xf7,             /* mov %rsi, %rdi */
	0x48, 0x89, 0xd6,             /* mov %rdx, %rsi */
	0x48, 0x89, 0xca,             /* mov %rcx, %rdx */
	0x4d, 0x89, 0xc2,             /* mov %r8, %r10 */
	0x4d, 0x89, 0xc8,             /* mov %r9, %r8 */
	0x0f, 0x05,                   /* syscall */
	0xc3,                         /* ret */
};
typedef long (*caller)(long, long, long, long, long, long);

static void read_by(caller call, int times)
{
	for (int i = 0; i < times; i++) {
		long fd = call(SYS_open, (long)names[i % 5], O_RDONLY, 0, 0, 0);
		long n = call(SYS_read, fd, (long)buf, sizeof buf, 0, 0);
		printf("%ld %ld %d\n", n, call(SYS_close, fd, 0, 0, 0, 0), buf[n > 0 ? n - 1 : 0]);
	}
}

static char *place(int prot)
{
	char *p = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(mprotect(p, 2 * 4096, prot));
	must(munmap(p + 2 * 4096, 4096));
	return p;
}

CASE(from_memory_made_at_run_time)
{
	char *p = place(PROT_READ | PROT_WRITE);
	memcpy(p + 100, CODE, sizeof CODE);
	must(mprotect(p, 4096, PROT_READ | PROT_EXEC));
	read_by((caller)(p + 100), 20);
}

CASE(from_memory_that_stays_writable)
{
	char *p = place(PROT_READ | PROT_WRITE | PROT_EXEC);
	for (int i = 0; i < 4; i++) {
		memset(p, 0xcc, 4096);
		memcpy(p + 50 * i, CODE, sizeof CODE);
		read_by((caller)(p + 50 * i), 10);
	}
}

CASE(at_the_end_of_a_page)
{
	char *p = place(PROT_READ | PROT_WRITE | PROT_EXEC);
	/* The instruction ends one byte before the mapping does, so that only the return follows. */
	char *f = p + 2 * 4096 - sizeof CODE;
	memcpy(f, CODE, sizeof CODE);
	read_by((caller)f, 15);
	/* And across two pages. */
	f = p + 4096 - sizeof CODE + 2;
	memcpy(f, CODE, sizeof CODE);
	read_by((caller)f, 15);
}

/* The instruction is the last of what is mapped: what it returns to is not there. */
static volatile int caught;

static void past_the_end(int s, siginfo_t *i, void *context)
{
	ucontext_t *u = context;
	long *sp = (long *)u->uc_mcontext.gregs[REG_RSP];
	caught++;
	u->uc_mcontext.gregs[REG_RIP] = sp[0];
	u->uc_mcontext.gregs[REG_RSP] += 8;
}

CASE(with_nothing_behind_it)
{
	char *p = place(PROT_READ | PROT_WRITE | PROT_EXEC), *f = p + 2 * 4096 - sizeof CODE + 1;
	on_info(SIGSEGV, past_the_end, 0);
	memcpy(f, CODE, sizeof CODE - 1);
	must(mprotect(p, 2 * 4096, PROT_READ | PROT_EXEC));
	read_by((caller)f, 12);
	printf("caught %d\n", caught);
}

/* Code that is replaced by other code at the same place. */
CASE(replaced_by_other_code)
{
	char *p = place(PROT_READ | PROT_WRITE | PROT_EXEC);
	long (*f)(void) = (long (*)(void))(p + 64);
	for (int i = 0; i < 60; i++) {
		unsigned char get[] = { 0xb8, i % 3 ? SYS_getpid : SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3 };
		unsigned char constant[] = { 0xb8, i, 0, 0, 0, 0x90, 0x90, 0xc3 };
		if (i / 10 % 2)
			memcpy(p + 64, constant, sizeof constant);
		else
			memcpy(p + 64, get, sizeof get);
		long got = f(), expected = i / 10 % 2 ? i : i % 3 ? getpid() : getppid();
		if (got != expected)
			printf("%d: wrong\n", i);
		if (i % 7 == 0)
			stall(i % 64, 1);
	}
	puts("done");
}

/* A call that was made often, with only its number changed. */
CASE(renumbered_in_place)
{
	unsigned char *p = (void *)place(PROT_READ | PROT_WRITE | PROT_EXEC), code[] = { 0xb8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3 };
	memcpy(p + 200, code, sizeof code);
	for (int i = 0; i < 60; i++) {
		p[201] = i / 12 % 2 ? SYS_getpid : SYS_getppid;
		long got = ((long (*)(void))(p + 200))();
		if (got != (i / 12 % 2 ? getpid() : getppid()))
			printf("%d: wrong\n", i);
	}
	puts("done");
}

/* A call site that makes different calls, again and again. */
static __attribute__((noinline, noclone)) long call_here(long n, long a, long b, long c)
{
	return raw(n, a, b, c, 0, 0, 0);
}

CASE(all_calls_from_one_place)
{
	for (int i = 0; i < 50; i++) {
		long fd = call_here(SYS_open, (long)names[i % 5], O_RDONLY, 0);
		long n = call_here(SYS_read, fd, (long)buf, 100 + i);
		struct timespec t = { 0, 1000 };
		if (n != 100 + i || call_here(SYS_getpid, 0, 0, 0) != getpid() || call_here(SYS_nanosleep, (long)&t, 0, 0) || call_here(SYS_close, fd, 0, 0))
			puts("wrong");
		if (i % 10 == 0) {
			long child = call_here(SYS_fork, 0, 0, 0);
			if (child == 0)
				call_here(SYS_exit, i, 0, 0);
			ended("child", child);
		}
	}
}

CASE(by_the_32_bit_entry)
{
	long ret;
	for (int i = 0; i < 15; i++) {
		__asm__ volatile("int $0x80" : "=a"(ret) : "a"(20l) : "memory", "r8", "r9", "r10", "r11");
		printf("%d ", ret == getpid());
		__asm__ volatile("int $0x80" : "=a"(ret) : "a"(6l), "b"(77l) : "memory", "r8", "r9", "r10", "r11");
		printf("%ld ", ret);
		__asm__ volatile("int $0x80" : "=a"(ret) : "a"(0x7fffl) : "memory", "r8", "r9", "r10", "r11");
		printf("%ld\n", ret);
		stall(30 + i, 1);
	}
	/* Reads through it share the descriptors. */
	static char low[100];
	int fd = must(open("many/10", O_RDONLY));
	char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(3l), "b"((long)fd), "c"(p), "d"(100l) : "memory", "r8", "r9", "r10", "r11");
	printf("%ld %c\n", ret, p[99]);
	show(lseek(fd, 0, SEEK_CUR));
	show(read(fd, low, 100));
}

CASE(numbers_that_are_none)
{
	long numbers[] = { -1, 1000, 334 + 20, 0x40000000, 0x40000000 + SYS_read, 511, 547, 1l << 40, (1l << 32) + SYS_getpid };
	for (int i = 0; i < 9; i++) {
		long ret = raw(numbers[i], -1, 0, 0, 0, 0, 0);
		printf("%lx: %s\n", numbers[i], ret == getpid() ? "me" : strerrorname_np(-ret) ?: "?");
		stall(20 + i, 1);
	}
}

CASE(the_old_fixed_page)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int has = 0;
	while (fgets(line, sizeof line, f))
		has |= !!strstr(line, "[vsyscall]");
	fclose(f);
	printf("%d\n", has);
	if (!has)
		return;
	struct timeval t = { 0 };
	stall(20, 5);
	long (*gettimeofday_there)(struct timeval *, void *) = (void *)0xffffffffff600000;
	long (*time_there)(long *) = (void *)0xffffffffff600400;
	for (int i = 0; i < 5; i++) {
		printf("%ld %d\n", gettimeofday_there(&t, 0), t.tv_sec > 1000000000);
		printf("%d\n", time_there(0) - t.tv_sec <= 1);
		stall(30 + i, 1);
	}
}

/* The number is loaded right before the call, and sometimes given by a jump to the call itself. */
__asm__(".text\n.p2align 4\nload_and_call: mov number_to_load(%rip),%eax; mov %rsi,%rdi; mov %rdx,%rsi; syscall; ret\n"
	".p2align 4\nload_alone: mov number_to_load(%rip),%rax\ncall_alone: syscall; ret\n"
	".p2align 4\naddress_and_call: mov %rdi,%rax; lea number_to_load(%rip),%rdi; syscall; ret\n"
	".globl number_to_load\n");
extern long load_and_call(long, long, long), load_alone(void), address_and_call(long);
extern char call_alone[];
long number_to_load;

CASE(numbers_that_are_loaded)
{
	int bad = 0;
	for (int i = 0; i < 200; i++) {
		number_to_load = i & 1 ? SYS_getpid : SYS_getppid;
		bad += load_alone() != (i & 1 ? getpid() : getppid());
		number_to_load = SYS_lseek;
		bad += load_and_call(0, 77 + i, 5) != -EBADF;
		number_to_load = SYS_gettid;
		bad += load_and_call(0, 77, 5) != gettid();
		long ret = SYS_getppid;
		__asm__ volatile("call call_alone" : "+a"(ret) : : "rcx", "r11", "memory");
		bad += ret != getppid();
		/* time(2) writes to the address */
		bad += address_and_call(SYS_time) != number_to_load;
		if (i % 40 == 20)
			stall(20 + i / 40, 1);
	}
	printf("bad %d\n", bad);
}

/* Registers except the three that the kernel uses keep their values over a call. */
CASE(registers_over_calls)
{
	int bad = 0;
	for (int i = 0; i < 40; i++) {
		long fd = -1, ok;
		__asm__ volatile("push %%rbp\n\tpush %%rbx\n\tmov $101, %%ebx\n\tmov $102, %%ebp\n\tmov $103, %%r12d\n\tmov $104, %%r13d\n\t"
				 "mov $105, %%r14d\n\tmov $106, %%r15d\n\tmov $107, %%r8d\n\tmov $108, %%r9d\n\tmov $109, %%r10d\n\tmov $0, %%edx\n\t"
				 "stc\n\tsyscall\n\tsetc %%cl\n\tcmp $101, %%rbx\n\tjne 1f\n\tcmp $102, %%rbp\n\tjne 1f\n\tcmp $103, %%r12\n\tjne 1f\n\t"
				 "cmp $104, %%r13\n\tjne 1f\n\tcmp $105, %%r14\n\tjne 1f\n\tcmp $106, %%r15\n\tjne 1f\n\tcmp $107, %%r8\n\tjne 1f\n\t"
				 "cmp $108, %%r9\n\tjne 1f\n\tcmp $109, %%r10\n\tjne 1f\n\ttest %%rdx, %%rdx\n\tjne 1f\n\tcmp $1, %%cl\n\tjne 1f\n\t"
				 "mov $1, %%ecx\n\tjmp 2f\n1:\tmov $0, %%ecx\n2:\tpop %%rbx\n\tpop %%rbp"
				 : "=a"(fd), "=c"(ok) : "a"((long)SYS_open), "D"(names[i % 5]), "S"((long)O_RDONLY)
				 : "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory");
		bad += !ok || fd < 0;
		bad += read(fd, buf, 100) != 100;
		close(fd);
	}
	printf("bad %d\n", bad);
}

/* rcx and r11 after a call are the place that follows it, and the flags. */
CASE(what_the_kernel_leaves_in_registers)
{
	int bad = 0;
	for (int i = 0; i < 40; i++) {
		long ret, rcx, r11, here;
		__asm__ volatile("syscall\n1:\tmov %%r11, %2\n\tlea 1b(%%rip), %3" : "=a"(ret), "=c"(rcx), "=&r"(r11), "=&r"(here) : "a"((long)SYS_getppid) : "r11", "memory");
		bad += rcx != here || !(r11 & 0x200) || (r11 & 0x100);
		if (i % 5 == 0)
			stall(20 + i / 5, 1);
	}
	printf("bad %d\n", bad);
}

static void on_tsc(int s)
{
	write(1, "rdtsc\n", 6);
	_exit(21);
}

CASE(without_a_time_stamp_counter)
{
	for (int handled = 0; handled < 2; handled++) {
		pid_t child = must(fork());
		if (child == 0) {
			if (handled)
				on(SIGSEGV, on_tsc, 0);
			must(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
			/* Neither clocks nor the library may be asked now; reads may. */
			long fd = raw(SYS_open, (long)"many/30", O_RDONLY, 0, 0, 0, 0), n = raw(SYS_read, fd, (long)buf, 100, 0, 0, 0);
			if (n != 100)
				_exit(9);
			fd = raw(SYS_open, (long)"many/31", O_RDONLY, 0, 0, 0, 0);
			raw(SYS_read, fd, (long)buf, 100, 0, 0, 0);
			raw(SYS_write, 1, (long)"read\n", 5, 0, 0, 0);
			__builtin_ia32_rdtsc();
			_exit(0);
		}
		ended("child", child);
	}
	must(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
	for (int i = 0; i < 10; i++) {
		long fd = raw(SYS_open, (long)names[i % 5], O_RDONLY, 0, 0, 0, 0);
		raw(SYS_read, fd, (long)buf, 100, 0, 0, 0);
		raw(SYS_close, fd, 0, 0, 0, 0, 0);
	}
	must(prctl(PR_SET_TSC, PR_TSC_ENABLE));
	puts("and back");
}

/* The program dispatches its own calls, as we might. */
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
static volatile char selector;

static void dispatched(int s, siginfo_t *i, void *context)
{
	selector = 0;
	caught++;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = i->si_syscall == SYS_getpgrp && i->si_code == 2 ? 77 : -1;
}

CASE(dispatch_of_its_own)
{
	pid_t child = must(fork());
	if (child == 0) {
		on_info(SIGSYS, dispatched, 0);
		long ret = prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector);
		if (ret)
			_exit(99);
		for (int i = 0; i < 5; i++) {
			selector = 1;
			long got = raw(SYS_getpgrp, 0, 0, 0, 0, 0, 0);
			selector = 0;
			printf("%ld caught %d\n", got, caught);
			stall(20 + i, 1);
		}
		_exit(0);
	}
	ended("child", child);
}

/* The kernel takes 32 bits of rax for the number of a call. */
CASE(numbers_with_a_dirty_upper_half)
{
	const long dirt = 0x7fffdead00000000;
	unsigned long all = ~0ul, none = 0;
	int fd = must(open("many/33", O_RDONLY));
	char c;
	for (int i = 0; i < 20; i++) {
		ask(raw(SYS_getpid | dirt, 0, 0, 0, 0, 0, 0) == getpid());
		show(raw(SYS_pread64 | dirt, fd, (long)&c, 1, 250 * i, 0, 0));
		show(raw(SYS_rt_sigprocmask | dirt, SIG_SETMASK, (long)&all, 0, 8, 0, 0));
		stall(10 + i, 1);
		show(raw(SYS_rt_sigprocmask | dirt, SIG_SETMASK, (long)&none, (long)&all, 8, 0, 0));
		printf("%lx\n", all);
		all = ~0ul;
	}
	pid_t pid = raw(SYS_fork | dirt, 0, 0, 0, 0, 0, 0);
	if (!pid) {
		stall(40, 2);
		raw(SYS_exit_group | dirt, 3, 0, 0, 0, 0, 0);
	}
	ended("child", must(pid));
	char *argv[] = { "/bin/echo", "executed", 0 };
	fflush(stdout);
	raw(SYS_execve | dirt, (long)argv[0], (long)argv, (long)environ, 0, 0, 0);
}
