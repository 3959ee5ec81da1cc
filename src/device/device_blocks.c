// SPDX-License-Identifier: Apache-2.0
/* Weights in rows of square blocks on a device: their memory there, and the checks of a product. */
#include <stdlib.h>
#include <string.h>

#include "device/device_room.h"

enum { LINE = 256 };

static size_t rounded(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static s24_status check_parts(s24_ctx *ctx, const s24_sparse_parts *p)
{
    TRY(s24_sparse_check(ctx, p));
    REQUIRE(ctx,
            p->format == S24_FORMAT_BSR && p->block_rows == p->block_cols && p->block_rows >= 16,
            S24_ERROR_UNSUPPORTED,
            "a %s matrix on a device; expected BSR with blocks of 16x16, 32x32, 64x64 or 128x128",
            s24_format_name(p->format));
    REQUIRE(ctx, s24_dtype_bytes(p->dtype) == 2 || p->dtype == S24_I8 || p->dtype == S24_E4M3,
            S24_ERROR_DTYPE, "blocks of %s on a device; expected f16, bf16, i8 or e4m3",
            s24_dtype_name(p->dtype));
    REQUIRE(ctx, p->stored < INT32_MAX, S24_ERROR_SHAPE, "%" PRId64 " blocks are too many",
            p->stored);
    return S24_OK;
}

/* ---- the device's order ---------------------------------------------------------------------- */

/* each: bytes of an element. */
static void put_block(char *to, const char *from, int64_t block, int64_t each)
{
    const int64_t side = block * each, row_bytes = S24I_BLOCKS_ROW(block, each);
    for (int64_t r = 0; r < block; r++)
        for (int64_t c = 0; c < side; c += 16) {
            const int64_t inside = c % row_bytes / 16;
            char *row = to + (c / row_bytes * block + r) * row_bytes;
            memcpy(row + 16 * S24I_BLOCKS_CHUNK(row_bytes, r, inside), from + r * side + c, 16);
        }
}

/* A line of blocks and how long it is. */
typedef struct line_length {
    int64_t length;
    int32_t line;
} line_length;

static int longest_first(const void *a, const void *b)
{
    const line_length *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->line < y->line ? -1 : 1;
}

static s24_status put_order(int32_t *order, s24_ctx *ctx, const s24_sparse_parts *p, int64_t lines)
{
    line_length *all = s24_ctx_alloc(ctx, (size_t)lines * sizeof *all);
    REQUIRE(ctx, all, S24_ERROR_MEMORY, "out of memory for the order of %" PRId64 " lines", lines);
    for (int64_t i = 0; i < lines; i++)
        all[i] = (line_length){p->starts[i + 1] - p->starts[i], (int32_t)i};
    qsort(all, (size_t)lines, sizeof *all, longest_first);
    for (int64_t i = 0; i < lines; i++)
        order[i] = all[i].line;
    s24_ctx_free(ctx, all);
    return S24_OK;
}

/* Host memory as the device's: values, starts, index, order, each from a multiple of LINE on. */
static s24_status fill(char *host, s24_ctx *ctx, const s24_sparse_parts *p,
                       const s24_device_blocks *w)
{
    const int64_t lines = p->rows / p->block_rows;
    const size_t each = s24_dtype_bytes(p->dtype);
    const size_t block = (size_t)(p->block_rows * p->block_cols) * each;
    const char *there = w->values;
    int32_t *starts = (int32_t *)(void *)(host + ((const char *)w->starts - there));
    for (int64_t i = 0; i < p->stored; i++)
        put_block(host + (size_t)i * block, (const char *)p->values + (size_t)i * block,
                  p->block_rows, (int64_t)each);
    for (int64_t i = 0; i <= lines; i++)
        starts[i] = (int32_t)p->starts[i];
    if (p->stored)
        memcpy(host + ((const char *)w->index - there), p->index,
               (size_t)p->stored * sizeof *p->index);
    return put_order((int32_t *)(void *)(host + ((const char *)w->order - there)), ctx, p, lines);
}

static s24_status upload(s24_device_blocks *w, s24_ctx *ctx, const s24_sparse_parts *p)
{
    const size_t lines = (size_t)(p->rows / p->block_rows), stored = (size_t)p->stored;
    const size_t each = s24_dtype_bytes(p->dtype), side = (size_t)p->block_rows * each;
    const size_t zeros = side < 32; /* a block of them, for what is multiplied in pairs */
    const size_t values = rounded((stored + zeros) * (size_t)p->block_rows * side);
    const size_t starts = values + rounded((lines + 1) * sizeof *w->starts);
    const size_t index = starts + rounded(stored * sizeof *w->index);
    w->bytes = index + rounded(lines * sizeof *w->order);
    TRY(s24i_device_alloc(&w->values, ctx, w->device, w->bytes, w->stream, "a weight in blocks"));
    w->starts = (int32_t *)(void *)((char *)w->values + values);
    w->index = (int32_t *)(void *)((char *)w->values + starts);
    w->order = (int32_t *)(void *)((char *)w->values + index);
    char *host = s24_ctx_alloc(ctx, w->bytes);
    REQUIRE(ctx, host, S24_ERROR_MEMORY, "out of memory: %zu bytes for a weight in blocks",
            w->bytes);
    memset(host, 0, w->bytes);
    s24_status status = fill(host, ctx, p, w);
    if (status == S24_OK)
        status = s24_device_copy(ctx, w->device, w->values, host, w->bytes, w->stream);
    if (status == S24_OK) status = s24_device_wait(ctx, w->device, w->stream);
    s24_ctx_free(ctx, host);
    return status;
}

s24_status s24_device_blocks_create(s24_device_blocks **out, s24_ctx *ctx, s24_device *device,
                                    const s24_sparse_parts *parts, void *stream)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device && parts, S24_ERROR_ARGUMENT, "%s is NULL", device ? "parts" : "device");
    TRY(check_parts(ctx, parts));
    s24_device_blocks *w = s24i_alloc(&ctx->allocator, sizeof *w);
    REQUIRE(ctx, w, S24_ERROR_MEMORY, "out of memory for a weight's handle");
    *w = (s24_device_blocks){.allocator = ctx->allocator,
                             .device = device,
                             .stream = stream,
                             .dtype = parts->dtype,
                             .n = parts->rows,
                             .k = parts->cols,
                             .block = parts->block_rows,
                             .stored = parts->stored};
    GIVE(out, w, s24_device_blocks_destroy, upload(w, ctx, parts));
}

size_t s24_device_blocks_bytes(const s24_device_blocks *blocks)
{
    return blocks ? blocks->bytes : 0;
}

void s24_device_blocks_destroy(s24_device_blocks *blocks)
{
    s24i_device_error error;
    if (!blocks) return;
    const s24_allocator allocator = blocks->allocator;
    (void)blocks->device->table->wait(blocks->device->gpu, blocks->stream, &error);
    s24i_device_release(blocks->device, blocks->values, blocks->stream);
    s24i_free(&allocator, blocks);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Factors of tokens and outputs: of 8 bits both, else none. */
static s24_status check_scales(s24_ctx *ctx, const s24_device_blocks_args *a, int narrow)
{
    REQUIRE(ctx, !a->x_scale == !narrow && !a->w_scale == !narrow, S24_ERROR_ARGUMENT,
            "x_scale is %s and w_scale %s of blocks of %s; expected %s",
            a->x_scale ? "there" : "NULL", a->w_scale ? "there" : "NULL",
            s24_dtype_name(a->w->dtype), narrow ? "both" : "neither");
    REQUIRE(ctx, (uintptr_t)a->x_scale % 4 == 0 && (uintptr_t)a->w_scale % 4 == 0,
            S24_ERROR_ARGUMENT, "x_scale is at %p and w_scale at %p; expected multiples of 4 bytes",
            (const void *)a->x_scale, (const void *)a->w_scale);
    return S24_OK;
}

s24_status s24_device_blocks_linear(s24_ctx *ctx, s24_device *device,
                                    const s24_device_blocks_args *args)
{
    s24i_device_error error = {""};
    s24_device_blocks_args a;
    READ_ARGS(a, args, "s24_device_blocks_args");
    REQUIRE(ctx, a.w && a.x && a.y, S24_ERROR_ARGUMENT, "%s is NULL",
            !a.w   ? "w"
            : !a.x ? "x"
                   : "y");
    const int narrow = s24_dtype_bytes(a.w->dtype) == 1;
    TRY(s24i_device_operand(ctx, "x", a.x, a.w->dtype, a.x->rows, a.w->k));
    TRY(s24i_device_operand(ctx, "y", a.y, narrow ? S24_BF16 : a.w->dtype, a.x->rows, a.w->n));
    TRY(check_scales(ctx, &a, narrow));
    REQUIRE(ctx, a.x->rows > 0, S24_ERROR_SHAPE, "x has no rows");
    REQUIRE(ctx, (int)a.activation >= 0 && a.activation <= S24_ACTIVATION_SILU, S24_ERROR_ARGUMENT,
            "activation is %d; expected 0 to %d", (int)a.activation, (int)S24_ACTIVATION_SILU);
    REQUIRE(ctx, (uintptr_t)a.bias % 2 == 0, S24_ERROR_ARGUMENT,
            "bias is at %p; expected a multiple of 2 bytes", a.bias);
    return s24i_device_status(ctx, device->table->blocks(device->gpu, &a, a.stream, &error),
                              &error);
}

s24_status s24_device_blocks_to_dense(s24_ctx *ctx, s24_device *device, const s24_dense *dst,
                                      const s24_device_blocks *weight, void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && weight, S24_ERROR_ARGUMENT, "%s is NULL", device ? "weight" : "device");
    TRY(s24i_device_operand(ctx, "dst", dst, weight->dtype, weight->n, weight->k));
    const s24i_device_blocks_widen job = {dst, weight};
    return s24i_device_status(ctx, device->table->blocks_widen(device->gpu, &job, stream, &error),
                              &error);
}
