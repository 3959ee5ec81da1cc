// SPDX-License-Identifier: Apache-2.0
/*
 * What a language model on a device says of the next token. Logits are made some rows at a time,
 * since a vocabulary's worth of them for all tokens is more than a pass; rows stand at multiples of
 * 8 f32.
 */
#include "run/gpu/gpu_state.h"

#include <math.h>

#include "device/device_train.h"

static int64_t vocabulary_of(const s24i_gpu_session *gpu)
{
    return gpu->model->lm_head.n;
}

static int64_t row_of(const s24i_gpu_session *gpu)
{
    return (vocabulary_of(gpu) + 7) / 8 * 8;
}

static s24_status create_picks(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const size_t bytes = (size_t)gpu->max_tokens * sizeof(s24_device_picked),
                 work = s24_device_pick_work_bytes(gpu->device, gpu->logit_rows);
    void *memory;
    TRY(s24_device_pinned_alloc(&memory, ctx, gpu->device, bytes));
    gpu->picks = memory;
    TRY(s24_device_alloc(&gpu->pick_work, ctx, gpu->device, work, gpu->stream));
    return s24_device_clear(ctx, gpu->device, gpu->pick_work, work, gpu->stream);
}

s24_status s24i_gpu_logits_create(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    enum { LOGITS = 1 << 25 }; /* at a time */
    const int64_t tokens = gpu->max_tokens;
    const float *bias = gpu->model->lm_head.bias;
    void *memory;
    if (!vocabulary_of(gpu)) return S24_OK;
    gpu->logit_rows = s24i_min(tokens, s24i_max(1, LOGITS / row_of(gpu)));
    TRY(s24_device_alloc(&memory, ctx, gpu->device,
                         (size_t)(gpu->logit_rows * row_of(gpu)) * sizeof(float), gpu->stream));
    gpu->logits = memory;
    TRY(s24_device_alloc(&gpu->train_work, ctx, gpu->device, S24_DEVICE_TRAIN_WORK, gpu->stream));
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)tokens * sizeof(int32_t), gpu->stream));
    gpu->targets = memory;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)tokens * sizeof(double), gpu->stream));
    gpu->losses = memory;
    TRY(s24i_alloc_elems(&gpu->host_losses, ctx, tokens, sizeof(double), "losses"));
    TRY(create_picks(gpu, ctx));
    if (!bias) return S24_OK;
    const size_t bytes = (size_t)vocabulary_of(gpu) * sizeof *bias;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, bytes, gpu->stream));
    gpu->lm_bias = memory;
    return s24_device_copy(ctx, gpu->device, memory, bias, bytes, gpu->stream);
}

static char *state_at(const s24i_gpu_session *gpu, const void *states, int64_t token)
{
    return (char *)(uintptr_t)states + S24I_GPU_ELEMENT * token * gpu->model->lm_head.k;
}

static s24_status multiply_head(const s24i_gpu_session *gpu, s24_ctx *ctx, const void *states,
                                int64_t first, int64_t rows)
{
    const s24i_linear *head = &gpu->model->lm_head;
    const s24_dense y = {gpu->logits, S24_F32, rows, head->n, row_of(gpu)};
    const s24_dense x = s24i_gpu_view(gpu, state_at(gpu, states, first), rows, head->k);
    const s24i_weight *integers = head->weight[S24I_WAY_INTEGERS];
    const s24i_weight *weight = integers ? integers : head->weight[S24I_WAY_DENSE];
    const s24i_product_job product = {.y = &y,
                                      .x = &x,
                                      .bias = integers ? gpu->lm_bias : NULL,
                                      .work = gpu->train_work,
                                      .work_bytes = S24_DEVICE_TRAIN_WORK,
                                      .stream = gpu->stream};
    if (integers || !gpu->lm_bias) return s24i_weight_run(weight, ctx, &product);
    const s24_dense w = s24i_gpu_view(gpu, s24i_weight_on_device(weight)->dense, head->n, head->k);
    const s24_device_train_product_args args = {.size = sizeof args,
                                                .y = &y,
                                                .a = &x,
                                                .b = &w,
                                                .transposed_b = 1,
                                                .bias = gpu->lm_bias,
                                                .work = gpu->train_work,
                                                .work_bytes = S24_DEVICE_TRAIN_WORK,
                                                .stream = gpu->stream};
    return s24_device_train_product(ctx, gpu->device, &args);
}

/* gpu->logits = those of `rows` states from `first` on. */
static s24_status make_logits(const s24i_gpu_session *gpu, s24_ctx *ctx, const void *states,
                              int64_t first, int64_t rows)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24_device_logits_args args = {.size = sizeof args,
                                         .logits = gpu->logits,
                                         .rows = rows,
                                         .n = vocabulary_of(gpu),
                                         .ld = row_of(gpu),
                                         .factor = s->logits_factor,
                                         .cap = s->logits_cap,
                                         .stream = gpu->stream};
    TRY(multiply_head(gpu, ctx, states, first, rows));
    if (!(args.factor > 0.0f) && !(args.cap > 0.0f)) return S24_OK;
    return s24_device_logits(ctx, gpu->device, &args);
}

/* ---- logits ---------------------------------------------------------------------------------- */

static int64_t token_at(const s24_outputs *o, int64_t i)
{
    return o->tokens ? o->tokens[i] : i;
}

/* How many of the tokens from the i-th on follow one another, as far as logits are made at a
   time. */
static int64_t run_length(const s24i_gpu_session *gpu, const s24_outputs *o, int64_t i,
                          int64_t count)
{
    int64_t rows = 1;
    while (i + rows < count && rows < gpu->logit_rows &&
           token_at(o, i + rows) == token_at(o, i) + rows)
        rows++;
    return rows;
}

static s24_status give_logits(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_outputs *o,
                              int64_t count)
{
    const int64_t n = vocabulary_of(gpu);
    for (int64_t i = 0, rows; i < count; i += rows) {
        rows = run_length(gpu, o, i, count);
        TRY(make_logits(gpu, ctx, gpu->context, token_at(o, i), rows));
        for (int64_t r = 0; r < rows; r++)
            TRY(s24_device_copy(ctx, gpu->device, o->logits + (i + r) * n,
                                gpu->logits + r * row_of(gpu), (size_t)n * sizeof(float),
                                gpu->stream));
    }
    return s24_device_wait(ctx, gpu->device, gpu->stream);
}

/* ---- the likeliest tokens -------------------------------------------------------------------- */

s24_status s24i_gpu_pick(const s24i_gpu_session *gpu, s24_ctx *ctx, const void *states,
                         int64_t rows)
{
    for (int64_t first = 0; first < rows; first += gpu->logit_rows) {
        const s24_device_pick_args args = {.size = sizeof args,
                                           .logits = gpu->logits,
                                           .rows = s24i_min(gpu->logit_rows, rows - first),
                                           .n = vocabulary_of(gpu),
                                           .ld = row_of(gpu),
                                           .y = gpu->picks + first,
                                           .work = gpu->pick_work,
                                           .stream = gpu->stream};
        TRY(make_logits(gpu, ctx, states, first, args.rows));
        TRY(s24_device_pick(ctx, gpu->device, &args));
    }
    return S24_OK;
}

/* Of tokens here and there; their states are brought together in hidden, with which the pass is
   done. */
static s24_status pick_some(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_outputs *o)
{
    const size_t bytes = (size_t)(S24I_GPU_ELEMENT * gpu->model->lm_head.k);
    for (int64_t i = 0; i < o->token_count; i++)
        TRY(s24_device_copy(ctx, gpu->device, state_at(gpu, gpu->hidden, i),
                            state_at(gpu, gpu->context, o->tokens[i]), bytes, gpu->stream));
    return s24i_gpu_pick(gpu, ctx, gpu->hidden, o->token_count);
}

s24_status s24i_gpu_picks_give(const s24i_gpu_session *gpu, s24_ctx *ctx,
                               const s24i_gpu_shape *shape)
{
    const s24_outputs *o = &gpu->outputs;
    const int64_t count = shape->picks ? shape->tokens : o->token_count;
    if (!count) return S24_OK;
    if (!shape->picks) TRY(pick_some(gpu, ctx, o));
    TRY(s24_device_wait(ctx, gpu->device, gpu->stream));
    for (int64_t i = 0; i < count; i++)
        gpu->asked[i] = (s24i_pick){gpu->picks[i].id, gpu->picks[i].log_probability};
    return S24_OK;
}

/* ---- losses ---------------------------------------------------------------------------------- */

s24_status s24i_gpu_logits_begin(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                 const s24_outputs *outputs, int64_t tokens)
{
    if (!vocabulary_of(gpu) || (!outputs->loss && !outputs->losses)) return S24_OK;
    TRY(s24_device_clear(ctx, gpu->device, gpu->losses, (size_t)tokens * sizeof(double),
                         gpu->stream));
    return s24_device_copy(ctx, gpu->device, gpu->targets, outputs->targets,
                           (size_t)tokens * sizeof(int32_t), gpu->stream);
}

/* losses of `rows` tokens from `first` on = those of gpu->logits. */
static s24_status fill_losses(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t first,
                              int64_t rows)
{
    const s24_device_train_cross_entropy_args args = {.size = sizeof args,
                                                      .dtype = gpu->model->dtype,
                                                      .rows = rows,
                                                      .n = vocabulary_of(gpu),
                                                      .ld = row_of(gpu),
                                                      .logits = gpu->logits,
                                                      .labels = gpu->targets + first,
                                                      .losses = gpu->losses + first,
                                                      .label_weight = 1,
                                                      .temperature = 1,
                                                      .gradient_scale = 1,
                                                      .work = gpu->train_work,
                                                      .stream = gpu->stream};
    return s24_device_train_cross_entropy(ctx, gpu->device, &args);
}

static int has_target(const int32_t *targets, int64_t count)
{
    int64_t i = 0;
    while (i < count && targets[i] < 0)
        i++;
    return i < count;
}

static s24_status run_losses(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_outputs *o,
                             int64_t tokens)
{
    for (int64_t first = 0, rows; first < tokens; first += rows) {
        rows = s24i_min(gpu->logit_rows, tokens - first);
        if (!has_target(o->targets + first, rows)) continue;
        TRY(make_logits(gpu, ctx, gpu->context, first, rows));
        TRY(fill_losses(gpu, ctx, first, rows));
    }
    return S24_OK;
}

static s24_status give_losses(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_outputs *o,
                              int64_t tokens)
{
    double sum = 0;
    int64_t count = 0;
    TRY(run_losses(gpu, ctx, o, tokens));
    TRY(s24_device_copy(ctx, gpu->device, gpu->host_losses, gpu->losses,
                        (size_t)tokens * sizeof(double), gpu->stream));
    TRY(s24_device_wait(ctx, gpu->device, gpu->stream));
    for (int64_t t = 0; t < tokens; t++) {
        sum += gpu->host_losses[t];
        count += o->targets[t] >= 0;
        if (o->losses) o->losses[t] = (float)gpu->host_losses[t];
    }
    if (o->loss) *o->loss = count ? sum / (double)count : (double)NAN;
    return S24_OK;
}

s24_status s24i_gpu_logits_give(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                const s24_outputs *outputs, int64_t tokens)
{
    if (!vocabulary_of(gpu)) return S24_OK;
    if (outputs->logits)
        TRY(give_logits(gpu, ctx, outputs, outputs->tokens ? outputs->token_count : tokens));
    if (!outputs->loss && !outputs->losses) return S24_OK;
    return give_losses(gpu, ctx, outputs, tokens);
}
