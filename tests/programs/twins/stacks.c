/* Stacks that are not the thread's own: coroutines, small ones, odd ones. */
#include "twin.h"
#include <ucontext.h>

static ucontext_t main_context, other[8];
static char *stacks[8];
static int steps;

static void *a_stack(size_t size)
{
	/* A stack with unmapped memory on both sides. */
	char *p = mmap(0, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(mprotect(p + 4096, size, PROT_READ | PROT_WRITE));
	return p + 4096;
}

static void coroutine(int me)
{
	for (int i = 0; i < 6; i++) {
		stall(me * 8 + i, 1);
		steps++;
		swapcontext(&other[me], &main_context);
	}
}

static void start(int i, size_t size, void (*body)(int), int arg)
{
	stacks[i] = a_stack(size);
	getcontext(&other[i]);
	other[i].uc_stack.ss_sp = stacks[i];
	other[i].uc_stack.ss_size = size;
	other[i].uc_link = &main_context;
	makecontext(&other[i], (void (*)(void))body, 1, arg);
}

CASE(coroutines_that_read)
{
	for (int i = 0; i < 4; i++)
		start(i, 64 << 10, coroutine, i);
	for (int round = 0; round < 7; round++)
		for (int i = 0; i < 4; i++)
			swapcontext(&main_context, &other[i]);
	printf("%d steps\n", steps);
}

/* A stack that is too small for the frame of a signal. */
static volatile long got;

static void small(int me)
{
	static char buf[4096];
	char name[] = "many/20";
	name[6] += me;
	long fd = raw(SYS_open, (long)name, O_RDONLY, 0, 0, 0, 0);
	got += raw(SYS_read, fd, (long)buf, sizeof buf, 0, 0, 0);
	raw(SYS_close, fd, 0, 0, 0, 0, 0);
}

CASE(stacks_of_one_page)
{
	for (int i = 0; i < 8; i++) {
		start(i, 4096, small, i);
		swapcontext(&main_context, &other[i]);
		printf("%ld\n", got);
	}
}

static sigjmp_buf back;

static void leaves_by_jump(int me)
{
	stall(30 + me, 2);
	siglongjmp(back, me + 1);
}

CASE(left_by_jumps)
{
	for (volatile int i = 0; i < 5; i++) {
		start(i, 64 << 10, leaves_by_jump, i);
		int ret = sigsetjmp(back, 1);
		if (ret == 0)
			setcontext(&other[i]);
		printf("came back with %d\n", ret);
		stall(10 + i, 1);
	}
}

static volatile int caught;
static void count(int s) { caught++; }

static void interrupted(int me)
{
	while (caught < 10 * (me + 1))
		stall(me * 8, 2);
	every(0);
}

CASE(signals_on_them)
{
	on(SIGALRM, count, SA_RESTART);
	for (int i = 0; i < 3; i++) {
		start(i, 256 << 10, interrupted, i);
		every(1500);
		swapcontext(&main_context, &other[i]);
		ask(caught >= 10);
	}
}

/* The stack pointer elsewhere during calls: in a heap block, in the middle of .bss, at odd places.
 */
CASE(calls_from_odd_stack_pointers)
{
	static char room[64 << 10] __attribute__((aligned(64)));
	char *heap = malloc(64 << 10), buf[64];
	for (int i = 0; i < 24; i++) {
		char *top = (i % 2 ? heap : room) + (60 << 10) - (i % 16);
		char name[] = "many/10";
		name[6] += i % 10;
		long fd, n, saved;
		__asm__ volatile("mov %%rsp, %2\n\tmov %3, %%rsp\n\tmov $2, %%eax\n\txor %%esi, %%esi\n\tmov %4, %%rdi\n\tsyscall\n\t"
				 "mov %%rax, %0\n\tmov %%rax, %%rdi\n\tmov %5, %%rsi\n\tmov $64, %%edx\n\txor %%eax, %%eax\n\tsyscall\n\t"
				 "mov %%rax, %1\n\tmov %2, %%rsp"
				 : "=&b"(fd), "=&r"(n), "=&r"(saved) : "r"(top), "r"(name), "r"(buf)
				 : "rax", "rdi", "rsi", "rdx", "rcx", "r11", "memory");
		if (n != 64 || buf[5] != 'a' + (10 + i % 10) % 26)
			printf("%d: %ld\n", i, n);
		close(fd);
	}
	puts("done");
}

/* Values below the stack pointer are the program's: 128 bytes of them. */
CASE(what_lies_below_the_stack_pointer)
{
	int bad = 0;
	for (int i = 0; i < 30; i++) {
		char name[] = "many/40", buf[64];
		name[6] += i % 10;
		long first, last, fd;
		__asm__ volatile("sub $256, %%rsp\n\tmov %3, -8(%%rsp)\n\tmov %3, -128(%%rsp)\n\tmov $2, %%eax\n\txor %%esi, %%esi\n\tsyscall\n\t"
				 "mov -8(%%rsp), %0\n\tmov -128(%%rsp), %1\n\tadd $256, %%rsp"
				 : "=&r"(first), "=&r"(last), "=&a"(fd) : "r"(0x1122334455667788l + i), "D"(name) : "rsi", "rcx", "r11", "memory");
		bad += first != 0x1122334455667788l + i || last != first;
		must(read(fd, buf, 64));
		close(fd);
	}
	printf("bad %d\n", bad);
}
