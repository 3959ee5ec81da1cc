// SPDX-License-Identifier: Apache-2.0
/*
 * What tests of products on a device share: a product with its operands on both sides, run twice
 * into a poisoned Y, and compared with sums in double.
 */
#ifndef S24_TEST_DEVICE_PRODUCT_H
#define S24_TEST_DEVICE_PRODUCT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "activation.h"
#include "core_support.h"
#include "device_here.h"

/* ---- a product ------------------------------------------------------------------------------- */

typedef struct problem {
    s24_ctx *ctx;
    s24_device *device;
    s24_dtype dtype, y_dtype, bias_dtype;
    int64_t m, n, k;
    int columns; /* x is [k, m] and y [n, m] instead of [m, k] and [m, n] */
    int64_t ldx, ldy;
    void *x, *w, *y, *bias, *residual; /* host */
    float *x_scale, *w_scale;
    void *gpu[6];       /* x, y, bias, residual, x_scale, w_scale */
    double *sum, *size; /* [m, n]: x·wᵀ, and the sum of its terms' magnitudes */
    s24_device_weight *weight;
    s24_device_integers *integers; /* instead of it */
    void *work;
} problem;

/* From −1 to 1. */
static inline float random_float(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(int)(state >> 16) / 32768.0f - 1.0f;
}

/* Element i of an array: floating point from −1 to 1, integers from −127 to 127. */
static inline void put_random(problem *p, void *to, s24_dtype dtype, int64_t i)
{
    char *at = (char *)to + (size_t)i * s24_dtype_bytes(dtype);
    float v = random_float() * (dtype == S24_I8 || dtype == S24_I32 ? 127 : 1);
    int32_t integer = (int32_t)v;
    if (dtype == S24_I32)
        memcpy(at, &integer, sizeof integer);
    else
        assert_ok(p->ctx, s24_convert(at, dtype, &v, S24_F32, 1));
}

static inline void fill(problem *p, void *to, s24_dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        put_random(p, to, dtype, i);
}

static inline double value(const problem *p, const void *from, s24_dtype dtype, int64_t i)
{
    const char *at = (const char *)from + (size_t)i * s24_dtype_bytes(dtype);
    int32_t integer;
    float v;
    if (dtype == S24_I32) {
        memcpy(&integer, at, sizeof integer);
        return integer;
    }
    assert_ok(p->ctx, s24_convert(&v, S24_F32, at, dtype, 1));
    return (double)v;
}

static inline void *upload(problem *p, const void *host, size_t bytes)
{
    void *memory;
    assert_ok(p->ctx, s24_device_alloc(&memory, p->ctx, p->device, bytes, NULL));
    assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, memory, host, bytes, NULL));
    return memory;
}

/* Where element i of a token is in x, and a token's output c in y. */
static inline int64_t x_place(const problem *p, int64_t token, int64_t i)
{
    return p->columns ? i * p->ldx + token : token * p->ldx + i;
}
static inline int64_t y_place(const problem *p, int64_t token, int64_t c)
{
    return p->columns ? c * p->ldy + token : token * p->ldy + c;
}
static inline int64_t x_count(const problem *p)
{
    return (p->columns ? p->k : p->m) * p->ldx;
}
/* With a row beyond the last one. */
static inline int64_t y_count(const problem *p)
{
    return ((p->columns ? p->n : p->m) + 1) * p->ldy;
}

static inline void sum_up(problem *p)
{
    float *x = malloc((size_t)(p->m * p->k) * 4), *w = malloc((size_t)(p->n * p->k) * 4);
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t i = 0; i < p->k; i++)
            x[r * p->k + i] = (float)value(p, p->x, p->dtype, x_place(p, r, i));
    for (int64_t i = 0; i < p->n * p->k; i++)
        w[i] = (float)value(p, p->w, p->dtype, i);
    p->sum = malloc((size_t)(p->m * p->n) * sizeof *p->sum);
    p->size = malloc((size_t)(p->m * p->n) * sizeof *p->size);
    for (int64_t at = 0; at < p->m * p->n; at++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < p->k; i++) {
            double term = (double)x[at / p->n * p->k + i] * (double)w[at % p->n * p->k + i];
            sum += term;
            size += fabs(term);
        }
        p->sum[at] = sum;
        p->size[at] = size;
    }
    free(x);
    free(w);
}

static inline void make_operands(problem *p)
{
    const size_t bytes = s24_dtype_bytes(p->dtype), y_bytes = s24_dtype_bytes(p->y_dtype);
    const int wide_bias = s24_dtype_bytes(p->y_dtype) == 1 || p->y_dtype == S24_I32;
    p->ldx = ((p->columns ? p->m : p->k) + 31) / 16 * 16;
    p->ldy = ((p->columns ? p->m : p->n) + 31) / 16 * 16;
    p->bias_dtype = wide_bias ? S24_F32 : p->y_dtype;
    p->x = malloc((size_t)x_count(p) * bytes);
    p->w = malloc((size_t)(p->n * p->k) * bytes);
    p->y = malloc((size_t)y_count(p) * y_bytes);
    p->bias = malloc((size_t)p->n * 4);
    p->residual = malloc((size_t)y_count(p) * y_bytes);
    p->x_scale = malloc((size_t)p->m * 4);
    p->w_scale = malloc((size_t)p->n * 4);
    memset(p->x, 0xff, (size_t)x_count(p) * bytes); /* NaN beyond it must not matter */
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t i = 0; i < p->k; i++)
            put_random(p, p->x, p->dtype, x_place(p, r, i));
    fill(p, p->w, p->dtype, p->n * p->k);
    fill(p, p->bias, p->bias_dtype, p->n);
    fill(p, p->residual, p->y_dtype, y_count(p));
    /* Products of integers are large. */
    for (int64_t i = 0; i < p->m; i++)
        p->x_scale[i] = (1.5f + random_float()) * (p->dtype == S24_I8 ? 0x1p-12f : 1);
    for (int64_t i = 0; i < p->n; i++)
        p->w_scale[i] = 1.5f + random_float();
    memset(p->y, 0xff, (size_t)y_count(p) * y_bytes);
}

/* Sums, and what the device needs next to the weight. */
static inline void problem_upload(problem *p)
{
    const size_t y_bytes = s24_dtype_bytes(p->y_dtype);
    sum_up(p);
    p->gpu[0] = upload(p, p->x, (size_t)x_count(p) * s24_dtype_bytes(p->dtype));
    p->gpu[1] = upload(p, p->y, (size_t)y_count(p) * y_bytes);
    p->gpu[2] = upload(p, p->bias, (size_t)p->n * s24_dtype_bytes(p->bias_dtype));
    p->gpu[3] = upload(p, p->residual, (size_t)y_count(p) * y_bytes);
    p->gpu[4] = upload(p, p->x_scale, (size_t)p->m * 4);
    p->gpu[5] = upload(p, p->w_scale, (size_t)p->n * 4);
}

static inline void problem_make(problem *p)
{
    make_operands(p);
    s24_dense w = {p->w, p->dtype, p->n, p->k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_matrix *matrix;
    assert_ok(p->ctx, s24_matrix_create(&matrix, p->ctx, &w, &opts));
    assert_ok(p->ctx, s24_matrix_to_dense(p->ctx, &w, matrix));
    assert_ok(p->ctx, s24_device_weight_create(&p->weight, p->ctx, p->device, matrix, NULL));
    s24_matrix_destroy(matrix);
    problem_upload(p);
    size_t bytes = s24_device_linear_work_bytes(p->device, p->weight);
    assert_ok(p->ctx, s24_device_alloc(&p->work, p->ctx, p->device, bytes, NULL));
    assert_ok(p->ctx, s24_device_clear(p->ctx, p->device, p->work, bytes, NULL));
}
static inline void problem_free(problem *p)
{
    for (int i = 0; i < 6; i++)
        assert_ok(p->ctx, s24_device_free(p->ctx, p->device, p->gpu[i], NULL));
    if (p->work) assert_ok(p->ctx, s24_device_free(p->ctx, p->device, p->work, NULL));
    s24_device_weight_destroy(p->weight);
    s24_device_integers_destroy(p->integers);
    void *const host[] = {p->x,       p->w,       p->y,   p->bias, p->residual,
                          p->x_scale, p->w_scale, p->sum, p->size};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
}

/* The largest number of a dtype of 8 bits, as which larger ones are stored. */
static inline double most_of(s24_dtype dtype, int below)
{
    return dtype == S24_E4M3 ? 448 : below ? 128 : 127;
}

/* What rounding to Y's dtype may make of a value, and the sums' own error, which sums up as the
   hardware's: i8 exactly, of 8-bit floats 14 bits of the largest, else f32. */
static inline double slack(const problem *p, const s24_device_linear_args *args, double v,
                           double size)
{
    const int plain =
        !args->x_scale && !args->w_scale && !args->bias && !args->residual && !args->activation;
    const double sums = p->dtype == S24_I8                             ? 1e-6
                        : p->dtype == S24_E4M3 || p->dtype == S24_E5M2 ? 4e-4
                                                                       : 4e-6;
    switch (p->y_dtype) {
    case S24_BF16:
        return fabs(v) / 256 + sums * size + 2e-4;
    case S24_F16:
        return fabs(v) / 2048 + sums * size + 3e-5;
    case S24_E4M3:
        return 1.001 * fmax(fabs(v) / 16, 0x1p-10) + sums * size + 1e-5;
    case S24_I8:
    case S24_I32:
        return plain ? 0 : 0.51 + 1e-6 * fabs(v) + sums * size;
    default:
        return 1e-6 * fabs(v) + sums * size + 1e-5;
    }
}

static inline void expect(problem *p, const s24_device_linear_args *args)
{
    const size_t bytes = s24_dtype_bytes(p->y_dtype);
    const unsigned char poison[4] = {255, 255, 255, 255};
    for (int64_t at = 0; at < y_count(p); at++) { /* beyond the output */
        if (at / p->ldy < (p->columns ? p->n : p->m) && at % p->ldy < (p->columns ? p->m : p->n))
            continue;
        assert_memory_equal((const char *)p->y + (size_t)at * bytes, poison, bytes);
    }
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t c = 0; c < p->n; c++) {
            double scale = (args->x_scale ? (double)p->x_scale[r] : 1) *
                           (args->w_scale ? (double)p->w_scale[c] : 1) *
                           (args->alpha > 0 ? (double)args->alpha : 1);
            double sum = p->sum[r * p->n + c] * scale, size = p->size[r * p->n + c] * scale;
            if (args->bias) sum += value(p, p->bias, p->bias_dtype, c);
            /* The hardware's tanh is all that GELU needs in 16 bits; f16 computes around it in
               f16. */
            const double share =
                p->dtype == S24_F16 && p->y_dtype == S24_F16 && !args->w_scale ? 8e-4 : 4e-4;
            const double gelu = p->y_dtype == S24_E4M3 ? 2e-3 : share;
            const double rough = args->activation == S24_ACTIVATION_GELU ? gelu * fabs(sum) : 0;
            sum = activation_of(sum, args->activation);
            if (args->residual) sum += value(p, p->residual, p->y_dtype, y_place(p, r, c));
            const double share_of = args->y_scale > 0 ? (double)args->y_scale : 1;
            sum /= share_of;
            if (s24_dtype_bytes(p->y_dtype) == 1)
                sum = fmax(-most_of(p->y_dtype, 1), fmin(sum, most_of(p->y_dtype, 0)));
            double got = value(p, p->y, p->y_dtype, y_place(p, r, c));
            if (!(fabs(got - sum) <= slack(p, args, sum, size / share_of) + rough / share_of))
                fail_msg("tile %s, columns %d, %s to %s, m %d n %d k %d, activation %d, bias %d, "
                         "residual %d, "
                         "scales %d: row %d column %d is %g, expected %g",
                         args->tile ? args->tile : "chosen", p->columns, s24_dtype_name(p->dtype),
                         s24_dtype_name(p->y_dtype), (int)p->m, (int)p->n, (int)p->k,
                         (int)args->activation, args->bias != NULL, args->residual != NULL,
                         args->w_scale != NULL, (int)r, (int)c, got, sum);
        }
}

/* The plain product `times` times, none waited for before the last, into p->y. */
static inline void run_in_a_row(problem *p, const char *tile, int times)
{
    s24_dense x = {p->gpu[0], p->dtype, p->m, p->k, p->ldx};
    s24_dense y = {p->gpu[1], p->y_dtype, p->m, p->n, p->ldy};
    s24_device_linear_args args = {.size = sizeof args,
                                   .x = &x,
                                   .y = &y,
                                   .work = p->work,
                                   .work_bytes = s24_device_linear_work_bytes(p->device, p->weight),
                                   .tile = tile};
    const size_t bytes = (size_t)y_count(p) * s24_dtype_bytes(p->y_dtype);
    for (int i = 0; i < times; i++)
        assert_ok(p->ctx, s24_device_linear(p->ctx, p->device, p->weight, &args));
    assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, p->y, p->gpu[1], bytes, NULL));
    assert_ok(p->ctx, s24_device_wait(p->ctx, p->device, NULL));
}

static int products_run;

/* WITH_FACTORS: one for all tokens, in place of one each, and what Y is divided by. */
enum { WITH_BIAS = 1, WITH_RESIDUAL = 2, WITH_SCALES = 4, WITH_FACTORS = 8 };

/* Twice: the second run must give the same bits, whatever the first left in the work memory. */
static inline void run_twice(problem *p, const char *tile, s24_activation activation, int with)
{
    const int64_t x_rows = p->columns ? p->k : p->m, x_cols = p->columns ? p->m : p->k;
    const int64_t y_rows = p->columns ? p->n : p->m, y_cols = p->columns ? p->m : p->n;
    size_t bytes = (size_t)y_count(p) * s24_dtype_bytes(p->y_dtype);
    char *first = malloc(bytes);
    s24_dense x = {p->gpu[0], p->dtype, x_rows, x_cols, p->ldx};
    s24_dense y = {p->gpu[1], p->y_dtype, y_rows, y_cols, p->ldy};
    s24_dense r = {p->gpu[3], p->y_dtype, y_rows, y_cols, p->ldy};
    s24_device_linear_args args = {
        .size = sizeof args,
        .x = &x,
        .y = &y,
        .bias = with & WITH_BIAS ? p->gpu[2] : NULL,
        .activation = activation,
        .residual = with & WITH_RESIDUAL ? &r : NULL,
        .x_scale = with & WITH_SCALES ? p->gpu[4] : NULL,
        .w_scale = with & (WITH_SCALES | WITH_FACTORS) ? p->gpu[5] : NULL,
        .alpha = with & WITH_FACTORS ? p->x_scale[0] : 0,
        .y_scale = with & WITH_FACTORS && y.dtype == p->dtype ? 0.37f : 0,
        .work = p->work,
        .work_bytes = s24_device_linear_work_bytes(p->device, p->weight),
        .tile = tile};
    for (int turn = 0; turn < 2; turn++) {
        memset(p->y, 0xff, bytes);
        assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, p->gpu[1], p->y, bytes, NULL));
        s24_status status =
            p->integers  ? s24_device_integers_linear(p->ctx, p->device, p->integers, &args)
            : p->columns ? s24_device_mm_sparse_dense(p->ctx, p->device, p->weight, &args)
                         : s24_device_linear(p->ctx, p->device, p->weight, &args);
        /* 8-bit dtypes, columns, many tokens and other GPUs have not every tile, and a short k
           nothing to share; the number of products that were run says that it is not all. */
        if (tile && status == S24_ERROR_UNSUPPORTED &&
            strstr(s24_ctx_error(p->ctx), "cannot be used")) {
            free(first);
            return;
        }
        assert_int_equal(status, S24_OK);
        assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, p->y, p->gpu[1], bytes, NULL));
        assert_ok(p->ctx, s24_device_wait(p->ctx, p->device, NULL));
        if (turn == 0) memcpy(first, p->y, bytes);
    }
    assert_memory_equal(first, p->y, bytes);
    expect(p, &args);
    free(first);
    products_run++;
}

#endif
