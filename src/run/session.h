// SPDX-License-Identifier: Apache-2.0
/*
 * Forward passes in steps: embeddings, then block by block, with a look at every input of the
 * linear layers. What prunes a model uses the steps; s24_session_forward is made of them.
 */
#ifndef S24_RUN_SESSION_H
#define S24_RUN_SESSION_H

#include "model/steps.h"
#include "sparse24/language.h"

/*
 * Tokens a thread that go through the products of a block at a time: what is between the products
 * then stays in L2, and the chunks of a batch are of one size, for which the dense engine prepares
 * itself once. Four panels of 64 tokens, the f32 kernel's best. Only the attention needs to see
 * whole texts.
 */
enum { CHUNK_ROWS = 256 };

/* The widest head of bf16 whose norm is taken: a wider one's are f32. */
enum { S24I_MOST_NORMED_HEAD = 512 };

/* What runs products: all threads together, or one of them on tokens of its own. */
typedef struct s24i_lane {
    s24_ctx *ctx, *own; /* own: of one thread, the lane's; NULL for all threads together */
    int64_t rows;       /* tokens at a time */
    int together;       /* all threads, more than one */
    int octave;         /* of the pass's rows (race.h) */
    void *outer;   /* [rows, intermediate]; of gated blocks twice that, then what the gate gives */
    float *latent; /* s24i_latent_room, of attention over latents; else NULL */
    float *normed; /* [rows, width] where norms stand before the layers, [rows, patch] */
    void *work;    /* of the 2:4 plans */
    size_t work_bytes;
    s24i_dense_runner *runner;
    s24_status status; /* of the lane's last work */
} s24i_lane;

/* The likeliest token after another; −1: the logits have a NaN, or the largest is infinite. */
typedef struct s24i_pick {
    int32_t id;
    float log_probability;
} s24i_pick;

/* Rows of a language model's logits that are made at a time. */
typedef struct s24i_head_rows {
    int64_t rows;
    float *logits;   /* [rows, vocabulary] */
    float *losses;   /* [rows] */
    int64_t *tokens; /* [rows] */
} s24i_head_rows;

struct s24_session {
    s24_ctx *ctx;
    const s24_model *model;
    const s24i_vec *vec;
    int64_t max_tokens;
    int threads;
    s24i_steps steps;             /* of a block */
    s24i_steps mixed;             /* of one with experts */
    struct s24i_experts *experts; /* of a model that has any; else NULL (cpu/experts.h) */
    s24_dtype between;            /* f32 or bf16: of qkv, context and outer */
    float *hidden;                /* [max_tokens, width] */
    void *qkv;          /* [max_tokens, queries + keys + values], or one after the other */
    void *context;      /* [max_tokens, queries] */
    void *values;       /* [max_tokens, heads · value] of latents; else NULL */
    int64_t *tiles;     /* [max_tokens + 1] */
    int64_t *images;    /* [max_tokens / positions + 1]: where they begin, of a model of images */
    float *angles;      /* [longest text, head_width], of rotary positions; else NULL */
    float *near_angles; /* likewise of blocks that attend near */
    /* What scores grow by, see s24i_attention; NULL: nothing. distances_head 0: by whether tokens
       are near, in blocks that attend so. */
    float *distances;
    int64_t distances_head, distances_block, distance_zero;
    float *probe_rows;   /* [threads, s24i_probe_room]; NULL: no head pools */
    int32_t *apart_rows; /* of a table of distances, see s24i_attention_apart, from apart_zero on */
    int64_t apart_zero;
    float *scratch;
    int64_t scratch_elems;
    s24i_head_rows head; /* of a language model */
    float *class_rows;   /* [threads, 2, width], of a classifier */
    s24_cache *cache;    /* of the pass at hand: what its tokens follow (cpu/kv_cache.h); or NULL */
    s24i_pick *picks;    /* of the pass on a device: what comes after outputs->tokens, in the
                            place of logits; or NULL */
    s24i_lane whole;     /* all threads; its ctx is each pass's own */
    s24i_lane *lanes;    /* [threads] */
    int64_t unpooled;    /* a prompt's tokens, the first of every text: attended to, but left
                                     out by mean and max pooling; set by whoever submits */
    int takes_ways;      /* embeddings have room for every way of pooling; set likewise */
    int pinned;          /* embeddings are in a device's pinned memory; set likewise */
    struct s24i_gpu_session *gpu; /* of a model on a device; then nothing above but ctx … threads */
};

/*
 * Called with the input [tokens, k] of the block's products as they are run, on the calling thread.
 * The query's, key's and value's common input is given once, as S24I_QUERY, and an expert's inputs
 * by its layers' numbers, of the tokens that take it. A batch may come in several calls.
 */
typedef struct s24i_observer {
    s24_status (*input)(void *user, s24i_slot slot, const s24_dense *x);
    void *user;
    unsigned
        last; /* 1u << slot: what comes after that slot's input, of experts theirs of that kind,
                      is not computed, and hidden is left undefined; 0: the whole block runs */
    int64_t first_expert, end_expert; /* with last, of experts: those that run; end 0: all */
} s24i_observer;

/* The steps of that block. */
static inline const s24i_steps *s24i_block_steps(const s24_session *session,
                                                 const s24i_block *block)
{
    return block->experts ? &session->mixed : &session->steps;
}

/* Where a step reads or writes: `rows` tokens from `first` on, in the session's memory or, for what
   stands in a lane's, from its beginning. */
s24_dense s24i_session_place(const s24_session *session, const s24i_lane *lane,
                             s24i_step_place place, int64_t first, int64_t rows);

/* s24_session_forward in two halves, so that the host can work while a device does: the batch may
   change after the first, the outputs are there after the second. The CPU does all in the first. */
s24_status s24i_session_submit(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                               const s24_outputs *outputs);
s24_status s24i_session_finish(s24_session *session, s24_ctx *ctx);

/* The text that a token of a batch belongs to. */
static inline int64_t s24i_batch_text(const s24_batch *batch, int64_t token)
{
    int64_t low = 0, high = batch->texts;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (batch->offsets[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Do mean and max pooling take token t of a batch, which is at this position of its text? */
static inline int s24i_is_pooled(const s24_batch *batch, int64_t t, int64_t position,
                                 int64_t unpooled)
{
    return position >= unpooled && (!batch->mask || batch->mask[t]);
}

/* Before a pass, whose checks ended with `mine`: ranks that hold the model together have the same
   batch, and none has refused it (session_ranks.c). Returns `mine` where there are no others. */
s24_status s24i_session_meet(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                             s24_status mine);
/* The embeddings of a checked batch (session_embed.c). */
s24_status s24i_embed(s24_session *session, s24_ctx *ctx, const s24_batch *batch, float *hidden);
/* The last norm of states [tokens, width], in place. */
void s24i_session_norm(const s24_session *session, s24_ctx *ctx, float *states, int64_t tokens);
/* What pooling and heads read of the last block's output: itself, or the last norm's, which may
   take its place. */
const float *s24i_session_states(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                                 float *hidden, const s24_outputs *outputs);
/* hidden [tokens, width] = the embeddings of the batch. Errors as s24_session_forward. */
s24_status s24i_session_embed(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                              float *hidden);
/* hidden goes through one block in place; observer may be NULL. The batch is checked as above. */
s24_status s24i_session_block(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                              int64_t block, float *hidden, const s24i_observer *observer);
/* y [width] from an image's tokens [tokens, width] by the head that pools; room: that many floats
   (session_probe.c). */
int64_t s24i_probe_room(const s24i_shape *shape);
void s24i_session_probe(const s24_session *session, float *y, const float *x, int64_t tokens,
                        float *room);
/* embeddings [texts, width] from the last block's output, as the model pools and normalises. */
void s24i_session_pool(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                       const float *hidden, float *embeddings);
/* start_logits and end_logits [tokens] of outputs, those that are not NULL. */
void s24i_session_answer(const s24_session *session, const s24_batch *batch, const float *hidden,
                         const s24_outputs *outputs);
/* logits, loss and losses of outputs, from the last norm's states of a language model. */
s24_status s24i_session_language(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                                 const float *states, const s24_outputs *outputs);
/* Errors: ARGUMENT (tokens or targets out of range, a loss without targets). */
s24_status s24i_language_check(s24_ctx *ctx, const s24_model *model, const s24_batch *batch,
                               const s24_outputs *outputs);
/* logits [images, texts or tokens, classes], from the first token of each or as the head reads
   texts. */
void s24i_session_classify(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                           const float *hidden, float *logits);

#endif
