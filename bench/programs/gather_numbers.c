/* gather FILE TOUCHES: maps FILE, and adds up TOUCHES numbers of it at places that a multiplicative
 * generator gives; writes the sum to standard output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    struct stat st;
    if (argc != 3) {
        fprintf(stderr, "usage: gather FILE TOUCHES\n");
        return 2;
    }
    long touches = atol(argv[2]);
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(uint64_t) || touches <= 0) {
        perror("gather: cannot use the file");
        return 2;
    }
    const uint64_t *numbers = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (numbers == MAP_FAILED) {
        perror("gather: cannot map the file");
        return 2;
    }
    uint64_t n = st.st_size / sizeof *numbers, place = 1, sum = 0;
    for (long i = 0; i < touches; i++) {
        place *= 6364136223846793005u;
        sum += numbers[(place >> 11) % n];
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
