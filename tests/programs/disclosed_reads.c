// Discloses what it is going to read, and reads it. Results are the same with and without runahead.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runahead_disclose.h"

enum { CHUNK = 128 * 1024 };

static unsigned sum;

static void use(const unsigned char *bytes, ssize_t got)
{
    for (ssize_t i = 0; i < got; i++)
        sum = sum * 31 + bytes[i];
}

// The chunks of a file, in an order in which no readahead finds them.
static long place(long n, long count)
{
    return n * 7919 % count;
}

// Each read contains the place of the next: no shadow can know it.
static void read_chain(int fd, long count)
{
    unsigned char page[4096];
    long at = 0;
    for (long n = 0; n < count; n++) {
        use(page, pread(fd, page, sizeof page, at * CHUNK + 8192));
        memcpy(&at, page, sizeof at);
    }
}

static void read_all(int fd, long count)
{
    unsigned char page[4096];
    for (long n = 0; n < count; n++)
        use(page, pread(fd, page, sizeof page, place(n, count) * CHUNK + 8192));
}

struct share {
    int fd;
    long first, count;
};

static void *disclose_share(void *given)
{
    struct share *share = given;
    for (long n = share->first; n < share->count; n += 4)
        runahead_disclose_fd(share->fd, place(n, share->count) * CHUNK + 8192, 4096);
    return NULL;
}

// Signals the supervisor and its I/O process: our parent, and its children except us.
static int signal_supervisor(int signal)
{
    char name[64], at[64];
    int sent = kill(getppid(), signal), child;
    snprintf(name, sizeof name, "/proc/%d/task", getppid());
    DIR *threads = opendir(name);
    for (struct dirent *thread; threads && (thread = readdir(threads));) {
        snprintf(at, sizeof at, "/proc/%d/task/%.16s/children", getppid(), thread->d_name);
        FILE *children = *thread->d_name == '.' ? NULL : fopen(at, "r");
        while (children && fscanf(children, "%d", &child) == 1)
            if (child != getpid())
                sent |= kill(child, signal);
        if (children)
            fclose(children);
    }
    if (threads)
        closedir(threads);
    return sent;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: disclosed_reads HOW FILE CHUNKS\n");
        return 2;
    }
    const char *how = argv[1], *path = argv[2];
    long count = atol(argv[3]);
    int fd = strcmp(how, "paths") ? open(path, O_RDONLY) : -1;
    if (!strcmp(how, "fd")) {
        for (long n = 0; n < count; n++)
            runahead_disclose_fd(fd, place(n, count) * CHUNK + 8192, 4096);
        read_all(fd, count);
    } else if (!strcmp(how, "chain") || !strcmp(how, "silent chain")) {
        for (long n = 0; n < count && *how == 'c'; n++)
            runahead_disclose_fd(fd, place(n, count) * CHUNK + 8192, 4096);
        read_chain(fd, count);
    } else if (!strcmp(how, "threads")) {
        pthread_t threads[4];
        struct share shares[4];
        for (int t = 0; t < 4; t++) {
            shares[t] = (struct share){fd, t, count};
            pthread_create(&threads[t], NULL, disclose_share, &shares[t]);
        }
        for (int t = 0; t < 4; t++)
            pthread_join(threads[t], NULL);
        read_all(fd, count);
    } else if (!strcmp(how, "paths")) {
        // FILE is a directory with files named by numbers.
        char name[4096];
        unsigned char page[4096];
        for (long n = 0; n < count; n++) {
            snprintf(name, sizeof name, "%s/%ld", path, place(n, count));
            runahead_disclose_path(name, 0, 0);
        }
        for (long n = 0; n < count; n++) {
            snprintf(name, sizeof name, "%s/%ld", path, place(n, count));
            int file = open(name, O_RDONLY);
            ssize_t got;
            while ((got = read(file, page, sizeof page)) > 0)
                use(page, got);
            close(file);
        }
    } else if (!strcmp(how, "many")) {
        // FILE does not matter.
        int file = open("data", O_RDONLY);
        for (long n = 0; n < count; n++) {
            switch (n % 4) {
            case 0: runahead_disclose_fd(file, 0, 4096); break;
            case 1: runahead_disclose_fd(file, n * 4096 % (1 << 20), 4096); break;
            case 2: runahead_disclose_path(n % 8 < 4 ? "data" : "none", n, 1); break;
            default: runahead_disclose_fd(-1, n, n);
            }
        }
        unsigned char page[4096];
        use(page, read(file, page, sizeof page));
    } else if (!strcmp(how, "cancels") || !strcmp(how, "keeps")) {
        // Disclosures that are cancelled must not be read. The supervisor is stopped meanwhile, so
        // that it cannot begin before the cancellation. No shadow gets past a socket.
        int pair[2];
        char byte = 0;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || write(pair[0], "x", 1) != 1)
            return 3;
        read(pair[1], &byte, 1);
        bool listens = byte == 'x' && runahead_cancel_all();
        runahead_disclose_fd(fd, place(0, count) * CHUNK, CHUNK);
        if (listens && !signal_supervisor(SIGSTOP))
            // Each of its threads has to come by.
            usleep(100000);
        for (long n = 1; n < count; n++)
            runahead_disclose_fd(fd, place(n, count) * CHUNK, CHUNK);
        if (!strcmp(how, "cancels"))
            runahead_cancel_all();
        // Earlier disclosures must not suppress later ones.
        runahead_disclose_fd(fd, place(count - 1, count) * CHUNK, CHUNK);
        if (listens)
            signal_supervisor(SIGCONT);
        sleep(1);
        unsigned char page[4096];
        use(page, pread(fd, page, sizeof page, place(count - 1, count) * CHUNK));
    } else {
        return 2;
    }
    printf("%s %ld: sum %08x\n", how, count, sum);
    return 0;
}
