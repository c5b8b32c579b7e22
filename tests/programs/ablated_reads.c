/* Programs that need one mechanism each.
 *
 * ablated_reads checked FILE STEP TIMES: reads a page at every STEP bytes of FILE into a cleared
 * buffer, and ends when a page does not begin as it must.
 *
 * ablated_reads fans LINKS STEP TIMES DATA: follows a chain of TIMES pages, one at every STEP bytes
 * of LINKS. The first four bytes of each name the next page, and with it eight pages of DATA. It
 * ends when a page does not begin as it must: a page that has arrived shows that much, and no more.
 *
 * ablated_reads far COLD STEP TIMES WARM READS: reads TIMES pages of COLD, sleeps, and ends if it
 * has slept. A shadow, which does not sleep, goes on: it reads READS single bytes of WARM, and then
 * TIMES more pages of COLD. */
#include "program_helpers.h"

static char page[4096];

static int checked(char **argv)
{
	off_t step = atol(argv[1]);
	int fd = must(open(argv[0], O_RDONLY)), times = atoi(argv[2]);
	unsigned seen = 0;

	must(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
	for (int n = 0; n < times; n++) {
		memset(page, 0, sizeof page);
		must(pread(fd, page, sizeof page, n * step));
		if (page[1] != 1 || page[2] != 2)
			return 3;
		seen = seen * 31 + sum(page, sizeof page);
	}
	printf("%u\n", seen);
	return 0;
}

static int fans(char **argv)
{
	enum { FAN = 8 };
	off_t step = atol(argv[1]);
	int links = must(open(argv[0], O_RDONLY)), times = atoi(argv[2]);
	int data = must(open(argv[3], O_RDONLY));
	unsigned seen = 0, at = 0;

	must(posix_fadvise(links, 0, 0, POSIX_FADV_RANDOM));
	must(posix_fadvise(data, 0, 0, POSIX_FADV_RANDOM));
	for (int n = 0; n < times; n++) {
		memset(page, 0, sizeof page);
		must(pread(links, page, sizeof page, at * step));
		if (page[4] != 4 || page[5] != 5)
			return 3;
		memcpy(&at, page, sizeof at);
		at %= times;
		for (int m = 0; m < FAN; m++) {
			must(pread(data, page, sizeof page, (at * FAN + m) % times * step));
			seen = seen * 31 + at + sum(page, sizeof page);
		}
	}
	printf("%u\n", seen);
	return 0;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int far(char **argv)
{
	off_t step = atol(argv[1]);
	int cold = must(open(argv[0], O_RDONLY)), times = atoi(argv[2]);
	int warm = must(open(argv[3], O_RDONLY)), reads = atoi(argv[4]);

	must(posix_fadvise(cold, 0, 0, POSIX_FADV_RANDOM));
	must(pread(warm, page, 1, 0));
	for (int n = 0; n < times; n++)
		must(pread(cold, page, sizeof page, n * step));
	double start = now();
	struct timespec sleep = { .tv_sec = 1, .tv_nsec = 500000000 };
	must(nanosleep(&sleep, NULL));
	if (now() - start > 1) {
		printf("slept\n");
		return 0;
	}
	for (int n = 0; n < reads; n++)
		must(pread(warm, page, 1, 0));
	for (int n = times; n < 2 * times; n++)
		must(pread(cold, page, sizeof page, n * step));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	if (!strcmp(argv[1], "checked"))
		return checked(argv + 2);
	if (argc < 6)
		return 2;
	if (!strcmp(argv[1], "fans"))
		return fans(argv + 2);
	return far(argv + 2);
}
