// SPDX-License-Identifier: Apache-2.0
/*
 * The operations that passes are made of: one table, which a device fills. All pointers lead into
 * the device's memory; what an operation must know of the host comes by value, so that a device may
 * run them one after the other without waiting. The first failure stays in machine->status, and
 * what follows it does nothing.
 *
 * All matrices are f32, row-major and without stride. T is the number of tokens of the batch.
 */
#ifndef S24_TRAIN_OPS_H
#define S24_TRAIN_OPS_H

#include "nn/dropout.h"
#include "nn/vec.h"
#include "train/kernels.h"

typedef struct s24i_machine s24i_machine;

/* y[m,n] = x[m,k]·wᵀ + bias: a linear layer's place among weights and gradients. */
typedef struct s24i_layer {
    float *w, *bias; /* [n,k], [n] or NULL */
    float *dw, *dbias;
    int64_t n, k;
} s24i_layer;

typedef struct s24i_norm {
    s24i_norm_row row; /* its gamma and beta */
    float *dgamma, *dbeta;
} s24i_norm;

/* The batch, as the device has it. */
typedef struct s24i_step {
    int64_t tokens, texts, longest;
    int64_t *offsets; /* [texts + 1] */
    int64_t *tiles;   /* [texts + 1]: tiles of queries before each text, for attention */
    int32_t *ids, *types, *positions; /* [tokens]; ids NULL for images, types NULL: 0 */
    uint8_t *mask;                    /* [tokens] or NULL */
    float *pixels;
    int32_t *targets, *starts, *ends; /* or NULL */
} s24i_step;

typedef struct s24i_embed {
    float *words, *positions, *types, *first; /* tables, NULL where the model has none */
    float *dwords, *dpositions, *dtypes, *dfirst;
    int64_t width;
} s24i_embed;

/* s = dropout(z + bias) + residual, y = norm(s). residual may be s where nothing is dropped. */
typedef struct s24i_add_norm {
    float *y, *s, *stats;             /* [T, width], [T, width], [T, 2] */
    const float *z, *bias, *residual; /* z NULL: s is there already */
    const s24i_norm *norm;
    const s24i_dropout *drop; /* NULL: none */
    int64_t rows, width;
} s24i_add_norm;

/* ds = [ds +] the gradient of s that dropout(dy [+ dy2]) is of y. dy is overwritten. */
typedef struct s24i_norm_back {
    float *ds, *dy;
    const float *dy2; /* or NULL; may be ds where nothing is added */
    const float *s, *stats;
    const s24i_norm *norm;
    const s24i_dropout *drop; /* NULL: none */
    int add;
    int64_t rows, width;
} s24i_norm_back;

/* Of [T, (heads + 2·kv_heads)·d]: queries, keys, values. */
typedef struct s24i_heads {
    const s24i_step *step;
    int64_t heads, kv_heads, d;
    int causal;
    const float *angles; /* [positions, d]: cos and sin by half; NULL: no rotary positions */
    const s24i_dropout *drop;
} s24i_heads;

/* h = activation(u + bias), of gated layers activation(g)·u with g and u beside each other in a row
   of 2·width. u keeps u + bias. */
typedef struct s24i_activate {
    float *h, *u;
    const float *bias;
    s24_activation activation;
    int squared, gated;
    int64_t rows, width;
} s24i_activate;

/* Rows of logits against labels, a teacher or both: *loss += and the gradient in place. */
typedef struct s24i_cross_entropy {
    float *logits;         /* [rows, n] */
    float *teacher;        /* [rows, n] or NULL; overwritten */
    const int32_t *labels; /* [rows], −1: none; or NULL */
    double *loss;
    double label_weight, teacher_weight; /* of a row */
    float temperature;
    int64_t rows, n;
} s24i_cross_entropy;

/* Of the texts' start and end logits [T, 2]. The weights are a text's. */
typedef struct s24i_answer_loss {
    float *logits;
    float *teacher; /* or NULL; overwritten */
    double *loss;
    double label_weight, teacher_weight;
    float temperature;
} s24i_answer_loss;

/* Pooled, normalised vectors of the texts and their cosine to a teacher's. */
typedef struct s24i_pool {
    float *vectors; /* [texts, width] */
    float *norms;   /* [texts] of the vectors before they were normalised, or NULL */
    const float *x; /* [T, width] */
    int pooling, normalise;
    int64_t width;
} s24i_pool;

typedef struct s24i_ops {
    const char *name;
    void *(*alloc)(s24i_machine *m, size_t bytes);
    void (*free)(s24i_machine *m, void *memory);
    void (*upload)(s24i_machine *m, void *to, const void *from, size_t bytes);
    void (*download)(s24i_machine *m, void *to, const void *from, size_t bytes);
    void (*clear)(s24i_machine *m, void *memory, size_t bytes);

    /* y = x·wᵀ (+ bias where with_bias); dx = dy·w; dw += dyᵀ·x, dbias += Σ dy. */
    void (*linear)(s24i_machine *m, float *y, const float *x, const s24i_layer *layer, int64_t rows,
                   int with_bias);
    void (*linear_dx)(s24i_machine *m, float *dx, const float *dy, const s24i_layer *layer,
                      int64_t rows);
    void (*linear_dw)(s24i_machine *m, const float *dy, const float *x, const s24i_layer *layer,
                      int64_t rows);

    /* Images: pixels to rows of patches, zeros for the first token. */
    void (*unfold)(s24i_machine *m, float *rows, const s24i_step *step, int64_t image,
                   int64_t patch, int64_t channels);
    /* s[T, width] from ids; of images s already holds the patches' vectors. */
    void (*embed)(s24i_machine *m, float *s, const s24i_embed *embed, const s24i_step *step);
    /* Adds ds to the tables' gradients; of images the first tokens' rows become 0. */
    void (*embed_back)(s24i_machine *m, float *ds, const s24i_embed *embed, const s24i_step *step);

    void (*add_norm)(s24i_machine *m, const s24i_add_norm *job);
    void (*norm_back)(s24i_machine *m, const s24i_norm_back *job);
    /* x[rows, width] in place. */
    void (*dropout)(s24i_machine *m, float *x, const s24i_dropout *drop, int64_t rows,
                    int64_t width);

    /* Turns queries and keys by their positions; back: the other way. */
    void (*rotate)(s24i_machine *m, float *qkv, const s24i_heads *heads, int back);
    void (*attention)(s24i_machine *m, float *context, const float *qkv, const s24i_heads *heads);
    void (*attention_back)(s24i_machine *m, float *dqkv, const float *dcontext, const float *qkv,
                           const s24i_heads *heads);

    void (*activate)(s24i_machine *m, const s24i_activate *job);
    /* du from dh: [rows, width], of gated layers [rows, 2·width]. du may be dh where not gated. */
    void (*activate_back)(s24i_machine *m, float *du, const float *dh, const s24i_activate *job);

    void (*cross_entropy)(s24i_machine *m, const s24i_cross_entropy *job);
    void (*answer_loss)(s24i_machine *m, const s24i_answer_loss *job, const s24i_step *step);
    /* *loss += weight·Σ (x − y)², dx += 2·weight·(x − y), of tokens that the mask lets be. */
    void (*squared_error)(s24i_machine *m, double *loss, float *dx, const float *x, const float *y,
                          double weight, const s24i_step *step, int64_t width);
    void (*pool)(s24i_machine *m, const s24i_pool *job, const s24i_step *step);
    /* *loss += weight·Σ (1 − cos), dx += its gradient. */
    void (*cosine_loss)(s24i_machine *m, double *loss, float *dx, const s24i_pool *job,
                        const float *teacher, double weight, const s24i_step *step);

    /* *sum = Σ g² of what the mask lets be. */
    void (*squares)(s24i_machine *m, double *sum, const float *g, const uint16_t *mask, int64_t n);
    void (*adamw)(s24i_machine *m, const s24i_adamw *job);
} s24i_ops;

/* The most that a context has, by s24_ctx_opts. */
enum { S24I_TRAIN_THREADS = 1024 };

struct s24i_machine {
    const s24i_ops *ops;
    s24_ctx *ctx; /* of the call that runs */
    s24_status status;
    /* The CPU's. */
    const s24i_vec *vec;
    const s24i_train_kernels *kernels;
    float *scratch; /* [threads, scratch_elems] */
    int64_t scratch_elems;
    int threads;
};

/* The CPU's operations. `longest` is the most tokens of a text, width the most columns of a norm. */
extern const s24i_ops s24i_ops_cpu;
s24_status s24i_machine_cpu(s24i_machine *machine, s24_ctx *ctx, int64_t longest, int64_t d,
                            int64_t width);

/* ---- parts of the CPU's table (cpu_*.c) ------------------------------------------------------- */

void s24i_cpu_rotate(s24i_machine *m, float *qkv, const s24i_heads *heads, int back);
void s24i_cpu_attention(s24i_machine *m, float *context, const float *qkv, const s24i_heads *heads);
void s24i_cpu_attention_back(s24i_machine *m, float *dqkv, const float *dcontext, const float *qkv,
                             const s24i_heads *heads);
int64_t s24i_cpu_attention_scratch(int64_t longest, int64_t d);
void s24i_cpu_cross_entropy(s24i_machine *m, const s24i_cross_entropy *job);
void s24i_cpu_answer_loss(s24i_machine *m, const s24i_answer_loss *job, const s24i_step *step);
void s24i_cpu_squared_error(s24i_machine *m, double *loss, float *dx, const float *x,
                            const float *y, double weight, const s24i_step *step, int64_t width);
void s24i_cpu_pool(s24i_machine *m, const s24i_pool *job, const s24i_step *step);
void s24i_cpu_cosine_loss(s24i_machine *m, double *loss, float *dx, const s24i_pool *job,
                          const float *teacher, double weight, const s24i_step *step);

#endif
