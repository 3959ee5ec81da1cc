// SPDX-License-Identifier: Apache-2.0
/* Which tokens a text's vector is of. */
#ifndef S24_CUDA_ROW_POOLED_CUH
#define S24_CUDA_ROW_POOLED_CUH

#include "cuda/plugin/device.cuh"

/* Those that may be: all, the first, or the last whose mask is 1. */
struct pooled_span {
    int first, end;

    template <class JOB>
    __device__ pooled_span(const JOB &job, int text)
        : first(job.offsets[text]), end(job.offsets[text + 1])
    {
        if (job.pooling == S24I_POOL_CLS) end = first + 1;
        if (job.pooling != S24I_POOL_LAST) return;
        while (job.mask && end - 1 > first && !job.mask[end - 1])
            end--;
        first = end - 1;
    }
};

#endif
