// SPDX-License-Identifier: Apache-2.0
/*
 * A 2:4 matrix from a dense one. The choice is made on the source's values; then the kept ones are
 * converted. Rows are independent, so the bytes do not depend on the number of threads.
 */
#include <string.h>

#include "op/op.h"

enum { SELECT_CHUNK = 256 }; /* elements whose mask is kept at a time */

typedef struct job {
    const s24_dense *src;
    const s24_matrix_opts *opts;
    const s24i_storage *to;
    const s24i_select_kernel *kernel;
    atomic_int nonfinite; /* seen by the fused kernel */
} job;

static void strict_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        s24i_pack_row(s24i_values_at(j->to, r, 0), j->to->dtype, s24i_indices_at(j->to, r, 0),
                      s24i_dense_at(j->src, r, 0), j->src->dtype, j->to->cols);
}

static void masked_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        s24i_pack_row_mask(s24i_values_at(j->to, r, 0), j->to->dtype, s24i_indices_at(j->to, r, 0),
                           s24i_dense_at(j->src, r, 0), j->src->dtype,
                           j->opts->mask + r * j->to->cols, j->to->cols);
}

static void magnitude_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    uint8_t mask[SELECT_CHUNK];
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        for (int64_t c = 0; c < j->to->cols; c += SELECT_CHUNK) {
            int64_t count = j->to->cols - c < SELECT_CHUNK ? j->to->cols - c : SELECT_CHUNK;
            const void *from = s24i_dense_at(j->src, r, c);
            j->kernel->mask(mask, from, count);
            s24i_pack_row_mask(s24i_values_at(j->to, r, c), j->to->dtype,
                               s24i_indices_at(j->to, r, c), from, j->src->dtype, mask, count);
        }
    }
}

/* Rows that lie without a gap, codes too, are one run: a short row costs what a long one does. */
static void fused_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    const int64_t cols = j->to->cols;
    const int64_t run = s24i_dense_ld(j->src) == cols && cols % 8 == 0 ? end - begin : 1;
    (void)thread;
    for (int64_t r = begin; r < end; r += run)
        if (!j->kernel->prune_pack(s24i_values_at(j->to, r, 0), s24i_indices_at(j->to, r, 0),
                                   s24i_dense_at(j->src, r, 0), run * cols))
            atomic_store(&j->nonfinite, 1);
}

static void mvue24_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    int64_t groups = j->to->cols / 4;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        uint8_t *indices = s24i_indices_at(j->to, r, 0);
        memset(indices, 0, (size_t)s24i_index_stride(j->to->cols));
        for (int64_t g = 0; g < groups; g++) {
            float group[4], values[2];
            int kept[2];
            s24i_widen(group, s24i_dense_at(j->src, r, 4 * g), j->src->dtype, 4);
            s24i_mvue24_group(kept, values, group, j->opts->seed, (uint64_t)(r * groups + g));
            s24i_narrow(s24i_values_at(j->to, r, 4 * g), j->to->dtype, values, 2);
            unsigned code = (unsigned)kept[0] | (unsigned)kept[1] << 2;
            indices[g >> 1] = (uint8_t)(indices[g >> 1] | code << (g & 1) * 4);
        }
    }
}

static s24_status require_two_four(s24_ctx *ctx, const char *name, const s24_dense *src)
{
    s24i_find find;
    if (!s24i_find_first(&find, ctx, src, s24i_find_bad_group)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_NOT_TWO_FOUR,
                        "%s is not 2:4: row %" PRId64 ", columns %" PRId64 " to %" PRId64
                        " (group %" PRId64 ") have %d non-zeros; expected at most 2",
                        name, find.row, find.col, find.col + 3, find.col / 4, find.nonzeros);
}

static s24_status check_source(s24_ctx *ctx, const s24_dense *src, const s24_matrix_opts *opts)
{
    REQUIRE(ctx, s24_dtype_can_be_two_four(opts->dtype), S24_ERROR_DTYPE,
            "s24_matrix_opts.dtype is %s; expected f32, f16, bf16, i8, e4m3 or e5m2",
            s24_dtype_name(opts->dtype));
    int fused = opts->select == S24_SELECT_MAGNITUDE &&
                opts->dtype == src->dtype; /* finds them in its one pass */
    if (!fused && !opts->allow_nonfinite) TRY(s24i_require_finite(ctx, "src", src));
    switch (opts->select) {
    case S24_SELECT_STRICT:
        return require_two_four(ctx, "src", src);
    case S24_SELECT_MAGNITUDE:
        return S24_OK;
    case S24_SELECT_MASK: {
        REQUIRE(ctx, opts->mask, S24_ERROR_ARGUMENT,
                "s24_matrix_opts.mask is NULL; S24_SELECT_MASK needs one");
        s24_dense mask = {(void *)opts->mask, S24_I8, src->rows, src->cols, 0};
        return require_two_four(ctx, "mask", &mask);
    }
    case S24_SELECT_MVUE24:
        REQUIRE(ctx, opts->dtype != S24_I8, S24_ERROR_DTYPE,
                "S24_SELECT_MVUE24 into i8; expected a floating dtype, its values are scaled");
        return opts->allow_nonfinite ? s24i_require_finite(ctx, "src", src) : S24_OK;
    }
    return s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "s24_matrix_opts.select is %d; expected 0 to 3",
                        (int)opts->select);
}

/* A finite source may hold what the narrower dtype cannot. */
static s24_status check_range(s24_ctx *ctx, const s24i_storage *to)
{
    int64_t row, col;
    if (!s24i_storage_nonfinite(ctx, to, &row, &col)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_NOT_FINITE,
                        "the value for row %" PRId64 ", column %" PRId64 " (group %" PRId64
                        ") is beyond the range of %s",
                        row, col, col / 4, s24_dtype_name(to->dtype));
}

static s24_status fill(s24_ctx *ctx, job *j)
{
    static void (*const fills[])(void *, int64_t, int64_t, int) = {
        [S24_SELECT_STRICT] = strict_rows,
        [S24_SELECT_MAGNITUDE] = magnitude_rows,
        [S24_SELECT_MASK] = masked_rows,
        [S24_SELECT_MVUE24] = mvue24_rows,
    };
    const s24_matrix_opts *opts = j->opts;
    int narrows = j->to->dtype != j->src->dtype || opts->select == S24_SELECT_MVUE24;
    int fused = opts->select == S24_SELECT_MAGNITUDE && !narrows;
    s24_ctx_parallel_for(ctx, j->src->rows, fused ? fused_rows : fills[opts->select], j);
    if (opts->select != S24_SELECT_MVUE24 && opts->allow_nonfinite) return S24_OK;
    if (atomic_load(&j->nonfinite)) return s24i_require_finite(ctx, "src", j->src);
    return narrows ? check_range(ctx, j->to) : S24_OK;
}

s24_status s24_matrix_create(s24_matrix **out, s24_ctx *ctx, const s24_dense *src,
                             const s24_matrix_opts *opts)
{
    s24_matrix_opts known;
    s24_matrix *matrix;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_matrix_opts"));
    TRY(s24i_dense_check_groups(ctx, "src", src));
    if (known.dtype == S24_DTYPE_NONE) known.dtype = src->dtype;
    TRY(check_source(ctx, src, &known));
    TRY(s24i_matrix_new(&matrix, ctx, known.dtype, src->rows, src->cols));
    job j = {
        .src = src,
        .opts = &known,
        .to = matrix->storage,
        .kernel = s24i_select_kernel_find(src->dtype, ctx->cpu),
    };
    atomic_init(&j.nonfinite, 0);
    s24_status status = fill(ctx, &j);
    if (status != S24_OK) {
        s24_matrix_destroy(matrix);
        return status;
    }
    *out = matrix;
    return S24_OK;
}
