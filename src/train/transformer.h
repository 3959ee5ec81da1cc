// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a transformer. One block for all of them: with n(0) = norm(embeddings),
 *
 *     s(j+1) = r(j) + f(n(j))      n(j+1) = norm(s(j+1))      j = 0 … 2·layers − 1
 *
 * where f is attention for even j and the feed-forward layers for odd j, and the residual r is n
 * where norms follow the sums (BERT) and s where they precede the layers (GPT-2, Llama, ViT). So
 * there are 2·layers + 1 norms: BERT's first is its embeddings' norm, the others' last is the final
 * norm. Hidden state b is n(2b), or s(2b). Where norms precede the layers and embeddings have one
 * all the same (ModernBERT's), it is the first, and r(0) is n(0), or, where the first block has its
 * own (RoBERTa's with norms before its layers), s(0) is what it makes of them. Where halves stand
 * side by side (Phi), n(2b + 1) is a norm of s(2b) too, and s(2b + 1) has none; of a model without
 * norms before its layers (OLMo 2) all n but the last are s. Embeddings that are narrower than the
 * blocks have a sum and a norm of their own, and a layer makes n(0) of it.
 *
 * Weights lie in one arena, gradients in another of the same layout, and whatever a pass needs in a
 * third; all are made at load for the largest batch.
 */
#ifndef S24_TRAIN_TRANSFORMER_H
#define S24_TRAIN_TRANSFORMER_H

#include "model/steps.h"
#include "run/modules.h"
#include "sparse24/train.h"
#include "train/ops.h"

/* A tensor of the checkpoint and where the arena has it: [rows, cols], perhaps transposed. */
typedef struct s24i_place {
    char name[S24I_NAME_BYTES];
    int rank;
    int64_t shape[S24_MAX_RANK];
    int64_t offset, rows, cols;
    int transposed;
    int linear; /* the weight of a layer of a block, [rows, cols] */
    int made;   /* not in the checkpoint: a head, or a bias among others */
} s24i_place;

typedef struct s24i_train_block {
    s24i_layer qkv, attention, up, down; /* up: [gate;] intermediate */
    s24i_norm query_norm, key_norm;      /* of a head, where the model type has them */
    s24i_norm after[2];                  /* of what each half adds, likewise */
    float *scale[2], *dscale[2];         /* [width] that multiplies it, likewise */
    float *relative, *drelative;         /* what scores grow by, [buckets, heads]; NULL: nothing */
} s24i_train_block;

/* A buffer that is there several times, `step` bytes apart. */
typedef struct s24i_stacked {
    char *at;
    size_t step;
} s24i_stacked;

/* Told in a pass backward that block b has been left: gradients of those after it are whole. */
typedef struct s24i_ready {
    void (*call)(void *user, s24_ctx *ctx, s24_transformer *t, int64_t block); /* NULL: nobody is */
    void *user;
} s24i_ready;

/* Buffers of a pass. What a backward pass needs is there for every layer, else once; where
   activations are computed again, sums and norms between blocks alone are there for every one. */
typedef struct s24i_buffers {
    s24i_stacked s, n, stats;             /* of norms */
    s24i_stacked qkv, context, u, h, lse; /* of blocks */
    s24i_stacked raw, head_stats;         /* qkv before its heads' norms, where there are any */
    s24i_stacked added, added_stats; /* of halves: what is changed before it is added, likewise */
    void *z;                         /* [T, width]: a half's output before its sum */
    void *rows;                      /* [T, channels·patch²] of images */
    void *dn, *ds, *dqkv, *dcontext, *dh, *du;
    float *logits, *teacher_logits; /* [chunk, head.ldy] */
    void *attention;                /* what attention's pass backward needs */
    size_t attention_bytes;
    void *dlogits;         /* [chunks·chunk, head.ldy]; of f32 the logits' own memory */
    int64_t chunk, chunks; /* rows of logits at a time; of how many such their gradients are */
    float *pooled;         /* [texts, ways, width] */
    float *vectors, *teacher_vectors; /* what modules make of it, or itself */
    char *states;                     /* [layers + 1, T, width]: a teacher's */
    float *angles, *near_angles;      /* [positions that are reached, head_width] */
    float *distances;                 /* see s24i_heads; of each block that has a table */
    int64_t distances_block, distances_head, distance_zero;
    int32_t *buckets; /* see s24i_heads */
    /* Of a table of distances [rows, …]: its norm, what a block makes of that, and their gradients,
       the norm's of one block and of all. */
    float *apart, *apart_stats, *apart_qkv, *dapart_qkv, *dapart_block, *dapart;
    /* Of embeddings that are narrower than blocks, [T, embedding]: their sum and its norm, and the
       gradients of that from both ways that lead on. */
    void *narrow, *narrow_n, *narrow_dn, *narrow_ds;
    float *embedding_stats; /* of a norm that makes s(0), whose sum is narrow */
    s24i_sums *sums;
} s24i_buffers;

struct s24_transformer {
    s24_ctx *ctx;
    s24i_machine machine;
    const s24i_architecture *arch;
    s24i_steps steps; /* of a block */
    s24i_shape shape;
    s24i_pooled pooled;
    s24i_modules modules; /* after pooling; these do not learn */
    s24_head head_kind;
    s24_transformer_opts opts;
    s24i_place *places;
    int64_t place_count;
    s24i_segment *segments;
    int64_t segment_count;
    int window; /* 1: all blocks have one place, where one block's weights are at a time */
    float *weights, *gradients; /* [elems] in the machine's memory */
    int64_t elems;
    s24i_embed embed;
    s24i_layer patches, project, head;
    s24i_norm *norms;      /* [2·layers + 1] */
    float *apart, *dapart; /* rows of distances (model/apart.h); NULL: there are none */
    s24i_norm apart_norm;
    int32_t *apart_rows; /* which row a distance has, from the one of the longest text back on */
    s24i_norm embedding_norm; /* where s(0) is what it makes */
    s24i_train_block *blocks; /* [layers] */
    void *arena;
    s24i_buffers at;
    s24i_train_batch step; /* the batch that was begun; its arrays lie in the arena */
    s24i_train_batch room; /* those arrays */
    s24i_ready ready;
    /* What of a batch is worked out before it goes there: offsets and tiles; positions, bounds and,
       sorted by id, the tokens. */
    int64_t *host;
    int32_t *host_words;
    float *host_factors;
};

/* How a pass is run. */
typedef struct s24i_mode {
    double dropout, attention_dropout;
    uint64_t seed;
    float *states; /* where hidden states go in host memory; or NULL */
    char *kept;    /* where they go in the machine's; or NULL */
} s24i_mode;

/* s24_transformer_load for who works on one block after another, whose weights alone are in memory
   then: those of none, until a block is opened. The checkpoint must be that of loading. */
s24_status s24i_transformer_load_window(s24_transformer **out, s24_ctx *ctx,
                                        const s24_checkpoint *checkpoint,
                                        const s24_transformer_opts *opts);
/* The machine of a transformer whose tensors have been counted (load_machine.c). UNSUPPORTED: a
   shape that a device does not take. */
s24_status s24i_make_machine(s24_transformer *t, s24_ctx *ctx);
s24_status s24i_transformer_open(s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                 int64_t block);

/* Checks a batch and lays it into the arena. */
s24_status s24i_begin(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples);
/* What the pass backward alone reads of them, sorted while a device is at the pass forward. */
void s24i_lay_out_order(s24_transformer *t, const s24_examples *examples);
/* The caller's objective, checked and with its defaults. */
s24_status s24i_objective_read(s24_objective *o, const s24_transformer *t, s24_ctx *ctx,
                               const s24_objective *objective);
/* Adds the objective's gradients and its loss to those that are there; waits for nothing. */
s24_status s24i_gradients(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples,
                          const s24_objective *objective);
/* The forward pass of the batch that was begun, to the last norm. */
void s24i_run_forward(s24_transformer *t, const s24i_mode *mode);
/* Adds to the gradients; dn holds the gradient of the last norm's output. Hidden states are pulled
   to those of a teacher, weight times their squared difference, where states is not NULL. */
typedef struct s24i_pull {
    const char *states; /* in the machine's memory */
    double weight;
} s24i_pull;
void s24i_run_backward(s24_transformer *t, const s24i_mode *mode, const s24i_pull *pull);

/* What forward and backward tell the attention of block b alike. */
s24i_heads s24i_heads_of(const s24_transformer *t, int64_t b);

/* A walk over blocks and their steps (train_block.c). */
typedef struct s24i_block_walk {
    s24_transformer *t;
    const s24i_mode *mode;
    const s24i_pull *pull; /* of the pass backward */
    int64_t block;
    int64_t sum; /* the number of the last sum, whose norm is what layers read */
    int ends;    /* 1: nobody asks for the gradient of the norm that a half begins with */
} s24i_block_walk;
void s24i_block_forward(s24i_block_walk *walk, int64_t b);
/* The same up to the block's last product, whose sum and norm were kept, or up to that sum where
   what it takes is changed before. */
void s24i_block_again(s24i_block_walk *walk, int64_t b);
void s24i_block_back(s24i_block_walk *walk, int64_t b);
/* The same of one half, attention (0) or the feed-forward layers (1): from the norm of sum
   2·b + half, which is there, to the next sum and its norm; and back. */
void s24i_half_forward(s24i_block_walk *walk, int64_t b, int half);
void s24i_half_back(s24i_block_walk *walk, int64_t b, int half);
/* Which of all norms a norm of block b is: that of the sum before it, or of the block's input. */
int64_t s24i_block_norm(const s24_transformer *t, int64_t b, int norm);
/* Rows of distances for the pass; and back from what all blocks made of them (train_apart.c). */
void s24i_apart_begin(s24_transformer *t);
void s24i_apart_back(s24_transformer *t);
/* Attention with them, for the walk. */
void s24i_attend_apart(s24i_block_walk *walk, const s24i_heads *heads, void *context,
                       const void *qkv);
void s24i_attend_apart_back(s24i_block_walk *walk, const s24i_heads *heads, void *dqkv,
                            const void *dcontext, const void *qkv);
/* The kinds of steps that both ways have, on a device or on the CPU, a bit (1 << kind) each. */
unsigned s24i_train_steps(int on_device);

/* A block's steps that norm and add (train_norm.c). */
void s24i_norm_forward(s24i_block_walk *walk, const s24i_block_step *step);
void s24i_norm_backward(s24i_block_walk *walk, const s24i_block_step *step);
void s24i_add_forward(s24i_block_walk *walk, const s24i_block_step *step);
void s24i_add_backward(s24i_block_walk *walk, const s24i_block_step *step);

/* A walk's sums and their norms (train_sum.c).
   Forward: s(j) = dropout(z + bias) + r(j − 1), n(j) = its norm. */
void s24i_sum_up(const s24i_block_walk *walk, const float *bias);
/* Backward: through the norm of the walk's sum, from dn to ds, which may hold the gradient that
   goes past the norm already. Returns the gradient of what was added to that sum, before it was
   dropped. The bias of the layer that `added` it gets its gradient; NULL: none has such a bias. */
const void *s24i_through_norm(const s24i_block_walk *walk, const s24i_layer *added);

/* The dropout of a site, forward and backward alike; NULL where the rate is 0. */
const s24i_dropout *s24i_drop(s24i_dropout *drop, const s24i_mode *mode, double rate, int64_t site);
/* The site of a block's attention for s24i_drop; norm j's sum is site j. */
static inline int64_t s24i_attention_site(int64_t b)
{
    return -b - 2;
}

/* Numbers of a text's vector as it is pooled, and at the end. */
static inline int64_t s24i_pooled_width(const s24_transformer *t)
{
    return t->shape.width * (1 + t->pooled.further_count);
}
static inline int64_t s24i_vector_width(const s24_transformer *t)
{
    return t->modules.count ? t->modules.width : s24i_pooled_width(t);
}

/* NULL: the model needs no such buffer. */
static inline void *s24i_in_stack(const s24i_stacked *stack, int64_t slot)
{
    return stack->at ? stack->at + (size_t)slot * stack->step : NULL;
}
/* Where norm j's and block b's buffers stand: one place for all where no pass backward follows. */
static inline int64_t s24i_norm_slot(const s24_transformer *t, int64_t j)
{
    if (!t->opts.train) return 0;
    return !t->opts.recompute ? j : j % 2 ? 0 : 1 + j / 2;
}
static inline int64_t s24i_block_slot(const s24_transformer *t, int64_t b)
{
    return t->opts.train && !t->opts.recompute ? b : 0;
}
static inline void *s24i_sum_at(const s24_transformer *t, int64_t j)
{
    return s24i_in_stack(&t->at.s, s24i_norm_slot(t, j));
}
static inline void *s24i_norm_at(const s24_transformer *t, int64_t j)
{
    return s24i_in_stack(&t->at.n, s24i_norm_slot(t, j));
}
static inline float *s24i_stats_at(const s24_transformer *t, int64_t j)
{
    return s24i_in_stack(&t->at.stats, s24i_norm_slot(t, j));
}
/* Have embeddings a norm before the first block's own? */
static inline int s24i_is_normed_twice(const s24_transformer *t)
{
    return t->arch->pre_norm && t->arch->embedding_norm && !t->arch->first_bare;
}
/* What a half of block b gives the residual; what is normed before that, or multiplied by columns,
   is kept as it came. */
static inline void *s24i_added_at(const s24_transformer *t, int64_t b, int half)
{
    void *kept = s24i_in_stack(&t->at.added, 2 * s24i_block_slot(t, b) + half);
    return kept ? kept : t->at.z;
}
/* Is the residual after norm j what was before it? */
static inline int s24i_goes_past(const s24_transformer *t, int64_t j)
{
    const int pre = t->arch->pre_norm || !t->arch->output_norm;
    return pre && (j > 0 || !t->arch->embedding_norm || s24i_is_normed_twice(t));
}
/* Do layers read sum j, or a norm of it? */
static inline int s24i_sum_is_read(const s24_transformer *t, int64_t j)
{
    return !t->arch->side_by_side || j % 2 == 0;
}
/* The norm that ends sum j; NULL: there is none. */
static inline const s24i_norm *s24i_norm_of_sum(const s24_transformer *t, int64_t j)
{
    return s24i_sum_is_read(t, j) && t->norms[j].row.gamma ? &t->norms[j] : NULL;
}
/* What layers read as n(j). */
static inline void *s24i_input_at(const s24_transformer *t, int64_t j)
{
    return t->norms[j].row.gamma ? s24i_norm_at(t, j) : s24i_sum_at(t, j);
}
/* Hidden state b, as transformers counts them, is a norm's output, or the sum before it. */
static inline int s24i_state_is_normed(const s24_transformer *t, int64_t b)
{
    return !s24i_goes_past(t, 2 * b) || (b == t->shape.layers && t->arch->state_normed);
}

/* How a text's vector is made (text_vectors.c): refuses what of it is not trained, and reads the
   modules after pooling. */
s24_status s24i_vectors_check(const s24_transformer *t, s24_ctx *ctx, const char *folder);
s24_status s24i_vectors_read(s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint);

s24_status s24i_plan_buffers(s24_transformer *t, s24_ctx *ctx);

#endif
