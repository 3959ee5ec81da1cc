// SPDX-License-Identifier: Apache-2.0
/* How the rows that take x in f32 alone hand few tokens to their lanes design (linear_driver.h). */
#ifndef S24_KERNEL_CPU_LINEAR_FEW_F32_H
#define S24_KERNEL_CPU_LINEAR_FEW_F32_H

#include "kernel/kernel.h"

typedef float few_t;

static int few_as_they_are(const s24i_linear_job *job)
{
    return job->x_stride_k == 1;
}

/* Few tokens whose columns do not lie together. */
static void gather_few(float *to, int64_t stride, const s24i_linear_job *job)
{
    const float *x = job->x;
    for (int64_t m = 0; m < job->m; m++)
        for (int64_t k = 0; k < job->k; k++)
            to[m * stride + k] = x[m * job->x_stride_m + k * job->x_stride_k];
}

#endif
