// SPDX-License-Identifier: Apache-2.0
/*
 * Products in 8 bits on a device: operands are made just before, with the scale that each matrix
 * has now. What a product sums over lies within a row of both operands, so that gradients and
 * weights are also made transposed. Activations leave their largest magnitude as they are made, of
 * other matrices it is found first.
 */
#include "train/gpu.h"

/* Where the rule's scales lie: of gradients, then of each layer's inputs and weights, which are the
   same in the pass backward as they were forward. */
enum { GRADIENTS, INPUTS, WEIGHTS, NUMBERS = 4 };

static s24_dense narrow_view(const void *data, s24_dtype dtype, int64_t rows, int64_t cols)
{
    return (s24_dense){(void *)(uintptr_t)data, dtype, rows, cols, cols};
}

static float *scale_of(const s24i_layer *l, int which)
{
    return l->rule->scales + NUMBERS * (which == GRADIENTS ? 0 : 2 * l->site + which);
}

static float *leaves(s24i_machine *m, const s24i_layer *l, const void *data, int which)
{
    m->gpu->measured = NULL;
    if (!l || !l->rule || !l->rule->fp8) return NULL;
    m->gpu->measured = data;
    m->gpu->measure = scale_of(l, which);
    return scale_of(l, which);
}

float *s24i_gpu_fp8_inputs(s24i_machine *m, const s24i_layer *l, const void *x)
{
    return leaves(m, l, x, INPUTS);
}

float *s24i_gpu_fp8_gradients(s24i_machine *m, const s24i_layer *l, const void *dy)
{
    return leaves(m, l, dy, GRADIENTS);
}

/* 1 where it is what was measured last, and there; what is asked for next is not. */
static int is_measured(s24i_machine *m, const void *data, const float *scale)
{
    const int is = m->gpu->measured == data && m->gpu->measure == scale;
    m->gpu->measured = NULL;
    return is;
}

/* Tokens in whole 16, as the transposes have them. */
static int64_t in_whole(int64_t tokens)
{
    return (tokens + 15) / 16 * 16;
}

/* Forward products of weights that are 2:4: the very kernels that run models. */
static s24_status multiply_sparse(s24i_machine *m, const s24_device_weight *weight,
                                  const s24_dense *y, const s24_dense *x, const void *bias,
                                  const s24i_layer_rule *r)
{
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = y,
                                         .x = x,
                                         .bias = bias,
                                         .x_scale = r->each,
                                         .w_scale = r->each + in_whole(x->rows),
                                         .work = m->gpu->sparse_work,
                                         .work_bytes = m->gpu->sparse_work_bytes};
    return s24_device_linear(m->ctx, m->gpu->device, weight, &args);
}

static s24_status pack(const s24i_machine *m, s24_device_weight *weight, const s24i_layer *l)
{
    const s24_dense src = narrow_view(l->rule->narrow[S24I_NARROW_WEIGHTS], S24_E4M3, l->n, l->k);
    return s24_device_weight_update(m->ctx, weight, NULL, &src, NULL, NULL);
}

int s24i_gpu_fp8_may_be(const s24i_layer *l)
{
    return l->rule && l->rule->narrow[S24I_NARROW_WEIGHTS];
}

s24_status s24i_gpu_fp8_weight(s24_device_weight **weight, s24i_machine *m, const s24i_layer *l)
{
    const s24_dense src = narrow_view(l->rule->narrow[S24I_NARROW_WEIGHTS], S24_E4M3, l->n, l->k);
    TRY(s24_device_clear(m->ctx, m->gpu->device, src.data, (size_t)(l->n * l->k), NULL));
    return s24_device_weight_from_dense(weight, m->ctx, m->gpu->device, &src, NULL, NULL);
}

s24_status s24i_gpu_fp8_trial(s24i_machine *m, const s24i_gpu_pair *pair, const s24_dense *y,
                              const s24_dense *x, int sparse)
{
    const s24i_layer *l = pair->layer;
    const s24_dense a = narrow_view(x->data, S24_E4M3, x->rows, l->k);
    const s24_dense b = narrow_view(l->rule->narrow[S24I_NARROW_WEIGHTS], S24_E4M3, l->n, l->k);
    const s24_device_train_product_args dense = {.size = sizeof dense,
                                                 .y = y,
                                                 .a = &a,
                                                 .b = &b,
                                                 .transposed_b = 1,
                                                 .work = m->gpu->work,
                                                 .work_bytes = S24_DEVICE_TRAIN_WORK,
                                                 .scale_a = scale_of(l, INPUTS),
                                                 .scale_b = scale_of(l, WEIGHTS)};
    if (!sparse) return s24_device_train_product(m->ctx, m->gpu->device, &dense);
    TRY(pack(m, pair->weight, l));
    return multiply_sparse(m, pair->weight, y, &a, NULL, l->rule);
}

static void multiply(s24i_machine *m, const s24_device_train_product_args *wanted)
{
    s24_device_train_product_args args = *wanted;
    args.size = sizeof args;
    args.transposed_b = 1;
    args.work = m->gpu->work;
    args.work_bytes = S24_DEVICE_TRAIN_WORK;
    if (m->status == S24_OK)
        s24i_gpu_did(m, s24_device_train_product(m->ctx, m->gpu->device, &args));
}

int s24i_gpu_fp8_linear(s24i_machine *m, const s24_dense *y, const s24_dense *x,
                        const s24i_layer *l, const void *bias)
{
    const s24i_layer_rule *r = l->rule;
    if (!r || !r->fp8) return 0;
    const s24i_gpu_pair *pair = l->device;
    const int sparse = pair && pair->fp8 && pair->forward;
    float *scale_x = scale_of(l, INPUTS), *scale_w = scale_of(l, WEIGHTS);
    const s24_dense a = narrow_view(r->narrow[S24I_NARROW_INPUTS], S24_E4M3, x->rows, l->k);
    const s24_dense b = narrow_view(r->narrow[S24I_NARROW_WEIGHTS], S24_E4M3, l->n, l->k);
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = l->n, .cols = l->k,
            .ld = l->k, .from = s24i_gpu_narrow(m, l->w), .to = b.data, .scale = scale_w,
            .each = sparse ? r->each + in_whole(x->rows) : NULL);
    s24i_gpu_lap(m, sparse);
    if (sparse && m->status == S24_OK) s24i_gpu_did(m, pack(m, pair->weight, l));
    s24i_gpu_lap(m, 0);
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = x->rows, .cols = l->k,
            .ld = x->ld, .from = x->data, .to = a.data, .known = is_measured(m, x->data, scale_x),
            .scale = scale_x, .each = sparse ? r->each : NULL);
    if (sparse && m->status == S24_OK)
        s24i_gpu_did(m, multiply_sparse(m, pair->weight, y, &a, bias, r));
    if (sparse) return 1;
    multiply(m,
             &(s24_device_train_product_args){
                 .y = y, .a = &a, .b = &b, .bias = bias, .scale_a = scale_x, .scale_b = scale_w});
    return 1;
}

/* dW before has left the same gradients, where it took all of them. */
int s24i_gpu_fp8_dx(s24i_machine *m, const s24_dense *dx, const s24_dense *dy, const s24i_layer *l)
{
    const s24i_layer_rule *r = l->rule;
    if (!r || !r->fp8) return 0;
    float *scale_dy = scale_of(l, GRADIENTS), *scale_w = scale_of(l, WEIGHTS);
    const s24_dense a = narrow_view(r->narrow[S24I_NARROW_GRADIENTS], S24_E5M2, dy->rows, l->n);
    const s24_dense b = narrow_view(r->narrow[S24I_NARROW_WEIGHTS], S24_E4M3, l->k, l->n);
    if (m->gpu->narrowed != dy->data)
        GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E5M2, .rows = dy->rows,
                .cols = l->n, .ld = dy->ld, .from = dy->data, .to = a.data,
                .known = is_measured(m, dy->data, scale_dy), .scale = scale_dy);
    m->gpu->narrowed = NULL;
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = l->n, .cols = l->k,
            .ld = l->k, .from = s24i_gpu_narrow(m, l->w), .turned = b.data, .known = 1,
            .scale = scale_w);
    multiply(m, &(s24_device_train_product_args){
                    .y = dx, .a = &a, .b = &b, .scale_a = scale_dy, .scale_b = scale_w});
    return 1;
}

int s24i_gpu_fp8_dw(s24i_machine *m, const s24_dense *dy, const s24_dense *x, const s24i_layer *l)
{
    const s24i_layer_rule *r = l->rule;
    if (!r || !r->fp8) return 0;
    const int64_t tokens = in_whole(dy->rows);
    float *scale_x = scale_of(l, INPUTS), *scale_dy = scale_of(l, GRADIENTS);
    const s24_dense y = {l->dw, S24_F32, l->n, l->k, l->k};
    const s24_dense a = narrow_view(r->narrow[S24I_NARROW_TURNED], S24_E5M2, l->n, tokens);
    const s24_dense b = narrow_view(r->narrow[S24I_NARROW_INPUTS], S24_E4M3, l->k, tokens);
    const int left = dy->data == r->dy; /* MVUE24's, which dX does not read */
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E5M2, .rows = dy->rows, .cols = l->n,
            .ld = dy->ld, .from = dy->data, .to = left ? NULL : r->narrow[S24I_NARROW_GRADIENTS],
            .turned = a.data, .known = is_measured(m, dy->data, scale_dy), .scale = scale_dy);
    m->gpu->narrowed = left ? NULL : dy->data;
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = x->rows, .cols = l->k,
            .ld = x->ld, .from = x->data, .turned = b.data, .known = 1, .scale = scale_x);
    multiply(m, &(s24_device_train_product_args){
                    .y = &y, .a = &a, .b = &b, .add = 1, .scale_a = scale_dy, .scale_b = scale_x});
    return 1;
}
