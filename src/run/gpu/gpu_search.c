// SPDX-License-Identifier: Apache-2.0
/*
 * How one of a block's products runs for a power of two of tokens, in a session on a device: as
 * noted with the device, else the fastest way, measured. 2:4 products are timed tile by tile over
 * the weights of all blocks; where the best algorithm of a dense product is faster still, by more
 * than measuring errs, the weights are laid out dense once more.
 */
#include "run/gpu/gpu_state.h"

#include <stdio.h>
#include <string.h>

/* Dense weights are timed hot, which they are not in a pass. */
static const double DENSE_MARGIN = 0.93;
/* 8 bits cost accuracy, so that they must gain something. */
static const double EIGHT_MARGIN = 0.97;

/* One of a block's products for a number of tokens, and the best way so far. */
typedef struct search {
    s24i_gpu_session *gpu;
    s24_ctx *ctx;
    int64_t tokens;
    int index;
    const s24i_linear *linear; /* of the first block */
    s24i_gpu_operands o;
    s24i_gpu_choice *choice;
    int eight;      /* which of its 2:4 products: in 8 bits? */
    double seconds; /* of that; 0: none was measured */
    int folded;     /* it takes norms in */
    s24i_gpu_rivals *rivals;
} search;

/* The seconds of a 2:4 product with a tile: each block's weight, one after the other. */
static s24_status time_tile(double *seconds, const search *s, const char *tile)
{
    const s24i_gpu_session *gpu = s->gpu;
    int64_t runs = 0;
    TRY(s24_device_timer_start(s->ctx, gpu->device, gpu->stream));
    for (int64_t b = 0; b < gpu->model->shape.layers; b++) {
        const s24i_linear *l = s24i_block_product(&gpu->model->blocks[b], s->index);
        if (!l->packed || l->n != s->linear->n || (s->eight && !l->narrow)) continue;
        TRY(s24i_gpu_run_sparse(gpu, s->ctx, l, &s->o, tile, s->eight));
        runs++;
    }
    TRY(s24_device_timer_stop(seconds, s->ctx, gpu->device, gpu->stream));
    *seconds /= (double)runs;
    return S24_OK;
}

/* A first look at a tile. One that is far slower than the best so far in its first run gets no
   more. */
static s24_status look_at_tile(double *seconds, const search *s, const char *tile)
{
    const double far = 1.3, launch = 5e-6; /* a run by itself shows its launch */
    const s24i_gpu_session *gpu = s->gpu;
    TRY(s24i_gpu_run_sparse(gpu, s->ctx, s->linear, &s->o, tile, s->eight)); /* loads the kernel */
    TRY(s24_device_timer_start(s->ctx, gpu->device, gpu->stream));
    TRY(s24i_gpu_run_sparse(gpu, s->ctx, s->linear, &s->o, tile, s->eight));
    TRY(s24_device_timer_stop(seconds, s->ctx, gpu->device, gpu->stream));
    if (s->seconds > 0 && *seconds > far * s->seconds + launch) return S24_OK;
    return time_tile(seconds, s, tile);
}

enum { TILES = 96 };

/* seconds[i] of tile i, 0 where the product cannot have it; the one that the device would choose by
   itself goes before. */
static s24_status look_at_tiles(double (*seconds)[TILES], search *s)
{
    const s24_device *device = s->gpu->device;
    const char *tile =
        s24_device_linear_tile(device, s->eight ? s->linear->narrow : s->linear->packed, s->tokens);
    if (!s->folded) TRY(look_at_tile(&s->seconds, s, tile));
    s->choice->tile = s->folded ? NULL : tile;
    for (int i = 0; i < TILES && (tile = s24_device_tile_name(device, i)) != NULL; i++) {
        const s24_status status = look_at_tile(&(*seconds)[i], s, tile);
        if (status == S24_ERROR_UNSUPPORTED) continue; /* not every product has every tile */
        TRY(status);
        if (s->seconds <= 0 || (*seconds)[i] < s->seconds) s->seconds = (*seconds)[i];
    }
    return S24_OK;
}

/* The fastest of the others that came closest. */
static void take_rivals(const search *s, double (*sums)[TILES])
{
    const double close = 1.06;
    for (int count = 0; s->rivals && count < S24I_GPU_RIVALS; count++) {
        int next = -1;
        for (int i = 0; i < TILES; i++)
            if ((*sums)[i] > 0 && (*sums)[i] < close * s->seconds &&
                (next < 0 || (*sums)[i] < (*sums)[next]) &&
                s24_device_tile_name(s->gpu->device, i) != s->choice->tile)
                next = i;
        if (next < 0) return;
        s->rivals->tile[s->index][count] = s24_device_tile_name(s->gpu->device, next);
        (*sums)[next] = 0;
    }
}

/* Those that came close, by turns: a look is short, and the chip is faster after a rest. */
static s24_status best_tile(search *s)
{
    enum { TURNS = 4 };
    const double near = 1.15;
    double looks[TILES] = {0}, sums[TILES] = {0}, least = 0;
    TRY(look_at_tiles(&looks, s));
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < TILES; i++) {
            double seconds;
            if (looks[i] <= 0 || looks[i] > near * s->seconds) continue;
            TRY(time_tile(&seconds, s, s24_device_tile_name(s->gpu->device, i)));
            sums[i] += seconds / TURNS;
        }
    for (int i = 0; i < TILES; i++) {
        if (sums[i] <= 0 || (least > 0 && sums[i] >= least)) continue;
        least = sums[i];
        s->choice->tile = s24_device_tile_name(s->gpu->device, i);
    }
    if (least > 0) s->seconds = least;
    take_rivals(s, &sums);
    return S24_OK;
}

static s24_status copy_dense(s24i_gpu_session *gpu, s24_ctx *ctx, int index)
{
    const s24i_linear *first = s24i_block_product(&gpu->model->blocks[0], index);
    const int64_t layers = gpu->model->shape.layers;
    const size_t bytes = (size_t)(S24I_GPU_ELEMENT * layers * first->n * first->k);
    TRY(s24_device_alloc(&gpu->dense_copies[index], ctx, gpu->device, bytes, gpu->stream));
    for (int64_t b = 0; b < layers; b++) {
        const s24i_linear *l = s24i_block_product(&gpu->model->blocks[b], index);
        void *copy = s24i_gpu_dense_copy(gpu, index, b);
        if (!l->packed || !copy) continue;
        const s24_dense w = s24i_gpu_view(gpu, copy, l->n, l->k);
        TRY(s24_device_weight_to_dense(ctx, gpu->device, &w, l->packed, gpu->stream));
    }
    return S24_OK;
}

/* Is dense faster? Without memory or a dense engine it is not known, and 2:4 it stays. */
static s24_status compare_dense(search *s)
{
    s24i_gpu_session *gpu = s->gpu;
    const s24i_linear *l = s->linear;
    double dense = 0;
    void *weight;
    if (gpu->model->all_sparse) return S24_OK;
    if (s24_device_alloc(&weight, s->ctx, gpu->device, (size_t)(S24I_GPU_ELEMENT * l->n * l->k),
                         gpu->stream) != S24_OK)
        return S24_OK;
    const s24_dense w = s24i_gpu_view(gpu, weight, l->n, l->k);
    s24_status status = s24_device_weight_to_dense(s->ctx, gpu->device, &w, l->packed, gpu->stream);
    if (status == S24_OK) status = s24i_gpu_run_dense(gpu, s->ctx, l, &s->o, weight, &dense);
    (void)s24_device_free(s->ctx, gpu->device, weight, gpu->stream);
    if (status == S24_ERROR_UNSUPPORTED) return S24_OK;
    TRY(status);
    if (dense >= DENSE_MARGIN * s->seconds) return S24_OK;
    if (!gpu->dense_copies[s->index] && copy_dense(gpu, s->ctx, s->index) != S24_OK) return S24_OK;
    s->choice->dense = 1;
    s->seconds = dense;
    return S24_OK;
}

/* What a product in 8 bits costs on top: the conversion of its tokens. */
static s24_status time_quantiser(double *seconds, const search *s)
{
    enum { RUNS = 8 };
    const s24i_gpu_session *gpu = s->gpu;
    TRY(s24i_gpu_quantise(gpu, s->ctx, &s->o.x));
    TRY(s24_device_timer_start(s->ctx, gpu->device, gpu->stream));
    for (int i = 0; i < RUNS; i++)
        TRY(s24i_gpu_quantise(gpu, s->ctx, &s->o.x));
    TRY(s24_device_timer_stop(seconds, s->ctx, gpu->device, gpu->stream));
    *seconds /= RUNS;
    /* In a norm only the writing comes on top: one byte of three. */
    if (!s24i_gpu_quantises(gpu, s->index)) *seconds /= 3;
    return S24_OK;
}

/* Is it faster in 8 bits, all in all? */
static s24_status compare_eight(search *s)
{
    s24i_gpu_choice choice = {.eight = 1};
    search eight = *s;
    double more;
    if (!s->linear->narrow) return S24_OK;
    eight.eight = 1;
    eight.seconds = 0;
    eight.choice = &choice;
    TRY(time_quantiser(&more, s));
    const s24_status status = best_tile(&eight);
    if (status == S24_ERROR_UNSUPPORTED) return S24_OK; /* this GPU has no products of the dtype */
    TRY(status);
    if (eight.seconds + more >= EIGHT_MARGIN * s->seconds) return S24_OK;
    *s->choice = choice;
    return S24_OK;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static const char *const DENSE = "dense", *const EIGHT = "8-bit ";

typedef struct note_key {
    char text[96];
} note_key;

static note_key key_of(const search *s)
{
    static const char *const activations[] = {"", " relu", " gelu", " gelu-tanh", " silu"};
    const s24_device_linear_norm *norm = &s->o.norm;
    note_key key;
    const s24_model *model = s->gpu->model;
    snprintf(key.text, sizeof key.text, "%s%s%s %lldx%lldx%lld%s%s", s24_dtype_name(model->dtype),
             model->narrow ? "/" : "", model->narrow ? s24_dtype_name(model->narrow) : "",
             1ll << s24i_gpu_octave(s->tokens), (long long)s->linear->k, (long long)s->linear->n,
             activations[s->linear->activation],
             norm->x_moments   ? " normed"
             : norm->y_moments ? " added"
                               : "");
    return key;
}

/* What an earlier session measured. A tile that cannot be used is none: notes come from outside. A
   dense product is compared once more, since its algorithm is found by measuring, too. */
static int take_noted(const search *s)
{
    const char *noted = s24_device_noted(s->gpu->device, key_of(s).text), *tile;
    const int eight = noted && strncmp(noted, EIGHT, strlen(EIGHT)) == 0;
    if (eight) noted += strlen(EIGHT);
    if (eight && !s->linear->narrow) return 0;
    for (int i = 0; noted && (tile = s24_device_tile_name(s->gpu->device, i)) != NULL; i++)
        if (strcmp(tile, noted) == 0 &&
            s24i_gpu_run_sparse(s->gpu, s->ctx, s->linear, &s->o, tile, eight) == S24_OK) {
            *s->choice = (s24i_gpu_choice){.tile = tile, .eight = eight};
            return 1;
        }
    return 0;
}

static s24_status take_note(const search *s)
{
    const s24i_gpu_choice *c = s->choice;
    char value[32];
    if (!c->dense && !c->tile) return S24_OK; /* a GPU without names for tiles */
    snprintf(value, sizeof value, "%s%s", c->eight ? EIGHT : "", c->dense ? DENSE : c->tile);
    return s24_device_note(s->ctx, s->gpu->device, key_of(s).text, value);
}

static s24_status plan_product(search *s)
{
    if (s->linear->dense)
        return s24i_gpu_run_dense(s->gpu, s->ctx, s->linear, &s->o, s->linear->dense, &s->seconds);
    if (!s->linear->packed || take_noted(s)) return S24_OK;
    TRY(best_tile(s));
    if (!s->folded) {
        TRY(compare_dense(s));
        TRY(compare_eight(s));
    }
    return take_note(s);
}

static search search_of(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int index)
{
    const int folds = s24i_gpu_folds(gpu, tokens);
    /* The first block's first product has no norm before it. */
    const int64_t block = folds && gpu->model->shape.layers > 1;
    return (search){.gpu = gpu,
                    .ctx = ctx,
                    .tokens = tokens,
                    .index = index,
                    .linear = s24i_block_product(&gpu->model->blocks[block], index),
                    .o = s24i_gpu_operands_of(gpu, tokens, block, index),
                    .choice = &gpu->choices[s24i_gpu_octave(tokens)][index],
                    .folded = folds && (index >= S24I_PRODUCT_ATTENTION || block)};
}

s24_status s24i_gpu_search(int *found, s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                           int index, s24i_gpu_rivals *rivals)
{
    search s = search_of(gpu, ctx, tokens, index);
    s.rivals = rivals;
    *s.choice = (s24i_gpu_choice){0};
    TRY(plan_product(&s));
    *found = !s.folded || !s.linear->packed || s.choice->tile;
    return S24_OK;
}

s24_status s24i_gpu_note_choice(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int index)
{
    const search s = search_of(gpu, ctx, tokens, index);
    return take_note(&s);
}
