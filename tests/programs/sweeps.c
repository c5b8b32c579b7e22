// Adds up a mapped file, from its first word to its last, again and again.
//
// usage: sweeps FILE TIMES
#include "common.h"

int main(int argc, char **argv)
{
	struct stat stat;
	uint64_t sum = 0;

	if (argc < 3)
		return 2;
	int file = must(open(argv[1], O_RDONLY));
	must(fstat(file, &stat));
	const uint64_t *words = mmap(0, stat.st_size, PROT_READ, MAP_SHARED, file, 0);
	if (words == MAP_FAILED)
		return 3;
	for (long n = atol(argv[2]); n > 0; n--)
		for (long at = 0; at < stat.st_size / 8; at++)
			sum = sum * 31 + words[at];
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
