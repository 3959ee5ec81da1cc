// SPDX-License-Identifier: Apache-2.0
/*
 * Texts to vectors: a folder's tokenizer, model and prompts put together. Texts go through in
 * windows: a window is tokenized by all threads, ordered by length, cut into batches of like
 * lengths laid end to end, and its vectors are put back in the order of the texts. On a device two
 * lanes, each with a stream, take batches by turns, and the next window is tokenized while they
 * run. What must stay true: a text's vector does not depend on its neighbours but for rounding,
 * and embedding allocates nothing.
 */
#include "run/encoder.h"

#include <string.h>

typedef s24i_encoder_texts window;

/* A text's ids, no more than the limit. Returns how many. */
static int64_t take_ids(s24_token *tokens, const s24_batch *ids, int64_t text, int64_t most)
{
    const int64_t first = ids->offsets[text];
    const int64_t count = s24i_min(ids->offsets[text + 1] - first, most);
    for (int64_t t = 0; t < count; t++)
        tokens[t].id = ids->ids[first + t];
    return count;
}

static int64_t take_pair(s24_token *tokens, const window *w, int64_t i)
{
    const s24_text_pairs *p = w->pairs;
    const s24_encoder *e = w->encoder;
    const s24_text text = p->texts[p->same_text ? 0 : i];
    if (!p->pairs) return s24i_tokenizer_encode(tokens, e->max_tokens, e->tokenizer, &text, 1);
    const s24_text both[2] = {text, p->pairs[i]};
    if (e->by_token)
        return s24i_pair_layout_encode(tokens, e->max_tokens, e->tokenizer, &e->layout, both);
    return s24i_tokenizer_encode_pair(tokens, e->max_tokens, e->tokenizer, both);
}

static int64_t take_text(s24_token *tokens, const window *w, int64_t i)
{
    s24_encoder *e = w->encoder;
    if (w->ids) return take_ids(tokens, w->ids, i, e->max_tokens);
    if (w->pairs) return take_pair(tokens, w, i);
    const s24_text parts[2] = {{e->prompt, strlen(e->prompt)}, w->texts[i]};
    if (e->late) return s24i_late_encode(tokens, e->late, e->side, e->tokenizer, parts);
    return s24i_tokenizer_encode(tokens, e->max_tokens, e->tokenizer, parts, 2);
}

static void tokenize(void *arg, int64_t begin, int64_t end, int thread)
{
    const window *w = arg;
    s24_encoder *e = w->encoder;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        s24_token *tokens = e->tokens + i * e->max_tokens;
        int64_t length = take_text(tokens, w, w->first + i);
        for (; e->filler >= 0 && length > 0 && length < e->max_tokens; length++)
            tokens[length] = (s24_token){.id = e->filler};
        e->lengths[i] = length;
    }
}

static s24_status tokenize_window(const window *w, s24_ctx *ctx)
{
    s24_ctx_parallel_for(ctx, w->count, tokenize, (void *)(uintptr_t)w);
    for (int64_t i = 0; i < w->count; i++) {
        if (w->encoder->lengths[i] < 0) return s24i_tokenizer_no_memory(ctx);
        REQUIRE(ctx, w->encoder->lengths[i] > 0, S24_ERROR_ARGUMENT, "text %lld has no token",
                (long long)(w->first + i));
    }
    return w->vectors ? s24i_encoder_late_offsets(w, ctx) : S24_OK;
}

void s24i_encoder_sort(s24_encoder *e, int64_t count)
{
    memset(e->starts, 0, (size_t)(e->max_tokens + 2) * sizeof *e->starts);
    for (int64_t i = 0; i < count; i++)
        e->starts[e->max_tokens - e->lengths[i] + 1]++;
    for (int64_t l = 0; l <= e->max_tokens; l++)
        e->starts[l + 1] += e->starts[l];
    for (int64_t i = 0; i < count; i++)
        e->order[e->starts[e->max_tokens - e->lengths[i]]++] = i;
}

/* Weights of words of the lane's batch, the states of whose tokens are there. */
static s24_status weigh(const window *w, const s24i_encoder_lane *lane, s24_ctx *ctx, int64_t texts)
{
    const s24i_words_job job = {.states = lane->vectors,
                                .offsets = lane->offsets,
                                .places = lane->places,
                                .texts = texts,
                                .out = w->weights,
                                .vec = lane->session->vec};
    return s24i_words_run(w->encoder->words, ctx, &job);
}

s24_status s24i_encoder_collect(const s24i_encoder_texts *w, s24i_encoder_lane *lane, s24_ctx *ctx)
{
    s24_encoder *e = w->encoder;
    float *results = w->results;
    const int64_t texts = lane->texts;
    lane->texts = 0;
    if (!texts) return S24_OK;
    TRY(s24i_session_finish(lane->session, ctx));
    if (e->words) return weigh(w, lane, ctx, texts);
    if (e->late) return s24i_encoder_late_collect(w, lane, ctx, texts);
    for (int64_t i = 0; i < texts && e->module_room; i++)
        s24i_modules_apply(results + lane->places[i] * e->columns, &e->modules, lane->session->vec,
                           lane->vectors + i * e->modules.given, e->module_room);
    for (int64_t i = 0; i < texts && !e->module_room; i++)
        memcpy(results + lane->places[i] * e->columns, lane->vectors + i * e->columns,
               (size_t)e->columns * sizeof(float));
    return S24_OK;
}

/* Sends the texts order[first …] that fit one batch on their way. *done is how many they were. */
static s24_status send_batch(int64_t *done, const window *w, s24_ctx *ctx, int64_t first)
{
    s24_encoder *e = w->encoder;
    s24i_encoder_lane *lane = &e->lanes[e->next];
    const int states = e->words || e->late;
    const s24_outputs outputs = {.hidden = states ? lane->vectors : NULL,
                                 .embeddings = e->head || states ? NULL : lane->vectors,
                                 .logits = e->head && !states ? lane->vectors : NULL};
    s24_batch batch = {.offsets = lane->offsets, .ids = lane->ids, .types = lane->types};
    if (e->side == S24I_SIDE_QUERY) batch.mask = lane->mask;
    e->next = (e->next + 1) % e->lane_count;
    TRY(s24i_encoder_collect(w, lane, ctx));
    lane->offsets[0] = 0;
    for (int64_t i = first; i < w->count; i++) {
        const int64_t text = e->order[i], start = lane->offsets[batch.texts];
        if (start + e->lengths[text] > e->batch_tokens) break;
        for (int64_t t = 0; t < e->lengths[text]; t++) {
            lane->ids[start + t] = e->tokens[text * e->max_tokens + t].id;
            if (lane->types) lane->types[start + t] = e->tokens[text * e->max_tokens + t].type;
            if (lane->mask) lane->mask[start + t] = e->tokens[text * e->max_tokens + t].end >= 0;
        }
        lane->places[batch.texts] = w->first + text;
        lane->offsets[++batch.texts] = start + e->lengths[text];
    }
    lane->session->unpooled = e->prompt_tokens;
    lane->session->takes_ways = 1;
    e->most_tokens = s24i_max(e->most_tokens, lane->offsets[batch.texts]);
    TRY(s24i_session_submit(lane->session, ctx, &batch, &outputs));
    lane->texts = batch.texts;
    *done = batch.texts;
    return S24_OK;
}

s24_status s24i_encoder_check_texts(const s24_encoder *encoder, s24_ctx *ctx, const s24_text *texts,
                                    int64_t count)
{
    const size_t most = INT32_MAX - strlen(encoder->prompt);
    for (int64_t i = 0; i < count; i++) {
        REQUIRE(ctx, texts[i].data || !texts[i].bytes, S24_ERROR_ARGUMENT, "texts[%lld] is NULL",
                (long long)i);
        REQUIRE(ctx, texts[i].bytes <= most, S24_ERROR_ARGUMENT,
                "texts[%lld] has %zu bytes, at most %zu are expected", (long long)i, texts[i].bytes,
                most);
    }
    return S24_OK;
}

static s24_status run_window(const window *w, s24_ctx *ctx, int64_t all)
{
    s24_encoder *e = w->encoder;
    TRY(tokenize_window(w, ctx));
    s24i_encoder_sort(e, w->count);
    for (int64_t i = 0, done; i < w->count; i += done) {
        TRY(send_batch(&done, w, ctx, i));
        TRY(s24_ctx_progress(ctx, "embedding", w->first + i + done, all));
    }
    return S24_OK;
}

s24_status s24i_encoder_check_ids(const s24_encoder *encoder, s24_ctx *ctx, const s24_batch *ids)
{
    const int64_t vocabulary = encoder->model->shape.vocabulary;
    for (int64_t b = 0; b < ids->texts; b++)
        REQUIRE(ctx, ids->offsets[b + 1] - ids->offsets[b] > encoder->prompt_tokens,
                S24_ERROR_ARGUMENT, "text %lld has no token id%s", (long long)b,
                encoder->prompt_tokens ? " after those of the prompt" : "");
    for (int64_t i = ids->offsets[0]; i < ids->offsets[ids->texts]; i++)
        REQUIRE(ctx, ids->ids[i] >= 0 && ids->ids[i] < vocabulary, S24_ERROR_ARGUMENT,
                "token %lld has id %d, 0 to %lld is expected", (long long)i, (int)ids->ids[i],
                (long long)vocabulary - 1);
    return S24_OK;
}

s24_status s24i_encoder_run(int64_t *tokens, const s24i_encoder_texts *all, s24_ctx *ctx)
{
    s24_encoder *encoder = all->encoder;
    int64_t total = 0;
    s24_status status = S24_OK;
    for (int i = 0; i < encoder->lane_count; i++)
        REQUIRE(ctx, !encoder->lanes[i].texts, S24_ERROR_ARGUMENT,
                "a batch that was begun has not been ended");
    for (int64_t at = 0; at < all->count && status == S24_OK; at += encoder->window) {
        window w = *all;
        w.first = at;
        w.count = s24i_min(encoder->window, all->count - at);
        status = run_window(&w, ctx, all->count);
        for (int64_t i = 0; i < w.count; i++)
            total += encoder->lengths[i];
    }
    for (int i = 0; i < encoder->lane_count; i++) {
        s24i_encoder_lane *lane = &encoder->lanes[(encoder->next + i) % encoder->lane_count];
        if (status == S24_OK) status = s24i_encoder_collect(all, lane, ctx);
        if (lane->texts) (void)s24i_session_finish(lane->session, encoder->ctx);
        lane->texts = 0;
    }
    encoder->oldest = encoder->next;
    if (tokens) *tokens = total;
    return status;
}

static s24_status check_embeds(s24_ctx *ctx, const s24_encoder *encoder)
{
    REQUIRE(ctx, !encoder->words, S24_ERROR_ARGUMENT,
            "the encoder pools by splade: it gives weights of words, and no embeddings");
    REQUIRE(ctx, !encoder->late, S24_ERROR_ARGUMENT,
            "the encoder gives a vector for each token, and none for a text");
    return S24_OK;
}

/* One batch of images on the encoder's first lane. */
static s24_status embed_images(float *embeddings, s24_encoder *e, s24_ctx *ctx, const float *pixels,
                               int64_t count)
{
    s24i_encoder_lane *lane = &e->lanes[0];
    const s24_batch batch = {.texts = count, .pixels = pixels};
    const s24_outputs outputs = {.embeddings = lane->vectors};
    lane->session->unpooled = 0;
    lane->session->takes_ways = 1;
    TRY(s24i_session_submit(lane->session, ctx, &batch, &outputs));
    for (int64_t i = 0; i < count; i++)
        lane->places[i] = i;
    lane->texts = count;
    const window all = {.encoder = e, .results = embeddings};
    return s24i_encoder_collect(&all, lane, ctx);
}

s24_image_form s24_encoder_image_form(const s24_encoder *encoder)
{
    return encoder ? encoder->form : (s24_image_form){0};
}

s24_status s24_encoder_embed_pixels(float *embeddings, s24_encoder *encoder, s24_ctx *ctx,
                                    const float *pixels, int64_t count)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, encoder && count >= 0 && (!count || (embeddings && pixels)), S24_ERROR_ARGUMENT,
            "%s",
            !encoder      ? "encoder is NULL"
            : count < 0   ? "count is negative"
            : !embeddings ? "embeddings is NULL"
                          : "pixels is NULL");
    REQUIRE(ctx, encoder->images, S24_ERROR_ARGUMENT,
            "images were given to an encoder of texts; the option images opens one of images");
    const int64_t image = s24i_image_elems(&encoder->model->shape);
    const int64_t fit = encoder->batch_tokens / encoder->model->shape.positions;
    const int64_t most = s24i_min(s24i_max(fit, 1), encoder->window);
    for (int64_t i = 0, n; i < count; i += n) {
        n = s24i_min(most, count - i);
        TRY(embed_images(embeddings + i * encoder->columns, encoder, ctx, pixels + i * image, n));
    }
    return S24_OK;
}

s24_status s24_encoder_embed(float *embeddings, int64_t *tokens, s24_encoder *encoder, s24_ctx *ctx,
                             const s24_text *texts, int64_t count)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, encoder && count >= 0 && (!count || (embeddings && texts)), S24_ERROR_ARGUMENT,
            "%s",
            !encoder      ? "encoder is NULL"
            : count < 0   ? "count is negative"
            : !embeddings ? "embeddings is NULL"
                          : "texts is NULL");
    REQUIRE(ctx, !encoder->head, S24_ERROR_ARGUMENT,
            "the encoder was opened with the option head, and gives no embeddings");
    REQUIRE(ctx, encoder->tokenizer, S24_ERROR_ARGUMENT, "texts were given to an encoder of %s",
            encoder->images ? "images" : "token ids, which has no tokenizer");
    TRY(check_embeds(ctx, encoder));
    TRY(s24i_encoder_check_texts(encoder, ctx, texts, count));
    const window all = {.encoder = encoder, .texts = texts, .count = count, .results = embeddings};
    return s24i_encoder_run(tokens, &all, ctx);
}

s24_status s24_encoder_embed_ids(float *embeddings, int64_t *tokens, s24_encoder *encoder,
                                 s24_ctx *ctx, const s24_batch *ids)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx,
            encoder && ids && ids->texts >= 0 &&
                (!ids->texts || (embeddings && ids->offsets && ids->ids)),
            S24_ERROR_ARGUMENT, "%s",
            !encoder         ? "encoder is NULL"
            : !ids           ? "ids is NULL"
            : ids->texts < 0 ? "ids.texts is negative"
            : !embeddings    ? "embeddings is NULL"
                             : "ids has no offsets or no ids");
    REQUIRE(ctx, !encoder->images, S24_ERROR_ARGUMENT,
            "token ids were given to an encoder of images");
    TRY(check_embeds(ctx, encoder));
    if (ids->texts) TRY(s24i_encoder_check_ids(encoder, ctx, ids));
    const window all = {.encoder = encoder, .ids = ids, .count = ids->texts, .results = embeddings};
    return s24i_encoder_run(tokens, &all, ctx);
}
