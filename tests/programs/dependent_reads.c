/* dependent_reads FILE BLOCK_BYTES HOPS: follows a chain through a file. The first four bytes of
 * each block are the number of the next, so that only the data itself shows the way. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	long bytes = atol(argv[2]), hops = atol(argv[3]);
	int file = open(argv[1], O_RDONLY);
	uint32_t at = 0;
	uint64_t sum = 0;
	static unsigned char page[4096];
	for (long hop = 0; hop < hops; hop++) {
		if (pread(file, page, sizeof page, (off_t)at * bytes) != sizeof page)
			return 3;
		at = *(uint32_t *)page;
		sum = sum * 31 + at + page[hop % sizeof page];
	}
	printf("sum %llu\n", (unsigned long long)sum);
	return 0;
}
