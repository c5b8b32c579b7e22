/* Fills the given number of MiB, and goes on changing them while it reads files. Files that are
 * named as further arguments are read before that. */
#include "program_helpers.h"

int main(int argc, char **argv)
{
	size_t size = (size_t)atoi(argv[1]) << 20;
	char *memory = malloc(size), buf[8192], name[32];
	unsigned at = 1;
	for (int i = 2; i < argc; i++) {
		int fd = must(open(argv[i], O_RDONLY));
		must(read(fd, buf, sizeof buf));
		close(fd);
	}
	memset(memory, 1, size);
	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof name, "many/%02d", i);
		int fd = must(open(name, O_RDONLY));
		ssize_t n;
		while ((n = must(read(fd, buf, sizeof buf))) > 0)
			at = at * 31 + sum(buf, n);
		close(fd);
		for (size_t page = 0; page < size; page += 4096)
			memory[page] += buf[page % sizeof buf];
	}
	for (size_t page = 0; page < size; page += 4096)
		at = at * 31 + (unsigned char)memory[page];
	printf("%u\n", at);
	return 0;
}
