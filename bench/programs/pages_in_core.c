/* incore FILE START END: writes to standard output which pieces of that range of FILE are in
 * memory, one a line: where it starts and where it ends, in bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE = 4096 };

int main(int argc, char **argv) {
    struct stat st;
    if (argc != 4) {
        fprintf(stderr, "usage: incore FILE START END\n");
        return 2;
    }
    off_t start = atoll(argv[2]), end = atoll(argv[3]);
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || start % PAGE) {
        perror("incore: cannot use the file");
        return 2;
    }
    if (end > st.st_size) end = st.st_size;
    if (start >= end) return 0;
    size_t length = end - start, pages = (length + PAGE - 1) / PAGE;
    unsigned char *in_memory = malloc(pages);
    void *map = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, start);
    if (map == MAP_FAILED || !in_memory || mincore(map, length, in_memory) != 0) {
        perror("incore: cannot look at the file");
        return 2;
    }
    for (size_t first = 0, after; first < pages; first = after + 1) {
        for (after = first; after < pages && in_memory[after] & 1; after++) {}
        if (after == first) continue;
        printf("%lld %lld\n", (long long)start + first * PAGE, (long long)start + after * PAGE);
    }
    return 0;
}
