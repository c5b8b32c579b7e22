/* Creates a file to show that it runs, then reads everything in an order that depends on what it
 * reads. */
#include "common.h"

int main(void)
{
	unsigned at = 1;
	char name[32], buf[8192];
	char mark[4096];
	snprintf(mark, sizeof mark, "%s/started", getenv("W"));
	close(must(open(mark, O_CREAT | O_WRONLY, 0600)));

	for (int i = 0; i < 60; i++) {
		snprintf(name, sizeof name, "many/%02d", (i * 7 + (int)(at % 3)) % 64);
		int fd = must(open(name, O_RDONLY));
		ssize_t n;
		while ((n = must(read(fd, buf, sizeof buf))) > 0)
			at = at * 31 + sum(buf, n);
		close(fd);
	}
	printf("sum %u\n", at);
	return 0;
}
