// SPDX-License-Identifier: Apache-2.0
/* Takes sums [outs][pitch] of a tile of tokens to y, one after the other: for the rows of
   sparse_i8_driver.h whose instruction set has no faster way. */
#include "kernel/ref/linear_finish.h"

static void finish_tile(const s24i_linear_job *job, int64_t m, int64_t n, int outs,
                        const float *sums, int64_t pitch)
{
    for (int64_t t = 0; t < pitch && m + t < job->m; t++)
        for (int o = 0; o < outs; o++)
            s24i_store_f32(job->y, job->y_dtype,
                           (m + t) * job->y_stride_m + (n + o) * job->y_stride_n,
                           linear_finish(job, m + t, n + o, sums[o * pitch + t]));
}
