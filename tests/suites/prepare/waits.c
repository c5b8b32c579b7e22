/* Waits in programs that have none: before some of the calls that a test makes, a page is read that
 * is not in memory, as a program would that reads its configuration there. Preloaded both natively
 * and under runahead. Only every few calls, so that a test's own time limit holds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { APART = 256 << 10, COUNT = 256, EVERY = 3, MOST = 40 };

static atomic_int calls, waits;

/* Leaves no trace: no descriptor, no errno, no offset. Runs neither in a signal handler of this
 * file nor while a lock is held. */
static void wait_for_page(void)
{
    if (atomic_fetch_add(&calls, 1) % EVERY != 0 || atomic_fetch_add(&waits, 1) >= MOST)
        return;
    int saved = errno;
    int fd = syscall(SYS_open, "/mnt/tree/cold", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        char byte;
        off_t at = (off_t)((getpid() * 7 + waits) % COUNT) * APART;
        syscall(SYS_pread64, fd, &byte, 1, at);
        syscall(SYS_close, fd);
    }
    errno = saved;
}

#define WAITS(type, name, parameters, arguments)                     \
    type name parameters                                             \
    {                                                                \
        static type(*real) parameters;                               \
        if (!real)                                                   \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);      \
        wait_for_page();                                             \
        return real arguments;                                       \
    }

WAITS(pid_t, fork, (void), ())
WAITS(pid_t, wait, (int *status), (status))
WAITS(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
WAITS(int, kill, (pid_t pid, int sig), (pid, sig))
WAITS(int, raise, (int sig), (sig))
WAITS(int, sigaction, (int sig, const struct sigaction *act, struct sigaction *old), (sig, act, old))
WAITS(int, sigprocmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))
WAITS(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t offset),
      (at, len, prot, flags, fd, offset))
WAITS(int, munmap, (void *at, size_t len), (at, len))
WAITS(int, mprotect, (void *at, size_t len, int prot), (at, len, prot))
WAITS(ssize_t, read, (int fd, void *into, size_t len), (fd, into, len))
WAITS(ssize_t, write, (int fd, const void *from, size_t len), (fd, from, len))
WAITS(int, pipe, (int ends[2]), (ends))
WAITS(int, dup, (int fd), (fd))
WAITS(int, close, (int fd), (fd))
WAITS(int, unlink, (const char *path), (path))
WAITS(int, execve, (const char *path, char *const argv[], char *const env[]), (path, argv, env))
