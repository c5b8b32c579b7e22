/* Programs without a library: an entry point, a table of cases, and system calls. */
#include <asm/unistd.h>
#include <stddef.h>

struct twin {
	const char *name;
	void (*run)(long *stack);
};
#define CASE(n)                                                                                            \
	static void n(long *stack);                                                                        \
	static const struct twin twin_##n __attribute__((used, section("twins"), aligned(8))) = { #n, n }; \
	static void n(long *stack)
extern const struct twin __start_twins[], __stop_twins[];

static inline __attribute__((always_inline)) long call(long n, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long ret;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return ret;
}

void *memset(void *p, int c, size_t n)
{
	for (char *q = p; n--;)
		*q++ = c;
	return p;
}

static void print(const char *text, long n)
{
	char line[100];
	int len = 0, digits = 0;
	while (*text)
		line[len++] = *text++;
	line[len++] = ' ';
	if (n < 0)
		line[len++] = '-', n = -n;
	char number[24];
	do
		number[digits++] = '0' + n % 10;
	while (n /= 10);
	while (digits)
		line[len++] = number[--digits];
	line[len++] = '\n';
	call(__NR_write, 1, (long)line, len, 0);
}

static __attribute__((noinline)) long read_file(int n)
{
	char name[] = "many/00", buf[256];
	name[5] += n / 10, name[6] += n % 10;
	long got, total = 0, fd = call(__NR_open, (long)name, 0, 0, 0);
	if (fd < 0)
		return fd;
	while ((got = call(__NR_read, fd, (long)buf, sizeof buf, 0)) > 0)
		total += got;
	call(__NR_close, fd, 0, 0, 0);
	return got < 0 ? got : total;
}

__attribute__((used)) long at_entry[20];

CASE(registers_at_the_start)
{
	long all = 0;
	for (int i = 0; i < 15; i++)
		all |= at_entry[i];
	print("all zero but the stack:", all == 0);
	print("flags", at_entry[15] & ~0x44 /* zero and parity */);
	print("stack is aligned:", at_entry[16] % 16 == 0);
	print("arguments", *stack);
	read_file(10);
}

CASE(reads_cold_files)
{
	for (int i = 0; i < 30; i++)
		print("read", read_file(10 + i));
}

/* Only one page is mapped below the stack pointer. */
CASE(on_hardly_any_stack)
{
	char *p = (char *)call(__NR_mmap, 0, 3 * 4096, 0, 0x22);
	call(__NR_mprotect, (long)p + 4096, 4096, 3, 0);
	static long total, saved;
	__asm__ volatile("mov %%rsp, %0\n\tmov %1, %%rsp" : "=m"(saved) : "r"(p + 8192 - 16) : "memory");
	static int i;
	for (i = 0; i < 20; i++)
		total += read_file(20 + i);
	__asm__ volatile("mov %0, %%rsp" ::"m"(saved) : "memory");
	print("total", total);
}

/* No stack at all: the pointer is where nothing is. */
CASE(without_a_stack)
{
	static char buf[100];
	static const char name[] = "many/40";
	long fd, n, fd2;
	__asm__ volatile("mov %%rdi, %%r15\n\tmov %%rsp, %%r12\n\tmov $64, %%rsp\n\tmov $2, %%eax\n\txor %%esi, %%esi\n\tsyscall\n\tmov %%rax, %%r13\n\t"
			 "mov %%rax, %%rdi\n\tmov %4, %%rsi\n\tmov $100, %%edx\n\txor %%eax, %%eax\n\tsyscall\n\tmov %%rax, %%r14\n\t"
			 "mov %%r15, %%rdi\n\tmov $2, %%eax\n\txor %%esi, %%esi\n\tsyscall\n\tmov %%r12, %%rsp\n\tmov %%r13, %0\n\tmov %%r14, %1"
			 : "=&r"(fd), "=&r"(n), "=&a"(fd2) : "D"(name), "r"(buf)
			 : "rsi", "rdx", "rcx", "r11", "r12", "r13", "r14", "r15", "memory");
	print("descriptor", fd);
	print("read", n);
	print("letter", buf[99]);
	print("other", fd2);
}

static long status_of(long pid)
{
	int status = -1;
	long got = call(__NR_wait4, pid, (long)&status, 0, 0);
	return got == pid ? status : got;
}

CASE(forks)
{
	for (int i = 0; i < 10; i++) {
		long pid = call(__NR_fork, 0, 0, 0, 0);
		if (pid == 0) {
			read_file(i * 3);
			call(__NR_exit, i, 0, 0, 0);
		}
		print("status", status_of(pid) >> 8);
	}
}

CASE(vforks_and_execs)
{
	static const char *argv[] = { "sh", "-c", "read -r x < many/33; exit 5", 0 };
	for (int i = 0; i < 5; i++) {
		long pid = call(__NR_vfork, 0, 0, 0, 0);
		if (pid == 0) {
			call(__NR_execve, (long)"/bin/sh", (long)argv, 0, 0);
			call(__NR_exit, 1, 0, 0, 0);
		}
		print("status", status_of(pid) >> 8);
		read_file(20 + i);
	}
}

CASE(executes_itself)
{
	static char *argv[] = { "bare", "executes_itself", "2", 0 };
	if (*stack > 2) {
		print("arguments", *stack);
		print("read", read_file(50));
		return;
	}
	read_file(10);
	call(__NR_execve, (long)"/proc/self/exe", (long)argv, 0, 0);
	print("not reached", 1);
}

static volatile int handled;

static void handler(int s) { handled++; }
__attribute__((naked)) static void restorer(void) { __asm__ volatile("mov $15, %eax\n\tsyscall"); }

CASE(handles_signals)
{
	struct { void (*h)(int); unsigned long flags; void (*r)(void); unsigned long mask; } a = { handler, 0x04000000, restorer, 1ul << 30 };
	for (int s = 10; s < 32; s += 7) {
		call(__NR_rt_sigaction, s, (long)&a, 0, 8);
		for (int i = 0; i < 5; i++) {
			call(__NR_kill, call(__NR_getpid, 0, 0, 0, 0), s, 0, 0);
			read_file(s + i);
		}
	}
	print("handled", handled);
}

CASE(heap_from_nothing)
{
	long start = call(__NR_brk, 0, 0, 0, 0);
	print("grown", call(__NR_brk, start + (8 << 20), 0, 0, 0) == start + (8 << 20));
	for (long i = 0; i < 8 << 20; i += 4096)
		*(char *)(start + i) = i >> 12;
	read_file(30);
	long sum = 0;
	for (long i = 0; i < 8 << 20; i += 4096)
		sum += *(char *)(start + i);
	print("sum", sum);
	print("back", call(__NR_brk, start, 0, 0, 0) == start);
}

/* Unmaps everything except its own text and stack: the vdso, and all else. */
CASE(unmaps_what_it_does_not_need)
{
	long *p = stack + 1;
	while (*p++)
		;
	while (*p++)
		;
	long vdso = 0;
	for (; *p; p += 2)
		if (*p == 33)
			vdso = p[1];
	print("has one:", vdso != 0);
	print("unmapped", call(__NR_munmap, vdso, 8192, 0, 0));
	print("read", read_file(40));
	print("read", read_file(41));
}

static int same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	return *a == *b;
}

__attribute__((used)) void begin(long *stack)
{
	for (const struct twin *t = __start_twins; *stack > 1 && t < __stop_twins; t++)
		if (same(t->name, (char *)stack[2])) {
			for (int i = 0; i < 4 && *stack == 2; i++)
				read_file(i);
			t->run(stack);
			call(__NR_exit_group, 0, 0, 0, 0);
		}
	call(__NR_exit_group, 97, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n\t"
	"mov %rax, at_entry(%rip)\n\tmov %rbx, at_entry+8(%rip)\n\tmov %rcx, at_entry+16(%rip)\n\tmov %rdx, at_entry+24(%rip)\n\t"
	"mov %rsi, at_entry+32(%rip)\n\tmov %rdi, at_entry+40(%rip)\n\tmov %rbp, at_entry+48(%rip)\n\tmov %r8, at_entry+56(%rip)\n\t"
	"mov %r9, at_entry+64(%rip)\n\tmov %r10, at_entry+72(%rip)\n\tmov %r11, at_entry+80(%rip)\n\tmov %r12, at_entry+88(%rip)\n\t"
	"mov %r13, at_entry+96(%rip)\n\tmov %r14, at_entry+104(%rip)\n\tmov %r15, at_entry+112(%rip)\n\tmov %rsp, at_entry+128(%rip)\n\t"
	"pushfq\n\tpop %rax\n\tmov %rax, at_entry+120(%rip)\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\txor %ebp, %ebp\n\tcall begin\n\thlt\n");
