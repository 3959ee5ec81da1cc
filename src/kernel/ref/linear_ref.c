// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear in scalar C: the specification that every other row is compared with. Its layout
 * is the canonical form, values then indices; narrow values are widened exactly. Each output is one
 * sum in k order, so it does not depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"
#include "kernel/kernel.h"

static size_t value_bytes(int64_t n, int64_t k, size_t value)
{
    size_t bytes = (size_t)n * (size_t)(k / 2) * value;
    return (bytes + 63) & ~(size_t)63;
}

static size_t index_bytes(int64_t n, int64_t k)
{
    return (size_t)n * (size_t)s24i_index_stride(k);
}

static void pack(void *w, const void *values, const uint8_t *indices, int64_t n, int64_t k,
                 size_t value)
{
    memcpy(w, values, (size_t)n * (size_t)(k / 2) * value);
    memcpy((char *)w + value_bytes(n, k, value), indices, index_bytes(n, k));
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)m, (void)n, (void)k, (void)threads;
    return 0;
}

static float activate(float x, s24_activation activation)
{
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return x > 0 || x != x ? x : 0;
    case S24_ACTIVATION_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case S24_ACTIVATION_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    default:
        return x;
    }
}

typedef float widen_fn(const void *values, int64_t i);

static float widen_f32(const void *values, int64_t i)
{
    return ((const float *)values)[i];
}

static float widen_bf16(const void *values, int64_t i)
{
    return s24i_bf16_to_f32(((const uint16_t *)values)[i]);
}

static float widen_f16(const void *values, int64_t i)
{
    return s24i_f16_to_f32(((const uint16_t *)values)[i]);
}

typedef struct reference {
    const s24i_linear_job *job;
    const uint8_t *indices;
    widen_fn *widen;
} reference;

static float dot(const reference *r, int64_t m, int64_t n)
{
    const int64_t k = r->job->k, first = n * (k / 2), stride = r->job->x_stride_k;
    const uint8_t *indices = r->indices + n * s24i_index_stride(k);
    const float *x = r->job->x + m * r->job->x_stride_m;
    float sum = 0;
    for (int64_t g = 0; g < k / 4; g++) {
        unsigned code = s24i_code(indices, g);
        sum += x[(4 * g + (code & 3u)) * stride] * r->widen(r->job->w, first + 2 * g);
        sum += x[(4 * g + (code >> 2)) * stride] * r->widen(r->job->w, first + 2 * g + 1);
    }
    return sum;
}

static void run_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const reference *r = arg;
    const s24i_linear_job *job = r->job;
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        for (int64_t n = 0; n < job->n; n++) {
            float y = job->alpha * dot(r, m, n);
            if (job->bias) y += job->bias[n];
            y = activate(y, job->activation);
            if (job->residual && job->beta != 0)
                y += job->beta *
                     job->residual[m * job->residual_stride_m + n * job->residual_stride_n];
            job->y[m * job->y_stride_m + n * job->y_stride_n] = y;
        }
    }
}

static void run(const s24i_linear_job *job, size_t value, widen_fn *widen)
{
    reference r = {job, (const uint8_t *)job->w + value_bytes(job->n, job->k, value), widen};
    job->parallel.run(job->parallel.pool, job->m, run_rows, &r);
}

#define REFERENCE(dtype_, DTYPE, value)                                                            \
    static size_t weight_bytes_##dtype_(int64_t n, int64_t k)                                      \
    {                                                                                              \
        return value_bytes(n, k, value) + index_bytes(n, k);                                       \
    }                                                                                              \
    static void weight_pack_##dtype_(void *w, const void *values, const uint8_t *indices,          \
                                     int64_t n, int64_t k)                                         \
    {                                                                                              \
        pack(w, values, indices, n, k, value);                                                     \
    }                                                                                              \
    static void run_##dtype_(const s24i_linear_job *job)                                           \
    {                                                                                              \
        run(job, value, widen_##dtype_);                                                           \
    }                                                                                              \
    const s24i_linear_kernel s24i_linear_##dtype_##_ref = {                                        \
        .name = "linear_" #dtype_ "_ref",                                                          \
        .dtype = DTYPE,                                                                            \
        .cpu = S24_CPU_BASELINE,                                                                   \
        .rank = 0,                                                                                 \
        .weight_bytes = weight_bytes_##dtype_,                                                     \
        .weight_pack = weight_pack_##dtype_,                                                       \
        .work_bytes = work_bytes,                                                                  \
        .run = run_##dtype_,                                                                       \
    };

REFERENCE(f32, S24_F32, 4)
REFERENCE(bf16, S24_BF16, 2)
REFERENCE(f16, S24_F16, 2)
