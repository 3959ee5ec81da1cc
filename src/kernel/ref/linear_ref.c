// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear in scalar C: the specification that every other row is compared with. Its layout
 * is the canonical form, values then indices. Each output is one sum in k order, so it does not
 * depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

static size_t value_bytes(int64_t n, int64_t k)
{
    size_t bytes = (size_t)n * (size_t)(k / 2) * sizeof(float);
    return (bytes + 63) & ~(size_t)63;
}

static size_t weight_bytes(int64_t n, int64_t k)
{
    return value_bytes(n, k) + (size_t)n * (size_t)((k + 7) / 8);
}

static void weight_pack(void *w, const void *values, const uint8_t *indices, int64_t n, int64_t k)
{
    memcpy(w, values, (size_t)n * (size_t)(k / 2) * sizeof(float));
    memcpy((char *)w + value_bytes(n, k), indices, (size_t)n * (size_t)((k + 7) / 8));
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)m, (void)n, (void)k, (void)threads;
    return 0;
}

static const char *design(int64_t m)
{
    (void)m;
    return "scalar";
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

static float dot(const float *x, int64_t stride, const float *values, const uint8_t *indices,
                 int64_t k)
{
    float sum = 0;
    for (int64_t g = 0; g < k / 4; g++) {
        unsigned code = (indices[g >> 1] >> ((g & 1) * 4)) & 0xfu;
        sum += x[(4 * g + (code & 3u)) * stride] * values[2 * g];
        sum += x[(4 * g + (code >> 2)) * stride] * values[2 * g + 1];
    }
    return sum;
}

static void run_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const float *all_values = job->w;
    const uint8_t *all_indices = (const uint8_t *)job->w + value_bytes(job->n, job->k);
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        for (int64_t n = 0; n < job->n; n++) {
            float y = job->alpha * dot(job->x + m * job->x_stride_m, job->x_stride_k,
                                       all_values + n * (job->k / 2),
                                       all_indices + n * ((job->k + 7) / 8), job->k);
            if (job->bias) y += job->bias[n];
            y = activate(y, job->activation);
            if (job->residual && job->beta != 0)
                y += job->beta *
                     job->residual[m * job->residual_stride_m + n * job->residual_stride_n];
            job->y[m * job->y_stride_m + n * job->y_stride_n] = y;
        }
    }
}

static void run(const s24i_linear_job *job)
{
    s24i_linear_job copy = *job;
    job->parallel.run(job->parallel.pool, job->m, run_rows, &copy);
}

const s24i_linear_kernel s24i_linear_f32_ref = {
    .name = "linear_f32_ref",
    .dtype = S24_F32,
    .cpu = S24_CPU_BASELINE,
    .rank = 0,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = work_bytes,
    .run = run,
    .design = design,
};
