// SPDX-License-Identifier: Apache-2.0
/*
 * One of a block's products on a device: which buffers its step reads and writes, and the kernel
 * that runs it as the session's choice says, 2:4 in 16 or 8 bits or dense. Passes and the planner
 * come here alike.
 *
 * What a product adds to the sums waits in qkv, whose contents are done with, until the next norm
 * adds it, at once or multiplied before: a product would have to wait for a residual, while a norm
 * streams it. Dense products of few tokens add it themselves (gpu_join.c).
 */
#include "run/gpu/gpu_state.h"

#include <string.h>

int s24i_gpu_is_of(const s24i_gpu_session *gpu, int64_t block, s24i_slot slot, int index)
{
    return s24i_product_slot(index) == slot &&
           s24i_block_product(&gpu->model->blocks[block], index)->n > 0;
}

static void *buffer_of(const s24i_gpu_session *gpu, s24i_step_place place)
{
    void *const buffers[] = {
        [S24I_AT_SUMS] = gpu->hidden, [S24I_AT_NORMED] = gpu->normed ? gpu->normed : gpu->context,
        [S24I_AT_QKV] = gpu->qkv,     [S24I_AT_CONTEXT] = gpu->context,
        [S24I_AT_OUTER] = gpu->outer, [S24I_AT_VALUES] = gpu->context};
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
    if (gpu->latents && index <= S24I_PRODUCT_LATENT)
        return s24i_gpu_latent_operands(gpu, tokens, block, index);
    const s24i_block_step *step = s24i_gpu_step_of(gpu, index);
    const int reads_gate = step->from == S24I_AT_OUTER && gpu->gated;
    void *from = reads_gate ? gpu->gated : buffer_of(gpu, step->from);
    const int waits = step->adds || step->to == S24I_AT_NORMED; /* for the norm that adds it */
    char *to = waits ? gpu->qkv : buffer_of(gpu, step->to);
    int64_t first;
    const int64_t columns = columns_of(&first, gpu, block, index);
    s24i_gpu_operands o = {.y = s24i_gpu_view(gpu, to + S24I_GPU_ELEMENT * first, tokens, l->n),
                           .x = s24i_gpu_view(gpu, from, tokens, l->k)};
    o.y.ld = columns;
    if (gpu->eight) s24i_gpu_eight_operands(&o, gpu, tokens, block, index);
    if (s24i_gpu_folds(gpu, tokens)) s24i_gpu_fold_operands(&o, gpu, block, index);
    if (s24i_gpu_joins(gpu, tokens)) s24i_gpu_join_operands(&o, gpu, block, index);
    return o;
}

s24i_product_job s24i_gpu_product_of(const s24i_gpu_session *gpu, const s24i_linear *l,
                                     const s24i_gpu_operands *o, s24i_way way)
{
    s24i_product_job p = {.y = &o->y,
                          .x = &o->x,
                          .bias = s24i_on_device(gpu->model, l->bias),
                          .activation = s24i_gpu_activates_aside(&gpu->model->shape)
                                            ? S24_ACTIVATION_NONE
                                            : l->activation,
                          .work = gpu->work,
                          .work_bytes = gpu->work_bytes,
                          .stream = gpu->stream};
    switch (way) {
    case S24I_WAY_SPARSE:
        if (o->norm.x_moments) p.bias = NULL; /* it is in the norm's terms */
        if (o->norm.size) p.norm = &o->norm;
        if (o->residual.data) p.residual = &o->residual;
        break;
    case S24I_WAY_EIGHT:
        p.x = &o->eight;
        if (!l->sparse) {
            p.work = gpu->dense_work;
            p.work_bytes = S24I_GPU_DENSE_WORK;
        }
        p.alpha = o->eight_scale;
        if (!(p.alpha > 0)) p.x_scale = gpu->eight_scale;
        if (!o->eight_y.data) break;
        p.y = &o->eight_y;
        p.y_scale = o->eight_y_scale;
        p.bias = o->eight_bias;
        break;
    default:
        p.work = gpu->dense_work;
        p.work_bytes = S24I_GPU_DENSE_WORK;
        p.gamma = o->gamma;
        p.eps = o->eps;
        p.gated = o->gated;
        p.squared = o->gated && gpu->model->shape.squared;
        if (o->gated) p.activation = o->gate;
        if (o->residual.data) p.residual = &o->residual;
    }
    return p;
}

int s24i_gpu_quantises(const s24i_gpu_session *gpu, int index)
{
    const s24i_step_place from = s24i_gpu_step_of(gpu, index)->from;
    const s24i_architecture *a = gpu->model->architecture;
    if (from == S24I_AT_SUMS) return a->after_attention_norm && !a->pre_norm; /* none before it */
    return from != S24I_AT_NORMED;
}

s24_status s24i_gpu_product(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                            int64_t block, int index)
{
    const s24i_linear *l = s24i_block_product(&gpu->model->blocks[block], index);
    const s24i_way way = s24i_gpu_way(gpu, tokens, block, index);
    const s24i_gpu_operands o = s24i_gpu_operands_of(gpu, tokens, block, index);
    s24i_product_job p = s24i_gpu_product_of(gpu, l, &o, way);
    if (way == S24I_WAY_INTEGERS &&
        gpu->choices[s24i_gpu_octave(tokens)][index].way == S24I_WAY_DENSE)
        p.widened = gpu->widened;
    if (way == S24I_WAY_EIGHT && !(o.eight_scale > 0) && s24i_gpu_quantises(gpu, index))
        TRY(s24i_gpu_quantise(gpu, ctx, &o.x));
    /* The first block's input is no sum: it takes a tile without norms. */
    if (!s24i_gpu_folds(gpu, tokens) || o.norm.size)
        p.tile = gpu->choices[s24i_gpu_octave(tokens)][index].tile;
    return s24i_weight_run(s24i_gpu_weight(gpu, block, index, way), ctx, &p);
}

/* ---- what norms leave to products ------------------------------------------------------------ */

s24_device_norm_args s24i_gpu_norm_args(const s24i_gpu_session *gpu, const s24i_layer_norm *norm)
{
    return (s24_device_norm_args){.size = sizeof(s24_device_norm_args),
                                  .gamma = s24i_on_device(gpu->model, norm->gamma),
                                  .beta = s24i_on_device(gpu->model, norm->beta),
                                  .eps = norm->eps,
                                  .narrow_scale = gpu->eight_scale,
                                  .stream = gpu->stream};
}

int s24i_gpu_reads_eight(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int slot)
{
    if (slot == S24I_PRODUCTS) return 0;
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (s24i_gpu_is_of(gpu, block, (s24i_slot)slot, i) &&
            s24i_gpu_way(gpu, tokens, block, i) == S24I_WAY_EIGHT)
            return 1;
    return 0;
}

void s24i_gpu_narrow_norm(s24_device_norm_args *args, const s24i_gpu_session *gpu, int64_t tokens,
                          int64_t block, int slot, const s24_dense *eight)
{
    if (!s24i_gpu_reads_eight(gpu, tokens, block, slot)) return;
    args->narrow = eight;
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (s24i_gpu_is_of(gpu, block, (s24i_slot)slot, i) && !(args->narrow_fixed > 0))
            args->narrow_fixed = s24i_gpu_fixed_scale(gpu, tokens, block, i);
}

/* ---- how many linear layers run so ----------------------------------------------------------- */

/* Of sparse layers of a format, or with format 0 of all sparse ones, or with sparse 0 of all. */
static int64_t count_layers(const s24i_gpu_session *gpu, int64_t tokens, unsigned ways, int sparse,
                            s24_format format)
{
    int64_t count = 0;
    for (int64_t b = 0; b < gpu->model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&gpu->model->blocks[b], i);
            const s24i_way way = l->n ? s24i_gpu_way(gpu, tokens, b, i) : S24I_WAY_DENSE;
            if (l->n && (!sparse || s24i_is_sparse(l, format)) && ways >> way & 1)
                count += s24i_product_layers(gpu->model, b, i);
        }
    if (format) return count; /* of experts there are none on a device */
    /* Experts run as they are. */
    for (int64_t b = 0; b < gpu->model->shape.layers && ways >> S24I_WAY_SPARSE & 1; b++)
        for (int i = S24I_PRODUCTS; i < s24i_block_products(&gpu->model->blocks[b]); i++)
            count += s24i_block_product(&gpu->model->blocks[b], i)->weight[S24I_WAY_SPARSE] != NULL;
    return count;
}

int64_t s24i_gpu_sparse_layers(const s24i_gpu_session *gpu, int64_t tokens, s24_format format)
{
    return count_layers(gpu, tokens,
                        1u << S24I_WAY_SPARSE | 1u << S24I_WAY_EIGHT | 1u << S24I_WAY_INTEGERS, 1,
                        format);
}

int64_t s24i_gpu_eight_layers(const s24i_gpu_session *gpu, int64_t tokens)
{
    return count_layers(gpu, tokens, 1u << S24I_WAY_EIGHT, 0, 0);
}

int64_t s24i_gpu_read_bytes(const s24i_gpu_session *gpu, int64_t tokens)
{
    int64_t bytes = s24i_linear_bytes(&gpu->model->lm_head);
    for (int64_t b = 0; b < gpu->model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++)
            if (s24i_block_product(&gpu->model->blocks[b], i)->n)
                bytes +=
                    s24i_weight_bytes(s24i_gpu_weight(gpu, b, i, s24i_gpu_way(gpu, tokens, b, i)));
    return bytes;
}
