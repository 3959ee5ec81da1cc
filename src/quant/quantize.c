// SPDX-License-Identifier: Apache-2.0
/*
 * Integers and scales for the stored values of a 2:4 matrix, symmetric: w ≈ scale · q. What is not
 * stored stays zero exactly. A group's scale is its largest magnitude over 127 for 8 bits; for 4
 * bits, whose range a few outliers waste, the largest magnitude over the divisor of a short list
 * that leaves the least squared error. A group of zeros has scale 0. Rows are independent, so the
 * bytes do not depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "op/op.h"

typedef struct scheme {
    const char *name;
    int bits;
    int64_t group;
} scheme;

static const scheme schemes[] = {
#define SCHEME(name, bits, group) {name, bits, group},
#include "quant/schemes.def"
#undef SCHEME
};
enum { SCHEMES = sizeof schemes / sizeof *schemes };

const char *s24_scheme_name(int index, int *bits, int64_t *group)
{
    if (index < 0 || index >= SCHEMES) return NULL;
    if (bits) *bits = schemes[index].bits;
    if (group) *group = schemes[index].group;
    return schemes[index].name;
}

/* To the nearest integer, ties to even: 1.5·2^23 has units of one. For |x| below 2^22. */
static inline float nearest(float x)
{
    const float unit = 12582912.0f;
    return (x + unit) - unit;
}

static const float divisors[] = {7, 7.5f, 8, 8.5f, 9, 10, 11, 12, 13, 14, 16};
enum { DIVISORS = sizeof divisors / sizeof *divisors, CHUNK = 512 /* columns at a time */ };

typedef struct job {
    const s24i_storage *from, *to;
} job;

/* The stored values of the next columns of a group, as f32; their number. */
static int64_t next_chunk(float *values, const job *j, int64_t row, int64_t col, int64_t end)
{
    const int64_t cols = end - col < CHUNK ? end - col : CHUNK;
    s24i_storage_widen(values, j->from, row, col, cols);
    return cols / 2;
}

static float largest_of(const job *j, int64_t row, int64_t begin, int64_t end)
{
    float values[CHUNK / 2], largest = 0;
    for (int64_t c = begin; c < end; c += CHUNK) {
        const int64_t count = next_chunk(values, j, row, c, end);
        for (int64_t i = 0; i < count; i++)
            largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    }
    return largest;
}

/* The divisor of `largest` that leaves the least squared error in 4 bits; all relative to it, so
   that no square leaves f32's range. */
static float best_divisor(const job *j, int64_t row, int64_t begin, int64_t end, float largest)
{
    float values[CHUNK / 2];
    double errors[DIVISORS] = {0};
    int best = 0;
    for (int64_t c = begin; c < end; c += CHUNK) {
        const int64_t count = next_chunk(values, j, row, c, end);
        for (int d = 0; d < DIVISORS; d++) {
            float sum = 0;
            for (int64_t i = 0; i < count; i++) {
                float u = values[i] / largest * divisors[d], q = nearest(u);
                q = q < -8 ? -8 : q > 7 ? 7 : q;
                sum += (u - q) * (u - q);
            }
            errors[d] += (double)(sum / (divisors[d] * divisors[d]));
        }
    }
    for (int d = 1; d < DIVISORS; d++)
        best = errors[d] < errors[best] ? d : best;
    return divisors[best];
}

static void quantize_group(const job *j, int64_t row, int64_t begin, int64_t end)
{
    const s24i_storage *to = j->to;
    const float least = to->bits == 8 ? -127 : -8, most = to->bits == 8 ? 127 : 7;
    const float largest = largest_of(j, row, begin, end);
    float divisor = 127, values[CHUNK / 2];
    if (to->bits == 4 && largest > 0) divisor = best_divisor(j, row, begin, end, largest);
    const float scale = largest / divisor; /* 0 for the smallest subnormals too */
    to->scales[row * s24i_scales_stride(to) + begin / to->group] = scale;
    for (int64_t c = begin; c < end; c += CHUNK) {
        const int64_t count = next_chunk(values, j, row, c, end);
        int8_t *q = s24i_values_at(to, row, c);
        for (int64_t i = 0; i < count; i++) {
            float u = scale > 0 ? nearest(values[i] / scale) : 0;
            q[i] = (int8_t)(u < least ? least : u > most ? most : u);
        }
    }
}

static void quantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const int64_t cols = j->to->cols, group = j->to->group;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols; c += group)
            quantize_group(j, r, c, cols - c < group ? cols : c + group);
}

static s24_status check(s24_ctx *ctx, const s24_matrix *src, const scheme *found, const char *name)
{
    int64_t row, col;
    REQUIRE(ctx, src, S24_ERROR_ARGUMENT, "src is NULL; expected a matrix");
    REQUIRE(ctx, found, S24_ERROR_ARGUMENT,
            "there is no quantisation scheme named \"%s\"; s24_scheme_name lists them", name);
    REQUIRE(ctx, !src->transposed, S24_ERROR_SHAPE,
            "src is a transposed view; expected the matrix itself");
    REQUIRE(ctx, src->storage->bits == 0, S24_ERROR_DTYPE,
            "src holds integers already; expected f32, f16, bf16, e4m3 or e5m2");
    if (!s24i_storage_nonfinite(ctx, src->storage, &row, &col)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_NOT_FINITE,
                        "src is NaN or Inf at row %" PRId64 ", column %" PRId64 " (group %" PRId64
                        "); expected finite values",
                        row, col, col / 4);
}

s24_status s24_matrix_quantize(s24_matrix **out, s24_ctx *ctx, const s24_matrix *src,
                               const char *scheme_name)
{
    const scheme *found = NULL;
    s24_matrix *matrix;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    const char *name = scheme_name ? scheme_name : schemes[0].name;
    for (int i = 0; i < SCHEMES; i++)
        if (strcmp(schemes[i].name, name) == 0) found = &schemes[i];
    TRY(check(ctx, src, found, name));
    const s24i_storage *from = src->storage;
    const int64_t group = found->group ? found->group : from->cols;
    TRY(s24i_matrix_new_scaled(&matrix, ctx, found->bits, group, from->rows, from->cols));
    job j = {from, matrix->storage};
    memcpy(matrix->storage->indices, from->indices, from->index_bytes);
    s24_ctx_parallel_for(ctx, from->rows, quantize_rows, &j);
    *out = matrix;
    return S24_OK;
}
