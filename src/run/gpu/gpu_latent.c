// SPDX-License-Identifier: Apache-2.0
/*
 * Attention over latents on a device, where heads have keys and values of their own: the layer that
 * makes these of latents is a product like any other, and a kernel puts them side by side with the
 * queries, heads filled up with zeros to one width, so that attention and its cache are those of
 * any model. A cache then has as much for a token as its heads' keys and values are.
 */
#include "run/gpu/gpu_state.h"

#include "device/device_train.h"
#include "run/cpu/kv_cache.h"

s24_status s24i_gpu_latent_check(s24_ctx *ctx, const s24i_shape *shape)
{
    const s24i_latent *l = &shape->latent;
    const struct {
        const char *name;
        int64_t count;
    } sides[] = {{"latent queries", l->queries},
                 {"latents", l->rank},
                 {"keys that positions turn", l->turned},
                 {"keys that they do not turn", l->plain},
                 {"values", l->value}};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        REQUIRE(ctx, sides[i].count % 8 == 0, S24_ERROR_UNSUPPORTED,
                "%s of %lld elements; a device takes multiples of 8", sides[i].name,
                (long long)sides[i].count);
    return S24_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What lies between products, [tokens, …] each, one after the other. */
typedef struct places {
    int64_t low, queries, key, made, end; /* elements of a token before each */
} places;

static places places_of(const s24i_shape *s)
{
    const s24i_latent *l = &s->latent;
    places p = {.low = 0, .queries = l->queries};
    p.key = p.queries + s->heads * s24i_latent_query(l);
    p.made = p.key + l->rank + l->turned;
    p.end = p.made + s->heads * (l->plain + l->value);
    return p;
}

s24_status s24i_gpu_latent_create(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    if (!s->latent.rank) return S24_OK;
    return s24_device_alloc(&gpu->latents, ctx, gpu->device,
                            (size_t)(S24I_GPU_ELEMENT * gpu->max_tokens * places_of(s).end),
                            gpu->stream);
}

/* A place's rows, `cols` elements each. */
static s24_dense view(const s24i_gpu_session *gpu, int64_t place, int64_t tokens, int64_t cols)
{
    char *first = (char *)gpu->latents + S24I_GPU_ELEMENT * gpu->max_tokens * place;
    return s24i_gpu_view(gpu, first, tokens, cols);
}

/* ---- products -------------------------------------------------------------------------------- */

s24i_gpu_operands s24i_gpu_latent_operands(const s24i_gpu_session *gpu, int64_t tokens,
                                           int64_t block, int index)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_linear *l = s24i_block_product(&gpu->model->blocks[block], index);
    const places p = places_of(s);
    const int64_t to[] = {
        [S24I_QUERY] = p.queries, [S24I_KEY] = p.key, [S24I_VALUE] = p.made, [S24I_LATENT] = p.low};
    void *normed = gpu->normed ? gpu->normed : gpu->context;
    s24i_gpu_operands o = {.y = view(gpu, to[index], tokens, l->n),
                           .x = s24i_gpu_view(gpu, normed, tokens, l->k)};
    if (index == S24I_QUERY && s->latent.queries) o.x = view(gpu, p.low, tokens, l->k);
    if (index == S24I_VALUE) {
        o.x = view(gpu, p.key, tokens, l->k);
        o.x.ld = s->latent.rank + s->latent.turned;
    }
    return o;
}

/* ---- the kernels between them ---------------------------------------------------------------- */

s24_status s24i_gpu_norm_latents(const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t tokens,
                                 int64_t block, int of_keys)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_block *b = &gpu->model->blocks[block];
    const s24i_latent *l = &s->latent;
    const places p = places_of(s);
    void *first = view(gpu, of_keys ? p.key : p.low, tokens, 0).data;
    const s24_device_train_add_norm_args args = {.size = sizeof args,
                                                 .dtype = gpu->model->dtype,
                                                 .rows = tokens,
                                                 .width = of_keys ? l->rank : l->queries,
                                                 .y = first,
                                                 .s = first,
                                                 .stats = gpu->stats,
                                                 .gamma = s24i_gpu_head_gamma(gpu, block, of_keys),
                                                 .eps =
                                                     (of_keys ? &b->key_norm : &b->query_norm)->eps,
                                                 .rms = 1,
                                                 .heads = 1,
                                                 .ld = of_keys ? l->rank + l->turned : l->queries,
                                                 .stream = gpu->stream};
    return s24_device_train_add_norm(ctx, gpu->device, &args);
}

s24_status s24i_gpu_spread_latents(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                   const s24i_gpu_shape *shape)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_latent *l = &s->latent;
    const places p = places_of(s);
    const char *key = view(gpu, p.key, shape->tokens, 0).data;
    const s24_device_latent_args args = {
        .size = sizeof args,
        .dtype = gpu->model->dtype,
        .tokens = shape->tokens,
        .heads = s->heads,
        .plain = l->plain,
        .turned = l->turned,
        .value = l->value,
        .d = s->head_width,
        .queries = view(gpu, p.queries, shape->tokens, 0).data,
        .key = key + S24I_GPU_ELEMENT * l->rank,
        .key_ld = l->rank + l->turned,
        .made = view(gpu, p.made, shape->tokens, 0).data,
        .angles = shape->cache ? shape->cache->angles : gpu->angles,
        .position = gpu->inputs + s24i_gpu_places_of(shape).positions,
        .halves = l->halves,
        .qkv = gpu->qkv,
        .stream = gpu->stream};
    return s24_device_latent(ctx, gpu->device, &args);
}
