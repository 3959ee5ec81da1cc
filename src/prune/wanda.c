// SPDX-License-Identifier: Apache-2.0
/*
 * The criterion "wanda": keep the two largest |w_ij|·‖x_j‖ of each group, x_j being column j of the
 * inputs. ‖x_j‖² is the Gram matrix's diagonal; the mean that the paper takes over it scales every
 * score of a layer alike. The kept weights stay as they are.
 *
 * Reference: Sun, Liu, Bair, Kolter, "A simple and effective pruning approach for large language
 * models", ICLR 2024, section 3.
 */
#include <math.h>

#include "prune/prune.h"

s24_status s24i_prune_wanda(s24_ctx *ctx, const s24i_prune_job *job)
{
    double *norm = s24_ctx_alloc(ctx, (size_t)job->k * sizeof *norm);
    REQUIRE(ctx, norm, S24_ERROR_MEMORY, "out of memory for %lld column norms", (long long)job->k);
    for (int64_t j = 0; j < job->k; j++)
        norm[j] = sqrt(job->stats->gram[j * job->k + j]);
    s24i_prune_by_score(ctx, job->w, job->n, job->k, norm);
    s24_ctx_free(ctx, norm);
    return S24_OK;
}
