// SPDX-License-Identifier: Apache-2.0
/*
 * Steps of few tokens of a language model whose products are dense: these norm what they read, gate
 * what they make and add to the sums themselves, so that of a block's eight kernels five are left.
 * What a kernel costs by itself, its start and its wait for the one before, is a third of such a
 * step. Whether the pass is faster so is measured (gpu_plan.c).
 */
#include "run/gpu/gpu_state.h"

#include "device/device_layers.h"

/* Dense, with a weight that our kernel of few tokens may multiply. */
static int may_join(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index)
{
    const s24i_weight *weight;
    if (s24i_gpu_way(gpu, tokens, block, index) != S24I_WAY_DENSE) return 0;
    weight = s24i_gpu_weight(gpu, block, index, S24I_WAY_DENSE);
    return weight && s24i_weight_on_device(weight)->dense && s24i_weight_on_device(weight)->few;
}

int s24i_gpu_can_join(const s24i_gpu_session *gpu, int64_t tokens)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t most = (int64_t)1 << s24i_gpu_octave(tokens); /* that share the plan */
    int can = !gpu->model->ranks.comm && gpu->model->architecture->rms && !gpu->eight &&
              !gpu->model->architecture->gate_last && !s24i_gpu_activates_aside(s) &&
              !s24i_adds_aside(gpu->model->architecture) &&
              !gpu->model->architecture->side_by_side && !s->mixture.experts && !s->latent.rank &&
              most <= S24_DEVICE_FEW_TOKENS && most * s->width <= S24_DEVICE_FEW_NORMED;
    for (int64_t b = 0; b < s->layers; b++) {
        can = can && !(s->gated && gpu->model->blocks[b].gate.n);
        for (int i = 0; i < S24I_PRODUCTS; i++)
            if (s24i_block_product(&gpu->model->blocks[b], i)->n)
                can = can && may_join(gpu, tokens, b, i);
    }
    return can;
}

void s24i_gpu_join_operands(s24i_gpu_operands *o, const s24i_gpu_session *gpu, int64_t block,
                            int index)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_block_step *step = s24i_gpu_step_of(gpu, index);
    if (step->from == S24I_AT_NORMED) {
        const int64_t norm =
            2 * block + (index < S24I_PRODUCT_ATTENTION ? S24I_ATTENTION_NORM : S24I_OUTPUT_NORM);
        o->x.data = gpu->hidden;
        o->gamma = s24i_gpu_gamma(gpu, norm);
        o->eps = s24i_gpu_norm_at(gpu, norm)->eps;
    }
    if (step->adds) {
        o->y = s24i_gpu_view(gpu, gpu->hidden, o->y.rows, o->y.cols);
        o->residual = o->y;
    }
    if (!s->gated || index != S24I_PRODUCT_INTERMEDIATE) return;
    o->y = s24i_gpu_view(gpu, gpu->gated, o->y.rows, s->intermediate);
    o->gate = s->activation;
    o->gated = 1;
}
