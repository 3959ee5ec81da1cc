// SPDX-License-Identifier: Apache-2.0
/*
 * Weights of linear layers. A kind of weight is a row of weights.def: how a layer's weight is held,
 * here or on a device, and multiplied. Each kind serves one way of a product (s24i_way); who runs a
 * product chooses among the ways that its layer has and knows no kind.
 */
#ifndef S24_RUN_WEIGHT_WEIGHT_H
#define S24_RUN_WEIGHT_WEIGHT_H

#include "model/model.h"

/* One product: y = activation(x·wᵀ + bias) + residual, in the memory where the weight lies. */
typedef struct s24i_product_job {
    const s24_dense *y, *x;
    const void *bias; /* [n]; on the CPU f32, on a device in the model's dtype; or NULL */
    s24_activation activation;
    const s24_dense *residual; /* NULL, or y itself on the CPU */
    void *work;                /* of that way, s24i_weight_work_bytes at least */
    size_t work_bytes;
    s24i_dense_runner *runner; /* on the CPU, of dense products */
    /* On a device. */
    void *stream;
    const char *tile;                   /* of a 2:4 product; NULL: the device's own choice */
    const s24_device_linear_norm *norm; /* taken into a 2:4 product; or NULL */
    const float *x_scale;               /* of tokens in 8 bits; or, of all of them, */
    float alpha;                        /* one; 0: each has its own */
    float y_scale;                      /* of a y in 8 bits */
    void *widened;      /* room for integers in 16 bits: they are multiplied so; or NULL */
    const float *gamma; /* of a norm that a dense product of few tokens takes in; or NULL */
    float eps;
    int gated, squared; /* likewise: a weight of twice as many rows, as s24_device_dense has it */
    double *search; /* of a dense product: the best algorithm is searched for, its seconds go here;
                       or NULL */
} s24i_product_job;

typedef struct s24i_weight_kind {
    const char *name;
    s24i_way way;
    size_t size; /* of what begins with an s24i_weight */
    /* Is this the kind for a source in that model? */
    int (*takes)(const s24_model *model, const s24i_source *source);
    /* Fills a weight of zeros; what it has after an error, clear frees. */
    s24_status (*make)(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source);
    /* ctx is that of an error on a device. */
    void (*clear)(s24i_weight *weight, s24_ctx *ctx);
    int64_t (*bytes)(const s24i_weight *weight);
    /* Work memory of a product of so many rows on ctx's threads; NULL: it needs none. */
    size_t (*work_bytes)(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows);
    /* On the CPU: may x and y be bf16? On a device nobody asks, since the model's dtype says it. */
    int (*takes_bf16)(const s24i_weight *weight);
    /* On the CPU: does it multiply in 8 bits, tokens too? NULL: no. */
    int (*is_eight)(const s24i_weight *weight);
    s24_status (*run)(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *product);
    /* to[k] = a row of the weight, of a kind that may be a table of words; else NULL. */
    void (*row)(float *to, const s24i_weight *weight, int64_t row);
} s24i_weight_kind;

/* Every kind's own struct begins with this. */
struct s24i_weight {
    const s24i_weight_kind *kind;
    s24_ctx *ctx; /* that of the model, whose memory it is in */
};

#define WEIGHT(name) extern const s24i_weight_kind s24i_weight_##name;
#include "run/weight/weights.def"
#undef WEIGHT

/* A weight of `kind` for whose memory `owner` stands; errors are in ctx. */
s24_status s24i_weight_new(s24i_weight **out, s24_ctx *owner, s24_ctx *ctx,
                           const s24i_weight_kind *kind);
/* The model's weight of a source for a way. *out NULL: no kind of that way takes it. */
s24_status s24i_weight_make(s24i_weight **out, const s24_model *model, s24_ctx *ctx,
                            const s24i_source *source, s24i_way way);
void s24i_weight_destroy(s24i_weight *weight, s24_ctx *ctx);

/* n, k and sparse as a layer's source says. */
void s24i_linear_shape(s24i_linear *linear, const s24i_source *source);
/* The same, and a weight for each of the `ways` (bits) that some kind serves; the source stays the
   caller's. */
s24_status s24i_linear_make(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                            const s24i_source *source, unsigned ways);
void s24i_linear_drop(s24i_linear *linear, s24_ctx *ctx, s24i_way way);
void s24i_linear_clear(s24i_linear *linear, s24_ctx *ctx);
/* A weight of one of the ways that take tokens in floats: which it is changes no more than
   rounding. NULL: there is none. */
const s24i_weight *s24i_linear_any(const s24i_linear *linear);
/* Bytes of all of its weights. */
int64_t s24i_linear_bytes(const s24i_linear *linear);
/* Work memory for any of its ways. */
size_t s24i_linear_work_bytes(const s24i_linear *linear, const s24_ctx *ctx, int64_t rows);
int s24i_linear_takes_bf16(const s24i_linear *linear);

static inline s24_status s24i_weight_run(const s24i_weight *weight, s24_ctx *ctx,
                                         const s24i_product_job *product)
{
    return weight->kind->run(weight, ctx, product);
}

static inline void s24i_weight_row(float *to, const s24i_weight *weight, int64_t row)
{
    weight->kind->row(to, weight, row);
}

static inline int64_t s24i_weight_bytes(const s24i_weight *weight)
{
    return weight ? weight->kind->bytes(weight) : 0;
}

/* Is a dense weight of that source, with a scale for each row, multiplied in 8 bits on the CPU? */
int s24i_source_is_eight(const s24_model *model, const s24i_source *source);

/* Is the layer of a source 2:4, in a sparse format, or of factors? */
static inline int s24i_source_is_sparse(const s24i_source *source)
{
    return source->laid_out.data || source->matrix || source->sparse || source->factors.rank;
}

#endif
