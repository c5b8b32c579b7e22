/* mgrid FILE N CYCLES: V-cycles of a multigrid method for the Poisson equation on a periodic grid
 * of N x N x N points, after the description of MG in the NAS Parallel Benchmarks. FILE is mapped
 * (or memory is taken), holds the right side first, and has room behind it for residual and
 * solution on the grid and on each coarser one: whatever lies there is overwritten. Writes the norm
 * of the last residual to standard output. */
#include <math.h>

enum { LEVELS = 16 };

/* Weights of a point, and of neighbours that share a face, an edge, a corner. */
static const double LAPLACE[4] = {-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};
static const double SMOOTH[4] = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};
static const double RESTRICT[4] = {1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16};

struct grid {
    size_t n;
    double *r, *u;
};

/* Computes the sums of a row: for each x over the four adjacent rows, and over the four diagonal
 * ones. */
static double *beside, *across;

static size_t before(size_t i, size_t n) { return i ? i - 1 : n - 1; }
static size_t after(size_t i, size_t n) { return i + 1 < n ? i + 1 : 0; }

static const double *row(const double *a, size_t n, size_t z, size_t y) { return a + (z * n + y) * n; }

static void add_rows(const double *a, size_t n, size_t z, size_t y) {
    size_t zb = before(z, n), za = after(z, n), yb = before(y, n), ya = after(y, n);
    const double *b[4] = {row(a, n, z, yb), row(a, n, z, ya), row(a, n, zb, y), row(a, n, za, y)};
    const double *c[4] = {row(a, n, zb, yb), row(a, n, zb, ya), row(a, n, za, yb), row(a, n, za, ya)};
    for (size_t x = 0; x < n; x++) {
        beside[x] = b[0][x] + b[1][x] + b[2][x] + b[3][x];
        across[x] = c[0][x] + c[1][x] + c[2][x] + c[3][x];
    }
}

/* Returns the weighted sum at point x of the row that add_rows was called for. */
static double weighted(const double weight[4], const double *own, size_t n, size_t x) {
    size_t b = before(x, n), a = after(x, n);
    return weight[0] * own[x] + weight[1] * (own[b] + own[a] + beside[x]) +
           weight[2] * (beside[b] + beside[a] + across[x]) + weight[3] * (across[b] + across[a]);
}

/* r = v - A u; v may be r. */
static void residual(const double *u, const double *v, double *r, size_t n) {
    for (size_t z = 0; z < n; z++)
        for (size_t y = 0; y < n; y++) {
            add_rows(u, n, z, y);
            const double *own = row(u, n, z, y);
            size_t at = (z * n + y) * n;
            for (size_t x = 0; x < n; x++) r[at + x] = v[at + x] - weighted(LAPLACE, own, n, x);
        }
}

/* u = u + S r. */
static void smooth(const double *r, double *u, size_t n) {
    for (size_t z = 0; z < n; z++)
        for (size_t y = 0; y < n; y++) {
            add_rows(r, n, z, y);
            const double *own = row(r, n, z, y);
            double *to = u + (z * n + y) * n;
            for (size_t x = 0; x < n; x++) to[x] += weighted(SMOOTH, own, n, x);
        }
}

/* The residual on the next coarser grid. */
static void restrict_to(const struct grid *coarse, const struct grid *fine) {
    size_t n = coarse->n;
    for (size_t z = 0; z < n; z++)
        for (size_t y = 0; y < n; y++) {
            add_rows(fine->r, fine->n, 2 * z, 2 * y);
            const double *own = row(fine->r, fine->n, 2 * z, 2 * y);
            double *to = coarse->r + (z * n + y) * n;
            for (size_t x = 0; x < n; x++) to[x] = weighted(RESTRICT, own, fine->n, 2 * x);
        }
}

/* Adds the values of a coarser grid; between its points, the mean of those around. */
static void interpolate(const struct grid *coarse, const struct grid *fine) {
    size_t n = coarse->n, m = fine->n;
    for (size_t z = 0; z < m; z++)
        for (size_t y = 0; y < m; y++) {
            size_t z0 = z / 2, y0 = y / 2;
            size_t z1 = z % 2 ? after(z0, n) : z0, y1 = y % 2 ? after(y0, n) : y0;
            const double *a = row(coarse->u, n, z0, y0), *b = row(coarse->u, n, z0, y1);
            const double *c = row(coarse->u, n, z1, y0), *d = row(coarse->u, n, z1, y1);
            double *to = fine->u + (z * m + y) * m;
            for (size_t x = 0; x < n; x++) beside[x] = (a[x] + b[x] + c[x] + d[x]) / 4;
            for (size_t x = 0; x < n; x++) {
                to[2 * x] += beside[x];
                to[2 * x + 1] += (beside[x] + beside[after(x, n)]) / 2;
            }
        }
}

static void clear(double *a, size_t n) { memset(a, 0, n * n * n * sizeof *a); }

/* Goes down to the coarsest grid and up again; level 0 is the finest. */
static void cycle(const struct grid *grids, int levels, const double *v) {
    for (int k = 1; k < levels; k++) restrict_to(&grids[k], &grids[k - 1]);
    for (int k = levels - 1; k > 0; k--) {
        const struct grid *g = &grids[k];
        clear(g->u, g->n);
        if (k < levels - 1) {
            interpolate(&grids[k + 1], g);
            residual(g->u, g->r, g->r, g->n);
        }
        smooth(g->r, g->u, g->n);
    }
    if (levels > 1) interpolate(&grids[1], &grids[0]);
    residual(grids[0].u, v, grids[0].r, grids[0].n);
    smooth(grids[0].r, grids[0].u, grids[0].n);
}

/* Places a few charges, whose sum is 0. */
static double charge(size_t n, size_t given) {
    size_t every = given / 20;
    if (!every || n % every != every / 2) return 0;
    return n / every % 2 ? -1 : 1;
}

int main(int argc, char **argv) {
    struct grid grids[LEVELS];
    if (argc != 4) {
        fprintf(stderr, "usage: mgrid FILE N CYCLES\n");
        return 2;
    }
    size_t n = atol(argv[2]), points = n * n * n;
    long cycles = atol(argv[3]);
    int levels = 0;
    for (size_t m = n; m >= 4 && levels < LEVELS; m /= 2) {
        grids[levels++].n = m;
        points += 2 * m * m * m;
        if (m % 2) break;
    }
    double *v = array_of(argv[1], n * n * n, points, 1, charge);
    beside = malloc(n * sizeof *beside);
    across = malloc(n * sizeof *across);
    if (!levels || !beside || !across) {
        perror("mgrid: no memory");
        return 2;
    }
    double *next = v + n * n * n;
    for (int k = 0; k < levels; k++) {
        size_t m = grids[k].n;
        grids[k].r = next;
        grids[k].u = next + m * m * m;
        next += 2 * m * m * m;
    }
    clear(grids[0].u, n);
    residual(grids[0].u, v, grids[0].r, n);
    for (long i = 0; i < cycles; i++) {
        cycle(grids, levels, v);
        residual(grids[0].u, v, grids[0].r, n);
    }
    double sum = 0;
    for (size_t i = 0; i < n * n * n; i++) sum += grids[0].r[i] * grids[0].r[i];
    printf("%.17g\n", sqrt(sum / (n * n * n)));
    return 0;
}
