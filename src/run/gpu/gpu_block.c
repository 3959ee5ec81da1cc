// SPDX-License-Identifier: Apache-2.0
/*
 * A pass through a model's blocks on a device: the walk over their steps that a session runs and
 * captures and whose time decides between plans (gpu_plan.c).
 *
 * hidden [tokens, width] holds the sums, q, k and v stand side by side in qkv. Rules over steps:
 *  - a product that adds to the sums leaves what it adds in qkv, and the norm that follows adds it,
 *    which is the last one of all where the next block's first would be;
 *  - the embeddings' kernel runs the norm that the first block starts with;
 *  - a norm whose readers run in 8 bits writes these too, attention and the intermediate product
 *    write them alone (gpu_eight.c);
 *  - where norms are folded into products (gpu_fold.c) only a norm that no product reads is run;
 *  - dense products of few tokens take in norms, gates and the sums (gpu_join.c);
 *  - where ranks hold the model together, what they add in qkv is summed over them before the norm
 *    adds it, in the stream and so in the graph.
 */
#include "comm/transport.h"
#include "model/parts.h"
#include "run/gpu/gpu_state.h"

int s24i_gpu_queries(const s24i_gpu_session *gpu, int64_t tokens)
{
    const s24i_shape *s = &gpu->model->shape;
    if (s24i_gpu_attends_as_language(gpu->model->architecture, s)) return 0;
    return s24_device_attention_queries(gpu->device, tokens, s->width, s->heads);
}

/* ---- the walk -------------------------------------------------------------------------------- */

typedef struct walk {
    const s24i_gpu_session *gpu;
    s24_ctx *ctx;
    const s24i_gpu_shape *shape;
    int64_t block;
    int step;    /* of the block */
    int pending; /* qkv holds what the next norm adds to the sums */
} walk;

/* Does the embeddings' kernel run the first step? */
static int embeds_norm(const s24i_gpu_session *gpu)
{
    return gpu->steps.step[0].kind == S24I_STEP_NORM && !gpu->model->architecture->rms;
}

/* The first product that runs after the walk's step, or index S24I_PRODUCTS: there is none. */
typedef struct reader {
    int64_t block;
    int index;
} reader;

static reader reader_of(const walk *w)
{
    const s24i_steps *steps = &w->gpu->steps;
    int step = w->step;
    for (int64_t b = w->block; b < w->gpu->model->shape.layers; b++, step = 0)
        for (; step < steps->count; step++)
            if (steps->step[step].kind == S24I_STEP_PRODUCT)
                return (reader){b, (int)steps->step[step].slot};
    return (reader){0, S24I_PRODUCTS};
}

/* Do the products of that step want what they read in 8 bits too? */
static int reads_eight(const walk *w, reader r)
{
    if (r.index == S24I_PRODUCTS) return 0;
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (s24i_gpu_is_of(w->gpu, r.block, (s24i_slot)r.index, i) &&
            s24i_gpu_way(w->gpu, w->shape->tokens, r.block, i) == S24I_WAY_EIGHT)
            return 1;
    return 0;
}

/* What the kernel of norms does in every case. */
static s24_device_norm_args norm_args(const walk *w, const s24i_layer_norm *norm)
{
    return (s24_device_norm_args){.size = sizeof(s24_device_norm_args),
                                  .gamma = s24i_on_device(w->gpu->model, norm->gamma),
                                  .beta = s24i_on_device(w->gpu->model, norm->beta),
                                  .eps = norm->eps,
                                  .narrow_scale = w->gpu->eight_scale,
                                  .stream = w->gpu->stream};
}

/* The norm writes 8 bits too, if what reads it wants them. */
static void narrow_norm(const walk *w, s24_device_norm_args *args, const s24_dense *eight)
{
    const reader r = reader_of(w);
    if (!reads_eight(w, r)) return;
    args->narrow = eight;
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (s24i_gpu_is_of(w->gpu, r.block, (s24i_slot)r.index, i) && !(args->narrow_fixed > 0))
            args->narrow_fixed = s24i_gpu_fixed_scale(w->gpu, w->shape->tokens, r.block, i);
}

/* Norm `number` of the sums, before layers or, where norms follow the sums, in their place. */
static s24_status run_norm(walk *w, int64_t number, int before)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24i_layer_norm *norm = s24i_gpu_norm_at(gpu, number);
    const int64_t tokens = w->shape->tokens, width = gpu->model->shape.width;
    const s24_dense hidden = s24i_gpu_view(gpu, gpu->hidden, tokens, width);
    const s24_dense normed = s24i_gpu_view(gpu, gpu->context, tokens, width);
    const s24_dense sum = s24i_gpu_view(gpu, gpu->qkv, tokens, width);
    const s24_dense eight = s24i_gpu_eight_view(gpu, tokens, width);
    const int pending = w->pending, reads = reads_eight(w, reader_of(w));
    w->pending = 0;
    if (gpu->model->architecture->rms)
        return s24i_gpu_rms_norm(gpu, w->ctx, tokens, number, &(s24i_gpu_norming){pending, reads});
    s24_device_norm_args args = norm_args(w, norm);
    if (!before)
        args.y = &hidden;
    else if (norm->gamma)
        args.y = &normed;
    if (before) args.sum = &hidden;
    args.x = pending ? &sum : &hidden;
    if (pending) args.residual = &hidden;
    narrow_norm(w, &args, &eight);
    return s24_device_norm(w->ctx, gpu->device, &args);
}

static s24_status norm_step(walk *w)
{
    const s24i_block_step *step = &w->gpu->steps.step[w->step];
    const int taken_in =
        s24i_gpu_folds(w->gpu, w->shape->tokens) || s24i_gpu_joins(w->gpu, w->shape->tokens);
    if (taken_in && reader_of(w).index < S24I_PRODUCTS) return S24_OK;
    return run_norm(w, 2 * w->block + step->norm, step->to == S24I_AT_NORMED);
}

static s24_status product_step(walk *w)
{
    const s24i_block_step *step = &w->gpu->steps.step[w->step];
    const int64_t tokens = w->shape->tokens;
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (s24i_gpu_is_of(w->gpu, w->block, step->slot, i))
            TRY(s24i_gpu_product(w->gpu, w->ctx, tokens, w->block, i));
    if (step->adds) w->pending = !s24i_gpu_folds(w->gpu, tokens) && !s24i_gpu_joins(w->gpu, tokens);
    return S24_OK;
}

/* Over a grid of tokens, with relative positions. */
static s24_status attend_grid(const walk *w, const s24_dense *context, const s24_dense *qkv)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24i_shape *s = &gpu->model->shape;
    const s24i_block *b = &gpu->model->blocks[w->block];
    const int64_t side = s24i_attended_side(s, w->block);
    const s24_device_attention_grid_args args = {
        .size = sizeof args,
        .context = context,
        .qkv = qkv,
        .heads = s->heads,
        .images = w->shape->texts,
        .grid = s->grid,
        .window = side < s->grid ? side : 0,
        .bias = s24i_on_device(gpu->model, b->bias[S24I_QUERY]),
        .rel_h = s24i_on_device(gpu->model, b->rel_h),
        .rel_w = s24i_on_device(gpu->model, b->rel_w),
        .stream = gpu->stream};
    return s24_device_attention_grid(w->ctx, gpu->device, &args);
}

/* With a cache or without one. */
static s24_status attend_language(const walk *w)
{
    const int64_t cached = w->shape->cached;
    if (cached == S24I_GPU_FIRST || cached == S24I_GPU_MORE)
        TRY(s24i_gpu_cache_put(w->gpu, w->ctx, w->shape, w->block));
    if (cached == S24I_GPU_MORE || cached == S24I_GPU_STEP)
        return s24i_gpu_attend_cache(w->gpu, w->ctx, w->shape, w->block);
    return s24i_gpu_attend_causal(w->gpu, w->ctx, w->shape, w->block);
}

static s24_status attend_step(walk *w)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24i_shape *s = &gpu->model->shape;
    const int64_t tokens = w->shape->tokens;
    const s24i_gpu_places p = s24i_gpu_places_of(w->shape);
    const s24_dense qkv = s24i_gpu_view(gpu, gpu->qkv, tokens, 3 * s->width);
    s24_dense context = s24i_gpu_view(gpu, gpu->context, tokens, s->width);
    const float scale = s24i_gpu_fixed_scale(gpu, tokens, w->block, S24I_PRODUCT_ATTENTION);
    if (scale > 0) context = s24i_gpu_eight_view(gpu, tokens, s->width);
    if (s->grid) return attend_grid(w, &context, &qkv);
    if (s24i_gpu_attends_as_language(gpu->model->architecture, s)) return attend_language(w);
    const s24_device_attention_args args = {.size = sizeof args,
                                            .context = &context,
                                            .qkv = &qkv,
                                            .heads = s->heads,
                                            .offsets = gpu->inputs + p.offsets,
                                            .tiles = gpu->inputs + p.tiles,
                                            .tile_count = w->shape->tiles,
                                            .queries = s24i_gpu_queries(gpu, tokens),
                                            .mask = s24i_gpu_mask(gpu, w->shape),
                                            .stream = gpu->stream,
                                            .context_scale = scale};
    return s24_device_attention(w->ctx, gpu->device, &args);
}

static s24_status head_norm_step(walk *w)
{
    if (w->shape->cached == S24I_GPU_STEP) return S24_OK; /* attention does it */
    return s24i_gpu_norm_heads(w->gpu, w->ctx, w->shape->tokens, w->block);
}

static s24_status rotate_step(walk *w)
{
    const s24i_shape *s = &w->gpu->model->shape;
    if (w->shape->cached == S24I_GPU_STEP || !s24i_block_turns(s, w->block)) return S24_OK;
    return s24i_gpu_rotate_heads(w->gpu, w->ctx, w->shape, w->block);
}

static s24_status gate_step(walk *w)
{
    if (s24i_gpu_joins(w->gpu, w->shape->tokens)) return S24_OK;
    return s24i_gpu_gate(w->gpu, w->ctx, w->shape->tokens);
}

/* Over the ranks that hold the model together, of what waits for the next norm. Who measures plans
   does so alone. */
static s24_status sum_step(walk *w)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24_model *model = gpu->model;
    if (gpu->alone) return S24_OK;
    return s24i_comm_enqueue(w->ctx, model->ranks.comm, gpu->qkv,
                             w->shape->tokens * model->shape.width, model->dtype, gpu->stream);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

/* y = the patches of the images in pixels, through their layer. */
static s24_status embed_patches(const walk *w, const s24_dense *y)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24i_linear *patches = &gpu->model->patches;
    const s24i_patches *p = &gpu->model->patch_map;
    const s24i_gpu_operands o = {.y = *y, .x = s24i_gpu_view(gpu, gpu->outer, y->rows, p->row)};
    const s24_device_unfold_args unfold = {.size = sizeof unfold,
                                           .y = &o.x,
                                           .pixels = gpu->pixels,
                                           .images = w->shape->texts,
                                           .channels = p->channels,
                                           .image = p->image,
                                           .patch = p->patch,
                                           .first = p->first,
                                           .stream = gpu->stream};
    TRY(s24_device_unfold(w->ctx, gpu->device, &unfold));
    const s24i_product_job product = s24i_gpu_product_of(gpu, patches, &o, S24I_WAY_DENSE);
    return s24i_weight_run(patches->weight[S24I_WAY_DENSE], w->ctx, &product);
}

/* hidden becomes the embeddings of the batch and, if the first block starts with a norm, context
   that norm of them; where it has none, the same. */
static s24_status embed(const walk *w)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24_model *model = gpu->model;
    const s24i_gpu_places p = s24i_gpu_places_of(w->shape);
    const int64_t tokens = w->shape->tokens, width = model->shape.width;
    const s24_dense hidden = s24i_gpu_view(gpu, gpu->hidden, tokens, width);
    const s24_dense normed = s24i_gpu_view(gpu, gpu->context, tokens, width);
    const s24_dense patches = s24i_gpu_view(gpu, gpu->qkv, tokens, width);
    const s24_dense eight = s24i_gpu_eight_view(gpu, tokens, width);
    const int bare = embeds_norm(gpu) && !s24i_gpu_norm_at(gpu, 0)->gamma;
    const int before = embeds_norm(gpu) && !bare;
    if (model->architecture->rms) return s24i_gpu_embed_words(gpu, w->ctx, w->shape);
    s24_device_norm_args args =
        norm_args(w, before ? s24i_gpu_norm_at(gpu, 0) : &model->embedding_norm);
    args.y = before ? &normed : &hidden;
    if (before) args.sum = &hidden;
    args.positions = gpu->inputs + p.positions;
    args.position_rows = s24i_on_device(model, model->position_rows);
    narrow_norm(w, &args, &eight);
    if (w->shape->images) {
        TRY(embed_patches(w, &patches));
        args.x = &patches;
    } else {
        args.ids = gpu->inputs + p.ids;
        args.types = w->shape->types ? gpu->inputs + p.types : NULL;
        args.words = model->device_words;
        args.type_rows = s24i_on_device(model, model->type_rows);
    }
    TRY(s24_device_norm(w->ctx, gpu->device, &args));
    if (!bare) return S24_OK;
    return s24_device_copy(w->ctx, gpu->device, normed.data, hidden.data,
                           (size_t)(S24I_GPU_ELEMENT * tokens * width), gpu->stream);
}

/* ---- the whole ------------------------------------------------------------------------------- */

typedef s24_status step_kernel(walk *w);

static step_kernel *const kernels[S24I_STEP_KINDS] = {
    [S24I_STEP_NORM] = norm_step,           [S24I_STEP_PRODUCT] = product_step,
    [S24I_STEP_HEAD_NORM] = head_norm_step, [S24I_STEP_ROTATE] = rotate_step,
    [S24I_STEP_ATTEND] = attend_step,       [S24I_STEP_ATTEND_NEAR] = attend_step,
    [S24I_STEP_GATE] = gate_step,           [S24I_STEP_SUM] = sum_step};

s24_status s24i_gpu_encode(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape)
{
    walk w = {.gpu = gpu, .ctx = ctx, .shape = shape};
    TRY(embed(&w));
    w.step = embeds_norm(gpu);
    for (; w.block < gpu->model->shape.layers; w.block++, w.step = 0)
        for (; w.step < gpu->steps.count; w.step++)
            TRY(kernels[gpu->steps.step[w.step].kind](&w));
    if (!w.pending && !s24i_gpu_joins(gpu, shape->tokens)) return S24_OK;
    return run_norm(&w, 2 * w.block, 1);
}

s24_status s24i_gpu_capture(s24_device_graph **out, const s24i_gpu_session *gpu, s24_ctx *ctx,
                            const s24i_gpu_shape *shape, s24i_gpu_enqueue *enqueue)
{
    s24_device_graph *graph = NULL;
    TRY(s24_device_graph_begin(ctx, gpu->device, gpu->stream));
    s24_status status = enqueue(gpu, ctx, shape);
    const s24_status ended =
        s24_device_graph_end(&graph, status == S24_OK ? ctx : gpu->ctx, gpu->device, gpu->stream);
    if (status == S24_OK) status = ended;
    if (status == S24_OK)
        *out = graph;
    else
        s24_device_graph_destroy(gpu->device, graph);
    return status;
}

/* ---- what a device takes --------------------------------------------------------------------- */

static s24_status check_grid(s24_ctx *ctx, const s24_device *device, const s24i_shape *shape)
{
    for (int64_t b = 0; b < shape->layers; b++) {
        const int64_t side = s24i_attended_side(shape, b);
        REQUIRE(ctx, s24_device_attention_grid_takes(device, shape->width, shape->heads, side),
                S24_ERROR_UNSUPPORTED,
                "block %lld attends over squares of %lld tokens with heads of %lld elements; a "
                "device takes squares of 14 and 64, heads of 64 and 80",
                (long long)b, (long long)side, (long long)(shape->width / shape->heads));
    }
    return S24_OK;
}

static s24_status check_encoder(s24_ctx *ctx, const s24_device *device, const s24i_shape *shape)
{
    enum { MOST_WIDTH = 2048 }; /* of s24_device_norm */
    if (shape->grid) TRY(check_grid(ctx, device, shape));
    REQUIRE(ctx, shape->width <= MOST_WIDTH && shape->intermediate % 8 == 0, S24_ERROR_UNSUPPORTED,
            "a model %lld wide with %lld intermediate outputs; a device takes widths up to %d and "
            "multiples of 8",
            (long long)shape->width, (long long)shape->intermediate, MOST_WIDTH);
    return S24_OK;
}

s24_status s24i_gpu_check(s24_ctx *ctx, const s24_model_opts *opts,
                          const s24i_architecture *architecture, const s24i_shape *shape)
{
    unsigned has = 0;
    for (int kind = 0; kind < S24I_STEP_KINDS; kind++)
        has |= kernels[kind] ? 1u << kind : 0;
    TRY(s24i_steps_require(ctx, architecture, has, "a device"));
    TRY(s24i_parts_require(ctx, architecture, shape, 0, "a device"));
    REQUIRE(ctx, !s24i_projects(shape), S24_ERROR_UNSUPPORTED,
            "embeddings of %lld elements that a layer widens to %lld; a device takes those as wide "
            "as the blocks",
            (long long)shape->embedding, (long long)shape->width);
    REQUIRE(ctx, !shape->squared || shape->gated, S24_ERROR_UNSUPPORTED,
            "the layers of %s end in a squared activation, which a device has for gates alone",
            architecture->model_type);
    if (s24i_gpu_attends_as_language(architecture, shape) || architecture->rms)
        return s24i_gpu_language_check(ctx, architecture, shape);
    return check_encoder(ctx, opts->device, shape);
}
