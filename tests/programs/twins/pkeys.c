/* Protection keys (pkeys(7)): the rights of a thread are in a register, which a handler starts
 * anew. */
#include "twin.h"
#include <sys/syscall.h>
#include <ucontext.h>

#ifndef PKEY_DISABLE_WRITE
#define PKEY_DISABLE_ACCESS 1
#define PKEY_DISABLE_WRITE 2
#endif

/* The register, which only a processor with keys has. */
static unsigned rights(void)
{
	unsigned a, d;
	__asm__ volatile("rdpkru" : "=a"(a), "=d"(d) : "c"(0));
	return a;
}

static int right(int key)
{
	return rights() >> 2 * key & 3;
}

static int key_with(int rights)
{
	int key = syscall(SYS_pkey_alloc, 0, rights);
	if (key < 0) {
		printf("no keys\n");
		exit(0);
	}
	return key;
}

static char *page_of(int key, int prot)
{
	char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(syscall(SYS_pkey_mprotect, p, 4096, prot, key));
	return p;
}

#define RW (PROT_READ | PROT_WRITE)

CASE(rights_of_a_new_key)
{
	int key = key_with(0), other = key_with(PKEY_DISABLE_WRITE);
	printf("%d %d\n", right(key), right(other));
	volatile char *p = page_of(key, RW);
	p[0] = 1;
	stall(10, 3);
	p[1] = 2;
	printf("%d %d\n", right(key), right(other));
	must(syscall(SYS_pkey_free, other));
	printf("%d\n", right(key));
}

CASE(calls_with_memory_of_a_key)
{
	int key = key_with(0), fd = must(open("many/20", O_RDONLY));
	char *p = page_of(key, RW);
	for (int i = 0; i < 20; i++)
		printf("%zd %c\n", pread(fd, p, 100, 100 * i), p[99]);
	strcpy(p, "many/21");
	for (int i = 0; i < 20; i++)
		printf("%d ", close(must(open(p, O_RDONLY))));
	printf("%d\n", right(key));
}

CASE(calls_with_memory_that_a_key_denies)
{
	int fd = must(open("many/22", O_RDONLY)), written = key_with(PKEY_DISABLE_WRITE), all = key_with(PKEY_DISABLE_ACCESS);
	char *w = page_of(written, RW), *a = page_of(all, RW);
	for (int i = 0; i < 20; i++) {
		show(pread(fd, w, 16, i * 200));
		show(pread(fd, a, 16, i * 200));
		show(write(1, w, 0));
		show(open(a, O_RDONLY));
	}
}

static void *own_rights(void *key)
{
	stall(40, 2);
	printf("thread: %d\n", right((long)key));
	return 0;
}

CASE(rights_of_children_and_threads)
{
	long key = key_with(0);
	pid_t pid = fork();
	if (!pid) {
		stall(30, 2);
		_exit(right(key));
	}
	ended("fork", must(pid));
	pid = vfork();
	if (!pid)
		_exit(right(key));
	ended("vfork", must(pid));
	pthread_t t;
	must(-pthread_create(&t, 0, own_rights, (void *)key));
	pthread_join(t, 0);
	printf("%d\n", right(key));
}

static volatile unsigned in_handler, changed;

static void on_signal(int s)
{
	stall(50, 1);
	in_handler = rights();
	if (changed)
		key_with(0);
}

CASE(rights_in_handlers)
{
	int key = key_with(0);
	on(SIGUSR1, on_signal, 0);
	for (int i = 0; i < 20; i++) {
		raise(SIGUSR1);
		if (in_handler >> 2 * key != (unsigned)0x55555555 >> 2 * key)
			printf("in the handler: %x\n", in_handler);
	}
	changed = 1;
	raise(SIGUSR1);
	printf("%d\n", right(key));
}

/* getppid(2), as code that is only executed, or that the program keeps itself from writing to. */
static const unsigned char code[] = { 0xb8, 0x6e, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0xc3 };

static void called(char *p)
{
	int wrong = 0;
	for (int i = 0; i < 40; i++)
		wrong += ((long (*)(void))(void *)p)() != getppid();
	printf("wrong: %d\n", wrong);
}

CASE(code_that_can_only_be_executed)
{
	key_with(0);
	char *p = mmap(0, 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(p + 64, code, sizeof code);
	must(mprotect(p, 4096, PROT_EXEC));
	called(p + 64);
}

CASE(code_that_a_key_protects)
{
	int key = key_with(0);
	char *p = page_of(key, RW | PROT_EXEC);
	memcpy(p + 64, code, sizeof code);
	__asm__ volatile("wrpkru" ::"a"(rights() | 2 << 2 * key), "c"(0), "d"(0) : "memory");
	called(p + 64);
	must(syscall(SYS_pkey_mprotect, p, 4096, PROT_READ | PROT_EXEC, key));
	called(p + 64);
	printf("%d\n", right(key));
}

static ucontext_t outside, inside;

static void on_its_stack(void)
{
	for (int i = 0; i < 20; i++)
		stall(40 + i, 1);
	swapcontext(&inside, &outside);
}

/* A part of the thread's stack: the kernel writes to its area for rseq(2), at the top, whatever
 * the rights are. */
CASE(a_stack_of_a_key)
{
	long key = key_with(0);
	char *p = mmap(0, 1 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(syscall(SYS_pkey_mprotect, p, 1 << 20, RW, key));
	must(getcontext(&inside));
	inside.uc_stack = (stack_t){ .ss_sp = p, .ss_size = 1 << 20 };
	makecontext(&inside, on_its_stack, 0);
	must(swapcontext(&outside, &inside));
	printf("%d\n", right(key));
}
