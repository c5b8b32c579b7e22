/* Writes to the file that is its first argument while it waits for others, and says what its end tells: `close`, or `fsync`
 * before that. */
#include "common.h"

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
