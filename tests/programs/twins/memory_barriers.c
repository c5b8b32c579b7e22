/* membarrier(2) and rseq(2), which belong to a process and to a thread; runahead uses the first. */
#include "twin.h"
#include <stddef.h>
#include <sys/syscall.h>

static long barrier(int command)
{
	long ret = syscall(SYS_membarrier, command, 0, 0);
	return ret < 0 ? -errno : ret;
}

static void *stalls(void *first)
{
	stall((long)first, 2);
	return 0;
}

static void with_threads(int first)
{
	pthread_t t[4];
	for (long i = 0; i < 4; i++)
		must(-pthread_create(&t[i], 0, stalls, (void *)(first + 2 * i)));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
}

static void ask_all(void)
{
	for (int command = 0; command <= 512; command = command ? 2 * command : 1)
		if (!(command & (1 << 2 | 1 << 4 | 1 << 6 | 1 << 8)))
			printf("%d: %ld\n", command, barrier(command));
}

CASE(registrations)
{
	ask_all();
	with_threads(10);
	ask_all();
	printf("registered: %ld\n", barrier(1 << 4));
	ask_all();
	pid_t pid = fork();
	if (!pid) {
		with_threads(20);
		ask_all();
		fflush(stdout);
		_exit(0);
	}
	ended("child", must(pid));
	printf("registered: %ld %ld %ld\n", barrier(1 << 6), barrier(1 << 2), barrier(1 << 8));
	with_threads(30);
	ask_all();
}

/* struct rseq, as the kernel had it first. */
struct area {
	unsigned cpu_start, cpu;
	unsigned long section;
	unsigned flags, pad[3];
} __attribute__((aligned(32)));

#define SIGNATURE 0x53053053
static __thread struct area own;
static volatile long counts[4096];

#ifdef __GLIBC__
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));
#endif

static volatile struct area *area(void)
{
#ifdef __GLIBC__
	if (&__rseq_size && __rseq_size)
		return (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
#endif
	static __thread int registered;
	if (!registered++)
		must(syscall(SYS_rseq, &own, sizeof own, 0, SIGNATURE));
	return &own;
}

/* Adds 1 to the count of this processor, unless disturbed; then it says so. */
static int add(volatile struct area *a)
{
	unsigned long cpu = a->cpu_start;
	__asm__ goto(
		".pushsection __rseq_cs, \"aw\"\n"
		".balign 32\n"
		"3: .long 0, 0\n"
		".quad 1f, 2f - 1f, 4f\n"
		".popsection\n"
		"lea 3b(%%rip), %%rax\n"
		"mov %%rax, 8(%0)\n"
		"1: cmp %k1, 4(%0)\n"
		"jnz 4f\n"
		"incq (%2, %1, 8)\n"
		"2:\n"
		".pushsection .text.aborts, \"ax\"\n"
		".byte 0x0f, 0xb9, 0x3d\n"
		".long 0x53053053\n"
		"4: jmp %l[aborted]\n"
		".popsection\n"
		:
		: "r"(a), "r"(cpu), "r"(counts)
		: "rax", "memory", "cc"
		: aborted);
	return 1;
aborted:
	return 0;
}

static void nothing(int s)
{
}

static void *counts_up(void *first)
{
	volatile struct area *a = area();
	for (int done = 0; done < 40000;) {
		done += add(a);
		if (done % 10000 == 0)
			stall((long)first + done / 10000, 1);
		if (done % 1000 == 0)
			getppid();
	}
	return 0;
}

CASE(restartable_sequences)
{
	pthread_t t[4];
	long all = 0;
	on(SIGALRM, nothing, SA_RESTART);
	every(500);
	for (long i = 0; i < 4; i++)
		must(-pthread_create(&t[i], 0, counts_up, (void *)(10 + 5 * i)));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
	every(0);
	for (int i = 0; i < 4096; i++)
		all += counts[i];
	printf("%ld\n", all);
}

CASE(registered_twice)
{
	static struct area other;
	volatile struct area *a = area();
	stall(10, 3);
	show(syscall(SYS_rseq, &other, 32, 0, SIGNATURE));
	show(syscall(SYS_rseq, &other, 32, 1, SIGNATURE));
	ask(a->cpu < 4096);
	pid_t pid = fork();
	if (!pid) {
		stall(20, 3);
		ask(a->cpu < 4096 && add(a) + add(a) + add(a) > 0);
		fflush(stdout);
		_exit(0);
	}
	ended("child", must(pid));
}
