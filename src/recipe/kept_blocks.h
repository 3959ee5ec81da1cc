// SPDX-License-Identifier: Apache-2.0
/*
 * What a long prune has done so far: a folder with a .safetensors file for each block that is
 * finished, of its pruned tensors as they will be written, and of what was reported of them. Each
 * appears whole or not at all, so a run that is killed loses the block at hand. The files are of
 * one run: its options, model and passages have a hash, which all of them carry.
 */
#ifndef S24_RECIPE_KEPT_BLOCKS_H
#define S24_RECIPE_KEPT_BLOCKS_H

#include "recipe/model_prune.h"

enum { S24I_KEPT_RUN = 24 };

typedef struct s24i_kept_blocks {
    const s24i_pruner *pruner;        /* the run's */
    char run[S24I_KEPT_RUN];          /* its hash */
    int numbers;                      /* of a block's layers */
    const s24_tensor *const *tensors; /* [numbers] of the block at hand */
    s24_checkpoint *file;             /* of the block at hand, where it was found; else NULL */
    s24i_pruner own;                  /* what prunes the block at hand into a file, */
    double *reports;                  /* [numbers, 2] and what it reports: kept_l1, output_error */
} s24i_kept_blocks;

/* The passages as the run reads them, for its hash: ids, or an image each. */
typedef struct s24i_kept_passages {
    const int64_t *ends; /* [texts + 1] */
    int64_t texts;
    const int32_t *ids;   /* NULL: images */
    const int32_t *types; /* NULL: 0 */
    const float *pixels;
    int64_t image_elems;
} s24i_kept_passages;

/* Makes the folder where it is not there. Errors: IO, MEMORY. */
s24_status s24i_kept_begin(s24i_kept_blocks *kept, const s24i_pruner *pruner,
                           const s24i_kept_passages *passages, int numbers);
void s24i_kept_free(s24i_kept_blocks *kept);
/* *found: is the block there? Then its weights, for slots that have a tensor, are what a reader
   will see, the tensors are written to the run's writer and reported. Errors: EXISTS (of another
   run), those of reading and writing. */
s24_status s24i_kept_take(int *found, s24i_kept_blocks *kept, int64_t block,
                          const s24_tensor *const *tensors, const s24_dense *weights);
/* Else the block is pruned by *pruner, which writes to a file of its own; done, the file is put in
   its place and its tensors go to the run's writer. drop forgets a file that was begun. */
s24_status s24i_kept_open(const s24i_pruner **pruner, s24i_kept_blocks *kept, int64_t block,
                          const s24_tensor *const *tensors);
s24_status s24i_kept_close(s24i_kept_blocks *kept, int64_t block);
void s24i_kept_drop(s24i_kept_blocks *kept);
/* Removes the folder, once the output is there. */
void s24i_kept_end(const s24i_pruner *pruner);

#endif
