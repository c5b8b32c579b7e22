/* matvec FILE N PRODUCTS: a matrix of N rows of N numbers, in FILE, which is mapped, or in memory,
 * is multiplied with a vector, the product with the matrix again, and so on; writes the sum of the
 * last product to standard output. */

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: matvec FILE N PRODUCTS\n");
        return 2;
    }
    size_t n = atol(argv[2]);
    long products = atol(argv[3]);
    const double *matrix = array_of(argv[1], n * n, n * n, 0, random_number);
    double *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    if (!x || !y) {
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
