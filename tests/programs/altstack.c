/* The alternate signal stack belongs to the program. */
#include "program_helpers.h"
#include <ucontext.h>

static volatile sig_atomic_t caught, on_it;
static char *stack_at;
#define STACK (256 << 10)

static void query(const char *when)
{
	stack_t now;
	int ret = sigaltstack(0, &now);
	printf("%s: %d, flags %d, size %zu, ours %d\n", when, ret, now.ss_flags, now.ss_size, now.ss_sp == stack_at);
	fflush(stdout);
}

static void on_alarm(int s)
{
	char here, buf[64], name[32];
	stack_t now;
	on_it += &here >= stack_at && &here < stack_at + STACK;
	if (sigaltstack(0, &now) || now.ss_flags != SS_ONSTACK)
		_exit(75);
	snprintf(name, sizeof name, "src/d0/f%d.c", caught % 20);
	int fd = open(name, O_RDONLY);
	if (fd < 0 || read(fd, buf, 64) != 64 || memcmp(buf, "int ", 4))
		_exit(76);
	close(fd);
	caught++;
}

static ucontext_t main_context, other;

static void reads(void)
{
	unsigned h = 0;
	static char buf[1 << 16];
	int fd = must(open("big", O_RDONLY));
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (int i = 0; i < 200; i++) {
		ssize_t n = must(pread(fd, buf, 5000, (i * 37 % 300) * 10000));
		h = h * 31 + sum(buf, n);
	}
	printf("read %u\n", h);
	stall_on(0, 20);
}

int main(int argc, char **argv)
{
	/* The program's stack below its alternate one, as coroutines and Go have it. */
	char *area = mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *low = area;
	stack_at = area + (1 << 20);
	query("at first");
	stack_t s = { .ss_sp = stack_at, .ss_size = STACK };
	must(sigaltstack(&s, 0));
	if (argc == 1) {
		query("set");
		stack_t off = { .ss_flags = SS_DISABLE };
		show(sigaltstack(&off, 0));
		query("disabled");
		show(sigaltstack(&s, 0));
		show(sigaltstack(&s, 0));
		query("set again");
	}
	struct sigaction a = { .sa_handler = on_alarm, .sa_flags = SA_ONSTACK | SA_RESTART };
	must(sigaction(SIGALRM, &a, 0));
	struct itimerval t = { { 0, 900 }, { 0, 900 } };
	setitimer(ITIMER_REAL, &t, 0);
	if (argc > 1) {
		must(getcontext(&other));
		other.uc_stack.ss_sp = low;
		other.uc_stack.ss_size = STACK;
		other.uc_link = &main_context;
		makecontext(&other, reads, 0);
		must(swapcontext(&main_context, &other));
	} else
		reads();
	while (caught <= 10)
		;
	struct itimerval stop = { { 0 } };
	setitimer(ITIMER_REAL, &stop, 0);
	printf("caught some %d, all on it %d\n", caught > 10, caught == on_it);
	if (argc == 1)
		query("at last");
	return 0;
}
