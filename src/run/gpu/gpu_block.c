// SPDX-License-Identifier: Apache-2.0
/*
 * A pass through a model's blocks on a device: the walk over their steps that a session runs and
 * captures and whose time decides between plans (gpu_plan.c).
 *
 * hidden [tokens, width] holds the sums, q, k and v stand side by side in qkv. Rules over steps:
 *  - a product that adds to the sums leaves what it adds in qkv, and the norm that follows adds it,
 *    which is the last one of all where the next block's first would be;
 *  - the embeddings' kernel runs the norm that the first block starts with (gpu_embed.c);
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

/* The first product that runs after the walk's step, or index S24I_PRODUCTS: there is none, or
   experts or latents come before it. */
typedef struct reader {
    int64_t block;
    int index;
} reader;

static reader reader_of(const walk *w)
{
    int step = w->step;
    for (int64_t b = w->block; b < w->gpu->model->shape.layers; b++, step = 0) {
        const s24i_steps *steps = s24i_gpu_steps_of(w->gpu, b);
        for (; step < steps->count; step++) {
            const s24i_step_kind kind = steps->step[step].kind;
            if (kind == S24I_STEP_EXPERTS || kind == S24I_STEP_LATENT)
                return (reader){0, S24I_PRODUCTS};
            if (kind == S24I_STEP_PRODUCT) return (reader){b, (int)steps->step[step].slot};
        }
    }
    return (reader){0, S24I_PRODUCTS};
}

static const s24i_block_step *step_of(const walk *w)
{
    return &s24i_gpu_steps_of(w->gpu, w->block)->step[w->step];
}

/* What the kernel of norms does in every case. */
static s24_device_norm_args norm_args(const walk *w, const s24i_layer_norm *norm)
{
    return s24i_gpu_norm_args(w->gpu, norm);
}

static int reads_eight(const walk *w, reader r)
{
    return s24i_gpu_reads_eight(w->gpu, w->shape->tokens, r.block, r.index);
}

/* The norm writes 8 bits too, if what reads it wants them. */
static void narrow_norm(const walk *w, s24_device_norm_args *args, const s24_dense *eight)
{
    const reader r = reader_of(w);
    s24i_gpu_narrow_norm(args, w->gpu, w->shape->tokens, r.block, r.index, eight);
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
    if (s24i_gpu_norms_rows(gpu->model->architecture, &gpu->model->shape))
        return s24i_gpu_row_norm(gpu, w->ctx, tokens, number, &(s24i_gpu_norming){pending, reads});
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
    const s24i_block_step *step = step_of(w);
    const int taken_in =
        s24i_gpu_folds(w->gpu, w->shape->tokens) || s24i_gpu_joins(w->gpu, w->shape->tokens);
    if (step->from == S24I_AT_NORMED) return S24_OK; /* the step that adds it does it */
    if (taken_in && reader_of(w).index < S24I_PRODUCTS) return S24_OK;
    return run_norm(w, 2 * w->block + step->norm, step->to == S24I_AT_NORMED);
}

static s24_status product_step(walk *w)
{
    const s24i_block_step *step = step_of(w);
    const int64_t tokens = w->shape->tokens;
    if (step->adds && w->pending) /* both halves of a block add, side by side */
        TRY(s24i_gpu_add(w->gpu, w->ctx, tokens, S24I_GPU_NO_NORM));
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (s24i_gpu_is_of(w->gpu, w->block, step->slot, i))
            TRY(s24i_gpu_product(w->gpu, w->ctx, tokens, w->block, i));
    if (step->adds) w->pending = !s24i_gpu_folds(w->gpu, tokens) && !s24i_gpu_joins(w->gpu, tokens);
    if (step->slot != S24I_INTERMEDIATE || !s24i_gpu_activates_aside(&w->gpu->model->shape))
        return S24_OK;
    return s24i_gpu_activate_outer(w->gpu, w->ctx, tokens);
}

/* What a product left in qkv has a norm of its own, which adds it, or is multiplied before the next
   norm adds it. */
static s24_status add_step(walk *w)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24i_shape *s = &gpu->model->shape;
    const s24i_block *b = &gpu->model->blocks[w->block];
    const int is_output = step_of(w)->slot == S24I_OUTPUT;
    if (gpu->model->architecture->after_attention_norm)
        return s24i_gpu_add(gpu, w->ctx, w->shape->tokens,
                            2 * (s->layers + w->block) + 1 + is_output);
    const float *columns = is_output ? b->output_scale : b->attention_scale;
    const s24_device_scale_args args = {.size = sizeof args,
                                        .dtype = gpu->model->dtype,
                                        .rows = w->shape->tokens,
                                        .width = s->width,
                                        .x = gpu->qkv,
                                        .columns = s24i_on_device(gpu->model, columns),
                                        .factor = s->residual_factor,
                                        .stream = gpu->stream};
    w->pending = 1;
    return s24_device_scale(w->ctx, gpu->device, &args);
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
    const s24i_architecture *a = w->gpu->model->architecture;
    if (w->shape->cached == S24I_GPU_STEP && !a->wide_norms && !a->norms_turned)
        return S24_OK; /* attention does it */
    return s24i_gpu_norm_heads(w->gpu, w->ctx, w->shape->tokens, w->block);
}

static s24_status rotate_step(walk *w)
{
    const s24i_shape *s = &w->gpu->model->shape;
    const int later = w->shape->cached == S24I_GPU_STEP &&
                      !w->gpu->model->architecture->norms_turned; /* attention does it */
    if (later || !s24i_block_turns(s, w->block)) return S24_OK;
    return s24i_gpu_rotate_heads(w->gpu, w->ctx, w->shape, w->block);
}

static s24_status gate_step(walk *w)
{
    if (s24i_gpu_joins(w->gpu, w->shape->tokens)) return S24_OK;
    return s24i_gpu_gate(w->gpu, w->ctx, w->shape->tokens);
}

/* Heads of latents: their products, a norm after each that makes any, and side by side. */
static s24_status latent_step(walk *w)
{
    const s24i_gpu_session *gpu = w->gpu;
    const int64_t tokens = w->shape->tokens;
    if (gpu->model->shape.latent.queries) {
        TRY(s24i_gpu_product(gpu, w->ctx, tokens, w->block, S24I_PRODUCT_LATENT));
        TRY(s24i_gpu_norm_latents(gpu, w->ctx, tokens, w->block, 0));
    }
    TRY(s24i_gpu_product(gpu, w->ctx, tokens, w->block, S24I_QUERY));
    TRY(s24i_gpu_product(gpu, w->ctx, tokens, w->block, S24I_KEY));
    TRY(s24i_gpu_norm_latents(gpu, w->ctx, tokens, w->block, 1));
    TRY(s24i_gpu_product(gpu, w->ctx, tokens, w->block, S24I_VALUE));
    return s24i_gpu_spread_latents(gpu, w->ctx, w->shape);
}

/* Attention leaves of each head what is a value's. */
static s24_status values_step(walk *w)
{
    (void)w;
    return S24_OK;
}

/* What experts give waits in qkv as what a product gives does. */
static s24_status experts_step(walk *w)
{
    const s24i_gpu_session *gpu = w->gpu;
    const s24i_block_step *step = step_of(w);
    const void *normed = gpu->normed ? gpu->normed : gpu->context;
    if (step->adds && w->pending)
        TRY(s24i_gpu_add(gpu, w->ctx, w->shape->tokens, S24I_GPU_NO_NORM));
    TRY(s24i_gpu_mix_experts(gpu, w->ctx, w->shape->tokens, w->block,
                             step->from == S24I_AT_NORMED ? normed : gpu->hidden));
    w->pending = step->adds;
    return S24_OK;
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

/* ---- the whole ------------------------------------------------------------------------------- */

typedef s24_status step_kernel(walk *w);

static step_kernel *const kernels[S24I_STEP_KINDS] = {[S24I_STEP_NORM] = norm_step,
                                                      [S24I_STEP_PRODUCT] = product_step,
                                                      [S24I_STEP_HEAD_NORM] = head_norm_step,
                                                      [S24I_STEP_ROTATE] = rotate_step,
                                                      [S24I_STEP_ATTEND] = attend_step,
                                                      [S24I_STEP_ATTEND_NEAR] = attend_step,
                                                      [S24I_STEP_ATTEND_DISTANCE] = attend_step,
                                                      [S24I_STEP_ATTEND_APART] = attend_step,
                                                      [S24I_STEP_ATTEND_SINKS] = attend_step,
                                                      [S24I_STEP_LATENT] = latent_step,
                                                      [S24I_STEP_VALUES] = values_step,
                                                      [S24I_STEP_ADD] = add_step,
                                                      [S24I_STEP_GATE] = gate_step,
                                                      [S24I_STEP_EXPERTS] = experts_step,
                                                      [S24I_STEP_SUM] = sum_step};

s24_status s24i_gpu_encode(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *shape)
{
    walk w = {.gpu = gpu, .ctx = ctx, .shape = shape};
    TRY(s24i_gpu_embed_batch(gpu, ctx, shape));
    w.step = s24i_gpu_embeds_norm(gpu);
    for (; w.block < gpu->model->shape.layers; w.block++, w.step = 0)
        for (; w.step < s24i_gpu_steps_of(gpu, w.block)->count; w.step++)
            TRY(kernels[step_of(&w)->kind](&w));
    const int in_sums = gpu->model->architecture->after_attention_norm != NULL;
    if (!w.pending && !in_sums && !s24i_gpu_joins(gpu, shape->tokens)) return S24_OK;
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
    enum { MOST_WIDTH = S24I_GPU_NORM_WIDTH };
    if (shape->grid) TRY(check_grid(ctx, device, shape));
    REQUIRE(ctx, shape->width <= MOST_WIDTH && shape->intermediate % 8 == 0, S24_ERROR_UNSUPPORTED,
            "a model %lld wide with %lld intermediate outputs; a device takes widths up to %d and "
            "multiples of 8",
            (long long)shape->width, (long long)shape->intermediate, MOST_WIDTH);
    return S24_OK;
}

/* What of a model these kernels carry out. Scores grow by distances where texts do not go on. */
static unsigned parts_there(const s24i_architecture *architecture)
{
    static const s24i_part of_all[] = {
        S24I_PART_GROWN_NORMS,  S24I_PART_SHARED,      S24I_PART_GATE_LAST,
        S24I_PART_IMAGES,       S24I_PART_MASKED,      S24I_PART_QUICK,
        S24I_PART_SCALE,        S24I_PART_TURNED,      S24I_PART_ADJACENT,
        S24I_PART_FACTORS,      S24I_PART_CAPS,        S24I_PART_WIDE_NORMS,
        S24I_PART_TWO_TURNS,    S24I_PART_AFTER_NORMS, S24I_PART_SIDE_BY_SIDE,
        S24I_PART_NORMS_TURNED, S24I_PART_HEAD_BY_HEAD};
    static const s24i_part of_encoders[] = {S24I_PART_SLOPES, S24I_PART_TABLES};
    unsigned parts = 0;
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all; i++)
        parts |= 1u << of_all[i];
    for (size_t i = 0; !architecture->causal && i < sizeof of_encoders / sizeof *of_encoders; i++)
        parts |= 1u << of_encoders[i];
    return parts;
}

s24_status s24i_gpu_check(s24_ctx *ctx, const s24_model_opts *opts,
                          const s24i_architecture *architecture, const s24i_shape *shape)
{
    unsigned has = 0;
    for (int kind = 0; kind < S24I_STEP_KINDS; kind++)
        has |= kernels[kind] ? 1u << kind : 0;
    TRY(s24i_steps_require(ctx, architecture, has, "a device"));
    TRY(s24i_parts_require(ctx, architecture, shape, parts_there(architecture), "a device"));
    TRY(s24i_gpu_experts_check(ctx, opts, shape));
    TRY(s24i_gpu_latent_check(ctx, shape));
    REQUIRE(ctx, s24i_embedding_width(shape) % 8 == 0, S24_ERROR_UNSUPPORTED,
            "embeddings of %lld elements; a device takes multiples of 8",
            (long long)s24i_embedding_width(shape));
    if (s24i_gpu_attends_as_language(architecture, shape) ||
        s24i_gpu_norms_rows(architecture, shape))
        return s24i_gpu_language_check(ctx, architecture, shape);
    return check_encoder(ctx, opts->device, shape);
}
