// SPDX-License-Identifier: Apache-2.0
/* Language models token by token on a device: attention over a cache, and the likeliest token. */
#include "device/device_room.h"

#define RUN(entry, job)                                                                            \
    s24i_device_status(ctx, device->table->entry(device->gpu, job, (job)->stream, &error), &error)

enum { MOST_D = 256, MOST_BLOCKS = 65535 /* of a launch's second and third dimension */ };

static s24_status pointers_check(s24_ctx *ctx, const s24_device_attention_cache_args *a)
{
    const struct {
        const char *name;
        const void *pointer;
    } needed[] = {{"offsets", a->offsets}, {"places", a->places}, {"before", a->before},
                  {"qkv", a->qkv},         {"keys", a->keys},     {"values", a->values}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        REQUIRE(ctx, needed[i].pointer, S24_ERROR_ARGUMENT, "%s is NULL", needed[i].name);
    REQUIRE(ctx, ((uintptr_t)a->qkv | (uintptr_t)a->keys | (uintptr_t)a->values) % 16 == 0,
            S24_ERROR_ARGUMENT, "qkv, keys or values are at no multiple of 16 bytes");
    return S24_OK;
}

static s24_status cache_check(s24_ctx *ctx, const s24_device_attention_cache_args *a)
{
    TRY(pointers_check(ctx, a));
    REQUIRE(ctx, a->dtype == S24_F16 || a->dtype == S24_BF16, S24_ERROR_DTYPE,
            "the cache is %s; expected f16 or bf16", s24_dtype_name(a->dtype));
    REQUIRE(ctx, a->heads >= 1 && a->kv_heads >= 1 && a->heads % a->kv_heads == 0, S24_ERROR_SHAPE,
            "%" PRId64 " heads of queries, %" PRId64
            " of keys; expected that the second number divides the first",
            a->heads, a->kv_heads);
    REQUIRE(ctx, a->d >= 8 && a->d <= MOST_D && a->d % 8 == 0, S24_ERROR_UNSUPPORTED,
            "heads have %" PRId64 " elements; expected 8 to %d, which 8 divides", a->d, MOST_D);
    REQUIRE(ctx,
            a->texts >= 1 && a->texts <= MOST_BLOCKS && a->longest >= 1 && a->room >= a->longest &&
                a->room < INT32_MAX / 2 && a->heads * a->longest <= MOST_BLOCKS * a->kv_heads,
            S24_ERROR_SHAPE,
            "%" PRId64 " texts of up to %" PRId64 " new tokens and %" PRId64
            " in all; expected 1 to %d texts, and tokens that have room",
            a->texts, a->longest, a->room, MOST_BLOCKS);
    REQUIRE(ctx, a->window >= 0 && a->window < INT32_MAX / 2, S24_ERROR_ARGUMENT,
            "window is %" PRId64 "; expected 0 to %d", a->window, INT32_MAX / 2 - 1);
    REQUIRE(ctx, a->turned >= 0 && a->turned <= a->d && a->turned % 2 == 0, S24_ERROR_SHAPE,
            "%" PRId64 " elements of a head are turned; expected an even number up to %" PRId64,
            a->turned, a->d);
    REQUIRE(ctx, (uintptr_t)a->sinks % sizeof(float) == 0, S24_ERROR_ARGUMENT,
            "sinks is at %p; expected a multiple of 4 bytes", (const void *)a->sinks);
    REQUIRE(ctx, a->value_d >= 0 && a->value_d <= a->d && a->value_d % 8 == 0, S24_ERROR_SHAPE,
            "values have %" PRId64 " elements; expected up to %" PRId64 ", which 8 divides",
            a->value_d, a->d);
    REQUIRE(ctx, a->scale >= 0 && a->cap >= 0, S24_ERROR_ARGUMENT,
            "scores have a scale of %g and a cap of %g; expected no less than 0", (double)a->scale,
            (double)a->cap);
    return S24_OK;
}

size_t s24_device_attention_cache_work_bytes(const s24_device *device, int64_t texts, int64_t heads,
                                             int64_t d)
{
    return device ? device->table->attention_cache_work_bytes(texts, heads, d) : 0;
}

s24_status s24_device_cache_put(s24_ctx *ctx, s24_device *device,
                                const s24_device_attention_cache_args *args)
{
    s24i_device_error error = {""};
    s24_device_attention_cache_args a;
    READ_ARGS(a, args, "s24_device_attention_cache_args");
    TRY(cache_check(ctx, &a));
    return RUN(cache_put, &a);
}

s24_status s24_device_attention_cache(s24_ctx *ctx, s24_device *device,
                                      const s24_device_attention_cache_args *args)
{
    s24i_device_error error = {""};
    s24_device_attention_cache_args a;
    READ_ARGS(a, args, "s24_device_attention_cache_args");
    TRY(cache_check(ctx, &a));
    REQUIRE(ctx, a.context && a.work && a.counters, S24_ERROR_ARGUMENT, "%s is NULL",
            !a.context ? "context"
            : !a.work  ? "work"
                       : "counters");
    return RUN(attention_cache, &a);
}

/* ---- latents --------------------------------------------------------------------------------- */

static s24_status latent_pointers_check(s24_ctx *ctx, const s24_device_latent_args *a)
{
    const struct {
        const char *name;
        const void *pointer;
    } needed[] = {{"queries", a->queries}, {"key", a->key},           {"made", a->made},
                  {"angles", a->angles},   {"position", a->position}, {"qkv", a->qkv}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        REQUIRE(ctx, needed[i].pointer && (uintptr_t)needed[i].pointer % 16 == 0,
                S24_ERROR_ARGUMENT, "%s is at %p; expected a multiple of 16 bytes", needed[i].name,
                needed[i].pointer);
    return S24_OK;
}

s24_status s24_device_latent(s24_ctx *ctx, s24_device *device, const s24_device_latent_args *args)
{
    s24i_device_error error = {""};
    s24_device_latent_args a;
    READ_ARGS(a, args, "s24_device_latent_args");
    TRY(latent_pointers_check(ctx, &a));
    REQUIRE(ctx, a.dtype == S24_F16 || a.dtype == S24_BF16, S24_ERROR_DTYPE,
            "latents are %s; expected f16 or bf16", s24_dtype_name(a.dtype));
    REQUIRE(ctx,
            a.tokens >= 1 && a.tokens < INT32_MAX / 2 && a.heads >= 1 && a.plain >= 8 &&
                a.turned >= 8 && a.value >= 8 && a.d <= MOST_D && a.plain + a.turned <= a.d &&
                a.value <= a.d && (a.plain | a.turned | a.value | a.d | a.key_ld) % 8 == 0 &&
                a.key_ld >= a.turned,
            S24_ERROR_SHAPE,
            "heads of %" PRId64 " and %" PRId64 " elements of keys, %" PRId64
            " of values, in %" PRId64 "; expected multiples of 8 within these, which are up to %d",
            a.plain, a.turned, a.value, a.d, MOST_D);
    return RUN(latent, &a);
}

/* ---- the likeliest token --------------------------------------------------------------------- */

size_t s24_device_pick_work_bytes(const s24_device *device, int64_t rows)
{
    return device ? device->table->pick_work_bytes(rows) : 0;
}

static s24_status logits_check(s24_ctx *ctx, const float *logits, int64_t rows, int64_t n,
                               int64_t ld)
{
    REQUIRE(ctx, logits && (uintptr_t)logits % 16 == 0, S24_ERROR_ARGUMENT,
            "logits is at %p; expected a multiple of 16 bytes", (const void *)logits);
    REQUIRE(ctx,
            rows >= 1 && rows <= MOST_BLOCKS && n >= 1 && n < INT32_MAX && ld >= n && ld % 4 == 0,
            S24_ERROR_SHAPE,
            "logits are [%" PRId64 ", %" PRId64 "], rows %" PRId64
            " apart; expected 1 to %d rows, and a distance that 4 divides",
            rows, n, ld, MOST_BLOCKS);
    return S24_OK;
}

s24_status s24_device_pick(s24_ctx *ctx, s24_device *device, const s24_device_pick_args *args)
{
    s24i_device_error error = {""};
    s24_device_pick_args a;
    READ_ARGS(a, args, "s24_device_pick_args");
    REQUIRE(ctx, a.logits && a.y && a.work, S24_ERROR_ARGUMENT, "%s is NULL",
            !a.logits ? "logits"
            : !a.y    ? "y"
                      : "work");
    TRY(logits_check(ctx, a.logits, a.rows, a.n, a.ld));
    return RUN(pick, &a);
}

s24_status s24_device_logits(s24_ctx *ctx, s24_device *device, const s24_device_logits_args *args)
{
    s24i_device_error error = {""};
    s24_device_logits_args a;
    READ_ARGS(a, args, "s24_device_logits_args");
    TRY(logits_check(ctx, a.logits, a.rows, a.n, a.ld));
    REQUIRE(ctx, a.factor >= 0 && a.cap >= 0, S24_ERROR_ARGUMENT,
            "logits have a factor of %g and a cap of %g; expected no less than 0", (double)a.factor,
            (double)a.cap);
    return RUN(logits, &a);
}
