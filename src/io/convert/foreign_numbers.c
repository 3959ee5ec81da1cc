// SPDX-License-Identifier: Apache-2.0
/* The numbers of a foreign weight: what its scheme reads, and what is 2:4 of that. */
#include <string.h>

#include "io/convert/convert.h"

static s24_status count_bytes(size_t *out, const s24i_numbers *numbers, int64_t count, size_t size)
{
    int64_t bytes;
    REQUIRE(numbers->ctx, !__builtin_mul_overflow(count, (int64_t)size, &bytes), S24_ERROR_MEMORY,
            "a weight has more than 2^63 bytes");
    *out = (size_t)(bytes ? bytes : 1);
    return S24_OK;
}

s24_status s24i_numbers_room(void *out, s24i_numbers *numbers, int slot, int64_t count, size_t size)
{
    size_t bytes = 0;
    TRY(count_bytes(&bytes, numbers, count, size));
    TRY(s24i_alloc_elems(&numbers->owned[slot], numbers->ctx, (int64_t)bytes, 1,
                         "a weight's numbers"));
    memcpy(out, &numbers->owned[slot], sizeof(void *));
    return S24_OK;
}

s24_status s24i_numbers_own(void *out, s24i_numbers *numbers, int slot, int64_t count, size_t size)
{
    size_t bytes = 0;
    TRY(count_bytes(&bytes, numbers, count, size));
    TRY(s24i_zeroed(&numbers->owned[slot], numbers->ctx, bytes));
    memcpy(out, &numbers->owned[slot], sizeof(void *));
    return S24_OK;
}

void s24i_numbers_free(s24i_numbers *numbers)
{
    for (size_t i = 0; i < sizeof numbers->owned / sizeof *numbers->owned; i++)
        s24_ctx_free(numbers->ctx, numbers->owned[i]);
}

s24_status s24i_numbers_read(s24i_numbers *out, const s24i_foreign *weight)
{
    const s24_tensor *tensor = weight->part[0];
    *out = (s24i_numbers){.ctx = weight->ctx,
                          .rows = weight->rows,
                          .cols = weight->cols,
                          .bits = weight->bits,
                          .group = weight->group,
                          .from = weight,
                          .unit = 1,
                          .dtype = tensor->dtype};
    if (weight->scheme) return weight->scheme->read(out, weight);
    if (!tensor->packed) {
        out->values = tensor->data;
        return S24_OK;
    }
    void *values = NULL;
    out->dtype = tensor->bits ? S24_F32 : tensor->dtype;
    out->bits = 0;
    TRY(s24i_numbers_own(&values, out, 0, out->rows * out->cols, s24_dtype_bytes(out->dtype)));
    out->values = values;
    const s24_dense dense = {values, out->dtype, out->rows, out->cols, 0};
    return s24i_name_tensor(weight->ctx, s24_tensor_to_dense(weight->ctx, &dense, tensor), tensor);
}

s24_status s24i_numbers_scales(s24i_numbers *out, const s24i_foreign *weight,
                               const s24_tensor *part)
{
    float *scales = NULL;
    const int64_t count = out->rows * (out->cols / out->group);
    const int64_t given = (int64_t)(part->bytes / s24_dtype_bytes(part->dtype));
    TRY(s24i_numbers_own(&scales, out, 1, count, sizeof *scales));
    for (int64_t i = 0; i < (given == 1 ? count : 1); i++)
        TRY(s24_convert(scales + i, S24_F32, part->data, part->dtype, given == 1 ? 1 : count));
    out->scales = scales;
    const s24_quantized of = {.rows = out->rows, .cols = out->cols, .group = out->group};
    return s24i_check_scales(weight->ctx, weight->path, part->name, scales, &of);
}

/* ---- in another order ------------------------------------------------------------------------ */

/* Scales on their way from [groups, n]. */
typedef struct turning_scales {
    const s24_tensor *part;
    float *to;
    int64_t rows;
    const int *order;
} turning_scales;

/* Blocks of rows, whose places in `to` L1 holds while all groups are gone through. */
static void turn_scales(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning_scales *t = arg;
    const int64_t groups = t->part->shape[0], n = t->part->shape[1];
    const int64_t size = (int64_t)s24_dtype_bytes(t->part->dtype);
    float near[S24I_SQUARE];
    (void)thread;
    for (int64_t block = begin; block < end; block++) {
        const int64_t from = block * S24I_SQUARE, count = s24i_min(S24I_SQUARE, t->rows - from);
        float *to = t->to + from * groups;
        for (int64_t g = 0; g < groups; g++) {
            (void)s24_convert(near, S24_F32, (const char *)t->part->data + (g * n + from) * size,
                              t->part->dtype, count);
            for (int64_t i = 0; i < count; i++)
                to[(t->order ? i / 8 * 8 + t->order[i % 8] : i) * groups + g] = near[i];
        }
    }
}

s24_status s24i_numbers_turned_scales(s24i_numbers *out, const s24i_foreign *w,
                                      const s24_tensor *part, const int order[8])
{
    turning_scales t = {.part = part, .rows = out->rows, .order = order};
    TRY(s24i_numbers_room(&t.to, out, 1, out->rows * part->shape[0], sizeof *t.to));
    s24_ctx_parallel_for(w->ctx, (out->rows + S24I_SQUARE - 1) / S24I_SQUARE, turn_scales, &t);
    out->scales = t.to;
    const s24_quantized of = {.rows = out->rows, .cols = out->cols, .group = out->group};
    return s24i_check_scales(w->ctx, w->path, part->name, t.to, &of);
}

void s24i_square_put(uint8_t *to, int64_t stride, const s24i_square *square, int64_t rows,
                     int64_t bytes)
{
    for (int64_t r = 0; r < rows && bytes == S24I_SQUARE; r++)
        memcpy(to + r * stride, square->row[r], S24I_SQUARE);
    for (int64_t r = 0; r < rows && bytes < S24I_SQUARE; r++)
        memcpy(to + r * stride, square->row[r], (size_t)bytes);
}

/* A weight's values and indices on their way to where they all are. */
typedef struct turning {
    const s24i_numbers *numbers;
    uint8_t *values, *indices;
} turning;

static void turn_units(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    const s24i_numbers *x = t->numbers;
    const int64_t first = begin * x->unit;
    (void)thread;
    x->turn(t->values + first * s24i_numbers_row_bytes(x),
            t->indices + first * s24i_numbers_index_bytes(x), x, begin, end);
}

s24_status s24i_numbers_turn(s24i_numbers *x)
{
    turning t = {.numbers = x};
    if (!x->turn) return S24_OK;
    TRY(s24i_numbers_room(&t.values, x, 0, x->rows * s24i_numbers_row_bytes(x), 1));
    TRY(s24i_numbers_room(&t.indices, x, 4, x->rows * s24i_numbers_index_bytes(x), 1));
    s24_ctx_parallel_for(x->ctx, s24i_numbers_units(x, x->rows), turn_units, &t);
    x->values = t.values;
    if (x->is_two_four) x->indices = t.indices;
    x->turn = NULL;
    x->unit = 1;
    return S24_OK;
}

/* ---- 2:4 ------------------------------------------------------------------------------------- */

/* Elements that are not zero of a group of four of this many bytes each, whose signs `mask` leaves
   out: −0 is zero. */
static int kept(const uint8_t *group, size_t size, uint8_t mask)
{
    int count = 0;
    for (size_t i = 0; i < 4; i++) {
        uint8_t any = group[i * size + size - 1] & mask;
        for (size_t b = 0; b + 1 < size; b++)
            any |= group[i * size + b];
        count += any != 0;
    }
    return count;
}

/* The same of integers. */
static int kept_integers(const uint8_t *group, int bits, uint8_t flip)
{
    const uint8_t mask = bits == 4 ? 15 : 255;
    int count = 0;
    for (int i = 0; i < 4; i++)
        count += ((group[i * bits / 8] ^ flip) >> i * bits % 8 & mask) != 0;
    return count;
}

static int row_is_two_four(const s24i_numbers *x, const uint8_t *row)
{
    const size_t size = s24_dtype_bytes(x->dtype), step = x->bits ? (size_t)x->bits / 2 : 4 * size;
    const uint8_t mask = x->dtype == S24_I8 ? 0xff : 0x7f;
    for (int64_t g = 0; g < x->cols / 4; g++) {
        const uint8_t *group = row + (size_t)g * step;
        if ((x->bits ? kept_integers(group, x->bits, x->flip) : kept(group, size, mask)) > 2)
            return 0;
    }
    return 1;
}

int s24i_numbers_are_two_four(const s24i_numbers *x)
{
    if (x->indices) return 1;
    if (x->cols % 4 || !x->rows || !x->cols || x->zeros) return 0;
    for (int64_t r = 0; r < x->rows; r++)
        if (!row_is_two_four(x, s24i_numbers_row(x, r))) return 0;
    return 1;
}

int s24i_numbers_are_integers(const s24i_numbers *x)
{
    const int has_group = x->group == 64 || x->group == 128 || x->group == x->cols;
    return x->bits && x->scales && has_group && !x->zeros && !x->groups && x->cols % 4 == 0;
}

/* Integers on their way to a byte each. */
typedef struct spreading {
    const s24i_numbers *numbers;
    int8_t *to;
} spreading;

static void spread_integers(void *arg, int64_t begin, int64_t end, int thread)
{
    const spreading *s = arg;
    const s24i_numbers *x = s->numbers;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const uint8_t *row = s24i_numbers_row(x, r);
        int8_t *to = s->to + r * x->cols;
        for (int64_t c = 0; c < x->cols && x->bits == 8; c++)
            to[c] = (int8_t)(row[c] ^ x->flip);
        for (int64_t c = 0; c < x->cols && x->bits == 4; c++)
            to[c] = (int8_t)((int8_t)((row[c / 2] ^ x->flip) << 4 * (1 - c % 2)) >> 4);
    }
}

/* The 2:4 matrix of integers, all of which are there. */
static s24_status matrix_of_integers(s24_matrix **out, const s24i_numbers *x)
{
    spreading s = {.numbers = x};
    TRY(s24i_alloc_elems(&s.to, x->ctx, x->rows * x->cols, 1, "a weight's integers"));
    s24_ctx_parallel_for(x->ctx, x->rows, spread_integers, &s);
    const s24_dense dense = {s.to, S24_I8, x->rows, x->cols, 0};
    const s24_status status = s24_matrix_create(out, x->ctx, &dense, NULL);
    s24_ctx_free(x->ctx, s.to);
    return status;
}

s24_status s24i_numbers_matrix(s24_matrix **out, const s24i_numbers *x, s24_dtype dtype,
                               int is_scaled)
{
    const int is_as_stored = !is_scaled || (!x->scales && dtype == x->dtype);
    s24_dense dense = {(void *)x->values, x->dtype, x->rows, x->cols, 0};
    void *scaled = NULL;
    if (x->indices && is_as_stored)
        return s24_matrix_from_packed(out, x->ctx, x->values, x->indices, x->dtype, x->rows,
                                      x->cols);
    if (x->bits && is_as_stored) return matrix_of_integers(out, x);
    if (!is_as_stored) {
        TRY(s24i_numbers_dense(&scaled, x, dtype));
        dense.data = scaled;
        dense.dtype = dtype;
    }
    const s24_status status = s24_matrix_create(out, x->ctx, &dense, NULL);
    s24_ctx_free(x->ctx, scaled);
    return status;
}
