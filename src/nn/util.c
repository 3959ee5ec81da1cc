// SPDX-License-Identifier: Apache-2.0
/* Sentences that name their tensor. */
#include "nn/util.h"

#include <time.h>

s24_status s24i_name_tensor(s24_ctx *ctx, s24_status status, const s24_tensor *tensor)
{
    if (status == S24_OK || status == S24_ERROR_INTERRUPTED) return status;
    return s24_ctx_fail(ctx, status, "%s: tensor '%s': %s", tensor->file,
                        s24i_show(tensor->name).text, s24_ctx_error(ctx));
}

double s24i_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
