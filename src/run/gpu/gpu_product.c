// SPDX-License-Identifier: Apache-2.0
/*
 * One of a block's products on a device: which buffers its step reads and writes, and the kernel
 * that runs it as the session's choice says, 2:4 in 16 or 8 bits or dense. Passes and the planner
 * come here alike.
 *
 * What a product adds to the sums waits in qkv, whose contents are done with, until the next norm
 * adds it: a product would have to wait for a residual, while a norm streams it.
 */
#include "run/gpu/gpu_state.h"

const s24i_block_step *s24i_gpu_step_of(const s24i_gpu_session *gpu, int index)
{
    return s24i_steps_product(&gpu->steps, s24i_product_slot(index));
}

int s24i_gpu_is_of(const s24i_gpu_session *gpu, int64_t block, s24i_slot slot, int index)
{
    return s24i_product_slot(index) == slot &&
           s24i_block_product(&gpu->model->blocks[block], index)->n > 0;
}

static void *buffer_of(const s24i_gpu_session *gpu, s24i_step_place place)
{
    void *const buffers[] = {[S24I_AT_SUMS] = gpu->hidden,
                             [S24I_AT_NORMED] = gpu->context,
                             [S24I_AT_QKV] = gpu->qkv,
                             [S24I_AT_CONTEXT] = gpu->context,
                             [S24I_AT_OUTER] = gpu->outer};
    return buffers[place];
}

/* The columns of what a step's products write side by side, and where those of one of them begin:
   query, key, value, and the gate before what it is multiplied with. */
static int64_t columns_of(int64_t *first, const s24i_gpu_session *gpu, int64_t block, int index)
{
    const s24i_slot slot = s24i_product_slot(index);
    int64_t columns = *first = 0;
    for (int i = 0; i < S24I_PRODUCTS; i++) {
        if (!s24i_gpu_is_of(gpu, block, slot, i)) continue;
        const int64_t n = s24i_block_product(&gpu->model->blocks[block], i)->n;
        if (slot == S24I_QUERY ? i < index : i > index) *first += n;
        columns += n;
    }
    return columns;
}

s24i_gpu_operands s24i_gpu_operands_of(const s24i_gpu_session *gpu, int64_t tokens, int64_t block,
                                       int index)
{
    const s24i_linear *l = s24i_block_product(&gpu->model->blocks[block], index);
    const s24i_block_step *step = s24i_gpu_step_of(gpu, index);
    const int reads_gate = step->from == S24I_AT_OUTER && gpu->gated;
    void *from = reads_gate ? gpu->gated : buffer_of(gpu, step->from);
    char *to = step->adds ? gpu->qkv : buffer_of(gpu, step->to);
    int64_t first;
    const int64_t columns = columns_of(&first, gpu, block, index);
    s24i_gpu_operands o = {.y = s24i_gpu_view(gpu, to + S24I_GPU_ELEMENT * first, tokens, l->n),
                           .x = s24i_gpu_view(gpu, from, tokens, l->k)};
    o.y.ld = columns;
    if (s24i_gpu_folds(gpu, tokens)) s24i_gpu_fold_operands(&o, gpu, block, index);
    return o;
}

s24_status s24i_gpu_run_dense(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_linear *l,
                              const s24i_gpu_operands *o, void *weight, double *seconds)
{
    const s24_dense w = s24i_gpu_view(gpu, weight, l->n, l->k);
    const s24_device_dense_args args = {.size = sizeof args,
                                        .y = &o->y,
                                        .x = &o->x,
                                        .w = &w,
                                        .bias = s24i_on_device(gpu->model, l->bias),
                                        .activation = l->activation,
                                        .work = gpu->dense_work,
                                        .work_bytes = S24I_GPU_DENSE_WORK,
                                        .stream = gpu->stream};
    if (seconds) return s24_device_dense_search(seconds, ctx, gpu->device, &args);
    return s24_device_dense(ctx, gpu->device, &args);
}

s24_status s24i_gpu_run_sparse(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_linear *l,
                               const s24i_gpu_operands *o, const char *tile, int eight)
{
    if (eight) return s24i_gpu_eight_product(gpu, ctx, l, &o->y, tile);
    const s24_device_linear_args args = {
        .size = sizeof args,
        .y = &o->y,
        .x = &o->x,
        .bias = o->norm.x_moments ? NULL : s24i_on_device(gpu->model, l->bias),
        .activation = l->activation,
        .residual = o->residual.data ? &o->residual : NULL,
        .work = gpu->work,
        .work_bytes = gpu->work_bytes,
        .tile = tile,
        .stream = gpu->stream,
        .norm = o->norm.size ? &o->norm : NULL};
    return s24_device_linear(ctx, gpu->device, l->packed, &args);
}

int s24i_gpu_quantises(const s24i_gpu_session *gpu, int index)
{
    const s24i_step_place from = s24i_gpu_step_of(gpu, index)->from;
    const int normed = from == S24I_AT_SUMS || from == S24I_AT_NORMED;
    return !normed || gpu->model->architecture->rms; /* whose kernel writes 16 bits alone */
}

void *s24i_gpu_dense_copy(const s24i_gpu_session *gpu, int index, int64_t block)
{
    const s24i_linear *first = s24i_block_product(&gpu->model->blocks[0], index);
    const s24i_linear *l = s24i_block_product(&gpu->model->blocks[block], index);
    if (!gpu->dense_copies[index] || l->n != first->n || l->k != first->k) return NULL;
    return (char *)gpu->dense_copies[index] + S24I_GPU_ELEMENT * block * l->n * l->k;
}

s24_status s24i_gpu_product(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                            int64_t block, int index)
{
    const s24i_linear *l = s24i_block_product(&gpu->model->blocks[block], index);
    const s24i_gpu_choice *choice = &gpu->choices[s24i_gpu_octave(tokens)][index];
    const s24i_gpu_operands o = s24i_gpu_operands_of(gpu, tokens, block, index);
    if (!l->packed) return s24i_gpu_run_dense(gpu, ctx, l, &o, l->dense, NULL);
    void *copy = choice->dense ? s24i_gpu_dense_copy(gpu, index, block) : NULL;
    if (copy) return s24i_gpu_run_dense(gpu, ctx, l, &o, copy, NULL);
    const int eight = s24i_gpu_runs_eight(gpu, tokens, block, index);
    if (eight && s24i_gpu_quantises(gpu, index)) TRY(s24i_gpu_quantise(gpu, ctx, &o.x));
    /* The first block's input is no sum: it takes a tile without norms. */
    const char *tile = s24i_gpu_folds(gpu, tokens) && !o.norm.size ? NULL : choice->tile;
    return s24i_gpu_run_sparse(gpu, ctx, l, &o, tile, eight);
}

/* ---- how many linear layers run so ----------------------------------------------------------- */

static int runs_sparse(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index)
{
    const int dense = gpu->choices[s24i_gpu_octave(tokens)][index].dense;
    return s24i_block_product(&gpu->model->blocks[block], index)->packed &&
           !(dense && s24i_gpu_dense_copy(gpu, index, block));
}

static int64_t count_layers(const s24i_gpu_session *gpu, int64_t tokens,
                            int (*runs)(const s24i_gpu_session *gpu, int64_t tokens, int64_t block,
                                        int index))
{
    int64_t count = 0;
    for (int64_t b = 0; b < gpu->model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++)
            if (runs(gpu, tokens, b, i)) count += s24i_product_layers(gpu->model, b, i);
    return count;
}

int64_t s24i_gpu_sparse_layers(const s24i_gpu_session *gpu, int64_t tokens)
{
    return count_layers(gpu, tokens, runs_sparse);
}

int64_t s24i_gpu_eight_layers(const s24i_gpu_session *gpu, int64_t tokens)
{
    return count_layers(gpu, tokens, s24i_gpu_runs_eight);
}
