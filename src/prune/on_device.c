// SPDX-License-Identifier: Apache-2.0
/* Criteria that only choose, on a device: the matrix that it makes of the weight, dense again. */
#include "prune/prune.h"
#include "sparse24/device.h"

s24_status s24i_prune_on_device(s24_ctx *ctx, const s24i_prune_job *job)
{
    const s24_dense w = {job->w, S24_F32, job->n, job->k, 0};
    const s24_matrix_opts opts = {.size = sizeof opts, .select = job->select};
    s24_matrix *matrix;
    TRY(s24_device_matrix_create(&matrix, ctx, job->device, &w, &opts, NULL));
    s24_status status = s24_matrix_to_dense(ctx, &w, matrix);
    s24_matrix_destroy(matrix);
    return status;
}
