/* Writes to the file of its first argument while it waits for others, and prints the result of
 * close(2), or of fsync(2) before that (second argument `close` or `fsync`). */
#include "program_helpers.h"

int main(int argc, char **argv)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	int out = must(open(argv[1], O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600));
	must(write(out, argv[0], 1));
	for (int i = 0; i < 48; i++) {
		char name[20], bytes[6000];
		snprintf(name, sizeof name, "many/%02d", i);
		int fd = must(open(name, O_RDONLY | O_CLOEXEC));
		must(read(fd, bytes, sizeof bytes));
		close(fd);
	}
	if (!strcmp(argv[2], "fsync"))
		show(fsync(out));
	show(close(out));
	return 0;
}
