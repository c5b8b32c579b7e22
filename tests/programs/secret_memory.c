/* Has memory that is not to be copied, as argv[1] says, and then reads files. */
#include "program_helpers.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
	const char *what = argv[1];
	int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
	if (strcmp(what, "mlock") == 0) {
		char *at = mmap(0, 4096, both, anonymous, -1, 0);
		must(mlock(at, 4096));
	} else if (strcmp(what, "mapped") == 0) {
		must(mmap(0, 4096, both, anonymous | MAP_LOCKED, -1, 0) == MAP_FAILED ? -1 : 0);
	} else if (strcmp(what, "mlockall") == 0) {
		must(mlockall(MCL_CURRENT));
	} else if (strcmp(what, "secret") == 0) {
		int fd = syscall(SYS_memfd_secret, 0);
		if (fd < 0 || ftruncate(fd, 4096))
			puts("none here");
		else
			strcpy(mmap(0, 4096, both, MAP_SHARED, fd, 0), "secret");
	} else if (strcmp(what, "watched") == 0) {
		if (syscall(SYS_userfaultfd, 1) < 0)
			puts("none here");
	} else if (strcmp(what, "undumpable") == 0) {
		must(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
	} else if (strcmp(what, "child") == 0) {
		must(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
		fflush(stdout);
		pid_t child = fork();
		if (child) {
			int status;
			must(waitpid(child, &status, 0));
			return 0;
		}
	}
	char name[32], buf[4096];
	unsigned h = 0;
	for (int n = 0; n < 30; n++) {
		snprintf(name, sizeof name, "many/%02d", n);
		int fd = must(open(name, O_RDONLY));
		h = h * 31 + sum(buf, must(read(fd, buf, sizeof buf)));
		close(fd);
	}
	printf("%u\n", h);
	return 0;
}
