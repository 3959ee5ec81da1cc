// SPDX-License-Identifier: Apache-2.0
/* Mixtures of experts on a device: the table of their weights, and the checks before the kernels
   that choose experts, multiply with them and sum up what they give. */
#include "device/device_train_room.h"

#include <math.h>

#define RUN(entry, job)                                                                            \
    s24i_device_status(ctx, device->table->entry(device->gpu, job, (job)->stream, &error), &error)

enum { MOST_BLOCKS = 65535, MOST_SIDE = 1 << 24 };

/* ---- the table ------------------------------------------------------------------------------- */

static s24_status check_shape(s24_ctx *ctx, const s24_device_experts_shape *shape)
{
    TRY(s24i_train_dtype(ctx, shape->dtype));
    REQUIRE(ctx,
            shape->n >= 8 && shape->k >= 8 && shape->n % 8 == 0 && shape->k % 8 == 0 &&
                shape->n < MOST_SIDE && shape->k < MOST_SIDE,
            S24_ERROR_SHAPE,
            "experts' weights are [%" PRId64 ", %" PRId64 "]; expected multiples of 8", shape->n,
            shape->k);
    REQUIRE(ctx,
            shape->experts >= 1 && shape->experts < S24_DEVICE_MOST_EXPERTS && shape->parts >= 1 &&
                shape->parts <= 2,
            S24_ERROR_SHAPE,
            "%" PRId64 " experts of %" PRId64 " parts; expected 1 to %d, and one part or two",
            shape->experts, shape->parts, S24_DEVICE_MOST_EXPERTS - 1);
    return S24_OK;
}

static s24_status fill(s24i_device_expert *to, s24_ctx *ctx, const s24_device_expert *from,
                       const s24_device_experts_shape *shape)
{
    for (int64_t i = 0; i < shape->experts * shape->parts; i++) {
        const s24_device_weight *packed = from[i].packed;
        REQUIRE(ctx, !packed != !from[i].dense, S24_ERROR_ARGUMENT,
                "weight %" PRId64 " of experts is %s; expected a packed or a dense one", i,
                packed ? "of both kinds" : "missing");
        REQUIRE(ctx,
                !packed || (packed->n == shape->n && packed->k == shape->k &&
                            packed->dtype == shape->dtype),
                S24_ERROR_SHAPE,
                "weight %" PRId64 " of experts is another one than [%" PRId64 ", %" PRId64
                "] of %s",
                i, shape->n, shape->k, s24_dtype_name(shape->dtype));
        REQUIRE(ctx, (uintptr_t)from[i].dense % 16 == 0, S24_ERROR_ARGUMENT,
                "weight %" PRId64 " of experts is at %p; expected a multiple of 16 bytes", i,
                from[i].dense);
        to[i] = (s24i_device_expert){packed ? packed->packed : from[i].dense, packed != NULL};
    }
    return S24_OK;
}

static s24_status upload(s24_device_experts *e, s24_ctx *ctx, const s24i_device_expert *table)
{
    const size_t bytes = (size_t)(e->experts * e->parts) * sizeof *table;
    void *memory;
    TRY(s24i_device_alloc(&memory, ctx, e->device, bytes, NULL, "a table of experts"));
    e->table = memory;
    TRY(s24_device_copy(ctx, e->device, memory, table, bytes, NULL));
    return s24_device_wait(ctx, e->device, NULL);
}

s24_status s24_device_experts_create(s24_device_experts **out, s24_ctx *ctx, s24_device *device,
                                     const s24_device_expert *weights,
                                     const s24_device_experts_shape *shape)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device && weights && shape, S24_ERROR_ARGUMENT, "%s is NULL",
            !device    ? "device"
            : !weights ? "weights"
                       : "shape");
    TRY(check_shape(ctx, shape));
    s24_device_experts *e = s24i_alloc(&ctx->allocator, sizeof *e);
    REQUIRE(ctx, e, S24_ERROR_MEMORY, "out of memory for experts");
    *e = (s24_device_experts){.allocator = ctx->allocator,
                              .device = device,
                              .dtype = shape->dtype,
                              .n = shape->n,
                              .k = shape->k,
                              .experts = shape->experts,
                              .parts = shape->parts};
    s24i_device_expert *table =
        s24_ctx_alloc(ctx, (size_t)(shape->experts * shape->parts) * sizeof *table);
    s24_status status = table ? fill(table, ctx, weights, shape)
                              : s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory for experts");
    if (status == S24_OK) status = upload(e, ctx, table);
    s24_ctx_free(ctx, table);
    GIVE(out, e, s24_device_experts_destroy, status);
}

void s24_device_experts_destroy(s24_device_experts *experts)
{
    if (!experts) return;
    s24_allocator allocator = experts->allocator;
    s24i_device_release(experts->device, (void *)(uintptr_t)experts->table, NULL);
    s24i_free(&allocator, experts);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static s24_status check_order(s24_ctx *ctx, const int32_t *order, const int32_t *begins)
{
    REQUIRE(ctx, !order == !begins, S24_ERROR_ARGUMENT, "%s is NULL; expected both or none",
            order ? "begins" : "order");
    return S24_OK;
}

static s24_status check_route(s24_ctx *ctx, const s24_device_route_args *a)
{
    const s24i_train_pointer pointers[] = {
        {"x", a->x, 0},           {"router", a->router, 0},
        {"gate", a->gate, 1},     {"correction", a->correction, 1},
        {"bias", a->bias, 1},     {"scores", a->scores, 0},
        {"chosen", a->chosen, 0}, {"weights", a->weights, 0},
        {"order", a->order, 1},   {"begins", a->begins, 1}};
    TRY(s24i_train_dtype(ctx, a->dtype));
    TRY(s24i_train_rows(ctx, a->tokens, a->width));
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx,
            a->experts >= 1 && a->experts < S24_DEVICE_MOST_EXPERTS && a->used >= 1 &&
                a->used <= a->experts && a->tokens <= INT32_MAX / a->used,
            S24_ERROR_SHAPE,
            "%" PRId64 " of %" PRId64 " experts; expected 1 to all of them, fewer than %d", a->used,
            a->experts, S24_DEVICE_MOST_EXPERTS);
    REQUIRE(ctx,
            a->groups >= 0 && a->groups <= S24_DEVICE_MOST_GROUPS &&
                (!a->groups || (a->experts % a->groups == 0 && a->groups_used >= 1 &&
                                a->groups_used <= a->groups &&
                                a->used <= a->experts / a->groups * a->groups_used)),
            S24_ERROR_SHAPE,
            "%" PRId64 " of %" PRId64 " groups of experts, %" PRId64 " of %" PRId64
            " experts; expected up to %d that divide them, and that as many are in those used",
            a->groups_used, a->groups, a->used, a->experts, S24_DEVICE_MOST_GROUPS);
    TRY(check_order(ctx, a->order, a->begins));
    REQUIRE(ctx, isfinite(a->factor) && a->jitter >= 0 && (a->jitter == 0 || a->used == 2),
            S24_ERROR_ARGUMENT,
            "weights have a factor of %g and a jitter of %g of %" PRId64
            " experts; expected a number, and no jitter but of two",
            (double)a->factor, (double)a->jitter, a->used);
    return S24_OK;
}

s24_status s24_device_route(s24_ctx *ctx, s24_device *device, const s24_device_route_args *args)
{
    s24i_device_error error = {""};
    s24_device_route_args a;
    READ_ARGS(a, args, "s24_device_route_args");
    TRY(check_route(ctx, &a));
    return RUN(route, &a);
}

s24_status s24_device_experts_multiply(s24_ctx *ctx, s24_device *device,
                                       const s24_device_experts_args *args)
{
    s24i_device_error error = {""};
    s24_device_experts_args a;
    READ_ARGS(a, args, "s24_device_experts_args");
    const s24i_train_pointer pointers[] = {{"x", a.x, 0},           {"y", a.y, 0},
                                           {"chosen", a.chosen, 0}, {"order", a.order, 1},
                                           {"begins", a.begins, 1}, {"bias", a.bias, 1}};
    REQUIRE(ctx, a.experts, S24_ERROR_ARGUMENT, "experts is NULL");
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    TRY(check_order(ctx, a.order, a.begins));
    REQUIRE(ctx,
            a.rows >= 1 && a.each >= 1 && a.rows % a.each == 0 &&
                a.rows <= (a.order ? INT32_MAX / 2 : MOST_BLOCKS),
            S24_ERROR_SHAPE,
            "%" PRId64 " rows, %" PRId64 " of each of x; expected a multiple of these, at most %d",
            a.rows, a.each, a.order ? INT32_MAX / 2 : MOST_BLOCKS);
    return RUN(experts, &a);
}

s24_status s24_device_mix(s24_ctx *ctx, s24_device *device, const s24_device_mix_args *args)
{
    s24i_device_error error = {""};
    s24_device_mix_args a;
    READ_ARGS(a, args, "s24_device_mix_args");
    const s24i_train_pointer pointers[] = {
        {"x", a.x, 0}, {"shared", a.shared, 1}, {"weights", a.weights, 0}, {"y", a.y, 0}};
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.tokens, a.width));
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.used >= 1 && a.used < S24_DEVICE_MOST_EXPERTS, S24_ERROR_SHAPE,
            "%" PRId64 " experts of a token; expected 1 and more, fewer than %d", a.used,
            S24_DEVICE_MOST_EXPERTS);
    return RUN(mix, &a);
}
