// SPDX-License-Identifier: Apache-2.0
/* How a folder of sentence-transformers makes a text's vector of its tokens': what modules.json
   lists, and the most tokens of a text. */
#ifndef S24_MODEL_POOLING_H
#define S24_MODEL_POOLING_H

#include "device/device_layers.h"
#include "io/checkpoint/config.h"

struct s24i_architecture;
struct s24i_shape;

/* How token vectors become a text's: in one way or in several, whose vectors lie side by side. */
enum { S24I_POOLING_WAYS = 6 };
typedef struct s24i_pooled {
    s24i_pooling pooling;                        /* the first way */
    s24i_pooling further[S24I_POOLING_WAYS - 1]; /* after it */
    int further_count;
    int said;         /* 0: modules.json is there, and has no Pooling */
    int late;         /* 1: its modules make a vector of each token (run/late_sides.h) */
    int pools_prompt; /* 0: a prompt's tokens are left out */
    int normalise;    /* as the last thing */
    int more_modules; /* between pooling and that, which are an encoder's (run/modules.h) */
    /* Of words: weights of a text's tokens are summed up in place of the largest, and log(1 + x) is
       taken twice. */
    int sums, twice;
} s24i_pooled;

static inline s24i_pooling s24i_pooling_way(const s24i_pooled *pooled, int index)
{
    return index ? pooled->further[index - 1] : pooled->pooling;
}

/* Devices and training have some ways, and one of them at a time. */
static inline int s24i_pooling_is_common(const s24i_pooled *pooled)
{
    return pooled->pooling < S24I_POOLINGS && !pooled->further_count;
}

/* The way of pooling of a name (s24_encoder_pooling_name); 0: there is none. And its name. */
int s24i_pooling_find(s24i_pooling *pooling, const char *name);
const char *s24i_pooling_name(s24i_pooling pooling);
/* How a model pools whose folder does not say. */
s24i_pooling s24i_pooling_usual(const struct s24i_architecture *architecture,
                                const struct s24i_shape *shape);
s24_status s24i_pooling_read(s24i_pooled *pooled, s24_ctx *ctx, s24i_pooling usual,
                             const char *folder);
/* Does the folder's modules.json say how to pool? */
s24_status s24i_pooling_said(int *is_said, s24_ctx *ctx, const char *folder);
/* What sentence-transformers' modules do. */
typedef enum s24i_module_kind {
    S24I_MODULE_TRANSFORMER,
    S24I_MODULE_CLIP, /* a transformer that pools, and does not normalise */
    S24I_MODULE_POOLING,
    S24I_MODULE_SPLADE, /* pooling to weights of words */
    S24I_MODULE_DENSE,
    S24I_MODULE_NORMALIZE,
    S24I_MODULE_LAYER_NORM,
    S24I_MODULE_DROPOUT,
    S24I_MODULE_VECTOR_MASK, /* which tokens have vectors (run/late_sides.h) */
    S24I_MODULE_LOGIT_SCORE  /* of a language model: that of a token is a pair's */
} s24i_module_kind;
/* The kind of an element of modules.json. FORMAT, UNSUPPORTED. */
s24_status s24i_module_kind_read(s24i_module_kind *kind, const s24i_config *module);
/* Its folder, freed with s24_ctx_free, and the config.json there; both may be freed in any case. */
s24_status s24i_module_load(s24i_config *config, char **place, const s24i_config *module,
                            const char *folder, s24i_need need);
/* Where a folder's transformer lies: there, or where modules.json has it. Freed likewise. */
s24_status s24i_transformer_folder(char **out, s24_ctx *ctx, const char *folder);
/* The most tokens of a text that a folder allows a model of so many positions. FORMAT, IO. */
s24_status s24i_text_limit_read(int64_t *limit, s24_ctx *ctx, const char *folder,
                                int64_t positions);
#endif
