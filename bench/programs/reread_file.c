/* reread FILE PASSES TOLD: reads FILE from start to end, PASSES times after the first; writes the
 * seconds that those took to TOLD, and a sum over what was read to standard output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 32768 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Returns the sum of one pass; or exits. */
static uint64_t pass(int fd) {
    static unsigned char buffer[PIECE];
    uint64_t sum = 0;
    off_t at = 0;
    ssize_t n;
    while ((n = pread(fd, buffer, PIECE, at)) > 0) {
        for (ssize_t i = 0; i < n; i += 512) sum += buffer[i];
        at += n;
    }
    if (n < 0) {
        perror("reread: cannot read");
        exit(2);
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: reread FILE PASSES TOLD\n");
        return 2;
    }
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0) {
        perror("reread: cannot open the file");
        return 2;
    }
    long passes = atol(argv[2]);
    uint64_t sum = pass(fd);
    double start = now();
    for (long i = 0; i < passes; i++) sum += pass(fd);
    double took = now() - start;
    FILE *told = fopen(argv[3], "w");
    if (!told || fprintf(told, "%.6f\n", took) < 0 || fclose(told) != 0) {
        perror("reread: cannot write the result");
        return 2;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
