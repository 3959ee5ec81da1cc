// SPDX-License-Identifier: Apache-2.0
/*
 * sparse24/task: what models are trained and measured on: examples, the order they come in, and
 * scores. The rules of sparse24.h and nn.h hold here too.
 *
 *   1  the order of examples
 */
#ifndef SPARSE24_TASK_H
#define SPARSE24_TASK_H

#include "sparse24/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. the order of examples ---------------------------------------------------------------- */

/*
 * Cuts the examples of a run into batches, epoch after epoch. The batch of a step is a function of
 * the options and the step alone, so that a run that was killed goes on with nothing but its step.
 */
typedef struct s24_batches s24_batches;

typedef struct s24_batches_opts {
    size_t size; /* sizeof(s24_batches_opts) */
    int64_t examples;
    /* [examples] tokens of each, 1 to S24_MAX_EXAMPLE_TOKENS, read by s24_batches_create only; NULL:
       all are alike. */
    const int32_t *lengths;
    int64_t batch;  /* examples a batch; default 32 */
    int64_t bucket; /* batches' worth of shuffled examples among which like lengths come together;
                       default 64; 1: only those that meet by chance */
    uint64_t seed;
    /* 0: the examples that fill no batch are left out of the epoch, in each others; 1: they come
       last, as a smaller batch. */
    int keep_rest;
    /* 1: nothing is shuffled, the longest come first in every epoch, and none is left out. */
    int in_order;
} s24_batches_opts;

#define S24_MAX_EXAMPLE_TOKENS (1 << 20)

/* Errors: ARGUMENT (no examples, a length or a number out of range, not one whole batch), MEMORY. */
S24_API s24_status s24_batches_create(s24_batches **out, s24_ctx *ctx,
                                      const s24_batches_opts *opts);
S24_API void s24_batches_destroy(s24_batches *batches);
/* Batches of an epoch, the same number in each. Step s is in epoch s / this. */
S24_API int64_t s24_batches_per_epoch(const s24_batches *batches);
/* The examples of the batch at a step (0, 1, …) and their number; they stand until the next call.
   Allocates nothing; a step of another epoch than the last call's orders that epoch, which takes
   time in proportion to the examples. */
S24_API int64_t s24_batches_at(const int64_t **examples, s24_batches *batches, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
