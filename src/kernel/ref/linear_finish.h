// SPDX-License-Identifier: Apache-2.0
/* The epilogue of the scalar linear rows. */
#ifndef S24_KERNEL_REF_LINEAR_FINISH_H
#define S24_KERNEL_REF_LINEAR_FINISH_H

#include <math.h>

#include "base/base.h"
#include "kernel/kernel.h"

static inline float linear_activate(float x, s24_activation activation)
{
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return x > 0 || x != x ? x : 0;
    case S24_ACTIVATION_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case S24_ACTIVATION_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case S24_ACTIVATION_SILU:
        return x / (1 + expf(-x));
    case S24_ACTIVATION_GELU_QUICK:
        return x / (1 + expf(-1.702f * x));
    default:
        return x;
    }
}

static inline float linear_finish(const s24i_linear_job *job, int64_t m, int64_t n, float y)
{
    y *= job->alpha;
    if (job->bias) y += job->bias[n];
    y = linear_activate(y, job->activation);
    if (job->gate)
        y *=
            s24i_load_f32(job->gate, job->y_dtype, m * job->gate_stride_m + n * job->gate_stride_n);
    if (job->residual && job->beta != 0)
        y += job->beta * s24i_load_f32(job->residual, job->y_dtype,
                                       m * job->residual_stride_m + n * job->residual_stride_n);
    return y;
}

#endif
