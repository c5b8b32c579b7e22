/* fft FILE N STEPS: solves a diffusion equation on N x N x N points by a three-dimensional Fourier
 * transform, STEPS steps of time by as many inverse transforms, after the description of FT in the
 * NAS Parallel Benchmarks. N is a power of two. FILE is mapped (or memory is taken), holds the
 * initial state first, and has room behind it for its transform and for the state of a step:
 * whatever lies there is overwritten. Writes a checksum of each step to standard output. */
#include <math.h>

/* Columns that are transformed together, as they lie beside each other. */
enum { BLOCK = 16, CHECKED = 1024 };
static const double ALPHA = 1e-6;

struct number {
    double re, im;
};

static struct number *roots, *columns, *scratch;

/* Transforms the n numbers in `columns`, in place. */
static void transform(size_t n, double sign) {
    struct number *from = columns, *to = scratch;
    for (size_t half = n / 2, stride = 1; half; half /= 2, stride *= 2) {
        for (size_t j = 0; j < half; j++) {
            struct number root = roots[j * stride];
            root.im *= sign;
            for (size_t k = 0; k < stride; k++) {
                struct number a = from[j * stride + k], b = from[(j + half) * stride + k];
                struct number less = {a.re - b.re, a.im - b.im};
                to[2 * j * stride + k] = (struct number){a.re + b.re, a.im + b.im};
                to[(2 * j + 1) * stride + k] = (struct number){
                    less.re * root.re - less.im * root.im, less.re * root.im + less.im * root.re};
            }
        }
        struct number *other = from;
        from = to;
        to = other;
    }
    if (from != columns) memcpy(columns, from, n * sizeof *from);
}

/* Transforms `width` adjacent columns of n numbers each, `stride` apart. */
static void transform_columns(struct number *a, size_t n, size_t stride, size_t width, double sign) {
    static struct number *block;
    if (!block && !(block = malloc(n * BLOCK * sizeof *block))) exit(2);
    for (size_t i = 0; i < n; i++) memcpy(block + i * width, a + i * stride, width * sizeof *a);
    for (size_t c = 0; c < width; c++) {
        for (size_t i = 0; i < n; i++) columns[i] = block[i * width + c];
        transform(n, sign);
        for (size_t i = 0; i < n; i++) block[i * width + c] = columns[i];
    }
    for (size_t i = 0; i < n; i++) memcpy(a + i * stride, block + i * width, width * sizeof *a);
}

static void transform_all(struct number *a, size_t n, double sign) {
    size_t width = n < BLOCK ? n : BLOCK;
    for (size_t line = 0; line < n * n; line++) transform_columns(a + line * n, n, 1, 1, sign);
    for (size_t z = 0; z < n; z++)
        for (size_t x = 0; x < n; x += width)
            transform_columns(a + z * n * n + x, n, n, width, sign);
    for (size_t y = 0; y < n; y++)
        for (size_t x = 0; x < n; x += width)
            transform_columns(a + y * n + x, n, n * n, width, sign);
}

/* Returns the frequency of index i: the upper half has the negative ones. */
static double square(size_t i, size_t n) {
    double k = i < n / 2 ? (double)i : (double)i - (double)n;
    return k * k;
}

/* Computes the transform of the state at `step`. */
static void evolve(const struct number *from, struct number *to, size_t n, long step) {
    double factor = -4 * ALPHA * M_PI * M_PI * step;
    for (size_t z = 0; z < n; z++)
        for (size_t y = 0; y < n; y++)
            for (size_t x = 0; x < n; x++) {
                size_t at = (z * n + y) * n + x;
                double e = exp(factor * (square(x, n) + square(y, n) + square(z, n)));
                to[at] = (struct number){from[at].re * e, from[at].im * e};
            }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: fft FILE N STEPS\n");
        return 2;
    }
    size_t n = atol(argv[2]), points = n * n * n;
    long steps = atol(argv[3]);
    if (n < 4 || n & (n - 1)) {
        fprintf(stderr, "fft: N is no power of two\n");
        return 2;
    }
    struct number *initial = (struct number *)array_of(argv[1], 2 * points, 6 * points, 1, random_number);
    roots = malloc(n * sizeof *roots);
    columns = malloc(n * sizeof *columns);
    scratch = malloc(n * sizeof *scratch);
    if (!roots || !columns || !scratch) {
        perror("fft: no memory");
        return 2;
    }
    struct number *transformed = initial + points, *state = initial + 2 * points;
    for (size_t i = 0; i < n; i++)
        roots[i] = (struct number){cos(2 * M_PI * i / n), -sin(2 * M_PI * i / n)};
    memcpy(transformed, initial, points * sizeof *initial);
    transform_all(transformed, n, 1);
    for (long step = 1; step <= steps; step++) {
        evolve(transformed, state, n, step);
        transform_all(state, n, -1);
        struct number sum = {0, 0};
        for (size_t j = 1; j <= CHECKED; j++) {
            size_t at = (5 * j % n * n + 3 * j % n) * n + j % n;
            sum.re += state[at].re / points;
            sum.im += state[at].im / points;
        }
        printf("%ld %.12e %.12e\n", step, sum.re, sum.im);
    }
    return 0;
}
