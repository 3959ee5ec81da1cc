// SPDX-License-Identifier: Apache-2.0
/*
 * Integers and scales for the stored values of a 2:4 matrix or for all of a dense one, symmetric:
 * w ≈ scale · q. What is not stored stays zero exactly. A group's scale is its largest magnitude
 * over 127 for 8 bits; for 4 bits, whose range a few outliers waste, the largest magnitude over the
 * divisor of a short list that leaves the least squared error. A group of zeros has scale 0. Rows
 * are independent, so the bytes do not depend on the number of threads.
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
enum { DIVISORS = sizeof divisors / sizeof *divisors, CHUNK = 256 /* values at a time */ };

typedef struct job {
    const s24i_storage *kept; /* NULL: */
    const s24_dense *dense;
    int64_t spread; /* columns of a value: 2 where half of them are kept, else 1 */
    int64_t cols, group;
    int bits, nibbles; /* nibbles: integers of 4 bits leave two a byte */
    int8_t *values;    /* [rows, cols / spread] */
    float *scales;
} job;

/* The values of the next columns of a group, as f32; their number. */
static int64_t next_chunk(float *values, const job *j, int64_t row, int64_t col, int64_t end)
{
    const int64_t most = CHUNK * j->spread, cols = end - col < most ? end - col : most;
    if (j->kept)
        s24i_storage_widen(values, j->kept, row, col, cols);
    else
        s24i_widen(values, s24i_dense_at(j->dense, row, col), j->dense->dtype, cols);
    return cols / j->spread;
}

static float largest_of(const job *j, int64_t row, int64_t begin, int64_t end)
{
    float values[CHUNK], largest = 0;
    for (int64_t c = begin; c < end; c += CHUNK * j->spread) {
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
    float values[CHUNK];
    double errors[DIVISORS] = {0};
    int best = 0;
    for (int64_t c = begin; c < end; c += CHUNK * j->spread) {
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

/* A group begins at an even column, and so does every chunk of it. */
static void store(const job *j, int64_t row, int64_t col, const int8_t *q, int64_t count)
{
    const int64_t at = (row * j->cols + col) / j->spread;
    if (!j->nibbles) {
        memcpy(j->values + at, q, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i += 2)
        j->values[(at + i) / 2] = (int8_t)((q[i] & 15) | (q[i + 1] & 15) << 4);
}

static void quantize_group(const job *j, int64_t row, int64_t begin, int64_t end)
{
    const float least = j->bits == 8 ? -127 : -8, most = j->bits == 8 ? 127 : 7;
    const float largest = largest_of(j, row, begin, end);
    float divisor = 127, values[CHUNK];
    if (j->bits == 4 && largest > 0) divisor = best_divisor(j, row, begin, end, largest);
    const float scale = largest / divisor; /* 0 for the smallest subnormals too */
    j->scales[row * ((j->cols + j->group - 1) / j->group) + begin / j->group] = scale;
    for (int64_t c = begin; c < end; c += CHUNK * j->spread) {
        const int64_t count = next_chunk(values, j, row, c, end);
        int8_t q[CHUNK];
        for (int64_t i = 0; i < count; i++) {
            float u = scale > 0 ? nearest(values[i] / scale) : 0;
            q[i] = (int8_t)(u < least ? least : u > most ? most : u);
        }
        store(j, row, c, q, count);
    }
}

static void quantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const int64_t cols = j->cols, group = j->group;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols; c += group)
            quantize_group(j, r, c, cols - c < group ? cols : c + group);
}

static s24_status find_scheme(const scheme **found, s24_ctx *ctx, const char *name)
{
    *found = name ? NULL : &schemes[0];
    for (int i = 0; name && i < SCHEMES; i++)
        if (strcmp(schemes[i].name, name) == 0) *found = &schemes[i];
    REQUIRE(ctx, *found, S24_ERROR_ARGUMENT,
            "there is no quantisation scheme named \"%s\"; s24_scheme_name lists them", name);
    return S24_OK;
}

static s24_status check(s24_ctx *ctx, const s24_matrix *src)
{
    int64_t row, col;
    REQUIRE(ctx, src, S24_ERROR_ARGUMENT, "src is NULL; expected a matrix");
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
    const scheme *found;
    s24_matrix *matrix;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(find_scheme(&found, ctx, scheme_name));
    TRY(check(ctx, src));
    const s24i_storage *from = src->storage;
    const int64_t group = found->group ? found->group : from->cols;
    TRY(s24i_matrix_new_scaled(&matrix, ctx, found->bits, group, from->rows, from->cols));
    job j = {.kept = from,
             .spread = 2,
             .cols = from->cols,
             .group = group,
             .bits = found->bits,
             .values = matrix->storage->values,
             .scales = matrix->storage->scales};
    memcpy(matrix->storage->indices, from->indices, from->index_bytes);
    s24_ctx_parallel_for(ctx, from->rows, quantize_rows, &j);
    *out = matrix;
    return S24_OK;
}

s24_status s24_dense_quantize(void *values, float *scales, s24_ctx *ctx, const s24_dense *src,
                              const char *scheme_name)
{
    const scheme *found;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, values && scales, S24_ERROR_ARGUMENT, "%s is NULL", values ? "scales" : "values");
    TRY(find_scheme(&found, ctx, scheme_name));
    TRY(s24i_dense_check_groups(ctx, "src", src));
    REQUIRE(ctx, src->dtype != S24_I8, S24_ERROR_DTYPE,
            "src holds integers already; expected f32, f16, bf16, e4m3 or e5m2");
    TRY(s24i_require_finite(ctx, "src", src));
    job j = {.dense = src,
             .spread = 1,
             .cols = src->cols,
             .group = found->group ? found->group : src->cols,
             .bits = found->bits,
             .nibbles = found->bits == 4,
             .values = values,
             .scales = scales};
    s24_ctx_parallel_for(ctx, src->rows, quantize_rows, &j);
    return S24_OK;
}
