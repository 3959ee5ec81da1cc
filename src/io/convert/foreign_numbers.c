// SPDX-License-Identifier: Apache-2.0
/*
 * The numbers of a foreign weight: what its scheme reads, and what is made of that. An integer
 * counts as scale · (integer − zero), rounded once to f32, whatever it becomes then.
 */
#include <math.h>
#include <stdatomic.h>
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
    for (int64_t g = 0; g < groups && !x->groups; g++)
        for (int64_t c = g * x->group; c < (g + 1) * x->group; c++)
            row[c] = (row[c] - (float)(x->zeros ? x->zeros[r * groups + g] : 0)) *
                     x->scales[r * groups + g];
    for (int64_t c = 0; c < x->cols && groups && x->groups; c++) {
        const int64_t group = r * groups + x->groups[c];
        row[c] = (row[c] - (float)(x->zeros ? x->zeros[group] : 0)) * x->scales[group];
    }
}

/* A weight's rows on their way to floats: `row` has room for each thread's. */
typedef struct widening {
    const s24i_numbers *numbers;
    float *row;
    char *dense;
    s24_dtype dtype;
    atomic_int status;
    _Atomic int64_t beyond; /* the first element that the dtype does not hold; none: the count */
} widening;

/* Notes the first number of a row that its dtype made infinite; `row` becomes what it has. */
static void look_beyond(widening *w, float *row, const char *dense, int64_t r)
{
    const int64_t cols = w->numbers->cols;
    int64_t least = atomic_load(&w->beyond), c = 0;
    if (w->dtype != S24_F32) (void)s24_convert(row, S24_F32, dense, w->dtype, cols);
    while (c < cols && isfinite(row[c]))
        c++;
    while (c < cols && r * cols + c < least &&
           !atomic_compare_exchange_weak(&w->beyond, &least, r * cols + c))
        ;
}

static void widen_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    widening *w = arg;
    const s24i_numbers *x = w->numbers;
    const size_t row_bytes = (size_t)x->cols * s24_dtype_bytes(w->dtype);
    float *row = w->row + 2 * x->cols * thread;
    for (int64_t r = begin; r < end; r++) {
        s24_status status = spread_row(row, x, r, row + x->cols);
        scale_row(row, x, r);
        if (status == S24_OK)
            status = s24_convert(w->dense + (size_t)r * row_bytes, w->dtype, row, S24_F32, x->cols);
        if (status != S24_OK) atomic_store(&w->status, (int)status);
        if (x->scales) look_beyond(w, row, w->dense + (size_t)r * row_bytes, r);
    }
}

static s24_status check_beyond(widening *w)
{
    const s24i_numbers *x = w->numbers;
    const int64_t at = atomic_load(&w->beyond);
    REQUIRE(x->ctx, at == x->rows * x->cols, S24_ERROR_NOT_FINITE,
            "row %lld, column %lld, times its scale, is beyond %s; expected %s",
            (long long)(at / x->cols), (long long)(at % x->cols), s24_dtype_name(w->dtype),
            w->dtype == S24_F16 ? "a wider dtype" : "a smaller scale");
    return S24_OK;
}

s24_status s24i_numbers_dense(void **out, const s24i_numbers *x, s24_dtype dtype)
{
    s24_status status;
    const int threads = s24_ctx_threads(x->ctx);
    widening w = {.numbers = x, .dtype = dtype};
    atomic_init(&w.status, S24_OK);
    atomic_init(&w.beyond, x->rows * x->cols);
    *out = NULL;
    TRY_DONE(s24i_alloc_elems(&w.dense, x->ctx, x->rows * x->cols, s24_dtype_bytes(dtype),
                              "a weight's numbers"));
    TRY_DONE(
        s24i_alloc_elems(&w.row, x->ctx, 2 * x->cols * threads, sizeof *w.row, "rows of a weight"));
    s24_ctx_parallel_for(x->ctx, x->rows, widen_rows, &w);
    TRY_DONE((s24_status)atomic_load(&w.status));
    TRY_DONE(check_beyond(&w));
    *out = w.dense;
    w.dense = NULL;
done:
    s24_ctx_free(x->ctx, w.row);
    s24_ctx_free(x->ctx, w.dense);
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
