// SPDX-License-Identifier: Apache-2.0
/*
 * Global scope: the share of weights that go, or of blocks, is of all tensors together. A first
 * walk gathers scores, then each tensor has its own number of zeros.
 */
#ifndef S24_RECIPE_GLOBAL_SCOPE_H
#define S24_RECIPE_GLOBAL_SCOPE_H

#include "base/try.h"
#include "sparse24/nn.h"

/* A tensor's scores, of weights or means of blocks, and how many of them are under the common
   limit. */
typedef struct s24i_scope_part {
    const s24_tensor *tensor;
    int64_t first, count, zeros;
} s24i_scope_part;

typedef struct s24i_scope {
    int gathering; /* 1: the first walk */
    float *scores; /* [room], in the tensors' order */
    int64_t used, room;
    s24i_scope_part *parts;
    int64_t count;
} s24i_scope;

/* Room for tensors that have so many scores together. */
s24_status s24i_scope_create(s24i_scope *scope, s24_ctx *ctx, int64_t scores, int64_t tensors);
void s24i_scope_free(s24i_scope *scope, s24_ctx *ctx);
/* Adds a tensor's scores; normalize: by the mean of their magnitudes. */
void s24i_scope_add(s24i_scope *scope, const s24_tensor *tensor, const double *scores,
                    int64_t count, int normalize);
/* Ends the gathering: exactly so many of all go. */
void s24i_scope_divide(s24i_scope *scope, int64_t zeros);
/* The share of a tensor's that goes; −1: it was not gathered. */
double s24i_scope_share(const s24i_scope *scope, const s24_tensor *tensor);

#endif
