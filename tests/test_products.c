// SPDX-License-Identifier: Apache-2.0
/*
 * Products and plans against sums in double: all dtypes, both sides, both orientations, strides,
 * alpha and beta, activations, every kernel row this CPU runs; refusals, memory, shared matrices.
 */
#include "support.h"

#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "core_support.h"

/* A random 2:4 matrix of moderate values and its exact dense form [n, k] in double. */
typedef struct weight {
    s24_matrix *w;
    double *dense;
    int64_t n, k;
} weight;

static weight make_weight(s24_ctx *ctx, s24_dtype dtype, int64_t n, int64_t k, uint64_t *seed)
{
    weight t = {NULL, malloc(sizeof(double) * (size_t)(n * k)), n, k};
    float *data = malloc(sizeof *data * (size_t)(n * k));
    for (int64_t i = 0; i < n * k; i++)
        data[i] = test_random(seed) % 9 ? test_uniform(seed) * (dtype == S24_I8 ? 100 : 1) : 0;
    s24_dense src = {data, S24_F32, n, k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = dtype};
    assert_ok(ctx, s24_matrix_create(&t.w, ctx, &src, &opts));
    assert_ok(ctx, s24_matrix_to_dense(ctx, &src, t.w));
    for (int64_t i = 0; i < n * k; i++)
        t.dense[i] = (double)data[i];
    free(data);
    return t;
}

static void drop_weight(weight *t)
{
    s24_matrix_destroy(t->w);
    free(t->dense);
}

/* A dense f32 matrix with a gap after each row, filled with `fill`, or at random if that is 0. */
static s24_dense make_dense(int64_t rows, int64_t cols, float fill, uint64_t *seed)
{
    int64_t ld = cols + 3;
    float *data = malloc(sizeof *data * (size_t)(rows * ld));
    for (int64_t i = 0; i < rows * ld; i++)
        data[i] = fill == 0 ? test_uniform(seed) : fill;
    return (s24_dense){data, S24_F32, rows, cols, ld};
}

static float *at(const s24_dense *d, int64_t row, int64_t col)
{
    return (float *)d->data + row * d->ld + col;
}

/* What a sum of `terms` products may be off by, as a share of Σ|x·w|: f32 rounding in any order; a
   row that computes on narrow weights may round x to their precision, too. */
static double tolerance(const char *kernel, int64_t terms)
{
    s24_dtype dtype = S24_F32;
    const char *name;
    for (int i = 0; (name = s24_kernel_name(i, NULL, &dtype)) && kernel; i++)
        if (!strcmp(name, kernel)) break;
    return kernel && dtype != S24_F32 ? 1.0 / 128 : (double)(terms + 8) / 16777216;
}

/* The row that the products take for a matrix in this context. */
static const char *row_of(s24_ctx *ctx, const weight *t)
{
    s24_plan *plan;
    assert_ok(ctx, s24_plan_create(&plan, ctx, t->w, NULL));
    const char *name = s24_plan_kernel(plan, 1);
    s24_plan_destroy(plan);
    return name;
}

/* ---- the simple products ------------------------------------------------------------------------- */

typedef enum product {
    LINEAR,
    DENSE_SPARSE,
    SPARSE_DENSE,
    ADD_DENSE_SPARSE,
    ADD_SPARSE_DENSE
} product;

typedef struct problem {
    product kind;
    int transposed;
    int64_t m;
    float alpha, beta;
} problem;

static s24_status call(s24_ctx *ctx, const problem *p, const s24_dense *y, const s24_dense *x,
                       const s24_matrix *w, const float *bias)
{
    switch (p->kind) {
    case LINEAR:
        return s24_linear(ctx, y, x, w, bias);
    case DENSE_SPARSE:
        return s24_mm_dense_sparse(ctx, y, x, w);
    case SPARSE_DENSE:
        return s24_mm_sparse_dense(ctx, y, w, x);
    case ADD_DENSE_SPARSE:
        return s24_addmm_dense_sparse(ctx, y, x, w, p->alpha, p->beta);
    default:
        return s24_addmm_sparse_dense(ctx, y, w, x, p->alpha, p->beta);
    }
}

/* One product, compared element by element. */
static void one_product(s24_ctx *ctx, const weight *t, const problem *p, uint64_t *seed)
{
    int left = p->kind == SPARSE_DENSE || p->kind == ADD_SPARSE_DENSE;
    int along_k = (p->kind == LINEAR || left) != p->transposed;
    int64_t sum = along_k ? t->k : t->n, outputs = along_k ? t->n : t->k;
    s24_dense x = left ? make_dense(sum, p->m, 0, seed) : make_dense(p->m, sum, 0, seed);
    int reads_y = (p->kind == ADD_DENSE_SPARSE || p->kind == ADD_SPARSE_DENSE) && p->beta != 0;
    float fill = reads_y ? 0.625f : NAN; /* what is not read may hold anything */
    s24_dense y =
        left ? make_dense(outputs, p->m, fill, seed) : make_dense(p->m, outputs, fill, seed);
    float bias[256];
    int has_bias = p->kind == LINEAR && p->m % 2;
    for (int64_t i = 0; i < outputs; i++)
        bias[i] = test_uniform(seed);
    double share = tolerance(along_k ? row_of(ctx, t) : NULL, sum);
    s24_matrix *view = t->w;
    if (p->transposed) assert_ok(ctx, s24_matrix_transpose(&view, ctx, t->w));
    assert_ok(ctx, call(ctx, p, &y, &x, view, has_bias ? bias : NULL));
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t o = 0; o < outputs; o++) {
            double exact = 0, size = 0;
            for (int64_t s = 0; s < sum; s++) {
                double w = along_k ? t->dense[o * t->k + s] : t->dense[s * t->k + o];
                double term = w * (double)*(left ? at(&x, s, i) : at(&x, i, s));
                exact += term;
                size += fabs(term);
            }
            exact = (double)p->alpha * exact + (has_bias ? (double)bias[o] : 0) +
                    (reads_y ? (double)p->beta * 0.625 : 0);
            double got = (double)*(left ? at(&y, o, i) : at(&y, i, o));
            double allowed = share * (fabs((double)p->alpha) * size + fabs(exact) + 1);
            if (!(fabs(got - exact) <= allowed))
                fail_msg("product %d, transposed %d, [%d, %d], m %d: y[%d, %d] is %g, expected %g",
                         (int)p->kind, p->transposed, (int)t->n, (int)t->k, (int)p->m, (int)i,
                         (int)o, got, exact);
        }
    }
    for (int64_t r = 0; r < y.rows; r++) /* gaps between the rows are not touched */
        for (int64_t c = y.cols; c < y.ld; c++)
            assert_true(reads_y ? *at(&y, r, c) == fill : isnan(*at(&y, r, c)));
    if (p->transposed) s24_matrix_destroy(view);
    free(x.data);
    free(y.data);
}

static void test_products(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 4},    {2, 3, 8},    {3, 5, 12},   {1, 40, 132},
                                        {17, 33, 68}, {40, 16, 64}, {19, 70, 200}};
    static const float scales[][2] = {{1, 0}, {-2.5f, 0}, {1, 1}, {0.5f, -3}};
    heap h = {0};
    uint64_t seed = 31;
    s24_ctx *ctx = ctx_on(&h, 1);
    for (int s = 0; s < 7; s++) {
        for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
            s24_ctx_set_threads(ctx, 1 + (s + d) % 3);
            weight t = make_weight(ctx, two_four_dtypes[d], shapes[s][1], shapes[s][2], &seed);
            for (int v = 0; v < 2 * (ADD_SPARSE_DENSE + 1); v++) {
                problem p = {(product)(v / 2), v % 2, shapes[s][0], 1, 0};
                if (p.kind < ADD_DENSE_SPARSE) {
                    one_product(ctx, &t, &p, &seed);
                    continue;
                }
                for (int i = 0; i < 4; i++) {
                    p.alpha = scales[i][0];
                    p.beta = scales[i][1];
                    one_product(ctx, &t, &p, &seed);
                }
            }
            drop_weight(&t);
        }
    }
    ctx_off(&h, ctx);
}

/* Rows and columns far apart, as a view into a larger matrix has them, one column wide. */
static void test_single_columns(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 37;
    s24_ctx *ctx = ctx_on(&h, 2);
    weight t = make_weight(ctx, S24_F32, 9, 16, &seed);
    problem p = {SPARSE_DENSE, 0, 1, 1, 0};
    one_product(ctx, &t, &p, &seed);
    p.transposed = 1;
    one_product(ctx, &t, &p, &seed);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

static void test_same_bits_again(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 41;
    s24_ctx *ctx = ctx_on(&h, 3);
    weight t = make_weight(ctx, S24_F32, 50, 64, &seed);
    s24_dense x = make_dense(21, 64, 0, &seed), xn = make_dense(21, 50, 0, &seed);
    s24_dense a = make_dense(21, 50, 1, &seed), b = make_dense(21, 50, 1, &seed);
    s24_dense an = make_dense(21, 64, 1, &seed), bn = make_dense(21, 64, 1, &seed);
    assert_ok(ctx, s24_linear(ctx, &a, &x, t.w, NULL));
    assert_ok(ctx, s24_linear(ctx, &b, &x, t.w, NULL));
    assert_memory_equal(a.data, b.data, sizeof(float) * (size_t)(a.rows * a.ld));
    /* Sums along n do not depend on the number of threads either. */
    assert_ok(ctx, s24_mm_dense_sparse(ctx, &an, &xn, t.w));
    s24_ctx_set_threads(ctx, 1);
    assert_ok(ctx, s24_mm_dense_sparse(ctx, &bn, &xn, t.w));
    assert_memory_equal(an.data, bn.data, sizeof(float) * (size_t)(an.rows * an.ld));
    free(x.data), free(xn.data), free(a.data), free(b.data), free(an.data), free(bn.data);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

static void test_product_refusals(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 43;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_F32, 6, 8, &seed);
    s24_matrix *view;
    assert_ok(ctx, s24_matrix_transpose(&view, ctx, t.w));
    s24_dense x = make_dense(3, 8, 0, &seed), y = make_dense(3, 6, 0, &seed);
    assert_ok(ctx, s24_linear(ctx, &y, &x, t.w, NULL));
    assert_refused(ctx, S24_ERROR_SHAPE, "x is [3, 8]; expected [3, 6]",
                   s24_linear(ctx, &y, &x, view, NULL));
    assert_refused(ctx, S24_ERROR_SHAPE, "x is [3, 8]; expected [3, 6]",
                   s24_mm_dense_sparse(ctx, &y, &x, t.w));
    assert_refused(ctx, S24_ERROR_SHAPE, "x is [3, 8]; expected [8, 8]",
                   s24_mm_sparse_dense(ctx, &y, t.w, &x));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "w is NULL", s24_linear(ctx, &y, &x, NULL, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "x is NULL", s24_linear(ctx, &y, NULL, t.w, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "y is NULL", s24_linear(ctx, NULL, &x, t.w, NULL));
    s24_dense bad = y;
    bad.rows = 2;
    assert_refused(ctx, S24_ERROR_SHAPE, "y is [2, 6]; expected [3, 6]",
                   s24_linear(ctx, &bad, &x, t.w, NULL));
    bad = y;
    bad.dtype = S24_F16;
    assert_refused(ctx, S24_ERROR_DTYPE, "y is f16; expected f32",
                   s24_linear(ctx, &bad, &x, t.w, NULL));
    bad = x;
    bad.rows = 0;
    assert_refused(ctx, S24_ERROR_SHAPE, "x is [0, 8]; expected at least one row",
                   s24_linear(ctx, &y, &bad, t.w, NULL));
    bad = y;
    bad.data = x.data;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "y and x are the same memory",
                   s24_linear(ctx, &bad, &x, t.w, NULL));
    assert_int_equal(s24_linear(NULL, &y, &x, t.w, NULL), S24_ERROR_ARGUMENT);
    free(x.data), free(y.data);
    s24_matrix_destroy(view);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void test_memory_of_products(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++) { /* f32 as it is, f16 widened, bf16 either way */
        heap h = {0};
        uint64_t seed = 47;
        s24_ctx *ctx = ctx_on(&h, 2);
        weight t = make_weight(ctx, two_four_dtypes[d], 24, 32, &seed);
        s24_dense x = make_dense(40, 32, 0, &seed), y = make_dense(40, 24, 0, &seed);
        s24_status status = S24_ERROR_MEMORY;
        for (int64_t n = 1; status != S24_OK; n++) {
            int64_t blocks = h.blocks;
            h.fail_at = h.calls + n;
            status = s24_linear(ctx, &y, &x, t.w, NULL);
            if (status == S24_OK) break;
            assert_int_equal(status, S24_ERROR_MEMORY);
            assert_non_null(strstr(s24_ctx_error(ctx), "out of memory"));
            /* A plan that was made may stay; half of one may not. */
            assert_true(h.blocks == blocks || h.blocks == blocks + 2);
            assert_true(n < 20);
        }
        h.fail_at = h.calls + 1; /* the next allocation would fail: there is none */
        assert_ok(ctx, s24_linear(ctx, &y, &x, t.w, NULL));
        x.rows = y.rows = 7;
        assert_ok(ctx, s24_linear(ctx, &y, &x, t.w, NULL));
        h.fail_at = 0;
        free(x.data), free(y.data);
        drop_weight(&t);
        ctx_off(&h, ctx);
    }
}

/* ---- plans --------------------------------------------------------------------------------------- */

static double activated(double x, s24_activation activation)
{
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return x > 0 ? x : 0;
    case S24_ACTIVATION_GELU:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case S24_ACTIVATION_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    default:
        return x;
    }
}

static void one_plan(s24_ctx *ctx, const weight *t, const char *kernel, int64_t m,
                     s24_activation activation, int residual, uint64_t *seed)
{
    s24_plan *plan;
    s24_plan_opts opts = {.size = sizeof opts, .kernel = kernel};
    assert_ok(ctx, s24_plan_create(&plan, ctx, t->w, &opts));
    assert_string_equal(s24_plan_kernel(plan, m), kernel);
    assert_true(s24_plan_bytes(plan) > 0);
    s24_dense x = make_dense(m, t->k, 0, seed), y = make_dense(m, t->n, 0, seed);
    s24_dense other = make_dense(m, t->n, 0.25f, seed);
    if (residual == 2) /* y itself */
        memcpy(y.data, other.data, sizeof(float) * (size_t)(m * y.ld));
    float bias[256];
    for (int64_t i = 0; i < t->n; i++)
        bias[i] = test_uniform(seed);
    size_t bytes = s24_plan_work_bytes(plan, ctx, m);
    void *work = bytes ? s24_ctx_alloc(ctx, bytes) : NULL;
    s24_linear_args args = {&y, &x, bias, activation, NULL, work, bytes};
    if (residual) args.residual = residual == 2 ? &y : &other;
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    double share = tolerance(kernel, t->k);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t n = 0; n < t->n; n++) {
            double exact = (double)bias[n], size = fabs(exact);
            for (int64_t k = 0; k < t->k; k++) {
                double term = t->dense[n * t->k + k] * (double)*at(&x, i, k);
                exact += term;
                size += fabs(term);
            }
            exact = activated(exact, activation) + (residual ? 0.25 : 0);
            double off = fabs((double)*at(&y, i, n) - exact);
            /* The activations' slope is under 1.2; 2⁻²⁰ is for their own error. */
            if (!(off <= 1.2 * share * (size + 1) + 1e-6))
                fail_msg("%s, m %d, activation %d: y[%d, %d] off by %g", kernel, (int)m,
                         (int)activation, (int)i, (int)n, off);
        }
    }
    s24_ctx_free(ctx, work);
    s24_plan_destroy(plan);
    free(x.data), free(y.data), free(other.data);
}

static void test_plans_of_every_row(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 7, 4}, {2, 16, 36}, {5, 33, 64}, {67, 50, 132}};
    heap h = {0};
    uint64_t seed = 53;
    s24_ctx *ctx = ctx_on(&h, 1);
    uint32_t cpu;
    s24_dtype dtype;
    const char *name;
    for (int row = 0; (name = s24_kernel_name(row, &cpu, &dtype)); row++) {
        if (cpu & ~s24_ctx_cpu(ctx)) continue;
        for (int s = 0; s < 4; s++) {
            weight t = make_weight(ctx, dtype, shapes[s][1], shapes[s][2], &seed);
            s24_ctx_set_threads(ctx, 1 + s % 3);
            for (int a = 0; a < 4; a++)
                one_plan(ctx, &t, name, shapes[s][0], (s24_activation)a, (a + s) % 3, &seed);
            drop_weight(&t);
        }
    }
    assert_null(s24_kernel_name(-1, NULL, NULL));
    assert_null(s24_kernel_name(1000, NULL, NULL));
    ctx_off(&h, ctx);
}

static void test_plan_refusals(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 59;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_F16, 6, 8, &seed);
    s24_matrix *view;
    s24_plan *plan;
    s24_plan_opts opts = {.size = sizeof opts, .kernel = "no_such_kernel"};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "there is no kernel named \"no_such_kernel\"",
                   s24_plan_create(&plan, ctx, t.w, &opts));
    opts.size = 0;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "s24_plan_opts.size is 0",
                   s24_plan_create(&plan, ctx, t.w, &opts));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "w is NULL", s24_plan_create(&plan, ctx, NULL, NULL));
    assert_ok(ctx, s24_matrix_transpose(&view, ctx, t.w));
    assert_refused(ctx, S24_ERROR_SHAPE, "transposed view",
                   s24_plan_create(&plan, ctx, view, NULL));
    assert_null(plan);
    s24_matrix_destroy(view);

    assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, NULL));
    s24_dense x = make_dense(3, 8, 0, &seed), y = make_dense(3, 6, 0, &seed), wide = x;
    size_t bytes = s24_plan_work_bytes(plan, ctx, 3);
    char *work = s24_ctx_alloc(ctx, bytes + 64);
    s24_linear_args good = {&y, &x, NULL, S24_ACTIVATION_NONE, NULL, work, bytes}, args = good;
    assert_ok(ctx, s24_plan_run(ctx, plan, &good));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "plan is NULL", s24_plan_run(ctx, NULL, &good));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "args is NULL", s24_plan_run(ctx, plan, NULL));
    wide.cols = 7;
    args.x = &wide;
    assert_refused(ctx, S24_ERROR_SHAPE, "x is [3, 7]; expected [3, 8]",
                   s24_plan_run(ctx, plan, &args));
    args = good;
    args.residual = &x;
    assert_refused(ctx, S24_ERROR_SHAPE, "residual is [3, 8]; expected [3, 6]",
                   s24_plan_run(ctx, plan, &args));
    args = good;
    args.activation = (s24_activation)4;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "activation is 4; expected 0 to 3",
                   s24_plan_run(ctx, plan, &args));
    if (bytes) {
        args = good;
        args.work_bytes--;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "s24_plan_work_bytes asks for",
                       s24_plan_run(ctx, plan, &args));
        args = good;
        args.work = work + 4;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "aligned to 64", s24_plan_run(ctx, plan, &args));
    }
    s24_ctx_free(ctx, work);
    s24_plan_destroy(plan);
    s24_plan_destroy(NULL);
    free(x.data), free(y.data);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

/* A context that masks features neither plans with nor runs what needs them. */
static void test_masked_cpu(void **state)
{
    (void)state;
    static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512vnni", "avx512bf16"};
    heap h = {0};
    uint64_t seed = 61;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_BF16, 20, 64, &seed);
    for (int i = 0; i < 5; i++) {
        s24_ctx *masked;
        s24_ctx_opts opts = {.size = sizeof opts, .cpu_mask = s24_cpu_parse(levels[i])};
        assert_int_equal(s24_ctx_create(&masked, &opts), S24_OK);
        problem p = {LINEAR, 0, 18, 1, 0};
        one_product(masked, &t, &p, &seed); /* the same matrix, another row of the table */
        uint32_t cpu;
        s24_dtype dtype;
        const char *name;
        for (int row = 0; (name = s24_kernel_name(row, &cpu, &dtype)); row++) {
            if ((cpu & ~s24_ctx_cpu(ctx)) || !(cpu & ~s24_ctx_cpu(masked))) continue;
            if (dtype != S24_F32 && dtype != S24_BF16) continue;
            s24_plan_opts by_name = {.size = sizeof by_name, .kernel = name};
            s24_plan *plan;
            assert_refused(masked, S24_ERROR_UNSUPPORTED, name,
                           s24_plan_create(&plan, masked, t.w, &by_name));
            assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, &by_name));
            s24_dense x = make_dense(2, 64, 0, &seed), y = make_dense(2, 20, 0, &seed);
            s24_linear_args args = {.y = &y, .x = &x};
            assert_refused(masked, S24_ERROR_UNSUPPORTED, "this context has",
                           s24_plan_run(masked, plan, &args));
            s24_plan_destroy(plan);
            free(x.data), free(y.data);
        }
        s24_ctx_destroy(masked);
    }
    drop_weight(&t);
    ctx_off(&h, ctx);
}

/* ---- one matrix, two contexts, two threads ------------------------------------------------------ */

typedef struct user {
    s24_matrix *view; /* owned by the thread */
    pthread_barrier_t *start;
    s24_dense x, y;
    s24_status status;
} user;

static void *use(void *arg)
{
    user *u = arg;
    s24_ctx *ctx;
    s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    u->status = s24_ctx_create(&ctx, &opts);
    pthread_barrier_wait(u->start); /* so that both plan at once */
    for (int i = 0; i < 3 && u->status == S24_OK; i++)
        u->status = s24_mm_dense_sparse(ctx, &u->y, &u->x, u->view);
    s24_matrix_destroy(u->view);
    s24_ctx_destroy(ctx);
    return NULL;
}

static void test_shared_matrix(void **state)
{
    (void)state;
    uint64_t seed = 67;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (int round = 0; round < 30; round++) {
        weight t = make_weight(ctx, S24_F32, 40, 64, &seed);
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 2);
        user users[2];
        pthread_t threads[2];
        s24_dense x = make_dense(10, 64, 0, &seed);
        for (int i = 0; i < 2; i++) {
            users[i] = (user){.start = &start, .x = x, .y = make_dense(10, 40, 1, &seed)};
            assert_ok(ctx, s24_matrix_transpose(&users[i].view, ctx, t.w));
        }
        drop_weight(&t); /* the last of the two threads frees the storage */
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(users[0].status, S24_OK);
        assert_int_equal(users[1].status, S24_OK);
        assert_memory_equal(users[0].y.data, users[1].y.data, sizeof(float) * 10 * 43);
        pthread_barrier_destroy(&start);
        free(x.data), free(users[0].y.data), free(users[1].y.data);
    }
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),           cmocka_unit_test(test_single_columns),
        cmocka_unit_test(test_same_bits_again),    cmocka_unit_test(test_product_refusals),
        cmocka_unit_test(test_memory_of_products), cmocka_unit_test(test_plans_of_every_row),
        cmocka_unit_test(test_plan_refusals),      cmocka_unit_test(test_masked_cpu),
        cmocka_unit_test(test_shared_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
