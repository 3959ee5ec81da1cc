// SPDX-License-Identifier: Apache-2.0
/*
 * Products in 8 bits on a device: operands are made just before, with the scale that each matrix
 * has now. What a product sums over lies within a row of both operands, so that gradients and
 * weights are also made transposed.
 */
#include "train/gpu.h"

/* Where the rule's scales lie: of weights, of gradients, then of each layer's inputs, which are
   the same in dW as they were forward. */
enum { WEIGHTS, GRADIENTS, INPUTS, NUMBERS = 4 };

static s24_dense narrow_view(const void *data, s24_dtype dtype, int64_t rows, int64_t cols)
{
    return (s24_dense){(void *)(uintptr_t)data, dtype, rows, cols, cols};
}

static float *scale_of(const s24i_layer_rule *r, int64_t which)
{
    return r->scales + NUMBERS * which;
}

/* Tokens in whole 16, as the transposes have them. */
static int64_t in_whole(int64_t tokens)
{
    return (tokens + 15) / 16 * 16;
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
    float *scale_x = scale_of(r, INPUTS + l->site), *scale_w = scale_of(r, WEIGHTS);
    const s24_dense a = narrow_view(r->narrow[S24I_NARROW_INPUTS], S24_E4M3, x->rows, l->k);
    const s24_dense b = narrow_view(r->narrow[S24I_NARROW_WEIGHTS], S24_E4M3, l->n, l->k);
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = x->rows, .cols = l->k,
            .ld = x->ld, .from = x->data, .to = a.data, .scale = scale_x);
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = l->n, .cols = l->k,
            .ld = l->k, .from = s24i_gpu_narrow(m, l->w), .to = b.data, .scale = scale_w);
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
    float *scale_dy = scale_of(r, GRADIENTS), *scale_w = scale_of(r, WEIGHTS);
    const s24_dense a = narrow_view(r->narrow[S24I_NARROW_GRADIENTS], S24_E5M2, dy->rows, l->n);
    const s24_dense b = narrow_view(r->narrow[S24I_NARROW_WEIGHTS], S24_E4M3, l->k, l->n);
    if (m->gpu->narrowed != dy->data)
        GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E5M2, .rows = dy->rows,
                .cols = l->n, .ld = dy->ld, .from = dy->data, .to = a.data, .scale = scale_dy);
    m->gpu->narrowed = NULL;
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = l->n, .cols = l->k,
            .ld = l->k, .from = s24i_gpu_narrow(m, l->w), .turned = b.data, .scale = scale_w);
    multiply(m, &(s24_device_train_product_args){
                    .y = dx, .a = &a, .b = &b, .scale_a = scale_dy, .scale_b = scale_w});
    return 1;
}

int s24i_gpu_fp8_dw(s24i_machine *m, const s24_dense *dy, const s24_dense *x, const s24i_layer *l)
{
    const s24i_layer_rule *r = l->rule;
    if (!r || !r->fp8) return 0;
    const int64_t tokens = in_whole(dy->rows);
    float *scale_x = scale_of(r, INPUTS + l->site), *scale_dy = scale_of(r, GRADIENTS);
    const s24_dense y = {l->dw, S24_F32, l->n, l->k, l->k};
    const s24_dense a = narrow_view(r->narrow[S24I_NARROW_TURNED], S24_E5M2, l->n, tokens);
    const s24_dense b = narrow_view(r->narrow[S24I_NARROW_INPUTS], S24_E4M3, l->k, tokens);
    const int left = dy->data == r->dy; /* MVUE24's, which dX does not read */
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E5M2, .rows = dy->rows, .cols = l->n,
            .ld = dy->ld, .from = dy->data, .to = left ? NULL : r->narrow[S24I_NARROW_GRADIENTS],
            .turned = a.data, .scale = scale_dy);
    m->gpu->narrowed = left ? NULL : dy->data;
    GPU_RUN(m, fp8, .dtype = m->gpu->dtype, .to_dtype = S24_E4M3, .rows = x->rows, .cols = l->k,
            .ld = x->ld, .from = x->data, .turned = b.data, .known = 1, .scale = scale_x);
    multiply(m, &(s24_device_train_product_args){
                    .y = &y, .a = &a, .b = &b, .add = 1, .scale_a = scale_dy, .scale_b = scale_x});
    return 1;
}
