// Adds up words of a mapped file, at places that are computed. It makes no call meanwhile.
//
// usage: gathers FILE COUNT
#include "program_helpers.h"

int main(int argc, char **argv)
{
	long count;
	uint64_t at = 88172645463325252ull, sum = 0;

	if (argc < 3)
		return 2;
	const uint64_t *words = words_of(argv[1], &count);
	for (long n = atol(argv[2]); n > 0; n--) {
		at ^= at << 13;
		at ^= at >> 7;
		at ^= at << 17;
		sum = sum * 31 + words[at % count];
	}
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
