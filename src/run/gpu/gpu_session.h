// SPDX-License-Identifier: Apache-2.0
/* The inside of a session on a device, and its plan: which kernels a number of tokens gets. */
#ifndef S24_RUN_GPU_GPU_SESSION_H
#define S24_RUN_GPU_GPU_SESSION_H

#include "run/gpu/gpu_model.h"

enum {
    S24I_GPU_GRAPHS = 32,
    S24I_GPU_OCTAVES = 26, /* powers of two of tokens, to beyond the most of a session */
    S24I_GPU_RIVALS = 2,   /* tiles beside the one that is fastest alone */
    S24I_GPU_DENSE_WORK = 32 << 20
};

/* What decides about the kernels of a pass and their pointers. */
typedef struct s24i_gpu_shape {
    int64_t tokens, texts, tiles, unpooled;
    int64_t types, mask, embeddings, logits, hidden, classes, images; /* 0 or 1 */
} s24i_gpu_shape;

typedef struct s24i_gpu_graph {
    s24i_gpu_shape shape;
    s24_device_graph *graph; /* NULL: the shape has been seen once */
    int64_t used;            /* number of the pass */
} s24i_gpu_graph;

/* How one of a block's products runs, in all blocks alike. */
typedef struct s24i_gpu_choice {
    const char *tile; /* of a 2:4 product; NULL: the device's own choice */
    int dense;        /* 1: a 2:4 weight is multiplied as a dense one */
    int narrow;       /* 1: in 8 bits */
} s24i_gpu_choice;

/* By product: tiles that were nearly as fast alone as the chosen one, best first; then NULL. */
typedef struct s24i_gpu_rivals {
    const char *tile[S24I_PRODUCTS][S24I_GPU_RIVALS];
} s24i_gpu_rivals;

struct s24i_gpu_session {
    s24_ctx *ctx;
    const s24_model *model;
    s24_device *device;
    void *stream;
    int64_t max_tokens, wide; /* columns of outer */
    void *hidden, *qkv, *context, *outer, *work, *dense_work;
    void *pixels, *class_logits; /* f32, of a model of images; else NULL */
    void *narrow;                /* tokens of an 8-bit product, */
    float *narrow_scale;         /* and their scales; NULL: the model has no such products */
    size_t work_bytes;
    /* Of post-norm blocks whose products are all 2:4 (gpu_norm.c), else NULL: moments of what the norms
       behind the attention and behind the output are of, and terms of the products behind norms. */
    void *moments[2], *terms;
    int32_t *inputs, *pinned; /* on the device, and where the host writes them */
    size_t input_bytes;
    s24i_gpu_graph graphs[S24I_GPU_GRAPHS];
    int64_t passes;
    s24i_gpu_choice choices[S24I_GPU_OCTAVES][S24I_PRODUCTS];
    int planned[S24I_GPU_OCTAVES];
    int folded[S24I_GPU_OCTAVES]; /* products take norms in; the blocks run none of their own */
    void *dense_copies[S24I_PRODUCTS]; /* of the 2:4 weights of all blocks, where one is chosen */
    s24_outputs outputs;               /* of the submitted pass */
    s24i_gpu_shape submitted;          /* tokens 0: none */
};

/* What a product reads and writes beside its weight and bias. */
typedef struct s24i_gpu_operands {
    s24_dense y, x, residual;
    s24_device_linear_norm norm; /* size 0: no norm and no residual */
} s24i_gpu_operands;

/* Can the products take norms in? Then their memory, and terms from the weights. */
s24_status s24i_gpu_norm_create(s24i_gpu_session *gpu, s24_ctx *ctx);
/* The operands of a block's product that takes norms in; what they are without is in *o. */
void s24i_gpu_norm_operands(s24i_gpu_operands *o, const s24i_gpu_session *gpu, int64_t block,
                            int index);

/* Numbers of tokens that share a plan: up to this power of two. */
int s24i_gpu_octave(int64_t tokens);
/* Measures the products of that many tokens on the device, once an octave: 2:4 tile by tile, dense
   algorithm by algorithm. What is in the buffers is overwritten. */
s24_status s24i_gpu_plan(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens);
/* The faster of the session's plan and the other one, with norms in products or apart, by turns; either
   way a session keeps it. */
s24_status s24i_gpu_compare_plans(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                  s24i_gpu_choice other[S24I_PRODUCTS]);
/* Of the tile planned for a product and its rivals the one with which all blocks are fastest, by turns. */
s24_status s24i_gpu_settle_tile(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int index,
                                const char *const rivals[S24I_GPU_RIVALS]);
/* Runs product `index` of a block as planned. */
s24_status s24i_gpu_product(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                            int64_t block, int index);
/* Do the products of a block that read a norm's result want it in 8 bits? Of the attention's norm
   (query, key and value) or the intermediate layer's. */
int s24i_gpu_norm_narrows(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index);
/* hidden = norm(sum + hidden), without sum norm(hidden); before layers hidden += sum, and context is the
   norm of that, if there is one. narrow: the products that read it want it in 8 bits too. */
s24_status s24i_gpu_norm(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_layer_norm *norm,
                         const s24_dense *hidden, const s24_dense *sum, int narrow);
/* hidden becomes the embeddings of the images in pixels, context their first norm. */
s24_status s24i_gpu_embed_images(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t images,
                                 const int32_t *positions);

/* ---- 8 bits (gpu_narrow.c) ------------------------------------------------------------------- */

s24_status s24i_gpu_narrow_reserve(s24i_gpu_session *gpu, s24_ctx *ctx);
/* Where the tokens of a product in 8 bits stand: [rows, cols]. */
s24_dense s24i_gpu_narrow_view(const s24i_gpu_session *gpu, int64_t rows, int64_t cols);
/* x into that place. */
s24_status s24i_gpu_quantise(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_dense *x);
/* y of what stands there. */
s24_status s24i_gpu_narrow_product(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_linear *l,
                                   const s24_dense *y, const char *tile);
static inline s24_dense s24i_gpu_view(const s24i_gpu_session *gpu, void *data, int64_t rows,
                                      int64_t cols)
{
    return (s24_dense){data, gpu->model->dtype, rows, cols, 0};
}

#endif
