// SPDX-License-Identifier: Apache-2.0
/*
 * A 2:4 matrix from a dense one, or from its transpose. The choice is made on the source's values;
 * then the kept ones are converted. Rows are independent, so the bytes do not depend on the number
 * of threads.
 */
#include <string.h>

#include "format/element.h"
#include "kernel/mvue24.h"
#include "kernel/tile.h"
#include "op/op.h"

enum {
    CHUNK = 256,    /* elements of a row that are packed at a time */
    TURNED_ROWS = 8 /* rows that a transposed source is gathered into */
};

typedef struct job job;

/* Packs `count` elements of row `row` from `col` on, a multiple of CHUNK; mask: what may be kept of
   them, where a mask decides. */
typedef void (*pack_chunk)(job *j, int64_t row, int64_t col, const void *from, const uint8_t *mask,
                           int64_t count);

struct job {
    const s24_dense *src;
    const s24_matrix_opts *opts;
    const s24i_storage *to;
    const s24i_select_kernel *kernel;
    pack_chunk pack;
    atomic_int nonfinite; /* seen by the fused kernel */
};

/* A loop for each size, which compilers make vectors of. */
static inline int has_zero_of(const void *values, int64_t count, size_t bytes, uint32_t magnitude)
{
    int found = 0;
    for (int64_t i = 0; i < count; i++)
        found |= (s24i_element_bits(values, bytes, i) & magnitude) == 0;
    return found;
}

static int has_zero(const void *values, s24_dtype dtype, int64_t count)
{
    const s24i_element e = s24i_element_of(dtype);
    if (e.bytes == 4) return has_zero_of(values, count, 4, e.magnitude);
    if (e.bytes == 2) return has_zero_of(values, count, 2, e.magnitude);
    return has_zero_of(values, count, 1, e.magnitude);
}

/* Where two of every group are other than zero, they are its largest. */
static void pack_strict(job *j, int64_t row, int64_t col, const void *from, const uint8_t *mask,
                        int64_t count)
{
    const s24_dtype dtype = j->to->dtype;
    void *values = s24i_values_at(j->to, row, col);
    uint8_t *indices = s24i_indices_at(j->to, row, col);
    (void)mask;
    if (dtype == j->src->dtype) {
        (void)j->kernel->prune_pack(values, indices, from, count);
        if (!has_zero(values, dtype, count / 2)) return;
    }
    s24i_pack_row(values, dtype, indices, from, j->src->dtype, count);
}

static void pack_masked(job *j, int64_t row, int64_t col, const void *from, const uint8_t *mask,
                        int64_t count)
{
    s24i_pack_row_mask(s24i_values_at(j->to, row, col), j->to->dtype,
                       s24i_indices_at(j->to, row, col), from, j->src->dtype, mask, count);
}

static void pack_magnitude(job *j, int64_t row, int64_t col, const void *from, const uint8_t *mask,
                           int64_t count)
{
    uint8_t largest[CHUNK];
    (void)mask;
    j->kernel->mask(largest, from, count);
    pack_masked(j, row, col, from, largest, count);
}

static void pack_mvue24(job *j, int64_t row, int64_t col, const void *from, const uint8_t *mask,
                        int64_t count)
{
    const int64_t groups = j->to->cols / 4;
    uint8_t *indices = s24i_indices_at(j->to, row, col);
    float wide[CHUNK];
    (void)mask;
    s24i_widen(wide, from, j->src->dtype, count);
    memset(indices, 0, (size_t)s24i_index_stride(count));
    for (int64_t g = 0; g < count / 4; g++) {
        float values[2];
        int kept[2];
        s24i_mvue24_group(kept, values, wide + 4 * g, j->opts->seed,
                          (uint64_t)(row * groups + col / 4 + g));
        s24i_narrow(s24i_values_at(j->to, row, col + 4 * g), j->to->dtype, values, 2);
        unsigned code = (unsigned)kept[0] | (unsigned)kept[1] << 2;
        indices[g >> 1] = (uint8_t)(indices[g >> 1] | code << (g & 1) * 4);
    }
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    const int64_t cols = j->to->cols;
    const uint8_t *mask = j->opts->mask;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols; c += CHUNK)
            j->pack(j, r, c, s24i_dense_at(j->src, r, c), mask ? mask + r * cols + c : NULL,
                    cols - c < CHUNK ? cols - c : CHUNK);
}

/* [count, width] from a row-major source of row length ld to [width, CHUNK], elements of
   `bytes`. */
static inline void turn(void *to, const void *from, int64_t ld, int64_t count, int64_t width,
                        size_t bytes)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t r = 0; r < width; r++)
            memcpy((char *)to + (size_t)(r * CHUNK + i) * bytes,
                   (const char *)from + (size_t)(i * ld + r) * bytes, bytes);
}

static void turn_elements(void *to, const s24_dense *src, int64_t row, int64_t col, int64_t count,
                          int64_t width)
{
    const void *from = s24i_dense_at(src, row, col);
    int64_t ld = s24i_dense_ld(src);
    size_t bytes = s24_dtype_bytes(src->dtype);
    if (bytes == 4)
        turn(to, from, ld, count, width, 4);
    else if (bytes == 2)
        turn(to, from, ld, count, width, 2);
    else
        turn(to, from, ld, count, width, 1);
}

/* Strips of TURNED_ROWS rows of the result, columns of the source. */
static void pack_turned(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    const s24_dense *src = j->src;
    const size_t bytes = s24_dtype_bytes(src->dtype);
    uint32_t elements[TURNED_ROWS * CHUNK];
    uint8_t mask[TURNED_ROWS * CHUNK];
    (void)thread;
    for (int64_t r = begin * TURNED_ROWS; r < end * TURNED_ROWS; r += TURNED_ROWS) {
        int64_t width = src->cols - r < TURNED_ROWS ? src->cols - r : TURNED_ROWS;
        for (int64_t c = 0; c < src->rows; c += CHUNK) {
            int64_t count = src->rows - c < CHUNK ? src->rows - c : CHUNK;
            turn_elements(elements, src, c, r, count, width);
            if (j->opts->mask)
                turn(mask, j->opts->mask + c * src->cols + r, src->cols, count, width, 1);
            for (int64_t i = 0; i < width; i++)
                j->pack(j, r + i, c, (const char *)elements + (size_t)(i * CHUNK) * bytes,
                        mask + i * CHUNK, count);
        }
    }
}

/* By magnitude without converting, in one pass. Rows that lie without a gap, codes too, are one
   run: a short row costs what a long one does. */
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

static int is_fused(const s24_dense *src, const s24_matrix_opts *opts)
{
    return opts->select == S24_SELECT_MAGNITUDE && opts->dtype == src->dtype && !opts->transpose;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static s24_status require_two_four(s24_ctx *ctx, const char *name, const s24_dense *src,
                                   int transpose)
{
    s24i_find find;
    if (transpose) {
        if (!s24i_find_bad_along_n(&find, src)) return S24_OK;
        return s24_ctx_fail(ctx, S24_ERROR_NOT_TWO_FOUR,
                            "%s is not 2:4 along n: column %" PRId64 ", rows %" PRId64
                            " to %" PRId64 " have %d non-zeros; expected at most 2",
                            name, find.col, find.row, find.row + 3, find.nonzeros);
    }
    if (!s24i_find_first(&find, ctx, src, s24i_find_bad_group)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_NOT_TWO_FOUR,
                        "%s is not 2:4: row %" PRId64 ", columns %" PRId64 " to %" PRId64
                        " (group %" PRId64 ") have %d non-zeros; expected at most 2",
                        name, find.row, find.col, find.col + 3, find.col / 4, find.nonzeros);
}

static s24_status check_shape(s24_ctx *ctx, const s24_dense *src, const s24_matrix_opts *opts)
{
    if (!opts->transpose || s24i_tile_rule_find(opts->select))
        TRY(s24i_dense_check_groups(ctx, "src", src));
    if (!opts->transpose) return S24_OK;
    TRY(s24i_dense_check(ctx, "src", src));
    REQUIRE(ctx, s24_dtype_can_be_two_four(src->dtype), S24_ERROR_DTYPE,
            "src is %s; expected f32, f16, bf16, i8, e4m3 or e5m2", s24_dtype_name(src->dtype));
    REQUIRE(ctx, src->rows % 4 == 0, S24_ERROR_SHAPE,
            "src has %" PRId64 " rows; its transpose needs a multiple of 4", src->rows);
    return S24_OK;
}

static s24_status check_source(s24_ctx *ctx, const s24_dense *src, const s24_matrix_opts *opts)
{
    REQUIRE(ctx, !opts->transpose || opts->transpose == 1, S24_ERROR_ARGUMENT,
            "s24_matrix_opts.transpose is %d; expected 0 or 1", opts->transpose);
    TRY(check_shape(ctx, src, opts));
    REQUIRE(ctx, s24_dtype_can_be_two_four(opts->dtype), S24_ERROR_DTYPE,
            "s24_matrix_opts.dtype is %s; expected f32, f16, bf16, i8, e4m3 or e5m2",
            s24_dtype_name(opts->dtype));
    /* The fused kernel finds them in its one pass. */
    if (!is_fused(src, opts) && !opts->allow_nonfinite) TRY(s24i_require_finite(ctx, "src", src));
    switch (opts->select) {
    case S24_SELECT_STRICT:
        return require_two_four(ctx, "src", src, opts->transpose);
    case S24_SELECT_MASK: {
        REQUIRE(ctx, opts->mask, S24_ERROR_ARGUMENT,
                "s24_matrix_opts.mask is NULL; S24_SELECT_MASK needs one");
        s24_dense mask = {(void *)opts->mask, S24_I8, src->rows, src->cols, 0};
        return require_two_four(ctx, "mask", &mask, opts->transpose);
    }
    case S24_SELECT_MVUE24:
        REQUIRE(ctx, opts->dtype != S24_I8, S24_ERROR_DTYPE,
                "S24_SELECT_MVUE24 into i8; expected a floating dtype, its values are scaled");
        return opts->allow_nonfinite ? s24i_require_finite(ctx, "src", src) : S24_OK;
    case S24_SELECT_MAGNITUDE:
    case S24_SELECT_TILE_BEST:
    case S24_SELECT_TILE_GREEDY:
    case S24_SELECT_TILE_SIGNED:
    case S24_SELECT_TILE_CAUSAL1122:
        return S24_OK;
    }
    return s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "s24_matrix_opts.select is %d; expected 0 to %d",
                        (int)opts->select, (int)S24_SELECT_TILE_CAUSAL1122);
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

/* ---- making one ------------------------------------------------------------------------------ */

static s24_status fill(s24_ctx *ctx, job *j)
{
    const s24_matrix_opts *opts = j->opts;
    int narrows = j->to->dtype != j->src->dtype || opts->select == S24_SELECT_MVUE24;
    if (is_fused(j->src, opts))
        s24_ctx_parallel_for(ctx, j->to->rows, fused_rows, j);
    else if (opts->transpose)
        s24_ctx_parallel_for(ctx, (j->to->rows + TURNED_ROWS - 1) / TURNED_ROWS, pack_turned, j);
    else
        s24_ctx_parallel_for(ctx, j->to->rows, pack_rows, j);
    if (opts->select != S24_SELECT_MVUE24 && opts->allow_nonfinite) return S24_OK;
    if (atomic_load(&j->nonfinite)) return s24i_require_finite(ctx, "src", j->src);
    return narrows ? check_range(ctx, j->to) : S24_OK;
}

/* Of checked arguments; every way to select but those of tiles. */
static s24_status create(s24_matrix **out, s24_ctx *ctx, const s24_dense *src,
                         const s24_matrix_opts *opts)
{
    static const pack_chunk packs[] = {
        [S24_SELECT_STRICT] = pack_strict,
        [S24_SELECT_MAGNITUDE] = pack_magnitude,
        [S24_SELECT_MASK] = pack_masked,
        [S24_SELECT_MVUE24] = pack_mvue24,
    };
    s24_matrix *matrix;
    TRY(s24i_matrix_new(&matrix, ctx, opts->dtype, opts->transpose ? src->cols : src->rows,
                        opts->transpose ? src->rows : src->cols));
    s24_matrix_opts masked = *opts;
    if (opts->select != S24_SELECT_MASK) masked.mask = NULL;
    job j = {
        .src = src,
        .opts = &masked,
        .to = matrix->storage,
        .kernel = s24i_select_kernel_find(src->dtype, ctx->cpu),
        .pack = packs[opts->select],
    };
    atomic_init(&j.nonfinite, 0);
    GIVE(out, matrix, s24_matrix_destroy, fill(ctx, &j));
}

/* opts, or what they say of tiles as a mask; *mask is the caller's to free. */
static s24_status decide(uint8_t **mask, s24_ctx *ctx, const s24_dense *src, s24_matrix_opts *opts)
{
    *mask = NULL;
    if (!s24i_tile_rule_find(opts->select)) return S24_OK;
    *mask = s24_ctx_alloc(ctx, (size_t)src->rows * (size_t)src->cols);
    REQUIRE(ctx, *mask, S24_ERROR_MEMORY,
            "out of memory for the mask of [%" PRId64 ", %" PRId64 "]", src->rows, src->cols);
    s24i_tile_mask(*mask, ctx, src, opts->select);
    opts->select = S24_SELECT_MASK;
    opts->mask = *mask;
    return S24_OK;
}

static s24_status read_opts(s24_matrix_opts *known, s24_ctx *ctx, const s24_dense *src,
                            const s24_matrix_opts *opts)
{
    TRY(s24i_opts_read(ctx, known, sizeof *known, opts, "s24_matrix_opts"));
    TRY(s24i_dense_check(ctx, "src", src));
    if (known->dtype == S24_DTYPE_NONE) known->dtype = src->dtype;
    return S24_OK;
}

s24_status s24_matrix_create(s24_matrix **out, s24_ctx *ctx, const s24_dense *src,
                             const s24_matrix_opts *opts)
{
    s24_matrix_opts known;
    uint8_t *mask;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(read_opts(&known, ctx, src, opts));
    TRY(check_source(ctx, src, &known));
    TRY(decide(&mask, ctx, src, &known));
    s24_status status = create(out, ctx, src, &known);
    s24_ctx_free(ctx, mask);
    return status;
}

s24_status s24_matrix_create_pair(s24_matrix **out, s24_matrix **out_transposed, s24_ctx *ctx,
                                  const s24_dense *src, const s24_matrix_opts *opts)
{
    s24_matrix_opts known;
    uint8_t *mask;
    if (!out || !out_transposed || !ctx) return S24_ERROR_ARGUMENT;
    *out = *out_transposed = NULL;
    TRY(read_opts(&known, ctx, src, opts));
    REQUIRE(ctx,
            known.select != S24_SELECT_MAGNITUDE && known.select != S24_SELECT_MVUE24 &&
                !known.transpose,
            S24_ERROR_ARGUMENT,
            "s24_matrix_opts has select %d and transpose %d; a pair is made by S24_SELECT_TILE_*, "
            "by a mask or strictly",
            (int)known.select, known.transpose);
    s24_matrix_opts turned = known;
    turned.transpose = 1;
    TRY(check_source(ctx, src, &known));
    TRY(check_source(ctx, src, &turned));
    TRY(decide(&mask, ctx, src, &known));
    turned.select = known.select;
    turned.mask = known.mask;
    s24_status status = create(out, ctx, src, &known);
    if (status == S24_OK) status = create(out_transposed, ctx, src, &turned);
    s24_ctx_free(ctx, mask);
    if (status == S24_OK) return S24_OK;
    s24_matrix_destroy(*out);
    *out = NULL;
    return status;
}
