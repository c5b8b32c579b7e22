/* Macros for the cases of leak.c. */
#include "program_helpers.h"
#include <stddef.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#define SYS_fchmodat2 452
#define SYS_futex_wake 454
#define SYS_futex_requeue 456
#define SYS_setxattrat 463
#define SYS_removexattrat 466
#define SYS_open_tree_attr 467
#define SYS_file_setattr 469
#endif

/* Numbers of cases that are no system call of the 64-bit table. */
#define STORE -1
#define INT80 -2

struct leak {
	const char *name;
	long nr;
	/* Key of the suite, or its beginning, that an outsider sees change when the call is made. */
	const char *seen;
	/* Reason why the call is not made to see that; then only the kernel's refusal is tested. */
	const char *unsafe;
	/* Why the kernel cannot refuse it, so that only our own restraint can. */
	const char *restraint;
	long (*harm)(void);
};

#define LEAK(NAME, NR, SEEN, UNSAFE, RESTRAINT) \
	static long harm_##NAME(void); \
	static const struct leak leak_##NAME = { #NAME, NR, SEEN, UNSAFE, RESTRAINT, harm_##NAME }; \
	static const struct leak *const at_##NAME __attribute__((section("leaks"), used)) = &leak_##NAME; \
	static long harm_##NAME(void)
#define CASE(NAME, NR, SEEN) LEAK(NAME, NR, SEEN, 0, 0)
/* Defines a case of one call with these arguments. */
#define ONE(NAME, NR, SEEN, ...) CASE(NAME, NR, SEEN) { return T(NR, ##__VA_ARGS__); }
#define UNSAFE(NAME, NR, WHY, ...) LEAK(NAME, NR, "", WHY, 0) { return T(NR, ##__VA_ARGS__); }
extern const struct leak *const __start_leaks[], *const __stop_leaks[];

static inline long raw(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
	long ret;
	asm volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return ret;
}

/* Makes a call, marked for a runner that is to make it as it stands (the agent's
 * planted_violations.rs). */
static __attribute__((noinline)) long tried(long nr, long a, long b, long c, long d, long e, long f)
{
	long mark;
	memcpy(&mark, "leakmark", 8);
	raw(SYS_getppid, mark, 1, 0, 0, 0, 0);
	return raw(nr, a, b, c, d, e, f);
}
#define T(...) T7(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define T7(n, a, b, c, d, e, f, ...) \
	tried((long)(n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define FAILED(ret) ((unsigned long)(ret) > -4096UL)

/* Memory that the target has at its stall; all of it is shared with the suite but `anonymous`. */
extern volatile char *mapped, *read_only, *anonymous, *segment, *memory_file, *posix_memory;
extern volatile unsigned *futex_word;
extern int target_pid;
/* Objects of the suite's, by name: descriptors, processes, addresses. */
long number(const char *name);
#define N(name) number(#name)
const char *text(const char *name);
#define BUFFER 16384
extern char buffer[BUFFER];
