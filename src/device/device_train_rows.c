// SPDX-License-Identifier: Apache-2.0
/* Training on a device, row by row: norms, activations, embeddings. */
#include "device/device_train_room.h"

/* Refuses a rate that is none; the comparison is such that a NaN fails too. */
static s24_status check_rate(s24_ctx *ctx, const s24_device_dropout *drop)
{
    REQUIRE(ctx, drop->rate >= 0.0f && drop->rate < 1.0f, S24_ERROR_ARGUMENT,
            "a dropout of %g; expected 0 to less than 1", (double)drop->rate);
    return S24_OK;
}

static s24_status check_activation(s24_ctx *ctx, s24_activation activation)
{
    REQUIRE(ctx, (int)activation >= 0 && activation <= S24_ACTIVATION_GELU_QUICK,
            S24_ERROR_ARGUMENT, "activation is %d; expected 0 to %d", (int)activation,
            (int)S24_ACTIVATION_GELU_QUICK);
    return S24_OK;
}

static s24_status check_norm_width(s24_ctx *ctx, int64_t width)
{
    REQUIRE(ctx, width <= 8192, S24_ERROR_UNSUPPORTED,
            "a norm of %" PRId64 " elements a row; a device has it up to 8192", width);
    return S24_OK;
}

s24_status s24_device_train_dropout(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_dropout_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_dropout_args a;
    READ_ARGS(a, args, "s24_device_train_dropout_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.width));
    TRY(check_rate(ctx, &a.drop));
    const s24i_train_pointer pointers[] = {{"y", a.y, 0}, {"x", a.x, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    return TRAIN_RUN(dropout, &a);
}

s24_status s24_device_train_sums(s24_ctx *ctx, s24_device *device,
                                 const s24_device_train_sums_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_sums_args a;
    READ_ARGS(a, args, "s24_device_train_sums_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    REQUIRE(ctx, a.rows >= 1 && a.cols >= 1 && a.ld % 8 == 0 && a.cols <= a.ld, S24_ERROR_SHAPE,
            "[%" PRId64 ", %" PRId64 "] elements, rows %" PRId64
            " apart; expected at least one, and a distance that 8 divides and that holds them",
            a.rows, a.cols, a.ld);
    REQUIRE(ctx, a.sums && (uintptr_t)a.sums % 4 == 0, S24_ERROR_ARGUMENT,
            "sums is at %p; expected a multiple of 4 bytes", (void *)a.sums);
    const s24i_train_pointer pointers[] = {{"x", a.x, 0}, {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    return TRAIN_RUN(sums, &a);
}

/* Rows that are heads of a matrix's rows, and have nothing else then. */
static s24_status check_heads(s24_ctx *ctx, int64_t rows, int64_t width, int64_t heads, int64_t ld)
{
    REQUIRE(ctx,
            heads >= 0 && (!heads || (rows % heads == 0 && ld % 8 == 0 && ld / heads >= width)),
            S24_ERROR_SHAPE,
            "%" PRId64 " rows of %" PRId64 ", %" PRId64 " of them side by side in rows %" PRId64
            " apart; expected whole rows, and a distance that 8 divides and that holds them",
            rows, width, heads, ld);
    return S24_OK;
}

s24_status s24_device_train_add_norm(s24_ctx *ctx, s24_device *device,
                                     const s24_device_train_add_norm_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_add_norm_args a;
    READ_ARGS(a, args, "s24_device_train_add_norm_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.width));
    TRY(check_norm_width(ctx, a.width));
    TRY(check_rate(ctx, &a.drop));
    const s24i_train_pointer pointers[] = {
        {"y", a.y, 0},        {"s", a.s, 0}, {"stats", a.stats, 0},       {"gamma", a.gamma, 0},
        {"beta", a.beta, 1},  {"z", a.z, 1}, {"residual", a.residual, 1}, {"bias", a.bias, 1},
        {"scale", a.scale, 1}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.z || (!a.residual && !a.bias && !(a.drop.rate > 0.0f)), S24_ERROR_ARGUMENT,
            "z is NULL, so s is there already; expected neither residual nor bias nor dropout");
    TRY(check_heads(ctx, a.rows, a.width, a.heads, a.ld));
    REQUIRE(ctx, !a.heads || !a.z, S24_ERROR_ARGUMENT, "z is given for rows that are heads");
    return TRAIN_RUN(add_norm, &a);
}

s24_status s24_device_train_norm_back(s24_ctx *ctx, s24_device *device,
                                      const s24_device_train_norm_back_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_norm_back_args a;
    READ_ARGS(a, args, "s24_device_train_norm_back_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.width));
    TRY(check_norm_width(ctx, a.width));
    TRY(check_rate(ctx, &a.drop));
    TRY(check_rate(ctx, &a.drop_z));
    const s24i_train_pointer pointers[] = {
        {"ds", a.ds, 0},       {"dy", a.dy, 0},       {"s", a.s, 0},
        {"stats", a.stats, 0}, {"gamma", a.gamma, 0}, {"dgamma", a.dgamma, 0},
        {"dbeta", a.dbeta, 1}, {"work", a.work, 0},   {"dy2", a.dy2, 1},
        {"dz", a.dz, 1},       {"dbias", a.dbias, 1}, {"scale", a.scale, 1}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, !(a.drop_z.rate > 0.0f) || a.dz, S24_ERROR_ARGUMENT,
            "drop_z has a rate of %g and dz is NULL", (double)a.drop_z.rate);
    REQUIRE(ctx, !a.dz || (a.dz != a.ds && a.dz != a.dy && a.dz != a.s), S24_ERROR_ARGUMENT,
            "dz is ds, dy or s; expected memory of its own");
    TRY(check_heads(ctx, a.rows, a.width, a.heads, a.ld));
    REQUIRE(ctx, !a.heads || (!a.dz && !a.dbias), S24_ERROR_ARGUMENT,
            "dz or dbias is given for rows that are heads");
    return TRAIN_RUN(norm_back, &a);
}

s24_status s24_device_train_activate(s24_ctx *ctx, s24_device *device,
                                     const s24_device_train_activate_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_activate_args a;
    READ_ARGS(a, args, "s24_device_train_activate_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.width));
    TRY(check_activation(ctx, a.activation));
    const s24i_train_pointer pointers[] = {{"h", a.h, 0}, {"u", a.u, 0}, {"scale", a.scale, 1}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.limit >= 0 && !(a.limit > 0 && (!a.gated || a.h == a.u)), S24_ERROR_ARGUMENT,
            "limit is %g; expected 0, or more of a gate whose h is not u", (double)a.limit);
    REQUIRE(ctx, !(a.limit > 0) || !a.scale, S24_ERROR_ARGUMENT, "%s",
            "scale is given with a limit, whose largest magnitude nobody leaves");
    return TRAIN_RUN(activate, &a);
}

s24_status s24_device_train_activate_back(s24_ctx *ctx, s24_device *device,
                                          const s24_device_train_activate_back_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_activate_back_args a;
    READ_ARGS(a, args, "s24_device_train_activate_back_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.width));
    TRY(check_activation(ctx, a.activation));
    const s24i_train_pointer pointers[] = {{"du", a.du, 0},       {"dh", a.dh, 0},
                                           {"u", a.u, 0},         {"dbias", a.dbias, 1},
                                           {"scale", a.scale, 1}, {"work", a.work, !a.dbias}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, !a.gated || a.du != a.dh, S24_ERROR_ARGUMENT,
            "du is dh; expected memory of its own after a gate");
    return TRAIN_RUN(activate_back, &a);
}

s24_status s24_device_train_embed(s24_ctx *ctx, s24_device *device,
                                  const s24_device_train_embed_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_embed_args a;
    READ_ARGS(a, args, "s24_device_train_embed_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.tokens, a.width));
    const s24i_train_pointer pointers[] = {{"s", a.s, 0},
                                           {"words", a.words, !a.ids},
                                           {"positions", a.positions, 1},
                                           {"types", a.types, 1},
                                           {"first", a.first, 1},
                                           {"ids", a.ids, 1},
                                           {"position", a.position, !a.positions && a.ids},
                                           {"type", a.type, 1}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.position || (!a.positions && !a.first), S24_ERROR_ARGUMENT, "position is NULL");
    return TRAIN_RUN(embed, &a);
}

s24_status s24_device_train_embed_back(s24_ctx *ctx, s24_device *device,
                                       const s24_device_train_embed_back_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_embed_back_args a;
    READ_ARGS(a, args, "s24_device_train_embed_back_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.tokens, a.width));
    const s24i_train_pointer pointers[] = {{"ds", a.ds, 0},
                                           {"dwords", a.dwords, 1},
                                           {"dpositions", a.dpositions, 1},
                                           {"dtypes", a.dtypes, 1},
                                           {"dfirst", a.dfirst, 1},
                                           {"ids", a.ids, !a.dwords},
                                           {"type", a.type, 1},
                                           {"offsets", a.offsets, !a.dpositions && !a.dfirst},
                                           {"order", a.order, !a.dwords},
                                           {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.texts >= 1 && a.texts <= a.tokens && a.longest >= 1 && a.longest <= a.tokens,
            S24_ERROR_SHAPE,
            "%" PRId64 " texts of up to %" PRId64 " tokens; expected 1 to %" PRId64, a.texts,
            a.longest, a.tokens);
    REQUIRE(ctx, !a.type || !a.dtypes || (a.type_count >= 1 && a.type_count <= 64), S24_ERROR_SHAPE,
            "%" PRId64 " types; expected 1 to 64", a.type_count);
    REQUIRE(ctx, !a.dwords || (a.tokens + 15) / 16 * 2 * a.width <= S24_DEVICE_TRAIN_WORK / 4,
            S24_ERROR_UNSUPPORTED,
            "the gradient of [%" PRId64 ", %" PRId64
            "] embeddings needs more than %d bytes of work memory",
            a.tokens, a.width, (int)S24_DEVICE_TRAIN_WORK);
    return TRAIN_RUN(embed_back, &a);
}

s24_status s24_device_train_unfold(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_unfold_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_unfold_args a;
    READ_ARGS(a, args, "s24_device_train_unfold_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    REQUIRE(ctx, a.patch >= 1 && a.image >= 1 && a.image % a.patch == 0, S24_ERROR_SHAPE,
            "patches of %" PRId64 " pixels in images of %" PRId64 "; expected a divisor", a.patch,
            a.image);
    const int64_t side = a.image / a.patch;
    TRY(s24i_train_rows(ctx, a.tokens, a.channels * a.patch * a.patch));
    REQUIRE(ctx, a.image < 32768 && a.tokens % (side * side + 1) == 0, S24_ERROR_SHAPE,
            "%" PRId64 " tokens; expected a multiple of an image's, %" PRId64, a.tokens,
            side * side + 1);
    const s24i_train_pointer pointers[] = {{"rows", a.rows, 0}, {"pixels", a.pixels, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    return TRAIN_RUN(unfold, &a);
}
