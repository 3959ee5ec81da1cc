// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear in scalar C: the specification that every other row is compared with. Its layout
 * is the canonical form, values, indices and for integers scales; narrow values are widened
 * exactly, and an integer is multiplied with its scale first. Each output is one sum in k order, so
 * it does not depend on the number of threads.
 */
#include <string.h>

#include "base/base.h"
#include "format/format.h"
#include "kernel/kernel.h"
#include "kernel/ref/linear_finish.h"

static size_t value_bytes(int64_t n, int64_t k, size_t value)
{
    size_t bytes = (size_t)n * (size_t)(k / 2) * value;
    return (bytes + 63) & ~(size_t)63;
}

static size_t index_bytes(int64_t n, int64_t k)
{
    size_t bytes = (size_t)n * (size_t)s24i_index_stride(k);
    return (bytes + 63) & ~(size_t)63;
}

static int64_t groups_of(int64_t k, int64_t group)
{
    return (k + group - 1) / group;
}

static size_t all_bytes(const s24i_weight *from, size_t value)
{
    const size_t scales = value == 1 ? (size_t)(from->n * groups_of(from->k, from->group)) : 0;
    return value_bytes(from->n, from->k, value) + index_bytes(from->n, from->k) +
           scales * sizeof(float);
}

static void pack(void *w, const s24i_weight *from, size_t value)
{
    const int64_t n = from->n, k = from->k;
    char *to = w;
    memcpy(to, from->values, (size_t)n * (size_t)(k / 2) * value);
    to += value_bytes(n, k, value);
    memcpy(to, from->indices, (size_t)n * (size_t)s24i_index_stride(k));
    if (value != 1) return;
    float *scales = (float *)(void *)(to + index_bytes(n, k));
    for (int64_t i = 0; i < n * groups_of(k, from->group); i++)
        scales[i] = from->scales ? from->scales[i] : 1;
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)m, (void)n, (void)k, (void)threads;
    return 0;
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

static float widen_i8(const void *values, int64_t i)
{
    return ((const int8_t *)values)[i];
}

typedef struct reference {
    const s24i_linear_job *job;
    const uint8_t *indices;
    const float *scales; /* NULL: ones */
    widen_fn *widen;
} reference;

/* Stored value i of row n. */
static float stored(const reference *r, int64_t n, int64_t i)
{
    const int64_t k = r->job->k, group = r->job->group;
    const float w = r->widen(r->job->w, n * (k / 2) + i);
    return r->scales ? w * r->scales[n * groups_of(k, group) + 2 * i / group] : w;
}

static float dot(const reference *r, int64_t m, int64_t n)
{
    const s24i_linear_job *job = r->job;
    const int64_t k = job->k, x = m * job->x_stride_m;
    const uint8_t *indices = r->indices + n * s24i_index_stride(k);
    float sum = 0;
    for (int64_t g = 0; g < k / 4; g++) {
        const unsigned code = s24i_code(indices, g);
        const int64_t k0 = 4 * g + (code & 3u), k1 = 4 * g + (code >> 2);
        sum += s24i_load_f32(job->x, job->x_dtype, x + k0 * job->x_stride_k) * stored(r, n, 2 * g);
        sum +=
            s24i_load_f32(job->x, job->x_dtype, x + k1 * job->x_stride_k) * stored(r, n, 2 * g + 1);
    }
    return sum;
}

/* Outputs in row-major order, so that one token's are shared by the threads too. */
static void run_outputs(void *arg, int64_t begin, int64_t end, int thread)
{
    const reference *r = arg;
    const s24i_linear_job *job = r->job;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t m = i / job->n, n = i % job->n;
        s24i_store_f32(job->y, job->y_dtype, m * job->y_stride_m + n * job->y_stride_n,
                       linear_finish(job, m, n, dot(r, m, n)));
    }
}

static void run(const s24i_linear_job *job, size_t value, widen_fn *widen)
{
    const uint8_t *indices = (const uint8_t *)job->w + value_bytes(job->n, job->k, value);
    const void *scales = indices + index_bytes(job->n, job->k);
    reference r = {job, indices, value == 1 ? scales : NULL, widen};
    job->parallel.run(job->parallel.pool, job->m * job->n, run_outputs, &r);
}

#define REFERENCE(name_, DTYPE, bits_, value, widen)                                               \
    static size_t weight_bytes_##name_(const s24i_weight *from)                                    \
    {                                                                                              \
        return all_bytes(from, value);                                                             \
    }                                                                                              \
    static void weight_pack_##name_(void *w, const s24i_weight *from)                              \
    {                                                                                              \
        pack(w, from, value);                                                                      \
    }                                                                                              \
    static void run_##name_(const s24i_linear_job *job)                                            \
    {                                                                                              \
        run(job, value, widen);                                                                    \
    }                                                                                              \
    const s24i_linear_kernel s24i_linear_##name_##_ref = {                                         \
        .name = "linear_" #name_ "_ref",                                                           \
        .dtype = DTYPE,                                                                            \
        .bits = bits_,                                                                             \
        .cpu = S24_CPU_BASELINE,                                                                   \
        .rank = 0,                                                                                 \
        .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,                                                \
        .weight_bytes = weight_bytes_##name_,                                                      \
        .weight_pack = weight_pack_##name_,                                                        \
        .work_bytes = work_bytes,                                                                  \
        .run = run_##name_,                                                                        \
    };

REFERENCE(f32, S24_F32, 0, 4, widen_f32)
REFERENCE(bf16, S24_BF16, 0, 2, widen_bf16)
REFERENCE(f16, S24_F16, 0, 2, widen_f16)
REFERENCE(w8, S24_I8, 8, 1, widen_i8)
REFERENCE(w4, S24_I8, 4, 1, widen_i8)
