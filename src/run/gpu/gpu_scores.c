// SPDX-License-Identifier: Apache-2.0
/*
 * What scores of attention grow by in a session on a device: numbers of distances (model/
 * distances.h), and products of queries and keys with rows of distances (model/apart.h), which are
 * made for each block before it attends, of the rows that texts of the session can ask for.
 */
#include "run/gpu/gpu_state.h"

#include "device/device_layers.h"
#include "model/apart.h"
#include "model/distances.h"

static int64_t longest_of(const s24i_gpu_session *gpu)
{
    return s24i_min(gpu->max_tokens, gpu->model->shape.positions);
}

/* `bytes` of the host's, there. */
static s24_status upload(void **to, const s24i_gpu_session *gpu, s24_ctx *ctx, const void *from,
                         size_t bytes)
{
    TRY(s24_device_alloc(to, ctx, gpu->device, bytes, gpu->stream));
    TRY(s24_device_copy(ctx, gpu->device, *to, from, bytes, gpu->stream));
    return s24_device_wait(ctx, gpu->device, gpu->stream);
}

/* Every table, divided by what the kernel multiplies scores with after adding it. */
static s24_status create_distances(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24_model *model = gpu->model;
    const s24i_shape *s = &model->shape;
    const int64_t longest = longest_of(gpu);
    const int64_t all = s24i_distance_tables(&gpu->scores.head, &gpu->scores.zero, model, longest);
    const float scale = s24i_block_scale(s, 0);
    float *floats;
    void *memory = NULL;
    TRY(s24i_alloc_elems(&floats, ctx, all, sizeof *floats, "distances"));
    s24i_distance_tables_fill(floats, model, longest);
    for (int64_t i = 0; i < all; i++)
        floats[i] /= scale;
    const s24_status status = upload(&memory, gpu, ctx, floats, (size_t)all * sizeof *floats);
    gpu->scores.distances = memory;
    s24_ctx_free(ctx, floats);
    return status;
}

static s24_status reserve_products(float **out, const s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const size_t bytes =
        (size_t)(gpu->max_tokens * gpu->model->shape.heads * gpu->scores.ld) * sizeof(float);
    void *memory;
    TRY(s24_device_alloc(&memory, ctx, gpu->device, bytes, gpu->stream));
    *out = memory;
    return S24_OK;
}

/* The rows of the table that two tokens can have, and room for products with them. */
static s24_status create_apart(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_apart *apart = &gpu->model->shape.apart;
    const int64_t longest = longest_of(gpu);
    int32_t *rows;
    void *memory = NULL;
    gpu->scores.zero = longest - 1;
    gpu->scores.first = s24i_apart_row(apart, 1 - longest);
    gpu->scores.rows = s24i_apart_row(apart, longest - 1) + 1 - gpu->scores.first;
    gpu->scores.ld = s24i_round_up(gpu->scores.rows, S24_DEVICE_APART_ROWS);
    TRY(s24i_alloc_elems(&rows, ctx, 2 * longest - 1, sizeof *rows, "distances"));
    for (int64_t by = 1 - longest; by < longest; by++)
        rows[by + longest - 1] = (int32_t)(s24i_apart_row(apart, by) - gpu->scores.first);
    const s24_status status =
        upload(&memory, gpu, ctx, rows, (size_t)(2 * longest - 1) * sizeof *rows);
    gpu->scores.apart_rows = memory;
    s24_ctx_free(ctx, rows);
    TRY(status);
    if (apart->of_queries) TRY(reserve_products(&gpu->scores.of_queries, gpu, ctx));
    return apart->of_keys ? reserve_products(&gpu->scores.of_keys, gpu, ctx) : S24_OK;
}

s24_status s24i_gpu_scores_create(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    if (gpu->model->shape.apart.span) return create_apart(gpu, ctx);
    return s24i_has_distances(gpu->model->architecture) ? create_distances(gpu, ctx) : S24_OK;
}

/* y = what the heads of queries, or keys, give with the distances' keys, or queries. */
static s24_status compare(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens, float *y,
                          const float *table)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t wide = s->heads * s->head_width;
    const int64_t first = y == gpu->scores.of_keys ? wide : 0;
    const char *rows = s24i_on_device(gpu->model, table);
    const s24_device_apart_args args = {.size = sizeof args,
                                        .dtype = gpu->model->dtype,
                                        .tokens = tokens,
                                        .heads = s->heads,
                                        .d = s->head_width,
                                        .rows = gpu->scores.rows,
                                        .vectors =
                                            (const char *)gpu->qkv + S24I_GPU_ELEMENT * first,
                                        .table = rows + S24I_GPU_ELEMENT * gpu->scores.first * wide,
                                        .ld = s24i_qkv_outputs(s),
                                        .table_ld = wide,
                                        .y = y,
                                        .y_ld = gpu->scores.ld,
                                        .stream = gpu->stream};
    return y ? s24_device_apart(ctx, gpu->device, &args) : S24_OK;
}

s24_status s24i_gpu_grow_scores(s24_device_train_attention_args *args, const s24i_gpu_session *gpu,
                                s24_ctx *ctx, int64_t block)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_block *b = &gpu->model->blocks[block];
    const s24i_gpu_scores *scores = &gpu->scores;
    if (s->score_scale > 0.0f || s->scaled_by_block) args->scale = s24i_block_scale(s, block);
    args->zero = scores->zero;
    if (scores->distances) {
        args->distances = scores->distances + (s->tables ? block * s->heads * scores->head : 0);
        args->distance_head = scores->head;
    }
    if (!scores->apart_rows) return S24_OK;
    TRY(compare(gpu, ctx, args->tokens, scores->of_queries, b->apart_keys));
    TRY(compare(gpu, ctx, args->tokens, scores->of_keys, b->apart_queries));
    args->apart_rows = scores->apart_rows;
    args->of_queries = scores->of_queries;
    args->of_keys = scores->of_keys;
    args->apart_ld = scores->ld;
    return S24_OK;
}
