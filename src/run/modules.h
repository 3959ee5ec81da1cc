// SPDX-License-Identifier: Apache-2.0
/* What modules.json has after pooling, in its order: Dense layers, norms, a length of 1; and fewer
   dimensions, as a user may ask. The encoder does it on the host, wherever its model ran. */
#ifndef S24_RUN_MODULES_H
#define S24_RUN_MODULES_H

#include "model/model.h"

enum { S24I_MOST_MODULES = 8 };

typedef struct s24i_module {
    s24i_module_kind kind; /* Dense, LayerNorm or Normalize */
    float *weight, *bias;  /* of Dense [out, in], [out] or NULL; of LayerNorm [out] */
    int adds;              /* 1: of Dense, its input is added, if there is one by way of: */
    float *residual;       /* [out, in] */
    int64_t in, out;
    int activation; /* of the table in modules.c */
} s24i_module;

typedef struct s24i_modules {
    s24i_module module[S24I_MOST_MODULES];
    int count;
    int normalises;       /* after them and after the cut */
    int64_t given, width; /* of a vector before them, and after; both alike: nothing is to be done
                             but what the session does */
    int64_t widest;
} s24i_modules;

/* What the modules after vectors of `width` are read of. */
typedef struct s24i_modules_source {
    const char *folder;
    int64_t width, dimensions; /* 0: all */
    /* The model's own projection, which goes first: [projected, width], its bias or NULL. */
    const float *projection, *projection_bias;
    int64_t projected; /* 0: there is none */
    /* 1: they work on tokens' vectors, in place of texts'. */
    int of_tokens;
    const s24_checkpoint *inline_dense; /* has one as linear.weight, which goes first; or NULL */
} s24i_modules_source;
/* Reads a folder's modules; what modules.json says of pooling was read before, and the Normalize at
   its end is not among them, but of tokens makes `normalises` 1. FORMAT, UNSUPPORTED, ARGUMENT. */
s24_status s24i_modules_read(s24i_modules *modules, s24_ctx *ctx,
                             const s24i_modules_source *source);
/* Is there something to do? */
int s24i_modules_any(const s24i_modules *modules);
/* to [width] from a pooled vector, with room for 2 · widest floats. */
void s24i_modules_apply(float *to, const s24i_modules *modules, const s24i_vec *vec,
                        const float *from, float *room);
/* One of them: y [out] from x [in]. */
void s24i_module_run(float *y, const s24i_module *module, const s24i_vec *vec, const float *x);
/* Of training (modules_back.c), in which they stay as they are: dx [given] from dy [width], the
   gradient of what they all make of x, without a cut and the last length of 1; `room` has
   s24i_modules_back_room floats. */
int64_t s24i_modules_back_room(const s24i_modules *modules);
typedef struct s24i_modules_slope {
    const s24i_modules *modules;
    const s24i_vec *vec;
    float *room;
} s24i_modules_slope;
void s24i_modules_back(float *dx, const s24i_modules_slope *slope, const float *x, const float *dy);
/* The name of a Dense module's activation as PyTorch has it, and that activation's slope. */
const char *s24i_module_activation(const s24i_module *module);
float s24i_module_slope(const s24i_module *module, float x);
/* What LayerNorm adds to a variance. */
#define S24I_MODULE_EPS 1e-5f
void s24i_modules_free(s24i_modules *modules, s24_ctx *ctx);

#endif
