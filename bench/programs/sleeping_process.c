/* sleeper AWAKE: uses memory and files as programs do, all of it cached, writes its process id to
 * AWAKE and sleeps until SIGUSR1. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAP = 8 << 20, ROUNDS = 100 };

static void nothing(int signal) { (void)signal; }

/* Reads the C library's own files, which are in memory as long as anything runs. */
static long work(void) {
    static char buffer[65536];
    long read_bytes = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct stat st;
        int fd = open("/proc/self/exe", O_RDONLY);
        if (fd < 0 || fstat(fd, &st) != 0) exit(2);
        for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) read_bytes += n;
        close(fd);
        DIR *dir = opendir("/");
        if (!dir) exit(2);
        while (readdir(dir)) {}
        closedir(dir);
    }
    return read_bytes;
}

int main(int argc, char **argv) {
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: sleeper AWAKE\n");
        return 2;
    }
    sigset_t usr1, before;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, &before);
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGUSR1, &action, NULL);

    char *heap = malloc(HEAP);
    if (!heap) return 2;
    memset(heap, 1, HEAP);
    long done = work();

    FILE *awake = fopen(argv[1], "w");
    if (!awake || fprintf(awake, "%d\n", (int)getpid()) < 0 || fclose(awake) != 0) {
        perror("sleeper: cannot say that it is awake");
        return 2;
    }
    sigsuspend(&before);
    printf("%d\n", done > 0 && heap[HEAP - 1] == 1);
    return 0;
}
