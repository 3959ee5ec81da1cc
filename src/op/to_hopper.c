// SPDX-License-Identifier: Apache-2.0
/* The order of Hopper's sparse tensor cores, in and out: checks, threads and errors around
   format/hopper.c. */
#include "op/op.h"

typedef struct slab_job {
    const s24i_storage *storage;
    uint8_t *packed;
    size_t slab_bytes;
    int unpack;
} slab_job;

static int64_t slabs_of(int64_t rows)
{
    return (rows + S24I_HOPPER_SLAB - 1) / S24I_HOPPER_SLAB;
}

static void convert_slabs(void *arg, int64_t begin, int64_t end, int thread)
{
    const slab_job *j = arg;
    const s24i_storage *s = j->storage;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * S24I_HOPPER_SLAB;
        uint8_t *slab = j->packed + (size_t)i * j->slab_bytes;
        void *values = s24i_values_at(s, row, 0);
        uint8_t *indices = s24i_indices_at(s, row, 0);
        if (j->unpack)
            s24i_hopper_unpack_slab(values, indices, s->dtype, slab, s->rows - row, s->cols);
        else
            s24i_hopper_pack_slab(slab, s->dtype, values, indices, s->rows - row, s->cols);
    }
}

size_t s24_hopper_bytes(s24_dtype dtype, int64_t rows, int64_t cols)
{
    size_t bytes;
    if (!s24_dtype_can_be_two_four(dtype) || rows < 1 || cols < 4 || cols % 4) return 0;
    if (s24i_mul_overflow((size_t)slabs_of(rows), s24i_hopper_slab_bytes(dtype, cols), &bytes))
        return 0;
    return bytes;
}

static s24_status check(s24_ctx *ctx, s24_dtype dtype, int64_t rows, int64_t cols)
{
    REQUIRE(ctx, s24_dtype_can_be_two_four(dtype) && s24_dtype_bytes(dtype) <= 2, S24_ERROR_DTYPE,
            "the Hopper order of %s; expected f16, bf16, i8, e4m3 or e5m2", s24_dtype_name(dtype));
    REQUIRE(ctx, s24_hopper_bytes(dtype, rows, cols), S24_ERROR_SHAPE,
            "the Hopper order of [%" PRId64 ", %" PRId64 "]; expected a multiple of 4 columns",
            rows, cols);
    return S24_OK;
}

s24_status s24_matrix_to_hopper(void *packed, s24_ctx *ctx, const s24_matrix *src)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, packed && src, S24_ERROR_ARGUMENT, "%s is NULL", packed ? "src" : "packed");
    const s24i_storage *s = src->storage;
    REQUIRE(ctx, !src->transposed, S24_ERROR_SHAPE,
            "src is a transposed view; expected the matrix itself");
    TRY(check(ctx, s->dtype, s->rows, s->cols));
    slab_job job = {s, packed, s24i_hopper_slab_bytes(s->dtype, s->cols), 0};
    s24_ctx_parallel_for(ctx, slabs_of(s->rows), convert_slabs, &job);
    return S24_OK;
}

s24_status s24_matrix_from_hopper(s24_matrix **out, s24_ctx *ctx, const void *packed,
                                  s24_dtype dtype, int64_t rows, int64_t cols)
{
    s24_matrix *matrix;
    s24i_find find;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, packed, S24_ERROR_ARGUMENT, "packed is NULL");
    TRY(check(ctx, dtype, rows, cols));
    TRY(s24i_matrix_new(&matrix, ctx, dtype, rows, cols));
    s24i_storage *s = matrix->storage;
    slab_job job = {s, (uint8_t *)(uintptr_t)packed, s24i_hopper_slab_bytes(dtype, cols), 1};
    s24_ctx_parallel_for(ctx, slabs_of(rows), convert_slabs, &job);
    if (!s24i_codes_are_legal(s->indices, rows, cols, &find)) {
        s24_matrix_destroy(matrix);
        return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                            "the code of row %" PRId64 ", columns %" PRId64 " to %" PRId64
                            " is none of 4, 8, 9, C, D and E",
                            find.row, find.col, find.col + 3);
    }
    *out = matrix;
    return S24_OK;
}
