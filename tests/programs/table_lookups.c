/* table_lookups make FILE | table_lookups read FILE: reads values of a table by its index, as a
 * database does. Each page contains its own type, an index has the page of each key, and any wrong
 * value ends the program. */
#include "program_helpers.h"

enum { PAGE = 4096, APART = 128 << 10, KEYS = 192, FIRST = 8 };

struct page {
	char kind[8];
	uint64_t key, value;
	char rest[PAGE - 24];
};

struct entry {
	uint64_t key, page;
};

static uint64_t value_of(uint64_t key)
{
	return key * 2654435761u % 1000;
}

/* Another order than that of the keys. */
static uint64_t page_of(uint64_t n)
{
	return FIRST + n * 79 % KEYS;
}

static void make(int fd)
{
	static struct entry index[KEYS];
	for (uint64_t n = 0; n < KEYS; n++) {
		index[n] = (struct entry){ 1000 + n, page_of(n) };
		struct page page = { "leaf", 1000 + n, value_of(1000 + n), "" };
		must(pwrite(fd, &page, sizeof page, (off_t)page_of(n) * APART));
	}
	must(pwrite(fd, index, sizeof index, 0));
}

__attribute__((noinline)) static int load(int fd, uint64_t number, struct page *page)
{
	ssize_t got = pread(fd, page, sizeof *page, (off_t)number * APART);
	return got == sizeof *page ? 0 : -5;
}

__attribute__((noinline)) static int search(int fd, uint64_t number, uint64_t key, struct page *page, int *found)
{
	int error = load(fd, number, page);
	if (error)
		return error;
	if (strcmp(page->kind, "leaf"))
		return -1;
	*found = page->key == key;
	return 0;
}

__attribute__((noinline)) static int look_up(int fd, const struct entry *entry, uint64_t *sum)
{
	static struct page page;
	int found;
	int error = search(fd, entry->page, entry->key, &page, &found);
	if (error)
		return error;
	if (!found)
		return -2;
	*sum += page.value;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int making = !strcmp(argv[1], "make");
	int fd = must(open(argv[2], making ? O_RDWR | O_CREAT : O_RDONLY, 0644));
	if (making) {
		make(fd);
		return 0;
	}
	static struct entry index[KEYS];
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
	must(pread(fd, index, sizeof index, 0));
	uint64_t sum = 0;
	for (int n = 0; n < KEYS; n++) {
		int error = look_up(fd, &index[n], &sum);
		if (error) {
			printf("the table is corrupt: %d\n", error);
			return 1;
		}
	}
	printf("sum %lu\n", (unsigned long)sum);
	return 0;
}
