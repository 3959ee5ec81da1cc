// SPDX-License-Identifier: Apache-2.0
/*
 * From a batch to the first block's input, in a session on a device. One kernel looks rows up, adds
 * them and norms them: by the embeddings' own norm or, where they have none, by the one that the
 * first block starts with. Rows without a norm, or whose norm comes after something else is done
 * with them (a layer that widens them, factors), are looked up by the kernel that training has.
 */
#include "run/gpu/gpu_state.h"

int s24i_gpu_embeds_norm(const s24i_gpu_session *gpu)
{
    const s24_model *model = gpu->model;
    if (gpu->steps.step[0].kind != S24I_STEP_NORM) return 0;
    if (s24i_gpu_norms_rows(model->architecture, &model->shape)) return 0;
    if (model->shape.masked_grows || s24i_projects(&model->shape)) return 0;
    return !model->embedding_norm.gamma || !s24i_gpu_norm_at(gpu, 0)->gamma;
}

/* y = the patches of the images in pixels, through their layer. */
static s24_status embed_patches(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                const s24i_gpu_shape *shape, const s24_dense *y)
{
    const s24i_linear *patches = &gpu->model->patches;
    const s24i_patches *p = &gpu->model->patch_map;
    const s24i_gpu_operands o = {.y = *y, .x = s24i_gpu_view(gpu, gpu->outer, y->rows, p->row)};
    const s24_device_unfold_args unfold = {.size = sizeof unfold,
                                           .y = &o.x,
                                           .pixels = gpu->pixels,
                                           .images = shape->texts,
                                           .channels = p->channels,
                                           .image = p->image,
                                           .patch = p->patch,
                                           .first = p->first,
                                           .stream = gpu->stream};
    TRY(s24_device_unfold(ctx, gpu->device, &unfold));
    const s24i_product_job product = s24i_gpu_product_of(gpu, patches, &o, S24I_WAY_DENSE);
    return s24i_weight_run(patches->weight[S24I_WAY_DENSE], ctx, &product);
}

/* y = the sums of rows, as they are. */
static s24_status embed_words(const s24i_gpu_session *gpu, s24_ctx *ctx,
                              const s24i_gpu_shape *shape, void *y)
{
    const s24_model *model = gpu->model;
    const s24i_gpu_places p = s24i_gpu_places_of(shape);
    const s24_device_train_embed_args args = {.size = sizeof args,
                                              .dtype = model->dtype,
                                              .tokens = shape->tokens,
                                              .width = s24i_embedding_width(&model->shape),
                                              .s = y,
                                              .words = model->device_words,
                                              .positions =
                                                  s24i_on_device(model, model->position_rows),
                                              .types = s24i_on_device(model, model->type_rows),
                                              .ids = gpu->inputs + p.ids,
                                              .position = gpu->inputs + p.positions,
                                              .type = shape->types ? gpu->inputs + p.types : NULL,
                                              .stream = gpu->stream,
                                              .factor = model->shape.embedding_factor};
    return s24_device_train_embed(ctx, gpu->device, &args);
}

/* Rows through the norm that `args` has, and sum and y as they say. */
static s24_status embed_normed(const s24i_gpu_session *gpu, s24_ctx *ctx,
                               const s24i_gpu_shape *shape, s24_device_norm_args *args)
{
    const s24_model *model = gpu->model;
    const s24i_gpu_places p = s24i_gpu_places_of(shape);
    const s24_dense patches = s24i_gpu_view(gpu, gpu->qkv, shape->tokens, model->shape.width);
    args->positions = gpu->inputs + p.positions;
    args->position_rows = s24i_on_device(model, model->position_rows);
    if (shape->images) {
        TRY(embed_patches(gpu, ctx, shape, &patches));
        args->x = &patches;
    } else {
        args->ids = gpu->inputs + p.ids;
        args->types = shape->types ? gpu->inputs + p.types : NULL;
        args->words = model->device_words;
        args->type_rows = s24i_on_device(model, model->type_rows);
    }
    return s24_device_norm(ctx, gpu->device, args);
}

/* Narrower rows, which a layer makes as wide as the blocks. */
static s24_status embed_projected(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                  const s24i_gpu_shape *shape)
{
    const s24_model *model = gpu->model;
    const s24i_linear *project = &model->project;
    const s24i_gpu_operands o = {
        .y = s24i_gpu_view(gpu, gpu->hidden, shape->tokens, model->shape.width),
        .x = s24i_gpu_view(gpu, gpu->outer, shape->tokens, project->k)};
    s24_device_norm_args args = s24i_gpu_norm_args(gpu, &model->embedding_norm);
    args.y = &o.x;
    if (args.gamma)
        TRY(embed_normed(gpu, ctx, shape, &args));
    else
        TRY(embed_words(gpu, ctx, shape, gpu->outer));
    const s24i_product_job product = s24i_gpu_product_of(gpu, project, &o, S24I_WAY_DENSE);
    TRY(s24i_weight_run(project->weight[S24I_WAY_DENSE], ctx, &product));
    const int eight = s24i_gpu_reads_eight(gpu, shape->tokens, 0, S24I_QUERY);
    return eight && !model->architecture->pre_norm ? s24i_gpu_quantise(gpu, ctx, &o.y) : S24_OK;
}

/* Rows as they are, times a number each where masked words change a text's others. */
static s24_status embed_plain(const s24i_gpu_session *gpu, s24_ctx *ctx,
                              const s24i_gpu_shape *shape)
{
    const s24i_gpu_places p = s24i_gpu_places_of(shape);
    const s24_device_scale_args args = {.size = sizeof args,
                                        .dtype = gpu->model->dtype,
                                        .rows = shape->tokens,
                                        .width = gpu->model->shape.width,
                                        .x = gpu->hidden,
                                        .factors = (const float *)(gpu->inputs + p.kept),
                                        .stream = gpu->stream};
    TRY(embed_words(gpu, ctx, shape, gpu->hidden));
    return shape->kept ? s24_device_scale(ctx, gpu->device, &args) : S24_OK;
}

s24_status s24i_gpu_embed_batch(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                const s24i_gpu_shape *shape)
{
    const s24_model *model = gpu->model;
    const int64_t tokens = shape->tokens, width = model->shape.width;
    const s24_dense hidden = s24i_gpu_view(gpu, gpu->hidden, tokens, width);
    const s24_dense normed = s24i_gpu_view(gpu, gpu->context, tokens, width);
    const s24_dense eight = s24i_gpu_eight_view(gpu, tokens, width);
    const int with_first = s24i_gpu_embeds_norm(gpu);
    const int bare = with_first && !s24i_gpu_norm_at(gpu, 0)->gamma, before = with_first && !bare;
    if (s24i_projects(&model->shape)) return embed_projected(gpu, ctx, shape);
    if (s24i_gpu_norms_rows(model->architecture, &model->shape) || shape->kept)
        return embed_plain(gpu, ctx, shape);
    s24_device_norm_args args =
        s24i_gpu_norm_args(gpu, before ? s24i_gpu_norm_at(gpu, 0) : &model->embedding_norm);
    args.y = before ? &normed : &hidden;
    if (before) args.sum = &hidden;
    if (with_first || !model->architecture->pre_norm)
        s24i_gpu_narrow_norm(&args, gpu, tokens, 0, S24I_QUERY, &eight);
    TRY(embed_normed(gpu, ctx, shape, &args));
    if (!bare) return S24_OK;
    return s24_device_copy(ctx, gpu->device, normed.data, hidden.data,
                           (size_t)(S24I_GPU_ELEMENT * tokens * width), gpu->stream);
}
