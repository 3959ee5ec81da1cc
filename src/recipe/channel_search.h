// SPDX-License-Identifier: Apache-2.0
/*
 * Which channels, the columns of a weight, should share groups of four, so that 2:4 keeps as much
 * of the weights' scores as can be.
 */
#ifndef S24_RECIPE_CHANNEL_SEARCH_H
#define S24_RECIPE_CHANNEL_SEARCH_H

#include "base/try.h"
#include "sparse24/sparse24.h"

/*
 * order[place] = channel, places 4g to 4g + 3 making a group; scores [count, rows] are a channel's
 * one after another, none negative; count is a multiple of 4. What the two largest of each group
 * and row come to is never less than in the order 0, 1, 2 …
 */
s24_status s24i_channels_search(s24_ctx *ctx, int32_t *order, const float *scores, int64_t rows,
                                int64_t count);

/* chosen[i] = the j of row i, each j once, so that the sum of gains [count, count] is largest. */
s24_status s24i_assign(s24_ctx *ctx, int32_t *chosen, const float *gains, int64_t count);

#endif
