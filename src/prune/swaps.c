// SPDX-License-Identifier: Apache-2.0
/*
 * The refinement "swaps": which two of four stay is chosen once more, group after group, with all
 * other weights as they are by then. A criterion chooses before it knows what later groups lose;
 * here each of the six choices is taken with its two weights at their optimum, a system of two
 * equations in the Gram matrix, and the best one stays. No step makes the row's error larger, so it
 * ends: after a sweep in which no group chooses otherwise, or after SWEEPS. Other patterns have too
 * many choices to try all: see swap_pairs.c. A row's sweep is kernel/row_rules.h.
 *
 * Reference for the swap by the Gram matrix: Zimmer and others, "SparseSwaps: tractable LLM pruning
 * mask refinement at scale", 2025. There the weights that stay are those of the dense layer.
 */
#include <string.h>

#include "prune/prune_patterns.h"

enum { SWEEPS = 24 };

s24_status s24i_refine_swaps(s24_ctx *ctx, s24i_refit *refit)
{
    int moved = 1;
    if (!s24i_pattern_is_two_four(refit->pattern)) return s24i_swap_pairs(ctx, refit);
    for (int sweep = 0; moved && sweep < SWEEPS; sweep++) {
        memset(refit->moved, 0, (size_t)refit->n);
        s24i_refit_sweep(ctx, refit, &(s24i_sweep){.rule = S24I_ROW_SWAP});
        moved = 0;
        for (int64_t r = 0; r < refit->n; r++)
            moved |= refit->moved[r];
    }
    return S24_OK;
}
