// SPDX-License-Identifier: Apache-2.0
/*
 * How one of a block's products runs for a power of two of tokens, in a session on a device: as
 * noted with the device, else the fastest way, measured. 2:4 products are timed tile by tile over
 * the weights of all blocks; where the best algorithm of a dense product is faster still, by more
 * than measuring errs, the weights are laid out dense once more.
 */
#include "run/gpu/gpu_state.h"

#include <math.h>
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
    s24i_way way;   /* 2:4, in 16 or in 8 bits */
    double seconds; /* of that; 0: none was measured */
    int folded;     /* it takes norms in */
    void *widened;  /* integers go there first */
    s24i_gpu_rivals *rivals;
} search;

static s24_status run_tile(const search *s, const s24i_linear *l, const char *tile)
{
    s24i_product_job p = s24i_gpu_product_of(s->gpu, l, &s->o, s->way);
    p.tile = tile;
    p.widened = s->widened;
    return s24i_weight_run(l->weight[s->way], s->ctx, &p);
}

/* The seconds of a 2:4 product with a tile: each block's weight, one after the other. */
static s24_status time_tile(double *seconds, const search *s, const char *tile)
{
    const s24i_gpu_session *gpu = s->gpu;
    int64_t runs = 0;
    TRY(s24_device_timer_start(s->ctx, gpu->device, gpu->stream));
    for (int64_t b = 0; b < gpu->model->shape.layers; b++) {
        const s24i_linear *l = s24i_block_product(&gpu->model->blocks[b], s->index);
        if (!l->weight[s->way] || l->n != s->linear->n) continue;
        TRY(run_tile(s, l, tile));
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
    TRY(run_tile(s, s->linear, tile)); /* loads the kernel */
    TRY(s24_device_timer_start(s->ctx, gpu->device, gpu->stream));
    TRY(run_tile(s, s->linear, tile));
    TRY(s24_device_timer_stop(seconds, s->ctx, gpu->device, gpu->stream));
    if (s->seconds > 0 && *seconds > far * s->seconds + launch) return S24_OK;
    return time_tile(seconds, s, tile);
}

enum { TILES = 192 }; /* more than there are */

/* seconds[i] of tile i, 0 where the product cannot have it; the one that the device would choose by
   itself goes before. */
static s24_status look_at_tiles(double (*seconds)[TILES], search *s)
{
    const s24_device *device = s->gpu->device;
    const s24i_device_weight *weight = s24i_weight_on_device(s->linear->weight[s->way]);
    const char *tile = s24_device_linear_tile(device, weight->packed, s->tokens);
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

/* Blocks have no tiles to choose from. */
static s24_status best_kernel(search *s)
{
    if (!s24i_weight_is_blocks(s->linear->weight[s->way])) return best_tile(s);
    TRY(run_tile(s, s->linear, NULL)); /* loads the kernel */
    return time_tile(&s->seconds, s, NULL);
}

/* Is dense faster? Without memory or a dense engine it is not known, and 2:4 it stays. */
static s24_status compare_dense(search *s)
{
    s24i_gpu_session *gpu = s->gpu;
    const s24i_linear *l = s->linear;
    double dense = 0;
    s24i_weight *weight;
    if (gpu->model->all_sparse) return S24_OK;
    if (s24i_device_widen(&weight, s->ctx, l->weight[S24I_WAY_SPARSE], gpu->stream) != S24_OK)
        return S24_OK;
    s24i_product_job p = s24i_gpu_product_of(gpu, l, &s->o, S24I_WAY_DENSE);
    p.search = &dense;
    const s24_status status = s24i_weight_run(weight, s->ctx, &p);
    s24i_weight_destroy(weight, s->ctx);
    if (status == S24_ERROR_UNSUPPORTED) return S24_OK;
    TRY(status);
    if (dense >= DENSE_MARGIN * s->seconds) return S24_OK;
    if (!gpu->dense_copies[s->index] && s24i_gpu_copy_dense(gpu, s->ctx, s->index) != S24_OK)
        return S24_OK;
    s->choice->way = S24I_WAY_DENSE;
    s->seconds = dense;
    return S24_OK;
}

/* What a product in 8 bits costs on top: the conversion of its tokens. */
static s24_status time_quantiser(double *seconds, const search *s)
{
    enum { RUNS = 8 };
    const s24i_gpu_session *gpu = s->gpu;
    *seconds = 0;
    TRY(s24i_gpu_quantise(gpu, s->ctx, &s->o.x));
    if (s->o.eight_scale > 0) return S24_OK; /* what makes the tokens writes them so */
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
    s24i_gpu_choice choice = {.way = S24I_WAY_EIGHT};
    search eight = *s;
    double more;
    if (!s->linear->weight[S24I_WAY_EIGHT]) return S24_OK;
    eight.way = S24I_WAY_EIGHT;
    eight.seconds = 0;
    eight.choice = &choice;
    TRY(time_quantiser(&more, s));
    const s24_status status = best_kernel(&eight);
    if (status == S24_ERROR_UNSUPPORTED) return S24_OK; /* this GPU has no products of the dtype */
    TRY(status);
    s->gpu->eight_tiles[s->index] = choice.tile;
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
    char lifted[S24_LIFT_BYTES + 1] = " ";
    const s24_model *model = s->gpu->model;
    if (!s24_lift_pattern(lifted + 1, s->linear->lift)) *lifted = '\0';
    snprintf(key.text, sizeof key.text, "%s%s%s %lldx%lldx%lld%s%s%s%s",
             s24_dtype_name(model->dtype), model->narrow ? "/" : "",
             model->narrow ? s24_dtype_name(model->narrow) : "", 1ll << s24i_gpu_octave(s->tokens),
             (long long)s->linear->k, (long long)s->linear->n, activations[s->linear->activation],
             norm->x_moments   ? " normed"
             : norm->y_moments ? " added"
                               : "",
             s24i_gpu_has_fixed(s->gpu, s->index) ? " fixed" : "", lifted);
    return key;
}

/* What an earlier session measured. A tile that cannot be used is none: notes come from outside. A
   dense product is compared once more, since its algorithm is found by measuring, too. */
static int take_noted(const search *s)
{
    const char *noted = s24_device_noted(s->gpu->device, key_of(s).text), *tile;
    const int eight = noted && strncmp(noted, EIGHT, strlen(EIGHT)) == 0;
    if (eight) noted += strlen(EIGHT);
    search found = *s;
    found.way = eight ? S24I_WAY_EIGHT : S24I_WAY_SPARSE;
    if (!s->linear->weight[found.way]) return 0;
    for (int i = 0; noted && (tile = s24_device_tile_name(s->gpu->device, i)) != NULL; i++)
        if (strcmp(tile, noted) == 0 && run_tile(&found, s->linear, tile) == S24_OK) {
            *s->choice = (s24i_gpu_choice){tile, found.way};
            return 1;
        }
    return 0;
}

static s24_status take_note(const search *s)
{
    const s24i_gpu_choice *c = s->choice;
    char value[32];
    const int dense = c->way == S24I_WAY_DENSE;
    if (!dense && !c->tile) return S24_OK; /* a GPU without names for tiles */
    snprintf(value, sizeof value, "%s%s", c->way == S24I_WAY_EIGHT ? EIGHT : "",
             dense ? DENSE : c->tile);
    return s24_device_note(s->ctx, s->gpu->device, key_of(s).text, value);
}

/* ---- integers -------------------------------------------------------------------------------- */

/* Room for the largest of them; without memory there is none. */
static void reserve_widened(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    int64_t most = 0;
    for (int64_t b = 0; b < gpu->model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&gpu->model->blocks[b], i);
            if (l->weight[S24I_WAY_INTEGERS] && l->n * l->k > most) most = l->n * l->k;
        }
    if (!gpu->widened)
        (void)s24_device_alloc(&gpu->widened, ctx, gpu->device, (size_t)(S24I_GPU_ELEMENT * most),
                               gpu->stream);
}

/* Few tokens are multiplied with integers; many are in less time with the weight widened before. */
static s24_status plan_integers(search *s)
{
    enum { MANY = 128 };
    double seconds, widened;
    s->way = s->choice->way = S24I_WAY_INTEGERS;
    if (s->tokens < MANY) return S24_OK;
    reserve_widened(s->gpu, s->ctx);
    if (!s->gpu->widened) return S24_OK;
    TRY(run_tile(s, s->linear, NULL));
    TRY(time_tile(&seconds, s, NULL));
    s->widened = s->gpu->widened;
    s24i_product_job p = s24i_gpu_product_of(s->gpu, s->linear, &s->o, S24I_WAY_DENSE);
    p.widened = s->widened;
    p.search = &widened;
    const s24_status status = s24i_weight_run(s->linear->weight[s->way], s->ctx, &p);
    if (status == S24_ERROR_UNSUPPORTED) return S24_OK; /* there is no dense engine */
    TRY(status);
    TRY(time_tile(&widened, s, NULL));
    if (widened < DENSE_MARGIN * seconds) s->choice->way = S24I_WAY_DENSE;
    return S24_OK;
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

/* In 8 bits, as was asked for by name: only its tile or algorithm is to be found. */
static s24_status plan_asked(search *s)
{
    const s24i_weight *weight = s->linear->weight[S24I_WAY_EIGHT];
    double more;
    s->way = s->choice->way = S24I_WAY_EIGHT;
    TRY(time_quantiser(&more, s)); /* tokens to multiply with */
    if (s->linear->sparse) return best_kernel(s);
    s24i_product_job p = s24i_gpu_product_of(s->gpu, s->linear, &s->o, S24I_WAY_EIGHT);
    p.search = &s->seconds;
    return s24i_weight_run(weight, s->ctx, &p);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* In blocks, of 16 or 8 bits, or dense. A GPU without kernels for them has dense ones. What other
   weights of the shape were noted to run with says nothing: they have other zeros. */
static s24_status plan_blocks(search *s)
{
    s->choice->way = S24I_WAY_SPARSE;
    const s24_status status = best_kernel(s);
    if (status == S24_ERROR_UNSUPPORTED && !s->gpu->model->all_sparse)
        s->seconds = HUGE_VAL;
    else
        TRY(status);
    TRY(compare_dense(s));
    return compare_eight(s);
}

static s24_status plan_product(search *s)
{
    const s24i_weight *dense = s->linear->weight[S24I_WAY_DENSE];
    if (s->linear->weight[S24I_WAY_INTEGERS]) return plan_integers(s);
    if (s->gpu->model->narrow_asked && s->linear->weight[S24I_WAY_EIGHT]) return plan_asked(s);
    if (dense) {
        s24i_product_job p = s24i_gpu_product_of(s->gpu, s->linear, &s->o, S24I_WAY_DENSE);
        p.search = &s->seconds;
        return s24i_weight_run(dense, s->ctx, &p);
    }
    const s24i_weight *sparse = s->linear->weight[S24I_WAY_SPARSE];
    if (sparse && s24i_weight_is_blocks(sparse)) return plan_blocks(s);
    if (!sparse || take_noted(s)) return S24_OK;
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
    gpu->eight_tiles[index] = NULL;
    gpu->choices[s24i_gpu_octave(tokens)][index] = (s24i_gpu_choice){0};
    *found = 1;
    /* One that blocks have not may have no step either. */
    if (!s24i_block_product(&gpu->model->blocks[0], index)->n) return S24_OK;
    search s = search_of(gpu, ctx, tokens, index);
    s.rivals = rivals;
    TRY(plan_product(&s));
    *found = !s.folded || !s.linear->weight[S24I_WAY_SPARSE] || s.choice->tile;
    return S24_OK;
}

s24_status s24i_gpu_note_choice(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int index)
{
    const search s = search_of(gpu, ctx, tokens, index);
    return take_note(&s);
}
