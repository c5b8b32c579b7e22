/* Runs a command under a filter that refuses one call, as containers do. */
#include "program_helpers.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

int main(int argc, char **argv)
{
	static const struct { const char *name; int number; } calls[] = {
		{ "ptrace", SYS_ptrace }, { "landlock_create_ruleset", SYS_landlock_create_ruleset },
		{ "seccomp", SYS_seccomp }, { "openat2", SYS_openat2 }, { "preadv2", SYS_preadv2 },
		{ "cachestat", 451 }, { "process_vm_readv", SYS_process_vm_readv }, { "madvise", SYS_madvise },
	};
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
		if (strcmp(argv[1], calls[i].name))
			continue;
		struct sock_filter code[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog program = { 4, code };
		must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
		execvp(argv[2], argv + 2);
		return 99;
	}
	return 98;
}
