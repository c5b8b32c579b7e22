/* Names that are unmapped or changed before the call that uses them returns. */
#include "twin.h"
#include <pthread.h>
#include <sys/stat.h>

#define PAGE 4096
#define ROUNDS 12

static char *page;
static volatile pid_t opener;

static void *opens(void *fifo)
{
	strcpy(page, fifo);
	opener = gettid();
	int fd = open(page, O_RDONLY | O_CLOEXEC);
	char byte = 0;
	must(fd);
	must(read(fd, &byte, 1));
	close(fd);
	return (void *)(long)byte;
}

/* An open of a FIFO waits for a writer: `happens` comes in between. */
static void opened_while(void (*happens)(void))
{
	char *fifo = in_work("fifo");
	must(mkfifo(fifo, 0600));
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t t;
		void *got;
		page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		opener = 0;
		must(-pthread_create(&t, 0, opens, fifo));
		while (!opener)
			usleep(100);
		until_it_sleeps(opener);
		happens();
		int fd = must(open(fifo, O_WRONLY | O_CLOEXEC));
		char byte = 'a' + i;
		must(write(fd, &byte, 1));
		pthread_join(t, &got);
		close(fd);
		munmap(page, PAGE);
		printf("%c", (char)(long)got);
		stall(4 + 4 * i, 4);
	}
	puts("");
}

static void unmap(void)
{
	must(munmap(page, PAGE));
}

CASE(unmapped_while_an_open_waits)
{
	opened_while(unmap);
}

static void protect(void)
{
	must(mprotect(page, PAGE, PROT_NONE));
}

CASE(protected_while_an_open_waits)
{
	opened_while(protect);
}

static void change(void)
{
	memset(page, 'x', PAGE);
}

CASE(without_an_end_while_an_open_waits)
{
	opened_while(change);
}

/* A stat and a link that are answered over their own names. */
CASE(answered_over_the_name)
{
	union {
		char name[PAGE];
		struct stat stat;
	} u;
	char *link = in_work("link"), *volatile name = u.name;
	must(symlink("/dev/null", link));
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(u.name, sizeof u.name, "%s/many/%02d", getenv("TREE"), 4 + 4 * i);
		must(stat(name, &u.stat));
		printf("%ld ", (long)u.stat.st_size);
		strcpy(u.name, link);
		printf("%.*s ", (int)must(readlink(name, u.name, sizeof u.name)), u.name);
		strcpy(u.name, link);
		printf("%.*s\n", (int)must(readlink(name, u.name + 2, sizeof u.name - 2)), u.name + 2);
		stall(4 + 4 * i, 4);
	}
}
