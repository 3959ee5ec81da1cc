// SPDX-License-Identifier: Apache-2.0
/* What the tests of training on a device share beside device_support.h: f32 arrays on both
   sides, the work memory, dropout by its place, results read back. */
#ifndef S24_TEST_DEVICE_TRAIN_SUPPORT_H
#define S24_TEST_DEVICE_TRAIN_SUPPORT_H

#include "device/device_train.h"
#include "device_support.h"

/* Runs an operation of the device's with the fields that follow. */
#define DO(g, name, ...)                                                                           \
    do {                                                                                           \
        const s24_device_train_##name##_args do_args = {                                           \
            .size = sizeof(s24_device_train_##name##_args), __VA_ARGS__};                          \
        assert_ok((g)->ctx, s24_device_train_##name((g)->ctx, (g)->device, &do_args));             \
    } while (0)

#define REFUSED(g, status, words, name, ...)                                                       \
    do {                                                                                           \
        const s24_device_train_##name##_args do_args = {                                           \
            .size = sizeof(s24_device_train_##name##_args), __VA_ARGS__};                          \
        assert_refused((g)->ctx, status, words,                                                    \
                       s24_device_train_##name((g)->ctx, (g)->device, &do_args));                  \
    } while (0)

static inline void *work_memory(gpu *g)
{
    void *work;
    assert_ok(g->ctx, s24_device_alloc(&work, g->ctx, g->device, S24_DEVICE_TRAIN_WORK, NULL));
    return work;
}

/* f32 on both sides. */
static inline array wide_make(gpu *g, int64_t count, float scale)
{
    assert_true(count > 0 && count < INT32_MAX);
    array a = {count, malloc((size_t)count * sizeof(float)), NULL};
    for (int64_t i = 0; i < count; i++)
        a.host[i] = scale * random_float();
    a.there = upload(g, a.host, (size_t)count * sizeof(float));
    return a;
}

/* What the device has now, as floats; the caller frees it. */
static inline float *read_back(gpu *g, const void *there, s24_dtype dtype, int64_t count)
{
    const size_t bytes = (size_t)count * s24_dtype_bytes(dtype);
    void *raw = malloc(bytes);
    float *got = malloc((size_t)count * sizeof(float));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, raw, there, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    assert_ok(g->ctx, s24_convert(got, S24_F32, raw, dtype, count));
    free(raw);
    return got;
}

static inline double read_double(gpu *g, const void *there)
{
    double value;
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, &value, there, sizeof value, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    return value;
}

/* scale[1] is the largest magnitude of what is there. */
static inline void expect_largest(gpu *g, const void *there, const void *scale, int64_t count)
{
    float *got = read_back(g, there, g->dtype, count), *left = read_back(g, scale, S24_F32, 2);
    float most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(got[i]));
    assert_true(left[1] == most);
    free(got);
    free(left);
}

static inline void close_to(double expected, double got, double bound, const char *what, int64_t i)
{
    if (!(fabs(expected - got) <= bound * (1 + fabs(expected))))
        fail_msg("%s at %lld: expected %.9g, got %.9g", what, (long long)i, expected, got);
}

/* What dropout multiplies element i of row r by. */
static inline double drop_factor(const s24_device_dropout *drop, int64_t r, int64_t i)
{
    const uint32_t limit = (uint32_t)(drop->rate * 65536.0f);
    uint32_t words[4];
    s24_random(words, drop->seed, (uint64_t)r << 20 | (uint64_t)(i / 128 * 16 + i % 16));
    const uint32_t bits = words[i % 128 / 32] >> (i / 16 % 2 * 16) & 0xffff;
    return bits < limit ? 0.0 : 65536.0 / (65536.0 - (double)limit);
}

#endif
