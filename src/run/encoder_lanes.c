// SPDX-License-Identifier: Apache-2.0
/* What batches run in: sessions and the buffers of texts on their way, two of each on a device. */
#include "run/encoder.h"

enum {
    BATCH_TOKENS = 4096,
    DEVICE_BATCH_TOKENS = 32768,
    WINDOW_TOKENS = 1 << 19,
    WINDOW_MIN = 16,
    WINDOW_MAX = 4096,
    DEVICE_WINDOW_MIN = 512,
    DEVICE_WINDOW_TOKENS = 1 << 22
};

static s24_status make_lane(s24i_encoder_lane *lane, const s24_encoder *e, s24_ctx *ctx)
{
    TRY(s24i_alloc_elems(&lane->offsets, ctx, e->window + 1, sizeof *lane->offsets, "offsets"));
    TRY(s24i_alloc_elems(&lane->ids, ctx, e->batch_tokens, sizeof *lane->ids, "ids"));
    TRY(s24i_alloc_elems(&lane->places, ctx, e->window, sizeof *lane->places, "places"));
    if (e->head && !e->late && e->model->shape.types > 1)
        TRY(s24i_alloc_elems(&lane->types, ctx, e->batch_tokens, sizeof *lane->types, "types"));
    if (e->late && e->late->floor && !e->late->attends)
        TRY(s24i_alloc_elems(&lane->mask, ctx, e->batch_tokens, sizeof *lane->mask, "a mask"));
    const int64_t columns = s24i_max(e->columns, e->modules.given);
    const int states = e->words || e->late;
    const int64_t elems = states ? e->batch_tokens * e->model->shape.width : e->window * columns;
    if (!e->model->device || states)
        return s24i_alloc_elems(&lane->vectors, ctx, elems, sizeof *lane->vectors, "vectors");
    void *memory;
    TRY(s24_device_pinned_alloc(&memory, ctx, e->model->device,
                                (size_t)elems * sizeof *lane->vectors));
    lane->vectors = memory;
    lane->pinned = 1;
    return S24_OK;
}

static s24_status make_sessions(s24_encoder *e, s24_ctx *ctx)
{
    s24_status status = S24_OK;
    for (int i = 0; i < e->lane_count && status == S24_OK; i++)
        status = s24_session_create(&e->lanes[i].session, ctx, e->model, e->batch_tokens);
    for (int i = 0; i < e->lane_count && status == S24_OK; i++)
        e->lanes[i].session->pinned = e->lanes[i].pinned;
    if (status == S24_OK) return S24_OK;
    for (int i = 0; i < e->lane_count; i++) {
        s24_session_destroy(e->lanes[i].session);
        e->lanes[i].session = NULL;
    }
    return status;
}

/* A device that has no room for a batch gets smaller ones; said once. */
static s24_status fit_sessions(s24_encoder *e, s24_ctx *ctx)
{
    const int64_t wanted = e->batch_tokens;
    s24_status status = make_sessions(e, ctx);
    while (status == S24_ERROR_MEMORY && e->model->device && e->batch_tokens / 2 >= e->max_tokens) {
        e->batch_tokens /= 2;
        status = make_sessions(e, ctx);
    }
    if (status == S24_OK && e->batch_tokens < wanted)
        s24_ctx_log(ctx, S24_LOG_WARNING,
                    "batches of %lld tokens instead of %lld: the device has no memory for more",
                    (long long)e->batch_tokens, (long long)wanted);
    return status;
}

s24_status s24i_encoder_make_lanes(s24_encoder *e, s24_ctx *ctx, int64_t batch_tokens)
{
    REQUIRE(ctx, batch_tokens >= 0 && batch_tokens <= 1 << 24, S24_ERROR_ARGUMENT,
            "batch_tokens is %lld, 0 to %d is expected", (long long)batch_tokens, 1 << 24);
    const int64_t usual = e->model->device ? DEVICE_BATCH_TOKENS : BATCH_TOKENS;
    e->lane_count = e->model->device ? S24I_LANES : 1;
    e->batch_tokens = s24i_max(batch_tokens ? batch_tokens : usual, e->max_tokens);
    /* On a device no more than the lanes take, if texts have half of their limit's tokens; but so
       many that short texts of a model that takes long ones fill batches. */
    const int64_t at_once =
        e->model->device ? 2 * S24I_LANES * e->batch_tokens : (int64_t)WINDOW_TOKENS;
    const int64_t least =
        e->model->device ? s24i_min(DEVICE_WINDOW_MIN, DEVICE_WINDOW_TOKENS / e->max_tokens) : 0;
    e->window = s24i_max(WINDOW_MIN, s24i_min(WINDOW_MAX, at_once / e->max_tokens));
    e->window = s24i_max(e->window, least);
    TRY(s24i_alloc_elems(&e->tokens, ctx, e->window * e->max_tokens, sizeof *e->tokens, "tokens"));
    TRY(s24i_alloc_elems(&e->lengths, ctx, e->window, sizeof *e->lengths, "lengths"));
    TRY(s24i_alloc_elems(&e->order, ctx, e->window, sizeof *e->order, "order"));
    TRY(s24i_alloc_elems(&e->starts, ctx, e->max_tokens + 2, sizeof *e->starts, "counts"));
    if (e->late) TRY(s24i_encoder_make_late_room(e, ctx));
    if (s24i_modules_any(&e->modules) && !e->late)
        TRY(s24i_alloc_elems(&e->module_room, ctx, 2 * e->modules.widest, sizeof *e->module_room,
                             "Dense modules"));
    for (int i = 0; i < e->lane_count; i++)
        TRY(make_lane(&e->lanes[i], e, ctx));
    return fit_sessions(e, ctx);
}

void s24i_encoder_free_lanes(s24_encoder *encoder)
{
    s24_ctx *ctx = encoder->ctx;
    for (int i = 0; i < S24I_LANES; i++) {
        s24i_encoder_lane *lane = &encoder->lanes[i];
        s24_session_destroy(lane->session);
        s24_ctx_free(ctx, lane->offsets);
        s24_ctx_free(ctx, lane->ids);
        s24_ctx_free(ctx, lane->types);
        s24_ctx_free(ctx, lane->mask);
        s24_ctx_free(ctx, lane->places);
        if (lane->pinned)
            s24_device_pinned_free(encoder->model->device, lane->vectors);
        else
            s24_ctx_free(ctx, lane->vectors);
    }
    s24_ctx_free(ctx, encoder->module_room);
    s24_ctx_free(ctx, encoder->late_room);
    s24_ctx_free(ctx, encoder->queries);
    s24_ctx_free(ctx, encoder->query_starts);
    s24_ctx_free(ctx, encoder->query_texts);
    s24_ctx_free(ctx, encoder->query_of);
    s24_ctx_free(ctx, encoder->tokens);
    s24_ctx_free(ctx, encoder->lengths);
    s24_ctx_free(ctx, encoder->order);
    s24_ctx_free(ctx, encoder->starts);
}
