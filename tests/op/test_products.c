// SPDX-License-Identifier: Apache-2.0
/*
 * The simple products against sums in double: all dtypes, both sides, both orientations, strides,
 * alpha and beta, masked CPUs; refusals, memory, matrices shared by threads.
 */
#include "support.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "core_support.h"
#include "product_support.h"

/* The row that the products take for a matrix in this context. */
static const char *row_of(s24_ctx *ctx, const weight *t)
{
    s24_plan *plan;
    assert_ok(ctx, s24_plan_create(&plan, ctx, t->w, NULL));
    const char *name = s24_plan_kernel(plan, 1);
    s24_plan_destroy(plan);
    return name;
}

/* ---- the simple products
   ------------------------------------------------------------------------- */

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

/* One matrix, used by contexts that see different CPUs: each plans its own row. */
static void test_masked_cpu(void **state)
{
    (void)state;
    static const char *const levels[] = {"baseline",   "avx2", "avxvnni", "avx512", "avx512vnni",
                                         "avx512bf16", "amx",  "neon",    "dotprod"};
    heap h = {0};
    uint64_t seed = 61;
    s24_ctx *ctx = ctx_on(&h, 1);
    for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
        weight t = make_weight(ctx, two_four_dtypes[d], 20, 64, &seed);
        for (int i = 0; i < 8; i++) {
            s24_ctx *masked;
            s24_ctx_opts opts = {.size = sizeof opts, .cpu_mask = s24_cpu_parse(levels[i])};
            assert_int_equal(s24_ctx_create(&masked, &opts), S24_OK);
            problem p = {LINEAR, 0, 18, 1, 0};
            one_product(masked, &t, &p, &seed);
            s24_ctx_destroy(masked); /* its plan lives on with the matrix */
        }
        drop_weight(&t);
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
    assert_refused(ctx, S24_ERROR_ARGUMENT, "y overlaps x", s24_linear(ctx, &bad, &x, t.w, NULL));
    assert_int_equal(s24_linear(NULL, &y, &x, t.w, NULL), S24_ERROR_ARGUMENT);
    free(x.data), free(y.data);
    s24_matrix_destroy(view);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

/* ---- memory
   -------------------------------------------------------------------------------------- */

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

/* ---- one matrix, two contexts, two threads --------------------------------------------------- */

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

/* Threads of this process; 0: the system does not tell. */
static int threads_there(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *one; tasks && (one = readdir(tasks));)
        count += one->d_name[0] != '.';
    if (tasks) closedir(tasks);
    return count;
}

/* Products that are over before a thread has woken start none; others do. The weight is made by a
   context of one thread, since making it starts some. */
static void small_products_run_alone(void **state)
{
    (void)state;
    const s24_ctx_opts one = {.size = sizeof one, .threads = 1},
                       three = {.size = sizeof three, .threads = 3};
    s24_ctx *maker, *ctx;
    s24_plan *plan;
    uint64_t seed = 3;
    const int before = threads_there();
    if (!before) skip();
    assert_int_equal(s24_ctx_create(&maker, &one), S24_OK);
    assert_int_equal(s24_ctx_create(&ctx, &three), S24_OK);
    weight t = make_weight(maker, S24_F32, 64, 128, &seed);
    assert_ok(maker, s24_plan_create(&plan, maker, t.w, NULL));
    for (int64_t m = 8; m <= 16; m += 8) {
        s24_dense x = make_dense(m, 128, 0, &seed), y = make_dense(m, 64, 0, &seed);
        const size_t bytes = s24_plan_work_bytes(plan, ctx, m);
        void *work = s24_ctx_alloc(ctx, bytes);
        const s24_linear_args args = {.y = &y, .x = &x, .work = work, .work_bytes = bytes};
        assert_ok(ctx, s24_plan_run(ctx, plan, &args));
        if (m == 8) assert_true(threads_there() <= before);
        if (m == 16) assert_true(threads_there() > before);
        s24_ctx_free(ctx, work);
        free(x.data), free(y.data);
    }
    s24_plan_destroy(plan);
    drop_weight(&t);
    s24_ctx_destroy(ctx);
    s24_ctx_destroy(maker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_products_run_alone), /* before others start threads */
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_masked_cpu),
        cmocka_unit_test(test_single_columns),
        cmocka_unit_test(test_same_bits_again),
        cmocka_unit_test(test_product_refusals),
        cmocka_unit_test(test_memory_of_products),
        cmocka_unit_test(test_shared_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
