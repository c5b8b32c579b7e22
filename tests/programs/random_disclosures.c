// Makes random disclosures, valid and invalid, and shows that they have no effect: errno and
// offsets are unchanged, no FIFO is opened, and no access time has changed. Accepted ones are
// counted only to show that some were.
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runahead_disclose.h"

static unsigned long state;

static unsigned long next(unsigned long bound)
{
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (state >> 33) % bound;
}

static unsigned long number(void)
{
    static const unsigned long edges[] = {0, 1, 4095, 4096, 4097, 131071, 131072, 1ul << 20, 1ul << 30,
        (1ul << 30) + 1, 1ul << 31, 1ul << 32, (1ul << 63) - 4096, (1ul << 63) - 1, 1ul << 63,
        -4096ul, -4095ul, -1ul};
    unsigned long edge = edges[next(sizeof edges / sizeof *edges)];
    return next(3) ? edge : next(1ul << 22);
}

enum { FDS = 18 };
static int fds[FDS];

static const char *paths[24];

static void prepare(void)
{
    int pipes[2], sockets[2];
    mkdir("any", 0755);
    mkfifo("any/fifo", 0644);
    symlink("loop", "any/loop");
    symlink("file", "any/link");
    int file = open("any/file", O_CREAT | O_RDWR, 0644);
    for (int i = 0; i < 300; i++)
        write(file, "0123456789abcdef", 16);
    int gone = open("any/gone", O_CREAT | O_RDWR, 0644);
    write(gone, "gone", 4);
    unlink("any/gone");
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
        exit(3);
    int closed = dup(0);
    close(closed);
    int high = fcntl(file, F_DUPFD, 1500);
    int all[FDS] = {file, gone, open("any/file", O_WRONLY), open("any/file", O_PATH), open("any", O_RDONLY),
        open("/dev/null", O_RDWR), open("/dev/zero", O_RDONLY), open("/dev/tty", O_RDONLY), pipes[0],
        pipes[1], sockets[0], memfd_create("m", 0), closed, high, -1, -100, 0x7fffffff,
        open("/proc/self/maps", O_RDONLY)};
    memcpy(fds, all, sizeof all);

    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    memset(pages, 'x', 4096);
    char *secret = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *fits = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(fits + 4096, 4096);
    strcpy(fits + 4096 - sizeof "any/file", "any/file");
    static char longest[8192];
    memset(longest, 'y', sizeof longest - 1);
    static char slashes[4096];
    memset(slashes, '/', sizeof slashes - 1);
    const char *given[] = {NULL, (char *)1, (char *)-1ul, (char *)0xffff800000000000ul, pages, pages + 4095,
        secret, fits + 4096 - sizeof "any/file", longest, slashes, "", "any/file", "any/link", "any/loop",
        "any/fifo", "any", "any/none", "/dev/null", "/dev/zero", "/dev/tty", "/proc/self/mem",
        "any/../any/./file", "/proc/self/fd/0", "data"};
    memcpy(paths, given, sizeof given);
}

static bool say(void)
{
    switch (next(8)) {
    case 0: return runahead_cancel_all();
    case 1:
        // A request that no library makes.
        return !syscall(SYS_fadvise64, 0x9d15c105, number(), number(), number(), number(), number());
    case 2: case 3: case 4: {
        const char *path = paths[next(24)];
        return runahead_disclose_path(path, number(), number());
    }
    default: {
        int fd = fds[next(FDS)];
        return runahead_disclose_fd(next(8) ? fd : (int)number(), number(), number());
    }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3 || chdir(getenv("W")))
        return 2;
    state = strtoul(argv[1], NULL, 0);
    long count = atol(argv[2]), taken = 0, errnos = 0, offsets = 0;
    prepare();
    symlink("../data", "any/data");
    struct stat before, after;
    stat("any/file", &before);
    struct timespec old[2] = {{1000000, 0}, {1000000, 0}};
    utimensat(AT_FDCWD, "any/file", old, 0);
    lseek(fds[0], 1000, SEEK_SET);
    lseek(fds[11], 5, SEEK_SET);
    for (long n = 0; n < count; n++) {
        // The raw call sets it, as the C library does.
        unsigned long was = state;
        errno = 4242;
        bool raw = next(8) == 1;
        state = was;
        taken += say();
        errnos += !raw && errno != 4242;
        offsets += lseek(fds[0], 0, SEEK_CUR) != 1000 || lseek(fds[11], 0, SEEK_CUR) != 5;
        if (n % 64 == 0 && open("any/fifo", O_WRONLY | O_NONBLOCK) != -1)
            printf("the FIFO has a reader\n");
    }
    stat("any/file", &after);
    printf("errno changed %ld times, offsets %ld, access time %ld, size %ld, %s\n", errnos, offsets,
        (long)after.st_atime, (long)after.st_size, open("any/gone", O_RDONLY) == -1 ? "gone" : "back");
    // The count is not compared: it only shows that the session accepted some.
    if (getenv("TAKEN")) {
        FILE *out = fopen(getenv("TAKEN"), "w");
        fprintf(out, "%ld\n", taken);
        fclose(out);
    }
    return 0;
}
