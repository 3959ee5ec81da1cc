// SPDX-License-Identifier: Apache-2.0
/* Sentences that name their tensor, matrices turned, time. */
#include "nn/util.h"

#include <time.h>

s24_status s24i_name_tensor(s24_ctx *ctx, s24_status status, const s24_tensor *tensor)
{
    if (status == S24_OK || status == S24_ERROR_INTERRUPTED) return status;
    return s24_ctx_fail(ctx, status, "%s: tensor '%s': %s", tensor->file,
                        s24i_show(tensor->name).text, s24_ctx_error(ctx));
}

void s24i_transpose(float *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

double s24i_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
