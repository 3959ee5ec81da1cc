// SPDX-License-Identifier: Apache-2.0
/* How the rows that compute on f32 hand few tokens to their lanes design (linear_driver.h). */
#ifndef S24_KERNEL_CPU_LINEAR_FEW_F32_H
#define S24_KERNEL_CPU_LINEAR_FEW_F32_H

#include "base/base.h"
#include "kernel/kernel.h"

typedef float few_t;

static int few_as_they_are(const s24i_linear_job *job)
{
    return job->x_dtype == S24_F32 && job->x_stride_k == 1;
}

/* Few tokens whose columns do not lie together, or in bf16. */
static void gather_few(float *to, int64_t stride, const s24i_linear_job *job)
{
    const float *wide = job->x;
    const uint16_t *narrow = job->x;
    for (int64_t m = 0; m < job->m; m++)
        for (int64_t k = 0; k < job->k; k++) {
            const int64_t at = m * job->x_stride_m + k * job->x_stride_k;
            to[m * stride + k] = job->x_dtype == S24_F32 ? wide[at] : s24i_bf16_to_f32(narrow[at]);
        }
}

#endif
