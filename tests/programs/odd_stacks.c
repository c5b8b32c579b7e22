/* Calls with a stack pointer that no compiler would make: unaligned, with nothing mapped below it,
 * or invalid; and calls that unmap the memory below the stack. The results of a call must not
 * depend on the stack, and memory above it and in the red zone below must not change. */
#include "program_helpers.h"

#define PAGE 4096l
#define AREA (16 * PAGE)

/* Makes a call with this stack pointer. */
static long on(char *stack, long nr, long a, long b, long c)
{
	register long save __asm__("r12");
	register char *to __asm__("r13") = stack;
	register long r10 __asm__("r10") = 0, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
	long ret = nr;
	__asm__ volatile("mov %%rsp, %[save]\n\tmov %[to], %%rsp\n\tsyscall\n\tcmp %[to], %%rsp\n\t"
			 "mov %[save], %%rsp\n\tje 1f\n\tmov $-77777, %%rax\n1:"
			 : "+a"(ret), [save] "=&r"(save)
			 : [to] "r"(to), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory", "cc");
	return ret;
}

static char *area(void)
{
	char *at = (char *)must(mmap(0, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	/* The page below the middle is unmapped. */
	must(munmap(at, AREA / 2));
	return at + AREA / 2;
}

static void reads(const char *where, char *stack, int fd)
{
	static char buf[64];
	long bytes = on(stack, SYS_pread64, fd, (long)buf, sizeof buf);
	printf("%s: %ld bytes, %x; closing nothing %ld\n", where, bytes, sum(buf, sizeof buf), on(stack, SYS_close, -1, 0, 0));
	fflush(stdout);
}

static void no_room(char *at, int fd)
{
	reads("no frame", at + 128 + 8, fd);
	reads("red zone of the lowest page", at + 128, fd);
	reads("part of a red zone", at + 64, fd);
	reads("first byte", at, fd);
	reads("below", at - PAGE, fd);
	reads("nothing", 0, fd);
	reads("no address", (char *)0x8000000000000000, fd);
}

/* Any argument adds a stack with unmapped memory just below the red zone. */
int main(int argc, char **argv)
{
	(void)argv;
	int fd = must(open("data", O_RDONLY));
	char *at = area();
	memset(at, 0x5a, AREA / 2);
	char *end = at + AREA / 2;
	for (int off = 1; off < 16; off++)
		reads("unaligned", end - off, fd);
	reads("last frame", at + 128 + 16, fd);
	if (argc > 1)
		no_room(at, fd);
	/* The red zone is the program's, whatever becomes of what is below it. */
	char *middle = at + PAGE * 4, *red = middle - 128;
	memset(at, 0x5a, AREA / 2);
	unsigned before = sum(red, end - red);
	reads("middle", middle, fd);
	printf("unchanged from the red zone on: %d\n", sum(red, end - red) == before);
	printf("advice below: %ld\n", on(middle, SYS_madvise, (long)at, 4 * PAGE, MADV_DONTNEED));
	printf("then it is empty: %d\n", at[0] == 0 && at[4 * PAGE - 1] == 0);
	printf("away below: %ld\n", on(middle, SYS_munmap, (long)at, 4 * PAGE, 0));
	if (argc > 1)
		reads("nothing below any more", middle, fd);
	printf("away with it: %ld\n", on(end - PAGE, SYS_munmap, (long)middle, end - middle, 0));
	return 0;
}
