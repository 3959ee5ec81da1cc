// SPDX-License-Identifier: Apache-2.0
/* The inside of a device's machine. Everything runs in the device's default stream. */
#ifndef S24_TRAIN_GPU_H
#define S24_TRAIN_GPU_H

#include "device/device_train.h"
#include "train/ops.h"

enum {
    S24I_TRAIN_PINNED = 4 << 20, /* bytes that go up without waiting */
    S24I_MARKS = 512             /* of laps: when all have been put, laps are added up */
};

/* A layer's weights packed for 2:4 products, and their transpose; NULL where they are not 2:4. */
typedef struct s24i_gpu_pair {
    s24i_layer *layer;
    s24_device_weight *weight, *transposed;
    int forward, backward; /* are they used? */
    int fp8;               /* 1: they are of 8 bits, packed just before they are used */
} s24i_gpu_pair;

struct s24i_gpu {
    s24_device *device;
    s24_dtype dtype;
    s24i_arena arena;
    void *narrow;       /* [elems] the weights in dtype, which products read */
    uint16_t *matrices; /* a bit an element: is there weight decay? */
    void *work;         /* S24_DEVICE_TRAIN_WORK bytes */
    char *pinned;
    size_t pinned_used; /* bytes that copies may still read */
    s24i_gpu_pair *pairs;
    int64_t pair_count;
    int packed;           /* are pairs those of the weights as they are? */
    void *sparse_work;    /* of 2:4 products */
    const void *narrowed; /* the gradients that dW has just left in 8 bits; NULL: none */
    const void *measured; /* the matrix whose largest magnitude is known; NULL: none */
    const float *measure; /* and where it is */
    size_t sparse_work_bytes;
    void *marks[S24I_MARKS]; /* of laps, begin and end by turns; made when they are first put */
    int mark_count;
    double lap_seconds; /* of laps that were added up */
};

/* Keeps the first failure. */
void s24i_gpu_did(s24i_machine *m, s24_status status);

/* Runs an operation of device/device_train.h, its arguments' size and stream set, if nothing has
   failed before. */
#define GPU_RUN(m, operation, ...)                                                                 \
    do {                                                                                           \
        const s24_device_train_##operation##_args args_ = {.size = sizeof args_, __VA_ARGS__};     \
        if ((m)->status == S24_OK)                                                                 \
            s24i_gpu_did(m, s24_device_train_##operation((m)->ctx, (m)->gpu->device, &args_));     \
    } while (0)

/* Where a weight lies in the dtype; NULL stays NULL. */
static inline void *s24i_gpu_narrow(const s24i_machine *m, const float *w)
{
    return w ? (char *)m->gpu->narrow + m->element * (size_t)(w - m->gpu->arena.weights) : NULL;
}

/* ---- parts of the table (gpu_*.c) ------------------------------------------------------------ */

void s24i_gpu_linear(s24i_machine *m, void *y, const void *x, const s24i_layer *layer, int64_t rows,
                     int with_bias);
void s24i_gpu_logits(s24i_machine *m, float *y, const void *x, const s24i_layer *layer,
                     int64_t rows);
void s24i_gpu_linear_dx(s24i_machine *m, void *dx, const void *dy, const s24i_layer *layer,
                        int64_t rows);
void s24i_gpu_linear_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *layer,
                        int64_t rows, int with_bias);
/* gpu_sparse.c: 1 where the product ran 2:4. */
int s24i_gpu_sparse_linear(s24i_machine *m, const s24_dense *y, const s24_dense *x,
                           const s24i_layer *layer, const void *bias);
int s24i_gpu_sparse_dx(s24i_machine *m, const s24_dense *dx, const s24_dense *dy,
                       const s24i_layer *layer);
/* gpu_fp8.c: likewise in 8 bits. */
int s24i_gpu_fp8_linear(s24i_machine *m, const s24_dense *y, const s24_dense *x,
                        const s24i_layer *layer, const void *bias);
int s24i_gpu_fp8_dx(s24i_machine *m, const s24_dense *dx, const s24_dense *dy,
                    const s24i_layer *layer);
int s24i_gpu_fp8_dw(s24i_machine *m, const s24_dense *dy, const s24_dense *x,
                    const s24i_layer *layer);
/* Has the layer room for operands in 8 bits, though a step may not use them? */
int s24i_gpu_fp8_may_be(const s24i_layer *layer);
/* Of a layer in 8 bits: a packed weight of zeros; what a choice among its forward products times on
   memory for both sides: 0 the dense one, 1 the 2:4 one, packing included. */
s24_status s24i_gpu_fp8_weight(s24_device_weight **weight, s24i_machine *m, const s24i_layer *l);
s24_status s24i_gpu_fp8_trial(s24i_machine *m, const s24i_gpu_pair *pair, const s24_dense *y,
                              const s24_dense *x, int sparse);
/* Where what makes a layer's inputs, or gradients of its outputs, leaves their largest magnitude;
   NULL where nobody asks for it. */
float *s24i_gpu_fp8_inputs(s24i_machine *m, const s24i_layer *layer, const void *x);
float *s24i_gpu_fp8_gradients(s24i_machine *m, const s24i_layer *layer, const void *dy);
s24_status s24i_gpu_fix(s24i_machine *m, const s24i_fixed *fixed, int64_t *plan);
void s24i_gpu_unfix(s24i_machine *m);
void s24i_gpu_unfold(s24i_machine *m, void *rows, const s24i_train_batch *step, int64_t image,
                     int64_t patch, int64_t channels);
void s24i_gpu_embed(s24i_machine *m, void *s, const s24i_embed *embed,
                    const s24i_train_batch *step);
void s24i_gpu_embed_back(s24i_machine *m, void *ds, const s24i_embed *embed,
                         const s24i_train_batch *step);
void s24i_gpu_add_norm(s24i_machine *m, const s24i_add_norm *job);
void s24i_gpu_norm_back(s24i_machine *m, const s24i_norm_back *job);
void s24i_gpu_dropout(s24i_machine *m, void *y, const void *x, const s24i_dropout *drop,
                      int64_t rows, int64_t width);
void s24i_gpu_distances(s24i_machine *m, float *to, const s24i_heads *heads,
                        const struct s24i_distance_rule *rule);
void s24i_gpu_rotate(s24i_machine *m, void *qkv, const s24i_heads *heads, int back);
void s24i_gpu_attention(s24i_machine *m, void *context, const void *qkv, const s24i_heads *heads);
void s24i_gpu_attention_back(s24i_machine *m, void *dqkv, const void *dcontext, const void *qkv,
                             const s24i_heads *heads);
void s24i_gpu_activate(s24i_machine *m, const s24i_activate *job);
void s24i_gpu_activate_back(s24i_machine *m, void *du, const void *dh, const s24i_activate *job);
void s24i_gpu_cross_entropy(s24i_machine *m, const s24i_cross_entropy *job);
void s24i_gpu_answer_loss(s24i_machine *m, const s24i_answer_loss *job,
                          const s24i_train_batch *step);
void s24i_gpu_squared_error(s24i_machine *m, double *loss, void *dx, const void *x, const void *y,
                            double weight, const s24i_train_batch *step, int64_t width);
void s24i_gpu_pool(s24i_machine *m, const s24i_pool *job, const s24i_train_batch *step);
void s24i_gpu_cosine_loss(s24i_machine *m, double *loss, void *dx, const s24i_pool *job,
                          const float *teacher, double weight, const s24i_train_batch *step);
void s24i_gpu_squares(s24i_machine *m, double *sum, const float *g, const uint16_t *mask,
                      int64_t n);
void s24i_gpu_update(s24i_machine *m, const s24i_update *job);
const void *s24i_gpu_sparse_inputs(s24i_machine *m, const void *x, const s24i_layer *layer,
                                   int64_t rows, int back);
void s24i_gpu_sparse_inputs_dx(s24i_machine *m, void *dx, const void *x, const s24i_layer *layer,
                               int64_t rows);
void s24i_gpu_sparse_dw(s24i_machine *m, const void *dy, const void *x, const s24i_layer *layer,
                        int64_t rows, int with_bias);
void s24i_gpu_variance(s24i_machine *m, s24i_variance *out, const s24i_update *job,
                       const uint16_t *bits);
void s24i_gpu_extra_back(s24i_machine *m, const s24i_extra_place *job);
void s24i_gpu_choose(s24i_machine *m, s24_device_train_mask_args *jobs, int64_t count, int runs);
void s24i_gpu_lap(s24i_machine *m, int begins);
double s24i_gpu_laps(s24i_machine *m);
void s24i_gpu_marks_free(s24i_machine *m);

#endif
