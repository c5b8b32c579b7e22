/* Arrays that have no room in memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Returns a random number from 0 to 1. */
static double random_number(size_t n, size_t given) {
    uint64_t x = (n + given) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return (double)(x >> 11) / (1ull << 53);
}

/* Returns a mapping of `all` numbers: of FILE, which is of that size, or of memory if FILE is "-".
 * In memory, `number` gives the first `given` of them. */
static double *array_of(const char *file, size_t given, size_t all, int writes,
                        double (*number)(size_t, size_t)) {
    struct stat st;
    size_t bytes = all * sizeof(double);
    if (strcmp(file, "-") == 0) {
        double *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (to == MAP_FAILED) {
            perror("no memory");
            exit(2);
        }
        for (size_t n = 0; n < given; n++) to[n] = number(n, given);
        return to;
    }
    int fd = open(file, writes ? O_RDWR : O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || bytes == 0 || (size_t)st.st_size != bytes) {
        fprintf(stderr, "%s: no file of that size\n", file);
        exit(2);
    }
    double *to = mmap(NULL, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (to == MAP_FAILED) {
        perror(file);
        exit(2);
    }
    return to;
}
