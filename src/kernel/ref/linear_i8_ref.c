// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 weights and activations quantised as they come, in scalar C: the
 * specification. A token's scale is its largest magnitude / 127 (base/token_scale.h), its values
 * round(x·127/largest) to even, sums are exact integers, and
 *
 *   y = activation(alpha·(float(Σ)·w_scale[n])·x_scale[m] + bias)·gate + beta·residual
 *
 * The layout is the canonical form: values, indices, then scales.
 */
#include <string.h>

#include "base/base.h"
#include "base/token_scale.h"
#include "format/format.h"
#include "kernel/kernel.h"
#include "kernel/ref/linear_finish.h"

static size_t value_bytes(int64_t n, int64_t k)
{
    return ((size_t)n * (size_t)(k / 2) + 63) & ~(size_t)63;
}

static size_t index_bytes(int64_t n, int64_t k)
{
    return ((size_t)n * (size_t)s24i_index_stride(k) + 63) & ~(size_t)63;
}

static size_t weight_bytes(const s24i_weight *from)
{
    return value_bytes(from->n, from->k) + index_bytes(from->n, from->k) +
           (size_t)from->n * sizeof(float);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    const int64_t n = from->n, k = from->k;
    char *indices = (char *)w + value_bytes(n, k);
    float *scales = (float *)(void *)(indices + index_bytes(n, k));
    memcpy(w, from->values, (size_t)n * (size_t)(k / 2));
    memcpy(indices, from->indices, (size_t)n * (size_t)s24i_index_stride(k));
    for (int64_t i = 0; i < n; i++)
        scales[i] = from->scales ? from->scales[i] : 1;
}

/* Scales of the tokens, then their values, row by row. */
static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)n, (void)threads;
    return (size_t)m * sizeof(float) + (size_t)m * (size_t)k;
}

static void quantise_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    float *scales = job->work;
    int8_t *values = (int8_t *)(scales + job->m);
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        uint32_t largest = 0;
        float inverse;
        for (int64_t k = 0; k < job->k; k++) {
            const float x =
                s24i_load_f32(job->x, job->x_dtype, m * job->x_stride_m + k * job->x_stride_k);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits &= 0x7fffffffu;
            if (bits > largest) largest = bits;
        }
        scales[m] = s24i_token_scale(largest, &inverse);
        for (int64_t k = 0; k < job->k; k++)
            values[m * job->k + k] =
                scales[m] > 0 ? (int8_t)rintf(inverse * s24i_load_f32(job->x, job->x_dtype,
                                                                      m * job->x_stride_m +
                                                                          k * job->x_stride_k))
                              : 0;
    }
}

static int32_t dot(const s24i_linear_job *job, int64_t m, int64_t n)
{
    const int8_t *x = (const int8_t *)((const float *)job->work + job->m) + m * job->k;
    const int8_t *w = (const int8_t *)job->w + n * (job->k / 2);
    const uint8_t *indices =
        (const uint8_t *)job->w + value_bytes(job->n, job->k) + n * s24i_index_stride(job->k);
    int32_t sum = 0;
    for (int64_t g = 0; g < job->k / 4; g++) {
        const unsigned code = s24i_code(indices, g);
        sum += w[2 * g] * x[4 * g + (code & 3u)] + w[2 * g + 1] * x[4 * g + (code >> 2)];
    }
    return sum;
}

static void run_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const float *w_scales =
        (const float *)(const void *)((const char *)job->w + value_bytes(job->n, job->k) +
                                      index_bytes(job->n, job->k));
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        for (int64_t n = 0; n < job->n; n++) {
            const float sum = (float)dot(job, m, n) * w_scales[n] * ((const float *)job->work)[m];
            s24i_store_f32(job->y, job->y_dtype, m * job->y_stride_m + n * job->y_stride_n,
                           linear_finish(job, m, n, sum));
        }
    }
}

static void run(const s24i_linear_job *job)
{
    s24i_linear_job *mutable_job = (s24i_linear_job *)(uintptr_t)job;
    job->parallel.run(job->parallel.pool, job->m, quantise_tokens, mutable_job);
    job->parallel.run(job->parallel.pool, job->m, run_tokens, mutable_job);
}

const s24i_linear_kernel s24i_linear_i8_ref = {
    .name = "linear_i8_ref",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_BASELINE,
    .rank = 0,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = work_bytes,
    .run = run,
};
