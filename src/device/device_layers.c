// SPDX-License-Identifier: Apache-2.0
/*
 * Checks what a transformer needs on a device next to 2:4 products, and hands it on to the plugin.
 */
#include "device/device_room.h"

#include <float.h>

/* Runs an entry of the device's table on a job. */
#define RUN(entry, job)                                                                            \
    s24i_device_status(ctx, device->table->entry(device->gpu, job, (job)->stream, &error), &error)

static s24_status not_null(s24_ctx *ctx, const void *pointer, const char *name)
{
    REQUIRE(ctx, pointer, S24_ERROR_ARGUMENT, "%s is NULL", name);
    return S24_OK;
}

static s24_status aligned(s24_ctx *ctx, const void *pointer, const char *name)
{
    TRY(not_null(ctx, pointer, name));
    REQUIRE(ctx, (uintptr_t)pointer % 16 == 0, S24_ERROR_ARGUMENT,
            "%s is at %p; expected a multiple of 16 bytes", name, pointer);
    return S24_OK;
}

/* A matrix of f16 or bf16 in the copy engine's reach: rows and columns 0 are anything. */
static s24_status operand(s24_ctx *ctx, const char *name, const s24_dense *d, s24_dtype dtype,
                          int64_t rows, int64_t cols)
{
    TRY(not_null(ctx, d, name));
    TRY(s24i_dense_check(ctx, name, d));
    TRY(aligned(ctx, d->data, name));
    REQUIRE(ctx, d->dtype == S24_F16 || d->dtype == S24_BF16, S24_ERROR_DTYPE,
            "%s is %s; expected f16 or bf16", name, s24_dtype_name(d->dtype));
    REQUIRE(ctx, !dtype || d->dtype == dtype, S24_ERROR_DTYPE, "%s is %s; expected %s", name,
            s24_dtype_name(d->dtype), s24_dtype_name(dtype));
    REQUIRE(ctx, (!rows || d->rows == rows) && (!cols || d->cols == cols), S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", name, d->rows,
            d->cols, rows ? rows : d->rows, cols ? cols : d->cols);
    REQUIRE(ctx, d->cols % 8 == 0 && s24i_dense_ld(d) % 8 == 0 && d->rows < INT32_MAX / 2,
            S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "], rows %" PRId64
            " elements apart; expected columns and distance that 8 divides, and fewer rows than "
            "%d",
            name, d->rows, d->cols, s24i_dense_ld(d), INT32_MAX / 2);
    return S24_OK;
}

/* Checks rows of 8 bits that x, [rows, cols], is quantised to. */
static s24_status narrow_rows(s24_ctx *ctx, const char *name, const s24_dense *d,
                              const s24_dense *x)
{
    TRY(not_null(ctx, d, name));
    TRY(s24i_dense_check(ctx, name, d));
    TRY(aligned(ctx, d->data, name));
    REQUIRE(ctx, d->dtype == S24_I8 || d->dtype == S24_E4M3, S24_ERROR_DTYPE,
            "%s is %s; expected i8 or e4m3", name, s24_dtype_name(d->dtype));
    REQUIRE(ctx, d->rows == x->rows && d->cols == x->cols && s24i_dense_ld(d) == d->cols,
            S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64
            "] without a stride",
            name, d->rows, d->cols, x->rows, x->cols);
    return S24_OK;
}

static s24_status contiguous(s24_ctx *ctx, const char *name, const s24_dense *d)
{
    REQUIRE(ctx, s24i_dense_ld(d) == d->cols, S24_ERROR_SHAPE,
            "%s has rows %" PRId64 " elements apart; expected its columns, %" PRId64, name,
            s24i_dense_ld(d), d->cols);
    return S24_OK;
}

/* ---- dense products -------------------------------------------------------------------------- */

/* Of f32: logits, of any number of outputs, with nothing added. */
static s24_status wide_check(s24_ctx *ctx, const s24_device_dense_args *a)
{
    TRY(s24i_dense_check(ctx, "y", a->y));
    TRY(aligned(ctx, a->y->data, "y"));
    REQUIRE(ctx,
            a->y->rows == a->x->rows && a->y->cols == a->w->rows && s24i_dense_ld(a->y) % 4 == 0,
            S24_ERROR_SHAPE,
            "y is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64
            "], rows a multiple of 4 apart",
            a->y->rows, a->y->cols, a->x->rows, a->w->rows);
    REQUIRE(ctx, !a->bias && !a->activation && !a->residual, S24_ERROR_UNSUPPORTED,
            "a dense product with an f32 y has no bias, no activation and no residual");
    return S24_OK;
}

/* Of e4m3: tokens and weight as they lie, each with a scale. */
static s24_status eight_check(s24_ctx *ctx, const s24_device_dense_args *a)
{
    const s24_dense *const operands[] = {a->x, a->w};
    for (int i = 0; i < 2; i++) {
        TRY(not_null(ctx, operands[i], i ? "w" : "x"));
        TRY(narrow_rows(ctx, i ? "w" : "x", operands[i],
                        &(s24_dense){NULL, a->x->dtype, operands[i]->rows, a->x->cols, 0}));
        REQUIRE(ctx, operands[i]->dtype == a->x->dtype && operands[i]->cols % 16 == 0,
                S24_ERROR_DTYPE, "%s is %s of %" PRId64 " columns; expected %s, multiples of 16",
                i ? "w" : "x", s24_dtype_name(operands[i]->dtype), operands[i]->cols,
                s24_dtype_name(a->x->dtype));
    }
    TRY(aligned(ctx, a->x_scale, "x_scale"));
    TRY(aligned(ctx, a->w_scale, "w_scale"));
    TRY(operand(ctx, "y", a->y, S24_BF16, a->x->rows, a->w->rows));
    REQUIRE(ctx, !a->residual, S24_ERROR_UNSUPPORTED, "a dense product in %s has no residual",
            s24_dtype_name(a->x->dtype));
    if (a->x->dtype == S24_I8)
        REQUIRE(ctx, a->work_bytes >= (size_t)(8 * a->w->rows + 512), S24_ERROR_ARGUMENT,
                "work_bytes is %zu; expected at least %" PRId64 ", twice a token's sums and 512",
                a->work_bytes, 8 * a->w->rows + 512);
    return S24_OK;
}

/* What our own kernel takes in: no other has it. */
static s24_status ends_check(s24_ctx *ctx, const s24_device_dense_args *a)
{
    const int wide = a->y->dtype == S24_F32;
    REQUIRE(ctx, a->few && !a->x_scale && !wide, S24_ERROR_UNSUPPORTED,
            "a dense product%s takes in no norm and no gate",
            wide         ? " with an f32 y"
            : a->x_scale ? " in e4m3"
                         : " that may not have our own kernel");
    REQUIRE(ctx, !a->gated || a->w->rows % 2 == 0, S24_ERROR_SHAPE,
            "w has %" PRId64 " rows; as many of the gate as of what it is multiplied with were "
            "expected",
            a->w->rows);
    if (!a->gamma) return S24_OK;
    TRY(aligned(ctx, a->gamma, "gamma"));
    REQUIRE(ctx, a->eps >= 0 && a->eps <= FLT_MAX, S24_ERROR_ARGUMENT,
            "eps is %g; a finite number of at least 0 was expected", (double)a->eps);
    return S24_OK;
}

static s24_status dense_check(s24_ctx *ctx, const s24_device_dense_args *a)
{
    TRY(not_null(ctx, a->x, "x"));
    if (a->x->dtype == S24_E4M3 || a->x->dtype == S24_I8) return eight_check(ctx, a);
    REQUIRE(ctx, !a->x_scale && !a->w_scale, S24_ERROR_ARGUMENT,
            "scales of a dense product of %s; i8 and e4m3 alone have them",
            s24_dtype_name(a->x->dtype));
    TRY(operand(ctx, "x", a->x, S24_DTYPE_NONE, 0, 0));
    TRY(operand(ctx, "w", a->w, a->x->dtype, 0, a->x->cols));
    TRY(contiguous(ctx, "w", a->w));
    TRY(not_null(ctx, a->y, "y"));
    if (a->gamma || a->gated) TRY(ends_check(ctx, a));
    const int64_t n = a->w->rows / (a->gated ? 2 : 1);
    if (a->y->dtype == S24_F32)
        TRY(wide_check(ctx, a));
    else
        TRY(operand(ctx, "y", a->y, a->x->dtype, a->x->rows, n));
    if (a->residual) TRY(operand(ctx, "residual", a->residual, a->x->dtype, a->x->rows, n));
    REQUIRE(ctx, (int)a->activation >= 0 && a->activation <= S24_ACTIVATION_SILU,
            S24_ERROR_ARGUMENT, "activation is %d; expected 0 to %d", (int)a->activation,
            (int)S24_ACTIVATION_SILU);
    REQUIRE(ctx, a->gated || !a->activation || !a->residual, S24_ERROR_UNSUPPORTED,
            "a dense product on a device has an activation or a residual, not both");
    if (a->bias) TRY(aligned(ctx, a->bias, "bias"));
    REQUIRE(ctx, a->work || !a->work_bytes, S24_ERROR_ARGUMENT, "work is NULL, work_bytes %zu",
            a->work_bytes);
    return S24_OK;
}

s24_status s24_device_dense(s24_ctx *ctx, s24_device *device, const s24_device_dense_args *args)
{
    s24i_device_error error = {""};
    s24_device_dense_args known;
    READ_ARGS(known, args, "s24_device_dense_args");
    TRY(dense_check(ctx, &known));
    return RUN(dense, &known);
}

s24_status s24_device_dense_search(double *seconds, s24_ctx *ctx, s24_device *device,
                                   const s24_device_dense_args *args)
{
    s24i_device_error error = {""};
    s24_device_dense_args known;
    if (!seconds) return S24_ERROR_ARGUMENT;
    READ_ARGS(known, args, "s24_device_dense_args");
    TRY(dense_check(ctx, &known));
    REQUIRE(ctx, !known.gamma && !known.gated, S24_ERROR_UNSUPPORTED,
            "a search among dense products that take in a norm or a gate; there is one of them");
    return s24i_device_status(
        ctx, device->table->dense_search(device->gpu, &known, seconds, known.stream, &error),
        &error);
}

/* ---- rows ------------------------------------------------------------------------------------ */

s24_status s24_device_norm(s24_ctx *ctx, s24_device *device, const s24_device_norm_args *args)
{
    s24i_device_error error = {""};
    s24_device_norm_args a;
    READ_ARGS(a, args, "s24_device_norm_args");
    const int only_sum = !a.y && a.sum;
    if (only_sum) a.y = a.sum; /* for its shape */
    TRY(operand(ctx, "y", a.y, S24_DTYPE_NONE, 0, 0));
    TRY(contiguous(ctx, "y", a.y));
    REQUIRE(ctx, a.y->cols <= 2048, S24_ERROR_UNSUPPORTED,
            "a norm of %" PRId64 " elements a row; a device has it up to 2048", a.y->cols);
    if (a.x) {
        TRY(operand(ctx, "x", a.x, a.y->dtype, a.y->rows, a.y->cols));
        TRY(contiguous(ctx, "x", a.x));
        if (a.residual) {
            TRY(operand(ctx, "residual", a.residual, a.y->dtype, a.y->rows, a.y->cols));
            TRY(contiguous(ctx, "residual", a.residual));
        }
    } else {
        TRY(not_null(ctx, a.ids, "ids"));
        TRY(aligned(ctx, a.words, "words"));
        if (a.type_rows) TRY(aligned(ctx, a.type_rows, "type_rows"));
    }
    if (a.position_rows) {
        TRY(not_null(ctx, a.positions, "positions"));
        TRY(aligned(ctx, a.position_rows, "position_rows"));
    }
    if (a.sum) {
        TRY(operand(ctx, "sum", a.sum, a.y->dtype, a.y->rows, a.y->cols));
        TRY(contiguous(ctx, "sum", a.sum));
    }
    if (a.narrow) TRY(narrow_rows(ctx, "narrow", a.narrow, a.y));
    if (a.narrow) TRY(aligned(ctx, a.narrow_scale, "the scale"));
    REQUIRE(ctx, a.narrow_fixed >= 0 && a.narrow_fixed <= FLT_MAX, S24_ERROR_ARGUMENT,
            "narrow_fixed is %g; expected a finite number from 0 on", (double)a.narrow_fixed);
    if (!only_sum) TRY(aligned(ctx, a.gamma, "gamma"));
    if (!only_sum) TRY(aligned(ctx, a.beta, "beta"));
    /* The device takes the caller's struct: what does not count here is not there. */
    if (only_sum) a.y = a.narrow = NULL;
    if (a.x) a.ids = NULL;
    if (a.x) a.type_rows = NULL;
    if (!a.x) a.residual = NULL;
    return RUN(norm, &a);
}

s24_status s24_device_quantise(s24_ctx *ctx, s24_device *device,
                               const s24_device_quantise_args *args)
{
    s24i_device_error error = {""};
    s24_device_quantise_args a;
    READ_ARGS(a, args, "s24_device_quantise_args");
    TRY(operand(ctx, "x", a.x, S24_DTYPE_NONE, 0, 0));
    TRY(narrow_rows(ctx, "y", a.y, a.x));
    TRY(aligned(ctx, a.scale, "the scale"));
    REQUIRE(ctx, a.x->cols <= 8192, S24_ERROR_UNSUPPORTED,
            "rows of %" PRId64 " elements; a device quantises up to 8192", a.x->cols);
    return RUN(quantise, &a);
}

s24_status s24_device_row_norm(s24_ctx *ctx, s24_device *device,
                               const s24_device_row_norm_args *args)
{
    enum { MOST_WIDTH = 16384 };
    s24i_device_error error = {""};
    s24_device_row_norm_args a;
    READ_ARGS(a, args, "s24_device_row_norm_args");
    REQUIRE(ctx, a.rows > 0 && a.rows < INT32_MAX / 2 && a.width > 0 && a.width <= MOST_WIDTH,
            S24_ERROR_UNSUPPORTED,
            "a norm of [%" PRId64 ", %" PRId64 "]; a device has it up to %d elements a row", a.rows,
            a.width, MOST_WIDTH);
    const s24_dense y = {a.y, a.dtype, a.rows, a.width, 0},
                    sum = {a.sum, a.dtype, a.rows, a.width, 0},
                    x = {(void *)(uintptr_t)a.x, a.dtype, a.rows, a.width, 0};
    TRY(operand(ctx, "y", &y, S24_DTYPE_NONE, 0, 0));
    TRY(operand(ctx, "sum", &sum, S24_DTYPE_NONE, 0, 0));
    if (a.x) TRY(operand(ctx, "x", &x, S24_DTYPE_NONE, 0, 0));
    if (a.gamma || !a.bare) TRY(aligned(ctx, a.gamma, "gamma"));
    if (a.beta) TRY(aligned(ctx, a.beta, "beta"));
    REQUIRE(ctx, !a.adds || a.y != a.sum, S24_ERROR_ARGUMENT,
            "y is sum; expected another matrix, since y is added to");
    REQUIRE(ctx, !a.adds || !a.narrow, S24_ERROR_ARGUMENT,
            "narrow is given; expected NULL, since y is added to");
    if (a.narrow) TRY(narrow_rows(ctx, "narrow", a.narrow, &y));
    if (a.narrow) TRY(aligned(ctx, a.narrow_scale, "the scale"));
    return RUN(row_norm, &a);
}

s24_status s24_device_pool(s24_ctx *ctx, s24_device *device, const s24_device_pool_args *args)
{
    s24i_device_error error = {""};
    s24_device_pool_args a;
    READ_ARGS(a, args, "s24_device_pool_args");
    TRY(operand(ctx, "x", a.x, S24_DTYPE_NONE, 0, 0));
    TRY(contiguous(ctx, "x", a.x));
    TRY(not_null(ctx, a.y, "y"));
    TRY(not_null(ctx, a.offsets, "offsets"));
    REQUIRE(ctx, a.x->cols <= 8192 && a.texts > 0 && a.texts < INT32_MAX / 2, S24_ERROR_SHAPE,
            "pooling of %" PRId64 " texts of %" PRId64 " elements; expected 1 to %d and up to 8192",
            a.texts, a.x->cols, INT32_MAX / 2);
    REQUIRE(ctx, (int)a.pooling >= 0 && a.pooling < S24I_POOLINGS, S24_ERROR_ARGUMENT,
            "pooling is %d; expected 0 to %d", (int)a.pooling, (int)S24I_POOLINGS - 1);
    return RUN(pool, &a);
}

s24_status s24_device_head(s24_ctx *ctx, s24_device *device, const s24_device_head_args *args)
{
    s24i_device_error error = {""};
    s24_device_head_args a;
    READ_ARGS(a, args, "s24_device_head_args");
    TRY(operand(ctx, "x", a.x, S24_DTYPE_NONE, 0, 0));
    TRY(not_null(ctx, a.y, "y"));
    if (a.w) {
        TRY(operand(ctx, "w", a.w, a.x->dtype, 0, a.x->cols));
        TRY(contiguous(ctx, "w", a.w));
        TRY(not_null(ctx, a.bias, "bias"));
    }
    return RUN(head, &a);
}

s24_status s24_device_unfold(s24_ctx *ctx, s24_device *device, const s24_device_unfold_args *args)
{
    s24i_device_error error = {""};
    s24_device_unfold_args a;
    READ_ARGS(a, args, "s24_device_unfold_args");
    TRY(aligned(ctx, a.pixels, "pixels"));
    REQUIRE(ctx,
            a.images > 0 && a.channels > 0 && a.patch > 0 && a.image > 0 && a.first >= 0 &&
                a.image % a.patch == 0 && a.image <= 1 << 14 && a.channels <= 1 << 10 &&
                a.images < INT32_MAX && a.first < INT32_MAX,
            S24_ERROR_SHAPE,
            "%" PRId64 " images of %" PRId64 " channels, %" PRId64
            " pixels a side, patches of %" PRId64 " and %" PRId64
            " rows before; patches that divide an image were expected",
            a.images, a.channels, a.image, a.patch, a.first);
    const int64_t side = a.image / a.patch, row = a.channels * a.patch * a.patch;
    TRY(operand(ctx, "y", a.y, S24_DTYPE_NONE, a.images * (a.first + side * side), 0));
    TRY(contiguous(ctx, "y", a.y));
    REQUIRE(ctx, a.y->cols >= row, S24_ERROR_SHAPE,
            "y has %" PRId64 " columns; a patch has %" PRId64 " numbers", a.y->cols, row);
    return RUN(unfold, &a);
}

/* ---- attention ------------------------------------------------------------------------------- */

int s24_device_attention_queries(const s24_device *device, int64_t tokens, int64_t width,
                                 int64_t heads)
{
    if (!device || heads < 1 || width % heads) return 0;
    return device->table->attention_queries(width / heads, tokens, heads);
}

/* Of qkv's dtype, or of 8 bits with a scale. */
static s24_status context_check(s24_ctx *ctx, const s24_device_attention_args *a)
{
    const s24_dense of_qkv = {NULL, a->qkv->dtype, a->qkv->rows, a->qkv->cols / 3, 0};
    TRY(not_null(ctx, a->context, "context"));
    if (a->context->dtype != S24_I8 && a->context->dtype != S24_E4M3)
        return operand(ctx, "context", a->context, of_qkv.dtype, of_qkv.rows, of_qkv.cols);
    TRY(narrow_rows(ctx, "context", a->context, &of_qkv));
    REQUIRE(ctx, a->context_scale > 0 && a->context_scale <= FLT_MAX, S24_ERROR_ARGUMENT,
            "context_scale is %g of a context of %s; expected a finite number above 0",
            (double)a->context_scale, s24_dtype_name(a->context->dtype));
    return S24_OK;
}

s24_status s24_device_attention(s24_ctx *ctx, s24_device *device,
                                const s24_device_attention_args *args)
{
    s24i_device_error error = {""};
    s24_device_attention_args a;
    READ_ARGS(a, args, "s24_device_attention_args");
    TRY(operand(ctx, "qkv", a.qkv, S24_DTYPE_NONE, 0, 0));
    REQUIRE(ctx, a.heads > 0 && a.heads < 65536 && a.qkv->cols % (3 * a.heads) == 0,
            S24_ERROR_SHAPE,
            "qkv has %" PRId64 " columns; expected a multiple of three times the heads, %" PRId64,
            a.qkv->cols, a.heads);
    TRY(context_check(ctx, &a));
    TRY(not_null(ctx, a.offsets, "offsets"));
    TRY(not_null(ctx, a.tiles, "tiles"));
    REQUIRE(ctx, (uintptr_t)a.tiles % 8 == 0, S24_ERROR_ARGUMENT,
            "tiles is at %p; expected a multiple of 8 bytes", (const void *)a.tiles);
    REQUIRE(ctx, a.tile_count > 0 && a.tile_count < INT32_MAX / 2, S24_ERROR_SHAPE,
            "tile_count is %" PRId64 "; expected 1 to %d", a.tile_count, INT32_MAX / 2);
    return RUN(attention, &a);
}

int s24_device_attention_grid_takes(const s24_device *device, int64_t width, int64_t heads,
                                    int64_t side)
{
    if (!device || heads < 1 || width % heads) return 0;
    return device->table->attention_grid_takes(width / heads, side);
}

s24_status s24_device_attention_grid(s24_ctx *ctx, s24_device *device,
                                     const s24_device_attention_grid_args *args)
{
    s24i_device_error error = {""};
    s24_device_attention_grid_args a;
    READ_ARGS(a, args, "s24_device_attention_grid_args");
    REQUIRE(ctx,
            a.images > 0 && a.images < 1 << 15 && a.grid > 0 && a.grid < 1 << 10 && a.window >= 0 &&
                a.window <= a.grid,
            S24_ERROR_SHAPE,
            "%" PRId64 " images of %" PRId64 " tokens a side, windows of %" PRId64
            "; windows no larger than a grid below 1024 were expected",
            a.images, a.grid, a.window);
    TRY(operand(ctx, "qkv", a.qkv, S24_DTYPE_NONE, a.images * a.grid * a.grid, 0));
    REQUIRE(ctx, a.heads > 0 && a.heads < 65536 && a.qkv->cols % (3 * a.heads) == 0,
            S24_ERROR_SHAPE,
            "qkv has %" PRId64 " columns; expected a multiple of three times the heads, %" PRId64,
            a.qkv->cols, a.heads);
    TRY(operand(ctx, "context", a.context, a.qkv->dtype, a.qkv->rows, a.qkv->cols / 3));
    TRY(aligned(ctx, a.bias, "bias"));
    TRY(aligned(ctx, a.rel_h, "rel_h"));
    TRY(aligned(ctx, a.rel_w, "rel_w"));
    return RUN(attention_grid, &a);
}

/* ---- streams, graphs, time ------------------------------------------------------------------- */

static s24_status ready(s24_ctx *ctx, const s24_device *device, const void *out)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && out, S24_ERROR_ARGUMENT, "%s is NULL", device ? "the result" : "device");
    return S24_OK;
}

s24_status s24_device_stream_create(void **stream, s24_ctx *ctx, s24_device *device)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, (const void *)stream));
    return s24i_device_status(ctx, device->table->stream_create(device->gpu, stream, &error),
                              &error);
}

void s24_device_stream_destroy(s24_device *device, void *stream)
{
    if (device && stream) device->table->stream_destroy(device->gpu, stream);
}

int s24_device_enter(const s24_device *device)
{
    return device->table->enter(device->gpu);
}

void s24_device_leave(const s24_device *device, int before)
{
    device->table->leave(before);
}

int s24_device_is_same(const s24_device *device, const s24_device *other)
{
    return device == other || (device && other && device->index == other->index);
}

s24_status s24_device_stream_follow(s24_ctx *ctx, s24_device *device, void *stream, void *first)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, device));
    return s24i_device_status(ctx, device->table->stream_follow(device->gpu, stream, first, &error),
                              &error);
}

s24_status s24_device_stream_done(int *done, s24_ctx *ctx, s24_device *device, void *stream)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, done));
    return s24i_device_status(ctx, device->table->stream_done(device->gpu, done, stream, &error),
                              &error);
}

s24_status s24_device_graph_begin(s24_ctx *ctx, s24_device *device, void *stream)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, device));
    return s24i_device_status(ctx, device->table->graph_begin(device->gpu, stream, &error), &error);
}

/* A graph's handle is the plugin's. */
s24_status s24_device_graph_end(s24_device_graph **out, s24_ctx *ctx, s24_device *device,
                                void *stream)
{
    s24i_device_error error = {""};
    void *graph;
    TRY(ready(ctx, device, (const void *)out));
    const s24_status status = device->table->graph_end(device->gpu, &graph, stream, &error);
    *out = graph;
    return s24i_device_status(ctx, status, &error);
}

s24_status s24_device_graph_launch(s24_ctx *ctx, s24_device *device, const s24_device_graph *graph,
                                   void *stream)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, graph));
    void *handle = (void *)(uintptr_t)graph;
    return s24i_device_status(ctx, device->table->graph_launch(device->gpu, handle, stream, &error),
                              &error);
}

void s24_device_graph_destroy(s24_device *device, s24_device_graph *graph)
{
    if (device && graph) device->table->graph_destroy(device->gpu, graph);
}

s24_status s24_device_pinned_alloc(void **out, s24_ctx *ctx, s24_device *device, size_t bytes)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, (const void *)out));
    return s24i_device_status(ctx, device->table->pinned_alloc(device->gpu, out, bytes, &error),
                              &error);
}

void s24_device_pinned_free(s24_device *device, void *memory)
{
    if (device && memory) device->table->pinned_free(device->gpu, memory);
}

s24_status s24_device_timer_start(s24_ctx *ctx, s24_device *device, void *stream)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, device));
    return s24i_device_status(ctx, device->table->timer_start(device->gpu, stream, &error), &error);
}

s24_status s24_device_timer_stop(double *seconds, s24_ctx *ctx, s24_device *device, void *stream)
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, seconds));
    return s24i_device_status(ctx, device->table->timer_stop(device->gpu, seconds, stream, &error),
                              &error);
}
