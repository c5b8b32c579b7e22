/* stores FILE KIB READS PAGES TOLD: fills KIB of memory, then reads READS blocks of FILE, each of
 * which says where the next is, and after each stores into PAGES pages of its memory, chosen at
 * random; writes the seconds that reads and stores took to TOLD, and a sum to standard output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, PAGE = 4096 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    static unsigned char block[BLOCK];
    struct stat st;
    if (argc != 6) {
        fprintf(stderr, "usage: stores FILE KIB READS PAGES TOLD\n");
        return 2;
    }
    size_t bytes = (size_t)atol(argv[2]) << 10;
    long reads = atol(argv[3]), stores = atol(argv[4]);
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < BLOCK || bytes < PAGE || reads <= 0) {
        perror("stores: cannot use the file");
        return 2;
    }
    unsigned char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("stores: no memory");
        return 2;
    }
    memset(memory, 1, bytes);
    uint64_t blocks = st.st_size / BLOCK, pages = bytes / PAGE, place = 1, sum = 0;
    uint64_t next = 1, number;
    double start = now();
    for (long i = 0; i < reads; i++) {
        if (pread(fd, block, BLOCK, (off_t)((next >> 11) % blocks * BLOCK)) != BLOCK) {
            perror("stores: cannot read a block");
            return 2;
        }
        memcpy(&number, block, sizeof number);
        next = (next + number) * 6364136223846793005u + 1;
        for (long j = 0; j < stores; j++) {
            place *= 6364136223846793005u;
            sum = sum * 31 + memory[(place >> 11) % pages * PAGE]++;
        }
        sum = sum * 31 + next;
    }
    double took = now() - start;
    FILE *told = fopen(argv[5], "w");
    if (!told || fprintf(told, "%.6f\n", took) < 0 || fclose(told) != 0) {
        perror("stores: cannot write the result");
        return 2;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
