/* Shared parts of the test programs. Each prints what it observes; the test compares two runs. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static inline long long must_be(const char *what, long long ret)
{
	if (ret == -1) {
		perror(what);
		exit(99);
	}
	return ret;
}
#define must(call) must_be(#call, (long long)(call))

/* The 8-byte words of a file, mapped, and how many there are. */
static inline const uint64_t *words_of(const char *path, long *count)
{
	struct stat stat;
	int file = must(open(path, O_RDONLY));
	must(fstat(file, &stat));
	const void *words = mmap(0, stat.st_size, PROT_READ, MAP_SHARED, file, 0);
	must((long)words);
	*count = stat.st_size / 8;
	return (const uint64_t *)words;
}

/* A result, and why if it is a failure. */
static inline void say(const char *what, long ret)
{
	printf("%s: %ld%s%s\n", what, ret, ret == -1 ? " " : "", ret == -1 ? strerrorname_np(errno) : "");
	fflush(stdout);
}
#define show(call) (errno = 0, say(#call, (long)(call)))

static inline unsigned sum(const void *p, size_t len)
{
	unsigned h = 2166136261u;
	for (size_t i = 0; i < len; i++)
		h = (h ^ ((const unsigned char *)p)[i]) * 16777619u;
	return h;
}

/* Reads cold files of the slow tree: stalls, so that a shadow is made. */
static inline void stall_on(int first, int count)
{
	char name[32], buf[8192];
	for (int i = first; i < first + count; i++) {
		snprintf(name, sizeof name, "many/%02d", i);
		int fd = must(open(name, O_RDONLY));
		while (must(read(fd, buf, sizeof buf)) > 0)
			;
		close(fd);
	}
}

/* A page that ends where nothing is mapped. */
static inline char *last_page(void)
{
	char *p = (char *)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(munmap(p + 4096, 4096));
	return p;
}
