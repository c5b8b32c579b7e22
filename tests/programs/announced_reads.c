/* announced_reads [FILE]: creates FILE in $W to show that it runs, or else prints its PID; then
 * reads everything in an order that depends on what it reads. */
#include "program_helpers.h"

int main(int argc, char **argv)
{
	unsigned at = 1;
	char name[32], buf[8192], mark[4096];
	if (argc > 1) {
		snprintf(mark, sizeof mark, "%s/%s", getenv("W"), argv[1]);
		close(must(open(mark, O_CREAT | O_WRONLY, 0600)));
	} else {
		printf("%d\n", getpid());
		fflush(stdout);
	}
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
