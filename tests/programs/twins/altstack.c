/* Handlers on stacks of their own, and stacks that overflow. */
#include "twin.h"

static volatile sig_atomic_t caught;
static sigjmp_buf back;

static void count(int s) { caught++; }

static char *alternate;
static volatile int on_it, off_it;
#define ALTERNATE (256 << 10)

static void where(int s)
{
	char here;
	(&here >= alternate && &here < alternate + ALTERNATE ? &on_it : &off_it)[0]++;
	stall(10 + on_it, 1);
	stack_t now;
	sigaltstack(0, &now);
	printf("flags %d\n", now.ss_flags);
	stack_t other = { .ss_flags = SS_DISABLE };
	show(sigaltstack(&other, 0));
}

CASE(on_an_alternate_stack)
{
	alternate = mmap(0, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t alt = { .ss_sp = alternate, .ss_size = ALTERNATE }, got;
	must(sigaltstack(&alt, 0));
	on(SIGUSR1, where, SA_ONSTACK);
	on(SIGUSR2, where, 0);
	for (int i = 0; i < 4; i++)
		raise(i % 2 ? SIGUSR2 : SIGUSR1), stall(30 + i, 1);
	printf("on %d, off %d\n", on_it, off_it);
	sigaltstack(0, &got);
	printf("%d %d\n", got.ss_sp == alternate, got.ss_flags);
	alt.ss_size = 100;
	show(sigaltstack(&alt, 0));
	alt = (stack_t){ .ss_flags = 77 };
	show(sigaltstack(&alt, 0));
	show(sigaltstack((void *)8, 0));
}

/* Recursion without end, caught on another stack. */
static void overflowed(int s)
{
	caught++;
	stall(20, 1);
	siglongjmp(back, 1);
}

static __attribute__((noinline)) int recurse(int n)
{
	volatile char room[4096];
	room[0] = n;
	if (n < 0)
		return 0;
	return recurse(n + 1) + room[0];
}

CASE(stack_overflow)
{
	alternate = mmap(0, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t alt = { .ss_sp = alternate, .ss_size = ALTERNATE };
	struct rlimit r = { 1 << 20, 8 << 20 };
	must(setrlimit(RLIMIT_STACK, &r));
	must(sigaltstack(&alt, 0));
	on(SIGSEGV, overflowed, SA_ONSTACK | SA_NODEFER);
	for (volatile int i = 0; i < 3; i++) {
		if (sigsetjmp(back, 1) == 0)
			recurse(0);
		stall(30 + i, 2);
	}
	printf("%d\n", caught);
}

CASE(stack_overflow_without_another)
{
	pid_t child = must(fork());
	if (child == 0) {
		struct rlimit r = { 1 << 20, 8 << 20 };
		setrlimit(RLIMIT_STACK, &r);
		on(SIGSEGV, count, 0);
		recurse(0);
	}
	ended("child", child);
}

CASE(disarmed_while_on_it)
{
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif
	alternate = mmap(0, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t alt = { .ss_sp = alternate, .ss_size = ALTERNATE, .ss_flags = SS_AUTODISARM }, old;
	must(sigaltstack(&alt, 0));
	on(SIGUSR1, where, SA_ONSTACK);
	for (int i = 0; i < 3; i++) {
		raise(SIGUSR1);
		must(sigaltstack(&alt, &old));
		printf("flags %x\n", old.ss_flags);
	}
	printf("on %d, off %d\n", on_it, off_it);
}

/* Waiting calls are interrupted, with an alternate stack or without. */
CASE(waits_with_another_stack)
{
	int p[2];
	char c, *name = in_work("fifo");
	must(mkfifo(name, 0600));
	must(pipe(p));
	alternate = mmap(0, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t alt = { .ss_sp = alternate, .ss_size = ALTERNATE };
	must(sigaltstack(&alt, 0));
	for (int i = 0; i < 12; i++) {
		on(SIGALRM, count, i % 2 ? SA_ONSTACK : 0);
		every(3000);
		show(open(name, i % 3 ? O_RDONLY : O_WRONLY));
		show(read(p[0], &c, 1));
		show(pause());
		every(0);
		stall(20 + i, 1);
	}
}

/* An exec that fails, again and again, while signals come on another stack: the way to it must not
 * lie where their frames do. */
CASE(execs_with_another_stack)
{
	char *const args[] = { "none", 0 };
	int wrong = 0;
	alternate = mmap(0, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t alt = { .ss_sp = alternate, .ss_size = ALTERNATE };
	must(sigaltstack(&alt, 0));
	on(SIGALRM, count, SA_ONSTACK | SA_RESTART);
	stall(10, 2);
	every(50);
	for (int i = 0; i < 20000; i++) {
		errno = 0;
		if (execve("/nonexistent/program", args, environ) != -1 || errno != ENOENT)
			wrong++;
	}
	every(0);
	printf("%d wrong, %s\n", wrong, caught ? "with signals" : "without");
	stall(20, 2);
}
