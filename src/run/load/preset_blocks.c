// SPDX-License-Identifier: Apache-2.0
#include "run/load/preset_blocks.h"

#include <string.h>

#include "sparse24/formats.h"

typedef struct drawing {
    const s24_dense *dense;
    s24_sparse_parts parts; /* CSR's blocks are 1x1 */
    uint64_t seed;
    uint32_t zeros;  /* of 2^32 */
    int64_t *starts; /* a line's end, until all are counted */
    int32_t *index;
    char *values;
} drawing;

/* Drawn at the place of a block. */
static int is_kept(const drawing *d, int64_t line, int64_t column)
{
    const int64_t across = d->parts.cols / d->parts.block_cols;
    const uint64_t step = (uint64_t)(line * across + column + 1);
    return (uint32_t)(s24i_preset_random(d->seed + step * S24I_PRESET_STEP) >> 32) >= d->zeros;
}

static float *at(const drawing *d, int64_t row, int64_t column)
{
    return (float *)d->dense->data + row * d->dense->cols + column;
}

/* Zeroes what is not kept of some lines, and counts what is. */
static void drop_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const drawing *d = arg;
    const s24_sparse_parts *p = &d->parts;
    (void)thread;
    for (int64_t l = begin; l < end; l++) {
        d->starts[l + 1] = 0;
        for (int64_t c = 0; c < p->cols / p->block_cols; c++) {
            if (is_kept(d, l, c)) {
                d->starts[l + 1]++;
                continue;
            }
            for (int64_t r = 0; r < p->block_rows; r++)
                memset(at(d, l * p->block_rows + r, c * p->block_cols), 0,
                       (size_t)p->block_cols * sizeof(float));
        }
    }
}

static void keep_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const drawing *d = arg;
    const s24_sparse_parts *p = &d->parts;
    const size_t row = (size_t)p->block_cols * s24_dtype_bytes(p->dtype);
    (void)thread;
    for (int64_t l = begin; l < end; l++) {
        int64_t i = d->starts[l];
        for (int64_t c = 0; c < p->cols / p->block_cols; c++) {
            if (!is_kept(d, l, c)) continue;
            d->index[i] = (int32_t)c;
            /* Dtypes that there are: nothing can fail. */
            for (int64_t r = 0; r < p->block_rows; r++)
                (void)s24_convert(d->values + (size_t)(i * p->block_rows + r) * row, p->dtype,
                                  at(d, l * p->block_rows + r, c * p->block_cols), S24_F32,
                                  p->block_cols);
            i++;
        }
    }
}

/* The matrix of what drop_lines left and counted. */
static s24_status gather(s24_sparse **out, s24_ctx *ctx, drawing *d, int is_csr)
{
    s24_sparse_parts parts = d->parts;
    const int64_t lines = parts.rows / parts.block_rows;
    const size_t block =
        (size_t)(parts.block_rows * parts.block_cols) * s24_dtype_bytes(parts.dtype);
    s24_status status = S24_OK;
    for (int64_t l = 0; l < lines; l++)
        d->starts[l + 1] += d->starts[l];
    parts.stored = d->starts[lines];
    TRY_DONE(s24i_alloc_elems(&d->index, ctx, parts.stored + 1, sizeof *d->index, "a weight"));
    TRY_DONE(s24i_alloc_elems(&d->values, ctx, parts.stored + 1, block, "a weight"));
    s24_ctx_parallel_for(ctx, lines, keep_lines, d);
    parts.starts = d->starts;
    parts.index = d->index;
    parts.values = d->values;
    if (is_csr) parts.block_rows = parts.block_cols = 0;
    status = s24_sparse_from_parts(out, ctx, &parts);
done:
    s24_ctx_free(ctx, d->values);
    s24_ctx_free(ctx, d->index);
    return status;
}

s24_status s24i_preset_blocks(s24_sparse **out, s24_ctx *ctx, const s24_dense *dense,
                              const s24_model_opts *opts, s24_dtype values, uint64_t seed)
{
    const int is_csr = opts->format->format == S24_FORMAT_CSR;
    drawing d = {.dense = dense,
                 .parts = {.format = opts->format->format,
                           .dtype = values,
                           .rows = dense->rows,
                           .cols = dense->cols,
                           .block_rows = is_csr ? 1 : opts->format->block_rows,
                           .block_cols = is_csr ? 1 : opts->format->block_cols},
                 .seed = seed,
                 .zeros = (uint32_t)((uint64_t)opts->zeros * UINT32_MAX / 100)};
    if (!is_csr) TRY(s24_sparse_check(ctx, &d.parts));
    const int64_t lines = d.parts.rows / d.parts.block_rows;
    TRY(s24i_alloc_elems(&d.starts, ctx, lines + 1, sizeof *d.starts, "a weight's lines"));
    d.starts[0] = 0;
    s24_ctx_parallel_for(ctx, lines, drop_lines, &d);
    const s24_status status = out ? gather(out, ctx, &d, is_csr) : S24_OK;
    s24_ctx_free(ctx, d.starts);
    return status;
}

s24_status s24i_preset_format_check(s24_ctx *ctx, const s24_model_opts *o)
{
    const s24_sparse_parts *p = o->format;
    if (!p) return S24_OK;
    REQUIRE(ctx, p->format == S24_FORMAT_CSR || p->format == S24_FORMAT_BSR, S24_ERROR_ARGUMENT,
            "the option format of a model is %d; CSR or BSR was expected", (int)p->format);
    REQUIRE(ctx, o->zeros >= 1 && o->zeros <= 99, S24_ERROR_ARGUMENT,
            "the option zeros of a model is %d; 1 to 99 percent was expected", o->zeros);
    REQUIRE(ctx, o->sparse && !o->quantize && !o->comm, S24_ERROR_ARGUMENT,
            "the option format of a model %s",
            o->sparse ? "excludes quantize and comm" : "needs the option sparse");
    const int there =
        p->format == S24_FORMAT_BSR && p->block_rows == p->block_cols && p->block_rows >= 16;
    REQUIRE(ctx, !o->device || there, S24_ERROR_UNSUPPORTED,
            "weights in %s on a device; BSR with blocks of 16x16, 32x32, 64x64 or 128x128 was "
            "expected",
            s24_format_name(p->format));
    return S24_OK;
}
