/* matvec FILE N PRODUCTS: FILE holds a matrix of N rows of N numbers, which is mapped and multiplied with a vector, the
 * product with the matrix again, and so on; writes the sum of the last product to standard output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    struct stat st;
    if (argc != 4) {
        fprintf(stderr, "usage: matvec FILE N PRODUCTS\n");
        return 2;
    }
    size_t n = atol(argv[2]);
    long products = atol(argv[3]);
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || n == 0 || (size_t)st.st_size != n * n * sizeof(double)) {
        fprintf(stderr, "matvec: the file is not a matrix of that size\n");
        return 2;
    }
    const double *matrix = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    double *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    if (matrix == MAP_FAILED || !x || !y) {
        perror("matvec: no memory");
        return 2;
    }
    for (size_t i = 0; i < n; i++) x[i] = 1;
    double sum = 0;
    for (long product = 0; product < products; product++) {
        sum = 0;
        for (size_t i = 0; i < n; i++) {
            const double *row = matrix + i * n;
            y[i] = 0;
            for (size_t j = 0; j < n; j++) y[i] += row[j] * x[j];
            sum += y[i];
        }
        for (size_t i = 0; i < n; i++) x[i] = y[i] / sum;
    }
    printf("%.17g\n", sum);
    return 0;
}
