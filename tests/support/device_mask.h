// SPDX-License-Identifier: Apache-2.0
/* What the tests of masks on a device share: a matrix of an arena, and what was made of it. */
#ifndef S24_TEST_DEVICE_MASK_H
#define S24_TEST_DEVICE_MASK_H

#include "device_train_support.h"

/* A matrix in an arena, which begins with `first` other elements. */
typedef struct matrix {
    int64_t rows, cols, first, count;
    array from;
    float *to;
    void *narrow, *bits;
    double *sums;
} matrix;

static inline matrix matrix_make(gpu *g, int64_t rows, int64_t cols)
{
    const int64_t count = rows * cols, first = 20;
    const size_t bytes = (size_t)(first + count + 127) / 128 * 16;
    const size_t sums = S24_DEVICE_TRAIN_PARTS * S24_DEVICE_TRAIN_MASK_SUMS * sizeof(double);
    uint8_t *ones = malloc(bytes);
    double *zeros = calloc(1, sums);
    memset(ones, 0xff, bytes);
    matrix m = {.rows = rows,
                .cols = cols,
                .first = first,
                .count = count,
                .from = wide_make(g, count, 1),
                .to = poisoned(g, (size_t)count * 4),
                .narrow = poisoned(g, (size_t)count * 2),
                .bits = upload(g, ones, bytes),
                .sums = upload(g, zeros, sums)};
    free(ones);
    free(zeros);
    return m;
}

static inline void matrix_free(gpu *g, matrix *m)
{
    array_free(g, &m->from);
    release(g, m->to);
    release(g, m->narrow);
    release(g, m->bits);
    release(g, m->sums);
}

static inline s24_device_train_mask_args mask_args(const gpu *g, const matrix *m)
{
    return (s24_device_train_mask_args){.size = sizeof(s24_device_train_mask_args),
                                        .dtype = g->dtype,
                                        .rows = m->rows,
                                        .cols = m->cols,
                                        .first = m->first,
                                        .notes = 1,
                                        .from = m->from.there,
                                        .to = m->to,
                                        .narrow = m->narrow,
                                        .bits = m->bits,
                                        .sums = m->sums};
}

static inline void fetch(gpu *g, void *to, const void *there, size_t bytes)
{
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, to, there, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
}

/* Bits, what runs and the sums, next to a mask and what should run. */
static inline void expect_made(gpu *g, const matrix *m, const uint8_t *keep, const float *runs,
                               int64_t flips)
{
    const size_t bytes = (size_t)(m->first + m->count + 127) / 128 * 16;
    double each[S24_DEVICE_TRAIN_PARTS * S24_DEVICE_TRAIN_MASK_SUMS], sums[3] = {0}, kept = 0;
    uint8_t *bits = malloc(bytes);
    double *wide = malloc((size_t)m->count * sizeof *wide);
    fetch(g, bits, m->bits, bytes);
    for (int64_t i = 0; i < m->count; i++) {
        const int64_t at = m->first + i;
        if ((bits[at / 8] >> at % 8 & 1) != keep[i]) fail_msg("bit %lld", (long long)i);
        kept += keep[i] ? fabs((double)m->from.host[i]) : 0;
        wide[i] = (double)runs[i];
    }
    for (int64_t i = 0; i < m->first; i++)
        assert_true(bits[i / 8] >> i % 8 & 1);
    expect(g, "to", m->to, 1, wide, m->count, 1e-7);
    expect(g, "narrow", m->narrow, 0, wide, m->count, 1e-7);
    fetch(g, each, m->sums, sizeof each);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        sums[i % 3] += each[i];
    assert_true(sums[0] == (double)flips);
    close_to(kept, sums[1], 1e-6, "kept", 0);
    free(bits);
    free(wide);
}

#endif
