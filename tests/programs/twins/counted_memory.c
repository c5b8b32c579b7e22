/* Memory of which the kernel counts who has it: attached segments, sealed files, huge pages. */
#include "twin.h"
#include <sys/shm.h>

#define ROUNDS 14

CASE(attachments)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct shmid_ds d;
		int id = must(shmget(IPC_PRIVATE, i % 2 ? 4096 : 1 << 20, 0600 | IPC_CREAT));
		char *p = shmat(id, 0, 0);
		must((long)p);
		*p = 1;
		stall(4 + 4 * i, 3);
		must(shmctl(id, IPC_STAT, &d));
		printf("%d ", (int)d.shm_nattch);
		stall(7 + 4 * i, 1);
		must(shmdt(p));
		must(shmctl(id, IPC_STAT, &d));
		printf("%d\n", (int)d.shm_nattch);
		must(shmctl(id, IPC_RMID, 0));
	}
}

CASE(attachments_of_a_parent)
{
	struct shmid_ds d;
	int id = must(shmget(IPC_PRIVATE, 4096, 0600 | IPC_CREAT)), go[2], back[2];
	must((long)shmat(id, 0, 0));
	must(pipe(go));
	must(pipe(back));
	pid_t child = must(fork());
	if (child == 0) {
		char c;
		for (int i = 0; i < ROUNDS; i++) {
			must(read(go[0], &c, 1));
			stall(4 + 4 * i, 4);
			must(write(back[1], "x", 1));
		}
		/* Attached until the parent has looked. */
		must(read(go[0], &c, 1));
		_exit(0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		char c;
		must(write(go[1], "x", 1));
		must(read(back[0], &c, 1));
		must(shmctl(id, IPC_STAT, &d));
		printf("%d\n", (int)d.shm_nattch);
	}
	must(write(go[1], "x", 1));
	ended("child", child);
	must(shmctl(id, IPC_RMID, 0));
}

CASE(seals_against_writing)
{
	for (int i = 0; i < ROUNDS; i++) {
		size_t len = i % 2 ? 4096 : 1 << 20;
		int fd = must(memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC));
		must(ftruncate(fd, len));
		char *p = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		*p = 1;
		stall(4 + 4 * i, 4);
		must(munmap(p, len));
		show(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
		close(fd);
	}
}

#define POOL "/proc/sys/vm/nr_hugepages"
#define HUGE (2 << 20)

static void pool(int pages)
{
	FILE *f = fopen(POOL, "we");
	if (f) {
		fprintf(f, "%d\n", pages);
		fclose(f);
	}
}

/* A huge page, again and again. */
CASE(the_last_huge_page)
{
	int had = proc_number("/proc/meminfo", "HugePages_Total:", 10), none = 0;
	if (had == 0)
		pool(1);
	for (int i = 0; i < ROUNDS; i++) {
		int shared = i % 2 ? MAP_PRIVATE : MAP_SHARED;
		char *p = mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_HUGETLB | MAP_ANONYMOUS | shared, -1, 0);
		if (p == MAP_FAILED) {
			none++;
			continue;
		}
		*p = 1;
		stall(4 + 4 * i, 4);
		must(munmap(p, HUGE));
	}
	if (had == 0)
		pool(0);
	printf("none for %d\n", none);
}
