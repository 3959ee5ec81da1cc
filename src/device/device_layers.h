// SPDX-License-Identifier: Apache-2.0
/*
 * Layers of models on a device: what a transformer needs there next to the products, the selection
 * and the quantised tokens of sparse24/device.h. It is no part of the public interface:
 * libsparse24-nn and the program's benchmark include it, and the loader gives these names to those
 * alone that were built with this version of libsparse24 (cmake/sparse24.map).
 *
 * All of these enqueue and allocate nothing, take device memory only, compute sums in f32 and round
 * once, and may be captured into a graph. Matrices without a leading dimension of their own are
 * contiguous; data start at multiples of 16 bytes, and 8 divides a row's elements. Errors: ARGUMENT
 * (alignment, NULL), SHAPE, DTYPE (f16 and bf16 are taken), UNSUPPORTED.
 */
#ifndef S24_DEVICE_DEVICE_LAYERS_H
#define S24_DEVICE_DEVICE_LAYERS_H

#include "sparse24/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For libraries that work on the calling thread's current device: makes that this one, and gives
   what it was before, which leave brings back. Any thread may. */
S24_API int s24_device_enter(const s24_device *device);
S24_API void s24_device_leave(const s24_device *device, int before);
/* Are they one GPU, by one handle or by two? */
S24_API int s24_device_is_same(const s24_device *device, const s24_device *other);
/* What comes next in `stream` begins after all that is in `first` now. Either may be NULL, the
   device's default stream. */
S24_API s24_status s24_device_stream_follow(s24_ctx *ctx, s24_device *device, void *stream,
                                            void *first);
/* *done: is all of the stream done? Does not wait; reports what failed in it. */
S24_API s24_status s24_device_stream_done(int *done, s24_ctx *ctx, s24_device *device,
                                          void *stream);

enum {
    S24_DEVICE_WINDOW_RANKS = 8,
    S24_DEVICE_WINDOW_NAME = 64,      /* bytes */
    S24_DEVICE_WINDOW_SUM = 512 << 10 /* bytes of a sum at most, times the ranks that make it */
};
/* A window is memory of a GPU that the GPUs of other processes of this machine write into, so that
   a small sum over ranks is one kernel. Makes this rank's own and the name by which the others find
   it; waits. Errors: ARGUMENT, MEMORY, UNSUPPORTED (processes cannot share this GPU's memory). */
S24_API s24_status s24_device_window_make(void **out, s24_ctx *ctx, s24_device *device, int ranks,
                                          char name[S24_DEVICE_WINDOW_NAME]);
/* Once all others have left it. */
S24_API void s24_device_window_free(s24_device *device, void *window);
/* Finds another process's window. Errors: as above. */
S24_API s24_status s24_device_window_join(void **out, s24_ctx *ctx, s24_device *device,
                                          const char name[S24_DEVICE_WINDOW_NAME]);
S24_API void s24_device_window_leave(s24_device *device, void *window);

typedef struct s24_device_window_sum_args {
    size_t size; /* sizeof(s24_device_window_sum_args) */
    s24_dtype dtype;
    int64_t count; /* a multiple of 4; S24_DEVICE_WINDOW_SUM / ranks bytes at most */
    void *data;    /* replaced by the sums, which are added in the order of ranks in f32 */
    int rank, ranks;
    void *windows[S24_DEVICE_WINDOW_RANKS]; /* by rank */
    const int *halt; /* pinned: once it is not 0, sums end without the others; the sum is wrong */
    void *stream;
} s24_device_window_sum_args;
/* Enqueues a sum over ranks: all enqueue the same ones in the same order. */
S24_API s24_status s24_device_window_sum(s24_ctx *ctx, s24_device *device,
                                         const s24_device_window_sum_args *args);

typedef struct s24_device_dense_args {
    size_t size;        /* sizeof(s24_device_dense_args) */
    const s24_dense *y; /* [m, n] written, of x's dtype, or of f32: then x·wᵀ alone */
    const s24_dense *x; /* [m, k] */
    const s24_dense *w; /* [n, k] without stride */
    const void *bias;   /* [n] of the dtype, or NULL */
    s24_activation activation;
    const s24_dense *residual; /* [m, n] or NULL, added; may be y; not with an activation */
    void *work; /* work_bytes of device memory, used by one stream; 32 MiB are best */
    size_t work_bytes;
    void *stream;
    int few; /* 1: up to 16 tokens may have our own kernel, which rounds once */
    /* Of x and w of i8 or e4m3, with y of bf16: [m] and [n], factors per token and output. */
    const float *x_scale, *w_scale;
    /* What our own kernel takes in, if it may have the product. gamma [k] or NULL: x is divided by
       its root mean square and multiplied by gamma first; S24_DEVICE_FEW_NORMED elements of x at
       most, rows of 8192 at most. gated 1: w has 2·n rows, y = activation(x·w₁ᵀ + bias₁), squared
       if squared is 1, times (x·w₂ᵀ + bias₂). Either may stand with a residual. */
    const float *gamma;
    float eps;
    int gated, squared;
} s24_device_dense_args;

enum { S24_DEVICE_FEW_TOKENS = 16, S24_DEVICE_FEW_NORMED = 1 << 15 };

/* Computes y = activation(x·wᵀ·scales + bias) + residual of a dense weight, through cuBLASLt, where
   sums are rounded before an activation. Those of i8 are not: they are 32 bits in `work`, as many
   tokens at a time as half of it holds, of which one must fit. UNSUPPORTED where libcublasLt is
   needed and absent. */
S24_API s24_status s24_device_dense(s24_ctx *ctx, s24_device *device,
                                    const s24_device_dense_args *args);
/* Measures the algorithms that cuBLASLt proposes, on these operands, and keeps the fastest for
   products of this shape and about as many tokens. y is overwritten. Waits. *seconds: a run. */
S24_API s24_status s24_device_dense_search(double *seconds, s24_ctx *ctx, s24_device *device,
                                           const s24_device_dense_args *args);

typedef struct s24_device_norm_args {
    size_t size;               /* sizeof(s24_device_norm_args) */
    const s24_dense *y;        /* [rows, width] written; may be NULL where sum is not */
    const s24_dense *x;        /* [rows, width], may be y; NULL: embeddings, */
    const s24_dense *residual; /* [rows, width] added to x before, may be y; or NULL */
    const int32_t *ids;        /* [rows] of words, all in range, */
    const int32_t *positions;  /* [rows] of position_rows, */
    const int32_t *types;      /* [rows] of type_rows; NULL: all 0 */
    const void *words;         /* [.., width], */
    const void *position_rows; /* NULL: none */
    const void *type_rows;     /* NULL: none */
    const void *gamma;         /* [width] of the dtype */
    const void *beta;
    float eps;
    void *stream;
    /* [rows, width] written: what the norm is of; may be x or residual; or NULL */
    const s24_dense *sum;
    /* y once more for an 8-bit product, from f32, as s24_device_quantise: or NULL. */
    const s24_dense *narrow; /* [rows, width] of i8 or e4m3 written */
    float *narrow_scale;     /* [rows] written */
    float narrow_fixed;      /* the scale of all rows; 0: each has its own */
} s24_device_norm_args;

/* Computes y = (s − mean(s)) / √(var(s) + eps) · gamma + beta by rows of up to 2048 elements, s =
   x + residual + position_rows[position], or with x NULL words[id] + position_rows[position] +
   type_rows[type]. */
S24_API s24_status s24_device_norm(s24_ctx *ctx, s24_device *device,
                                   const s24_device_norm_args *args);

typedef struct s24_device_row_norm_args {
    size_t size; /* sizeof(s24_device_row_norm_args) */
    s24_dtype dtype;
    int64_t rows, width; /* up to 16384 elements a row */
    void *y;             /* [rows, width] written */
    void *sum;           /* [rows, width], to which x is added before, rounded */
    const void *x;       /* [rows, width], or NULL */
    const float *gamma;  /* [width] */
    float eps;
    /* y once more for an 8-bit product, from f32, as s24_device_quantise: or NULL. */
    const s24_dense *narrow; /* [rows, width] of i8 or e4m3 written */
    float *narrow_scale;     /* [rows] written */
    void *stream;
    const float *beta; /* [width], added at the end, or NULL */
    int centred;       /* 1: the row's mean is taken off s first, not from sum */
    int bare;          /* 1: s is not divided; gamma may be NULL then, which is 1 */
    int adds;          /* 1: y += that, rounded once; y is not sum, and narrow is NULL */
} s24_device_row_norm_args;
/* Computes y = s / √(mean(s²) + eps) · gamma by rows, s = sum + x, which becomes sum. */
S24_API s24_status s24_device_row_norm(s24_ctx *ctx, s24_device *device,
                                       const s24_device_row_norm_args *args);

typedef struct s24_device_attention_args {
    size_t size;              /* sizeof(s24_device_attention_args) */
    const s24_dense *context; /* [tokens, width] written, of qkv's dtype, or of i8 or e4m3 */
    const s24_dense *qkv;     /* [tokens, 3·width]: queries, keys, values side by side */
    int64_t heads;            /* of width/heads elements: 16, 32 or 64 */
    /* [texts + 1]: text b is tokens offsets[b] … offsets[b + 1], not empty */
    const int32_t *offsets;
    /* [tile_count, 2]: of each text b (b, 0), (b, queries), (b, 2·queries) … */
    const int32_t *tiles;
    int64_t tile_count;
    int queries;         /* s24_device_attention_queries */
    const uint8_t *mask; /* [tokens], or NULL: 1 */
    void *stream;
    float context_scale; /* of a context of 8 bits: it holds the result divided by this */
} s24_device_attention_args;

/* Says how many queries a tile of attention has for that many tokens in all; 0: heads of
   width/heads elements are not supported. */
S24_API int s24_device_attention_queries(const s24_device *device, int64_t tokens, int64_t width,
                                         int64_t heads);
/* Computes context = softmax(q·kᵀ/√d)·v by head within each text. A token whose mask is 0 is
   attended by none; in a text of such tokens only, every token attends to all alike. */
S24_API s24_status s24_device_attention(s24_ctx *ctx, s24_device *device,
                                        const s24_device_attention_args *args);

typedef struct s24_device_attention_grid_args {
    size_t size;              /* sizeof(s24_device_attention_grid_args) */
    const s24_dense *context; /* [images·grid², width] written */
    const s24_dense *qkv;     /* [images·grid², 3·width]: queries, keys, values side by side */
    int64_t heads;            /* of width/heads elements */
    int64_t images, grid;     /* tokens per side of an image, line by line */
    int64_t window;           /* tokens per side of a window; 0: each attends to a whole image */
    const void *bias;         /* [3·width] of the dtype: of the layer that made qkv */
    /* [2·side − 1, width/heads] of the dtype, side the window's or grid's */
    const void *rel_h, *rel_w;
    void *stream;
} s24_device_attention_grid_args;

/* Returns 1 where s24_device_attention_grid takes heads of width/heads elements over such
   squares. */
S24_API int s24_device_attention_grid_takes(const s24_device *device, int64_t width, int64_t heads,
                                            int64_t side);
/*
 * Computes context = softmax(s)·v by head within each image, or each window of it, s of query (y,
 * x) and key (v, u) being q·k/√d + q·rel_h[y − v + side − 1] + q·rel_w[x − u + side − 1]:
 * decomposed relative positions (MViTv2; Segment Anything). The last windows may reach beyond the
 * grid, where keys and values are the biases, as of padding with zeros before the layer.
 * UNSUPPORTED: other heads and sides.
 */
S24_API s24_status s24_device_attention_grid(s24_ctx *ctx, s24_device *device,
                                             const s24_device_attention_grid_args *args);

/* How the tokens of a text become one vector, in a model's folder and on a device. */
typedef enum s24i_pooling {
    S24I_POOL_MEAN = 0,
    S24I_POOL_CLS, /* the first token */
    S24I_POOL_MAX,
    S24I_POOL_LAST,                     /* the last token whose mask is 1 */
    S24I_POOLINGS,                      /* of a device and of training; the CPU has more: */
    S24I_POOL_WEIGHTED = S24I_POOLINGS, /* a mean in which token i counts i times, from 1 on */
    S24I_POOL_ROOT,                     /* the sum divided by the tokens' square root */
    S24I_POOL_END,                      /* the token that ends the text */
    S24I_POOL_PROBE,                    /* the model's head that pools */
    S24I_POOL_WORDS                     /* weights of words, which an encoder makes */
} s24i_pooling;

/*
 * Attention of a pass's tokens over a cache, which holds of a layer keys and values, [texts of the
 * cache, kv_heads, room, d] each. Text b of the pass goes on with text places[b] of the cache after
 * the before[b] tokens that are there.
 */
typedef struct s24_device_attention_cache_args {
    size_t size; /* sizeof(s24_device_attention_cache_args) */
    s24_dtype dtype;
    int64_t texts, longest;           /* of the pass; longest: new tokens of a text, at most */
    int64_t heads, kv_heads, d, room; /* d: up to 256, which 8 divides */
    int64_t window;                   /* tokens that a query sees, itself with them; 0: all */
    /* All of the host's making before the pass begins: no kernel of it writes them. */
    const int32_t *offsets; /* [texts + 1] */
    const int32_t *places;  /* [texts], each once */
    const int32_t *before;  /* [texts] */
    const void *qkv;        /* [tokens, (heads + 2·kv_heads)·d] */
    void *keys, *values;
    void *context; /* [tokens, heads·d] written */
    /* Where each text has one token: what is done to queries and keys first. */
    const float *angles;                  /* [room, turned] cosines and sines, or NULL */
    const float *query_gamma, *key_gamma; /* [d] of their norms, or NULL */
    float eps;
    void *work; /* s24_device_attention_cache_work_bytes, used by one stream */
    /* [texts · kv_heads · ⌈heads/kv_heads/16⌉], zeros before the first use */
    unsigned *counters;
    void *stream;
    int64_t turned; /* elements of a head, as in s24_device_train_rotate_args */
    int adjacent;
    float scale, cap;   /* of scores, as in s24_device_train_attention_args */
    const float *sinks; /* [heads], likewise, or NULL */
    int64_t value_d;    /* likewise */
} s24_device_attention_cache_args;

S24_API size_t s24_device_attention_cache_work_bytes(const s24_device *device, int64_t texts,
                                                     int64_t heads, int64_t d);
/* Puts the pass's keys and values in the cache. */
S24_API s24_status s24_device_cache_put(s24_ctx *ctx, s24_device *device,
                                        const s24_device_attention_cache_args *args);
/* Computes context = softmax(scores)·v by head, of the tokens that are in the cache up to the
   query's own. With longest 1 queries and keys are normed and rotated as said, and the new keys and
   values put in the cache, all in one kernel; else that has been done before. */
S24_API s24_status s24_device_attention_cache(s24_ctx *ctx, s24_device *device,
                                              const s24_device_attention_cache_args *args);

/*
 * Attention over latents (model/latent.h) with heads that have keys and values of their own. Of a
 * head `plain` elements of a key come from its token's latent and `turned` from one key that all
 * heads share, which positions turn as they do the query's: halves against each other or
 * neighbours.
 */
typedef struct s24_device_latent_args {
    size_t size; /* sizeof(s24_device_latent_args) */
    s24_dtype dtype;
    int64_t tokens, heads;
    int64_t plain, turned, value; /* 8 divides them */
    int64_t d;                    /* of a head of qkv: 8 divides it, and no key or value is wider */
    const void *queries;          /* [tokens, heads·(plain + turned)] */
    const void *key;              /* of the first token, `turned` elements; key_ld to the next's */
    int64_t key_ld;
    const void *made;    /* [tokens, heads·(plain + value)]: a head's key and value of latents */
    const float *angles; /* [positions, turned] cosines and sines */
    const int32_t *position; /* [tokens] */
    int halves;
    void *qkv; /* [tokens, 3·heads·d] written, filled up with zeros */
    void *stream;
} s24_device_latent_args;
S24_API s24_status s24_device_latent(s24_ctx *ctx, s24_device *device,
                                     const s24_device_latent_args *args);

typedef struct s24_device_scale_args {
    size_t size; /* sizeof(s24_device_scale_args) */
    s24_dtype dtype;
    int64_t rows, width;  /* 8 divides width */
    void *x;              /* [rows, width], changed in place */
    const void *columns;  /* [width] of the dtype, or NULL: 1 */
    const float *factors; /* [rows], or NULL: 1 */
    float factor;         /* 0: 1 */
    void *stream;
} s24_device_scale_args;
/* x[r, c] *= columns[c]·factors[r]·factor, rounded once. What a factor of 0 multiplies is 0. */
S24_API s24_status s24_device_scale(s24_ctx *ctx, s24_device *device,
                                    const s24_device_scale_args *args);

enum { S24_DEVICE_APART_ROWS = 64 };
typedef struct s24_device_apart_args {
    size_t size; /* sizeof(s24_device_apart_args) */
    s24_dtype dtype;
    int64_t tokens, heads, d; /* d: as attention for training takes it */
    int64_t rows;             /* of the table */
    const void *vectors;      /* [tokens, heads·d], ld elements apart, */
    const void *table;        /* [rows, heads·d], table_ld apart */
    int64_t ld, table_ld;     /* 8 divides them */
    float
        *y; /* [heads, tokens, y_ld] written, y_ld: rows, up to S24_DEVICE_APART_ROWS's multiple */
    int64_t y_ld;
    void *stream;
} s24_device_apart_args;
/* Computes y[h, t, r] = vectors[t]·table[r] by head, what scores grow by in attention by content
   and distance. On compute capability 9.0 alone: UNSUPPORTED elsewhere. */
S24_API s24_status s24_device_apart(s24_ctx *ctx, s24_device *device,
                                    const s24_device_apart_args *args);

/* The likeliest token by a row of logits. */
typedef struct s24_device_picked {
    int32_t id;            /* of equal ones the lowest; −1: a NaN, or the largest is infinite */
    float log_probability; /* of its softmax */
} s24_device_picked;

typedef struct s24_device_pick_args {
    size_t size;          /* sizeof(s24_device_pick_args) */
    const float *logits;  /* [rows, n], rows ld apart */
    int64_t rows, n, ld;  /* 4 divides ld */
    s24_device_picked *y; /* [rows] written, there or in pinned memory */
    void *work;           /* s24_device_pick_work_bytes, zeros before the first use */
    void *stream;
} s24_device_pick_args;
S24_API size_t s24_device_pick_work_bytes(const s24_device *device, int64_t rows);
S24_API s24_status s24_device_pick(s24_ctx *ctx, s24_device *device,
                                   const s24_device_pick_args *args);

typedef struct s24_device_logits_args {
    size_t size;         /* sizeof(s24_device_logits_args) */
    float *logits;       /* [rows, n], rows ld apart */
    int64_t rows, n, ld; /* 4 divides ld */
    float factor, cap;   /* 0: 1, and no cap */
    void *stream;
} s24_device_logits_args;
/* Logits become x = factor · logit, and of a cap cap·tanh(x / cap). */
S24_API s24_status s24_device_logits(s24_ctx *ctx, s24_device *device,
                                     const s24_device_logits_args *args);

typedef struct s24_device_pool_args {
    size_t size;            /* sizeof(s24_device_pool_args) */
    float *y;               /* [texts, width] written */
    const s24_dense *x;     /* [tokens, width], width up to 8192 */
    const int32_t *offsets; /* [texts + 1] */
    int64_t texts;
    const uint8_t *mask; /* [tokens], or NULL: 1. All but the first token's leave out a 0. */
    s24i_pooling pooling;
    int normalise; /* 1: divided by its length, at least 10⁻¹² */
    void *stream;
} s24_device_pool_args;
S24_API s24_status s24_device_pool(s24_ctx *ctx, s24_device *device,
                                   const s24_device_pool_args *args);

typedef struct s24_device_head_args {
    size_t size;        /* sizeof(s24_device_head_args) */
    float *y;           /* [outputs, rows] written; without w [rows, width] */
    const s24_dense *x; /* [rows, width], rows any distance apart */
    const s24_dense *w; /* [outputs, width] of a few outputs; NULL: y = x */
    const float *bias;  /* [outputs] */
    void *stream;
    int rows_first; /* 1: y is [rows, outputs] */
} s24_device_head_args;
/* Computes y[o, row] = x[row]·w[o] + bias[o] in f32, or widens x to f32. */
S24_API s24_status s24_device_head(s24_ctx *ctx, s24_device *device,
                                   const s24_device_head_args *args);

typedef struct s24_device_unfold_args {
    size_t size;                            /* sizeof(s24_device_unfold_args) */
    const s24_dense *y;                     /* [images · (first + patches), columns] written */
    const float *pixels;                    /* [images, channels, image, image] */
    int64_t images, channels, image, patch; /* pixels per side; patch divides image */
    int64_t first;                          /* rows of zeros before an image's patches */
    void *stream;
} s24_device_unfold_args;
/* Writes a row per patch, line by line of an image: its channels · patch² pixels, and zeros in what
   columns follow them. */
S24_API s24_status s24_device_unfold(s24_ctx *ctx, s24_device *device,
                                     const s24_device_unfold_args *args);

/* A weight in rows of square blocks, of f16, bf16, i8 or e4m3, on a Hopper GPU. */
typedef struct s24_device_blocks s24_device_blocks;
/* Puts BSR of square blocks of 16, 32, 64 or 128 on the device; waits until it is there. Also
   FORMAT, as s24_sparse_check, and MEMORY. */
S24_API s24_status s24_device_blocks_create(s24_device_blocks **out, s24_ctx *ctx,
                                            s24_device *device, const s24_sparse_parts *parts,
                                            void *stream);
/* Bytes that it takes on the device. */
S24_API size_t s24_device_blocks_bytes(const s24_device_blocks *blocks);
S24_API void s24_device_blocks_destroy(s24_device_blocks *blocks);

/* Which kernel multiplies: the choice of the number of tokens, or by name for tests and timing. */
typedef enum s24_device_blocks_way {
    S24_BLOCKS_CHOICE,
    S24_BLOCKS_FEW, /* up to 16 tokens: mma, the blocks stream in */
    S24_BLOCKS_MANY /* wgmma, tiles of 256 tokens */
} s24_device_blocks_way;

typedef struct s24_device_blocks_args {
    size_t size;        /* sizeof(s24_device_blocks_args) */
    const s24_dense *y; /* [m, n] written, of x's dtype, or of bf16 where that has 8 bits */
    const s24_dense *x; /* [m, k] of the blocks' dtype */
    const s24_device_blocks *w;
    const void *bias; /* [n] of y's dtype, or NULL */
    s24_activation activation;
    s24_device_blocks_way way; /* UNSUPPORTED: few, of more than 16 tokens */
    void *stream;
    const float *x_scale, *w_scale; /* of 8 bits: [m] and [n], factors per token and output */
} s24_device_blocks_args;
/* Computes y = activation(x·wᵀ·scales + bias). */
S24_API s24_status s24_device_blocks_linear(s24_ctx *ctx, s24_device *device,
                                            const s24_device_blocks_args *args);
/* dst [n, k] of the weight's dtype, on the device, at multiples of 16 bytes; on every GPU. */
S24_API s24_status s24_device_blocks_to_dense(s24_ctx *ctx, s24_device *device,
                                              const s24_dense *dst, const s24_device_blocks *weight,
                                              void *stream);

/* ---- mixtures of experts --------------------------------------------------------------------- */

/* One expert's weight [n, k] as it lies on the device: 2:4, or dense without stride. */
typedef struct s24_device_expert {
    const s24_device_weight *packed; /* or: */
    const void *dense;
} s24_device_expert;

/* Where the weights of all experts lie; they stay the caller's, and must be there as long. */
typedef struct s24_device_experts s24_device_experts;
typedef struct s24_device_experts_shape {
    s24_dtype dtype;
    int64_t n, k; /* 8 divides them */
    int64_t experts, parts;
} s24_device_experts_shape;
/* experts · parts of them, all experts' first parts before their second ones. */
S24_API s24_status s24_device_experts_create(s24_device_experts **out, s24_ctx *ctx,
                                             s24_device *device, const s24_device_expert *weights,
                                             const s24_device_experts_shape *shape);
S24_API void s24_device_experts_destroy(s24_device_experts *experts);

typedef struct s24_device_route_args {
    size_t size; /* sizeof(s24_device_route_args) */
    s24_dtype dtype;
    int64_t tokens, width, experts, used; /* fewer than S24_DEVICE_MOST_EXPERTS experts */
    const void *x;                        /* [tokens, width] */
    const float *router;                  /* [experts, width] */
    const float *correction; /* [experts] added to scores that choose, not to weights; or NULL */
    const float *gate;       /* [width] of an expert that each token takes, weighed by
                                sigmoid(gate · x); or NULL: 1 */
    int sigmoid, normalised; /* of scores, else their softmax; weights are divided by their sum */
    float factor;            /* of weights */
    float jitter;            /* above 0: two experts, each weighed among those that near it */
    float *scores;           /* [tokens, experts + 1] room */
    int32_t *chosen; /* [tokens, used] written: the largest first, of equal ones the first */
    float *weights;  /* [tokens, used + 1] written, of chosen and of the one for all */
    int32_t *order;  /* [tokens · used] written, numbers of `chosen` by expert, and */
    int32_t *begins; /* [experts + 1] where each expert's begin; or NULL both */
    void *stream;
    const float *bias; /* [experts] of the router, or NULL */
    /* Neighbours of which only those of the best groups_used groups are chosen: by the sum of the
       two best keys where scores are sigmoids, else by the best one. 0: there are none. */
    int64_t groups, groups_used;
} s24_device_route_args;
enum { S24_DEVICE_MOST_EXPERTS = 4096, S24_DEVICE_MOST_GROUPS = 64 };
/* Chooses experts for tokens. */
S24_API s24_status s24_device_route(s24_ctx *ctx, s24_device *device,
                                    const s24_device_route_args *args);

typedef struct s24_device_experts_args {
    size_t size; /* sizeof(s24_device_experts_args) */
    const s24_device_experts *experts;
    int64_t rows;          /* of y */
    int64_t each;          /* rows of y that read one row of x */
    const void *x;         /* [rows / each, k] */
    void *y;               /* [rows, parts·n] written */
    const int32_t *chosen; /* [rows] whose weight it is */
    const int32_t *order;  /* of s24_device_route: an expert's rows are multiplied together; */
    const int32_t *begins; /* NULL both: each row by itself, which is for few */
    void *stream;
    const float *bias; /* [parts, experts, n] or NULL */
} s24_device_experts_args;
/* Computes y[r] = x[r / each] · wᵀ + bias of the row's expert. */
S24_API s24_status s24_device_experts_multiply(s24_ctx *ctx, s24_device *device,
                                               const s24_device_experts_args *args);

typedef struct s24_device_mix_args {
    size_t size; /* sizeof(s24_device_mix_args) */
    s24_dtype dtype;
    int64_t tokens, width, used;
    const void *x;        /* [tokens, used, width] */
    const void *shared;   /* [tokens, width] or NULL */
    const float *weights; /* of s24_device_route */
    void *y;              /* [tokens, width] written */
    void *stream;
} s24_device_mix_args;
/* Computes what a token's experts give together, in their order. */
S24_API s24_status s24_device_mix(s24_ctx *ctx, s24_device *device,
                                  const s24_device_mix_args *args);

#ifdef __cplusplus
}
#endif

#endif
