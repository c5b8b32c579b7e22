// Counts the system calls of each function. Everything except the way out traps, and advice on a
// descriptor is answered as by a kernel without runahead.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "runahead_disclose.h"

static volatile int calls, others, wrong;

static void trapped(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    calls++;
    others += info->si_syscall != SYS_fadvise64;
    wrong += (int)registers[REG_RDI] >= 0;
    registers[REG_RAX] = -EBADF;
}

static void count(const char *name, int taken)
{
    int seen = calls;
    calls = 0;
    printf("%s: %d calls, taken %d\n", name, seen, taken);
    fflush(stdout);
    calls = 0;
}

int main(int argc, char **argv)
{
    // The kernel itself.
    errno = 0;
    long answer = syscall(SYS_fadvise64, 0x9d15c105, 1ul << 32 | 1, 0, 0, 4096, 0);
    printf("the kernel says %ld, %s\n", answer, errno == EBADF ? "EBADF" : "something else");
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    fflush(stdout);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 2;
    calls = 0;
    count("nothing", 0);
    int taken = runahead_disclose_fd(0, 0, 4096);
    count("disclose_fd", taken);
    taken = runahead_disclose_path("/etc/passwd", 0, 0);
    count("disclose_path", taken);
    taken = runahead_cancel_all();
    count("cancel_all", taken);
    // A planted one: what makes another call is noticed.
    if (argc > 1)
        count(argv[1], (int)syscall(SYS_getppid) < 0);
    printf("%d calls of another kind, %d on a real descriptor\n", others, wrong);
    return 0;
}
