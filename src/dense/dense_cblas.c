// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products through a CBLAS where oneDNN is missing. CBLAS has no packed weights and nothing
 * to fuse, so the weight is a plain copy and bias, activation and sum are a second pass over y. It
 * multiplies on our threads, a share of the rows or columns each. OpenBLAS keeps its own number of
 * threads for the whole process; it is set to one before every product.
 */
#include "dense/dense.h"

#if S24_DENSE_CBLAS
#include <limits.h>
#include <string.h>

#include <cblas.h>

#include "io/file/io.h"
#include "vec/vec.h"

struct s24i_dense_weight {
    s24_ctx *ctx;
    float *data; /* [n, k] */
    int64_t n, k;
};

struct s24i_dense_runner {
    s24_ctx *ctx;
    float *work; /* the product before its activation, where y must be kept for the sum */
    int64_t work_elems;
};

/* CBLAS counts in int. */
static s24_status check_int(s24_ctx *ctx, const char *what, int64_t count)
{
    REQUIRE(ctx, count <= INT_MAX, S24_ERROR_UNSUPPORTED,
            "%s: %lld is more than the %d that this dense engine (CBLAS) counts to", what,
            (long long)count, INT_MAX);
    return S24_OK;
}

static void weight_destroy(s24i_dense_weight *weight)
{
    if (!weight) return;
    s24_ctx_free(weight->ctx, weight->data);
    s24_ctx_free(weight->ctx, weight);
}

static s24_status weight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w,
                                s24_dtype dtype)
{
    (void)dtype;
    *out = NULL;
    TRY(check_int(ctx, "w's rows", w->rows));
    TRY(check_int(ctx, "w's columns", w->cols));
    s24i_dense_weight *weight;
    TRY(s24i_alloc_elems(&weight, ctx, 1, sizeof *weight, "a dense weight"));
    *weight = (s24i_dense_weight){.ctx = ctx, .n = w->rows, .k = w->cols};
    const s24_status status =
        s24i_alloc_elems(&weight->data, ctx, w->rows * w->cols, sizeof(float), "a dense weight");
    if (status != S24_OK) {
        weight_destroy(weight);
        return status;
    }
    for (int64_t r = 0; r < w->rows; r++)
        memcpy(weight->data + r * w->cols, (const float *)w->data + r * s24i_ld(w),
               (size_t)w->cols * sizeof(float));
    *out = weight;
    return S24_OK;
}

static size_t weight_bytes(const s24i_dense_weight *weight)
{
    return (size_t)(weight->n * weight->k) * sizeof(float);
}

static s24_status runner_create(s24i_dense_runner **out, s24_ctx *ctx, int64_t most_x)
{
    (void)most_x;
    TRY(s24i_alloc_elems(out, ctx, 1, sizeof **out, "a dense runner"));
    **out = (s24i_dense_runner){.ctx = ctx};
    return S24_OK;
}

static void runner_destroy(s24i_dense_runner *runner)
{
    if (!runner) return;
    s24_ctx_free(runner->ctx, runner->work);
    s24_ctx_free(runner->ctx, runner);
}

/* One thread's share of c = A·B + beta·c. */
static void multiply_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const s24i_gemm g = s24i_gemm_part(arg, begin, end);
    cblas_sgemm(CblasRowMajor, g.transposed_a ? CblasTrans : CblasNoTrans,
                g.transposed_b ? CblasTrans : CblasNoTrans, (int)g.m, (int)g.n, (int)g.k, 1.0f, g.a,
                (int)g.lda, g.b, (int)g.ldb, g.beta, g.c, (int)g.ldc);
}

static s24_status gemm(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_gemm *whole)
{
    s24i_gemm job = *whole;
    (void)runner;
    TRY(check_int(ctx, "rows", job.m));
    TRY(check_int(ctx, "columns", job.n));
    TRY(check_int(ctx, "a sum's terms", job.k));
    TRY(check_int(ctx, "a leading dimension", s24i_max(job.lda, s24i_max(job.ldb, job.ldc))));
#if defined(OPENBLAS_CONFIG_H) || defined(OPENBLAS_VERSION)
    openblas_set_num_threads(1);
#endif
    s24_ctx_parallel_for(ctx, s24i_gemm_steps(&job), multiply_range, &job);
    return S24_OK;
}

typedef struct epilogue_job {
    const s24i_dense_job *job;
    const s24i_vec *vec;
    const float *product;
    int64_t ld;
    int accumulate;
} epilogue_job;

static void epilogue_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const epilogue_job *e = arg;
    const s24i_dense_job *job = e->job;
    for (int64_t i = begin; i < end; i++)
        e->vec->epilogue((float *)job->y->data + i * s24i_ld(job->y), e->product + i * e->ld,
                         job->bias, job->activation, e->accumulate, job->weight->n);
}

static s24_status run(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_dense_job *job)
{
    const s24i_dense_weight *w = job->weight;
    const int64_t m = job->y->rows;
    const int aside = job->accumulate && job->activation != S24_ACTIVATION_NONE;
    float *product = job->y->data;
    int64_t ld = s24i_ld(job->y);
    if (aside && m * w->n > runner->work_elems) {
        s24_ctx_free(runner->ctx, runner->work);
        runner->work_elems = 0;
        TRY(s24i_alloc_elems(&runner->work, runner->ctx, m * w->n, sizeof(float), "a product"));
        runner->work_elems = m * w->n;
    }
    if (aside) {
        product = runner->work;
        ld = w->n;
    }
    const s24i_gemm g = {.c = product,
                         .a = job->x->data,
                         .b = w->data,
                         .ldc = ld,
                         .lda = s24i_ld(job->x),
                         .ldb = w->k,
                         .m = m,
                         .n = w->n,
                         .k = w->k,
                         .transposed_b = 1,
                         .beta = job->accumulate && !aside ? 1.0f : 0.0f};
    TRY(gemm(runner, ctx, &g));
    if (!aside && !job->bias && job->activation == S24_ACTIVATION_NONE) return S24_OK;
    epilogue_job e = {job, s24i_vec_find(s24_ctx_cpu(ctx)), product, ld, aside};
    s24_ctx_parallel_for(ctx, m, epilogue_rows, &e);
    return S24_OK;
}

/* A CBLAS takes no bound. */
static uint32_t cpu_of(s24_ctx *ctx)
{
    (void)ctx;
    return s24_cpu_detect();
}

const s24i_dense_engine_table s24i_dense_engine = {
#if defined(OPENBLAS_VERSION)
    .name = OPENBLAS_VERSION,
#else
    .name = "CBLAS",
#endif
    .weight_create = weight_create,
    .weight_destroy = weight_destroy,
    .weight_bytes = weight_bytes,
    .runner_create = runner_create,
    .runner_destroy = runner_destroy,
    .run = run,
    .gemm = gemm,
    .cpu = cpu_of,
};
#endif
