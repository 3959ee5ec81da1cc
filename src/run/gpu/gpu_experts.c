// SPDX-License-Identifier: Apache-2.0
/*
 * The step of a mixture of experts on a device. A router's kernels choose, and where many tokens
 * meet they gather each expert's; experts' weights are found by a table of where these lie, so that
 * nothing waits for what was chosen and a pass is one graph. The expert that all tokens take is two
 * products like any other's. A session takes a bounded number of a pass's tokens at a time.
 */
#include <string.h>

#include "run/gpu/gpu_state.h"

enum { ROUTED = 2048 };

/* A block's, where it has experts. */
typedef struct gpu_mixed {
    s24_device_experts *up, *down; /* gates and intermediate layers, outputs */
    /* As the file has them, in f32; biases of gates and intermediate layers, and of outputs. */
    float *router, *router_bias, *correction, *gate, *biases[2];
} gpu_mixed;

struct s24i_gpu_experts {
    int64_t tokens; /* at a time */
    gpu_mixed *blocks;
    float *scores, *weights;
    int32_t *chosen, *order, *begins;
    void *outer, *gated, *results; /* [tokens · used, …]: two layers, their product, the last */
    void *shared;                  /* [tokens, width] of the one that all take; or NULL */
};

/* ---- create and destroy ---------------------------------------------------------------------- */

static s24_status reserve(void **out, const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t count,
                          size_t each)
{
    return s24_device_alloc(out, ctx, gpu->device, (size_t)count * each, gpu->stream);
}

static s24_status upload(float **out, const s24i_gpu_session *gpu, s24_ctx *ctx, const float *from,
                         int64_t count)
{
    void *memory;
    if (!from) return S24_OK;
    TRY(reserve(&memory, gpu, ctx, count, sizeof *from));
    *out = memory;
    return s24_device_copy(ctx, gpu->device, memory, from, (size_t)count * sizeof *from,
                           gpu->stream);
}

/* Where the weight of an expert's layer lies. */
static s24_device_expert place_of(const s24i_linear *l)
{
    const s24i_weight *packed = l->weight[S24I_WAY_SPARSE], *dense = l->weight[S24I_WAY_DENSE];
    if (packed) return (s24_device_expert){.packed = s24i_weight_on_device(packed)->packed};
    return (s24_device_expert){.dense = dense ? s24i_weight_on_device(dense)->dense : NULL};
}

/* The table of all experts' layers of one kind, or of two. */
static s24_status make_table(s24_device_experts **out, const s24i_gpu_session *gpu, s24_ctx *ctx,
                             const s24i_block *block, const s24i_slot *kinds, int64_t parts)
{
    const int64_t experts = gpu->model->shape.mixture.experts;
    const s24i_linear *first = s24i_block_product(block, (int)s24i_slot_of(0, kinds[0]));
    const s24_device_experts_shape shape = {gpu->model->dtype, first->n, first->k, experts, parts};
    s24_device_expert *places;
    TRY(s24i_alloc_elems(&places, ctx, experts * parts, sizeof *places, "a table of experts"));
    for (int64_t i = 0; i < experts * parts; i++)
        places[i] =
            place_of(s24i_block_product(block, (int)s24i_slot_of(i % experts, kinds[i / experts])));
    const s24_status status = s24_device_experts_create(out, ctx, gpu->device, places, &shape);
    s24_ctx_free(ctx, places);
    return status;
}

static s24_status fill_block(gpu_mixed *to, const s24i_gpu_session *gpu, s24_ctx *ctx,
                             const s24i_block *block)
{
    static const s24i_slot up[] = {S24I_GATE, S24I_INTERMEDIATE}, down[] = {S24I_OUTPUT};
    const s24i_shape *s = &gpu->model->shape;
    const int joint = s->joint_gate;
    TRY(make_table(&to->up, gpu, ctx, block, up + joint, 2 - joint));
    TRY(make_table(&to->down, gpu, ctx, block, down, 1));
    TRY(upload(&to->router, gpu, ctx, block->router, s->mixture.experts * s->width));
    TRY(upload(&to->correction, gpu, ctx, block->correction, s->mixture.experts));
    TRY(upload(&to->router_bias, gpu, ctx, block->router_bias, s->mixture.experts));
    for (int i = 0; i < 2; i++)
        TRY(upload(&to->biases[i], gpu, ctx, block->expert_bias[i],
                   s->mixture.experts * (i ? s->width : (1 + joint) * s->mixture.width)));
    return upload(&to->gate, gpu, ctx, block->shared_gate, s->width);
}

static s24_status fill(s24i_gpu_experts *e, const s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_mixture *m = &s->mixture;
    const int64_t tokens = e->tokens, rows = tokens * m->used, kept = s->layers;
    const int64_t inner = s24i_max(rows * m->width, tokens * m->shared_width);
    void *memory;
    TRY(s24i_alloc_elems(&e->blocks, ctx, kept, sizeof *e->blocks, "experts"));
    memset(e->blocks, 0, (size_t)kept * sizeof *e->blocks);
    for (int64_t b = 0; b < kept; b++)
        if (s24i_mixture_has(m, b))
            TRY(fill_block(&e->blocks[b], gpu, ctx, &gpu->model->blocks[b]));
    TRY(reserve(&memory, gpu, ctx, tokens * (m->experts + 1), sizeof(float)));
    e->scores = memory;
    TRY(reserve(&memory, gpu, ctx, tokens * (m->used + 1), sizeof(float)));
    e->weights = memory;
    TRY(reserve(&memory, gpu, ctx, rows, sizeof(int32_t)));
    e->chosen = memory;
    TRY(reserve(&memory, gpu, ctx, rows, sizeof(int32_t)));
    e->order = memory;
    TRY(reserve(&memory, gpu, ctx, m->experts + 1, sizeof(int32_t)));
    e->begins = memory;
    TRY(reserve(&e->outer, gpu, ctx, 2 * inner, S24I_GPU_ELEMENT));
    TRY(reserve(&e->gated, gpu, ctx, inner, S24I_GPU_ELEMENT));
    TRY(reserve(&e->results, gpu, ctx, rows * s->width, S24I_GPU_ELEMENT));
    if (m->shared_width) TRY(reserve(&e->shared, gpu, ctx, tokens * s->width, S24I_GPU_ELEMENT));
    return s24_device_wait(ctx, gpu->device, gpu->stream); /* floats are read till then */
}

s24_status s24i_gpu_experts_create(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    if (!gpu->model->shape.mixture.experts) return S24_OK;
    TRY(s24i_alloc_elems(&gpu->experts, ctx, 1, sizeof *gpu->experts, "a session's experts"));
    memset(gpu->experts, 0, sizeof *gpu->experts);
    gpu->experts->tokens = s24i_min(gpu->max_tokens, ROUTED);
    return fill(gpu->experts, gpu, ctx);
}

static void release(const s24i_gpu_session *gpu, void *memory)
{
    if (memory) (void)s24_device_free(gpu->ctx, gpu->device, memory, gpu->stream);
}

void s24i_gpu_experts_destroy(s24i_gpu_session *gpu)
{
    s24i_gpu_experts *e = gpu->experts;
    if (!e) return;
    for (int64_t b = 0; e->blocks && b < gpu->model->shape.layers; b++) {
        gpu_mixed *block = &e->blocks[b];
        s24_device_experts_destroy(block->up);
        s24_device_experts_destroy(block->down);
        float *const floats[] = {block->router, block->router_bias, block->correction,
                                 block->gate,   block->biases[0],   block->biases[1]};
        for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
            release(gpu, floats[i]);
    }
    void *const buffers[] = {e->scores, e->weights, e->chosen,  e->order, e->begins,
                             e->outer,  e->gated,   e->results, e->shared};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        release(gpu, buffers[i]);
    s24_ctx_free(gpu->ctx, e->blocks);
    s24_ctx_free(gpu->ctx, e);
    gpu->experts = NULL;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Some of a pass's tokens. */
typedef struct mixing {
    const s24i_gpu_session *gpu;
    s24_ctx *ctx;
    int64_t block, tokens;
    const void *x; /* [tokens, width] */
    int together;  /* experts' tokens are gathered; else each goes by itself */
} mixing;

/* Of few rows the experts are mostly different ones. */
static int are_many(const s24i_mixture *m, int64_t tokens)
{
    return tokens > 1 && 2 * tokens * m->used > m->experts;
}

static s24_status route(const mixing *j)
{
    const s24_model *model = j->gpu->model;
    const s24i_gpu_experts *e = j->gpu->experts;
    const s24i_mixture *m = &model->shape.mixture;
    const gpu_mixed *block = &e->blocks[j->block];
    const s24_device_route_args args = {.size = sizeof args,
                                        .dtype = model->dtype,
                                        .tokens = j->tokens,
                                        .width = model->shape.width,
                                        .experts = m->experts,
                                        .used = m->used,
                                        .x = j->x,
                                        .router = block->router,
                                        .correction = block->correction,
                                        .gate = block->gate,
                                        .sigmoid = model->architecture->mixture->sigmoid,
                                        .normalised = m->normalised,
                                        .factor = m->factor > 0.0f ? m->factor : 1.0f,
                                        .jitter = m->jitter,
                                        .scores = e->scores,
                                        .chosen = e->chosen,
                                        .weights = e->weights,
                                        .order = j->together ? e->order : NULL,
                                        .begins = j->together ? e->begins : NULL,
                                        .stream = j->gpu->stream,
                                        .bias = block->router_bias,
                                        .groups = m->groups,
                                        .groups_used = m->groups_used};
    return s24_device_route(j->ctx, j->gpu->device, &args);
}

/* y[rows] of experts' layers, of outputs or those before; each: rows of a row of x. */
static s24_status multiply(const mixing *j, int is_down, void *y, const void *x, int64_t each)
{
    const s24i_gpu_experts *e = j->gpu->experts;
    const gpu_mixed *block = &e->blocks[j->block];
    const s24_device_experts_args args = {.size = sizeof args,
                                          .experts = is_down ? block->down : block->up,
                                          .rows = j->tokens * j->gpu->model->shape.mixture.used,
                                          .each = each,
                                          .x = x,
                                          .y = y,
                                          .chosen = e->chosen,
                                          .order = j->together ? e->order : NULL,
                                          .begins = j->together ? e->begins : NULL,
                                          .stream = j->gpu->stream,
                                          .bias = block->biases[is_down]};
    return s24_device_experts_multiply(j->ctx, j->gpu->device, &args);
}

/* gated = activation(gate) · intermediate, both in outer. */
static s24_status gate(const mixing *j, int64_t rows, int64_t width)
{
    const s24i_shape *s = &j->gpu->model->shape;
    const s24_device_train_activate_args args = {.size = sizeof args,
                                                 .dtype = j->gpu->model->dtype,
                                                 .rows = rows,
                                                 .width = width,
                                                 .h = j->gpu->experts->gated,
                                                 .u = j->gpu->experts->outer,
                                                 .activation = s->activation,
                                                 .squared = s->squared,
                                                 .gated = 1,
                                                 .gate_last =
                                                     j->gpu->model->architecture->gate_last,
                                                 .stream = j->gpu->stream,
                                                 .limit = s->gate_limit};
    return s24_device_train_activate(j->ctx, j->gpu->device, &args);
}

/* A layer of the expert that all tokens take, its outputs from column `first` of rows of ld. */
static s24_status shared_layer(const mixing *j, s24i_slot kind, const s24_dense *y, const void *x)
{
    const s24i_gpu_session *gpu = j->gpu;
    const int64_t number = gpu->model->shape.mixture.experts;
    const s24i_linear *l =
        s24i_block_product(&gpu->model->blocks[j->block], (int)s24i_slot_of(number, kind));
    const s24_dense from = s24i_gpu_view(gpu, (void *)(uintptr_t)x, j->tokens, l->k);
    const s24i_gpu_operands o = {.y = *y, .x = from};
    const s24i_way way = l->weight[S24I_WAY_SPARSE] ? S24I_WAY_SPARSE : S24I_WAY_DENSE;
    const s24i_product_job p = s24i_gpu_product_of(gpu, l, &o, way);
    return s24i_weight_run(l->weight[way], j->ctx, &p);
}

static s24_status run_shared(const mixing *j)
{
    const s24i_gpu_session *gpu = j->gpu;
    const s24i_gpu_experts *e = gpu->experts;
    const s24i_shape *s = &gpu->model->shape;
    const int64_t inner = s->mixture.shared_width, both = 2 * inner;
    char *outer = e->outer;
    const s24_dense gates = {outer, gpu->model->dtype, j->tokens, inner, both};
    const s24_dense up = {outer + (s->joint_gate ? 0 : S24I_GPU_ELEMENT * inner), gpu->model->dtype,
                          j->tokens, s->joint_gate ? both : inner, both};
    const s24_dense y = s24i_gpu_view(gpu, e->shared, j->tokens, s->width);
    if (!s->joint_gate) TRY(shared_layer(j, S24I_GATE, &gates, j->x));
    TRY(shared_layer(j, S24I_INTERMEDIATE, &up, j->x));
    TRY(gate(j, j->tokens, inner));
    return shared_layer(j, S24I_OUTPUT, &y, e->gated);
}

static s24_status mix(const mixing *j, void *y)
{
    const s24i_gpu_experts *e = j->gpu->experts;
    const s24i_shape *s = &j->gpu->model->shape;
    const s24_device_mix_args args = {.size = sizeof args,
                                      .dtype = j->gpu->model->dtype,
                                      .tokens = j->tokens,
                                      .width = s->width,
                                      .used = s->mixture.used,
                                      .x = e->results,
                                      .shared = e->shared,
                                      .weights = e->weights,
                                      .y = y,
                                      .stream = j->gpu->stream};
    return s24_device_mix(j->ctx, j->gpu->device, &args);
}

static s24_status run_some(const mixing *j, void *y)
{
    const s24i_gpu_experts *e = j->gpu->experts;
    const s24i_mixture *m = &j->gpu->model->shape.mixture;
    TRY(route(j));
    if (m->shared_width) TRY(run_shared(j));
    TRY(multiply(j, 0, e->outer, j->x, m->used));
    TRY(gate(j, j->tokens * m->used, m->width));
    TRY(multiply(j, 1, e->results, e->gated, 1));
    return mix(j, y);
}

s24_status s24i_gpu_mix_experts(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                int64_t block, const void *x)
{
    const s24i_shape *s = &gpu->model->shape;
    for (int64_t first = 0; first < tokens; first += gpu->experts->tokens) {
        const int64_t some = s24i_min(gpu->experts->tokens, tokens - first);
        const size_t at = (size_t)(S24I_GPU_ELEMENT * first * s->width);
        const mixing job = {
            gpu, ctx, block, some, (const char *)x + at, are_many(&s->mixture, some)};
        TRY(run_some(&job, (char *)gpu->qkv + at));
    }
    return S24_OK;
}

/* ---- what a device takes --------------------------------------------------------------------- */

s24_status s24i_gpu_experts_check(s24_ctx *ctx, const s24_model_opts *opts, const s24i_shape *shape)
{
    const s24i_mixture *m = &shape->mixture;
    if (!m->experts) return S24_OK;
    REQUIRE(ctx, !opts->quantize, S24_ERROR_UNSUPPORTED,
            "experts in %s; a device takes experts of f16 and bf16", opts->quantize);
    REQUIRE(
        ctx, m->width % 8 == 0 && m->shared_width % 8 == 0, S24_ERROR_UNSUPPORTED,
        "experts of %lld outputs, and %lld of one for all tokens; a device takes multiples of 8",
        (long long)m->width, (long long)m->shared_width);
    return S24_OK;
}
