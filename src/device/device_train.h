// SPDX-License-Identifier: Apache-2.0
/*
 * What training a transformer needs on a device, next to device_layers.h: the other passes of its
 * layers, losses and an optimiser, in mixed precision. As device_layers.h it is no part of the
 * public interface.
 *
 * Rules beyond those of device_layers.h: `dtype` is f16 or bf16, the dtype of every `void *`
 * matrix; sums are f32 and rounded once, statistics, gradients of parameters and master weights
 * f32, losses double. Matrices are row-major without stride unless a leading dimension is named,
 * all pointers lead into device memory at multiples of 16 bytes (sums: of 8, labels: of 4), and 8
 * divides a row's elements. Everything enqueues, allocates nothing, waits for nothing, may be
 * captured, and gives the same bits every time: there are no sums in the order of chance. `work` is
 * S24_DEVICE_TRAIN_WORK bytes that one stream uses; what is in it means nothing before and after.
 * Texts lie end to end: text b is tokens offsets[b] … offsets[b + 1]. Errors: ARGUMENT (NULL,
 * alignment), SHAPE, DTYPE, UNSUPPORTED.
 */
#ifndef S24_DEVICE_DEVICE_TRAIN_H
#define S24_DEVICE_DEVICE_TRAIN_H

#include "device/device_fp8.h"
#include "device/device_layers.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { S24_DEVICE_TRAIN_WORK = 64 << 20 };

/* ---- conversion, products -------------------------------------------------------------------- */

/* to[i] = from[i]: between f32, f16 and bf16, rounded to nearest even. */
typedef struct s24_device_train_convert_args {
    size_t size; /* sizeof(s24_device_train_convert_args) */
    void *to;
    const void *from;
    s24_dtype to_dtype, from_dtype;
    int64_t count;
    void *stream;
} s24_device_train_convert_args;
S24_API s24_status s24_device_train_convert(s24_ctx *ctx, s24_device *device,
                                            const s24_device_train_convert_args *args);

/*
 * y = op(a)·op(b) (+ y where `add`) (+ bias): y [m, n] of f32 or of the dtype of a and b, op the
 * transpose where asked. Of 8 bits it is a·bᵀ, times both operands' scales: 16 divides n and k, and
 * one of the operands at least is e4m3. Through cuBLASLt; the algorithm is a function of the
 * shapes, m and the sum's length rounded up to a sixteenth of their power of two, so that it is the
 * same in every run.
 */
typedef struct s24_device_train_product_args {
    size_t size; /* sizeof(s24_device_train_product_args) */
    const s24_dense *y, *a, *b;
    int transposed_a, transposed_b;
    int add;          /* 1: y += */
    const void *bias; /* [n] of y's dtype, or NULL */
    void *work;
    size_t work_bytes;
    void *stream;
    const float *scale_a, *scale_b; /* of 8 bits; else NULL */
} s24_device_train_product_args;
S24_API s24_status s24_device_train_product(s24_ctx *ctx, s24_device *device,
                                            const s24_device_train_product_args *args);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Element i of row r is kept or not by seed, r and i alone, with s24_random: what the CPU drops.
   Rate 0: none. */
typedef struct s24_device_dropout {
    float rate;
    uint64_t seed;
} s24_device_dropout;

/* y = dropout(x); y may be x. */
typedef struct s24_device_train_dropout_args {
    size_t size; /* sizeof(s24_device_train_dropout_args) */
    s24_dtype dtype;
    int64_t rows, width;
    void *y;
    const void *x;
    s24_device_dropout drop;
    void *stream;
} s24_device_train_dropout_args;
S24_API s24_status s24_device_train_dropout(s24_ctx *ctx, s24_device *device,
                                            const s24_device_train_dropout_args *args);

/* sums[c] += Σ over rows of x[r, c]. */
typedef struct s24_device_train_sums_args {
    size_t size; /* sizeof(s24_device_train_sums_args) */
    s24_dtype dtype;
    int64_t rows, cols, ld; /* ld in elements, 8 divides it; cols may be anything */
    float *sums;            /* [cols], any alignment of 4 bytes */
    const void *x;
    void *work;
    void *stream;
} s24_device_train_sums_args;
S24_API s24_status s24_device_train_sums(s24_ctx *ctx, s24_device *device,
                                         const s24_device_train_sums_args *args);

/* s = dropout(z + bias) + residual, y = norm(s), stats[r] = mean and 1/√(var + eps). z NULL: s is
   there already. residual may be s. rms: mean 0; beta NULL: there is none. Parameters are the f32
   ones. Rows stand end to end; heads not 0: y's and s's are so many side by side in each row of a
   matrix, whose rows are ld elements apart, y may be s, and z is NULL. */
typedef struct s24_device_train_add_norm_args {
    size_t size; /* sizeof(s24_device_train_add_norm_args) */
    s24_dtype dtype;
    int64_t rows, width; /* any width that 8 divides, to 8192 */
    void *y, *s;
    float *stats; /* [rows, 2] */
    const void *z, *residual;
    const float *bias; /* [width] or NULL */
    const float *gamma, *beta;
    float eps;
    int rms;
    int64_t heads, ld;
    s24_device_dropout drop;
    void *stream;
    float *scale; /* [4] or NULL: as s24_device_train_activate's, of y */
} s24_device_train_add_norm_args;
S24_API s24_status s24_device_train_add_norm(s24_ctx *ctx, s24_device *device,
                                             const s24_device_train_add_norm_args *args);

/* g = dropout(dy (+ dy2)); ds = (add ? ds : 0) + the gradient of s that g is of y; dgamma += Σ
   g·h, dbeta += Σ g (NULL: there is no beta). dy2 may be ds where add is 0. What the layer before
   needs comes along where it is asked for: dz = dropout(ds), dbias += Σ of that. heads and ld as
   above, of ds, which may be dy, of dy and s; dz and dbias are NULL then. */
typedef struct s24_device_train_norm_back_args {
    size_t size; /* sizeof(s24_device_train_norm_back_args) */
    s24_dtype dtype;
    int64_t rows, width;
    void *ds;
    const void *dy, *dy2, *s;
    const float *stats, *gamma;
    float *dgamma, *dbeta;
    int rms, add;
    int64_t heads, ld;
    s24_device_dropout drop;
    void *dz;     /* [rows, width] or NULL */
    float *dbias; /* [width] or NULL */
    s24_device_dropout drop_z;
    void *work;
    void *stream;
    float *scale; /* [4] or NULL: as s24_device_train_activate's, of dz, else of ds */
} s24_device_train_norm_back_args;
S24_API s24_status s24_device_train_norm_back(s24_ctx *ctx, s24_device *device,
                                              const s24_device_train_norm_back_args *args);

/* h = activation(u), squared where asked; gated: u is [rows, 2·width], gate and up next to each
   other, or the other way round with gate_last, h = activation(g)·up. h may be u where not
   gated. scale[1] becomes the largest magnitude of h, as s24_device_train_fp8 finds it, which it
   then takes as known. */
typedef struct s24_device_train_activate_args {
    size_t size; /* sizeof(s24_device_train_activate_args) */
    s24_dtype dtype;
    int64_t rows, width;
    void *h;
    const void *u;
    s24_activation activation;
    int squared, gated;
    void *stream;
    int gate_last;
    /* Above 0: of a gate whose columns stand in turns with those that it multiplies, clamped as
       gpt-oss has it: h = g / (1 + exp(-1.702 g)) * (1 + u within that of 0), g at most that. */
    float limit;
    float *scale; /* [4] or NULL, as with a limit */
} s24_device_train_activate_args;
S24_API s24_status s24_device_train_activate(s24_ctx *ctx, s24_device *device,
                                             const s24_device_train_activate_args *args);

/* du from dh and u. du may be dh where not gated. dbias (or NULL) += Σ du. scale: as above, of
   du. */
typedef struct s24_device_train_activate_back_args {
    size_t size; /* sizeof(s24_device_train_activate_back_args) */
    s24_dtype dtype;
    int64_t rows, width;
    void *du;
    const void *dh, *u;
    float *dbias;
    s24_activation activation;
    int squared, gated;
    void *work;
    void *stream;
    float *scale; /* [4] or NULL */
} s24_device_train_activate_back_args;
S24_API s24_status s24_device_train_activate_back(s24_ctx *ctx, s24_device *device,
                                                  const s24_device_train_activate_back_args *args);

/* ---- embeddings ------------------------------------------------------------------------------ */

/* s[t] = factor·words[ids[t]] + positions[position[t]] + types[type[t]], of what is there. Images:
   ids NULL, s holds the patches' vectors, and `first` is added where position is 0 (s is 0 there).
   Tables are of the dtype. */
typedef struct s24_device_train_embed_args {
    size_t size; /* sizeof(s24_device_train_embed_args) */
    s24_dtype dtype;
    int64_t tokens, width;
    void *s;
    const void *words, *positions, *types, *first;
    const int32_t *ids, *position, *type; /* [tokens]; type NULL: 0 */
    void *stream;
    float factor; /* 0: 1 */
} s24_device_train_embed_args;
S24_API s24_status s24_device_train_embed(s24_ctx *ctx, s24_device *device,
                                          const s24_device_train_embed_args *args);

/* Adds ds to the tables' gradients, NULL ones left out. `order` is the tokens sorted by id,
   those of one id in any order that is always the same. The first token of a text's whose position
   is i is its token i or a later one; a position of −1 adds nothing to dpositions.
   Images (dfirst): the first tokens' rows of ds become 0 afterwards. work holds tokens·width/8
   floats of it. */
typedef struct s24_device_train_embed_back_args {
    size_t size; /* sizeof(s24_device_train_embed_back_args) */
    s24_dtype dtype;
    int64_t tokens, texts, longest, width, type_count;
    void *ds;
    float *dwords, *dpositions, *dtypes, *dfirst;
    const int32_t *ids, *position, *type;
    const int32_t *offsets; /* [texts + 1] */
    const int32_t *order;   /* [tokens], for dwords */
    void *work;
    void *stream;
} s24_device_train_embed_back_args;
S24_API s24_status s24_device_train_embed_back(s24_ctx *ctx, s24_device *device,
                                               const s24_device_train_embed_back_args *args);

/* rows[t] = the patch of token t: channels × patch × patch of f32 pixels; 0 for the first token
   of an image. An image has (image/patch)² + 1 tokens. */
typedef struct s24_device_train_unfold_args {
    size_t size; /* sizeof(s24_device_train_unfold_args) */
    s24_dtype dtype;
    int64_t tokens, image, patch, channels;
    void *rows;          /* [tokens, channels·patch²], which 8 divides */
    const float *pixels; /* [images, channels, image, image] */
    void *stream;
} s24_device_train_unfold_args;
S24_API s24_status s24_device_train_unfold(s24_ctx *ctx, s24_device *device,
                                           const s24_device_train_unfold_args *args);

/* ---- attention ------------------------------------------------------------------------------- */

/*
 * context = dropout(softmax(q·kᵀ/√d + mask))·v within each text, for tokens·heads queries, after
 * FlashAttention-2 (Dao, 2023). Rows of qkv: heads·d of queries, kv_heads·d of keys, as many of
 * values; head h reads keys and values of head h / (heads / kv_heads). A token whose mask is 0 is
 * attended by none, but a token that sees only such ones attends to them all alike, or, in a window
 * of a text that has others, to none. causal: no token sees a later one, and with a window only so
 * many, itself the last; where later ones are seen, the window is as wide on either side. Weights
 * are rounded to the dtype before they multiply, sums are f32. Where `distances` or `apart_rows` is
 * there q·kᵀ grows by what they say of the two tokens' places before the scale multiplies it.
 * Backward the numbers of distances may be those of a table, whose gradients are summed up by
 * bucket. On compute capability 9.0 alone: UNSUPPORTED elsewhere.
 */
typedef struct s24_device_train_attention_args {
    size_t size; /* sizeof(s24_device_train_attention_args) */
    s24_dtype dtype;
    int64_t tokens, texts; /* texts: at most 65,535 */
    int64_t longest;       /* no text has more tokens */
    int64_t heads, kv_heads;
    int64_t d; /* 8 to 256, backward to 128, which 8 divides; powers of 2 are not padded inside */
    int causal;
    int64_t window;         /* 0: none */
    const int32_t *offsets; /* [texts + 1] */
    const uint8_t *mask;    /* [tokens] or NULL: all 1 */
    /* Of the weights: row token·heads + head, element: the key's place in its text. */
    s24_device_dropout drop;
    const void *qkv;
    void *context;        /* [tokens, heads·d]: written forward, read backward */
    float *lse;           /* [heads, tokens]: ln Σ exp of the scaled scores, likewise */
    const void *dcontext; /* backward alone, as what follows: [tokens, heads·d] */
    void *dqkv;           /* as qkv; every element of the texts is written */
    void *work;
    size_t work_bytes; /* at least s24_device_train_attention_work_bytes */
    void *stream;
    float scale;  /* in place of 1/√d; 0: that */
    float cap;    /* scores become cap·tanh(score / cap), forward and where lse is NULL; 0: none */
    int64_t zero; /* where distance 0 stands in the two tables, at least longest − 1 */
    /* [heads], distance_head apart: for key − query the number zero + key − query; or NULL. */
    const float *distances;
    int64_t distance_head;
    /* [2·zero + 1]: for query − key the column of the two products, [heads, tokens, apart_ld], that
       counts, of queries with distances' keys and of keys with distances' queries, forward alone;
       or NULL. */
    const int32_t *apart_rows;
    const float *of_queries, *of_keys; /* NULL: that one does not count */
    int64_t apart_ld;
    /* [heads]: a scaled score of no token that takes its share of each of a head's softmaxes,
       forward and where lse is NULL; or NULL. */
    const float *sinks;
    /* Elements of a head's values, of which context has as many, [tokens, heads·value_d]; the
       others are zeros. Forward alone; 0: d. 8 divides it. */
    int64_t value_d;
    /* Backward: the row of a table [bucket_count, heads] that each distance grows by, as
       `distances` has them, up to S24_DEVICE_BUCKETS of them, and its gradients, which are added
       to; or NULL. */
    const int32_t *buckets;
    float *dtable;
    int64_t bucket_count;
} s24_device_train_attention_args;
enum { S24_DEVICE_BUCKETS = 128 };
/* buckets: 0 without a table. */
S24_API size_t s24_device_train_attention_work_bytes(const s24_device *device, int64_t tokens,
                                                     int64_t texts, int64_t longest, int64_t heads,
                                                     int64_t buckets);
/* lse may be NULL where no backward pass follows. */
S24_API s24_status s24_device_train_attention(s24_ctx *ctx, s24_device *device,
                                              const s24_device_train_attention_args *args);
/* The gradient of qkv from that of the context, with what the pass forward was given and has
   left. */
S24_API s24_status s24_device_train_attention_back(s24_ctx *ctx, s24_device *device,
                                                   const s24_device_train_attention_args *args);

/* What scores grow by as attention reads it: to[head·ld + i] = factor · table[buckets[i]·heads +
   head], i < count. */
typedef struct s24_device_train_distances_args {
    size_t size; /* sizeof(s24_device_train_distances_args) */
    int64_t count, heads, ld;
    float *to;
    const float *table;     /* [a row for each bucket, heads] */
    const int32_t *buckets; /* [count] */
    float factor;
    void *stream;
} s24_device_train_distances_args;
S24_API s24_status s24_device_train_distances(s24_ctx *ctx, s24_device *device,
                                              const s24_device_train_distances_args *args);

/* Turns queries and keys in place by their positions; back: the other way. Element i of a head
   turns with element i + turned/2, or, adjacent, 2·i with 2·i + 1; what follows the first `turned`
   elements stays. */
typedef struct s24_device_train_rotate_args {
    size_t size; /* sizeof(s24_device_train_rotate_args) */
    s24_dtype dtype;
    int64_t tokens, heads, kv_heads, d;
    void *qkv;
    const float *angles;     /* [positions, turned]: cosines, then sines, by half */
    const int32_t *position; /* [tokens] */
    int back;
    void *stream;
    int64_t turned; /* an even number; 0: d */
    int adjacent;
} s24_device_train_rotate_args;
S24_API s24_status s24_device_train_rotate(s24_ctx *ctx, s24_device *device,
                                           const s24_device_train_rotate_args *args);

/* ---- losses ---------------------------------------------------------------------------------- */

/*
 * Losses add to *loss; gradients are multiplied by gradient_scale (the loss scale of f16), losses
 * are not. Rows of logits are f32, `ld` apart (8 divides it, at least n); the gradient is written
 * as rows of the dtype, `ld` apart too, 0 past n.
 *
 * Cross-entropy of a row with its label (−1: none) × label_weight, and temperature² · KL(teacher ‖
 * row) at the temperature × teacher_weight. losses, where it is not NULL, is given each row's part
 * (0 where it has none); then loss may be NULL.
 */
typedef struct s24_device_train_cross_entropy_args {
    size_t size; /* sizeof(s24_device_train_cross_entropy_args) */
    s24_dtype dtype;
    int64_t rows, n, ld;
    const void *logits;    /* of f32, or narrow: of dtype, and then dlogits may be there */
    const float *teacher;  /* or NULL, as it is where narrow */
    void *dlogits;         /* or NULL: the loss alone */
    const int32_t *labels; /* [rows] or NULL: none */
    double *loss, *losses; /* [1], [rows] */
    int narrow;
    double label_weight, teacher_weight;
    float temperature, gradient_scale;
    void *work;
    void *stream;
} s24_device_train_cross_entropy_args;
S24_API s24_status s24_device_train_cross_entropy(s24_ctx *ctx, s24_device *device,
                                                  const s24_device_train_cross_entropy_args *args);

/* The same of columns 0 and 1 of each text's rows, with labels starts and ends [texts], which count
   from the text's first token; the weights are a column's. */
typedef struct s24_device_train_answer_args {
    size_t size; /* sizeof(s24_device_train_answer_args) */
    s24_dtype dtype;
    int64_t tokens, texts, ld;
    const int32_t *offsets; /* [texts + 1] */
    const float *logits, *teacher;
    void *dlogits;
    const int32_t *starts, *ends; /* or NULL */
    double *loss;
    double label_weight, teacher_weight;
    float temperature, gradient_scale;
    void *work;
    void *stream;
} s24_device_train_answer_args;
S24_API s24_status s24_device_train_answer(s24_ctx *ctx, s24_device *device,
                                           const s24_device_train_answer_args *args);

/* *loss += weight·Σ (x − y)², dx += gradient_scale·2·weight·(x − y), of rows that the mask lets
   be. */
typedef struct s24_device_train_squared_args {
    size_t size; /* sizeof(s24_device_train_squared_args) */
    s24_dtype dtype;
    int64_t rows, width;
    void *dx;
    const void *x, *y;
    const uint8_t *mask; /* [rows] or NULL */
    double *loss;
    double weight;
    float gradient_scale;
    void *work;
    void *stream;
} s24_device_train_squared_args;
S24_API s24_status s24_device_train_squared(s24_ctx *ctx, s24_device *device,
                                            const s24_device_train_squared_args *args);

/* *loss += weight·Σ (1 − cos(vectors, teacher)); dx += gradient_scale × its gradient through the
   pooling of s24_device_pool without normalisation; that of a maximum goes to its first token. */
typedef struct s24_device_train_cosine_args {
    size_t size; /* sizeof(s24_device_train_cosine_args) */
    s24_dtype dtype;
    int64_t tokens, texts, width;
    void *dx;      /* [tokens, width] */
    const void *x; /* [tokens, width]: what was pooled; of a maximum only, else NULL */
    const float *vectors, *teacher; /* [texts, width] */
    const int32_t *offsets;         /* [texts + 1] */
    const uint8_t *mask;            /* [tokens] or NULL */
    s24i_pooling pooling;
    double *loss;
    double weight;
    float gradient_scale;
    void *work;
    void *stream;
} s24_device_train_cosine_args;
S24_API s24_status s24_device_train_cosine(s24_ctx *ctx, s24_device *device,
                                           const s24_device_train_cosine_args *args);

/* ---- the optimiser --------------------------------------------------------------------------- */

/* *sum = Σ g² of what the mask lets be: bit i % 16 of word i / 16. */
typedef struct s24_device_train_squares_args {
    size_t size;   /* sizeof(s24_device_train_squares_args) */
    int64_t count; /* 16 divides it */
    const float *g;
    const uint16_t *mask; /* or NULL */
    double *sum;
    void *work;
    void *stream;
} s24_device_train_squares_args;
S24_API s24_status s24_device_train_squares(s24_ctx *ctx, s24_device *device,
                                            const s24_device_train_squares_args *args);

/*
 * AdamW over a whole arena in one go. With n = √*squares / gradient_scale, the norm: where n or
 * *loss is not finite nothing but g changes; else g is divided by gradient_scale and, with clip
 * over 0 and n over it, multiplied by clip/n. Then m = beta1·m + (1 − beta1)·g, v likewise, p =
 * keep·p − step·m/(√v·inverse2 + eps), keep being 1 − decay for elements of matrices, and narrow[i]
 * = p[i]. What the mask forbids becomes 0. g becomes 0 in any case.
 */
typedef struct s24_device_train_adamw_args {
    size_t size;     /* sizeof(s24_device_train_adamw_args) */
    s24_dtype dtype; /* of narrow */
    int64_t count;   /* 16 divides it */
    float *p, *g, *m, *v;
    void *narrow;             /* [count] or NULL */
    const uint16_t *mask;     /* a bit an element, or NULL */
    const uint16_t *matrices; /* likewise: 1 where weight decay is; NULL: nowhere, decay is 0 */
    const double *squares, *loss;
    double gradient_scale, clip;
    double beta1, beta2, eps, decay; /* decay: rate times weight decay */
    double step, inverse2;           /* rate / (1 − beta1^t), 1 / √(1 − beta2^t) */
    /* 1: what the mask forbids is 0 in narrow alone; p goes on learning there, its gradient greater
       by pull · p (SR-STE). */
    int learns;
    double pull;
    /* STEP: variance stays where a bit of `frozen` is set, and its root is √v·frozen_gain +
       frozen_eps there. AdamS (`signs`): where the mask is 0, m counts as (1 − fade)·m +
       fade·pull·sign(p), and the variance is that of the moment; both need `learns`. */
    const uint16_t *frozen; /* or NULL */
    double frozen_gain, frozen_eps, fade;
    int signs;
    /* NULL: m and v are [count]. Else for each 16 elements where their moments begin, in eights;
       with bit 31 these are of those alone that the mask lets be, eight at most, in their order.
       Not with learns. */
    const uint32_t *moments_at;
    void *stream;
} s24_device_train_adamw_args;
S24_API s24_status s24_device_train_adamw(s24_ctx *ctx, s24_device *device,
                                          const s24_device_train_adamw_args *args);

/* ---- methods of sparse training -------------------------------------------------------------- */

/* Which of a matrix's numbers stay. */
typedef enum s24_device_train_stays {
    S24_DEVICE_TRAIN_ALL,
    S24_DEVICE_TRAIN_BEFORE,  /* the bits say */
    S24_DEVICE_TRAIN_GROUPS,  /* of four along k two, by magnitude */
    S24_DEVICE_TRAIN_TILES,   /* as S24_SELECT_TILE_BEST */
    S24_DEVICE_TRAIN_GREEDY,  /* as S24_SELECT_TILE_GREEDY */
    S24_DEVICE_TRAIN_SAMPLED, /* groups, by magnitudes times noise */
    S24_DEVICE_TRAIN_DRAWN    /* groups, by logits of their six patterns */
} s24_device_train_stays;

/* Patterns by Gumbel's noise: the largest of (scale·logit + noise) / temperature, or, where
   temperature is 0, of the logits. The loss has a term of −norm times the squares that a draw is
   expected to keep. */
typedef struct s24_device_train_chance {
    uint64_t seed, place;
    double scale, temperature, norm;
} s24_device_train_chance;

/* How many parts sums of masks have: they are added on the host, in this order. */
enum { S24_DEVICE_TRAIN_PARTS = 512, S24_DEVICE_TRAIN_MASK_SUMS = 3, S24_DEVICE_TRAIN_CHANGES = 4 };

/*
 * A matrix [rows, cols] of an arena, in which it begins at element `first`: what stays of it, and
 * what runs. to[i] = from[i] where it stays, else 0; soft: scale·S(from) as s24_soft_threshold has
 * it; all_run: from[i] in any case. What runs is multiplied by `scales`, two a row, of its halves.
 * The choices are the CPU's, ties included. 4 divides cols and first.
 */
typedef struct s24_device_train_mask_args {
    size_t size;     /* sizeof(s24_device_train_mask_args) */
    s24_dtype dtype; /* of narrow */
    int64_t rows, cols, first;
    s24_device_train_stays stays;
    int notes;   /* 1: bits are written, and changes of them counted */
    int all_run; /* 1: what does not stay runs too */
    float beta;  /* 0: no soft threshold */
    const float *from;
    float *to;    /* [rows, cols], may be `from`; or NULL */
    void *narrow; /* the same in dtype; or NULL */
    uint32_t *bits;
    const float *scales; /* [rows, 2] or NULL */
    const float *logits; /* [rows·cols/4, 6], of DRAWN */
    s24_device_train_chance chance;
    uint64_t noise_seed; /* of SAMPLED: */
    double noise;        /* the deviation of its logarithm; 0: none */
    /* [PARTS, MASK_SUMS] += bits that changed, |from| that stay, |from|. */
    double *sums;
    void *stream;
    /* Another matrix, to be made at the same time, of the same dtype, stays, notes, all_run, bits
       and sums; or NULL. */
    const struct s24_device_train_mask_args *next;
} s24_device_train_mask_args;
S24_API s24_status s24_device_train_mask(s24_ctx *ctx, s24_device *device,
                                         const s24_device_train_mask_args *args);

/* Gradients of what lies next to the weights w. Without patterns: gradients[r, h] += Σ g·w of half
   h of row r, g *= extra[r, h]. With them: gradients[group, 6] = those of the soft choice. */
typedef struct s24_device_train_extra_args {
    size_t size; /* sizeof(s24_device_train_extra_args) */
    int64_t rows, cols;
    int patterns;
    float *gradients, *g;
    const float *w, *extra;
    s24_device_train_chance chance;
    void *stream;
} s24_device_train_extra_args;
S24_API s24_status s24_device_train_extra(s24_ctx *ctx, s24_device *device,
                                          const s24_device_train_extra_args *args);

/* Of each four rows of a column two stay, as a sum unbiased: MVUE24, nearly or exactly of the least
   variance. The last rows % 4 are copied. Chance is the CPU's; numbers are f32. */
typedef struct s24_device_train_mvue_args {
    size_t size; /* sizeof(s24_device_train_mvue_args) */
    s24_dtype dtype;
    int64_t rows, cols, ld;
    int exact;
    uint64_t seed, first; /* the exact one's chance is counted from `first` */
    void *to;
    const void *from;
    void *stream;
} s24_device_train_mvue_args;
S24_API s24_status s24_device_train_mvue(s24_ctx *ctx, s24_device *device,
                                         const s24_device_train_mvue_args *args);

/* A matrix in 8 bits, e4m3 or e5m2, of one scale, and its transpose, either NULL: elements times
   2^e (device_fp8.h), rounded to nearest even; what is not finite becomes NaN. The transpose has
   zeros after its `rows` columns, up to a multiple of 16. 16 divides cols. each[r] becomes 2^−e, as
   s24_device_linear's scales are. */
typedef struct s24_device_train_fp8_args {
    size_t size;     /* sizeof(s24_device_train_fp8_args) */
    s24_dtype dtype; /* of from */
    s24_dtype to_dtype;
    int64_t rows, cols, ld;
    const void *from;
    void *to;     /* [rows, cols] */
    void *turned; /* [cols, rows in whole 16] */
    int known;    /* 1: scale[1] has been filled by a call for the same matrix */
    float *scale; /* [4]: 2^−e, which products multiply by, and the largest magnitude */
    void *stream;
    float *each; /* [rows] or NULL */
} s24_device_train_fp8_args;
S24_API s24_status s24_device_train_fp8(s24_ctx *ctx, s24_device *device,
                                        const s24_device_train_fp8_args *args);

/* Of each four rows of an order, row i of which is (first + i·step) % rows, at most two stay in
   every column, the largest, but in the `whole` columns that have the most numbers; these are 1
   afterwards in counts. x is changed in place. */
typedef struct s24_device_train_tokens_args {
    size_t size; /* sizeof(s24_device_train_tokens_args) */
    s24_dtype dtype;
    int64_t rows, cols;
    int64_t first, step;
    int64_t whole;
    void *x;
    int32_t *counts; /* [2, cols] */
    void *stream;
} s24_device_train_tokens_args;
S24_API s24_status s24_device_train_tokens(s24_ctx *ctx, s24_device *device,
                                           const s24_device_train_tokens_args *args);

/* By how much the next update would change the variance v where bits are set: changes[PARTS,
   CHANGES] = Σ |d|, Σ ln |d| where it is not 0, how many are set, in how many d is not 0. */
typedef struct s24_device_train_variance_args {
    size_t size;   /* sizeof(s24_device_train_variance_args) */
    int64_t count; /* 16 divides it */
    const float *g, *v;
    const uint16_t *bits;
    const double *squares;
    double gradient_scale, clip, beta2;
    double *changes;
    void *stream;
} s24_device_train_variance_args;
S24_API s24_status s24_device_train_variance(s24_ctx *ctx, s24_device *device,
                                             const s24_device_train_variance_args *args);

/* ---- lifted matrices (sparse24/lifted.h) ----------------------------------------------------- */

/* to [rows, s24_lifted_cols(cols, lift)] = the columns of from [rows, cols] repeated, as the tokens
   of a lifted matrix are; of back: from is lifted, a matrix or one of its rows more, and to [rows,
   cols] what it was lifted from. 8 divides both numbers of columns. SHAPE: or lift is none. */
typedef struct s24_device_train_lift_args {
    size_t size; /* sizeof(s24_device_train_lift_args) */
    s24_dtype dtype;
    int64_t rows, cols;
    int lift, back;
    void *to;
    const void *from;
    void *stream;
} s24_device_train_lift_args;
S24_API s24_status s24_device_train_lift(s24_ctx *ctx, s24_device *device,
                                         const s24_device_train_lift_args *args);

/* ---- time ------------------------------------------------------------------------------------ */

/* A mark notes when a stream comes to it, and may be put there again and again; seconds waits for
   `to`. Not while a graph is captured. */
S24_API s24_status s24_device_train_mark_create(void **out, s24_ctx *ctx, s24_device *device);
S24_API void s24_device_train_mark_destroy(s24_device *device, void *mark);
S24_API s24_status s24_device_train_mark(s24_ctx *ctx, s24_device *device, void *mark,
                                         void *stream);
S24_API s24_status s24_device_train_mark_seconds(double *seconds, s24_ctx *ctx, s24_device *device,
                                                 void *from, void *to);

#ifdef __cplusplus
}
#endif

#endif
