// SPDX-License-Identifier: Apache-2.0
/*
 * A rule over steps, for a session on one device whose blocks have their norms after the sums and
 * all products 2:4: a norm that a product reads is folded into the products around it. The sums h
 * that the norms are of stay, times gamma: that of the attention in qkv, whose contents are done
 * with, that of the output in hidden. Each product that follows has terms of its own, w·gamma and
 * bias + w·beta in f32, made once by products of the weight with gamma and beta.
 */
#include "run/gpu/gpu_state.h"

static int64_t block_terms(const s24i_shape *s)
{
    return 2 * (3 * s->width + s->intermediate);
}

static float *terms_of(const s24i_gpu_session *gpu, int64_t block, int index)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t n = s24i_block_product(&gpu->model->blocks[block], index)->n;
    return (float *)gpu->terms + block * block_terms(s) +
           (index == S24I_PRODUCT_INTERMEDIATE ? 6 * s->width : 2 * index * n);
}

static int can_fold(const s24_model *model)
{
    const s24i_shape *s = &model->shape;
    int can = !model->ranks.comm && !model->architecture->pre_norm && !model->narrow && !s->image &&
              !s24i_adds_aside(model->architecture) && s->heads * s->head_width == s->width &&
              !s->squared && !s->gated && s->width % 8 == 0 &&
              (s->activation == S24_ACTIVATION_GELU || s->activation == S24_ACTIVATION_NONE);
    for (int64_t b = 0; b < s->layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&model->blocks[b], i);
            const s24i_weight *sparse = l->weight[S24I_WAY_SPARSE];
            can = can && !l->lift && (!l->n || (sparse && !s24i_weight_is_blocks(sparse)));
        }
    return can;
}

/* Of a product that reads the norm: w·gamma, and bias + w·beta. */
static s24_status make_terms(const s24i_gpu_session *gpu, s24_ctx *ctx, float *terms,
                             const s24i_linear *l, const s24i_layer_norm *norm)
{
    const s24_dtype dtype = gpu->model->dtype;
    const float *floats[2] = {norm->gamma, norm->beta};
    for (int i = 0; i < 2; i++) {
        const s24_dense x = {(void *)(uintptr_t)s24i_on_device(gpu->model, floats[i]), dtype, 1,
                             l->k, 0};
        const s24_dense y = {terms + i * l->n, S24_F32, 1, l->n, 0};
        const int biased = i && l->bias;
        const s24i_product_job p = {
            .y = &y, .x = &x, .residual = biased ? &y : NULL, .stream = gpu->stream};
        if (biased)
            TRY(s24_device_copy(ctx, gpu->device, y.data, l->bias, (size_t)l->n * sizeof(float),
                                gpu->stream));
        TRY(s24i_weight_run(l->weight[S24I_WAY_SPARSE], ctx, &p));
    }
    return S24_OK;
}

s24_status s24i_gpu_fold_create(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24_model *model = gpu->model;
    const s24i_shape *s = &model->shape;
    if (!can_fold(model)) return S24_OK;
    const size_t moments = (size_t)((s->width + 63) / 64 * gpu->max_tokens) * 2 * sizeof(float);
    for (int i = 0; i < 2; i++)
        TRY(s24_device_alloc(&gpu->moments[i], ctx, gpu->device, moments, gpu->stream));
    TRY(s24_device_alloc(&gpu->terms, ctx, gpu->device,
                         (size_t)(s->layers * block_terms(s)) * sizeof(float), gpu->stream));
    for (int64_t b = 0; b < s->layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&model->blocks[b], i);
            const s24i_layer_norm *norm =
                i == S24I_PRODUCT_INTERMEDIATE    ? &model->blocks[b].attention_norm
                : b && i < S24I_PRODUCT_ATTENTION ? &model->blocks[b - 1].output_norm
                                                  : NULL;
            if (!norm || !l->n) continue;
            TRY(make_terms(gpu, ctx, terms_of(gpu, b, i), l, norm));
        }
    return S24_OK;
}

/* What is added is a norm of the residual. */
static void add_norm(s24_device_linear_norm *to, const s24i_gpu_session *gpu, const void *moments,
                     const s24i_layer_norm *norm)
{
    to->eps = norm->eps;
    to->residual_moments = moments;
    to->residual_gamma = s24i_on_device(gpu->model, norm->gamma);
    to->residual_beta = s24i_on_device(gpu->model, norm->beta);
}

void s24i_gpu_fold_operands(s24i_gpu_operands *o, const s24i_gpu_session *gpu, int64_t block,
                            int index)
{
    const s24_model *model = gpu->model;
    const s24i_block *b = &model->blocks[block];
    const s24i_layer_norm *before = block ? &model->blocks[block - 1].output_norm : NULL;
    s24_device_linear_norm *norm = &o->norm;
    if (index < S24I_PRODUCT_ATTENTION && !before) return;
    norm->size = sizeof *norm;
    switch (index) {
    case S24I_PRODUCT_ATTENTION:
        o->residual = s24i_gpu_view(gpu, gpu->hidden, o->y.rows, o->y.cols);
        norm->y_moments = gpu->moments[0];
        norm->y_gamma = s24i_on_device(model, b->attention_norm.gamma);
        if (before) add_norm(norm, gpu, gpu->moments[1], before);
        return;
    case S24I_PRODUCT_INTERMEDIATE:
        o->x.data = gpu->qkv;
        norm->x_moments = gpu->moments[0];
        norm->eps = b->attention_norm.eps;
        break;
    case S24I_PRODUCT_OUTPUT:
        o->y.data = gpu->hidden;
        o->residual = s24i_gpu_view(gpu, gpu->qkv, o->y.rows, o->y.cols);
        norm->y_moments = gpu->moments[1];
        /* The last norm of all is no product's to read: it runs by itself. */
        if (block + 1 < model->shape.layers)
            norm->y_gamma = s24i_on_device(model, b->output_norm.gamma);
        add_norm(norm, gpu, gpu->moments[0], &b->attention_norm);
        return;
    default:
        norm->x_moments = gpu->moments[1];
        norm->eps = before->eps;
    }
    norm->x_terms = terms_of(gpu, block, index);
}
