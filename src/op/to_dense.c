// SPDX-License-Identifier: Apache-2.0
/* Back to dense: whole rows, or for a transposed view small tiles turned around. */
#include <string.h>

#include "op/op.h"

enum { TILE = 64, TILE_ROWS = 16 }; /* stored columns (a multiple of 8) and rows of one tile */

typedef struct job {
    const s24_dense *dst;
    const s24i_storage *from;
} job;

/* Up to TILE columns of one row, from a multiple of 8 on. */
static void unpack_part(void *dst, s24_dtype dtype, const s24i_storage *from, int64_t row,
                        int64_t col, int64_t cols)
{
    const uint8_t *indices = s24i_indices_at(from, row, col);
    float wide[TILE / 2];
    if (!from->scales) {
        s24i_unpack_row(dst, dtype, s24i_values_at(from, row, col), from->dtype, indices, cols);
        return;
    }
    s24i_storage_widen(wide, from, row, col, cols);
    s24i_unpack_row(dst, dtype, wide, S24_F32, indices, cols);
}

static void plain_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    const int64_t cols = j->from->cols;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols; c += TILE)
            unpack_part(s24i_dense_at(j->dst, r, c), j->dst->dtype, j->from, r, c,
                        cols - c < TILE ? cols - c : TILE);
}

static void turned_tile(const job *j, int64_t row, int64_t col)
{
    uint32_t tile[TILE_ROWS * TILE];
    size_t bytes = s24_dtype_bytes(j->dst->dtype);
    int64_t rows = j->from->rows - row < TILE_ROWS ? j->from->rows - row : TILE_ROWS;
    int64_t cols = j->from->cols - col < TILE ? j->from->cols - col : TILE;
    for (int64_t r = 0; r < rows; r++)
        unpack_part((char *)tile + (size_t)(r * TILE) * bytes, j->dst->dtype, j->from, row + r, col,
                    cols);
    for (int64_t c = 0; c < cols; c++) {
        char *to = s24i_dense_at(j->dst, col + c, row);
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + (size_t)r * bytes, (char *)tile + (size_t)(r * TILE + c) * bytes, bytes);
    }
}

static void turned_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int64_t c = 0; c < j->from->cols; c += TILE)
            turned_tile(j, t * TILE_ROWS, c);
}

s24_status s24_matrix_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_matrix *src)
{
    TRY(s24i_dense_check(ctx, "dst", dst));
    REQUIRE(ctx, src, S24_ERROR_ARGUMENT, "src is NULL; expected a matrix");
    REQUIRE(ctx, s24_dtype_can_be_two_four(dst->dtype), S24_ERROR_DTYPE,
            "dst is %s; expected f32, f16, bf16, i8, e4m3 or e5m2", s24_dtype_name(dst->dtype));
    REQUIRE(ctx, dst->rows == s24_matrix_rows(src) && dst->cols == s24_matrix_cols(src),
            S24_ERROR_SHAPE,
            "dst is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", dst->rows,
            dst->cols, s24_matrix_rows(src), s24_matrix_cols(src));
    job j = {dst, src->storage};
    if (src->transposed)
        s24_ctx_parallel_for(ctx, (j.from->rows + TILE_ROWS - 1) / TILE_ROWS, turned_rows, &j);
    else
        s24_ctx_parallel_for(ctx, j.from->rows, plain_rows, &j);
    return S24_OK;
}
