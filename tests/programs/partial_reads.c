/* Reads of a file of which every other piece is in memory, in odd sizes and by every call. */
#include "program_helpers.h"

static void warm(const char *name, off_t size, off_t piece)
{
	if (size > 150000)
		size = 150000;
	char byte;
	int fd = must(open(name, O_RDONLY));
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
	for (off_t at = 0; at < size; at += 2 * piece)
		for (off_t page = at; page < at + piece && page < size; page += 4096)
			must(pread(fd, &byte, 1, page));
	close(fd);
}

int main(int argc, char **argv)
{
	const char *name = argv[1];
	off_t piece = atol(argv[2]);
	static char buf[1 << 20];
	const size_t sizes[] = { 1, 4095, 10000, 65536, 131071, 1 << 20 };
	struct stat st;
	must(stat(name, &st));
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t size = sizes[i];
		for (int how = 0; how < 4; how++) {
			if (size == 1 && how > 1)
				continue;
			warm(name, st.st_size, piece);
			int fd = must(open(name, O_RDONLY));
			off_t at = 0;
			unsigned h = 0, calls = 0;
			for (;;) {
				struct iovec v[2] = { { buf, size / 3 }, { buf + size / 3, size - size / 3 } };
				memset(buf, 0xee, size);
				ssize_t n = how == 0 ? read(fd, buf, size)
					: how == 1 ? pread(fd, buf, size, at)
					: how == 2 ? readv(fd, v, 2)
					: preadv(fd, v, 2, at);
				must(n);
				calls++;
				at += n;
				h = h * 31 + sum(buf, size);
				if (n == 0 || calls == 12)
					break;
			}
			printf("%zu by %d: %u calls, sum %u, at %ld, offset %ld\n", size, how, calls, h,
			       (long)at, (long)lseek(fd, 0, SEEK_CUR));
			close(fd);
		}
	}
	return 0;
}
