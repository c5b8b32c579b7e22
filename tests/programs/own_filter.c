// Maps a file and touches it, so that runahead may sample the faults of its threads. Then it
// installs a filter of its own, which ends interception, and computes for a while in two threads.
//
// usage: own_filter FILE
#include "program_helpers.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <time.h>

static const unsigned char *bytes;
static long size;

static void compute(double seconds)
{
	struct timespec time;
	volatile unsigned long sum = 0;

	do {
		for (int n = 0; n < 100000; n++)
			sum += n;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	} while (time.tv_sec + time.tv_nsec / 1e9 < seconds);
}

static void *thread(void *unused)
{
	(void)unused;
	getppid();
	for (int n = 0; n < 40; n++)
		(void)*(volatile const unsigned char *)&bytes[(n * 7919l * 4096) % size];
	must(open("/dev/null", O_RDONLY));
	compute(0.4);
	return 0;
}

int main(int argc, char **argv)
{
	struct sock_filter allow = { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
	struct sock_fprog filter = { 1, &allow };
	struct stat stat;
	pthread_t other;

	if (argc < 2)
		return 2;
	int file = must(open(argv[1], O_RDONLY));
	must(fstat(file, &stat));
	size = stat.st_size;
	bytes = mmap(0, size, PROT_READ, MAP_SHARED, file, 0);
	pthread_create(&other, 0, thread, 0);
	for (int n = 0; n < 40; n++)
		(void)*(volatile const unsigned char *)&bytes[(n * 104729l * 4096) % size];
	compute(0.1);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
	compute(0.3);
	pthread_join(other, 0);
	puts("as ever");
	return 0;
}
