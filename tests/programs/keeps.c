/* Asks for the user and group argv[1], in each of the ways there are, then reads the files that follow and
 * prints how much there was. A BusyBox that is not privileged does this whenever it starts. */
#include "common.h"
#include <grp.h>

int main(int argc, char **argv)
{
	unsigned id = strtoul(argv[1], NULL, 10);
	must(syscall(SYS_setresgid, -1, id, -1));
	must(syscall(SYS_setregid, id, -1));
	must(syscall(SYS_setgid, id));
	must(syscall(SYS_setresuid, -1, id, -1));
	must(syscall(SYS_setreuid, id, -1));
	must(syscall(SYS_setuid, id));
	long total = 0;
	for (int n = 2; n < argc; n++) {
		char bytes[4096];
		int fd = must(open(argv[n], O_RDONLY));
		for (long got; (got = must(read(fd, bytes, sizeof bytes))) > 0;)
			total += got;
		close(fd);
	}
	unsigned real, effective, saved;
	must(syscall(SYS_getresuid, &real, &effective, &saved));
	printf("%ld bytes as %u %u %u\n", total, real, effective, saved);
	return 0;
}
