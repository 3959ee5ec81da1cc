// SPDX-License-Identifier: Apache-2.0
/*
 * What dense products in 8 bits have besides oneDNN's own of u8 by s8, whose sums are s32: tokens
 * become bytes by the rule of the 2:4 products with int8 activations, 128 above their integers, and
 * sums numbers, piece by piece while they are in cache. What the 128 adds is taken away here, so
 * that a weight has nothing but integers and can be cut by columns.
 */
#include "dense/dense.h"

#if S24_DENSE_ONEDNN
#include <string.h>

#include "dense/dense_onednn.h"
#include "io/file/io.h"

/* The most columns whose sums of bytes by integers stay within 32 bits. */
enum { MOST_COLUMNS = 65536 };

/* Without VNNI oneDNN adds two products in 16 bits, which saturate. */
int s24i_onednn_takes_eight(s24_ctx *ctx, int64_t cols)
{
    onednn dnnl;
    return cols <= MOST_COLUMNS && s24_ctx_cpu(ctx) & S24_CPU_AVX512VNNI &&
           s24i_onednn_open(&dnnl, ctx) == S24_OK && onednn_cpu(&dnnl) & S24_CPU_AVX512VNNI;
}

/* ---- the weight ------------------------------------------------------------------------------ */

typedef struct offsets_job {
    int32_t *offsets;
    const s24_quantized *w;
} offsets_job;

static void fill_offsets(void *arg, int64_t begin, int64_t end, int thread)
{
    const offsets_job *job = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int8_t *row = (const int8_t *)job->w->values + r * job->w->cols;
        int32_t sum = 0;
        for (int64_t c = 0; c < job->w->cols; c++)
            sum += row[c];
        job->offsets[r] = 128 * sum;
    }
}

static s24_status fill(s24i_dense_weight *weight, s24_ctx *ctx, const s24_quantized *w)
{
    const s24_dense rows = {(void *)(uintptr_t)w->values, S24_I8, w->rows, w->cols, w->cols};
    TRY(s24i_alloc_elems(&weight->offsets, ctx, w->rows, sizeof *weight->offsets,
                         "a dense weight"));
    TRY(s24i_alloc_elems(&weight->scales, ctx, w->rows, sizeof *weight->scales, "a dense weight"));
    offsets_job job = {weight->offsets, w};
    s24_ctx_parallel_for(ctx, w->rows, fill_offsets, &job);
    memcpy(weight->scales, w->scales, (size_t)w->rows * sizeof *weight->scales);
    return s24i_onednn_lay_out(weight, ctx, &rows);
}

s24_status s24i_onednn_eight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_quantized *w)
{
    *out = NULL;
    s24i_dense_weight *weight;
    TRY(s24i_onednn_weight_begin(&weight, ctx, w->rows, w->cols, dnnl_s8));
    GIVE(out, weight, s24i_onednn_weight_destroy, fill(weight, ctx, w));
}

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct tokens_job {
    uint8_t *to;
    float *scales;
    const s24_dense *x;
    const s24i_vec *vec;
} tokens_job;

static void quantise_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const tokens_job *job = arg;
    const s24_dense *x = job->x;
    const size_t row = (size_t)s24i_ld(x) * s24_dtype_bytes(x->dtype);
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        job->scales[i] = job->vec->to_bytes(
            job->to + i * x->cols, (const char *)x->data + (size_t)i * row, x->dtype, x->cols);
}

void s24i_onednn_quantise(s24_ctx *ctx, uint8_t *to, float *scales, const s24_dense *x)
{
    tokens_job job = {to, scales, x, s24i_vec_find(s24_ctx_cpu(ctx))};
    s24_ctx_parallel_for(ctx, x->rows, quantise_tokens, &job);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Numbers of a row, which are written over, to y in bf16. */
static void end_narrow(const s24i_dense_job *job, float *row, uint16_t *y, const float *bias,
                       const s24i_onednn_sums *part, const s24i_vec *vec)
{
    enum { SOME = 64 };
    vec->epilogue(row, row, bias, job->activation, 0, part->cols);
    for (int64_t i = 0; job->accumulate && i < part->cols; i += SOME) {
        float before[SOME];
        const int64_t count = s24i_min(SOME, part->cols - i);
        s24_convert(before, S24_F32, y + i, S24_BF16, count);
        vec->add(row + i, row + i, before, count);
    }
    vec->narrow(y, row, part->cols);
}

void s24i_onednn_end(const s24i_dense_job *job, const s24i_onednn_sums *part, const s24i_vec *vec)
{
    const s24i_dense_weight *w = job->weight;
    const float *bias = job->bias ? job->bias + part->col : NULL;
    for (int64_t i = 0; i < part->rows; i++) {
        int32_t *sums = (int32_t *)part->sums + i * part->cols;
        float *row = (float *)part->sums + i * part->cols;
        const int64_t at = (part->row + i) * s24i_ld(job->y) + part->col;
        const s24i_byte_sums from = {sums, w->offsets + part->col, w->scales + part->col,
                                     part->scales[part->row + i]};
        vec->from_sums(row, &from, part->cols);
        if (job->y->dtype == S24_BF16)
            end_narrow(job, row, (uint16_t *)job->y->data + at, bias, part, vec);
        else
            vec->epilogue((float *)job->y->data + at, row, bias, job->activation, job->accumulate,
                          part->cols);
    }
}
#endif
