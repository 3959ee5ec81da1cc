// SPDX-License-Identifier: Apache-2.0
/* Multi-head attention over texts laid end to end. */
#ifndef S24_RUN_CPU_ATTENTION_H
#define S24_RUN_CPU_ATTENTION_H

#include <float.h>
#include <math.h>

#include "sparse24/nn.h"
#include "vec/vec.h"

/*
 * context[t, h·d …] = softmax(q·kᵀ·scale + mask)·v for every token t and head h of d elements,
 * within t's text. q, k and v are [tokens, heads·d], rows ld apart, k's and v's kv_ld. A token
 * whose mask is 0 is attended by none; in a text of such tokens only, every token attends to all
 * alike. Head h of the queries reads head h / (heads / kv_heads) of the keys and values.
 */
typedef struct s24i_attention {
    const s24i_vec *vec;
    s24_dtype dtype; /* of q, k, v and context: f32, or bf16 where s24i_attention_takes_bf16 */
    const void *q, *k, *v;
    int64_t ld, kv_ld; /* kv_ld 0: ld */
    int64_t head;      /* elements from a head of q to the next; 0: d */
    int64_t kv_head;   /* likewise of k and v */
    void *context;     /* [tokens, heads·d] */
    const s24_batch *batch;
    const int64_t *tiles; /* [texts + 1]: tiles of queries before each text */
    int64_t heads, d;
    float scale;        /* 1/√d in most models */
    float cap;          /* scores s become cap · tanh(s / cap); 0: nothing of the kind */
    const float *sinks; /* [heads]: scores more that take part in the softmax, of no token; NULL */
    int64_t kv_heads;   /* 0: heads; where head is not d, as many */
    int causal;         /* 1: no token attends to a later one */
    int64_t window;     /* then: of how many tokens, itself the last, it attends to; 0: all */
    /* What scores grow by, from a token to one `by` tokens later distances[by]; NULL: nothing. A
       table of 0 and −FLT_MAX keeps tokens from those that are far. Not with causal. */
    const float *distances;
    int64_t distances_head; /* elements from a head's table to the next's; 0: one for all */
    int64_t near;           /* if none beyond so many on each side, itself one, is seen; else 0 */
    /* Of texts that are continued, [texts] each, else NULL: how many tokens stood before the
       batch's, and the row of k and v where a text's first one is. The batch has no mask then. */
    const int64_t *before, *key_rows;
    /* Of keys and values in bytes, S24_I8 or S24_E4M3, the scale of each row of d; else NONE. They
       come from a cache: kv_ld is d. */
    s24_dtype bytes;
    const float *key_scales, *value_scales;
    /* Of the softmax's weights, row token · heads + head; or NULL. In f32 alone. */
    const s24i_dropout *drop;
    float *scratch; /* s24i_attention_scratch(…) floats a thread */
    int64_t scratch_elems;
} s24i_attention;

/* In bf16 the products round the weights of softmax to bf16 and sum in f32. */
static inline int s24i_attention_takes_bf16(const s24i_vec *vec, int64_t d)
{
    return vec->pair_product && d % 2 == 0;
}

/* mask [room]: what softmax adds to the scores of a text whose tokens' masks are `of`. */
static inline void s24i_attention_mask(float *mask, int64_t room, const uint8_t *of, int64_t tokens)
{
    for (int64_t t = 0; t < room; t++)
        mask[t] = t < tokens && of[t] ? 0.0f : -FLT_MAX;
}

static inline int64_t s24i_attention_kv_ld(const s24i_attention *job)
{
    return job->kv_ld ? job->kv_ld : job->ld;
}

/* Where a text's keys and values of a head begin. */
static inline int64_t s24i_attention_keys(const s24i_attention *job, int64_t text, int64_t head)
{
    const int64_t first = job->key_rows ? job->key_rows[text] : job->batch->offsets[text];
    return first * s24i_attention_kv_ld(job) + head * (job->kv_head ? job->kv_head : job->d);
}

/* Where a token's query of a head is. */
static inline int64_t s24i_attention_query(const s24i_attention *job, int64_t token, int64_t head)
{
    return token * job->ld + head * (job->head ? job->head : job->d);
}

/* Scores q·k as softmax takes them where they are capped, and then without a scale. */
static inline void s24i_attention_cap(const s24i_attention *job, s24i_softmax *softmax)
{
    const float inner = softmax->scale / job->cap;
    for (int64_t r = 0; r < softmax->rows; r++)
        for (int64_t i = 0; i < softmax->n; i++) {
            float *s = softmax->s + r * softmax->ld + i;
            *s = job->cap * tanhf(*s * inner);
        }
    softmax->scale = 1.0f;
}

/* The largest score of a row as softmax takes it, before it does. */
static inline float s24i_attention_largest(const s24i_softmax *row)
{
    float most = -HUGE_VALF;
    for (int64_t i = 0; i < row->n; i++)
        most = fmaxf(most, row->s[i] * row->scale + (row->mask ? row->mask[i] : 0.0f));
    return most;
}

/* The sum that a row's weights are divided by, with a head's sink. */
static inline void s24i_attention_sink(float *inverse, float sink, float largest)
{
    *inverse = 1.0f / (1.0f / *inverse + expf(sink - largest));
}

/* Scores of a tile of queries next to all keys, in f32, and what values become by them. */
typedef struct s24i_weighed {
    float *scores;       /* [rows, tokens], overwritten */
    const float *values; /* [tokens, d] */
    float *out;          /* [rows, d] */
    float *inverse;      /* room for [rows] */
    const float *mask;   /* what softmax adds to scores, or NULL */
    float scale;         /* of scores */
    int64_t rows, tokens, tokens_ld, d, d_ld;
} s24i_weighed;

static inline void s24i_attention_weigh(const s24i_vec *vec, const s24i_weighed *w)
{
    const s24i_softmax softmax = {.s = w->scores,
                                  .ld = w->tokens_ld,
                                  .rows = w->rows,
                                  .n = w->tokens,
                                  .scale = w->scale,
                                  .mask = w->mask,
                                  .inverse = w->inverse};
    const s24i_product mix = {.c = w->out,
                              .ldc = w->d_ld,
                              .a = w->scores,
                              .lda = w->tokens_ld,
                              .b = w->values,
                              .ldb = w->d_ld,
                              .scale = w->inverse,
                              .m = w->rows,
                              .n = w->d,
                              .k = w->tokens};
    vec->softmax(&softmax);
    vec->product(&mix);
}

/* Tokens of a text that stood before the batch's. */
static inline int64_t s24i_attention_before(const s24i_attention *job, int64_t text)
{
    return job->before ? job->before[text] : 0;
}

/* Has a text so few queries that its keys and values are read where they stand? */
static inline int s24i_attention_is_few(const s24i_attention *job, int64_t text)
{
    enum { FEW = 4 };
    return !job->drop && !job->distances &&
           job->batch->offsets[text + 1] - job->batch->offsets[text] <= FEW;
}

/* `count` heads of such a text's queries, S24I_FEW_HEADS at most, that read one head of keys; in a
   thread's scratch (attention_few.c). */
enum { S24I_FEW_HEADS = 16 };
void s24i_attention_few(const s24i_attention *job, int64_t text, int64_t head, int64_t count,
                        float *scratch);

/* The first key that is looked at by queries of which the first sees `seen`, up to itself; and how
   many of a text's keys some queries of it see, of which `last` is the number of the last. Dropout
   counts from the text's first to its last. */
int64_t s24i_attention_first_key(const s24i_attention *job, int64_t seen);
int64_t s24i_attention_keys_seen(const s24i_attention *job, int64_t tokens, int64_t last);
/* After a softmax whose mask is distances: a row with none in its window that the batch's mask lets
   be takes up nothing, as in PyTorch, unless the whole text is hidden; mask: 0 or −FLT_MAX of the
   softmax's columns. */
void s24i_attention_drop_blind(const s24i_attention *job, int64_t text, const s24i_softmax *softmax,
                               const float *mask);

/* Tiles of queries that a text of `tokens` is cut into. */
int64_t s24i_attention_tiles(int64_t tokens);
/* Floats of scratch a thread needs for texts of up to `longest` tokens. */
int64_t s24i_attention_scratch(int64_t longest, int64_t d);
void s24i_attention_run(s24_ctx *ctx, const s24i_attention *job);

#endif
