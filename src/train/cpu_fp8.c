// SPDX-License-Identifier: Apache-2.0
/*
 * Products in 8 bits on the CPU: their operands are rounded as a device rounds them, inputs and
 * weights to e4m3, gradients to e5m2, and multiplied in f32. Scales are powers of two, so that they
 * round nothing, and of a matrix that has none to give they are 1.
 */
#include <math.h>
#include <string.h>

#include "device/device_train.h"
#include "io/file/io.h"
#include "train/cpu_room.h"

enum { CHUNK = 256 };

typedef struct fp8_job {
    float *to; /* [rows, cols] */
    s24i_operand from;
    int64_t cols;
    s24_dtype dtype;
    int exponent;
} fp8_job;

/* The bits of the largest magnitude, a NaN's where there is one. */
static uint32_t largest(const s24i_operand *from, int64_t rows, int64_t cols)
{
    uint32_t most = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            uint32_t bits;
            memcpy(&bits, from->at + r * from->ld + c, sizeof bits);
            bits &= 0x7fffffffu;
            most = bits > most ? bits : most;
        }
    return most;
}

static void round_chunk(const fp8_job *j, float *to, const float *from, int64_t count)
{
    float scaled[CHUNK];
    uint8_t bytes[CHUNK];
    const float factor = s24i_fp8_power(j->exponent), back = s24i_fp8_power(-j->exponent);
    for (int64_t i = 0; i < count; i++)
        scaled[i] = isfinite(from[i]) ? factor * from[i] : NAN;
    (void)s24_convert(bytes, j->dtype, scaled, S24_F32, count);
    (void)s24_convert(to, S24_F32, bytes, j->dtype, count);
    for (int64_t i = 0; i < count; i++)
        to[i] *= back;
}

static void round_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const fp8_job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < j->cols; c += CHUNK)
            round_chunk(j, j->to + r * j->cols + c, j->from.at + r * j->from.ld + c,
                        s24i_min(CHUNK, j->cols - c));
}

s24i_operand s24i_cpu_operand(s24i_machine *m, const s24i_layer *l, s24i_narrow which,
                              s24i_operand from, int64_t rows)
{
    const int is_gradient = which == S24I_NARROW_GRADIENTS;
    const int64_t cols = is_gradient ? l->n : l->k;
    if (!l->rule || !l->rule->fp8) return from;
    const fp8_job job = {.to = l->rule->narrow[which],
                         .from = from,
                         .cols = cols,
                         .dtype = is_gradient ? S24_E5M2 : S24_E4M3,
                         .exponent = s24i_fp8_exponent(largest(&from, rows, cols), is_gradient)};
    s24i_cpu_run(m, rows, round_rows, &job);
    return (s24i_operand){job.to, cols};
}
