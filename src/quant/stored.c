// SPDX-License-Identifier: Apache-2.0
/* Quantised matrices from and to the form of docs/format.md, section 3: integers of 4 bits two a
   byte. */
#include <string.h>

#include "op/op.h"

/* Columns of a byte's two integers are in k order, the first in the low half. */
static void widen_nibbles(int8_t *to, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[2 * i] = (int8_t)(((from[i] & 15) ^ 8) - 8);
        to[2 * i + 1] = (int8_t)(((from[i] >> 4) ^ 8) - 8);
    }
}

/* dense: there are no indices. */
static s24_status check(s24_ctx *ctx, const s24_quantized *from, int dense)
{
    REQUIRE(ctx, from, S24_ERROR_ARGUMENT, "from is NULL; expected a quantised matrix");
    REQUIRE(ctx, from->values && (from->indices || dense) && from->scales, S24_ERROR_ARGUMENT,
            "%s is NULL",
            !from->values              ? "values"
            : !from->indices && !dense ? "indices"
                                       : "scales");
    REQUIRE(ctx, !from->indices || !dense, S24_ERROR_ARGUMENT,
            "from has indices; expected a dense matrix, s24_matrix_from_quantized takes 2:4 ones");
    REQUIRE(ctx, from->bits == 8 || from->bits == 4, S24_ERROR_DTYPE,
            "integers of %d bits; expected 8 or 4", from->bits);
    REQUIRE(ctx, from->rows > 0 && from->cols > 0 && from->cols % 4 == 0, S24_ERROR_SHAPE,
            "a packed matrix of [%" PRId64 ", %" PRId64
            "]; expected at least one row and a multiple of 4 columns",
            from->rows, from->cols);
    REQUIRE(ctx, from->group == 64 || from->group == 128 || from->group == from->cols,
            S24_ERROR_SHAPE,
            "a scale for %" PRId64 " columns; expected 64, 128 or the whole row, %" PRId64,
            from->group, from->cols);
    return S24_OK;
}

/* The copies are checked, not the source: the caller's memory may be a file that changes. */
static s24_status check_copies(s24_ctx *ctx, const s24i_storage *s)
{
    return s24i_check_integers(ctx, &(s24_quantized){.rows = s->rows,
                                                     .cols = s->cols,
                                                     .group = s->group,
                                                     .indices = s->indices,
                                                     .scales = s->scales});
}

s24_status s24_matrix_from_quantized(s24_matrix **out, s24_ctx *ctx, const s24_quantized *from)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(check(ctx, from, 0));
    TRY(s24i_matrix_new_scaled(out, ctx, from->bits, from->group, from->rows, from->cols));
    s24i_storage *s = (*out)->storage;
    memcpy(s->indices, from->indices, s->index_bytes);
    memcpy(s->scales, from->scales, s->scale_bytes);
    const s24_status status = check_copies(ctx, s);
    if (status != S24_OK) {
        s24_matrix_destroy(*out);
        *out = NULL;
        return status;
    }
    if (from->bits == 8)
        memcpy(s->values, from->values, s->value_bytes);
    else
        widen_nibbles(s->values, from->values, s->value_bytes / 2);
    return S24_OK;
}

s24_status s24_matrix_to_quantized(void *values, s24_ctx *ctx, const s24_matrix *src)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, values && src, S24_ERROR_ARGUMENT, "%s is NULL", values ? "src" : "values");
    const s24i_storage *s = src->storage;
    REQUIRE(ctx, s->scales, S24_ERROR_DTYPE,
            "src is not quantised; s24_matrix_quantize makes it so");
    if (s->bits == 8) {
        memcpy(values, s->values, s->value_bytes);
        return S24_OK;
    }
    const int8_t *from = s->values;
    uint8_t *to = values;
    for (size_t i = 0; i < s->value_bytes / 2; i++)
        to[i] = (uint8_t)((from[2 * i] & 15) | (from[2 * i + 1] & 15) << 4);
    return S24_OK;
}

/* ---- dense ----------------------------------------------------------------------------------- */

typedef struct widen_job {
    const s24_dense *to;
    const s24_quantized *from;
} widen_job;

static void widen_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { CHUNK = 256 }; /* columns, of a group or some */
    const widen_job *j = arg;
    const s24_quantized *from = j->from;
    const int64_t cols = from->cols, group = from->group, groups = (cols + group - 1) / group;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols;) {
            const int64_t left = group - c % group, at = r * cols + c;
            const int64_t most = cols - c < left ? cols - c : left;
            const int64_t count = most < CHUNK ? most : CHUNK;
            const float scale = from->scales[r * groups + c / group];
            int8_t q[CHUNK];
            float wide[CHUNK];
            if (from->bits == 4)
                widen_nibbles(q, (const uint8_t *)from->values + at / 2, (size_t)count / 2);
            else
                memcpy(q, (const int8_t *)from->values + at, (size_t)count);
            for (int64_t i = 0; i < count; i++)
                wide[i] = scale * (float)q[i];
            s24i_narrow(s24i_dense_at(j->to, r, c), j->to->dtype, wide, count);
            c += count;
        }
}

s24_status s24_dense_from_quantized(s24_ctx *ctx, const s24_dense *dst, const s24_quantized *from)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check(ctx, from, 1));
    TRY(s24i_dense_check_groups(ctx, "dst", dst));
    REQUIRE(ctx, dst->rows == from->rows && dst->cols == from->cols, S24_ERROR_SHAPE,
            "dst is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", dst->rows,
            dst->cols, from->rows, from->cols);
    widen_job j = {dst, from};
    s24_ctx_parallel_for(ctx, dst->rows, widen_rows, &j);
    return S24_OK;
}
