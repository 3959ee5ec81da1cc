// SPDX-License-Identifier: Apache-2.0
/*
 * What a rank has of a model that several hold together. Queries, keys, values and what stands
 * before a block's last product are cut along n, by heads and by neurons; what follows them along
 * k, in whole groups of four.
 */
#ifndef S24_RUN_LOAD_CUT_H
#define S24_RUN_LOAD_CUT_H

#include "model/model.h"

/* A rank's part of a layer: some ranges of its rows with all columns, or one of its columns. */
typedef struct s24i_cut {
    int along_k;
    int count;
    int64_t begin[3], end[3];
    int ranks; /* for sentences */
} s24i_cut;

/* The communicator's ranks, with the table that they fill; none where it is NULL or of one.
   UNSUPPORTED: a device; MEMORY. */
s24_status s24i_ranks_begin(s24i_ranks *ranks, s24_ctx *ctx, const s24_model_opts *opts);
/* *cut: this rank's shape of a whole one of that row. `where` is a folder or preset. UNSUPPORTED:
   what does not divide, and rows whose blocks are not shared out, by their names. */
s24_status s24i_ranks_shape(s24i_shape *cut, s24_ctx *ctx, const s24i_ranks *ranks,
                            const s24i_architecture *architecture, const s24i_shape *whole,
                            const char *where);
/* What a model was made of: a checkpoint, or a preset. */
typedef struct s24i_ranks_model {
    const s24_checkpoint *checkpoint; /* NULL: */
    const char *preset;
    const s24_model_opts *opts;
} s24i_ranks_model;
/* After a model was made, or was not: all ranks have the same one, which then has the table; else
   *model is destroyed and NULL. */
s24_status s24i_ranks_end(s24_model **model, s24_ctx *ctx, s24i_ranks *ranks,
                          const s24i_ranks_model *of, s24_status mine);

s24i_cut s24i_cut_of(const s24i_ranks *ranks, const s24i_shape *whole, s24i_slot slot);
/* Of a 2:4 weight of so many columns whole groups of four are taken; else UNSUPPORTED. */
s24_status s24i_cut_check(s24_ctx *ctx, const s24i_cut *cut, int64_t cols);
/* Has this rank the layer's bias? Of those cut along k rank 0 alone. */
int s24i_cut_has_bias(const s24i_ranks *ranks, const s24i_cut *cut);
/* Replaces a source by the rank's part of it. *buffer is memory of the context that it may lie in,
   and is replaced with it. UNSUPPORTED, MEMORY. */
s24_status s24i_source_cut(s24i_source *source, void **buffer, s24_ctx *ctx, const s24i_cut *cut);

#endif
