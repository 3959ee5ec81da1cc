// SPDX-License-Identifier: Apache-2.0
/* What tells one run of pruning from another: its options and its model, as they go into a hash.
   Passages are added by whoever has them. */
#ifndef S24_RECIPE_RUN_HASH_H
#define S24_RECIPE_RUN_HASH_H

#include "io/file/xxh3.h"
#include "sparse24/nn.h"

void s24i_run_hash_options(s24i_xxh3_stream *hash, const s24_model_prune_opts *o);
/* Names, forms and edges: a model of many gigabytes is not read for it. */
void s24i_run_hash_model(s24i_xxh3_stream *hash, const s24_checkpoint *in);

#endif
