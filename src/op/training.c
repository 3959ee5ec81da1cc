// SPDX-License-Identifier: Apache-2.0
/*
 * What a step of training in 2:4 does to weights and gradients, apart from its products: masks
 * applied and compared, decay of what is not kept, the soft threshold.
 */
#include <math.h>
#include <string.h>

#include "op/op.h"

enum { CHUNK = 256 };

typedef struct rows_job {
    const s24_dense *dst, *src;
    const uint8_t *mask;
    uint8_t *kept;
    float factor;
} rows_job;

static s24_status check_same(s24_ctx *ctx, const char *name, const s24_dense *dst,
                             const s24_dense *src)
{
    TRY(s24i_dense_check(ctx, name, dst));
    TRY(s24i_dense_check(ctx, "src", src));
    REQUIRE(ctx, dst->rows == src->rows && dst->cols == src->cols, S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", name,
            dst->rows, dst->cols, src->rows, src->cols);
    return S24_OK;
}

/* ---- masks ----------------------------------------------------------------------------------- */

static inline void apply(void *to, const void *from, const uint8_t *mask, int64_t count,
                         size_t bytes)
{
    static const uint32_t zero = 0;
    for (int64_t i = 0; i < count; i++)
        memmove((char *)to + (size_t)i * bytes,
                mask[i] ? (const char *)from + (size_t)i * bytes : (const char *)&zero, bytes);
}

static void apply_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const int64_t cols = j->src->cols;
    const size_t bytes = s24_dtype_bytes(j->src->dtype);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        void *to = s24i_dense_at(j->dst, r, 0);
        const void *from = s24i_dense_at(j->src, r, 0);
        if (bytes == 4)
            apply(to, from, j->mask + r * cols, cols, 4);
        else if (bytes == 2)
            apply(to, from, j->mask + r * cols, cols, 2);
        else
            apply(to, from, j->mask + r * cols, cols, 1);
    }
}

s24_status s24_mask_apply(s24_ctx *ctx, const s24_dense *dst, const s24_dense *src,
                          const uint8_t *mask)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, mask, S24_ERROR_ARGUMENT, "mask is NULL");
    TRY(check_same(ctx, "dst", dst, src));
    REQUIRE(ctx, s24_dtype_can_be_two_four(src->dtype) && dst->dtype == src->dtype, S24_ERROR_DTYPE,
            "dst is %s and src %s; expected one of f32, f16, bf16, i8, e4m3 and e5m2 for both",
            s24_dtype_name(dst->dtype), s24_dtype_name(src->dtype));
    rows_job j = {.dst = dst, .src = src, .mask = mask};
    s24_ctx_parallel_for(ctx, src->rows, apply_rows, &j);
    return S24_OK;
}

s24_status s24_mask_flips(int64_t *flips, s24_ctx *ctx, const uint8_t *before, const uint8_t *after,
                          int64_t count)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, flips && before && after, S24_ERROR_ARGUMENT, "%s is NULL",
            !flips    ? "flips"
            : !before ? "before"
                      : "after");
    REQUIRE(ctx, count >= 0, S24_ERROR_SHAPE, "count is %" PRId64, count);
    *flips = 0;
    for (int64_t i = 0; i < count; i++)
        *flips += !before[i] != !after[i];
    return S24_OK;
}

/* ---- decay ----------------------------------------------------------------------------------- */

static void decay_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const int64_t cols = j->src->cols;
    float wide[CHUNK];
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols; c += CHUNK) {
            int64_t count = cols - c < CHUNK ? cols - c : CHUNK;
            const uint8_t *mask = j->mask + r * cols + c;
            float *grad = s24i_dense_at(j->dst, r, c);
            s24i_widen(wide, s24i_dense_at(j->src, r, c), j->src->dtype, count);
            for (int64_t i = 0; i < count; i++)
                if (!mask[i]) grad[i] = fmaf(j->factor, wide[i], grad[i]);
        }
}

s24_status s24_masked_decay(s24_ctx *ctx, const s24_dense *grad, const s24_dense *w,
                            const uint8_t *mask, float decay)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, mask, S24_ERROR_ARGUMENT, "mask is NULL");
    TRY(check_same(ctx, "grad", grad, w));
    REQUIRE(ctx, grad->dtype == S24_F32 && s24_dtype_can_be_two_four(w->dtype), S24_ERROR_DTYPE,
            "grad is %s and w %s; expected f32 and one of f32, f16, bf16, i8, e4m3 and e5m2",
            s24_dtype_name(grad->dtype), s24_dtype_name(w->dtype));
    rows_job j = {.dst = grad, .src = w, .mask = mask, .factor = decay};
    s24_ctx_parallel_for(ctx, w->rows, decay_rows, &j);
    return S24_OK;
}

/* ---- the soft threshold ---------------------------------------------------------------------- */

/* The larger of the two smallest magnitudes of a group. */
static float threshold_of(const float w[4])
{
    float a = fabsf(w[0]), b = fabsf(w[1]), c = fabsf(w[2]), d = fabsf(w[3]);
    float first = fmaxf(fminf(a, b), fminf(c, d)), second = fminf(fmaxf(a, b), fmaxf(c, d));
    return fminf(first, second);
}

/* S(w), what is left of a group; what is not above the threshold is +0. */
static void soften(float to[4], const float w[4])
{
    const float threshold = threshold_of(w);
    for (int i = 0; i < 4; i++)
        to[i] = fabsf(w[i]) > threshold ? copysignf(fabsf(w[i]) - threshold, w[i]) : 0.0f;
}

static void soften_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const int64_t cols = j->src->cols;
    float wide[CHUNK];
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols; c += CHUNK) {
            int64_t count = cols - c < CHUNK ? cols - c : CHUNK;
            s24i_widen(wide, s24i_dense_at(j->src, r, c), j->src->dtype, count);
            for (int64_t i = 0; i < count; i += 4) {
                float soft[4];
                soften(soft, wide + i);
                for (int g = 0; g < 4; g++) {
                    if (j->kept) j->kept[r * cols + c + i + g] = soft[g] != 0;
                    wide[i + g] = j->factor * soft[g];
                }
            }
            s24i_narrow(s24i_dense_at(j->dst, r, c), j->dst->dtype, wide, count);
        }
}

static s24_status check_floats(s24_ctx *ctx, const char *name, const s24_dense *dense)
{
    TRY(s24i_dense_check_groups(ctx, name, dense));
    REQUIRE(ctx, dense->dtype != S24_I8, S24_ERROR_DTYPE, "%s is i8; expected a floating dtype",
            name);
    return S24_OK;
}

s24_status s24_soft_threshold(s24_ctx *ctx, const s24_dense *dst, uint8_t *mask,
                              const s24_dense *src, float scale)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_floats(ctx, "src", src));
    TRY(check_floats(ctx, "dst", dst));
    TRY(check_same(ctx, "dst", dst, src));
    rows_job j = {.dst = dst, .src = src, .kept = mask, .factor = scale};
    s24_ctx_parallel_for(ctx, src->rows, soften_rows, &j);
    return S24_OK;
}

s24_status s24_soft_threshold_scale(double *scale, s24_ctx *ctx, const s24_dense *src)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, scale, S24_ERROR_ARGUMENT, "scale is NULL");
    TRY(check_floats(ctx, "src", src));
    double along = 0, square = 0;
    for (int64_t r = 0; r < src->rows; r++)
        for (int64_t c = 0; c < src->cols; c += 4) {
            float w[4], soft[4];
            s24i_widen(w, s24i_dense_at(src, r, c), src->dtype, 4);
            soften(soft, w);
            for (int i = 0; i < 4; i++) {
                along += (double)w[i] * (double)soft[i];
                square += (double)soft[i] * (double)soft[i];
            }
        }
    *scale = square > 0 ? along / square : 1;
    return S24_OK;
}
