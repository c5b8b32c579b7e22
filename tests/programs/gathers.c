// Adds up words of a mapped file, at places that are computed. It makes no call meanwhile.
//
// usage: gathers FILE COUNT
#include "common.h"

int main(int argc, char **argv)
{
	struct stat stat;
	uint64_t at = 88172645463325252ull, sum = 0;

	if (argc < 3)
		return 2;
	int file = must(open(argv[1], O_RDONLY));
	must(fstat(file, &stat));
	const uint64_t *words = mmap(0, stat.st_size, PROT_READ, MAP_SHARED, file, 0);
	if (words == MAP_FAILED)
		return 3;
	for (long n = atol(argv[2]); n > 0; n--) {
		at ^= at << 13;
		at ^= at >> 7;
		at ^= at << 17;
		sum = sum * 31 + words[at % (stat.st_size / 8)];
	}
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
