// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of an encoder: its shape, its weights and the linear products of its blocks. A model
 * is immutable once made, but for s24i_model_set_block while a model is being pruned.
 *
 *   block b:  x ─ QUERY KEY VALUE ─ attention ─ ATTENTION ─ (+x) norm ─ y
 *             y ─ INTERMEDIATE, activation ─ OUTPUT ─ (+y) norm ─ x of the next block
 */
#ifndef S24_NN_MODEL_H
#define S24_NN_MODEL_H

#include "nn/dense.h"
#include "nn/util.h"
#include "nn/vec.h"
#include "sparse24/nn.h"

/* The linear layers of a block. */
typedef enum s24i_slot {
    S24I_QUERY = 0,
    S24I_KEY,
    S24I_VALUE,
    S24I_ATTENTION, /* of the attention's output */
    S24I_INTERMEDIATE,
    S24I_OUTPUT,
    S24I_SLOTS
} s24i_slot;

typedef enum s24i_pooling { S24I_POOL_MEAN, S24I_POOL_CLS, S24I_POOL_MAX } s24i_pooling;

/* How a model_type spells its configuration and tensors: one row of models.def. In names %d is
   the block. */
typedef struct s24i_architecture {
    const char *model_type;
    const char *prefix; /* may stand before every name but the head's, or be missing */
    const char *key_vocabulary, *key_positions, *key_types, *key_width, *key_layers, *key_heads,
        *key_intermediate, *key_activation, *key_eps, *key_position_type;
    const char *words, *positions, *types, *embedding_norm; /* the norm without .weight, .bias */
    const char *slots[S24I_SLOTS];                          /* without .weight, .bias */
    const char *attention_norm, *output_norm;
    const char *qa_head;
} s24i_architecture;

typedef struct s24i_shape {
    int64_t vocabulary, positions, types, width, layers, heads, intermediate;
    float eps;
    s24_activation activation;
} s24i_shape;

/* y[m,n] = activation(x[m,k]·wᵀ + bias) (+ y): dense or 2:4, one of weight and plan is set. */
typedef struct s24i_linear {
    int64_t n, k;
    const float *bias;
    s24_activation activation;
    s24i_dense_weight *weight;
    s24_plan *plan;
} s24i_linear;

typedef struct s24i_block {
    /* One product of 3·width rows (in qkv[0]) when query, key and value are all dense or all 2:4,
       else three. */
    s24i_linear qkv[3];
    int qkv_count;
    s24i_linear attention, intermediate, output;
    const float *bias[S24I_SLOTS]; /* query's, key's and value's stand end to end */
    s24i_layer_norm attention_norm, output_norm;
} s24i_block;

struct s24_model {
    s24_ctx *ctx;
    const s24i_architecture *architecture;
    s24i_shape shape;
    s24_dtype dtype; /* of the linear products: f32, bf16 or i8 */
    float *floats;   /* everything below that is a float */
    /* words may lie in words_map, the checkpoint's file; type_rows is NULL without token types. */
    const float *words, *position_rows, *type_rows;
    s24i_map words_map; /* empty: words is among the floats */
    s24i_layer_norm embedding_norm;
    const float *qa_weight, *qa_bias; /* [2, width], [2]; NULL without a head */
    s24i_block *blocks;
    s24i_pooling pooling;
    int pools_prompt; /* 0: a prompt's tokens would have to be left out, which is not done */
    int normalise;
    int64_t sparse_layers;
    int64_t weight_bytes;
};

/* The row of a model_type, NULL if there is none. */
const s24i_architecture *s24i_architecture_find(const char *model_type);

/* Rows and columns of a slot's weight. */
void s24i_slot_shape(int64_t *rows, int64_t *cols, const s24i_shape *shape, s24i_slot slot);

/* Which linear layer a tensor of the checkpoint is ("bert.encoder.layer.3.output.dense.weight",
   with or without the prefix): 1 and *block, *slot, or 0. */
int s24i_model_find_linear(int64_t *block, s24i_slot *slot, const s24_model *model,
                           const char *name);

/* Replaces the linear weights of a block by dense f32 ones, in the order of s24i_slot; the biases
   stay. No session may be running. On error the block is as it was. */
s24_status s24i_model_set_block(s24_model *model, s24_ctx *ctx, int64_t block,
                                const s24_dense weights[S24I_SLOTS]);

/* ---- making models (model_*.c) --------------------------------------------------------------- */

/* The caller's options with defaults for what is not there. Errors: ARGUMENT, DTYPE. */
s24_status s24i_model_opts_read(s24_model_opts *out, s24_ctx *ctx, const s24_model_opts *opts);

typedef struct s24i_rooms {
    int words;   /* 0: they are mapped */
    int qa_head; /* 0: there is none */
} s24i_rooms;
/* A model with its shape known and room for its floats; blocks' products are missing. */
s24_status s24i_model_create(s24_model **out, s24_ctx *ctx, const s24i_shape *shape,
                             s24i_rooms rooms);
/* The arrays of model->floats, to be filled by whoever makes the model. */
static inline float *s24i_writable(const float *floats)
{
    return (float *)(uintptr_t)floats;
}

/* The dtype that 2:4 weights are made in: integers are quantised from floats when planned. */
static inline s24_dtype s24i_model_values(s24_dtype dtype)
{
    return dtype == S24_I8 ? S24_F32 : dtype;
}

/* One linear layer's weight on its way into a block: dense f32, or a 2:4 matrix of floats. */
typedef struct s24i_source {
    s24_dense dense; /* data NULL when matrix is set */
    s24_matrix *matrix;
} s24i_source;

/* Makes the products of a block from six sources, which stay the caller's. Two neighbours that
   are one product are joined here. */
s24_status s24i_block_build(s24_model *model, s24_ctx *ctx, int64_t block,
                            const s24i_source sources[S24I_SLOTS]);
void s24i_block_clear(s24i_block *block);

/* Reads shape, pooling and normalisation of a folder. */
s24_status s24i_shape_read(s24i_shape *shape, s24_ctx *ctx, const s24i_architecture *architecture,
                           const char *folder);
s24_status s24i_pooling_read(s24_model *model, s24_ctx *ctx, const char *folder);

#endif
