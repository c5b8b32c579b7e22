/* Free address space that the program knows: mappings there work, whatever has stalled in between.
 */
#include "twin.h"
#include <sys/shm.h>
#include <sys/time.h>

#define HOLE ((16 << 20) + 4096)
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Finds the place of `size` bytes that were mapped and are free again. */
static char *hole(size_t size)
{
	char *p = mmap(0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		must(-1);
	must(munmap(p, size));
	return p;
}

static char *mapped(char *at, size_t size, int how)
{
	char *p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
	printf("mapped: %s\n", p == MAP_FAILED ? strerrorname_np(errno) : p == at ? "there" : "elsewhere");
	fflush(stdout);
	if (p != at)
		exit(1);
	memset(p, 0x5a, size);
	return p;
}

static void count_changed(const char *p, size_t size)
{
	size_t changed = 0;
	for (size_t i = 0; i < size; i++)
		changed += p[i] != 0x5a;
	printf("bytes changed: %zu\n", changed);
}

/* Somewhere in the stack of each thread of the last `busy`. */
static char *stacks[20];

static void *stalls(void *first)
{
	static int next;
	char here;
	stacks[__sync_fetch_and_add(&next, 1) % 20] = &here;
	stall((long)first, 2);
	return 0;
}

/* Everything that may need memory: a stall, a child, threads. */
static void busy(int first)
{
	stall(first, 3);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		stall(first + 3, 2);
		_exit(0);
	}
	ended("child", must(child));
	pthread_t t[20];
	for (long i = 0; i < 20; i++)
		must(-pthread_create(&t[i], 0, stalls, (void *)(first + 5 + i % 5)));
	for (int i = 0; i < 20; i++)
		pthread_join(t[i], 0);
}

/* `at`, where `size` bytes were free, or another such place if the C library keeps a stack there
 * now. Which stacks of ended threads it keeps depends on the order of their ends. */
static char *unless_kept(char *at, size_t size)
{
	unsigned char there;
	for (int i = 0; i < 20; i++) {
		char *page = stacks[i] - (size_t)stacks[i] % 4096;
		if (page > at - 4096 && page < at + size + (8 << 20) && mincore(page, 4096, &there) == 0)
			return hole(size);
	}
	return at;
}

/* Runs `name` again, whose program and libraries are in memory: nothing has stalled there. */
static void anew(char **more, char *name)
{
	char *argv[] = { self(), name, "anew", 0 };
	fflush(stdout);
	if (!more[0])
		must(execv(self(), argv));
}

static void covered(int how)
{
	char *at = hole(HOLE);
	busy(10);
	char *p = mapped(at = unless_kept(at, HOLE), HOLE, how);
	busy(30);
	count_changed(p, HOLE);
}

CASE(mapped_over_what_was_free)
{
	anew(more, "mapped_over_what_was_free");
	covered(MAP_FIXED);
}

CASE(mapped_where_nothing_should_be)
{
	anew(more, "mapped_where_nothing_should_be");
	covered(MAP_FIXED_NOREPLACE);
}

CASE(asked_for_again)
{
	anew(more, "asked_for_again");
	covered(0);
}

CASE(free_and_unmapped_again)
{
	anew(more, "free_and_unmapped_again");
	char *at = hole(HOLE);
	busy(10);
	show(munmap(at, HOLE));
	show(mprotect(at, HOLE, PROT_READ));
	busy(30);
	show(munmap(at, HOLE));
	busy(40);
}

CASE(moved_to_what_was_free)
{
	anew(more, "moved_to_what_was_free");
	char *at = hole(HOLE), *p;
	busy(10);
	p = mmap(0, HOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(p, 0x5a, HOLE);
	at = unless_kept(at, HOLE);
	printf("there: %s\n", yes(mremap(p, HOLE, HOLE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at));
	busy(30);
	count_changed(at, HOLE);
}

CASE(shared_memory_attached_to_what_was_free)
{
	anew(more, "shared_memory_attached_to_what_was_free");
	int id = must(shmget(IPC_PRIVATE, HOLE, IPC_CREAT | 0600));
	char *at = shmat(id, 0, 0);
	must(shmdt(at));
	busy(10);
	char *p = shmat(id, at, 0);
	int e = errno;
	must(shmctl(id, IPC_RMID, 0));
	printf("attached: %s\n", p == (char *)-1 ? strerrorname_np(e) : yes(p == at));
	if (p != at)
		exit(1);
	memset(p, 0x5a, HOLE);
	busy(30);
	count_changed(p, HOLE);
}

/* The last stack that was given back is where the next mapping goes. */
CASE(stacks_of_threads_that_have_ended)
{
	anew(more, "stacks_of_threads_that_have_ended");
	char *at[8];
	for (int round = 0; round < 8; round++) {
		at[round] = hole((1 << 20) << round % 4);
		busy(round * 5);
		at[round] = unless_kept(at[round], (1 << 20) << round % 4);
		memset(mmap(at[round], 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), 0x5a,
		       1 << 20);
		busy(round * 5 + 2);
		count_changed(at[round], 1 << 20);
		must(munmap(at[round], 1 << 20));
	}
}

/* The most that can be mapped in one piece. */
static size_t largest(void)
{
	size_t some = 0;
	for (size_t more = (size_t)1 << 47; more >= 4096; more /= 2) {
		void *p = mmap(0, some + more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p != MAP_FAILED) {
			must(munmap(p, some + more));
			some += more;
		}
	}
	return some;
}

/* Tests of libraries exhaust memory in this way. Each child stalls for the first time before
 * another piece. */
CASE(all_that_is_free_is_taken_piece_by_piece)
{
	anew(more, "all_that_is_free_is_taken_piece_by_piece");
	for (int first = 0; first < 3; first++) {
		fflush(stdout);
		pid_t child = fork();
		if (child) {
			ended("child", must(child));
			continue;
		}
		for (int i = 0; i < 3; i++) {
			size_t size = largest();
			if (i == first)
				stall(10 + 5 * i, 5);
			void *p = mmap(0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
			printf("piece %d: %s\n", i, p == MAP_FAILED ? strerrorname_np(errno) : "taken");
		}
		fflush(stdout);
		_exit(0);
	}
}
