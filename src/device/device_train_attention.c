// SPDX-License-Identifier: Apache-2.0
/* Training on a device: attention forward and backward, rotary positions. */
#include "device/device_train_room.h"

#include <math.h>

enum {
    MOST_D = 256,
    MOST_D_BACK = 128,
    MOST_BLOCKS = 65535 /* of a launch's second and third dimension */
};

static s24_status heads_check(s24_ctx *ctx, int64_t tokens, int64_t heads, int64_t kv_heads,
                              int64_t d)
{
    REQUIRE(ctx, tokens >= 1 && tokens < INT32_MAX / 2, S24_ERROR_SHAPE,
            "tokens is %" PRId64 "; expected 1 to %d", tokens, INT32_MAX / 2 - 1);
    REQUIRE(ctx, heads >= 1 && heads <= MOST_BLOCKS && kv_heads >= 1 && heads % kv_heads == 0,
            S24_ERROR_SHAPE,
            "%" PRId64 " heads of queries, %" PRId64
            " of keys; expected 1 to %d, and that the second number divides the first",
            heads, kv_heads, MOST_BLOCKS);
    REQUIRE(ctx, d >= 8 && d <= MOST_D && d % 8 == 0, S24_ERROR_UNSUPPORTED,
            "heads have %" PRId64 " elements; expected 8 to %d, which 8 divides", d, MOST_D);
    return S24_OK;
}

size_t s24_device_train_attention_work_bytes(const s24_device *device, int64_t tokens,
                                             int64_t texts, int64_t longest, int64_t heads,
                                             int64_t buckets)
{
    if (!device || !device->table->train->attention_work_bytes) return 0;
    return device->table->train->attention_work_bytes(tokens, texts, longest, heads, buckets);
}

static s24_status attention_check(s24_ctx *ctx, const s24_device_train_attention_args *a)
{
    const s24i_train_pointer pointers[] = {{"offsets", a->offsets, 0},
                                           {"mask", a->mask, 1},
                                           {"qkv", a->qkv, 0},
                                           {"context", a->context, 0},
                                           {"lse", a->lse, 1}};
    TRY(s24i_train_dtype(ctx, a->dtype));
    TRY(heads_check(ctx, a->tokens, a->heads, a->kv_heads, a->d));
    TRY(s24i_train_pointers(ctx, pointers, sizeof pointers / sizeof *pointers));
    REQUIRE(ctx,
            a->texts >= 1 && a->texts <= MOST_BLOCKS && a->longest >= 1 && a->longest <= a->tokens,
            S24_ERROR_SHAPE,
            "%" PRId64 " texts of up to %" PRId64
            " tokens; expected 1 to %d texts, the longest of 1 to all %" PRId64 " tokens",
            a->texts, a->longest, MOST_BLOCKS, a->tokens);
    REQUIRE(ctx, a->window >= 0 && a->window < INT32_MAX / 2, S24_ERROR_ARGUMENT,
            "window is %" PRId64 "; expected 0 to %d", a->window, INT32_MAX / 2 - 1);
    REQUIRE(ctx, a->drop.rate >= 0 && a->drop.rate < 1, S24_ERROR_ARGUMENT,
            "drop.rate is %g; expected 0 to less than 1", (double)a->drop.rate);
    REQUIRE(ctx, a->scale >= 0 && isfinite(a->scale), S24_ERROR_ARGUMENT,
            "scale is %g; expected 0 or more", (double)a->scale);
    REQUIRE(ctx, a->cap >= 0 && !(a->cap > 0 && a->lse), S24_ERROR_ARGUMENT,
            "cap is %g; expected 0, or more where lse is not asked for", (double)a->cap);
    REQUIRE(ctx, a->value_d >= 0 && a->value_d <= a->d && a->value_d % 8 == 0, S24_ERROR_SHAPE,
            "values have %" PRId64 " elements; expected up to %" PRId64 ", which 8 divides",
            a->value_d, a->d);
    REQUIRE(ctx, !a->sinks || (!a->lse && (uintptr_t)a->sinks % sizeof(float) == 0),
            S24_ERROR_ARGUMENT,
            "sinks is at %p; expected a multiple of 4 bytes, and that lse is not asked for",
            (const void *)a->sinks);
    return S24_OK;
}

static int grows(const s24_device_train_attention_args *a)
{
    return a->distances || a->apart_rows;
}

static s24_status growth_check(s24_ctx *ctx, const s24_device_train_attention_args *a)
{
    const s24i_train_pointer pointers[] = {{"distances", a->distances, 1},
                                           {"apart_rows", a->apart_rows, 1},
                                           {"of_queries", a->of_queries, 1},
                                           {"of_keys", a->of_keys, 1}};
    if (!grows(a)) return S24_OK;
    TRY(s24i_train_pointers(ctx, pointers, sizeof pointers / sizeof *pointers));
    REQUIRE(ctx, a->zero >= a->longest - 1 && a->zero < INT32_MAX / 2, S24_ERROR_SHAPE,
            "distance 0 stands at %" PRId64 "; expected at least %" PRId64 ", for texts of %" PRId64
            " tokens",
            a->zero, a->longest - 1, a->longest);
    return S24_OK;
}

/* A table whose gradients are asked for. */
static s24_status table_check(s24_ctx *ctx, const s24_device_train_attention_args *a)
{
    const s24i_train_pointer pointers[] = {
        {"distances", a->distances, 0}, {"buckets", a->buckets, 0}, {"dtable", a->dtable, 0}};
    if (!a->buckets) return S24_OK;
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a->bucket_count >= 1 && a->bucket_count <= S24_DEVICE_BUCKETS,
            S24_ERROR_UNSUPPORTED,
            "a table of distances has %" PRId64 " buckets; a device sums gradients of 1 to %d",
            a->bucket_count, S24_DEVICE_BUCKETS);
    return S24_OK;
}

s24_status s24_device_train_attention(s24_ctx *ctx, s24_device *device,
                                      const s24_device_train_attention_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_attention_args a;
    READ_ARGS(a, args, "s24_device_train_attention_args");
    TRY(attention_check(ctx, &a));
    TRY(growth_check(ctx, &a));
    return TRAIN_RUN(attention, &a);
}

s24_status s24_device_train_attention_back(s24_ctx *ctx, s24_device *device,
                                           const s24_device_train_attention_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_attention_args a;
    READ_ARGS(a, args, "s24_device_train_attention_args");
    TRY(attention_check(ctx, &a));
    TRY(growth_check(ctx, &a));
    TRY(table_check(ctx, &a));
    REQUIRE(ctx, !a.apart_rows && !a.value_d, S24_ERROR_ARGUMENT,
            "attention by products with distances, or with a width of values of its own, runs "
            "forward alone");
    REQUIRE(ctx, a.d <= MOST_D_BACK, S24_ERROR_UNSUPPORTED,
            "heads have %" PRId64 " elements; expected up to %d backward", a.d, MOST_D_BACK);
    const s24i_train_pointer pointers[] = {
        {"lse", a.lse, 0}, {"dcontext", a.dcontext, 0}, {"dqkv", a.dqkv, 0}, {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, sizeof pointers / sizeof *pointers));
    const size_t bytes = s24_device_train_attention_work_bytes(
        device, a.tokens, a.texts, a.longest, a.heads, a.buckets ? a.bucket_count : 0);
    REQUIRE(ctx, a.work_bytes >= bytes, S24_ERROR_ARGUMENT,
            "work_bytes is %zu; expected at least %zu", a.work_bytes, bytes);
    return TRAIN_RUN(attention_back, &a);
}

s24_status s24_device_train_distances(s24_ctx *ctx, s24_device *device,
                                      const s24_device_train_distances_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_distances_args a;
    READ_ARGS(a, args, "s24_device_train_distances_args");
    const s24i_train_pointer pointers[] = {
        {"to", a.to, 0}, {"table", a.table, 0}, {"buckets", a.buckets, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.count >= 1 && a.ld >= a.count && a.heads >= 1 && a.heads <= MOST_BLOCKS,
            S24_ERROR_SHAPE,
            "%" PRId64 " distances of %" PRId64 " heads, %" PRId64
            " apart; expected one and more, 1 to %d, and at least as many as distances",
            a.count, a.heads, a.ld, MOST_BLOCKS);
    REQUIRE(ctx, isfinite(a.factor), S24_ERROR_ARGUMENT, "factor is %g; expected a number",
            (double)a.factor);
    return TRAIN_RUN(distances, &a);
}

s24_status s24_device_train_rotate(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_rotate_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_rotate_args a;
    READ_ARGS(a, args, "s24_device_train_rotate_args");
    const s24i_train_pointer pointers[] = {
        {"qkv", a.qkv, 0}, {"angles", a.angles, 0}, {"position", a.position, 0}};
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(heads_check(ctx, a.tokens, a.heads, a.kv_heads, a.d));
    TRY(s24i_train_pointers(ctx, pointers, sizeof pointers / sizeof *pointers));
    REQUIRE(ctx, a.turned >= 0 && a.turned <= a.d && a.turned % 2 == 0, S24_ERROR_SHAPE,
            "%" PRId64 " elements of a head are turned; expected an even number up to %" PRId64,
            a.turned, a.d);
    return TRAIN_RUN(rotate, &a);
}
