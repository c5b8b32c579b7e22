/* chase FILE STEPS: reads a block of FILE, the number in it says which block is next, and so on;
 * writes a sum over the numbers to standard output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096 };

int main(int argc, char **argv) {
    static unsigned char block[BLOCK];
    struct stat st;
    if (argc != 3) {
        fprintf(stderr, "usage: chase FILE STEPS\n");
        return 2;
    }
    long steps = atol(argv[2]);
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < BLOCK || steps <= 0) {
        perror("chase: cannot use the file");
        return 2;
    }
    uint64_t blocks = st.st_size / BLOCK, next = 0, sum = 0;
    for (long i = 0; i < steps; i++) {
        if (pread(fd, block, BLOCK, (off_t)(next * BLOCK)) != BLOCK) {
            perror("chase: cannot read a block");
            return 2;
        }
        memcpy(&next, block, sizeof next);
        if (next >= blocks) {
            fprintf(stderr, "chase: there is no block %llu\n", (unsigned long long)next);
            return 2;
        }
        sum = sum * 31 + next;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
