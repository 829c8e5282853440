/* The four-bar of examples/fourbar_model.py at constant explicit Runge-Kutta steps, by hand: what compiled steps are compared with.

   Absolute angles t of three uniform rods, clockwise from +y, so that M_ij = m_ij cos(t_i - t_j); rods' ends close a loop,
   S = C M^-1 C^T, and each step ends with one correction of position and velocity in the metric of M. Written for any number type
   with + - * /: LANES of them side by side, or one. Compiled by benchmarks/native.py, once for each LANES. */

#if LANES > 1
typedef double number __attribute__((vector_size(8 * LANES)));
#else
typedef double number;
#endif

#define N 3
#define STAGES 7

typedef struct { double length[N], mass[N], gravity, ground; } rods;

/* sin and cos: less full turns in three parts, by Taylor's series of a quarter, which is doubled twice. */
static inline void sincos_of(number x, number *sine, number *cosine) {
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    number turns = (x * 0.15915494309189535 + round) - round;
    number y = 0.25 * (((x - turns * 6.28125) - turns * 0.0019353071784280473) - turns * 1.1584295886487928e-12);
    number z = y * y;
    number s = y * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800
             + z * (1.0 / 6227020800 + z * (-1.0 / 1307674368000))))))));
    number half = z * (1.0 / 2 + z * (-1.0 / 24 + z * (1.0 / 720 + z * (-1.0 / 40320 + z * (1.0 / 3628800
                + z * (-1.0 / 479001600 + z * (1.0 / 87178291200)))))));  /* 1 - cos */
    number c = 1 - half;
    number s2 = 2 * s * c, c2 = 1 - 2 * s * s;
    *sine = 2 * s2 * c2;
    *cosine = 1 - 2 * s2 * s2;
}

/* What M, forces and rows are at angles t with velocities w. */
typedef struct { number mass[N][N], force[N], row[2][N], gap[2], gamma[2]; } terms;

static inline void evaluate(const rods *r, const number t[N], const number w[N], terms *out) {
    number s[N], c[N];
    for (int i = 0; i < N; i++) sincos_of(t[i], &s[i], &c[i]);
    for (int i = 0; i < N; i++) out->force[i] = 0 * t[i];
    for (int i = 0; i < N; i++) {
        double beyond = 0; /* mass that hangs on the end of rod i */
        for (int k = i + 1; k < N; k++) beyond += r->mass[k];
        double arm = (r->mass[i] / 2 + beyond) * r->length[i];
        out->mass[i][i] = (r->mass[i] / 3 + beyond) * r->length[i] * r->length[i] + 0 * t[i];
        out->force[i] += arm * r->gravity * s[i];
        for (int j = 0; j < i; j++) {
            double m = arm * r->length[j];
            number with = m * (c[i] * c[j] + s[i] * s[j]), across = m * (s[i] * c[j] - c[i] * s[j]);
            out->mass[i][j] = out->mass[j][i] = with;
            out->force[i] -= across * w[j] * w[j];
            out->force[j] += across * w[i] * w[i];
        }
    }
    for (int k = 0; k < 2; k++) out->gap[k] = 0 * t[0] - (k ? 0 : r->ground), out->gamma[k] = 0 * t[0];
    for (int i = 0; i < N; i++) {
        number x = r->length[i] * s[i], y = r->length[i] * c[i];
        out->row[0][i] = y, out->row[1][i] = -x;
        out->gap[0] += x, out->gap[1] += y;
        out->gamma[0] += x * w[i] * w[i], out->gamma[1] += y * w[i] * w[i];
    }
}

/* M^-1 C^T and S^-1 at a pose. */
typedef struct { number l[N][N], across[2][N], inverse[2][2]; } factors;

static inline void solve(const factors *f, number x[N]) {
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < i; k++) x[i] -= f->l[i][k] * x[k];
    }
    for (int i = 0; i < N; i++) x[i] = x[i] * f->l[i][i];
    for (int i = N - 1; i >= 0; i--) {
        for (int k = i + 1; k < N; k++) x[i] -= f->l[k][i] * x[k];
    }
}

static inline void factorise(const terms *at, factors *f) {
    number d[N];
    for (int j = 0; j < N; j++) { /* L D L^T with 1/D on the diagonal */
        number part[N];
        d[j] = at->mass[j][j];
        for (int k = 0; k < j; k++) part[k] = f->l[j][k] * d[k], d[j] -= f->l[j][k] * part[k];
        f->l[j][j] = 1 / d[j];
        for (int i = j + 1; i < N; i++) {
            number x = at->mass[i][j];
            for (int k = 0; k < j; k++) x -= f->l[i][k] * part[k];
            f->l[i][j] = x * f->l[j][j];
        }
    }
    number s[2][2];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) f->across[k][i] = at->row[k][i];
        solve(f, f->across[k]);
    }
    for (int k = 0; k < 2; k++)
        for (int n = 0; n < 2; n++) {
            s[k][n] = 0 * at->gap[0];
            for (int i = 0; i < N; i++) s[k][n] += at->row[k][i] * f->across[n][i];
        }
    number over = 1 / (s[0][0] * s[1][1] - s[0][1] * s[0][1]);
    f->inverse[0][0] = over * s[1][1], f->inverse[1][1] = over * s[0][0];
    f->inverse[0][1] = f->inverse[1][0] = -over * s[0][1];
}

/* x less what of it violates C x = want. */
static inline void project(const terms *at, const factors *f, const number want[2], number x[N]) {
    number off[2];
    for (int k = 0; k < 2; k++) {
        off[k] = 0 * want[k] - want[k];
        for (int i = 0; i < N; i++) off[k] += at->row[k][i] * x[i];
    }
    for (int k = 0; k < 2; k++) {
        number by = f->inverse[k][0] * off[0] + f->inverse[k][1] * off[1];
        for (int i = 0; i < N; i++) x[i] -= f->across[k][i] * by;
    }
}

static inline void rate(const rods *r, const number y[2 * N], number out[2 * N], terms *at, factors *f) {
    evaluate(r, y, y + N, at);
    factorise(at, f);
    for (int i = 0; i < N; i++) out[i] = y[N + i], out[N + i] = at->force[i];
    solve(f, out + N);
    project(at, f, at->gamma, out + N);
}

/* So many steps of h from y (2 N, LANES), with coefficients a (STAGES, STAGES) whose last row is that of the end. */
void run(const rods *r, const double *a, double h, long steps, number *y) {
    number k[STAGES][2 * N], raw[2 * N];
    terms at;
    factors f;
    rate(r, y, k[0], &at, &f);
    for (long n = 0; n < steps; n++) {
        for (int s = 1; s < STAGES; s++) {
            for (int e = 0; e < 2 * N; e++) {
                number sum = a[s * STAGES] * k[0][e];
                for (int j = 1; j < s; j++) sum += a[s * STAGES + j] * k[j][e];
                raw[e] = y[e] + h * sum;
            }
            rate(r, raw, k[s], &at, &f);
        }
        number none[2] = {0 * h + 0 * y[0], 0 * h + 0 * y[0]}, shift[N], want[2] = {-at.gap[0], -at.gap[1]};
        for (int i = 0; i < N; i++) shift[i] = none[0];
        project(&at, &f, want, shift);
        project(&at, &f, none, raw + N);
        for (int i = 0; i < N; i++) y[i] = raw[i] + shift[i], y[N + i] = raw[N + i];
        for (int e = 0; e < 2 * N; e++) k[0][e] = k[STAGES - 1][e]; /* first same as last */
    }
}
