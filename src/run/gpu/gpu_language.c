// SPDX-License-Identifier: Apache-2.0
/*
 * Steps of language models on a device, with the kernels that training has for them
 * (device_train.h): norms that divide by the root mean square, rotary positions, attention in which
 * no token sees a later one or heads share keys and values, and gates.
 */
#include "run/gpu/gpu_state.h"

#include "device/device_train.h"
#include "model/rotary.h"
#include "run/cpu/kv_cache.h"

s24_status s24i_gpu_language_check(s24_ctx *ctx, const s24i_architecture *architecture,
                                   const s24i_shape *shape)
{
    enum { MOST_HEAD_APART = 128, MOST_HEAD = 256, MOST_NORM = 8192 };
    const int most_head = shape->apart.span ? MOST_HEAD_APART : MOST_HEAD;
    const int most_width = s24i_gpu_norms_rows(architecture, shape) ? 16384 : S24I_GPU_NORM_WIDTH;
    const int64_t d = shape->head_width;
    REQUIRE(ctx, d % 8 == 0 && d <= most_head, S24_ERROR_UNSUPPORTED,
            "attention heads of %lld elements; a device takes multiples of 8 up to %d for %s",
            (long long)d, most_head, architecture->model_type);
    REQUIRE(ctx, !architecture->wide_norms || shape->heads * d <= MOST_NORM, S24_ERROR_UNSUPPORTED,
            "a norm of all heads together, %lld elements; a device takes up to %d for %s",
            (long long)(shape->heads * d), MOST_NORM, architecture->model_type);
    REQUIRE(ctx,
            shape->width <= most_width && shape->width % 8 == 0 && shape->intermediate % 8 == 0,
            S24_ERROR_UNSUPPORTED,
            "a model %lld wide with %lld intermediate outputs; a device takes multiples of 8, and "
            "widths up to %d for %s",
            (long long)shape->width, (long long)shape->intermediate, most_width,
            architecture->model_type);
    return S24_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

const float *s24i_gpu_gamma(const s24i_gpu_session *gpu, int64_t number)
{
    return gpu->gammas + number * gpu->model->shape.width;
}

/* NULL: the norm has none. */
static const float *beta_of(const s24i_gpu_session *gpu, int64_t number)
{
    const int there = gpu->betas && s24i_gpu_norm_at(gpu, number)->beta;
    return there ? gpu->betas + number * gpu->model->shape.width : NULL;
}

/* Norms of heads that a block has, of queries and of keys. */
enum { HEAD_NORMS = 2 };

static int64_t head_norm(const s24i_gpu_session *gpu, int of_keys)
{
    return s24i_head_norm(gpu->model->architecture, &gpu->model->shape, of_keys);
}

const float *s24i_gpu_head_gamma(const s24i_gpu_session *gpu, int64_t block, int of_keys)
{
    const int64_t queries = head_norm(gpu, 0);
    return gpu->head_gammas + block * (queries + head_norm(gpu, 1)) + of_keys * queries;
}

static const s24i_layer_norm *head_norm_at(const s24i_gpu_session *gpu, int64_t block, int of_keys)
{
    const s24i_block *b = &gpu->model->blocks[block];
    return of_keys ? &b->key_norm : &b->query_norm;
}

static s24_status upload_head_gammas(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t block = head_norm(gpu, 0) + head_norm(gpu, 1), rows = gpu->max_tokens * s->heads;
    void *memory;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)(s->layers * block) * sizeof(float),
                         gpu->stream));
    gpu->head_gammas = memory;
    for (int64_t i = 0; i < HEAD_NORMS * s->layers; i++)
        if (head_norm(gpu, (int)(i % 2))) /* there may be no latent queries */
            TRY(s24_device_copy(ctx, gpu->device,
                                (float *)(uintptr_t)s24i_gpu_head_gamma(gpu, i / 2, (int)(i % 2)),
                                head_norm_at(gpu, i / 2, (int)(i % 2))->gamma,
                                (size_t)head_norm(gpu, (int)(i % 2)) * sizeof(float), gpu->stream));
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)rows * 2 * sizeof(float), gpu->stream));
    gpu->stats = memory;
    return S24_OK;
}

/* Gammas or betas of all norms in f32, as those kernels read them. */
static s24_status upload_norms(float **to, const s24i_gpu_session *gpu, s24_ctx *ctx, int betas)
{
    const s24i_shape *s = &gpu->model->shape;
    const int after = gpu->model->architecture->after_attention_norm != NULL;
    const int64_t norms = (after ? 4 : 2) * s->layers + 1;
    const size_t bytes = (size_t)s->width * sizeof(float);
    void *memory;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)norms * bytes, gpu->stream));
    *to = memory;
    for (int64_t i = 0; i < norms; i++) {
        const s24i_layer_norm *norm = s24i_gpu_norm_at(gpu, i);
        const float *from = betas ? norm->beta : norm->gamma;
        if (from)
            TRY(s24_device_copy(ctx, gpu->device, *to + i * s->width, from, bytes, gpu->stream));
    }
    return S24_OK;
}

static s24_status upload_angles(float **to, const s24i_gpu_session *gpu, s24_ctx *ctx,
                                const s24i_rope *rope)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t longest = s24i_min(gpu->max_tokens, s->positions), d = s24i_turned(s);
    const size_t bytes = (size_t)(longest * d) * sizeof(float);
    float *angles;
    void *memory;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, bytes, gpu->stream));
    *to = memory;
    TRY(s24i_alloc_elems(&angles, ctx, longest * d, sizeof *angles, "rotary positions"));
    s24i_rotary_fill(angles, rope, d, longest);
    s24_status status = s24_device_copy(ctx, gpu->device, memory, angles, bytes, gpu->stream);
    if (status == S24_OK) status = s24_device_wait(ctx, gpu->device, gpu->stream);
    s24_ctx_free(ctx, angles);
    return status;
}

static s24_status upload_sinks(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    const size_t bytes = (size_t)s->heads * sizeof(float);
    void *memory;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)s->layers * bytes, gpu->stream));
    gpu->sinks = memory;
    for (int64_t b = 0; b < s->layers; b++)
        TRY(s24_device_copy(ctx, gpu->device, gpu->sinks + b * s->heads,
                            gpu->model->blocks[b].sinks, bytes, gpu->stream));
    return S24_OK;
}

s24_status s24i_gpu_language_create(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_architecture *a = gpu->model->architecture;
    const s24i_shape *s = &gpu->model->shape;
    const int64_t gated = gpu->max_tokens * s->intermediate;
    if (s24i_gpu_norms_rows(a, s)) {
        TRY(upload_norms(&gpu->gammas, gpu, ctx, 0));
        if (!a->rms) TRY(upload_norms(&gpu->betas, gpu, ctx, 1));
        if (a->query_norm) TRY(upload_head_gammas(gpu, ctx));
    }
    if (a->rotary) TRY(upload_angles(&gpu->angles, gpu, ctx, &s->rope));
    if (s->near_rope.theta != 0.0f) TRY(upload_angles(&gpu->near_angles, gpu, ctx, &s->near_rope));
    if (a->sinks) TRY(upload_sinks(gpu, ctx));
    if (!s->gated) return S24_OK;
    return s24_device_alloc(&gpu->gated, ctx, gpu->device, (size_t)(S24I_GPU_ELEMENT * gated),
                            gpu->stream);
}

/* ---- steps ----------------------------------------------------------------------------------- */

s24_status s24i_gpu_row_norm(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                             int64_t number, const s24i_gpu_norming *how)
{
    const int64_t width = gpu->model->shape.width;
    const s24_dense eight = s24i_gpu_eight_view(gpu, tokens, width);
    const int apart = gpu->normed && number < 2 * gpu->model->shape.layers;
    const s24_device_row_norm_args args = {.size = sizeof args,
                                           .dtype = gpu->model->dtype,
                                           .rows = tokens,
                                           .width = width,
                                           .y = apart ? gpu->normed : gpu->context,
                                           .sum = gpu->hidden,
                                           .x = how->pending ? gpu->qkv : NULL,
                                           .gamma = s24i_gpu_gamma(gpu, number),
                                           .eps = s24i_gpu_norm_at(gpu, number)->eps,
                                           .narrow = how->eight ? &eight : NULL,
                                           .narrow_scale = gpu->eight_scale,
                                           .stream = gpu->stream,
                                           .beta = beta_of(gpu, number),
                                           .centred = !gpu->model->architecture->rms};
    return s24_device_row_norm(ctx, gpu->device, &args);
}

s24_status s24i_gpu_add(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, int64_t number)
{
    const int normed = number != S24I_GPU_NO_NORM;
    const s24_device_row_norm_args args = {.size = sizeof args,
                                           .dtype = gpu->model->dtype,
                                           .rows = tokens,
                                           .width = gpu->model->shape.width,
                                           .y = gpu->hidden,
                                           .sum = gpu->qkv,
                                           .gamma = normed ? s24i_gpu_gamma(gpu, number) : NULL,
                                           .eps = normed ? s24i_gpu_norm_at(gpu, number)->eps : 0,
                                           .stream = gpu->stream,
                                           .beta = normed ? beta_of(gpu, number) : NULL,
                                           .centred = normed && !gpu->model->architecture->rms,
                                           .bare = !normed,
                                           .adds = 1};
    return s24_device_row_norm(ctx, gpu->device, &args);
}

s24_status s24i_gpu_norm_heads(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                               int64_t block)
{
    const s24i_shape *s = &gpu->model->shape;
    for (int of_keys = 0; of_keys < HEAD_NORMS; of_keys++) {
        const int64_t all = (of_keys ? s->kv_heads : s->heads) * s->head_width;
        const int64_t heads = all / head_norm(gpu, of_keys);
        const int64_t before = of_keys ? s->heads * s->head_width : 0;
        void *first = (char *)gpu->qkv + S24I_GPU_ELEMENT * before;
        const s24_device_train_add_norm_args args = {.size = sizeof args,
                                                     .dtype = gpu->model->dtype,
                                                     .rows = tokens * heads,
                                                     .width = head_norm(gpu, of_keys),
                                                     .y = first,
                                                     .s = first,
                                                     .stats = gpu->stats,
                                                     .gamma =
                                                         s24i_gpu_head_gamma(gpu, block, of_keys),
                                                     .eps = s->eps,
                                                     .rms = 1,
                                                     .heads = heads,
                                                     .ld = s24i_qkv_outputs(s),
                                                     .stream = gpu->stream};
        TRY(s24_device_train_add_norm(ctx, gpu->device, &args));
    }
    return S24_OK;
}

s24_status s24i_gpu_rotate_heads(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                 const s24i_gpu_shape *shape, int64_t block)
{
    const s24i_shape *s = &gpu->model->shape;
    const int near = s24i_gpu_turns_near(s, block);
    const float *angles = near ? gpu->near_angles : gpu->angles;
    if (shape->cache) angles = near ? shape->cache->near_angles : shape->cache->angles;
    const s24_device_train_rotate_args args = {.size = sizeof args,
                                               .dtype = gpu->model->dtype,
                                               .tokens = shape->tokens,
                                               .heads = s->heads,
                                               .kv_heads = s->kv_heads,
                                               .d = s->head_width,
                                               .qkv = gpu->qkv,
                                               .angles = angles,
                                               .position = gpu->inputs +
                                                           s24i_gpu_places_of(shape).positions,
                                               .turned = s24i_turned(s),
                                               .adjacent = gpu->model->architecture->adjacent,
                                               .stream = gpu->stream};
    return s24_device_train_rotate(ctx, gpu->device, &args);
}

s24_status s24i_gpu_attend_causal(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                  const s24i_gpu_shape *shape, int64_t block)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t near = s24i_block_near(s, block);
    s24_device_train_attention_args args = {.size = sizeof args,
                                            .dtype = gpu->model->dtype,
                                            .tokens = shape->tokens,
                                            .texts = shape->texts,
                                            .longest = shape->longest,
                                            .heads = s->heads,
                                            .kv_heads = s->kv_heads,
                                            .d = s->head_width,
                                            .causal = gpu->model->architecture->causal,
                                            .window = near ? near : s24i_block_sliding(s, block),
                                            .offsets =
                                                gpu->inputs + s24i_gpu_places_of(shape).offsets,
                                            .mask = s24i_gpu_mask(gpu, shape),
                                            .qkv = gpu->qkv,
                                            .context = gpu->context,
                                            .stream = gpu->stream,
                                            .cap = s->scores_cap,
                                            .sinks = s24i_gpu_sinks(gpu, block),
                                            .value_d = s->latent.value};
    TRY(s24i_gpu_grow_scores(&args, gpu, ctx, block));
    return s24_device_train_attention(ctx, gpu->device, &args);
}

s24_status s24i_gpu_activate_outer(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24_device_train_activate_args args = {.size = sizeof args,
                                                 .dtype = gpu->model->dtype,
                                                 .rows = tokens,
                                                 .width = s->intermediate,
                                                 .h = gpu->outer,
                                                 .u = gpu->outer,
                                                 .activation = s->activation,
                                                 .squared = s->squared,
                                                 .stream = gpu->stream};
    return s24_device_train_activate(ctx, gpu->device, &args);
}

s24_status s24i_gpu_gate(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24_device_train_activate_args args = {.size = sizeof args,
                                                 .dtype = gpu->model->dtype,
                                                 .rows = tokens,
                                                 .width = s->intermediate,
                                                 .h = gpu->gated,
                                                 .u = gpu->outer,
                                                 .activation = s->activation,
                                                 .squared = s->squared,
                                                 .gated = 1,
                                                 .gate_last = gpu->model->architecture->gate_last,
                                                 .stream = gpu->stream};
    return s24_device_train_activate(ctx, gpu->device, &args);
}
