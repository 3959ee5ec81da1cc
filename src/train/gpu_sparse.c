// SPDX-License-Identifier: Apache-2.0
/*
 * 2:4 layers whose zeros stay, on a device: forward products read a packed copy of the weights, and
 * where these are 2:4 along n too, dX reads a packed transpose. Both are made anew before the first
 * product after the weights have changed. Of a block's four layers each is measured once, packing
 * counted, and what is not faster 2:4 stays dense. The choice is part of a checkpoint, because it
 * decides about bits, and so it is made when a run begins, though its first steps may be dense.
 */
#include "train/gpu.h"

#include "io/file/io.h"

enum { TURNS = 3, RUNS = 8 };
/* 2:4 must be faster by more than measuring errs. */
static const double MARGIN = 0.97;

/* What of a layer runs 2:4: two bits a kind of layer in a plan. */
enum { DENSE = 0, FORWARD = 1, BOTH = 3 };

/* ---- products -------------------------------------------------------------------------------- */

static s24_dense weight_view(const s24i_machine *m, const s24i_layer *l)
{
    return (s24_dense){s24i_gpu_narrow(m, l->w), m->gpu->dtype, l->n, l->k, l->k};
}

static s24_status multiply(const s24i_machine *m, const s24_device_weight *w, const s24_dense *y,
                           const s24_dense *x, const void *bias)
{
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = y,
                                         .x = x,
                                         .bias = bias,
                                         .work = m->gpu->sparse_work,
                                         .work_bytes = m->gpu->sparse_work_bytes};
    return s24_device_linear(m->ctx, m->gpu->device, w, &args);
}

static s24_status pack(const s24i_machine *m, const s24i_gpu_pair *pair, const s24_dense *w,
                       int both)
{
    return s24_device_weight_update(m->ctx, pair->weight, both ? pair->transposed : NULL, w, NULL,
                                    NULL);
}

/* All layers that are used so, once more, if the weights have changed. */
static void pack_all(s24i_machine *m)
{
    if (m->gpu->packed) return;
    m->gpu->packed = 1;
    s24i_gpu_lap(m, 1);
    for (int64_t i = 0; i < m->gpu->pair_count; i++) {
        const s24i_gpu_pair *pair = &m->gpu->pairs[i];
        const s24_dense w = weight_view(m, pair->layer);
        if (pair->forward && !pair->fp8 && m->status == S24_OK)
            s24i_gpu_did(m, pack(m, pair, &w, pair->backward));
    }
    s24i_gpu_lap(m, 0);
}

int s24i_gpu_sparse_linear(s24i_machine *m, const s24_dense *y, const s24_dense *x,
                           const s24i_layer *l, const void *bias)
{
    const s24i_gpu_pair *pair = l->device;
    if (!pair || !pair->forward || pair->fp8) return 0; /* what is held out runs in 16 bits */
    pack_all(m);
    if (m->status == S24_OK) s24i_gpu_did(m, multiply(m, pair->weight, y, x, bias));
    return 1;
}

int s24i_gpu_sparse_dx(s24i_machine *m, const s24_dense *dx, const s24_dense *dy,
                       const s24i_layer *l)
{
    const s24i_gpu_pair *pair = l->device;
    if (!pair || !pair->backward) return 0;
    pack_all(m);
    if (m->status == S24_OK) s24i_gpu_did(m, multiply(m, pair->transposed, dx, dy, NULL));
    return 1;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* One layer's products. */
typedef struct trial {
    s24i_machine *m;
    const s24i_gpu_pair *pair;
    s24_dense w, x, y; /* w: what is packed */
    /* 0 … 5: dense forward and dX, 2:4 forward and dX, packing one, packing both; 6 and 7: dense
       and 2:4 forward of 8 bits, packing included. */
    int what;
} trial;

static s24_status dense_product(const trial *t, int back)
{
    const s24_device_train_product_args args = {.size = sizeof args,
                                                .y = back ? &t->x : &t->y,
                                                .a = back ? &t->y : &t->x,
                                                .b = &t->w,
                                                .transposed_b = !back,
                                                .work = t->m->gpu->work,
                                                .work_bytes = S24_DEVICE_TRAIN_WORK};
    return s24_device_train_product(t->m->ctx, t->m->gpu->device, &args);
}

static s24_status run_trial(const trial *t)
{
    switch (t->what) {
    case 0:
    case 1:
        return dense_product(t, t->what);
    case 2:
        return multiply(t->m, t->pair->weight, &t->y, &t->x, NULL);
    case 3:
        return multiply(t->m, t->pair->transposed, &t->x, &t->y, NULL);
    case 6:
    case 7:
        return s24i_gpu_fp8_trial(t->m, t->pair, &t->y, &t->x, t->what == 7);
    default:
        return pack(t->m, t->pair, &t->w, t->what == 5);
    }
}

/* The least seconds of a run of turns. */
static s24_status time_trial(double *least, const trial *t)
{
    s24_ctx *ctx = t->m->ctx;
    s24_device *device = t->m->gpu->device;
    for (int turn = 0; turn <= TURNS; turn++) { /* the first one warms up */
        double seconds;
        TRY(s24_device_timer_start(ctx, device, NULL));
        for (int i = 0; i < RUNS; i++)
            TRY(run_trial(t));
        TRY(s24_device_timer_stop(&seconds, ctx, device, NULL));
        if (turn == 1 || (turn > 1 && seconds < *least)) *least = seconds;
    }
    return S24_OK;
}

static s24_status choose_fp8(int *choice, trial *t)
{
    double dense, sparse;
    t->what = 6;
    TRY(time_trial(&dense, t));
    t->what = 7;
    TRY(time_trial(&sparse, t));
    *choice = sparse < MARGIN * dense ? FORWARD : DENSE;
    return S24_OK;
}

/* Packing is for all parts of a step, products are each part's. */
static s24_status choose(int *choice, trial *t, int64_t parts)
{
    double seconds[6] = {0};
    const int both = t->pair->transposed != NULL;
    if (t->pair->fp8) return choose_fp8(choice, t);
    for (t->what = 0; t->what < 6; t->what++)
        if (both || (t->what != 3 && t->what != 5)) TRY(time_trial(&seconds[t->what], t));
    const double dense = MARGIN * (seconds[0] + seconds[1]);
    const double forward = seconds[2] + seconds[1] + seconds[4] / (double)parts;
    const double all = seconds[2] + seconds[3] + seconds[5] / (double)parts;
    *choice = forward < dense ? FORWARD : DENSE;
    if (both && all < dense && all < forward) *choice = BOTH;
    return S24_OK;
}

/* A layer of a kind, whose weights are w, on the room of its passes. */
static s24_status measure(int *choice, s24i_machine *m, const s24i_gpu_pair *pair,
                          const s24_dense *w, const s24i_fixed *fixed, int kind)
{
    const int64_t n = w->rows, k = w->cols, tokens = fixed->tokens;
    const s24_dtype dtype = m->gpu->dtype;
    trial t = {.m = m,
               .pair = pair,
               .w = *w,
               .x = {fixed->x[kind], dtype, tokens, k, k},
               .y = {fixed->y[kind], dtype, tokens, n, n}};
    m->ops->clear(m, t.x.data, (size_t)(tokens * k) * m->element);
    m->ops->clear(m, t.y.data, (size_t)(tokens * n) * m->element);
    TRY(m->status);
    return choose(choice, &t, fixed->parts);
}

/* ---- making ---------------------------------------------------------------------------------- */

static int is_other(s24_status status)
{
    return status == S24_ERROR_NOT_TWO_FOUR || status == S24_ERROR_SHAPE;
}

/* The weight of 16 bits says whether it is 2:4. */
static s24_status make_fp8(s24i_gpu_pair *pair, s24i_machine *m, const s24_dense *w)
{
    s24_device_weight *wide;
    const s24_status status =
        s24_device_weight_from_dense(&wide, m->ctx, m->gpu->device, w, NULL, NULL);
    if (status != S24_OK) return is_other(status) ? S24_OK : status;
    s24_device_weight_destroy(wide);
    pair->fp8 = 1;
    return s24i_gpu_fp8_weight(&pair->weight, m, pair->layer);
}

/* Weights that are 2:4 along k get a packed copy, and one of their transpose where they are that
   along n too; others get none. Those that are multiplied in 8 bits have their copies in 8 bits,
   forward alone: dX is of weights in e4m3 and gradients in e5m2, and the 2:4 products are of one
   dtype. */
static s24_status make_pair(s24i_gpu_pair *pair, s24i_machine *m, const s24_dense *w, int both)
{
    s24_device *device = m->gpu->device;
    s24_status status = S24_ERROR_NOT_TWO_FOUR;
    if (s24i_gpu_fp8_may_be(pair->layer)) return make_fp8(pair, m, w);
    if (both)
        status = s24_device_weight_pair_from_dense(&pair->weight, &pair->transposed, m->ctx, device,
                                                   w, NULL, NULL);
    if (is_other(status))
        status = s24_device_weight_from_dense(&pair->weight, m->ctx, device, w, NULL, NULL);
    return is_other(status) ? S24_OK : status;
}

static void free_work(s24i_machine *m)
{
    s24i_gpu *gpu = m->gpu;
    if (gpu->sparse_work) (void)s24_device_free(m->ctx, gpu->device, gpu->sparse_work, NULL);
    gpu->sparse_work = NULL;
    gpu->sparse_work_bytes = 0;
}

/* As much as products with that weight and those before it need. */
static s24_status make_work(s24i_machine *m, const s24_device_weight *weight)
{
    s24i_gpu *gpu = m->gpu;
    const size_t bytes = weight ? s24_device_linear_work_bytes(gpu->device, weight) : 0;
    if (bytes <= gpu->sparse_work_bytes) return S24_OK;
    free_work(m);
    TRY(s24_device_alloc(&gpu->sparse_work, m->ctx, gpu->device, bytes, NULL));
    gpu->sparse_work_bytes = bytes;
    return s24_device_clear(m->ctx, gpu->device, gpu->sparse_work, bytes, NULL);
}

void s24i_gpu_unfix(s24i_machine *m)
{
    s24i_gpu *gpu = m->gpu;
    for (int64_t i = 0; i < gpu->pair_count; i++) {
        s24_device_weight_destroy(gpu->pairs[i].weight);
        s24_device_weight_destroy(gpu->pairs[i].transposed);
        gpu->pairs[i].layer->device = NULL;
    }
    s24_ctx_free(m->ctx, gpu->pairs);
    gpu->pairs = NULL;
    gpu->pair_count = 0;
    free_work(m);
    m->two_four = 0;
}

/* ---- a plan ---------------------------------------------------------------------------------- */

/* A layer as it will be after a dense phase. Its values do not matter: zeros are 2:4. */
static s24_status measure_later(int *choice, s24i_machine *m, const s24i_fixed *fixed, int kind)
{
    s24i_layer *l = fixed->layers[kind];
    s24i_gpu_pair pair = {.layer = l};
    const size_t bytes = (size_t)(l->n * l->k) * m->element;
    s24_dense w = weight_view(m, l);
    if (s24_device_alloc(&w.data, m->ctx, m->gpu->device, bytes, NULL) != S24_OK) return S24_OK;
    s24_status status = s24_device_clear(m->ctx, m->gpu->device, w.data, bytes, NULL);
    if (status == S24_OK) status = make_pair(&pair, m, &w, fixed->becomes == S24I_BECOMES_BOTH);
    if (status == S24_OK) status = make_work(m, pair.weight);
    if (status == S24_OK && pair.weight) status = measure(choice, m, &pair, &w, fixed, kind);
    s24_device_weight_destroy(pair.weight);
    s24_device_weight_destroy(pair.transposed);
    (void)s24_device_free(m->ctx, m->gpu->device, w.data, NULL);
    return status;
}

/* The first 2:4 layer of a kind decides for all of it, or, while none is, what its first one
   becomes. */
static s24_status plan_kind(int64_t *plan, s24i_machine *m, int kind, const s24i_fixed *fixed)
{
    const s24i_gpu *gpu = m->gpu;
    int choice = DENSE;
    int64_t first = kind;
    while (first < gpu->pair_count && !gpu->pairs[first].weight)
        first += S24I_LAYERS_A_BLOCK;
    if (first < gpu->pair_count) {
        const s24_dense w = weight_view(m, gpu->pairs[first].layer);
        TRY(measure(&choice, m, &gpu->pairs[first], &w, fixed, kind));
    } else if (fixed->becomes && kind < gpu->pair_count) {
        TRY(measure_later(&choice, m, fixed, kind));
    }
    *plan |= (int64_t)choice << 2 * kind;
    return S24_OK;
}

static s24_status make_plan(int64_t *plan, s24i_machine *m, const s24i_fixed *fixed)
{
    *plan = 0;
    for (int kind = 0; kind < S24I_LAYERS_A_BLOCK; kind++)
        TRY(plan_kind(plan, m, kind, fixed));
    return S24_OK;
}

static s24_status make_pairs(s24i_machine *m, const s24i_fixed *fixed)
{
    s24i_gpu *gpu = m->gpu;
    TRY(s24i_zeroed(&gpu->pairs, m->ctx, (size_t)fixed->count * sizeof *gpu->pairs));
    gpu->pair_count = fixed->count;
    for (int64_t i = 0; i < fixed->count; i++)
        gpu->pairs[i].layer = fixed->layers[i];
    for (int64_t i = 0; i < fixed->count; i++) {
        const s24_dense w = weight_view(m, fixed->layers[i]);
        TRY(make_pair(&gpu->pairs[i], m, &w, 1));
        TRY(make_work(m, gpu->pairs[i].weight));
    }
    gpu->packed = 0;
    return S24_OK;
}

s24_status s24i_gpu_fix(s24i_machine *m, const s24i_fixed *fixed, int64_t *plan)
{
    s24i_gpu_unfix(m);
    TRY(make_pairs(m, fixed));
    if (*plan == S24I_NO_PLAN) TRY(make_plan(plan, m, fixed));
    for (int64_t i = 0; i < fixed->count; i++) {
        s24i_gpu_pair *pair = &m->gpu->pairs[i];
        const int choice = (int)(*plan >> 2 * (i % S24I_LAYERS_A_BLOCK) & BOTH);
        pair->forward = pair->weight && choice != DENSE;
        pair->backward = pair->transposed && choice == BOTH;
        pair->layer->device = pair;
        m->two_four += pair->forward;
    }
    return S24_OK;
}
