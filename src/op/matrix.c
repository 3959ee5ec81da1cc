// SPDX-License-Identifier: Apache-2.0
/*
 * The life of a 2:4 matrix: storage with an atomic reference count, so that views and their source
 * may be destroyed in any order and on any thread.
 */
#include <string.h>

#include "op/op.h"

enum { ALIGNMENT = 64 };

/* Offsets of values, indices and scales in a storage's block, and its size; 1 on overflow. */
static int layout(s24i_storage *s, size_t offsets[3], size_t *total)
{
    size_t count, rows = (size_t)s->rows;
    offsets[0] = (sizeof *s + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (s24i_mul_overflow(rows, (size_t)s->cols / 2, &count) ||
        s24i_mul_overflow(count, s24_dtype_bytes(s->dtype), &s->value_bytes) ||
        s24i_mul_overflow(rows, (size_t)s24i_index_stride(s->cols), &s->index_bytes) ||
        s24i_mul_overflow(rows, (size_t)s24i_scales_stride(s) * sizeof *s->scales,
                          &s->scale_bytes) ||
        s->value_bytes > PTRDIFF_MAX / 4 || s->index_bytes > PTRDIFF_MAX / 4 ||
        s->scale_bytes > PTRDIFF_MAX / 4)
        return 1;
    offsets[1] = offsets[0] + ((s->value_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
    offsets[2] = offsets[1] + ((s->index_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
    *total = s->group ? offsets[2] + s->scale_bytes : offsets[1] + s->index_bytes;
    return 0;
}

static s24_status wrap(s24_matrix **out, s24_ctx *ctx, s24i_storage *storage, int transposed)
{
    s24_matrix *matrix = s24i_alloc(&storage->allocator, sizeof *matrix);
    REQUIRE(ctx, matrix, S24_ERROR_MEMORY, "out of memory for a matrix's handle");
    *matrix = (s24_matrix){storage, transposed};
    *out = matrix;
    return S24_OK;
}

static s24_status storage_new(s24_matrix **out, s24_ctx *ctx, s24i_storage plain)
{
    const int64_t rows = plain.rows, cols = plain.cols;
    size_t offsets[3], total = 0;
    plain.allocator = ctx->allocator;
    REQUIRE(ctx, !layout(&plain, offsets, &total), S24_ERROR_SHAPE,
            "a matrix of [%" PRId64 ", %" PRId64 "] has more bytes than memory can have", rows,
            cols);
    s24i_storage *storage = s24i_alloc(&ctx->allocator, total);
    REQUIRE(ctx, storage, S24_ERROR_MEMORY,
            "out of memory: %zu bytes for a 2:4 matrix of [%" PRId64 ", %" PRId64 "]", total, rows,
            cols);
    *storage = plain;
    storage->values = (char *)storage + offsets[0];
    storage->indices = (uint8_t *)storage + offsets[1];
    if (plain.group) storage->scales = (float *)(void *)((char *)storage + offsets[2]);
    atomic_init(&storage->references, 1);
    atomic_init(&storage->plans, NULL);
    s24_status status = wrap(out, ctx, storage, 0);
    if (status != S24_OK) s24i_free(&ctx->allocator, storage);
    return status;
}

s24_status s24i_matrix_new(s24_matrix **out, s24_ctx *ctx, s24_dtype dtype, int64_t rows,
                           int64_t cols)
{
    s24i_storage plain = {.dtype = dtype, .rows = rows, .cols = cols};
    plain.bits = dtype == S24_I8 ? 8 : 0;
    return storage_new(out, ctx, plain);
}

s24_status s24i_matrix_new_scaled(s24_matrix **out, s24_ctx *ctx, int bits, int64_t group,
                                  int64_t rows, int64_t cols)
{
    s24i_storage plain = {.dtype = S24_I8, .rows = rows, .cols = cols};
    plain.bits = bits;
    plain.group = group;
    return storage_new(out, ctx, plain);
}

s24_status s24_matrix_from_packed(s24_matrix **out, s24_ctx *ctx, const void *values,
                                  const uint8_t *indices, s24_dtype dtype, int64_t rows,
                                  int64_t cols)
{
    s24i_find find;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, values && indices, S24_ERROR_ARGUMENT, "%s is NULL",
            values ? "indices" : "values");
    REQUIRE(ctx, s24_dtype_can_be_two_four(dtype), S24_ERROR_DTYPE,
            "packed values of dtype %s; expected f32, f16, bf16, i8, e4m3 or e5m2",
            s24_dtype_name(dtype));
    REQUIRE(ctx, rows > 0 && cols > 0 && cols % 4 == 0, S24_ERROR_SHAPE,
            "a packed matrix of [%" PRId64 ", %" PRId64
            "]; expected at least one row and a multiple of 4 columns",
            rows, cols);
    TRY(s24i_matrix_new(out, ctx, dtype, rows, cols));
    s24i_storage *s = (*out)->storage;
    memcpy(s->indices, indices, s->index_bytes);
    /* The copy is checked, not the source: the caller's memory may be a file that changes. */
    if (!s24i_codes_are_legal(s->indices, rows, cols, &find)) {
        s24_matrix_destroy(*out);
        *out = NULL;
        return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                            "the indices of row %" PRId64 ", column %" PRId64 " (group %" PRId64
                            ") are not a legal 2:4 code",
                            find.row, find.col, find.col / 4);
    }
    memcpy(s->values, values, s->value_bytes);
    return S24_OK;
}

s24_status s24_matrix_copy(s24_matrix **out, s24_ctx *ctx, const s24_matrix *src)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, src, S24_ERROR_ARGUMENT, "src is NULL; expected a matrix");
    const s24i_storage *from = src->storage;
    s24i_storage plain = {.dtype = from->dtype, .rows = from->rows, .cols = from->cols};
    plain.bits = from->bits;
    plain.group = from->group;
    TRY(storage_new(out, ctx, plain));
    s24i_storage *to = (*out)->storage;
    memcpy(to->values, from->values, from->value_bytes);
    memcpy(to->indices, from->indices, from->index_bytes);
    if (from->scales) memcpy(to->scales, from->scales, from->scale_bytes);
    (*out)->transposed = src->transposed;
    return S24_OK;
}

s24_status s24_matrix_transpose(s24_matrix **out, s24_ctx *ctx, const s24_matrix *src)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, src, S24_ERROR_ARGUMENT, "src is NULL; expected a matrix");
    TRY(wrap(out, ctx, src->storage, !src->transposed));
    atomic_fetch_add(&src->storage->references, 1);
    return S24_OK;
}

void s24_matrix_destroy(s24_matrix *matrix)
{
    if (!matrix) return;
    s24i_storage *storage = matrix->storage;
    s24_allocator allocator = storage->allocator;
    s24i_free(&allocator, matrix);
    if (atomic_fetch_sub(&storage->references, 1) > 1) return;
    for (s24_plan *plan = atomic_load(&storage->plans), *next; plan; plan = next) {
        next = plan->next;
        s24_plan_destroy(plan);
    }
    s24i_free(&allocator, storage);
}

int64_t s24_matrix_rows(const s24_matrix *matrix)
{
    if (!matrix) return 0;
    return matrix->transposed ? matrix->storage->cols : matrix->storage->rows;
}

int64_t s24_matrix_cols(const s24_matrix *matrix)
{
    if (!matrix) return 0;
    return matrix->transposed ? matrix->storage->rows : matrix->storage->cols;
}

s24_dtype s24_matrix_dtype(const s24_matrix *matrix)
{
    return matrix ? matrix->storage->dtype : S24_DTYPE_NONE;
}

int s24_matrix_is_transposed(const s24_matrix *matrix)
{
    return matrix && matrix->transposed;
}

const void *s24_matrix_values(const s24_matrix *matrix)
{
    return matrix ? matrix->storage->values : NULL;
}

const uint8_t *s24_matrix_indices(const s24_matrix *matrix)
{
    return matrix ? matrix->storage->indices : NULL;
}

const float *s24_matrix_scales(const s24_matrix *matrix)
{
    return matrix ? matrix->storage->scales : NULL;
}

int s24_matrix_bits(const s24_matrix *matrix)
{
    return matrix ? matrix->storage->bits : 0;
}

int64_t s24_matrix_group(const s24_matrix *matrix)
{
    return matrix ? matrix->storage->group : 0;
}

size_t s24_matrix_bytes(const s24_matrix *matrix)
{
    if (!matrix) return 0;
    const s24i_storage *s = matrix->storage;
    return s->value_bytes + s->index_bytes + s->scale_bytes;
}
