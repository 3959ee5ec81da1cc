// SPDX-License-Identifier: Apache-2.0
/* The public dense product checks its arguments and calls the engine of this build. */
#include <string.h>

#include "dense/dense.h"
#include "io/file/io.h"

struct s24_dense_linear {
    s24_ctx *ctx;
    s24i_dense_weight *weight;
    s24i_dense_runner *runner;
    float *bias;
    int64_t n, k;
    s24_dtype dtype; /* in which it multiplies, where the engine has that */
    s24_activation activation;
};

const char *s24_dense_engine(void)
{
    return s24i_dense_engine.name;
}

uint32_t s24_dense_engine_cpu(s24_ctx *ctx)
{
    return ctx ? s24i_dense_engine.cpu(ctx) : 0;
}

void s24i_dense_warn(s24_ctx *ctx)
{
    const uint32_t uses = s24_dense_engine_cpu(ctx), asked = s24_ctx_cpu(ctx);
    if (!(uses & ~asked)) return;
    s24_ctx_log(ctx, S24_LOG_WARNING,
                "dense products use %s where this context may use %s: %s takes a bound once in a "
                "process, before its first product, if at all",
                s24_cpu_name(uses), s24_cpu_name(asked), s24_dense_engine());
}

void s24_dense_linear_destroy(s24_dense_linear *linear)
{
    if (!linear) return;
    s24i_dense_engine.weight_destroy(linear->weight);
    s24i_dense_engine.runner_destroy(linear->runner);
    s24_ctx_free(linear->ctx, linear->bias);
    s24_ctx_free(linear->ctx, linear);
}

static s24_status check_matrix(s24_ctx *ctx, const s24_dense *x, const char *name, int narrow)
{
    if (!x || !x->data) return s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "%s is NULL", name);
    if (x->dtype != S24_F32 && !(narrow && x->dtype == S24_BF16))
        return s24_ctx_fail(ctx, S24_ERROR_DTYPE, "%s is %s; f32%s was expected", name,
                            s24_dtype_name(x->dtype), narrow ? " or bf16" : "");
    if (x->rows < 1 || x->cols < 1 || s24i_ld(x) < x->cols)
        return s24_ctx_fail(ctx, S24_ERROR_SHAPE, "%s is [%lld, %lld] with ld %lld", name,
                            (long long)x->rows, (long long)x->cols, (long long)x->ld);
    return S24_OK;
}

/* The engine reads f32 and lays out what it is told to. */
static s24_status fill_wide(s24_dense_linear *linear, s24_ctx *ctx, const s24_dense *w)
{
    return linear->dtype == S24_I8
               ? s24i_dense_eight_create(&linear->weight, ctx, w)
               : s24i_dense_engine.weight_create(&linear->weight, ctx, w, linear->dtype);
}

/* A weight that is not f32. */
static s24_status fill_narrow(s24_dense_linear *linear, s24_ctx *ctx, const s24_dense *w)
{
    s24_dense wide = {NULL, S24_F32, w->rows, w->cols, w->cols};
    const char *from = w->data;
    const size_t row_bytes = (size_t)s24i_ld(w) * s24_dtype_bytes(w->dtype);
    TRY(s24i_alloc_elems(&wide.data, ctx, w->rows * w->cols, sizeof(float), "a wide weight"));
    s24_status status = S24_OK;
    for (int64_t r = 0; r < w->rows && status == S24_OK; r++)
        status = s24_convert((float *)wide.data + r * w->cols, S24_F32,
                             from + (size_t)r * row_bytes, w->dtype, w->cols);
    if (status == S24_OK) status = fill_wide(linear, ctx, &wide);
    s24_ctx_free(ctx, wide.data);
    return status;
}

static s24_status fill(s24_dense_linear *linear, s24_ctx *ctx, const s24_dense *w,
                       const float *bias)
{
    if (bias) {
        TRY(s24i_alloc_elems(&linear->bias, ctx, w->rows, sizeof(float), "a bias"));
        memcpy(linear->bias, bias, (size_t)w->rows * sizeof(float));
    }
    TRY((w->dtype == S24_F32 ? fill_wide : fill_narrow)(linear, ctx, w));
    s24i_dense_warn(ctx);
    return s24i_dense_engine.runner_create(&linear->runner, ctx, 0);
}

s24_status s24_dense_linear_create_as(s24_dense_linear **out, s24_ctx *ctx, const s24_dense *w,
                                      s24_dtype dtype, const float *bias, s24_activation activation)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(check_matrix(ctx, w, "w", 1));
    REQUIRE(ctx, dtype == S24_F32 || dtype == S24_BF16 || dtype == S24_I8, S24_ERROR_DTYPE,
            "a dense product is asked for in %s; f32, bf16 or i8 was expected",
            s24_dtype_name(dtype));
    if (activation < S24_ACTIVATION_NONE || activation > S24_ACTIVATION_GELU_QUICK)
        return s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "activation %d is not one of s24_activation",
                            (int)activation);
    s24_dense_linear *linear;
    TRY(s24i_alloc_elems(&linear, ctx, 1, sizeof *linear, "a dense product"));
    if (dtype == S24_I8 && !s24i_dense_takes_eight(ctx, w->cols)) dtype = S24_BF16;
    *linear = (s24_dense_linear){
        .ctx = ctx, .n = w->rows, .k = w->cols, .dtype = dtype, .activation = activation};
    GIVE(out, linear, s24_dense_linear_destroy, fill(linear, ctx, w, bias));
}

s24_status s24_dense_linear_create(s24_dense_linear **out, s24_ctx *ctx, const s24_dense *w,
                                   const float *bias, s24_activation activation)
{
    return s24_dense_linear_create_as(out, ctx, w, w ? w->dtype : S24_F32, bias, activation);
}

s24_dtype s24_dense_linear_dtype(const s24_dense_linear *linear)
{
    return linear ? linear->dtype : S24_DTYPE_NONE;
}

static s24_status check_shape(s24_ctx *ctx, const s24_dense *x, const char *name, int64_t rows,
                              int64_t cols)
{
    TRY(check_matrix(ctx, x, name, 0));
    if (x->rows != rows || x->cols != cols)
        return s24_ctx_fail(ctx, S24_ERROR_SHAPE, "%s is [%lld, %lld]; [%lld, %lld] was expected",
                            name, (long long)x->rows, (long long)x->cols, (long long)rows,
                            (long long)cols);
    return S24_OK;
}

s24_status s24_dense_linear_run(s24_dense_linear *linear, s24_ctx *ctx, const s24_dense *y,
                                const s24_dense *x, const s24_dense *residual)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, linear, S24_ERROR_ARGUMENT, "linear is NULL");
    TRY(check_matrix(ctx, x, "x", 0));
    TRY(check_shape(ctx, x, "x", x->rows, linear->k));
    TRY(check_shape(ctx, y, "y", x->rows, linear->n));
    if (residual) TRY(check_shape(ctx, residual, "residual", x->rows, linear->n));
    REQUIRE(ctx, !residual || residual->data != y->data || s24i_ld(residual) == s24i_ld(y),
            S24_ERROR_ARGUMENT, "residual is y, but its ld is %lld and y's is %lld",
            (long long)(residual ? s24i_ld(residual) : 0), (long long)s24i_ld(y));
    if (residual && residual->data != y->data) {
        for (int64_t i = 0; i < y->rows; i++)
            memcpy((float *)y->data + i * s24i_ld(y),
                   (const float *)residual->data + i * s24i_ld(residual),
                   (size_t)y->cols * sizeof(float));
    }
    const s24i_dense_job job = {.weight = linear->weight,
                                .y = y,
                                .x = x,
                                .bias = linear->bias,
                                .activation = linear->activation,
                                .accumulate = residual != NULL};
    return s24i_dense_engine.run(linear->runner, ctx, &job);
}
