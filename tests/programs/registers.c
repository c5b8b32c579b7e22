/* State that a system call must preserve: general registers, vector registers, the stack below. */
#include "program_helpers.h"

static long calls(long fd, long times, char *buf)
{
	long bad = 0;
	for (long i = 0; i < times; i++) {
		register long r10 __asm__("r10") = 0x1010101010 + i, r8 __asm__("r8") = 0x808080 + i,
			r9 __asm__("r9") = 0x909090 + i, r12 __asm__("r12") = 0x12121212 + i,
			r13 __asm__("r13") = 0x13131313 + i, r14 __asm__("r14") = 0x1414 + i,
			r15 __asm__("r15") = 0x1515 + i;
		long ret = SYS_read, di = fd, si = (long)buf, dx = 16;
		__asm__ volatile("movq $0x5a5a5a5a, -8(%%rsp)\n\tmovq $0x6b6b6b6b, -128(%%rsp)\n\t"
				 "mov $0, %%eax\n\tsyscall\n\t"
				 "cmpq $0x5a5a5a5a, -8(%%rsp)\n\tjne 1f\n\tcmpq $0x6b6b6b6b, -128(%%rsp)\n\tje 2f\n"
				 "1:\tmov $-77777, %%eax\n2:"
				 : "+a"(ret), "+D"(di), "+S"(si), "+d"(dx), "+r"(r10), "+r"(r8), "+r"(r9),
				   "+r"(r12), "+r"(r13), "+r"(r14), "+r"(r15)
				 :
				 : "rcx", "r11", "memory", "cc");
		bad += ret != 16 || di != fd || si != (long)buf || dx != 16 || r10 != 0x1010101010 + i ||
		       r8 != 0x808080 + i || r9 != 0x909090 + i || r12 != 0x12121212 + i ||
		       r13 != 0x13131313 + i || r14 != 0x1414 + i || r15 != 0x1515 + i;
	}
	return bad;
}

__attribute__((target("avx"))) static long vectors(long fd, long times, char *buf)
{
	unsigned char in[16 * 32], out[16 * 32];
	long bad = 0;
	for (long i = 0; i < times; i++) {
		for (int j = 0; j < 512; j++)
			in[j] = j * 7 + i;
		long ret = 0;
		__asm__ volatile(
			"vmovdqu (%[in]), %%ymm0\n\tvmovdqu 32(%[in]), %%ymm1\n\tvmovdqu 64(%[in]), %%ymm2\n\t"
			"vmovdqu 96(%[in]), %%ymm3\n\tvmovdqu 128(%[in]), %%ymm4\n\tvmovdqu 160(%[in]), %%ymm5\n\t"
			"vmovdqu 192(%[in]), %%ymm6\n\tvmovdqu 224(%[in]), %%ymm7\n\tvmovdqu 256(%[in]), %%ymm8\n\t"
			"vmovdqu 480(%[in]), %%ymm15\n\t"
			"mov $0, %%eax\n\tsyscall\n\t"
			"vmovdqu %%ymm0, (%[out])\n\tvmovdqu %%ymm1, 32(%[out])\n\tvmovdqu %%ymm2, 64(%[out])\n\t"
			"vmovdqu %%ymm3, 96(%[out])\n\tvmovdqu %%ymm4, 128(%[out])\n\tvmovdqu %%ymm5, 160(%[out])\n\t"
			"vmovdqu %%ymm6, 192(%[out])\n\tvmovdqu %%ymm7, 224(%[out])\n\tvmovdqu %%ymm8, 256(%[out])\n\t"
			"vmovdqu %%ymm15, 480(%[out])\n\t"
			: "+a"(ret)
			: [in] "r"(in), [out] "r"(out), "D"(fd), "S"(buf), "d"(16L)
			: "rcx", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
			  "xmm7", "xmm8", "xmm15");
		bad += ret != 16 || memcmp(in, out, 288) || memcmp(in + 480, out + 480, 32);
	}
	return bad;
}

int main(void)
{
	char buf[16];
	int fd = must(open("data", O_RDONLY));
	printf("general: %ld wrong\n", calls(fd, 20000, buf));
	if (__builtin_cpu_supports("avx"))
		printf("vectors: %ld wrong\n", vectors(fd, 20000, buf));
	printf("at %ld\n", (long)lseek(fd, 0, SEEK_CUR));
	return 0;
}
