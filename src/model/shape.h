// SPDX-License-Identifier: Apache-2.0
/* The shape of a model: what config.json says in terms of its row, and what follows for each of its
   blocks, tables and layers. */
#ifndef S24_MODEL_SHAPE_H
#define S24_MODEL_SHAPE_H

#include "model/architecture.h"
#include "model/rotary.h"

/* Of a table of distances that queries and keys are multiplied with. */
typedef struct s24i_apart {
    int64_t span;            /* rows for distances on either side; 0: there is no such table */
    int64_t near, farthest;  /* so many rows, from half of it on ever wider ones; 0: one each */
    int of_queries, of_keys; /* which are multiplied */
    int normed;
} s24i_apart;

typedef struct s24i_shape {
    int64_t vocabulary, positions, types, width, layers, heads, intermediate;
    float eps;
    s24_activation activation;
    int squared;                             /* ReLU² */
    float gate_limit;                        /* of a row's gate that is clamped */
    int64_t kv_heads, head_width;            /* heads, width / heads where nothing else is said */
    int64_t image, patch, channels, classes; /* of images; 0: the model reads text */
    int64_t more_tokens;                     /* of an image, after its first */
    int64_t table_side;                      /* patches a side of the table of positions */
    int probes;                              /* the row's head that pools is there */
    int64_t projected;                       /* rows of the row's projection; 0: there is none */
    int64_t end;                             /* the token that pools; 0: that of the highest id */
    float dropout, attention_dropout;
    float score_scale;   /* of attention; 0: one by the root of head_width */
    int scaled_by_block; /* and in block b by b + 1 */
    s24i_rope rope;
    uint64_t unturned[4]; /* bits of blocks that positions do not turn */
    uint64_t windowed[4]; /* bits of blocks that have a window: */
    int64_t sliding;      /* see s24i_block_sliding */
    int64_t near;         /* see s24i_block_near */
    s24i_rope near_rope;  /* of blocks that have a window; theta 0: as of the others */
    int64_t turned;       /* elements of a head that positions turn, its first; 0: all */
    float embedding_factor, residual_factor, logits_factor; /* 0: 1 */
    float scores_cap, logits_cap;                           /* 0: none */
    int64_t buckets;      /* rows of the table of distances; 0: scores do not grow by them */
    int64_t tables;       /* of these, one for each block; 0: one for all */
    int64_t buckets_read; /* the first of these, half of them for either side */
    int64_t farthest;     /* from here on distances are in the last bucket of their side */
    s24i_apart apart;
    int64_t embedding; /* columns of the tables of words, positions and types */
    int projects;      /* a layer makes one of the other even where they are alike */
    int64_t skipped;   /* rows before the first position's */
    int pads;          /* tokens of the id skipped − 1 have that row, and none counts them */
    int masked_grows;  /* words of the id `masked` are zeros, see key_masked_grows */
    int64_t masked;
    int joint;              /* query, key and value are one layer, S24I_QUERY */
    int gated;              /* there is a layer S24I_GATE, or */
    int joint_gate;         /* its rows are the first of S24I_INTERMEDIATE's */
    int64_t grid, window;   /* tokens a side of an image with relative positions, of a window */
    uint64_t global_blocks; /* bits of blocks that attend beyond windows */
    s24i_mixture mixture;
    /* Of attention over latents: head_width is that of what is attended to, and there is one head
       of keys; or see s24i_latent_spread. */
    s24i_latent latent;
} s24i_shape;

/* The tensors of a head that pools: a query that is learned attends to all tokens, and a small
   block of its own follows. */
typedef enum s24i_probe_part {
    S24I_PROBE,
    S24I_PROBE_IN, /* query, key, value: [3·width, width] and its bias */
    S24I_PROBE_IN_BIAS,
    S24I_PROBE_OUT,
    S24I_PROBE_OUT_BIAS,
    S24I_PROBE_GAMMA,
    S24I_PROBE_BETA,
    S24I_PROBE_UP,
    S24I_PROBE_UP_BIAS,
    S24I_PROBE_DOWN,
    S24I_PROBE_DOWN_BIAS,
    S24I_PROBE_PARTS
} s24i_probe_part;

/* The share of words that was not masked while ESM-2 was trained. */
#define S24I_MASKED_KEPT 0.88f

/* Of distances: rows that are read of a table, which may have more of them. */
enum { S24I_BUCKETS = 32 };

/* The side of the square that a block attends to. */
static inline int64_t s24i_attended_side(const s24i_shape *shape, int64_t block)
{
    return shape->window && !(shape->global_blocks >> block & 1) ? shape->window : shape->grid;
}

/* Do rotary positions turn the block's queries and keys? */
static inline int s24i_block_turns(const s24i_shape *shape, int64_t block)
{
    return !(shape->unturned[block / 64 % 4] >> block % 64 & 1);
}

/* Elements of a head that positions turn. */
static inline int64_t s24i_turned(const s24i_shape *shape)
{
    return shape->turned ? shape->turned : shape->head_width;
}

/* Has the block a window? */
static inline int s24i_block_windowed(const s24i_shape *shape, int64_t block)
{
    return (int)(shape->windowed[block / 64 % 4] >> block % 64 & 1);
}

/* What scores of the block's attention are multiplied by. */
static inline float s24i_block_scale(const s24i_shape *shape, int64_t block)
{
    const float scale =
        shape->score_scale > 0.0f ? shape->score_scale : 1.0f / sqrtf((float)shape->head_width);
    return shape->scaled_by_block ? scale / (float)(block + 1) : scale;
}

/* How many tokens a token of that block attends to, itself and those before it; 0: all. */
static inline int64_t s24i_block_sliding(const s24i_shape *shape, int64_t block)
{
    return s24i_block_windowed(shape, block) ? shape->sliding : 0;
}

/* To how many tokens a token of that block attends on each side of it, itself one of them; 0: to
   all. */
static inline int64_t s24i_block_near(const s24i_shape *shape, int64_t block)
{
    return s24i_block_windowed(shape, block) ? shape->near : 0;
}

/* Where in the table of positions the i-th token of a text is, after `pads` that pad, which counts
   on: these have the row before the first position's, and positions leave them out. */
static inline int64_t s24i_place_of(const s24i_shape *shape, int32_t id, int64_t i, int64_t *pads)
{
    if (!shape->pads || id != shape->skipped - 1) return i - *pads;
    ++*pads;
    return -1;
}

/* Rows of the checkpoint's table of positions. */
static inline int64_t s24i_table_rows(const s24i_architecture *a, const s24i_shape *s)
{
    if (!s->image) return s->skipped + s->positions;
    return (a->first_token != NULL) + (a->more_unplaced ? 0 : s->more_tokens) +
           s->table_side * s->table_side;
}

/* Rows and columns of a part of the head that pools; columns 0: a vector. */
void s24i_probe_shape(int64_t *rows, int64_t *cols, const s24i_shape *shape, s24i_probe_part part);

/* Numbers of an image, where the model reads images. */
static inline int64_t s24i_image_elems(const s24i_shape *shape)
{
    return shape->channels * shape->image * shape->image;
}

/* Are embeddings of another width than the blocks? */
static inline int s24i_projects(const s24i_shape *shape)
{
    return shape->projects || (shape->embedding && shape->embedding != shape->width);
}

/* Columns of the tables of embeddings. */
static inline int64_t s24i_embedding_width(const s24i_shape *shape)
{
    return s24i_projects(shape) ? shape->embedding : shape->width;
}

/* Queries, keys and values of a token. */
static inline int64_t s24i_qkv_outputs(const s24i_shape *shape)
{
    return (shape->heads + 2 * shape->kv_heads) * shape->head_width;
}

/* Elements of a norm of queries' or keys' heads: of one, or of all together. */
static inline int64_t s24i_head_norm(const s24i_architecture *architecture, const s24i_shape *shape,
                                     int of_keys)
{
    const int64_t heads = of_keys ? shape->kv_heads : shape->heads;
    if (architecture->latent) return of_keys ? shape->latent.rank : shape->latent.queries;
    return (architecture->wide_norms ? heads : 1) * shape->head_width;
}

/* What attention gives a token, of all heads. */
static inline int64_t s24i_attended(const s24i_shape *shape)
{
    return shape->heads * (shape->latent.rank ? shape->latent.value : shape->head_width);
}

/* Linear layers of a block; of latents the one that makes keys and values is none. */
static inline int64_t s24i_block_layers(const s24i_shape *shape, int64_t block)
{
    const int64_t outer = shape->gated && !shape->joint_gate ? 3 : 2,
                  attends = shape->joint         ? 2
                            : shape->latent.rank ? 3 + (shape->latent.queries > 0)
                                                 : 4;
    const int mixes = s24i_mixture_has(&shape->mixture, block);
    return attends + outer * (mixes ? s24i_mixture_all(&shape->mixture) : 1);
}

/* The pattern of a layer's name by its number, in `room` where it is an expert's; NULL: the row has
   no such layer. */
const char *s24i_slot_pattern(char room[S24I_NAME_BYTES], const s24i_architecture *arch,
                              const s24i_shape *shape, s24i_slot slot);

/* What a slot's layer gives for a token, whether or not its weight is joint with another's. */
int64_t s24i_slot_outputs(const s24i_shape *shape, s24i_slot slot);

/* Rows and columns of a slot's weight; no rows of one that is joint with another, or not there. */
void s24i_slot_shape(int64_t *rows, int64_t *cols, const s24i_shape *shape, s24i_slot slot);

/* Where a device runs it, heads have keys and values of their own, as wide as the wider of both. */
void s24i_latent_spread(s24i_shape *shape);

/* Reads the shape of a folder's model. */
s24_status s24i_shape_read(s24i_shape *shape, s24_ctx *ctx, const s24i_architecture *architecture,
                           const char *folder);

#endif
