/* Signal handlers: how they are entered, what they do, and how they are left. */
#include "twin.h"
#include <ucontext.h>

static volatile sig_atomic_t caught, depth, deepest;
static sigjmp_buf back;

static void count(int s) { caught++; }

static void jump(int s)
{
	caught++;
	siglongjmp(back, 1);
}

CASE(jumps_out_of_a_blocked_read)
{
	int p[2];
	char c;
	must(pipe(p));
	on(SIGALRM, jump, 0);
	for (volatile int i = 0; i < 30; i++) {
		if (sigsetjmp(back, 1) == 0) {
			every(2000);
			read(p[0], &c, 1);
			puts("not reached");
		}
		every(0);
		stall(i, 2);
	}
	printf("%d\n", caught >= 30);
}

CASE(jumps_out_of_file_reads)
{
	on(SIGALRM, jump, 0);
	for (volatile int i = 0; i < 30; i++) {
		if (sigsetjmp(back, 1) == 0) {
			every(1000 + 300 * i);
			/* Raw, for a jump out of the library may leave a lock behind. */
			for (;;) {
				char buf[512];
				long fd = raw(SYS_open, (long)"big", O_RDONLY, 0, 0, 0, 0);
				while (raw(SYS_read, fd, (long)buf, sizeof buf, 0, 0, 0) > 0)
					;
				raw(SYS_close, fd, 0, 0, 0, 0, 0);
			}
		}
		every(0);
		raw(SYS_close_range, 3, ~0u, 0, 0, 0, 0);
		stall(i, 1);
	}
	printf("%d\n", caught >= 30);
}

static void nest(int s)
{
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (depth < 10)
		raise(SIGUSR1);
	stall(10 + depth, 1);
	depth--;
}

CASE(nested_in_themselves)
{
	on(SIGUSR1, nest, SA_NODEFER);
	for (int i = 0; i < 3; i++)
		raise(SIGUSR1);
	printf("%d\n", deepest);
}

static char order[32];
static void in_order(int s) { order[strlen(order)] = s == SIGUSR1 ? 'a' : s == SIGUSR2 ? 'b' : 'c'; }

static void sends_more(int s)
{
	order[strlen(order)] = '<';
	raise(SIGUSR2);
	raise(SIGHUP);
	stall(20, 2);
	order[strlen(order)] = '>';
}

CASE(masks_of_handlers)
{
	struct sigaction a = { .sa_handler = sends_more };
	on(SIGUSR2, in_order, 0);
	on(SIGHUP, in_order, 0);
	for (int i = 0; i < 3; i++) {
		sigemptyset(&a.sa_mask);
		if (i)
			sigaddset(&a.sa_mask, SIGUSR2);
		if (i == 2)
			sigfillset(&a.sa_mask);
		must(sigaction(SIGUSR1, &a, 0));
		memset(order, 0, sizeof order);
		raise(SIGUSR1);
		puts(order);
	}
}

CASE(only_once)
{
	struct sigaction now;
	on(SIGUSR1, count, SA_RESETHAND);
	raise(SIGUSR1);
	sigaction(SIGUSR1, 0, &now);
	ask(now.sa_handler == SIG_DFL);
	stall(10, 5);
	pid_t child = must(fork());
	if (child == 0)
		raise(SIGUSR1);
	ended("child", child);
	printf("%d\n", caught);
}

static volatile int faults;
static char *page;

static void maps_it(int s, siginfo_t *i, void *c)
{
	faults++;
	if (i->si_addr != page || mprotect(page, 4096, PROT_READ | PROT_WRITE))
		_exit(70);
	stall(20, 1);
}

CASE(faults_that_are_mended)
{
	on_info(SIGSEGV, maps_it, 0);
	for (int n = 0; n < 10; n++) {
		page = mmap(0, 4096, n % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*page = n;
		stall(30 + n, 1);
		printf("%d ", *page);
	}
	printf("%d faults\n", faults);
}

static void skips(int s, siginfo_t *i, void *context)
{
	ucontext_t *u = context;
	faults++;
	printf("signal %d code %d\n", s, i->si_code);
	/* Each instruction below is two bytes long. */
	u->uc_mcontext.gregs[REG_RIP] += 2;
}

CASE(instructions_that_are_skipped)
{
	on_info(SIGSEGV, skips, 0);
	on_info(SIGILL, skips, 0);
	on_info(SIGTRAP, skips, 0);
	on_info(SIGFPE, skips, 0);
	for (int n = 0; n < 3; n++) {
		stall(20 + n, 1);
		__asm__ volatile("ud2");
		__asm__ volatile("movl (%%rax), %%eax" ::"a"(8l) : "memory");
		__asm__ volatile("xor %%edx, %%edx\n\tdivl %%ecx" ::"a"(1), "c"(0) : "edx");
		__asm__ volatile("nop\n\t.byte 0xcd, 0x03\n\tnop\n\tnop\n\tnop" ::: "memory");
	}
	printf("%d\n", faults);
}

/* A handler that changes what the interrupted code finds in its registers. */
static void answers(int s, siginfo_t *i, void *context)
{
	ucontext_t *u = context;
	u->uc_mcontext.gregs[REG_RAX] = 4321;
	u->uc_mcontext.gregs[REG_RIP] += 2;
	sigaddset(&u->uc_sigmask, SIGUSR2);
	sigaddset(&u->uc_sigmask, SIGSYS);
}

CASE(results_put_into_the_frame)
{
	sigset_t now;
	on_info(SIGILL, answers, 0);
	for (int n = 0; n < 5; n++) {
		long rax = 0;
		__asm__ volatile("ud2" : "+a"(rax)::"memory");
		sigprocmask(SIG_BLOCK, 0, &now);
		printf("%ld usr2 %d sys %d\n", rax, sigismember(&now, SIGUSR2), sigismember(&now, SIGSYS));
		stall(40 + n, 1);
		sigemptyset(&now);
		sigprocmask(SIG_SETMASK, &now, 0);
	}
}

static int waiting[2];
static void writes(int s) { write(waiting[1], "x", 1); }

CASE(calls_that_are_restarted)
{
	char c = 0;
	int status;
	must(pipe(waiting));
	for (int i = 0; i < 10; i++) {
		on(SIGALRM, writes, SA_RESTART);
		every(3000);
		ssize_t n = read(waiting[0], &c, 1);
		every(0);
		printf("%zd %c\n", n, c);
		stall(20 + i, 1);
		fcntl(waiting[0], F_SETFL, O_NONBLOCK);
		while (read(waiting[0], &c, 1) == 1)
			;
		fcntl(waiting[0], F_SETFL, 0);
	}
	(void)status;
}

CASE(calls_that_are_interrupted)
{
	int p[2], s[2];
	char c;
	struct pollfd f;
	struct timespec long_time = { 100, 0 };
	must(pipe(p));
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	on(SIGALRM, count, 0);
	every(3000);
	show(read(p[0], &c, 1));
	show(recv(s[0], &c, 1, 0));
	show(accept(s[0], 0, 0));
	f = (struct pollfd){ p[0], POLLIN, 0 };
	show(poll(&f, 1, -1));
	show(select(0, 0, 0, 0, 0));
	show(nanosleep(&long_time, 0));
	show(pause());
	show(open(({ char *name = in_work("fifo"); mkfifo(name, 0600); name; }), O_RDONLY));
	show(clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, 0));
	show(syscall(SYS_futex, &caught, 0 /* FUTEX_WAIT */, caught + 0, &long_time, 0, 0) == -1
	     && (errno == EINTR || errno == EAGAIN));
	every(0);
	stall(30, 3);
	/* These are interrupted whatever the handler says. */
	on(SIGALRM, count, SA_RESTART);
	every(3000);
	show(poll(&f, 1, -1));
	show(select(0, 0, 0, 0, 0));
	show(nanosleep(&long_time, 0));
	show(pause());
	every(0);
}

static void forwards(int s, siginfo_t *i, void *c)
{
	caught += i->si_pid == getpid() && i->si_uid == getuid() && i->si_code == (s == SIGUSR1 ? SI_TKILL : SI_USER);
	if (s == SIGUSR1)
		kill(getpid(), SIGUSR2);
}

CASE(who_sent_them)
{
	on_info(SIGUSR1, forwards, SA_RESTART);
	on_info(SIGUSR2, forwards, SA_RESTART);
	for (int i = 0; i < 20; i++) {
		raise(SIGUSR1);
		stall(i, 1);
	}
	printf("%d\n", caught);
}

CASE(what_sigaction_refuses)
{
	struct sigaction a = { .sa_handler = count }, old;
	show(sigaction(SIGKILL, &a, 0));
	show(sigaction(SIGSTOP, &a, 0));
	show(sigaction(0, &a, 0));
	show(sigaction(65, &a, 0));
	show(syscall(SYS_rt_sigaction, SIGUSR1, 0, &old, 4));
	show(syscall(SYS_rt_sigaction, SIGUSR1, 16, 0, 8));
	show(syscall(SYS_rt_sigaction, SIGUSR1, 0, 16, 8));
	show(sigaction(SIGKILL, 0, &old));
	a.sa_flags = 0x400 | SA_RESTART;
	sigfillset(&a.sa_mask);
	must(sigaction(SIGTERM, &a, 0));
	must(sigaction(SIGTERM, 0, &old));
	printf("flags %x, kill %d, stop %d, sys %d\n", old.sa_flags, sigismember(&old.sa_mask, SIGKILL), sigismember(&old.sa_mask, SIGSTOP), sigismember(&old.sa_mask, SIGSYS));
	stall(10, 3);
	show(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 16, 0, 8));
	show(syscall(SYS_rt_sigprocmask, 9, &old.sa_mask, 0, 8));
	show(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &old.sa_mask, 0, 16));
	show(syscall(SYS_rt_sigsuspend, 16, 8));
	show(syscall(SYS_rt_sigpending, 16, 8));
}

static int within, most_within, others, sys_caught;

static void another(int s)
{
	others += within;
}

static void raises(int s)
{
	sigset_t now;
	most_within = ++within > most_within ? within : most_within;
	if (!sys_caught++)
		raise(SIGUSR1), raise(SIGSYS);
	sigprocmask(SIG_SETMASK, 0, &now);
	printf("USR1 %d USR2 %d SYS %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2), sigismember(&now, SIGSYS));
	within--;
}

CASE(mask_of_a_handler_for_sigsys)
{
	struct sigaction a = { .sa_handler = raises, .sa_mask = set_of(SIGUSR1, 0) };
	sigset_t now;
	on(SIGUSR1, another, 0);
	must(sigaction(SIGSYS, &a, 0));
	raise(SIGSYS);
	stall(10, 3);
	printf("caught %d, deepest %d, others within %d\n", sys_caught, most_within, others);
	sys_caught = 1, a.sa_flags = SA_NODEFER;
	must(sigaction(SIGSYS, &a, 0));
	for (int i = 0; i < 10; i++)
		raise(SIGSYS);
	sigprocmask(SIG_SETMASK, 0, &now);
	printf("USR1 %d SYS %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGSYS));
}

/* The interrupted instruction cannot be read: there is none. */
CASE(caught_where_nothing_is)
{
	void (*const nowhere[])(void) = { 0, (void (*)(void))0x123456789000, (void (*)(void))&back };
	on(SIGSEGV, jump, 0);
	for (volatile int i = 0; i < 12; i++) {
		if (sigsetjmp(back, 1) == 0) {
			nowhere[i % 3]();
			puts("not reached");
		}
		stall(i, 2);
	}
	printf("caught %d\n", caught);
}
