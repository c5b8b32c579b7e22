// Adds up a mapped file, from its first word to its last, again and again.
//
// usage: sweeps FILE TIMES
#include "program_helpers.h"

int main(int argc, char **argv)
{
	long count;
	uint64_t sum = 0;

	if (argc < 3)
		return 2;
	const uint64_t *words = words_of(argv[1], &count);
	for (long n = atol(argv[2]); n > 0; n--)
		for (long at = 0; at < count; at++)
			sum = sum * 31 + words[at];
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
