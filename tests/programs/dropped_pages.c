/* dropped_pages FILE STEP: reads a page at every STEP bytes of FILE, and before each has the kernel
 * drop the whole file, as another process might; prints the sum of all pages. */
#include "program_helpers.h"

static char buf[4096];

int main(int argc, char **argv)
{
	off_t step = atol(argv[2]);
	int fd = must(open(argv[1], O_RDONLY));
	unsigned seen = 0;

	must(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
	for (off_t at = 0, size = must(lseek(fd, 0, SEEK_END)); at < size; at += step) {
		must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
		seen = seen * 31 + sum(buf, must(pread(fd, buf, sizeof buf, at)));
	}
	printf("%u\n", seen);
	return 0;
}
