// SPDX-License-Identifier: Apache-2.0
/*
 * A cache of keys and values on a device. A text's first pass attends within itself, as without a
 * cache, and leaves its keys and values there; so does one that goes on with several tokens, before
 * its attention reads them. Where each text goes on with one token, a single kernel does that and
 * what comes before it: norms of heads and rotary positions.
 */
#include "run/gpu/gpu_cache.h"

#include "device/device_train.h"
#include "model/rotary.h"
#include "run/gpu/gpu_state.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static s24_status reserve(void **out, const s24_cache *cache, s24_ctx *ctx, size_t bytes)
{
    TRY(s24_device_alloc(out, ctx, cache->model->device, bytes, NULL));
    return s24_device_clear(ctx, cache->model->device, *out, bytes, NULL);
}

static s24_status fill_angles(float **to, const s24_cache *cache, s24_ctx *ctx,
                              const s24i_rope *rope)
{
    const int64_t turned = s24i_turned(&cache->model->shape), count = cache->room * turned;
    float *angles;
    void *memory;
    TRY(reserve(&memory, cache, ctx, (size_t)count * sizeof *angles));
    *to = memory;
    TRY(s24i_alloc_elems(&angles, ctx, count, sizeof *angles, "rotary positions"));
    s24i_rotary_fill(angles, rope, turned, cache->room);
    s24_status status = s24_device_copy(ctx, cache->model->device, memory, angles,
                                        (size_t)count * sizeof *angles, NULL);
    if (status == S24_OK) status = s24_device_wait(ctx, cache->model->device, NULL);
    s24_ctx_free(ctx, angles);
    return status;
}

/* Counters of attention's blocks, before its other work memory. */
static size_t counter_bytes(const s24_cache *cache)
{
    return (size_t)s24i_round_up(cache->texts * cache->model->shape.heads, 4) * sizeof(unsigned);
}

static int64_t bytes_of(const s24_cache *cache)
{
    return s24i_cache_elems(cache) * (int64_t)s24_dtype_bytes(cache->dtype);
}

/* Says how many tokens would fit, up to a half of them. */
static s24_status no_room(const s24_cache *cache, s24_ctx *ctx)
{
    const int64_t all = cache->texts * cache->room, bytes = bytes_of(cache);
    s24_device *device = cache->model->device;
    int64_t fit = all;
    void *memory = NULL;
    while (!memory && (fit /= 2) > 0)
        (void)s24_device_alloc(&memory, ctx, device, (size_t)(bytes / all * fit), NULL);
    if (memory) TRY(s24_device_free(ctx, device, memory, NULL));
    return s24i_cache_no_room(cache, ctx, "the device", fit);
}

s24_status s24i_gpu_cache_fill(s24_cache *cache, s24_ctx *ctx)
{
    const s24i_shape *shape = &cache->model->shape;
    s24_device *device = cache->model->device;
    void *memory;
    const s24_status status = reserve(&cache->memory, cache, ctx, (size_t)bytes_of(cache));
    if (status == S24_ERROR_MEMORY) return no_room(cache, ctx);
    TRY(status);
    TRY(reserve(&memory, cache, ctx,
                counter_bytes(cache) + s24_device_attention_cache_work_bytes(
                                           device, cache->texts, shape->heads, cache->d)));
    cache->scratch = memory;
    if (cache->model->architecture->rotary)
        TRY(fill_angles(&cache->angles, cache, ctx, &shape->rope));
    if (shape->near_rope.theta != 0.0f)
        TRY(fill_angles(&cache->near_angles, cache, ctx, &shape->near_rope));
    return s24_device_wait(ctx, device, NULL);
}

void s24i_gpu_cache_clear(s24_cache *cache)
{
    void *const memory[] = {cache->memory, cache->scratch, cache->angles, cache->near_angles};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) (void)s24_device_free(cache->ctx, cache->model->device, memory[i], NULL);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

s24i_gpu_cached s24i_gpu_cached_of(const s24_cache *cache, const s24_batch *batch)
{
    s24i_gpu_cached way = S24I_GPU_STEP;
    int64_t before = 0;
    if (!cache) return S24I_GPU_ALONE;
    for (int64_t b = 0; b < batch->texts; b++) {
        before += s24i_cache_before(cache, b);
        if (batch->offsets[b + 1] - batch->offsets[b] > 1) way = S24I_GPU_MORE;
    }
    return way == S24I_GPU_MORE && !before ? S24I_GPU_FIRST : way;
}

static s24_device_attention_cache_args args_of(const s24i_gpu_session *gpu,
                                               const s24i_gpu_shape *shape, int64_t block)
{
    const s24_cache *cache = shape->cache;
    const s24i_shape *s = &gpu->model->shape;
    const s24i_gpu_places p = s24i_gpu_places_of(shape);
    const s24i_architecture *a = gpu->model->architecture;
    const int before = a->norms_turned || a->latent; /* heads are turned already */
    const int has_norms = a->query_norm && !a->wide_norms && !before;
    const float *angles = s24i_gpu_turns_near(s, block) ? cache->near_angles : cache->angles;
    return (s24_device_attention_cache_args){
        .size = sizeof(s24_device_attention_cache_args),
        .dtype = cache->dtype,
        .texts = shape->texts,
        .longest = shape->longest,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .d = s->head_width,
        .room = cache->room,
        .window = s24i_block_sliding(s, block),
        .offsets = gpu->inputs + p.offsets,
        .places = gpu->inputs + p.places,
        .before = gpu->inputs + p.before,
        .qkv = gpu->qkv,
        .keys = s24i_cache_at(cache, block, 0),
        .values = s24i_cache_at(cache, block, 1),
        .context = gpu->context,
        .angles = s24i_block_turns(s, block) && !before ? angles : NULL,
        .query_gamma = has_norms ? s24i_gpu_head_gamma(gpu, block, 0) : NULL,
        .key_gamma = has_norms ? s24i_gpu_head_gamma(gpu, block, 1) : NULL,
        .eps = s->eps,
        .counters = (unsigned *)cache->scratch,
        .work = (char *)cache->scratch + counter_bytes(cache),
        .stream = gpu->stream,
        .turned = s24i_turned(s),
        .adjacent = a->adjacent,
        .scale = s24i_block_scale(s, block),
        .cap = s->scores_cap,
        .sinks = s24i_gpu_sinks(gpu, block),
        .value_d = s->latent.value};
}

s24_status s24i_gpu_cache_put(const s24i_gpu_session *gpu, s24_ctx *ctx,
                              const s24i_gpu_shape *shape, int64_t block)
{
    const s24_device_attention_cache_args args = args_of(gpu, shape, block);
    return s24_device_cache_put(ctx, gpu->device, &args);
}

s24_status s24i_gpu_attend_cache(const s24i_gpu_session *gpu, s24_ctx *ctx,
                                 const s24i_gpu_shape *shape, int64_t block)
{
    const s24_device_attention_cache_args args = args_of(gpu, shape, block);
    return s24_device_attention_cache(ctx, gpu->device, &args);
}
