// SPDX-License-Identifier: Apache-2.0
/* Training on a device: losses and the optimiser. */
#include <math.h>

#include "device/device_train_room.h"

typedef struct loss_terms {
    double label_weight, teacher_weight;
    float temperature, gradient_scale;
} loss_terms;

static s24_status check_scale(s24_ctx *ctx, double weight, float gradient_scale)
{
    REQUIRE(ctx, isfinite(weight), S24_ERROR_ARGUMENT,
            "a loss has the weight %g; expected a number", weight);
    REQUIRE(ctx, gradient_scale > 0.0f && isfinite(gradient_scale), S24_ERROR_ARGUMENT,
            "gradient_scale is %g; expected more than 0", (double)gradient_scale);
    return S24_OK;
}

/* A double is at home at every multiple of 8 bytes. */
static s24_status check_sum(s24_ctx *ctx, const char *name, const double *at)
{
    REQUIRE(ctx, at && (uintptr_t)at % 8 == 0, S24_ERROR_ARGUMENT,
            "%s is at %p; expected a multiple of 8 bytes", name, (const void *)at);
    return S24_OK;
}

static s24_status check_terms(s24_ctx *ctx, const loss_terms *t)
{
    TRY(check_scale(ctx, t->label_weight, t->gradient_scale));
    TRY(check_scale(ctx, t->teacher_weight, t->gradient_scale));
    REQUIRE(ctx, t->temperature > 0.0f && isfinite(t->temperature), S24_ERROR_ARGUMENT,
            "temperature is %g; expected more than 0", (double)t->temperature);
    return S24_OK;
}

#define TERMS(a)                                                                                   \
    (&(loss_terms){(a).label_weight, (a).teacher_weight, (a).temperature, (a).gradient_scale})

s24_status s24_device_train_cross_entropy(s24_ctx *ctx, s24_device *device,
                                          const s24_device_train_cross_entropy_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_cross_entropy_args a;
    READ_ARGS(a, args, "s24_device_train_cross_entropy_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    REQUIRE(ctx, a.rows >= 1 && a.n >= 1 && a.n <= a.ld && a.ld % 8 == 0 && a.ld < INT32_MAX / 2,
            S24_ERROR_SHAPE,
            "[%" PRId64 ", %" PRId64 "] logits, rows %" PRId64
            " apart; expected at least one, and a distance that 8 divides and that holds them",
            a.rows, a.n, a.ld);
    REQUIRE(ctx, a.rows * ((a.n + 8191) / 8192 * 28 + 8) <= S24_DEVICE_TRAIN_WORK - 64,
            S24_ERROR_UNSUPPORTED,
            "the sums of [%" PRId64 ", %" PRId64 "] logits need more than %d bytes of work memory",
            a.rows, a.n, (int)S24_DEVICE_TRAIN_WORK);
    REQUIRE(ctx, !a.narrow || !a.teacher, S24_ERROR_UNSUPPORTED,
            "a teacher's logits are next to logits of f32, not of %s", s24_dtype_name(a.dtype));
    TRY(check_terms(ctx, TERMS(a)));
    const s24i_train_pointer pointers[] = {{"logits", a.logits, 0},
                                           {"teacher", a.teacher, 1},
                                           {"dlogits", a.dlogits, 1},
                                           {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    if (a.losses) TRY(check_sum(ctx, "losses", a.losses));
    if (a.loss || !a.losses) TRY(check_sum(ctx, "loss", a.loss));
    return TRAIN_RUN(cross_entropy, &a);
}

s24_status s24_device_train_answer(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_answer_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_answer_args a;
    READ_ARGS(a, args, "s24_device_train_answer_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    REQUIRE(ctx, a.tokens >= 1 && a.texts >= 1 && a.texts <= a.tokens && a.ld >= 8 && a.ld % 8 == 0,
            S24_ERROR_SHAPE,
            "%" PRId64 " texts of %" PRId64 " tokens, their logits %" PRId64
            " apart; expected at least one, and a distance that 8 divides",
            a.texts, a.tokens, a.ld);
    TRY(check_terms(ctx, TERMS(a)));
    const s24i_train_pointer pointers[] = {{"offsets", a.offsets, 0}, {"logits", a.logits, 0},
                                           {"teacher", a.teacher, 1}, {"dlogits", a.dlogits, 1},
                                           {"starts", a.starts, 1},   {"ends", a.ends, 1},
                                           {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    TRY(check_sum(ctx, "loss", a.loss));
    return TRAIN_RUN(answer, &a);
}

s24_status s24_device_train_squared(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_squared_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_squared_args a;
    READ_ARGS(a, args, "s24_device_train_squared_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.width));
    TRY(check_scale(ctx, a.weight, a.gradient_scale));
    const s24i_train_pointer pointers[] = {
        {"dx", a.dx, 0}, {"x", a.x, 0}, {"y", a.y, 0}, {"mask", a.mask, 1}, {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    TRY(check_sum(ctx, "loss", a.loss));
    return TRAIN_RUN(squared, &a);
}

s24_status s24_device_train_cosine(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_cosine_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_cosine_args a;
    READ_ARGS(a, args, "s24_device_train_cosine_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.tokens, a.width));
    REQUIRE(ctx, a.texts >= 1 && a.texts <= a.tokens, S24_ERROR_SHAPE,
            "%" PRId64 " texts; expected 1 to the tokens, %" PRId64, a.texts, a.tokens);
    TRY(check_scale(ctx, a.weight, a.gradient_scale));
    REQUIRE(ctx, (int)a.pooling >= 0 && a.pooling < S24I_POOLINGS, S24_ERROR_ARGUMENT,
            "pooling is %d; expected 0 to %d", (int)a.pooling, (int)S24I_POOLINGS - 1);
    const s24i_train_pointer pointers[] = {
        {"dx", a.dx, 0},           {"x", a.x, a.pooling != S24I_POOL_MAX},
        {"vectors", a.vectors, 0}, {"teacher", a.teacher, 0},
        {"offsets", a.offsets, 0}, {"mask", a.mask, 1},
        {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    TRY(check_sum(ctx, "loss", a.loss));
    return TRAIN_RUN(cosine, &a);
}

s24_status s24_device_train_squares(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_squares_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_squares_args a;
    READ_ARGS(a, args, "s24_device_train_squares_args");
    REQUIRE(ctx, a.count >= 16 && a.count % 16 == 0, S24_ERROR_SHAPE,
            "count is %" PRId64 "; expected a multiple of 16", a.count);
    const s24i_train_pointer pointers[] = {{"g", a.g, 0}, {"mask", a.mask, 1}, {"work", a.work, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    TRY(check_sum(ctx, "sum", a.sum));
    return TRAIN_RUN(squares, &a);
}

s24_status s24_device_train_adamw(s24_ctx *ctx, s24_device *device,
                                  const s24_device_train_adamw_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_adamw_args a;
    READ_ARGS(a, args, "s24_device_train_adamw_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    REQUIRE(ctx, a.count >= 16 && a.count % 16 == 0, S24_ERROR_SHAPE,
            "count is %" PRId64 "; expected a multiple of 16", a.count);
    REQUIRE(
        ctx,
        a.gradient_scale > 0 && isfinite(a.gradient_scale) && a.clip >= 0 && a.beta1 >= 0 &&
            a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1 && a.eps >= 0 && isfinite(a.eps) &&
            isfinite(a.decay) && isfinite(a.step) && isfinite(a.inverse2) && isfinite(a.pull) &&
            isfinite(a.frozen_gain) && isfinite(a.frozen_eps) && isfinite(a.fade),
        S24_ERROR_ARGUMENT,
        "gradient_scale %g, clip %g, beta1 %g, beta2 %g, eps %g, decay %g, step %g, inverse2 %g, "
        "pull %g; expected finite ones, the scale over 0, clip and eps 0 or more, betas 0 to less "
        "than 1",
        a.gradient_scale, a.clip, a.beta1, a.beta2, a.eps, a.decay, a.step, a.inverse2, a.pull);
    const s24i_train_pointer pointers[] = {
        {"p", a.p, 0},
        {"g", a.g, 0},
        {"m", a.m, 0},
        {"v", a.v, 0},
        {"narrow", a.narrow, 1},
        {"mask", a.mask, 1},
        {"matrices", a.matrices, a.decay == 0},
        {"frozen", a.frozen, 1},
        {"moments_at", a.moments_at, 1},
    };
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.learns || (!a.frozen && !a.signs), S24_ERROR_ARGUMENT, "%s",
            "learns is 0; frozen and signs need it");
    REQUIRE(ctx, !a.moments_at || (a.mask && !a.learns), S24_ERROR_ARGUMENT, "%s",
            a.mask ? "learns is 1; with moments_at it is 0" : "mask is NULL");
    TRY(check_sum(ctx, "squares", a.squares));
    TRY(check_sum(ctx, "loss", a.loss));
    return TRAIN_RUN(adamw, &a);
}
