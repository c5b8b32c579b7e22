/* pread FILE CALLS TOLD: reads 4 KiB of FILE, CALLS times, one piece after the other and again from
 * the start; writes nanoseconds per call to TOLD, and a sum over what was read to standard
 * output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 4096 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Returns the sum of all that `calls` calls read; or exits. */
static uint64_t loop(int fd, off_t size, long calls) {
    static unsigned char buffer[PIECE];
    uint64_t sum = 0;
    off_t at = 0;
    for (long i = 0; i < calls; i++) {
        if (pread(fd, buffer, PIECE, at) != PIECE) {
            perror("pread: cannot read 4096 bytes");
            exit(2);
        }
        sum += buffer[i % PIECE];
        at += PIECE;
        if (at == size) at = 0;
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: pread FILE CALLS TOLD\n");
        return 2;
    }
    long calls = atol(argv[2]);
    struct stat st;
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < PIECE || st.st_size % PIECE || calls <= 0) {
        perror("pread: cannot use the file");
        return 2;
    }
    /* Work that is done once for a program or call site is no cost of a call. */
    uint64_t sum = loop(fd, st.st_size, calls / 20 + 1);
    double start = now();
    sum += loop(fd, st.st_size, calls);
    double each = (now() - start) / calls;
    FILE *told = fopen(argv[3], "w");
    if (!told || fprintf(told, "%.3f\n", each) < 0 || fclose(told) != 0) {
        perror("pread: cannot write the result");
        return 2;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
