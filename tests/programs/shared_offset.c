/* The offset of a description that others hold, too. */
#include "program_helpers.h"

int main(void)
{
	char buf[9000];
	int fd = must(open("data", O_RDONLY));
	int twin = must(dup(fd)), other = must(dup3(fd, 40, O_CLOEXEC));
	for (int i = 0; i < 12; i++) {
		int from = i % 3 == 0 ? fd : i % 3 == 1 ? twin : other;
		ssize_t n = must(read(from, buf, 1 + i * 777));
		printf("%d: %zd %u now %ld %ld %ld\n", i, n, sum(buf, n), (long)lseek(fd, 0, SEEK_CUR),
		       (long)lseek(twin, 0, SEEK_CUR), (long)lseek(other, 0, SEEK_CUR));
		if (i % 4 == 3)
			must(lseek(twin, 60000 * i, SEEK_SET));
	}
	fflush(stdout);
	for (int i = 0; i < 4; i++) {
		pid_t child = must(fork());
		if (child == 0) {
			ssize_t n = read(fd, buf, 5000);
			printf("child read %zd %u\n", n, sum(buf, n));
			fflush(stdout);
			_exit(0);
		}
		must(waitpid(child, 0, 0));
		ssize_t n = read(fd, buf, 3000);
		printf("parent read %zd %u, at %ld\n", n, sum(buf, n), (long)lseek(fd, 0, SEEK_CUR));
		fflush(stdout);
	}
	/* The next read of the test's shell from the same description depends on ours. */
	must(read(0, buf, 1234));
	return 0;
}
