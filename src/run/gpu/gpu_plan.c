// SPDX-License-Identifier: Apache-2.0
/*
 * The plan of a session on a device: for each power of two of tokens how each of a block's products
 * runs, chosen when such a batch comes for the first time. First each product is measured alone
 * (gpu_search.c). What comes close, and whether norms are folded into products, is decided by whole
 * passes of that batch, embeddings, attention and all: a GPU at its limit of power is faster or
 * slower at one kernel by what it did before, so that a tile's time alone is not all that it costs.
 * Passes are captured and run by turns, as they will be later: launched one by one, small kernels
 * wait for the host.
 */
#include "run/gpu/gpu_state.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PLANS = S24I_GPU_RIVALS + 1 };

/* A graph of the pass as it is planned now. It runs once before, which loads kernels: no capture
   may. */
static s24_status capture_pass(s24_device_graph **out, const s24i_gpu_session *gpu, s24_ctx *ctx,
                               const s24i_gpu_shape *shape)
{
    TRY(s24i_gpu_encode(gpu, ctx, shape));
    return s24i_gpu_capture(out, gpu, ctx, shape, s24i_gpu_encode);
}

/* The one of the captured plans that takes the least time in all of its turns; a later one must
   take less than that share of the best before. */
static s24_status fastest(int *best, s24_device_graph *const *graphs, int count,
                          const s24i_gpu_session *gpu, s24_ctx *ctx, double share)
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
        if (sums[i] < share * sums[*best]) *best = i;
    return S24_OK;
}

static void drop(s24_device_graph *const *graphs, const s24i_gpu_session *gpu)
{
    for (int i = 0; i < MOST_PLANS; i++)
        s24_device_graph_destroy(gpu->device, graphs[i]);
}

/* ---- norms in products or apart -------------------------------------------------------------- */

/* Chooses how the products run with norms folded into them or not, and leaves the session so.
   *found: each has a way. */
static s24_status plan_products(int *found, s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                int folded, s24i_gpu_rivals *rivals)
{
    s24i_gpu_choice *choices = gpu->choices[s24i_gpu_octave(tokens)];
    gpu->folded[s24i_gpu_octave(tokens)] = folded;
    *found = 1;
    /* A product in 8 bits is measured as if those after it were, too: it writes for them. */
    for (int i = 0; i < S24I_PRODUCTS; i++)
        choices[i] = (s24i_gpu_choice){.way = gpu->eight ? S24I_WAY_EIGHT : S24I_WAY_SPARSE};
    for (int i = 0; i < S24I_PRODUCTS && *found; i++)
        TRY(s24i_gpu_search(found, gpu, ctx, tokens, i, rivals));
    return S24_OK;
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

/* The faster of the session's plan and the other one stays the session's. */
static s24_status compare_plans(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape,
                                s24i_gpu_choice other[S24I_PRODUCTS])
{
    const int octave = s24i_gpu_octave(shape->tokens);
    s24_device_graph *graphs[MOST_PLANS] = {NULL};
    s24_status status = S24_OK;
    int best = 0;
    for (int i = 0; i < 2; i++) {
        if (status == S24_OK) status = capture_pass(&graphs[i], gpu, ctx, shape);
        swap_plans(gpu, octave, other);
    }
    if (status == S24_OK) status = fastest(&best, graphs, 2, gpu, ctx, 1);
    if (best) swap_plans(gpu, octave, other);
    drop(graphs, gpu);
    return status;
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

/* Products that are not faster in 8 bits alone may make the pass so: what makes their tokens then
   writes half the bytes, and the GPU draws less power. They cost accuracy, and must gain
   something. */
static s24_status compare_eights(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape)
{
    const double margin = 0.97;
    s24i_gpu_choice *choices = gpu->choices[s24i_gpu_octave(shape->tokens)];
    s24i_gpu_choice plans[2][S24I_PRODUCTS];
    s24_device_graph *graphs[MOST_PLANS] = {NULL};
    s24_status status = S24_OK;
    int best = 0, more = 0;
    memcpy(plans[0], choices, sizeof plans[0]);
    memcpy(plans[1], choices, sizeof plans[1]);
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (gpu->eight_tiles[i] && choices[i].way != S24I_WAY_EIGHT) {
            plans[1][i] = (s24i_gpu_choice){gpu->eight_tiles[i], S24I_WAY_EIGHT};
            more = 1;
        }
    if (!more) return S24_OK;
    for (int i = 0; i < 2 && status == S24_OK; i++) {
        memcpy(choices, plans[i], sizeof plans[i]);
        status = capture_pass(&graphs[i], gpu, ctx, shape);
    }
    if (status == S24_OK) status = fastest(&best, graphs, 2, gpu, ctx, margin);
    memcpy(choices, plans[best], sizeof plans[best]);
    drop(graphs, gpu);
    for (int i = 0; i < S24I_PRODUCTS && best && status == S24_OK; i++)
        if (gpu->eight_tiles[i]) status = s24i_gpu_note_choice(gpu, ctx, shape->tokens, i);
    return status;
}

/* ---- steps in dense products ----------------------------------------------------------------- */

/* Do dense products take in the steps next to them? */
static s24_status compare_joined(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape)
{
    int *joined = &gpu->joined[s24i_gpu_octave(shape->tokens)], best = 0;
    s24_device_graph *graphs[MOST_PLANS] = {NULL};
    s24_status status = S24_OK;
    if (!s24i_gpu_can_join(gpu, shape->tokens)) return S24_OK;
    for (int i = 0; i < 2 && status == S24_OK; i++) {
        *joined = i;
        status = capture_pass(&graphs[i], gpu, ctx, shape);
    }
    if (status == S24_OK) status = fastest(&best, graphs, 2, gpu, ctx, 1);
    *joined = best;
    drop(graphs, gpu);
    return status;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Of the tile planned for a product and its rivals the one with which the pass is fastest. */
static s24_status settle_tile(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape,
                              int index, const char *const rivals[S24I_GPU_RIVALS])
{
    const char **tile = &gpu->choices[s24i_gpu_octave(shape->tokens)][index].tile;
    const char *tiles[MOST_PLANS] = {*tile};
    s24_device_graph *graphs[MOST_PLANS] = {NULL};
    s24_status status = S24_OK;
    int count = 1, best = 0;
    for (int i = 0; i < S24I_GPU_RIVALS && rivals[i]; i++)
        tiles[count++] = rivals[i];
    for (int i = 0; i < count && status == S24_OK; i++) {
        *tile = tiles[i];
        status = capture_pass(&graphs[i], gpu, ctx, shape);
    }
    if (status == S24_OK) status = fastest(&best, graphs, count, gpu, ctx, 1);
    *tile = tiles[best];
    drop(graphs, gpu);
    return status;
}

static s24_status settle_tiles(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape,
                               const s24i_gpu_rivals *rivals)
{
    const s24i_gpu_choice *choices = gpu->choices[s24i_gpu_octave(shape->tokens)];
    for (int i = 0; i < S24I_PRODUCTS; i++) {
        if (!rivals->tile[i][0] || choices[i].way != S24I_WAY_SPARSE) continue;
        TRY(settle_tile(gpu, ctx, shape, i, rivals->tile[i]));
        TRY(s24i_gpu_note_choice(gpu, ctx, shape->tokens, i));
    }
    return S24_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static const char *const NORMS_IN = "in products", *const NORMS_APART = "apart";

static s24_status plan(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t tokens = shape->tokens;
    const int octave = s24i_gpu_octave(tokens);
    s24i_gpu_choice folded[S24I_PRODUCTS];
    s24i_gpu_rivals rivals[2] = {{{{NULL}}}}; /* of the plan with norms apart, and in products */
    char key[96];
    int can = 0, found;
    snprintf(key, sizeof key, "%s %lldx%lldx%lld norms", s24_dtype_name(gpu->model->dtype),
             1ll << octave, (long long)s->width, (long long)s->intermediate);
    const char *noted = s24_device_noted(gpu->device, key);
    const int in = noted && strcmp(noted, NORMS_IN) == 0,
              apart = noted && strcmp(noted, NORMS_APART) == 0;
    if (gpu->terms && !apart) TRY(plan_products(&can, gpu, ctx, tokens, 1, &rivals[1]));
    if (can) memcpy(folded, gpu->choices[octave], sizeof folded);
    if (!can || !in) TRY(plan_products(&found, gpu, ctx, tokens, 0, &rivals[0]));
    if (can && !in) {
        TRY(compare_plans(gpu, ctx, shape, folded));
        TRY(s24_device_note(ctx, gpu->device, key, gpu->folded[octave] ? NORMS_IN : NORMS_APART));
    }
    if (gpu->eight) TRY(compare_eights(gpu, ctx, shape));
    TRY(settle_tiles(gpu, ctx, shape, &rivals[gpu->folded[octave]]));
    TRY(compare_joined(gpu, ctx, shape));
    gpu->planned[octave] = 1;
    return S24_OK;
}

s24_status s24i_gpu_plan(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape)
{
    if (gpu->planned[s24i_gpu_octave(shape->tokens)] || !gpu->model->shape.layers) return S24_OK;
    gpu->alone = 1;
    const s24_status status = plan(gpu, ctx, shape);
    gpu->alone = 0;
    return status;
}
