// SPDX-License-Identifier: Apache-2.0
/*
 * Models and sessions on a device: the same model, loaded the same way, its weights there in f16 or
 * bf16 (and once more in 8 bits, where they were asked for), and a forward pass of kernels in a
 * stream. Tokens are never padded.
 */
#ifndef S24_RUN_GPU_GPU_MODEL_H
#define S24_RUN_GPU_GPU_MODEL_H

#include "model/model.h"

enum { S24I_GPU_ELEMENT = 2 }; /* bytes of a number of f16 or bf16 */

/* Refuses what a device has no kernels for: UNSUPPORTED. */
s24_status s24i_gpu_check(s24_ctx *ctx, const s24_model_opts *opts,
                          const s24i_architecture *architecture, const s24i_shape *shape);
/* The model's floats to its device, when all of them are there. */
s24_status s24i_gpu_upload(s24_model *model, s24_ctx *ctx);
void s24i_gpu_free(s24_model *model);
/* What its layers make of rows of distances, into its floats there (gpu_apart.c). */
s24_status s24i_gpu_apart_fill(s24_model *model, s24_ctx *ctx);

/* Where one of the model's floats is on the device, in model->dtype; NULL stays NULL. */
static inline const void *s24i_on_device(const s24_model *model, const float *floats)
{
    const char *first = model->device_floats;
    return floats ? first + S24I_GPU_ELEMENT * (floats - model->floats) : NULL;
}

typedef struct s24i_gpu_session s24i_gpu_session;

s24_status s24i_gpu_session_create(s24i_gpu_session **out, s24_ctx *ctx, const s24_model *model,
                                   int64_t max_tokens);
void s24i_gpu_session_destroy(s24i_gpu_session *gpu);
/* A pass of a checked batch; what else it has is as in s24_session. */
typedef struct s24i_gpu_pass {
    const s24_batch *batch;
    const s24_outputs *outputs;
    int64_t unpooled;
    const struct s24_cache *cache;
    struct s24i_pick *picks;
    int pinned; /* what it gives goes to pinned memory: copied as the pass ends */
} s24i_gpu_pass;

/* Is it one more token of each text, as a pass before was that has its graph? */
int s24i_gpu_is_known_step(const s24i_gpu_session *gpu, const s24i_gpu_pass *pass);
/* Enqueues it; the batch may change afterwards. */
s24_status s24i_gpu_submit(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_pass *pass);
/* Enqueues it between what is in `stream` and what comes there later, and waits for nothing once
   its shape was met, if its texts have the lengths of the pass before. Inputs and outputs are in
   device memory, but offsets; states [tokens, width] of model->dtype may be NULL. */
s24_status s24i_gpu_pass_in(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_pass *pass,
                            void *states, void *stream);
/* Waits for the submitted pass and writes its outputs. Without one it does nothing. */
s24_status s24i_gpu_finish(s24i_gpu_session *gpu, s24_ctx *ctx);

/* How many linear layers a pass of that many tokens runs sparse, in that format; 0: in any, or
   2:4. */
int64_t s24i_gpu_sparse_layers(const s24i_gpu_session *gpu, int64_t tokens, s24_format format);
/* And how many of them in 8 bits. */
int64_t s24i_gpu_eight_layers(const s24i_gpu_session *gpu, int64_t tokens);
/* Bytes of the weights that it reads, the head's among them. */
int64_t s24i_gpu_read_bytes(const s24i_gpu_session *gpu, int64_t tokens);

#endif
