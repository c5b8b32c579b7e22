// Has more memory than its limit: fills it, and reads, stores to, maps anew, moves and forks parts
// of it, in an order that a seed decides, with calls whose arguments lie there. Then it goes over
// all of it, and prints what it has seen.
//
// usage: swapped_steps FILE MEBIBYTES SEED STEPS
#include "drawn_steps.h"

#define PAGE 4096l

static unsigned char *all;
static long pages;

static unsigned char *page(long n)
{
	return all + n * PAGE;
}

static void fill(long first, long count)
{
	for (long n = first; n < first + count; n++)
		for (long at = 0; at < PAGE; at += 8)
			*(uint64_t *)(page(n) + at) = (n * PAGE + at) * 0xd6e8feb86659fd93ull + state;
}

static void sweep(long first, long count, int stores)
{
	for (long n = first; n < first + count; n++) {
		see(*(uint64_t *)(page(n) + n % 512 * 8));
		if (stores)
			page(n)[n % PAGE] += 1;
	}
}

// A child finds the contents of its parent.
static void fork_over(long first, long count)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		seen = 0;
		sweep(first, count, 1);
		_exit(seen % 251);
	}
	waitpid(child, &status, 0);
	see(status);
}

static void anew(long first, long count)
{
	if (next(2)) {
		madvise(page(first), count * PAGE, MADV_DONTNEED);
	} else {
		munmap(page(first), count * PAGE);
		if (mmap(page(first), count * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			_exit(3);
	}
	see(page(first + next(count))[7]);
	fill(first, count / 2);
}

static void move(long first, long count)
{
	void *to = mremap(page(first), count * PAGE, count * PAGE, MREMAP_MAYMOVE);
	if (to != page(first))
		_exit(4);
	mprotect(page(first), count * PAGE, PROT_READ);
	see(page(first + next(count))[9]);
	mprotect(page(first), count * PAGE, PROT_READ | PROT_WRITE);
}

// A name that lies there, and a buffer.
static void call(const char *file, long n)
{
	char *name = (char *)page(n) + next(PAGE - 256);
	int fd;
	strcpy(name, file);
	see(name[0]);
	n = next(pages);
	fd = open(name, O_RDONLY);
	if (fd < 0)
		_exit(5);
	see(pread(fd, page(n), PAGE, next(64) * PAGE));
	see(page(n)[next(PAGE)]);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	pages = atol(argv[2]) << 20 >> 12;
	state = strtoull(argv[3], 0, 10) * 2 + 1;
	all = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		return 2;
	fill(0, pages);
	for (long step = atol(argv[4]); step > 0; step--) {
		long count = 1 + next(pages / 16), first = next(pages - count + 1);
		switch (next(8)) {
		case 0:
			fork_over(first, count / 4 + 1);
			break;
		case 1:
			anew(first, count / 4 + 1);
			break;
		case 2:
			move(first, count / 4 + 1);
			break;
		case 3:
			call(argv[1], first);
			break;
		case 4:
			for (int n = 0; n < 64; n++)
				see(page(next(pages))[next(PAGE)]++);
			break;
		default:
			sweep(first, count, step % 2);
		}
	}
	sweep(0, pages, 0);
	sweep(0, pages, 1);
	printf("%016llx\n", (unsigned long long)seen);
	return 0;
}
