/* Signal frames: where they lie, and the memory around them. */
#include "twin.h"
#include <pthread.h>
#include <ucontext.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

static volatile sig_atomic_t caught;
static char *other;
#define OTHER (64 << 10)

static void count(int s) { caught++; }

static stack_t set_other(unsigned flags)
{
	if (!other)
		other = mmap(0, OTHER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t s = { .ss_sp = other, .ss_size = OTHER, .ss_flags = flags };
	must(sigaltstack(&s, 0));
	return s;
}

static void print_other(const char *when)
{
	stack_t now;
	must(sigaltstack(0, &now));
	printf("%s: %s, %zu bytes, flags %x\n", when, now.ss_sp == other ? "ours" : now.ss_sp ? "another" : "none", now.ss_size,
	       now.ss_flags);
	fflush(stdout);
}

static void many_calls(void)
{
	for (int i = 0; i < 20; i++) {
		getppid(), getuid(), alarm(0);
		stall(20 + i, 1);
	}
}

CASE(other_stack_unmapped)
{
	set_other(0);
	must(munmap(other, OTHER));
	many_calls();
	puts("went on");
}

CASE(other_stack_protected)
{
	set_other(0);
	must(mprotect(other, OTHER, PROT_NONE));
	many_calls();
	must(mprotect(other, OTHER, PROT_READ));
	many_calls();
	puts("went on");
}

CASE(other_stack_reused)
{
	int changed = 0;
	set_other(0);
	memset(other, 0x5a, OTHER);
	many_calls();
	for (int i = 0; i < OTHER; i++)
		changed += other[i] != 0x5a;
	printf("%d bytes changed\n", changed);
}

/* Sometimes another thread removes write permission: the frame cannot be written, or only be read
 * when the handler returns. */
static volatile int ended_now;

static void *protects(void *p)
{
	while (!ended_now) {
		mprotect(other, OTHER, PROT_READ);
		mprotect(other, OTHER, PROT_READ | PROT_WRITE);
	}
	return 0;
}

CASE(other_stack_protected_now_and_then)
{
	pthread_t t;
	on(SIGSEGV, count, 0);
	on(SIGHUP, count, SA_ONSTACK);
	set_other(0);
	must(pthread_create(&t, 0, protects, 0));
	for (int i = 0; i < 3000; i++)
		raw(SYS_tgkill, getpid(), gettid(), SIGHUP, 0, 0, 0);
	ended_now = 1;
	pthread_join(t, 0);
	ask(caught >= 3000);
	stall(10, 2);
}

/* No handler can be started where there is no memory; but one that asks for no other stack can. */
CASE(handlers_without_room)
{
	on(SIGUSR2, count, 0);
	on(SIGUSR1, count, SA_ONSTACK);
	set_other(0);
	must(munmap(other, OTHER));
	for (int i = 0; i < 12; i++)
		raise(SIGUSR2);
	printf("caught %d\n", caught);
	for (int with_handler = 0; with_handler < 2; with_handler++) {
		pid_t child = must(fork());
		if (child == 0) {
			if (with_handler)
				on(SIGSEGV, _exit, 0);
			raise(SIGUSR1);
			_exit(99);
		}
		ended(with_handler ? "with a handler" : "without", child);
	}
}

/* A stack that is too small for the frame. */
CASE(handlers_with_too_little_room)
{
	for (int on_it = 0; on_it < 2; on_it++) {
		pid_t child = must(fork());
		if (child == 0) {
			set_other(0);
			stack_t s = { .ss_sp = other, .ss_size = 2048 };
			must(sigaltstack(&s, 0));
			memset(other, 0x5a, OTHER);
			on(SIGUSR1, count, on_it ? SA_ONSTACK : 0);
			many_calls();
			raise(SIGUSR1);
			_exit(caught);
		}
		int status;
		must(waitpid(child, &status, 0));
		/* The size of a frame depends on the processor. */
		printf("%s\n", on_it || WIFEXITED(status) ? "as expected" : "killed");
	}
}

static void what_it_is_in_a_child(const char *name)
{
	print_other(name);
	raise(SIGUSR1);
	stack_t s = { .ss_sp = other + 4096, .ss_size = OTHER - 4096 };
	show(sigaltstack(&s, 0));
	print_other("changed");
}

static void *in_a_thread(void *name)
{
	print_other(name);
	raise(SIGUSR1);
	return 0;
}

static void where(int s)
{
	char here;
	printf("handler is on %s\n", &here >= other && &here < other + OTHER ? "the other stack" : "the same");
	print_other("in it");
}

CASE(inherited)
{
	if (*more) {
		print_other("after exec");
		return;
	}
	on(SIGUSR1, where, SA_ONSTACK);
	print_other("at first");
	raise(SIGUSR1);
	set_other(0);
	raise(SIGUSR1);
	stall(10, 2);
	pid_t child = must(fork());
	if (child == 0) {
		what_it_is_in_a_child("fork");
		_exit(0);
	}
	ended("fork", child);
	if ((child = must(vfork())) == 0) {
		what_it_is_in_a_child("vfork");
		_exit(0);
	}
	ended("vfork", child);
	print_other("after vfork");
	pthread_t t;
	for (int i = 0; i < 3; i++) {
		must(pthread_create(&t, 0, in_a_thread, "thread"));
		pthread_join(t, 0);
	}
	fflush(stdout);
	execl(own_path, "frames", "inherited", "again", (char *)0);
}

static int child_with_stack(void *p)
{
	what_it_is_in_a_child(p);
	return 0;
}

CASE(inherited_by_clones)
{
	static char stack[256 << 10] __attribute__((aligned(64)));
	on(SIGUSR1, where, SA_ONSTACK);
	set_other(0);
	for (int i = 0; i < 2; i++) {
		ended("copy", must(clone(child_with_stack, stack + sizeof stack, SIGCHLD, "copy")));
		ended("vfork", must(clone(child_with_stack, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, "vfork")));
		print_other("parent");
		stall(10 + i, 1);
	}
}

/* The context of a handler: its contents, and changes that it may make there. */
static unsigned change_flags;
static int change;

static void context(int s, siginfo_t *info, void *p)
{
	ucontext_t *u = p;
	printf("context: %d, %zu bytes, flags %x\n", u->uc_stack.ss_sp == other, u->uc_stack.ss_size,
	       u->uc_stack.ss_size ? u->uc_stack.ss_flags : 0);
	print_other("in it");
	if (change) {
		u->uc_stack.ss_sp = other;
		u->uc_stack.ss_size = OTHER / 2;
		u->uc_stack.ss_flags = change_flags;
	}
}

CASE(contexts_of_handlers)
{
	on_info(SIGUSR1, context, SA_ONSTACK);
	on_info(SIGUSR2, context, 0);
	for (int i = 0; i < 16; i++) {
		stack_t none = { .ss_flags = SS_DISABLE };
		must(sigaltstack(&none, 0));
		if (i & 4)
			set_other(i & 8 ? SS_AUTODISARM : 0);
		/* Kernels differ on an alternate stack. */
		change = (i & 3) == 2;
		change_flags = i & 8 ? 0 : SS_AUTODISARM;
		raise(i & 1 ? SIGUSR1 : SIGUSR2);
		print_other("after it");
		stall(10 + i, 1);
	}
}

/* A handler within a handler, on whichever stack. */
static char places[64];

static void nested(int s)
{
	char here;
	char *at = places + strlen(places);
	*at = &here >= other && &here < other + OTHER ? 'o' : 's';
	stall(20 + strlen(places), 1);
	if (strlen(places) < 6)
		raise(s == SIGUSR1 ? SIGUSR2 : SIGUSR1);
	getppid();
}

CASE(handlers_in_handlers)
{
	for (int i = 0; i < 8; i++) {
		on(SIGUSR1, nested, SA_NODEFER | (i & 1 ? SA_ONSTACK : 0));
		on(SIGUSR2, nested, SA_NODEFER | (i & 2 ? SA_ONSTACK : 0));
		set_other(i & 4 ? SS_AUTODISARM : 0);
		memset(places, 0, sizeof places);
		raise(SIGUSR1);
		puts(places);
		print_other("after them");
	}
}

static sigjmp_buf back;
static int from;

static void jump(int s)
{
	char here;
	caught++;
	from += &here >= other && &here < other + OTHER;
	siglongjmp(back, 1);
}

CASE(jumps_out_of_handlers)
{
	char c;
	int p[2];
	must(pipe(p));
	set_other(0);
	for (int which = 0; which < 2; which++) {
		on(SIGUSR1, jump, which ? SA_ONSTACK : 0);
		on(SIGALRM, jump, which ? SA_ONSTACK : 0);
		for (volatile int i = 0; i < 150; i++) {
			if (sigsetjmp(back, 1) == 0)
				raise(SIGUSR1);
		}
		for (volatile int i = 0; i < 20; i++) {
			if (sigsetjmp(back, 1) == 0) {
				every(1000);
				read(p[0], &c, 1);
			}
			every(0);
			stall(20 + i, 1);
		}
		printf("%s, %d there\n", caught >= 170 ? "all" : "too few", from > 150 ? 1 : 0);
		caught = 0;
	}
	print_other("at last");
}

/* Handlers run on the stack that they interrupt, also of a thread that waits. */
static char *lowest, *highest;
static volatile int outside, inside, ends;

static void compare(int s)
{
	char here;
	(&here >= lowest && &here < highest ? &inside : &outside)[0]++;
}

static void *reads(void *p)
{
	pthread_attr_t a;
	void *at;
	size_t size;
	pthread_getattr_np(pthread_self(), &a);
	pthread_attr_getstack(&a, &at, &size);
	lowest = at, highest = lowest + size;
	__atomic_store_n(&ends, 1, __ATOMIC_SEQ_CST);
	for (int round = 0; inside < 300 && round < 200; round++)
		stall(round, 40);
	__atomic_store_n(&ends, 2, __ATOMIC_SEQ_CST);
	return 0;
}

CASE(handlers_of_a_thread_that_reads)
{
	pthread_t t;
	on(SIGUSR1, compare, SA_RESTART);
	must(pthread_create(&t, 0, reads, 0));
	while (__atomic_load_n(&ends, __ATOMIC_SEQ_CST) == 0)
		usleep(100);
	while (__atomic_load_n(&ends, __ATOMIC_SEQ_CST) == 1) {
		pthread_kill(t, SIGUSR1);
		usleep(100);
	}
	pthread_join(t, 0);
	printf("outside %d\n", outside);
}

/* Calls from new and old places touch nothing below a small stack. */
CASE(small_stacks)
{
	static char area[64 << 10] __attribute__((aligned(4096)));
	static const int sizes[] = { 256, 512, 1024, 2048 };
	for (int n = 0; n < 4; n++) {
		long changed = 0, ret;
		char *floor = area + sizeof area / 2, *top = floor + sizes[n];
		memset(area, 0x5a, sizeof area);
		for (int i = 0; i < 12; i++)
			__asm__ volatile("mov %%rsp, %%rbx\n\tmov %2, %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
					 : "=a"(ret)
					 : "a"(SYS_getppid), "r"(top)
					 : "rbx", "rcx", "r11", "memory");
		for (char *p = area; p < floor; p++)
			changed += *p != 0x5a;
		printf("%d bytes: %ld changed below\n", sizes[n], changed);
		stall(10 + n, 1);
	}
}

/* Registers are as they were, whatever stack their frame was on. */
static void spoils(int s)
{
	__asm__ volatile("pxor %%xmm0, %%xmm0\n\tpxor %%xmm7, %%xmm7\n\tpxor %%xmm15, %%xmm15" ::: "xmm0", "xmm7", "xmm15");
	caught++;
	getppid();
}

CASE(vectors_across_handlers)
{
	int wrong = 0;
	for (int i = 0; i < 60; i++) {
		sig_atomic_t before = caught;
		long value = 0x1122334455667788l + i, first, seventh, last;
		on(SIGALRM, spoils, i & 1 ? SA_ONSTACK : 0);
		if (i == 20)
			set_other(0);
		every(1000);
		__asm__ volatile("movq %3, %%xmm0\n\tmovq %3, %%xmm7\n\tmovq %3, %%xmm15\n"
				 "1: pause\n\tmov %4, %%eax\n\tcmp %5, %%eax\n\tje 1b\n\t"
				 "movq %%xmm0, %0\n\tmovq %%xmm7, %1\n\tmovq %%xmm15, %2"
				 : "=&r"(first), "=&r"(seventh), "=&r"(last)
				 : "r"(value), "m"(caught), "r"(before)
				 : "eax", "xmm0", "xmm7", "xmm15", "cc", "memory");
		every(0);
		wrong += first != value || seventh != value || last != value;
		if (i % 10 == 0)
			stall(10 + i, 1);
	}
	printf("%d wrong\n", wrong);
}

/* Signals that are blocked in a handler that interrupts a call with a mask of its own. */
static void print_mask(int s)
{
	sigset_t m;
	sigprocmask(SIG_BLOCK, 0, &m);
	for (int i = 1; i < 32; i++)
		if (sigismember(&m, i))
			printf(" %d", i);
	puts(" blocked");
}

CASE(masks_in_handlers)
{
	sigset_t two = set_of(SIGUSR2, SIGALRM), one = set_of(SIGTERM, 0), old;
	struct sigaction a = { .sa_handler = print_mask };
	sigaddset(&a.sa_mask, SIGHUP);
	for (int i = 0; i < 4; i++) {
		a.sa_flags = (i & 1 ? SA_NODEFER : 0) | (i & 2 ? SA_ONSTACK : 0);
		must(sigaction(SIGUSR1, &a, 0));
		sigset_t blocked = set_of(SIGUSR1, SIGTERM);
		sigprocmask(SIG_SETMASK, &blocked, &old);
		raise(SIGUSR1);
		sigsuspend(&two);
		sigprocmask(SIG_SETMASK, &one, 0);
		raise(SIGUSR1);
		sigprocmask(SIG_SETMASK, &old, 0);
		raise(SIGUSR1);
		stall(10 + i, 1);
	}
}

/* sigaction(2) returns what was set, and what remains of it. */
CASE(actions_as_they_were_set)
{
	static const int flags[] = { 0, SA_ONSTACK, SA_RESETHAND, SA_ONSTACK | SA_RESETHAND | SA_NODEFER, SA_RESTART };
	for (int i = 0; i < 15; i++) {
		struct sigaction got, a = { .sa_handler = i % 3 ? count : SIG_IGN, .sa_flags = flags[i % 5] };
		sigaddset(&a.sa_mask, SIGHUP);
		if (i & 1)
			sigaddset(&a.sa_mask, SIGSYS);
		must(sigaction(SIGUSR1, &a, &got));
		for (int again = 0; again < 3; again++) {
			must(sigaction(SIGUSR1, 0, &got));
			printf("%d %x %d%d%d\n", got.sa_handler == count ? 2 : got.sa_handler == SIG_IGN, got.sa_flags & ~0x04000000,
			       sigismember(&got.sa_mask, SIGHUP), sigismember(&got.sa_mask, SIGSYS), sigismember(&got.sa_mask, SIGINT));
			if (again == 0)
				raise(i % 5 == 0 || i % 5 == 2 ? SIGCONT : SIGUSR1);
		}
		stall(10 + i, 1);
	}
	printf("%d\n", caught);
}
