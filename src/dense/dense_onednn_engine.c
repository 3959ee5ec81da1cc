// SPDX-License-Identifier: Apache-2.0
/* Fills the oneDNN engine's table, and makes its products of two matrices that both change. */
#include "dense/dense.h"

#if S24_DENSE_ONEDNN
#include "dense/dense_onednn.h"
#include "io/file/io.h"

typedef struct gemm_job {
    const onednn *dnnl;
    const s24i_gemm *whole;
    dnnl_status_t status[S24I_ONEDNN_SHARES];
} gemm_job;

static void gemm_range(void *arg, int64_t begin, int64_t end, int thread)
{
    gemm_job *job = arg;
    const s24i_gemm g = s24i_gemm_part(job->whole, begin, end);
    const int before = s24i_onednn_enter(job->dnnl);
    job->status[thread] =
        job->dnnl->sgemm(g.transposed_a ? 'T' : 'N', g.transposed_b ? 'T' : 'N', g.m, g.n, g.k,
                         1.0f, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
    s24i_onednn_leave(job->dnnl, before);
}

static s24_status gemm(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_gemm *whole)
{
    gemm_job job = {.whole = whole};
    const int64_t steps = s24i_gemm_steps(whole);
    TRY(s24i_onednn_runner_open(&job.dnnl, runner, ctx));
    s24_ctx_parallel_for(ctx, steps, gemm_range, &job);
    for (int t = 0; t < s24i_min(steps, s24_ctx_threads(ctx)); t++)
        TRY(s24i_onednn_check(ctx, job.status[t], "a product"));
    return S24_OK;
}

static uint32_t cpu_of(s24_ctx *ctx)
{
    onednn dnnl;
    return s24i_onednn_open(&dnnl, ctx) == S24_OK ? onednn_cpu(&dnnl) : 0;
}

#define TEXT(x)      #x
#define DOT(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const s24i_dense_engine_table s24i_dense_engine = {
    .name = "oneDNN " DOT(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH),
    .weight_create = s24i_onednn_weight_create,
    .takes_eight = s24i_onednn_takes_eight,
    .eight_create = s24i_onednn_eight_create,
    .weight_destroy = s24i_onednn_weight_destroy,
    .weight_bytes = s24i_onednn_weight_bytes,
    .takes_bf16 = s24i_onednn_takes_bf16,
    .runner_create = s24i_onednn_runner_create,
    .runner_destroy = s24i_onednn_runner_destroy,
    .run = s24i_onednn_run,
    .gemm = gemm,
    .cpu = cpu_of,
};
#endif
