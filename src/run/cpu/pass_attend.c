// SPDX-License-Identifier: Apache-2.0
/* The step in which tokens meet, on the CPU. */
#include "run/cpu/attention.h"
#include "run/cpu/attention_apart.h"
#include "run/cpu/attention_grid.h"
#include "run/cpu/cpu_steps.h"
#include "run/cpu/kv_cache.h"

/* The block reads q, k and v of one product in f32. */
static void attend_grid(const s24i_pass *pass, const s24i_block *block)
{
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const s24i_attention_grid job = {.vec = session->vec,
                                     .qkv = session->qkv,
                                     .bias = block->bias[S24I_QUERY],
                                     .rel_h = block->rel_h,
                                     .rel_w = block->rel_w,
                                     .context = session->context,
                                     .images = pass->batch->texts,
                                     .grid = shape->grid,
                                     .side =
                                         s24i_attended_side(shape, block - session->model->blocks),
                                     .heads = shape->heads,
                                     .d = shape->head_width,
                                     .scratch = session->scratch,
                                     .scratch_elems = session->scratch_elems};
    s24i_attention_grid_run(pass->ctx, &job);
}

/* The tokens' keys and values join those of the cache, and these are attended to. */
static void attend_cached(const s24i_pass *pass, s24i_attention *job, int64_t layer)
{
    s24_cache *cache = pass->session->cache;
    const s24i_cache_rows keys = {pass->batch, job->k,       job->dtype, job->kv_ld,
                                  layer,       job->kv_head, 0};
    const s24i_cache_rows values = {pass->batch, job->v,       job->dtype, job->kv_ld,
                                    layer,       job->kv_head, 1};
    const int of_values = !cache->one_row;
    s24i_cache_put(cache, pass->ctx, &keys);
    if (of_values) s24i_cache_put(cache, pass->ctx, &values);
    job->k = s24i_cache_at(cache, layer, 0);
    job->v = s24i_cache_at(cache, layer, of_values);
    if (cache->scales) {
        job->bytes = cache->dtype;
        job->key_scales = cache->scales + s24i_cache_rows_before(cache, layer, 0);
        job->value_scales = cache->scales + s24i_cache_rows_before(cache, layer, of_values);
    }
    job->kv_ld = cache->d;
    job->kv_head = cache->room * cache->d;
    job->before = cache->before;
    job->key_rows = cache->rows;
    job->scratch = cache->scratch;
    job->scratch_elems = cache->scratch_elems;
    s24i_attention_run(pass->ctx, job);
}

static void give_distances(s24i_attention *job, const s24i_pass *pass, const s24i_block *block)
{
    const s24_session *session = pass->session;
    const s24_model *model = session->model;
    job->near = s24i_block_near(&model->shape, block - model->blocks);
    if (!job->near && !s24i_has_distances(model->architecture)) return;
    job->distances = session->distances + session->distance_zero +
                     (block - model->blocks) * session->distances_block;
    job->distances_head = session->distances_head;
}

static void attend_apart(const s24i_pass *pass, const s24i_block *block, const s24i_attention *job)
{
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const s24i_attention_apart apart = {.job = job,
                                        .apart = &shape->apart,
                                        .keys = block->apart_keys,
                                        .queries = block->apart_queries,
                                        .rows = session->apart_rows + session->apart_zero};
    s24i_attention_apart_run(pass->ctx, &apart);
}

void s24i_pass_attend(const s24i_pass *pass, const s24i_block *block)
{
    if (block->rel_h) {
        attend_grid(pass, block);
        return;
    }
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const s24i_qkv_places at = s24i_qkv_of(pass, block);
    s24i_attention attention = {.vec = session->vec,
                                .dtype = session->between,
                                .q = at.at[S24I_QUERY],
                                .k = at.at[S24I_KEY],
                                .v = at.at[S24I_VALUE],
                                .ld = at.ld[S24I_QUERY],
                                .kv_ld = at.ld[S24I_KEY],
                                .head = at.head,
                                .kv_head = at.head,
                                .context = session->context,
                                .batch = pass->batch,
                                .tiles = session->tiles,
                                .heads = shape->heads,
                                .kv_heads = shape->kv_heads,
                                .d = shape->head_width,
                                .scale = s24i_block_scale(shape, block - session->model->blocks),
                                .cap = shape->scores_cap,
                                .sinks = block->sinks,
                                .causal = session->model->architecture->causal,
                                .window = s24i_block_sliding(shape, block - session->model->blocks),
                                .scratch = session->scratch,
                                .scratch_elems = session->scratch_elems};
    give_distances(&attention, pass, block);
    if (session->model->apart)
        attend_apart(pass, block, &attention);
    else if (session->cache)
        attend_cached(pass, &attention, block - session->model->blocks);
    else
        s24i_attention_run(pass->ctx, &attention);
}
