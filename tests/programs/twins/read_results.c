/* Reading: what comes back, how much of it, where it stops, and bad places to put it. */
#include "twin.h"

CASE(across_the_end)
{
	char buf[8192];
	for (int i = 0; i < 10; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 20 + i);
		int fd = must(open(name, O_RDONLY));
		printf("%zd ", read(fd, buf, 5000));
		printf("%zd ", read(fd, buf, 5000));
		printf("%zd ", read(fd, buf, 5000));
		printf("%zd ", pread(fd, buf, 8192, 4090 + i));
		printf("%zd ", pread(fd, buf, 8192, 1 << 20));
		printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
		close(fd);
	}
}

CASE(at_odd_offsets)
{
	static char buf[300000];
	int fd = must(open("big", O_RDONLY));
	long offsets[] = { 1, 4095, 131071, 131072, 1000003, (3 << 20) - 1, (3 << 20) - 100000, 2097151 };
	size_t sizes[] = { 1, 2, 4097, 131073, 262145 };
	for (int i = 0; i < 8; i++)
		for (int s = 0; s < 5; s++) {
			ssize_t n = pread(fd, buf, sizes[s], offsets[i]);
			printf("%ld %zu: %zd %u\n", offsets[i], sizes[s], n, n > 0 ? sum(buf, n) : 0);
		}
}

CASE(bad_descriptors_and_arguments)
{
	char buf[100];
	struct iovec v = { buf, 100 };
	int dir = must(open("many", O_RDONLY | O_DIRECTORY)), path = must(open("data", O_PATH)), out = must(open(in_work("out"), O_WRONLY | O_CREAT, 0600)), fd = must(open("many/30", O_RDONLY));
	show(read(-1, buf, 1));
	show(read(99, buf, 1));
	show(read(dir, buf, 1));
	show(read(path, buf, 1));
	show(read(out, buf, 1));
	show(write(fd, buf, 1));
	show(pread(fd, buf, 1, -1));
	show(pread(0, buf, 1, 0));
	show(lseek(fd, -1, SEEK_SET));
	show(lseek(fd, 0, 99));
	show(lseek(fd, 1l << 62, SEEK_SET));
	show(read(fd, buf, 0));
	show(read(fd, (void *)16, 0));
	show(read(fd, (void *)16, 10));
	show(lseek(fd, 0, SEEK_SET));
	show(read(fd, (void *)16, 10));
	show(read(fd, (void *)(1ul << 63), 10));
	show(read(fd, buf, -1));
	show(readv(fd, &v, -1));
	show(readv(fd, &v, 1025));
	show(readv(fd, (void *)16, 1));
	show(preadv2(fd, &v, 1, 0, 0x1000));
	show(preadv2(fd, &v, 1, -1, 0));
	show(syscall(SYS_read, fd, buf, 1l << 63));
	show(lseek(fd, 0, SEEK_CUR));
}

/* A read returns what fits before the bad part, and moves the offset by that. */
CASE(bad_in_the_middle)
{
	char *page = last_page();
	for (int i = 0; i < 6; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 40 + i);
		int fd = must(open(name, O_RDONLY));
		show(read(fd, page + 4096 - 100 * i, 1000));
		show(lseek(fd, 0, SEEK_CUR));
		struct iovec v[3] = { { page, 50 }, { i % 2 ? (void *)16 : page + 4000, 200 }, { page, 50 } };
		show(readv(fd, v, 3));
		show(lseek(fd, 0, SEEK_CUR));
		show(pread(fd, page + 4000, 4000, 0));
		close(fd);
	}
	mprotect(page, 4096, PROT_READ);
	int fd = must(open("many/50", O_RDONLY));
	show(read(fd, page, 10));
	show(lseek(fd, 0, SEEK_CUR));
}

CASE(vectors)
{
	char a[10], b[3000], c[4000];
	struct iovec v[] = { { a, 10 }, { b, 0 }, { b, 3000 }, { c, 4000 } };
	for (int i = 0; i < 8; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 10 + i);
		int fd = must(open(name, O_RDONLY));
		memset(c, 0, sizeof c);
		ssize_t n = readv(fd, v, 4);
		printf("%zd %u %u %u\n", n, sum(a, 10), sum(b, 3000), sum(c, 2000));
		printf("%zd\n", preadv(fd, v, 3, 4999));
		printf("%zd\n", preadv2(fd, v, 3, -1, 0));
		printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
		close(fd);
	}
}

/* The flag that asks not to wait; either answer is right, the bytes are not negotiable. */
CASE(asking_not_to_wait)
{
	char buf[6000];
	struct iovec v = { buf, 5000 };
	int bad = 0;
	for (int i = 0; i < 20; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 20 + i);
		int fd = must(open(name, O_RDONLY));
		for (int tries = 0;; tries++) {
			ssize_t n = preadv2(fd, &v, 1, 0, RWF_NOWAIT);
			if (n == 5000 && buf[0] == buf[4999])
				break;
			if (n == -1 && errno != EAGAIN)
				bad++;
			must(pread(fd, buf, 5000, 0));
			if (tries > 1000)
				break;
		}
		must(preadv2(fd, &v, 1, 0, RWF_HIPRI) == 5000 ? 0 : -1);
		close(fd);
	}
	printf("bad %d\n", bad);
}

CASE(past_the_cache)
{
	char *buf = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = must(open("big", O_RDONLY | O_DIRECT));
	for (int i = 0; i < 6; i++) {
		show(pread(fd, buf, 65536, i * 300000 / 4096 * 4096));
		printf("%u\n", sum(buf, 65536));
	}
	show(pread(fd, buf + 1, 4096, 0));
	show(pread(fd, buf, 4096, 100));
	show(pread(fd, buf, 65536, (3 << 20) - 4096));
	show(pread(fd, buf, 4096, 3 << 20));
	int tail = must(open("many/50", O_RDONLY | O_DIRECT));
	show(read(tail, buf, 8192));
	show(read(tail, buf, 8192));
	show(fcntl(fd, F_GETFL) & O_DIRECT ? 1 : 0);
	show(fcntl(fd, F_SETFL, 0));
	show(pread(fd, buf, 100, 1));
}

CASE(holes)
{
	char buf[5000];
	int fd = must(open("odd/holes", O_RDONLY));
	show(lseek(fd, 0, SEEK_DATA));
	show(lseek(fd, 0, SEEK_HOLE));
	show(lseek(fd, 1 << 20, SEEK_HOLE));
	show(lseek(fd, (2 << 20) + 2, SEEK_DATA));
	show(lseek(fd, (2 << 20) + 2, SEEK_HOLE));
	show(lseek(fd, 3 << 20, SEEK_DATA));
	show(pread(fd, buf, 5000, (1 << 20) - 100));
	printf("%.21s\n", buf + 100);
	show(pread(fd, buf, 5000, 500000));
	printf("%u\n", sum(buf, 5000));
	show(pread(fd, buf, 5000, (2 << 20) - 10));
}

CASE(growing_while_read)
{
	char buf[3000];
	int out = must(open(in_work("grows"), O_RDWR | O_CREAT | O_APPEND, 0600)), in = must(open(in_work("grows"), O_RDONLY));
	for (int i = 0; i < 10; i++) {
		printf("%zd ", read(in, buf, sizeof buf));
		memset(buf, 'a' + i, sizeof buf);
		must(write(out, buf, 1000 + i * 300));
		must(fdatasync(out));
		posix_fadvise(in, 0, 0, POSIX_FADV_DONTNEED);
		stall(20 + i, 1);
	}
	must(ftruncate(out, 500));
	printf("%zd\n", read(in, buf, sizeof buf));
	must(lseek(in, 0, SEEK_SET));
	printf("%zd %c\n", read(in, buf, sizeof buf), buf[499]);
}

/* A read returns what was just written, in memory or not. */
CASE(own_writes)
{
	static char buf[200000], got[200000];
	int fd = must(open(in_work("file"), O_RDWR | O_CREAT, 0600)), bad = 0;
	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < sizeof buf; i++)
			buf[i] = i * 7 + round * 13;
		must(pwrite(fd, buf, sizeof buf, round * 1000));
		if (round % 2) {
			must(fsync(fd));
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		}
		must(pwrite(fd, "changed", 7, round * 1000 + 50000));
		memcpy(buf + 50000, "changed", 7);
		ssize_t n = must(pread(fd, got, sizeof got, round * 1000));
		bad += n != sizeof got || memcmp(buf, got, n);
		stall(30 + round, 1);
	}
	printf("bad %d\n", bad);
}

CASE(hints_from_the_program)
{
	char buf[1000];
	for (int advice = 0; advice < 6; advice++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 30 + advice);
		int fd = must(open(name, O_RDONLY));
		show(posix_fadvise(fd, 0, 0, advice));
		show(readahead(fd, 0, 4096));
		ssize_t n = read(fd, buf, 1000);
		printf("%zd %u\n", n, sum(buf, 1000));
		close(fd);
	}
	show(posix_fadvise(99, 0, 0, 0));
	show(posix_fadvise(0, 0, -1, 0));
	show(readahead(99, 0, 1));
}

CASE(without_blocking)
{
	char buf[6000];
	for (int i = 0; i < 10; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", 40 + i);
		int fd = must(open(name, O_RDONLY | O_NONBLOCK));
		ssize_t n = read(fd, buf, sizeof buf);
		printf("%zd %u\n", n, n > 0 ? sum(buf, n) : 0);
		struct pollfd f = { fd, POLLIN | POLLOUT, 0 };
		show(poll(&f, 1, -1));
		close(fd);
	}
}

CASE(with_stdio)
{
	char line[200];
	int lines = 0;
	unsigned h = 0;
	FILE *f = fopen("src/d0/f7.c", "r");
	while (fgets(line, sizeof line, f))
		lines++, h = h * 31 + sum(line, strlen(line));
	printf("%d %u\n", lines, h);
	fseek(f, 100, SEEK_SET);
	fgets(line, sizeof line, f);
	fputs(line, stdout);
	printf("%d %d\n", ungetc('x', f), fgetc(f));
	f = freopen("src/d0/f8.c", "r", f);
	fgets(line, sizeof line, f);
	fputs(line, stdout);
	fclose(f);
	/* A child goes on where the parent's buffer ended. */
	f = fopen("src/d0/f9.c", "r");
	fgets(line, sizeof line, f);
	fflush(f);
	pid_t child = must(fork());
	if (child == 0) {
		fgets(line, sizeof line, f);
		fputs(line, stdout);
		fflush(stdout);
		_exit(0);
	}
	ended("child", child);
}
