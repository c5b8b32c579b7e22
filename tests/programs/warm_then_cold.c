/* warm_then_cold HOW WARM COLD: makes WARM calls with everything in memory, then COLD accesses to
 * data that is not. The file `cold` is large and mostly not in memory; one piece in every 128 KiB
 * of it is read. */
#include "program_helpers.h"

enum { STEP = 128 << 10 };

static char buf[4096];
static unsigned seen;
static int warm_calls, cold_things;

static void note(ssize_t n)
{
	must(n);
	seen = seen * 31 + sum(buf, n);
}

/* A warm call: never stalls once its file is in memory. */
static void warm(int fd, int by_offset)
{
	for (int i = 0; i < warm_calls; i++) {
		off_t at = i % 256 * 1024;
		if (by_offset) {
			note(pread(fd, buf, 1024, at));
		} else {
			if (at == 0)
				must(lseek(fd, 0, SEEK_SET));
			note(read(fd, buf, 1024));
		}
	}
}

/* Warm calls in many threads. */
static void *warm_too(void *fd)
{
	char own[512];
	for (int i = 0; i < warm_calls; i++)
		must(pread((int)(intptr_t)fd, own, sizeof own, i % 256 * 512));
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argv[1];
	warm_calls = atoi(argv[2]);
	cold_things = atoi(argv[3]);
	int data = must(open("data", O_RDONLY)), cold = must(open("cold", O_RDONLY));
	must(posix_fadvise(cold, 0, 0, POSIX_FADV_RANDOM));
	for (off_t at = 0; at < 256 << 10; at += sizeof buf)
		note(pread(data, buf, sizeof buf, at));
	/* No shadow goes beyond this, so that none is ahead when it gets cold. */
	must(poll(NULL, 0, 0));
	warm(data, strcmp(how, "offsets"));
	if (!strcmp(how, "threads")) {
		pthread_t threads[3];
		for (int i = 0; i < 3; i++)
			pthread_create(&threads[i], NULL, warm_too, (void *)(intptr_t)data);
		for (int i = 0; i < 3; i++)
			pthread_join(threads[i], NULL);
	}
	if (!strcmp(how, "child")) {
		int status;
		pid_t child = must(fork());
		if (child)
			must(waitpid(child, &status, 0));
		if (child)
			return WEXITSTATUS(status);
	}
	for (int i = 0; i < cold_things; i++) {
		off_t at = (off_t)(i + 1) * STEP;
		if (!strcmp(how, "opens")) {
			char name[32];
			snprintf(name, sizeof name, "cold.d/%d/file", i);
			int fd = must(open(name, O_RDONLY));
			note(read(fd, buf, sizeof buf));
			close(fd);
		} else if (!strcmp(how, "looks")) {
			struct stat st;
			char name[32];
			snprintf(name, sizeof name, "cold.d/%d/file", i);
			must(stat(name, &st));
			seen += st.st_size;
		} else if (!strcmp(how, "offsets")) {
			must(lseek(cold, STEP - (i ? (off_t)sizeof buf : 0), i ? SEEK_CUR : SEEK_SET));
			note(read(cold, buf, sizeof buf));
		} else {
			note(pread(cold, buf, sizeof buf, at));
		}
	}
	printf("%s: sum %u, offset %ld\n", how, seen, (long)lseek(data, 0, SEEK_CUR));
	return 0;
}
