// SPDX-License-Identifier: Apache-2.0
/* What tests on a device share: the device, arrays on both sides, poisoned memory, comparison with
   sums in double. */
#ifndef S24_TEST_DEVICE_SUPPORT_H
#define S24_TEST_DEVICE_SUPPORT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core_support.h"
#include "device/device_layers.h"
#include "device_here.h"

typedef struct gpu {
    s24_ctx *ctx;
    s24_device *device;
    s24_dtype dtype;
} gpu;

/* 0 after a line where there is no GPU. */
static inline int gpu_here(gpu *g)
{
    assert_int_equal(s24_ctx_create(&g->ctx, NULL), S24_OK);
    g->device = device_here(g->ctx);
    if (g->device) return 1;
    s24_ctx_destroy(g->ctx);
    return 0;
}

static inline void gpu_end(gpu *g)
{
    s24_device_destroy(g->device);
    s24_ctx_destroy(g->ctx);
}

/* An array on both sides: what the device holds in 16 bits, and the same values as floats. */
typedef struct array {
    int64_t count;
    float *host;
    void *there;
} array;

static inline float random_float(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(int)(state >> 8) / 8388608.0f - 1.0f;
}

static inline array array_make(gpu *g, int64_t count, float scale)
{
    array a = {count, malloc((size_t)count * sizeof(float)), NULL};
    uint16_t *bits = malloc((size_t)count * 2);
    for (int64_t i = 0; i < count; i++)
        a.host[i] = scale * random_float();
    assert_ok(g->ctx, s24_convert(bits, g->dtype, a.host, S24_F32, count));
    assert_ok(g->ctx, s24_convert(a.host, S24_F32, bits, g->dtype, count));
    assert_ok(g->ctx, s24_device_alloc(&a.there, g->ctx, g->device, (size_t)count * 2, NULL));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, a.there, bits, (size_t)count * 2, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    free(bits);
    return a;
}

static inline void *upload(gpu *g, const void *host, size_t bytes)
{
    void *there;
    assert_ok(g->ctx, s24_device_alloc(&there, g->ctx, g->device, bytes, NULL));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, there, host, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    return there;
}

/* Device memory full of NaN. */
static inline void *poisoned(gpu *g, size_t bytes)
{
    void *host = malloc(bytes);
    memset(host, 0xff, bytes);
    void *there = upload(g, host, bytes);
    free(host);
    return there;
}

static inline void release(gpu *g, void *there)
{
    assert_ok(g->ctx, s24_device_free(g->ctx, g->device, there, NULL));
}

static inline void array_free(gpu *g, array *a)
{
    release(g, a->there);
    free(a->host);
}

/* Every element of `there` (of the dtype; f32 where wide) against the expected ones. */
static inline void expect(gpu *g, const char *what, const void *there, int wide,
                          const double *expected, int64_t count, double slack)
{
    const double ulp = wide ? 1e-5 : g->dtype == S24_BF16 ? 1.0 / 256 : 1.0 / 2048;
    const size_t bytes = (size_t)count * (wide ? 4 : 2);
    void *raw = malloc(bytes);
    float *got = malloc((size_t)count * sizeof(float));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, raw, there, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    assert_ok(g->ctx, s24_convert(got, S24_F32, raw, wide ? S24_F32 : g->dtype, count));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - expected[i]) <= ulp * fabs(expected[i]) + slack))
            fail_msg("%s, %s: element %d is %g, expected %g", what, s24_dtype_name(g->dtype),
                     (int)i, (double)got[i], expected[i]);
    free(got);
    free(raw);
}

/* Texts of odd lengths laid end to end, and a mask that leaves one of them nothing. */
enum { TEXTS = 8, TOKENS = 1413 };
static const int32_t offsets[TEXTS + 1] = {0, 1, 8, 72, 137, 266, 650, 1350, TOKENS};

static inline void mask_fill(uint8_t mask[TOKENS])
{
    for (int64_t t = 0; t < TOKENS; t++)
        mask[t] = t % 5 != 3 && (t < 72 || t >= 137);
}

#endif
