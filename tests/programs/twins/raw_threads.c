/* Threads that no library made, and thread pointers that a program sets by itself. */
#include "twin.h"
#include <asm/prctl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sys/auxv.h>

#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
static char stacks[8][64 << 10] __attribute__((aligned(64)));
static volatile int tids[8], results[8];

/* clone whose child calls `body` on `stack` and never returns; nothing of a library is used. */
static long thread(unsigned long flags, void *stack, volatile int *tid, void *tls, void (*body)(long), long arg)
{
	long ret;
	register long r10 __asm__("r10") = (long)tid;
	register long r8 __asm__("r8") = (long)tls;
	register void (*f)(long) __asm__("r12") = body;
	register long a __asm__("r13") = arg;
	__asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tmov %%r13, %%rdi\n\tcall *%%r12\n\thlt\n1:"
			 : "=a"(ret)
			 : "a"((long)SYS_clone), "D"(flags), "S"(stack), "d"(tid), "r"(r10), "r"(r8), "r"(f), "r"(a)
			 : "rcx", "r11", "memory", "r9", "rbx", "r14", "r15");
	return ret;
}

static void join(volatile int *tid)
{
	for (int v; (v = *tid);)
		raw(SYS_futex, (long)tid, FUTEX_WAIT, v, 0, 0, 0);
}

static __attribute__((noinline)) long read_file(int n)
{
	char name[] = "many/00", buf[128];
	name[5] = '0' + n / 10, name[6] = '0' + n % 10;
	long total = 0, got, fd = raw(SYS_open, (long)name, O_RDONLY, 0, 0, 0, 0);
	while ((got = raw(SYS_read, fd, (long)buf, sizeof buf, 0, 0, 0)) > 0)
		total += got;
	raw(SYS_close, fd, 0, 0, 0, 0, 0);
	return got < 0 ? got : total;
}

static void body(long i)
{
	for (int n = 0; n < 5; n++)
		results[i] += read_file(i * 8 + n);
	raw(SYS_exit, 0, 0, 0, 0, 0, 0);
}

/* Threads with the thread pointer of the first. */
CASE(without_a_thread_pointer_of_their_own)
{
	for (int i = 0; i < 6; i++) {
		tids[i] = 1;
		must(thread(THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID, stacks[i + 1], &tids[i], 0, body, i) > 0 ? 0 : -1);
	}
	for (int i = 0; i < 6; i++) {
		join(&tids[i]);
		printf("%d\n", results[i]);
	}
}

static long blocks[8][64];

static void body_with_tls(long i)
{
	long mine;
	__asm__ volatile("mov %%fs:0, %0" : "=r"(mine));
	for (int n = 0; n < 5; n++) {
		long now;
		results[i] += read_file(i * 8 + n);
		__asm__ volatile("mov %%fs:0, %0" : "=r"(now));
		if (now != mine || mine != (long)blocks[i])
			results[i] = -1;
	}
	raw(SYS_exit, 0, 0, 0, 0, 0, 0);
}

CASE(with_one)
{
	for (int i = 0; i < 6; i++) {
		tids[i] = 1;
		blocks[i][0] = (long)blocks[i];
		must(thread(THREAD | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID, stacks[i + 1], &tids[i], blocks[i], body_with_tls, i) > 0 ? 0 : -1);
	}
	for (int i = 0; i < 6; i++) {
		join(&tids[i]);
		printf("%d\n", results[i]);
	}
}

/* A stack that is too small for any signal. */
static __attribute__((noinline)) void body_tight(long i)
{
	static const char name[] = "many/50";
	static char buf[4096];
	long fd = raw(SYS_open, (long)name, O_RDONLY, 0, 0, 0, 0);
	results[i] = raw(SYS_read, fd, (long)buf, sizeof buf, 0, 0, 0);
	raw(SYS_close, fd, 0, 0, 0, 0, 0);
	raw(SYS_exit, 0, 0, 0, 0, 0, 0);
}

CASE(on_a_page_of_stack)
{
	for (int i = 0; i < 4; i++) {
		char *p = mmap(0, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(mprotect(p + 4096, 4096, PROT_READ | PROT_WRITE));
		tids[i] = 1;
		must(thread(THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID, p + 8192 - 64, &tids[i], 0, body_tight, i) > 0 ? 0 : -1);
		join(&tids[i]);
		printf("%d\n", results[i]);
	}
}

/* musl ends a detached thread in this way: its stack is unmapped first. */
static void body_that_unmaps(long stack)
{
	static volatile int n;
	results[0] += read_file(40 + n++ % 10);
	__asm__ volatile("mov %0, %%rdi\n\tmov $65536, %%esi\n\tmov $11, %%eax\n\tsyscall\n\txor %%edi, %%edi\n\tmov $60, %%eax\n\tsyscall\n\thlt" ::"r"(stack) : "rdi", "rsi", "rax", "rcx", "r11");
}

CASE(that_unmap_their_stacks)
{
	for (int i = 0; i < 30; i++) {
		char *p = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		tids[0] = 1;
		must(thread(THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID, p + 65536 - 64, &tids[0], 0, body_that_unmaps, (long)p) > 0 ? 0 : -1);
		join(&tids[0]);
	}
	printf("%d\n", results[0]);
}

/* Changed under the library's feet; nothing of it is called until it is restored. */
CASE(the_thread_pointer_set_by_call)
{
	unsigned long fs;
	long total = 0, wrong = 0;
	must(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs));
	for (int i = 0; i < 20; i++) {
		long *block = blocks[i % 8], now;
		block[0] = (long)block;
		raw(SYS_arch_prctl, ARCH_SET_FS, (long)block, 0, 0, 0, 0);
		total += read_file(20 + i);
		__asm__ volatile("mov %%fs:0, %0" : "=r"(now));
		wrong += now != (long)block;
		raw(SYS_arch_prctl, ARCH_SET_FS, fs, 0, 0, 0, 0);
	}
	printf("%ld, wrong %ld\n", total, wrong);
}

CASE(the_thread_pointer_set_by_instruction)
{
	unsigned long fs;
	long total = 0, wrong = 0;
	if (!(getauxval(AT_HWCAP2) & 2 /* FSGSBASE */)) {
		puts("not on this processor");
		return;
	}
	must(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs));
	for (int i = 0; i < 20; i++) {
		long *block = blocks[i % 8], now;
		block[0] = (long)block;
		__asm__ volatile("wrfsbase %0" ::"r"(block));
		total += read_file(20 + i);
		__asm__ volatile("rdfsbase %0" : "=r"(now));
		wrong += now != (long)block;
		__asm__ volatile("wrfsbase %0" ::"r"(0l));
		total += read_file(40 + i);
		__asm__ volatile("wrfsbase %0" ::"r"(fs));
	}
	printf("%ld, wrong %ld\n", total, wrong);
}

CASE(the_other_base)
{
	unsigned long gs = 0;
	must(syscall(SYS_arch_prctl, ARCH_SET_GS, blocks[3]));
	stall(10, 10);
	must(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs));
	ask(gs == (unsigned long)blocks[3]);
	blocks[3][2] = 4711;
	long value;
	__asm__ volatile("mov %%gs:16, %0" : "=r"(value));
	printf("%ld\n", value);
	show(syscall(SYS_arch_prctl, ARCH_SET_GS, 0));
	show(syscall(SYS_arch_prctl, 0x9999, 0));
	show(syscall(SYS_arch_prctl, ARCH_SET_FS, -1l));
}

/* A thread that is not joined by anything outlives none. */
static void body_for_ever(long i)
{
	for (int n = 0;; n++)
		read_file(n % 64);
}

CASE(running_at_the_end)
{
	for (int i = 0; i < 4; i++)
		must(thread(THREAD, stacks[i + 1], 0, 0, body_for_ever, i) > 0 ? 0 : -1);
	stall(20, 10);
	puts("leaving");
}
