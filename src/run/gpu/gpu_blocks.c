// SPDX-License-Identifier: Apache-2.0
/*
 * What a session's plan decides by all blocks together. A GPU at its limit of power is faster or slower
 * at one kernel by what it did before, so that a tile's time alone is not all that it costs. Plans are
 * captured and run by turns, as passes will be: launched one by one, small kernels wait for the host.
 */
#include "run/gpu/gpu_session.h"

#include <math.h>

enum { MOST_PLANS = S24I_GPU_RIVALS + 1 };

/* Products and norms of all blocks as they are planned now. */
static s24_status enqueue_blocks(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24_dense hidden = s24i_gpu_view(gpu, gpu->hidden, tokens, s->width);
    const s24_dense sum = s24i_gpu_view(gpu, gpu->qkv, tokens, s->width);
    for (int64_t b = 0; b < s->layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_block *block = &gpu->model->blocks[b];
            if (!s24i_block_product(block, i)->n) continue;
            TRY(s24i_gpu_product(gpu, ctx, tokens, b, i));
            if (gpu->folded[s24i_gpu_octave(tokens)]) continue;
            if (i == S24I_PRODUCT_ATTENTION || i == S24I_PRODUCT_OUTPUT)
                TRY(s24i_gpu_norm(gpu, ctx, &block->output_norm, &hidden, &sum, 0));
        }
    return S24_OK;
}

static s24_status capture_blocks(s24_device_graph **out, s24i_gpu_session *gpu, s24_ctx *ctx,
                                 int64_t tokens)
{
    TRY(s24_device_graph_begin(ctx, gpu->device, gpu->stream));
    const s24_status status = enqueue_blocks(gpu, ctx, tokens);
    const s24_status ended =
        s24_device_graph_end(out, status == S24_OK ? ctx : gpu->ctx, gpu->device, gpu->stream);
    return status == S24_OK ? ended : status;
}

/* The one of the captured plans that takes the least time in all of its turns. */
static s24_status fastest(int *best, s24_device_graph *const *graphs, int count,
                          const s24i_gpu_session *gpu, s24_ctx *ctx)
{
    enum { TURNS = 5 };
    double sums[MOST_PLANS] = {0}, seconds;
    for (int turn = 0; turn <= TURNS; turn++)
        for (int i = 0; i < count; i++) {
            TRY(s24_device_timer_start(ctx, gpu->device, gpu->stream));
            TRY(s24_device_graph_launch(ctx, gpu->device, graphs[i], gpu->stream));
            TRY(s24_device_timer_stop(&seconds, ctx, gpu->device, gpu->stream));
            if (turn) sums[i] += seconds; /* the first one uploads the graph */
        }
    *best = 0;
    for (int i = 1; i < count; i++)
        if (sums[i] < sums[*best]) *best = i;
    return S24_OK;
}

static void drop(s24_device_graph *const *graphs, const s24i_gpu_session *gpu)
{
    for (int i = 0; i < MOST_PLANS; i++)
        s24_device_graph_destroy(gpu->device, graphs[i]);
}

static void swap_plans(s24i_gpu_session *gpu, int octave, s24i_gpu_choice other[S24I_PRODUCTS])
{
    gpu->folded[octave] = !gpu->folded[octave];
    for (int i = 0; i < S24I_PRODUCTS; i++) {
        const s24i_gpu_choice choice = gpu->choices[octave][i];
        gpu->choices[octave][i] = other[i];
        other[i] = choice;
    }
}

s24_status s24i_gpu_compare_plans(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                  s24i_gpu_choice other[S24I_PRODUCTS])
{
    s24_device_graph *graphs[MOST_PLANS] = {NULL};
    s24_status status = enqueue_blocks(gpu, ctx, tokens); /* loads kernels, which no capture may */
    int best = 0;
    for (int i = 0; i < 2; i++) {
        if (status == S24_OK) status = capture_blocks(&graphs[i], gpu, ctx, tokens);
        swap_plans(gpu, s24i_gpu_octave(tokens), other);
    }
    if (status == S24_OK) status = fastest(&best, graphs, 2, gpu, ctx);
    if (best) swap_plans(gpu, s24i_gpu_octave(tokens), other);
    drop(graphs, gpu);
    return status;
}

s24_status s24i_gpu_settle_tile(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int index,
                                const char *const rivals[S24I_GPU_RIVALS])
{
    const char **tile = &gpu->choices[s24i_gpu_octave(tokens)][index].tile;
    const char *tiles[MOST_PLANS] = {*tile};
    s24_device_graph *graphs[MOST_PLANS] = {NULL};
    s24_status status = enqueue_blocks(gpu, ctx, tokens);
    int count = 1, best = 0;
    for (int i = 0; i < S24I_GPU_RIVALS && rivals[i]; i++)
        tiles[count++] = rivals[i];
    for (int i = 0; i < count && status == S24_OK; i++) {
        *tile = tiles[i];
        status = capture_blocks(&graphs[i], gpu, ctx, tokens);
    }
    if (status == S24_OK) status = fastest(&best, graphs, count, gpu, ctx);
    *tile = tiles[best];
    drop(graphs, gpu);
    return status;
}
