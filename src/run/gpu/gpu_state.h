// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a session on a device, and what its files do for each other. Each calls only those
 * that stand before it here: a product and what it may take in or run as (gpu_fold.c, gpu_eight.c,
 * gpu_latent.c, gpu_product.c), steps of language models (gpu_language.c, gpu_experts.c), a pass
 * through blocks (gpu_block.c), what it reads (gpu_inputs.c), the measuring of both (gpu_search.c,
 * gpu_plan.c), and the session itself (gpu_session.c).
 */
#ifndef S24_RUN_GPU_GPU_STATE_H
#define S24_RUN_GPU_GPU_STATE_H

#include "device/device_train.h"
#include "model/steps.h"
#include "run/gpu/gpu_model.h"
#include "run/session.h"
#include "run/weight/weight_device.h"

enum {
    S24I_GPU_GRAPHS = 32,
    S24I_GPU_OCTAVES = 26, /* powers of two of tokens, to beyond the most of a session */
    S24I_GPU_RIVALS = 2,   /* tiles next to the one that is fastest alone */
    S24I_GPU_DENSE_WORK = 32 << 20
};

/* How a pass's texts go on with a cache (gpu_cache.c). */
typedef enum s24i_gpu_cached {
    S24I_GPU_ALONE, /* without one */
    S24I_GPU_FIRST, /* none has tokens there */
    S24I_GPU_MORE,
    S24I_GPU_STEP /* each by one token */
} s24i_gpu_cached;

/* What decides about the kernels of a pass and their pointers. */
typedef struct s24i_gpu_shape {
    int64_t tokens, texts, tiles, unpooled;
    int64_t longest; /* tokens of a text, where attention asks (gpu_language.c); else 0 */
    int64_t types, mask, embeddings, logits, hidden, classes, images; /* 0 or 1 */
    int64_t picks;  /* 1: each token's likeliest next one is asked for */
    int64_t cached; /* s24i_gpu_cached */
    int64_t kept;   /* 1: words are multiplied by a number of each (shape.masked_grows) */
    /* A cache may stand in the place of one that is gone. */
    const s24_cache *cache;
    const void *cache_memory, *cache_scratch, *cache_angles, *cache_near_angles;
    int64_t cache_texts, cache_room;
} s24i_gpu_shape;

/* Where the parts of a batch lie in inputs, in elements of 32 bits. */
typedef struct s24i_gpu_places {
    int64_t tiles, ids, positions, offsets, types, mask, pooled, places, before, kept, end;
} s24i_gpu_places;

typedef struct s24i_gpu_graph {
    s24i_gpu_shape shape;
    s24_device_graph *graph; /* NULL: the shape has been seen once */
    int64_t used;            /* number of the pass */
} s24i_gpu_graph;

/* How one of a block's products runs, in all blocks alike. */
typedef struct s24i_gpu_choice {
    const char *tile; /* of a 2:4 product; NULL: the device's own choice */
    s24i_way way;     /* of layers that have it; dense of one of integers: widened first */
} s24i_gpu_choice;

/* Does attention need the kernel that knows causal masks, windows, shared heads and all their
   widths? */
static inline int s24i_gpu_attends_as_language(const s24i_architecture *architecture,
                                               const s24i_shape *shape)
{
    const int64_t d = shape->head_width;
    return architecture->causal || shape->near || shape->kv_heads != shape->heads ||
           shape->scaled_by_block || shape->scores_cap > 0.0f || s24i_has_distances(architecture) ||
           shape->apart.span || shape->score_scale > 0.0f || shape->heads * d != shape->width ||
           (!shape->grid && d != 16 && d != 32 && d != 64);
}

enum { S24I_GPU_NORM_WIDTH = 2048 /* of s24_device_norm */ };

/* Do norms run in the kernel that knows rows of any width, and the embeddings without one? */
static inline int s24i_gpu_norms_rows(const s24i_architecture *architecture,
                                      const s24i_shape *shape)
{
    const int asks = shape->width > S24I_GPU_NORM_WIDTH || architecture->side_by_side ||
                     shape->embedding_factor > 0.0f || architecture->after_attention_norm;
    return architecture->rms ||
           (asks && architecture->pre_norm && !architecture->embedding_norm && !shape->image);
}

/* What scores of attention grow by (gpu_scores.c), see s24_device_train_attention_args; NULL:
   nothing. */
typedef struct s24i_gpu_scores {
    float *distances; /* [tables, heads, head] */
    int64_t head, zero;
    int32_t *apart_rows;
    int64_t first, rows, ld; /* of the table of distances: those that texts can ask for */
    float *of_queries, *of_keys;
} s24i_gpu_scores;

struct s24i_gpu_session {
    s24_ctx *ctx;
    const s24_model *model;
    s24i_steps steps;                 /* of each block, */
    s24i_steps mixed;                 /* but of one with experts */
    struct s24i_gpu_experts *experts; /* of a model that has any; else NULL */
    s24_device *device;
    void *stream;
    int64_t max_tokens, wide; /* columns of outer */
    void *hidden, *qkv, *context, *outer, *work, *dense_work;
    void *normed; /* of blocks whose halves stand side by side, else NULL: it is context */
    void *pixels, *class_logits; /* f32, of a model of images; else NULL */
    void *eight;                 /* tokens of an 8-bit product, */
    float *eight_scale;          /* and their scales; NULL: the model has no such products */
    float *fixed_scales; /* [layers, S24I_PRODUCTS]: of all tokens of a product, 0: none; or NULL */
    float *eight_bias;   /* there, [layers, intermediate]: of an intermediate y in 8 bits */
    size_t work_bytes;
    void *widened; /* room for a weight of integers in 16 bits; NULL: no pass had use for it */
    /* Of blocks that gpu_fold.c is for, else NULL: moments of what the norms after the attention
       and after the output are of, and terms of the products that read those norms. */
    void *moments[2], *terms;
    /* Of language models (gpu_language.c), else NULL: gammas and betas [norms, width], gammas of
       heads, what norms leave of tokens, angles of positions (of blocks with a window that turn
       otherwise: their own, or NULL), what gates give, and what logits and losses need. */
    float *gammas, *betas, *head_gammas, *stats, *angles, *near_angles, *logits, *lm_bias;
    void *latents; /* of attention over them (gpu_latent.c), else NULL */
    float *sinks;  /* [layers, heads]; NULL: the model has none */
    s24i_gpu_scores scores;
    void *gated, *train_work;
    double *losses, *host_losses;
    int32_t *targets;
    int64_t logit_rows;       /* made at a time */
    s24_device_picked *picks; /* pinned: the device writes them where the host reads */
    void *pick_work;
    int32_t *inputs, *pinned; /* on the device, and where the host writes them */
    size_t input_bytes;
    s24i_gpu_graph graphs[S24I_GPU_GRAPHS];
    int64_t passes;
    s24i_gpu_choice choices[S24I_GPU_OCTAVES][S24I_PRODUCTS];
    const char *eight_tiles[S24I_PRODUCTS]; /* the best in 8 bits, as the last search measured */
    int planned[S24I_GPU_OCTAVES];
    int alone; /* passes are measured: nothing is summed over ranks, who measure at other times */
    int folded[S24I_GPU_OCTAVES]; /* norms that products read are folded into these */
    int joined[S24I_GPU_OCTAVES]; /* dense products take in norms, gates and sums */
    /* [layers] of 2:4 weights, where that is chosen for a product. NULL: the weight has not the
       shape of the first block's (a block may have query, key and value in one where another has
       them apart). */
    s24i_weight **dense_copies[S24I_PRODUCTS];
    s24_outputs outputs;      /* of the submitted pass, */
    s24i_pick *asked;         /* and likeliest tokens that were asked for; NULL: none */
    s24i_gpu_shape submitted; /* tokens 0: none */
    int given;                /* its outputs are on their way to the host */
    s24i_gpu_shape laid;      /* of the batch that pinned has, tokens 0: none */
    int running;              /* 1: nothing has waited for a pass, which may read pinned yet */
};

/* What a product reads and writes next to its weight and bias. */
typedef struct s24i_gpu_operands {
    s24_dense y, x, residual;
    s24_dense eight;   /* x in 8 bits, of models that have it, */
    float eight_scale; /* and its scale, where all tokens have one; else 0 */
    s24_dense eight_y; /* y in 8 bits, where its reader wants it so, with that scale */
    const float *eight_bias;
    float eight_y_scale;
    s24_device_linear_norm norm; /* size 0: no norm and no residual */
    /* What dense products of few tokens take in, where they do (gpu_join.c). */
    const float *gamma;
    float eps;
    s24_activation gate;
    int gated;
} s24i_gpu_operands;

static inline s24_dense s24i_gpu_view(const s24i_gpu_session *gpu, void *data, int64_t rows,
                                      int64_t cols)
{
    return (s24_dense){data, gpu->model->dtype, rows, cols, 0};
}

/* Numbers of tokens that share a plan: up to this power of two. */
static inline int s24i_gpu_octave(int64_t tokens)
{
    int octave = 0;
    while (octave + 1 < S24I_GPU_OCTAVES && (int64_t)1 << octave < tokens)
        octave++;
    return octave;
}

/* A norm by number: of each block two, the last one of all, and of each block two of what is added
   to the sums. */
static inline const s24i_layer_norm *s24i_gpu_norm_at(const s24i_gpu_session *gpu, int64_t number)
{
    const s24_model *model = gpu->model;
    const int64_t last = 2 * model->shape.layers;
    if (number == last) return &model->final_norm;
    const s24i_block *b = &model->blocks[(number < last ? number : number - last - 1) / 2];
    if (number < last)
        return number % 2 == S24I_ATTENTION_NORM ? &b->attention_norm : &b->output_norm;
    return (number - last - 1) % 2 ? &b->after_output_norm : &b->after_attention_norm;
}

static inline int s24i_gpu_folds(const s24i_gpu_session *gpu, int64_t tokens)
{
    return gpu->folded[s24i_gpu_octave(tokens)];
}

/* Do its dense products take in the steps next to them? */
static inline int s24i_gpu_joins(const s24i_gpu_session *gpu, int64_t tokens)
{
    return gpu->joined[s24i_gpu_octave(tokens)];
}

/* The steps of that block. */
static inline const s24i_steps *s24i_gpu_steps_of(const s24i_gpu_session *gpu, int64_t block)
{
    return gpu->model->blocks[block].experts ? &gpu->mixed : &gpu->steps;
}

/* ---- steps in dense products (gpu_join.c) ---------------------------------------------------- */

/* May a pass of that many tokens, as it is planned, run so? All of its products or none. */
int s24i_gpu_can_join(const s24i_gpu_session *gpu, int64_t tokens);
void s24i_gpu_join_operands(s24i_gpu_operands *o, const s24i_gpu_session *gpu, int64_t block,
                            int index);

/* ---- norms in products (gpu_fold.c) ---------------------------------------------------------- */

/* Can the products take norms in? Then their memory, and terms from the weights. */
s24_status s24i_gpu_fold_create(s24i_gpu_session *gpu, s24_ctx *ctx);
/* The operands of a block's product that takes norms in; what they are without is in *o. */
void s24i_gpu_fold_operands(s24i_gpu_operands *o, const s24i_gpu_session *gpu, int64_t block,
                            int index);

/* ---- 8 bits (gpu_eight.c) -------------------------------------------------------------------- */

s24_status s24i_gpu_eight_reserve(s24i_gpu_session *gpu, s24_ctx *ctx);
/* Where the tokens of a product in 8 bits stand: [rows, cols]. */
s24_dense s24i_gpu_eight_view(const s24i_gpu_session *gpu, int64_t rows, int64_t cols);
/* Can tokens of one scale be what product `index` of the first block reads, or what the
   intermediate one writes? */
int s24i_gpu_has_fixed(const s24i_gpu_session *gpu, int index);
/* The scale with which what product `index` of a block reads is written in 8 bits by what makes
   it, as planned; 0: it is not. */
float s24i_gpu_fixed_scale(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index);
/* What a product in 8 bits needs next to its other operands. */
void s24i_gpu_eight_operands(s24i_gpu_operands *o, const s24i_gpu_session *gpu, int64_t tokens,
                             int64_t block, int index);
/* x into that place. */
s24_status s24i_gpu_quantise(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_dense *x);

/* ---- latents (gpu_latent.c) ------------------------------------------------------------------ */

/* Refuses widths that the kernel does not take: UNSUPPORTED. */
s24_status s24i_gpu_latent_check(s24_ctx *ctx, const s24i_shape *shape);
s24_status s24i_gpu_latent_create(s24i_gpu_session *gpu, s24_ctx *ctx);
/* Of the products that make heads of latents, S24I_QUERY to S24I_LATENT. */
s24i_gpu_operands s24i_gpu_latent_operands(const s24i_gpu_session *gpu, int64_t tokens,
                                           int64_t block, int index);
/* What S24I_LATENT's product gave, or the latents in S24I_KEY's, become their norm. */
s24_status s24i_gpu_norm_latents(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                 int64_t block, int of_keys);
/* qkv = what the products gave, turned. */
s24_status s24i_gpu_spread_latents(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                   const s24i_gpu_shape *shape);

/* ---- a product (gpu_product.c) --------------------------------------------------------------- */

/* The step that product `index` belongs to. */
static inline const s24i_block_step *s24i_gpu_step_of(const s24i_gpu_session *gpu, int index)
{
    return s24i_steps_product(&gpu->steps, s24i_product_slot(index));
}
/* Is product `index` of a block there, and one of the step of that slot? Query, key and value may
   be one, and so may gate and intermediate. */
int s24i_gpu_is_of(const s24i_gpu_session *gpu, int64_t block, s24i_slot slot, int index);
s24i_gpu_operands s24i_gpu_operands_of(const s24i_gpu_session *gpu, int64_t tokens, int64_t block,
                                       int index);
/* A layer's product of these operands, one way; its tile is the device's own choice. */
s24i_product_job s24i_gpu_product_of(const s24i_gpu_session *gpu, const s24i_linear *l,
                                     const s24i_gpu_operands *o, s24i_way way);
/* A layer's weight for a way, which may be a dense copy of the session's; NULL: there is none. */
const s24i_weight *s24i_gpu_weight(const s24i_gpu_session *gpu, int64_t block, int index,
                                   s24i_way way);
/* How a pass of that many tokens runs a block's product. */
s24i_way s24i_gpu_way(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index);
/* The dense copies of a product's 2:4 weights, in all blocks or none. */
s24_status s24i_gpu_copy_dense(s24i_gpu_session *gpu, s24_ctx *ctx, int index);
void s24i_gpu_drop_copies(s24i_gpu_session *gpu, s24_ctx *ctx, int index);
/* Are the tokens of this product quantised by a kernel of their own? Others' are by the norm that
   makes them. */
int s24i_gpu_quantises(const s24i_gpu_session *gpu, int index);
/* What the kernel of norms does in every case. */
s24_device_norm_args s24i_gpu_norm_args(const s24i_gpu_session *gpu, const s24i_layer_norm *norm);
/* Do the products of a block's step of that slot want what they read in 8 bits too? Not where slot
   is S24I_PRODUCTS. Then a norm writes it so. */
int s24i_gpu_reads_eight(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int slot);
void s24i_gpu_narrow_norm(s24_device_norm_args *args, const s24i_gpu_session *gpu, int64_t tokens,
                          int64_t block, int slot, const s24_dense *eight);
/* Runs product `index` of a block as planned. */
s24_status s24i_gpu_product(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                            int64_t block, int index);

/* ---- language models (gpu_language.c) -------------------------------------------------------- */

/* Refuses what these kernels do not take: UNSUPPORTED. */
s24_status s24i_gpu_language_check(s24_ctx *ctx, const s24i_architecture *architecture,
                                   const s24i_shape *shape);
s24_status s24i_gpu_language_create(s24i_gpu_session *gpu, s24_ctx *ctx);
/* [width], of norm `number`. */
const float *s24i_gpu_gamma(const s24i_gpu_session *gpu, int64_t number);
/* What a norm does next to dividing. */
typedef struct s24i_gpu_norming {
    int pending; /* qkv is added to hidden before */
    int eight;   /* the tokens of an 8-bit product are written, too */
} s24i_gpu_norming;
/* context, or `normed`, = norm `number` of hidden. */
s24_status s24i_gpu_row_norm(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                             int64_t number, const s24i_gpu_norming *how);
/* The heads of queries and keys in qkv, each by its norm. */
s24_status s24i_gpu_norm_heads(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                               int64_t block);
s24_status s24i_gpu_rotate_heads(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                 const s24i_gpu_shape *shape, int64_t block);
s24_status s24i_gpu_attend_causal(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                  const s24i_gpu_shape *shape, int64_t block);
/* outer = its activation, where no gate has that. */
s24_status s24i_gpu_activate_outer(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens);
s24_status s24i_gpu_gate(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens);
enum { S24I_GPU_NO_NORM = -1 };
/* hidden += norm `number` of what a product left in qkv. */
s24_status s24i_gpu_add(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int64_t number);
/* Does the block turn by the angles of those with a window? */
static inline int s24i_gpu_turns_near(const s24i_shape *shape, int64_t block)
{
    return shape->near_rope.theta != 0.0f && s24i_block_windowed(shape, block);
}
/* [heads], of a block; NULL: there are none. */
static inline const float *s24i_gpu_sinks(const s24i_gpu_session *gpu, int64_t block)
{
    return gpu->sinks ? gpu->sinks + block * gpu->model->shape.heads : NULL;
}
/* [head_width], of the norm of a block's heads of queries or keys. */
const float *s24i_gpu_head_gamma(const s24i_gpu_session *gpu, int64_t block, int of_keys);

/* ---- mixtures of experts (gpu_experts.c) ----------------------------------------------------- */

typedef struct s24i_gpu_experts s24i_gpu_experts;
/* Refuses experts that these kernels do not take: UNSUPPORTED. */
s24_status s24i_gpu_experts_check(s24_ctx *ctx, const s24_model_opts *opts,
                                  const s24i_shape *shape);
s24_status s24i_gpu_experts_create(s24i_gpu_session *gpu, s24_ctx *ctx);
void s24i_gpu_experts_destroy(s24i_gpu_session *gpu);
/* qkv = what a block's experts make of x [tokens, width]. */
s24_status s24i_gpu_mix_experts(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                int64_t block, const void *x);

/* ---- what scores grow by (gpu_scores.c) ------------------------------------------------------ */

s24_status s24i_gpu_scores_create(s24i_gpu_session *gpu, s24_ctx *ctx);
/* What a block's attention has of it, which is made for the tokens of qkv. */
s24_status s24i_gpu_grow_scores(s24_device_train_attention_args *args, const s24i_gpu_session *gpu,
                                s24_ctx *ctx, int64_t block);

/* ---- a cache of keys and values (gpu_cache.c) ------------------------------------------------ */

s24i_gpu_cached s24i_gpu_cached_of(const s24_cache *cache, const s24_batch *batch);
/* The pass's keys and values, normed and rotated, to the cache. */
s24_status s24i_gpu_cache_put(const s24i_gpu_session *gpu, s24_ctx *ctx,
                              const s24i_gpu_shape *shape, int64_t block);
/* context = attention over the cache, which has the pass's keys and values or, of a step, gets
   them. */
s24_status s24i_gpu_attend_cache(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                 const s24i_gpu_shape *shape, int64_t block);

/* ---- embeddings (gpu_embed.c) ---------------------------------------------------------------- */

/* Does what embeds run the first block's first step, a norm? */
int s24i_gpu_embeds_norm(const s24i_gpu_session *gpu);
/* hidden becomes the embeddings of the batch and, if a norm comes with them, context that norm of
   them; where the first block has none before it, the same. */
s24_status s24i_gpu_embed_batch(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                const s24i_gpu_shape *shape);
/* Is the activation of a product one that no product's kernel has, but one of its own? */
static inline int s24i_gpu_activates_aside(const s24i_shape *shape)
{
    return !shape->gated && (shape->squared || shape->activation == S24_ACTIVATION_GELU_QUICK);
}

/* ---- a pass through the blocks (gpu_block.c) ------------------------------------------------- */

s24i_gpu_places s24i_gpu_places_of(const s24i_gpu_shape *shape);
/* How many queries a tile of attention has; 0: there are no tiles. */
int s24i_gpu_queries(const s24i_gpu_session *gpu, int64_t tokens);
const uint8_t *s24i_gpu_mask(const s24i_gpu_session *gpu, const s24i_gpu_shape *shape);
/* Enqueues the pass of the batch in inputs (and pixels) through embeddings and all blocks: hidden
   is the last one's output and, where norms stand before the layers, context the final norm of
   it. */
s24_status s24i_gpu_encode(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape);
/* The graph of what `enqueue` enqueues. On error *out stays. */
typedef s24_status s24i_gpu_enqueue(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                    const s24i_gpu_shape *shape);
s24_status s24i_gpu_capture(s24_device_graph **out, const s24i_gpu_session *gpu, s24_ctx *ctx,
                            const s24i_gpu_shape *shape, s24i_gpu_enqueue *enqueue);

/* ---- logits and losses of language models (gpu_logits.c) ------------------------------------- */

s24_status s24i_gpu_logits_create(s24i_gpu_session *gpu, s24_ctx *ctx);
/* Copies the targets that losses are of. */
s24_status s24i_gpu_logits_begin(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                 const s24_outputs *outputs, int64_t tokens);
/* Enqueues the choice of the likeliest token after each of some states. */
s24_status s24i_gpu_pick(const s24i_gpu_session *gpu, s24_ctx *ctx, const void *states,
                         int64_t rows);
/* The likeliest tokens that were asked for, which the pass has chosen where its shape says so. */
s24_status s24i_gpu_picks_give(const s24i_gpu_session *gpu, s24_ctx *ctx,
                               const s24i_gpu_shape *shape);
/* logits, loss and losses of outputs, of the last norm's states in context. */
s24_status s24i_gpu_logits_give(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                const s24_outputs *outputs, int64_t tokens);

/* ---- what a pass reads (gpu_inputs.c) -------------------------------------------------------- */

s24i_gpu_shape s24i_gpu_shape_of(const s24i_gpu_session *gpu, const s24i_gpu_pass *pass);
/* Writes a batch of the host's and enqueues its copy to the device. */
s24_status s24i_gpu_write(s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                          const s24i_gpu_shape *shape);
/* Brings what a batch's lengths decide to the device; waits only where they are others than those
   of the pass before. */
s24_status s24i_gpu_lay(s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                        const s24i_gpu_shape *shape);
/* Enqueues copies of the rest, which is on the device. */
s24_status s24i_gpu_copy_inputs(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                                const s24i_gpu_shape *shape);

/* ---- measuring (gpu_search.c, gpu_plan.c) ---------------------------------------------------- */

/* By product: tiles that were nearly as fast alone as the chosen one, best first; then NULL. */
typedef struct s24i_gpu_rivals {
    const char *tile[S24I_PRODUCTS][S24I_GPU_RIVALS];
} s24i_gpu_rivals;

/* Chooses how product `index` runs for that many tokens, with norms folded or not as the session
   says: as noted, else by measuring it alone. *found: there is a way. */
s24_status s24i_gpu_search(int *found, s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                           int index, s24i_gpu_rivals *rivals);
/* Notes the choice with the device, for other sessions. */
s24_status s24i_gpu_note_choice(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int index);
/* Measures, once an octave, the products and passes of a batch whose inputs are on the device. What
   is in the other buffers is overwritten. */
s24_status s24i_gpu_plan(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape);

#endif
