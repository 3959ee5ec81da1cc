// SPDX-License-Identifier: Apache-2.0
/* The definition of products with sparse weights: one output after the other. */
#include "kernel/ref/linear_finish.h"
#include "kernel/sparse_kernel.h"

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)m;
    (void)n;
    (void)k;
    (void)threads;
    return 0;
}

static float sum(const s24i_linear_job *job, int64_t m, int64_t n)
{
    const s24i_sparse_weight *w = job->w;
    const int64_t rows = w->rows, line = n / rows;
    const float *x = (const float *)job->x + m * job->x_stride_m;
    float y = 0;
    for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++)
        for (int64_t c = 0; c < w->cols; c++)
            y += w->values[(i * w->cols + c) * rows + n % rows] *
                 x[(s24i_sparse_column(w, i) + c) * job->x_stride_k];
    return y;
}

static void run_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t m = 0; m < job->m; m++)
            ((float *)job->y)[m * job->y_stride_m + n * job->y_stride_n] =
                linear_finish(job, m, n, sum(job, m, n));
}

static void run(const s24i_linear_job *job)
{
    s24i_linear_job copy = *job;
    job->parallel.run(job->parallel.pool, job->n, run_rows, &copy);
}

#define ROW(symbol, label, of)                                                                     \
    const s24i_sparse_kernel symbol = {{.name = label,                                             \
                                        .dtype = S24_F32,                                          \
                                        .cpu = S24_CPU_BASELINE,                                   \
                                        .rank = 0,                                                 \
                                        .x_dtypes = 1u << S24_F32,                                 \
                                        .work_bytes = work_bytes,                                  \
                                        .run = run},                                               \
                                       of};
ROW(s24i_sparse_csr_ref, "sparse_csr_f32_ref", S24I_SPARSE_ENTRIES)
ROW(s24i_sparse_4x1_ref, "sparse_4x1_f32_ref", S24I_SPARSE_STRIPS)
ROW(s24i_sparse_bsr_ref, "sparse_bsr_f32_ref", S24I_SPARSE_SQUARES)
