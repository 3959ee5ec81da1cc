// SPDX-License-Identifier: Apache-2.0
/*
 * The plan of a session on a device: for each power of two of tokens and each of a block's products
 * the fastest way is measured, when such a batch comes for the first time, and noted with the device
 * for other sessions. 2:4 products are timed
 * tile by tile over the weights of all blocks; where the best algorithm of a dense product is
 * faster still, by more than measuring errs, the weights are laid out dense once more. What comes
 * close alone is compared in whole passes (gpu_blocks.c).
 */
#include "run/gpu/gpu_session.h"

#include <stdio.h>
#include <string.h>

/* Dense weights are timed hot, which they are not in a pass. */
static const double DENSE_MARGIN = 0.93;
/* Fewer bits must be worth it. */
static const double NARROW_MARGIN = 0.97;

int s24i_gpu_octave(int64_t tokens)
{
    int octave = 0;
    while (octave + 1 < S24I_GPU_OCTAVES && (int64_t)1 << octave < tokens)
        octave++;
    return octave;
}

/* ---- one product ----------------------------------------------------------------------------- */

static s24i_gpu_operands operands_of(const s24i_gpu_session *gpu, int64_t tokens, int64_t block,
                                     int index, int folded)
{
    const s24i_linear *l = s24i_block_product(&gpu->model->blocks[block], index);
    const int64_t width = gpu->model->shape.width;
    void *in = gpu->model->architecture->pre_norm ? gpu->context : gpu->hidden;
    s24i_gpu_operands o = {.y = s24i_gpu_view(gpu, gpu->qkv, tokens, l->n),
                           .x = s24i_gpu_view(gpu, in, tokens, l->k)};
    if (index < S24I_PRODUCT_ATTENTION) {
        o.y.ld = 3 * width;
        o.y.data = (char *)gpu->qkv + S24I_GPU_ELEMENT * index * l->n;
    }
    if (index == S24I_PRODUCT_ATTENTION) o.x.data = gpu->context;
    if (index == S24I_PRODUCT_INTERMEDIATE) o.y.data = gpu->outer;
    if (index == S24I_PRODUCT_OUTPUT) o.x.data = gpu->outer;
    if (folded) s24i_gpu_norm_operands(&o, gpu, block, index);
    return o;
}

/* seconds: NULL runs it, else the best algorithm is searched for. */
static s24_status run_dense(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_linear *l,
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

static s24_status run_sparse(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_linear *l,
                             const s24i_gpu_operands *o, const char *tile, int narrow)
{
    if (narrow) return s24i_gpu_narrow_product(gpu, ctx, l, &o->y, tile);
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

/* No norm makes what these products read. */
static int has_own_quantiser(int index)
{
    return index == S24I_PRODUCT_ATTENTION || index == S24I_PRODUCT_OUTPUT;
}

s24_status s24i_gpu_embed_images(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t images,
                                 const int32_t *positions)
{
    const s24_model *model = gpu->model;
    const s24i_patches *p = &model->patch_map;
    const int64_t tokens = images * model->shape.positions, width = model->shape.width;
    const s24i_layer_norm *norm = &model->blocks[0].attention_norm;
    const s24i_gpu_operands o = {.y = s24i_gpu_view(gpu, gpu->qkv, tokens, width),
                                 .x = s24i_gpu_view(gpu, gpu->outer, tokens, p->row)};
    const s24_dense hidden = s24i_gpu_view(gpu, gpu->hidden, tokens, width);
    const s24_dense context = s24i_gpu_view(gpu, gpu->context, tokens, width);
    const s24_dense eight = s24i_gpu_narrow_view(gpu, tokens, width);
    const s24_device_unfold_args unfold = {.size = sizeof unfold,
                                           .y = &o.x,
                                           .pixels = gpu->pixels,
                                           .images = images,
                                           .channels = p->channels,
                                           .image = p->image,
                                           .patch = p->patch,
                                           .first = p->first,
                                           .stream = gpu->stream};
    const s24_device_norm_args args = {.size = sizeof args,
                                       .y = &context,
                                       .sum = &hidden,
                                       .x = &o.y,
                                       .positions = positions,
                                       .position_rows = s24i_on_device(model, model->position_rows),
                                       .gamma = s24i_on_device(model, norm->gamma),
                                       .beta = s24i_on_device(model, norm->beta),
                                       .eps = norm->eps,
                                       .narrow =
                                           s24i_gpu_norm_narrows(gpu, tokens, 0, 0) ? &eight : NULL,
                                       .narrow_scale = gpu->narrow_scale,
                                       .stream = gpu->stream};
    TRY(s24_device_unfold(ctx, gpu->device, &unfold));
    TRY(run_dense(gpu, ctx, &model->patches, &o, model->patches.dense, NULL));
    return s24_device_norm(ctx, gpu->device, &args);
}

/* Of a block whose product has the first one's shape; NULL for others (a block may have query, key
   and value in one where another has them apart). */
static void *dense_copy(const s24i_gpu_session *gpu, int index, int64_t block)
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
    const int octave = s24i_gpu_octave(tokens);
    const s24i_gpu_choice *choice = &gpu->choices[octave][index];
    const s24i_gpu_operands o = operands_of(gpu, tokens, block, index, gpu->folded[octave]);
    if (!l->packed) return run_dense(gpu, ctx, l, &o, l->dense, NULL);
    void *copy = choice->dense ? dense_copy(gpu, index, block) : NULL;
    if (copy) return run_dense(gpu, ctx, l, &o, copy, NULL);
    const int narrow = choice->narrow && l->narrow;
    if (narrow && has_own_quantiser(index)) TRY(s24i_gpu_quantise(gpu, ctx, &o.x));
    /* The first block's input is no sum: it takes a tile without norms. */
    const char *tile = gpu->folded[octave] && !o.norm.size ? NULL : choice->tile;
    return run_sparse(gpu, ctx, l, &o, tile, narrow);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* One of a block's products for a number of tokens, and the best way so far. */
typedef struct search {
    s24i_gpu_session *gpu;
    s24_ctx *ctx;
    int64_t tokens;
    int index;
    const s24i_linear *linear; /* of the first block */
    s24i_gpu_operands o;
    s24i_gpu_choice *choice;
    int narrow;     /* which of its 2:4 products: in 8 bits? */
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
        if (!l->packed || l->n != s->linear->n || (s->narrow && !l->narrow)) continue;
        TRY(run_sparse(gpu, s->ctx, l, &s->o, tile, s->narrow));
        runs++;
    }
    TRY(s24_device_timer_stop(seconds, s->ctx, gpu->device, gpu->stream));
    *seconds /= (double)runs;
    return S24_OK;
}

/* A first look at a tile. One that is far behind the best so far at its first run is not run on. */
static s24_status look_at_tile(double *seconds, const search *s, const char *tile)
{
    const double far = 1.3, launch = 5e-6; /* a run by itself shows its launch */
    const s24i_gpu_session *gpu = s->gpu;
    TRY(run_sparse(gpu, s->ctx, s->linear, &s->o, tile, s->narrow)); /* loads the kernel */
    TRY(s24_device_timer_start(s->ctx, gpu->device, gpu->stream));
    TRY(run_sparse(gpu, s->ctx, s->linear, &s->o, tile, s->narrow));
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
    const char *tile = s24_device_linear_tile(
        device, s->narrow ? s->linear->narrow : s->linear->packed, s->tokens);
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
        void *copy = dense_copy(gpu, index, b);
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
    if (status == S24_OK) status = run_dense(gpu, s->ctx, l, &s->o, weight, &dense);
    (void)s24_device_free(s->ctx, gpu->device, weight, gpu->stream);
    if (status == S24_ERROR_UNSUPPORTED) return S24_OK;
    TRY(status);
    if (dense >= DENSE_MARGIN * s->seconds) return S24_OK;
    if (!gpu->dense_copies[s->index] && copy_dense(gpu, s->ctx, s->index) != S24_OK) return S24_OK;
    s->choice->dense = 1;
    s->seconds = dense;
    return S24_OK;
}

/* What a product in 8 bits costs beside it: its tokens' way there. */
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
    /* Behind a norm only the writing comes on top: one byte of three. */
    if (!has_own_quantiser(s->index)) *seconds /= 3;
    return S24_OK;
}

/* Is it faster in 8 bits, all in all? */
static s24_status compare_narrow(search *s)
{
    s24i_gpu_choice choice = {.narrow = 1};
    search narrow = *s;
    double more;
    if (!s->linear->narrow) return S24_OK;
    narrow.narrow = 1;
    narrow.seconds = 0;
    narrow.choice = &choice;
    TRY(time_quantiser(&more, s));
    const s24_status status = best_tile(&narrow);
    if (status == S24_ERROR_UNSUPPORTED) return S24_OK; /* this GPU has no products of the dtype */
    TRY(status);
    if (narrow.seconds + more >= NARROW_MARGIN * s->seconds) return S24_OK;
    *s->choice = choice;
    return S24_OK;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static const char *const DENSE = "dense", *const NARROW = "8-bit ";

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
    const int narrow = noted && strncmp(noted, NARROW, strlen(NARROW)) == 0;
    if (narrow) noted += strlen(NARROW);
    if (narrow && !s->linear->narrow) return 0;
    for (int i = 0; noted && (tile = s24_device_tile_name(s->gpu->device, i)) != NULL; i++)
        if (strcmp(tile, noted) == 0 &&
            run_sparse(s->gpu, s->ctx, s->linear, &s->o, tile, narrow) == S24_OK) {
            *s->choice = (s24i_gpu_choice){.tile = tile, .narrow = narrow};
            return 1;
        }
    return 0;
}

static s24_status take_note(const search *s)
{
    const s24i_gpu_choice *c = s->choice;
    char value[32];
    if (!c->dense && !c->tile) return S24_OK; /* a GPU without names for tiles */
    snprintf(value, sizeof value, "%s%s", c->narrow ? NARROW : "", c->dense ? DENSE : c->tile);
    return s24_device_note(s->ctx, s->gpu->device, key_of(s).text, value);
}

static s24_status plan_product(search *s)
{
    if (s->linear->dense)
        return run_dense(s->gpu, s->ctx, s->linear, &s->o, s->linear->dense, &s->seconds);
    if (!s->linear->packed || take_noted(s)) return S24_OK;
    TRY(best_tile(s));
    if (!s->folded) {
        TRY(compare_dense(s));
        TRY(compare_narrow(s));
    }
    return take_note(s);
}

static search search_of(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int index, int folded)
{
    /* The first block's first product has no norm before it. */
    const int64_t block = folded && gpu->model->shape.layers > 1;
    return (search){.gpu = gpu,
                    .ctx = ctx,
                    .tokens = tokens,
                    .index = index,
                    .linear = s24i_block_product(&gpu->model->blocks[block], index),
                    .o = operands_of(gpu, tokens, block, index, folded),
                    .choice = &gpu->choices[s24i_gpu_octave(tokens)][index],
                    .folded = folded && (index >= S24I_PRODUCT_ATTENTION || block)};
}

/* Plans the products with or without norms in them, and leaves the session so. *done: there is a tile
   for each. */
static s24_status plan_products(int *done, s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                int folded, s24i_gpu_rivals *rivals)
{
    gpu->folded[s24i_gpu_octave(tokens)] = folded;
    *done = 1;
    for (int i = 0; i < S24I_PRODUCTS && *done; i++) {
        search s = search_of(gpu, ctx, tokens, i, folded);
        s.rivals = rivals;
        *s.choice = (s24i_gpu_choice){0};
        TRY(plan_product(&s));
        *done = !s.folded || !s.linear->packed || s.choice->tile;
    }
    return S24_OK;
}

/* Between tiles that are about as fast alone the whole pass decides. */
static s24_status settle_tiles(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                               const s24i_gpu_rivals *rivals)
{
    const int folded = gpu->folded[s24i_gpu_octave(tokens)];
    for (int i = 0; i < S24I_PRODUCTS; i++) {
        const search s = search_of(gpu, ctx, tokens, i, folded);
        if (!rivals->tile[i][0] || s.choice->dense || s.choice->narrow) continue;
        TRY(s24i_gpu_settle_tile(gpu, ctx, tokens, i, rivals->tile[i]));
        TRY(take_note(&s));
    }
    return S24_OK;
}

static const char *const NORMS_IN = "in products", *const NORMS_APART = "apart";

s24_status s24i_gpu_plan(s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens)
{
    const s24i_shape *s = &gpu->model->shape;
    const int octave = s24i_gpu_octave(tokens);
    s24i_gpu_choice folded[S24I_PRODUCTS];
    s24i_gpu_rivals rivals[2] = {{{{NULL}}}}; /* of the plan with norms apart, and in products */
    note_key key;
    int can = 0, done;
    if (gpu->planned[octave] || !s->layers) return S24_OK;
    snprintf(key.text, sizeof key.text, "%s %lldx%lldx%lld norms",
             s24_dtype_name(gpu->model->dtype), 1ll << octave, (long long)s->width,
             (long long)s->intermediate);
    const char *noted = s24_device_noted(gpu->device, key.text);
    const int in = noted && strcmp(noted, NORMS_IN) == 0,
              apart = noted && strcmp(noted, NORMS_APART) == 0;
    if (gpu->terms && !apart) TRY(plan_products(&can, gpu, ctx, tokens, 1, &rivals[1]));
    if (can) memcpy(folded, gpu->choices[octave], sizeof folded);
    if (!can || !in) TRY(plan_products(&done, gpu, ctx, tokens, 0, &rivals[0]));
    if (can && !in) {
        TRY(s24i_gpu_compare_plans(gpu, ctx, tokens, folded));
        TRY(s24_device_note(ctx, gpu->device, key.text,
                            gpu->folded[octave] ? NORMS_IN : NORMS_APART));
    }
    TRY(settle_tiles(gpu, ctx, tokens, &rivals[gpu->folded[octave]]));
    gpu->planned[octave] = 1;
    return S24_OK;
}

int64_t s24i_gpu_sparse_layers(const s24i_gpu_session *gpu, int64_t tokens)
{
    const s24i_gpu_choice *choices = gpu->choices[s24i_gpu_octave(tokens)];
    int64_t count = 0;
    for (int64_t b = 0; b < gpu->model->shape.layers; b++) {
        const s24i_block *block = &gpu->model->blocks[b];
        for (int i = 0; i < S24I_PRODUCTS; i++)
            if (s24i_block_product(block, i)->packed &&
                !(choices[i].dense && dense_copy(gpu, i, b)))
                count += s24i_product_layers(gpu->model, b, i);
    }
    return count;
}
