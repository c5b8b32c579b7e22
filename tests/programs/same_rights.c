/* Sets the user and group argv[1] in every way, asks whether there are filters for system calls,
 * then reads the files that follow and prints their length. An unprivileged BusyBox does the former
 * at every start, a browser the latter. */
#include "program_helpers.h"
#include <grp.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	unsigned id = strtoul(argv[1], NULL, 10);
	must(syscall(SYS_setresgid, -1, id, -1));
	must(syscall(SYS_setregid, id, -1));
	must(syscall(SYS_setgid, id));
	must(syscall(SYS_setresuid, -1, id, -1));
	must(syscall(SYS_setreuid, id, -1));
	must(syscall(SYS_setuid, id));
	unsigned action = SECCOMP_RET_ERRNO;
	say("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
	say("tsync", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL));
	say("action", syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
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
