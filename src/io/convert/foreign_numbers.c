// SPDX-License-Identifier: Apache-2.0
/*
 * The numbers of a foreign weight: what its scheme reads, and what is made of that. An integer
 * counts as scale · (integer − zero), rounded once to f32, whatever it becomes then.
 */
#include <math.h>
#include <string.h>

#include "io/convert/convert.h"

s24_status s24i_numbers_own(void *out, s24i_numbers *numbers, int slot, int64_t count, size_t size)
{
    int64_t bytes;
    REQUIRE(numbers->ctx, !__builtin_mul_overflow(count, (int64_t)size, &bytes), S24_ERROR_MEMORY,
            "a weight has more than 2^63 bytes");
    TRY(s24i_zeroed(&numbers->owned[slot], numbers->ctx, (size_t)(bytes ? bytes : 1)));
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

/* A row's stored elements, f32, 2:4 ones spread out. `packed` has room for half of a row. */
static s24_status spread_row(float *row, const s24i_numbers *x, int64_t r, float *packed)
{
    const size_t size = s24_dtype_bytes(x->dtype);
    const int64_t half = x->cols / 2, stride = (x->cols + 7) / 8;
    const char *values = x->values;
    if (!x->indices)
        return s24_convert(row, S24_F32, values + (size_t)(r * x->cols) * size, x->dtype, x->cols);
    TRY(s24_convert(packed, S24_F32, values + (size_t)(r * half) * size, x->dtype, half));
    memset(row, 0, (size_t)x->cols * sizeof *row);
    for (int64_t g = 0; g < x->cols / 4; g++) {
        const int code = x->indices[r * stride + g / 2] >> 4 * (g % 2) & 15;
        row[4 * g + (code & 3)] = packed[2 * g];
        row[4 * g + (code >> 2)] = packed[2 * g + 1];
    }
    return S24_OK;
}

static void scale_row(float *row, const s24i_numbers *x, int64_t r)
{
    const int64_t groups = x->group ? x->cols / x->group : 0;
    for (int64_t c = 0; c < x->cols && groups; c++) {
        const int64_t group = r * groups + (x->groups ? x->groups[c] : c / x->group);
        row[c] = (row[c] - (float)(x->zeros ? x->zeros[group] : 0)) * x->scales[group];
    }
}

s24_status s24i_numbers_dense(void **out, const s24i_numbers *x, s24_dtype dtype)
{
    s24_status status;
    const size_t size = s24_dtype_bytes(dtype);
    float *row = NULL;
    char *dense = NULL;
    *out = NULL;
    TRY_DONE(s24i_alloc_elems(&dense, x->ctx, x->rows * x->cols, size, "a weight's numbers"));
    TRY_DONE(s24i_alloc_elems(&row, x->ctx, 2 * x->cols, sizeof *row, "a row of a weight"));
    for (int64_t r = 0; r < x->rows; r++) {
        TRY_DONE(spread_row(row, x, r, row + x->cols));
        scale_row(row, x, r);
        TRY_DONE(s24_convert(dense + (size_t)(r * x->cols) * size, dtype, row, S24_F32, x->cols));
    }
    *out = dense;
    dense = NULL;
done:
    s24_ctx_free(x->ctx, row);
    s24_ctx_free(x->ctx, dense);
    return status;
}

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

int s24i_numbers_are_two_four(const s24i_numbers *x)
{
    const size_t size = s24_dtype_bytes(x->dtype);
    const uint8_t *values = x->values, mask = x->dtype == S24_I8 ? 0xff : 0x7f;
    if (x->indices) return 1;
    if (x->cols % 4 || !x->rows || !x->cols || x->zeros) return 0;
    for (int64_t g = 0; g < x->rows * x->cols / 4; g++)
        if (kept(values + (size_t)g * 4 * size, size, mask) > 2) return 0;
    return 1;
}

int s24i_numbers_are_integers(const s24i_numbers *x)
{
    const int has_group = x->group == 64 || x->group == 128 || x->group == x->cols;
    return x->bits && x->scales && has_group && !x->zeros && !x->groups && x->cols % 4 == 0;
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
    if (!is_as_stored) {
        TRY(s24i_numbers_dense(&scaled, x, dtype));
        dense.data = scaled;
        dense.dtype = dtype;
    }
    const s24_status status = s24_matrix_create(out, x->ctx, &dense, NULL);
    s24_ctx_free(x->ctx, scaled);
    return status;
}
