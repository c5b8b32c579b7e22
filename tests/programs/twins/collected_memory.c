/* A garbage collector (libgc) that stops threads by signals and scans their stacks: it finds all
 * that a thread holds, wherever the thread was stopped. */
#include "twin.h"
#define GC_THREADS
#include <gc.h>

#define NODES 48
#define THREADS 4

struct node {
	struct node *next;
	long number, check[4];
};

/* Takes the room of whatever was wrongly collected, and writes there. */
static __attribute__((noinline)) void garbage(void)
{
	for (int i = 0; i < 400; i++) {
		struct node *n = GC_MALLOC(sizeof *n);
		memset(n, 0xee, sizeof *n);
	}
}

static volatile int lost;

/* A list that nothing but this stack leads to; files are read meanwhile. */
static __attribute__((noinline)) long list(int seed)
{
	struct node *head = 0;
	long all = 0;
	for (int i = 0; i < NODES; i++) {
		struct node *n = GC_MALLOC(sizeof *n);
		n->next = head, n->number = seed * 1000 + i;
		for (int c = 0; c < 4; c++)
			n->check[c] = n->number ^ c;
		head = n;
		if (i % 8 == 0)
			stall(seed + i, 2);
	}
	garbage();
	int count = 0;
	for (; head && count <= NODES; head = head->next, count++) {
		for (int c = 0; c < 4; c++)
			lost += head->check[c] != (head->number ^ c);
		all += head->number;
	}
	lost += count != NODES;
	return all;
}

/* Room that nothing but the arguments of a call lead to. */
static __attribute__((noinline)) unsigned buffer(int n)
{
	char name[4096];
	snprintf(name, sizeof name, "%s/many/%02d", getenv("TREE"), n % 64);
	int fd = must(open(name, O_RDONLY | O_CLOEXEC));
	void *room = GC_MALLOC_ATOMIC(6000);
	ssize_t got;
	while ((got = read(fd, room, 6000)) == -1 && errno == EINTR)
		;
	close(fd);
	garbage();
	return sum(room, must(got));
}

static volatile int working;

static void *works(void *arg)
{
	long first = (long)arg, total = 0;
	for (int round = 0; round < 4; round++) {
		total += list(first + 16 * round);
		total += buffer(first + 16 * round);
	}
	__sync_fetch_and_sub(&working, 1);
	return (void *)total;
}

static void nothing(int s)
{
}

static void collect_while_threads_work(void)
{
	pthread_t t[THREADS];
	GC_INIT();
	working = THREADS;
	for (long i = 0; i < THREADS; i++)
		must(-pthread_create(&t[i], 0, works, (void *)(4 * i)));
	while (working) {
		GC_gcollect();
		usleep(500);
	}
	for (int i = 0; i < THREADS; i++) {
		void *total;
		pthread_join(t[i], &total);
		printf("%ld\n", (long)total);
	}
	printf("lost %d\n", lost);
}

CASE(held_by_threads_that_wait)
{
	collect_while_threads_work();
}

CASE(held_by_threads_with_signals)
{
	on(SIGALRM, nothing, SA_RESTART);
	every(1000);
	collect_while_threads_work();
	every(0);
}

static volatile int collections;

static void collects(int s)
{
	collections++;
	GC_gcollect();
}

/* Runs in a handler, whatever it interrupts: only while nothing is allocated. */
static __attribute__((noinline)) int chain(int first)
{
	struct node *head = 0;
	sigset_t alarm = set_of(SIGALRM, 0);
	for (int i = 0; i < NODES; i++) {
		must(sigprocmask(SIG_BLOCK, &alarm, 0));
		struct node *n = GC_MALLOC(sizeof *n);
		garbage();
		must(sigprocmask(SIG_UNBLOCK, &alarm, 0));
		n->next = head, n->number = i;
		head = n;
		stall(first + i, 1);
	}
	must(sigprocmask(SIG_BLOCK, &alarm, 0));
	garbage();
	int count = 0;
	for (; head && head->number == NODES - 1 - count; head = head->next)
		count++;
	must(sigprocmask(SIG_UNBLOCK, &alarm, 0));
	return count;
}

CASE(held_by_who_is_interrupted)
{
	GC_INIT();
	on(SIGALRM, collects, SA_RESTART);
	every(2000);
	for (int i = 0; i < 4; i++)
		printf("%d of %d\n", chain(4 + i), NODES);
	every(0);
	ask(collections > 0);
}
