/* Takes address space, in several sizes, until there is none, and says how much there was. */
#include "program_helpers.h"
#include <sys/mman.h>

int main(void)
{
	size_t total = 0;
	for (size_t size = 4 << 20; size >= 64 << 10; size /= 4)
		while (total < (size_t)1 << 31) {
			void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (at == MAP_FAILED)
				break;
			total += size;
		}
	printf("%zu KiB\n", total >> 10);
	return 0;
}
