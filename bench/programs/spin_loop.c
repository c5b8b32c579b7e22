/* spin MILLIONS TOLD: computes, and nothing else, so many million steps; writes the seconds that it
 * took to TOLD. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: spin MILLIONS TOLD\n");
        return 2;
    }
    long steps = atol(argv[1]) * 1000000;
    uint64_t x = 88172645463325252u;
    double start = now();
    for (long i = 0; i < steps; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    double took = now() - start;
    FILE *told = fopen(argv[2], "w");
    if (!told || fprintf(told, "%.6f\n", took) < 0 || fclose(told) != 0) {
        perror("spin: cannot write the result");
        return 2;
    }
    /* Uses the result: else the compiler could leave the steps out. */
    return x == 0;
}
