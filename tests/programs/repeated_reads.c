/* repeated_reads FILE STEP PIECE TIMES: reads PIECE bytes at every STEP bytes of FILE, TIMES over,
 * and prints the sum of all. */
#include "program_helpers.h"

static char buf[1 << 20];

int main(int argc, char **argv)
{
	off_t step = atol(argv[2]), size;
	size_t piece = atol(argv[3]);
	int times = atoi(argv[4]), fd = must(open(argv[1], O_RDONLY));
	unsigned seen = 0;

	must(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
	size = must(lseek(fd, 0, SEEK_END));
	while (times-- > 0)
		for (off_t at = 0; at < size; at += step)
			seen = seen * 31 + sum(buf, must(pread(fd, buf, piece, at)));
	printf("%u\n", seen);
	return 0;
}
