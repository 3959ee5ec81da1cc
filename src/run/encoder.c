// SPDX-License-Identifier: Apache-2.0
/*
 * Texts to vectors: a folder's tokenizer, model and prompts put together. Texts go through in
 * windows: a window is tokenized by all threads, ordered by length, cut into batches of like
 * lengths laid end to end, and its vectors are put back in the order of the texts. On a device two
 * lanes, each with a stream, take batches by turns, and the next window is tokenized while they
 * run. What must stay true: a text's vector does not depend on its neighbours but for rounding,
 * and embedding allocates nothing.
 */
#include <string.h>

#include "io/checkpoint/config.h"
#include "io/tokenizer/tokenizer.h"
#include "run/prompts.h"
#include "run/session.h"

#define SENTENCE_CONFIG "sentence_bert_config.json"
enum {
    BATCH_TOKENS = 4096,
    DEVICE_BATCH_TOKENS = 32768,
    WINDOW_TOKENS = 1 << 19,
    WINDOW_MIN = 16,
    WINDOW_MAX = 4096,
    LANES = 2 /* on a device; the CPU has one */
};

/* A batch on its way. */
typedef struct encoder_lane {
    s24_session *session;
    int64_t *offsets; /* [window + 1] */
    int32_t *ids;     /* [batch_tokens] */
    float *vectors;   /* [window, width] */
    int64_t *places;  /* [window] where the vectors belong, in texts */
    int64_t texts;    /* 0: none is on its way */
} encoder_lane;

struct s24_encoder {
    s24_ctx *ctx;
    s24_model *model;
    s24_tokenizer *tokenizer;
    s24i_prompts prompts;
    const char *prompt, *prompt_name; /* of the folder, or own_prompt and NULL */
    char *own_prompt;
    int64_t prompt_tokens; /* that pooling leaves out, [CLS] among them; 0: none */
    int shares;            /* model, tokenizer and prompts are another's */
    int64_t width, max_tokens, batch_tokens;
    int64_t window;    /* texts at a time */
    s24_token *tokens; /* [window, max_tokens] */
    int64_t *lengths;  /* [window] in tokens */
    int64_t *order;    /* [window] texts, the longest first */
    int64_t *starts;   /* [max_tokens + 2] where each length begins in order */
    encoder_lane lanes[LANES];
    int lane_count, next; /* lane */
    int64_t most_tokens;  /* of a pass so far */
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Said before the weights are loaded; other model types are s24_model_load's to refuse. */
static s24_status check_model(s24_ctx *ctx, const s24_checkpoint *checkpoint, const char *path)
{
    REQUIRE(ctx, s24_checkpoint_folder(checkpoint), S24_ERROR_ARGUMENT,
            "%s is a file; an encoder needs its folder, with the tokenizer", path);
    const char *type = s24_checkpoint_model_type(checkpoint);
    const s24i_architecture *arch = type ? s24i_architecture_find(type) : NULL;
    if (!arch || !arch->encodes) return S24_OK;
    REQUIRE(ctx, !arch->key_image, S24_ERROR_UNSUPPORTED,
            "%s: a model of type '%s' reads images, and texts were given", path, type);
    return s24i_pooling_check(ctx, checkpoint);
}

static s24_status load_model(s24_encoder *encoder, s24_ctx *ctx, const char *folder,
                             const s24_model_opts *opts)
{
    s24_checkpoint *checkpoint;
    TRY(s24_checkpoint_open(&checkpoint, ctx, folder));
    s24_status status = check_model(ctx, checkpoint, folder);
    if (status == S24_OK) status = s24_model_load(&encoder->model, ctx, checkpoint, opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

/* The limit of a text's tokens, and whether they are lower case whatever the tokenizer does. */
static s24_status read_limits(s24_encoder *encoder, s24_ctx *ctx, const char *folder, int64_t asked)
{
    s24i_config config;
    s24_model_info info;
    int64_t limit;
    int lower = 0;
    s24_model_describe(&info, encoder->model);
    limit = info.positions;
    s24_status status = s24i_config_load(&config, ctx, folder, SENTENCE_CONFIG, S24I_OPTIONAL);
    if (status == S24_OK)
        status = s24i_config_int(&limit, &config, "max_seq_length", S24I_OPTIONAL, 2, INT32_MAX);
    if (status == S24_OK)
        status = s24i_config_bool(&lower, &config, "do_lower_case", S24I_OPTIONAL);
    s24i_config_free(&config);
    TRY(status);
    REQUIRE(ctx, !asked || (asked >= 2 && asked <= info.positions), S24_ERROR_ARGUMENT,
            "max_tokens is %lld, 2 to the model's positions, %lld, is expected", (long long)asked,
            (long long)info.positions);
    REQUIRE(ctx, info.positions >= 2, S24_ERROR_FORMAT,
            "%s: %lld positions, at least 2 are expected for [CLS] and [SEP]", folder,
            (long long)info.positions);
    REQUIRE(
        ctx, encoder->tokenizer->cls >= 0 && encoder->tokenizer->sep >= 0, S24_ERROR_UNSUPPORTED,
        "%s: a tokenizer that puts no tokens like [CLS] and [SEP] around a text is not supported "
        "in an encoder",
        folder);
    REQUIRE(ctx, s24_tokenizer_vocabulary(encoder->tokenizer) <= info.vocabulary, S24_ERROR_FORMAT,
            "%s: the tokenizer's ids go up to %d, but the model has %lld word embeddings", folder,
            (int)s24_tokenizer_vocabulary(encoder->tokenizer) - 1, (long long)info.vocabulary);
    encoder->tokenizer->lower |= lower;
    encoder->width = info.width;
    encoder->max_tokens = asked ? asked : s24i_min(limit, info.positions);
    return S24_OK;
}

static s24_status make_lane(encoder_lane *lane, const s24_encoder *e, s24_ctx *ctx)
{
    TRY(s24i_alloc_elems(&lane->offsets, ctx, e->window + 1, sizeof *lane->offsets, "offsets"));
    TRY(s24i_alloc_elems(&lane->ids, ctx, e->batch_tokens, sizeof *lane->ids, "ids"));
    TRY(s24i_alloc_elems(&lane->places, ctx, e->window, sizeof *lane->places, "places"));
    return s24i_alloc_elems(&lane->vectors, ctx, e->window * e->width, sizeof *lane->vectors,
                            "vectors");
}

static s24_status make_sessions(s24_encoder *e, s24_ctx *ctx)
{
    s24_status status = S24_OK;
    for (int i = 0; i < e->lane_count && status == S24_OK; i++)
        status = s24_session_create(&e->lanes[i].session, ctx, e->model, e->batch_tokens);
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

static s24_status make_buffers(s24_encoder *e, s24_ctx *ctx, int64_t batch_tokens)
{
    REQUIRE(ctx, batch_tokens >= 0 && batch_tokens <= 1 << 24, S24_ERROR_ARGUMENT,
            "batch_tokens is %lld, 0 to %d is expected", (long long)batch_tokens, 1 << 24);
    const int64_t usual = e->model->device ? DEVICE_BATCH_TOKENS : BATCH_TOKENS;
    e->lane_count = e->model->device ? LANES : 1;
    e->batch_tokens = s24i_max(batch_tokens ? batch_tokens : usual, e->max_tokens);
    /* On a device no more than the lanes take, if texts have half of their limit's tokens. */
    const int64_t at_once = e->model->device ? 2 * LANES * e->batch_tokens : (int64_t)WINDOW_TOKENS;
    e->window = s24i_max(WINDOW_MIN, s24i_min(WINDOW_MAX, at_once / e->max_tokens));
    TRY(s24i_alloc_elems(&e->tokens, ctx, e->window * e->max_tokens, sizeof *e->tokens, "tokens"));
    TRY(s24i_alloc_elems(&e->lengths, ctx, e->window, sizeof *e->lengths, "lengths"));
    TRY(s24i_alloc_elems(&e->order, ctx, e->window, sizeof *e->order, "order"));
    TRY(s24i_alloc_elems(&e->starts, ctx, e->max_tokens + 2, sizeof *e->starts, "counts"));
    for (int i = 0; i < e->lane_count; i++)
        TRY(make_lane(&e->lanes[i], e, ctx));
    return fit_sessions(e, ctx);
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* What a prompt's tokens are is asked of the prompt alone, though text may join its last one. */
static s24_status use_prompt(s24_encoder *e, s24_ctx *ctx, const char *name, const char *text)
{
    const s24_text prompt = {text, strlen(text)};
    int64_t tokens = 0;
    REQUIRE(ctx, prompt.bytes <= INT32_MAX, S24_ERROR_ARGUMENT,
            "the prompt has %zu bytes, at most %d are expected", prompt.bytes, INT32_MAX);
    if (prompt.bytes && !e->model->pooled.pools_prompt) {
        tokens = s24i_tokenizer_encode(e->tokens, e->max_tokens, e->tokenizer, &prompt, 1) - 1;
        if (tokens < 0) return s24i_tokenizer_no_memory(ctx);
        REQUIRE(ctx, tokens + 1 < e->max_tokens, S24_ERROR_ARGUMENT,
                "a prompt of %lld tokens or more leaves none of %lld to be pooled: include_prompt "
                "of the pooling module is false",
                (long long)tokens, (long long)e->max_tokens);
    }
    e->prompt_tokens = tokens;
    e->prompt_name = name;
    e->prompt = text;
    return S24_OK;
}

static s24_status check_encoder(s24_ctx *ctx, const s24_encoder *encoder)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, encoder, S24_ERROR_ARGUMENT, "encoder is NULL");
    return S24_OK;
}

s24_status s24_encoder_choose_prompt(s24_encoder *encoder, s24_ctx *ctx, const char *name)
{
    const char *found, *text;
    TRY(check_encoder(ctx, encoder));
    TRY(s24i_prompts_find(&found, &text, &encoder->prompts, ctx, name));
    return use_prompt(encoder, ctx, found, text);
}

s24_status s24_encoder_set_prompt(s24_encoder *encoder, s24_ctx *ctx, const char *text)
{
    TRY(check_encoder(ctx, encoder));
    const size_t bytes = (text ? strlen(text) : 0) + 1;
    /* The encoder's own memory, whose context may be another than the caller's. */
    char *copy = s24_ctx_alloc(encoder->ctx, bytes);
    REQUIRE(ctx, copy, S24_ERROR_MEMORY, "no memory for a prompt of %zu bytes", bytes - 1);
    memcpy(copy, text ? text : "", bytes);
    const s24_status status = use_prompt(encoder, ctx, NULL, copy);
    s24_ctx_free(encoder->ctx, status == S24_OK ? encoder->own_prompt : copy);
    if (status == S24_OK) encoder->own_prompt = copy;
    return status;
}

const char *s24_encoder_prompt(const s24_encoder *encoder, const char **name)
{
    if (name) *name = encoder ? encoder->prompt_name : NULL;
    return encoder ? encoder->prompt : NULL;
}

const char *s24_encoder_prompt_name(const s24_encoder *encoder, int64_t index, const char **text)
{
    return encoder ? s24i_prompts_at(&encoder->prompts, index, text) : NULL;
}

const char *s24_encoder_prompt_text(const s24_encoder *encoder, const char *name)
{
    return encoder && name ? s24i_prompts_text(&encoder->prompts, name) : NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static s24_status new_encoder(s24_encoder **out, s24_ctx *ctx)
{
    void *memory;
    TRY(s24i_zeroed(&memory, ctx, sizeof **out));
    *out = memory;
    (*out)->ctx = ctx;
    return S24_OK;
}

static s24_status open_encoder(s24_encoder *encoder, s24_ctx *ctx, const char *folder,
                               const s24_encoder_opts *opts)
{
    TRY(load_model(encoder, ctx, folder, &opts->model));
    TRY(s24_tokenizer_load(&encoder->tokenizer, ctx, folder));
    TRY(read_limits(encoder, ctx, folder, opts->max_tokens));
    TRY(s24i_prompts_read(&encoder->prompts, ctx, folder));
    TRY(make_buffers(encoder, ctx, opts->batch_tokens));
    return s24_encoder_choose_prompt(encoder, ctx, opts->prompt);
}

s24_status s24_encoder_open(s24_encoder **out, s24_ctx *ctx, const char *folder,
                            const s24_encoder_opts *opts)
{
    s24_encoder_opts known;
    s24_encoder *encoder;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, folder, S24_ERROR_ARGUMENT, "folder is NULL");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_encoder_opts"));
    if (!known.model.size) known.model.size = sizeof known.model;
    TRY(new_encoder(&encoder, ctx));
    const s24_status status = open_encoder(encoder, ctx, folder, &known);
    if (status != S24_OK) {
        s24_encoder_close(encoder);
        return status;
    }
    *out = encoder;
    return S24_OK;
}

s24_status s24_encoder_share(s24_encoder **out, s24_ctx *ctx, const s24_encoder *from)
{
    s24_encoder *encoder;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, from, S24_ERROR_ARGUMENT, "from is NULL");
    TRY(new_encoder(&encoder, ctx));
    encoder->shares = 1;
    encoder->model = from->model;
    encoder->tokenizer = from->tokenizer;
    encoder->prompts = from->prompts;
    encoder->width = from->width;
    encoder->max_tokens = from->max_tokens;
    s24_status status = make_buffers(encoder, ctx, from->batch_tokens);
    if (status == S24_OK)
        status = from->prompt_name ? s24_encoder_choose_prompt(encoder, ctx, from->prompt_name)
                                   : s24_encoder_set_prompt(encoder, ctx, from->prompt);
    if (status != S24_OK) {
        s24_encoder_close(encoder);
        return status;
    }
    *out = encoder;
    return S24_OK;
}

void s24_encoder_close(s24_encoder *encoder)
{
    if (!encoder) return;
    s24_ctx *ctx = encoder->ctx;
    for (int i = 0; i < LANES; i++) {
        encoder_lane *lane = &encoder->lanes[i];
        s24_session_destroy(lane->session);
        s24_ctx_free(ctx, lane->offsets);
        s24_ctx_free(ctx, lane->ids);
        s24_ctx_free(ctx, lane->places);
        s24_ctx_free(ctx, lane->vectors);
    }
    if (!encoder->shares) {
        s24_model_destroy(encoder->model);
        s24_tokenizer_destroy(encoder->tokenizer);
        s24i_prompts_free(&encoder->prompts);
    }
    s24_ctx_free(ctx, encoder->own_prompt);
    s24_ctx_free(ctx, encoder->tokens);
    s24_ctx_free(ctx, encoder->lengths);
    s24_ctx_free(ctx, encoder->order);
    s24_ctx_free(ctx, encoder->starts);
    s24_ctx_free(ctx, encoder);
}

const s24_model *s24_encoder_model(const s24_encoder *encoder)
{
    return encoder ? encoder->model : NULL;
}

int64_t s24_encoder_sparse_layers(const s24_encoder *encoder, int64_t tokens)
{
    if (!encoder) return 0;
    return s24_session_sparse_layers(encoder->lanes[0].session,
                                     tokens ? tokens : encoder->most_tokens);
}

int64_t s24_encoder_width(const s24_encoder *encoder)
{
    return encoder ? encoder->width : 0;
}

/* ---- embedding ------------------------------------------------------------------------------- */

typedef struct window {
    s24_encoder *encoder;
    const s24_text *texts;
    int64_t first, count; /* of all texts */
    float *embeddings;    /* of all texts */
} window;

static void tokenize(void *arg, int64_t begin, int64_t end, int thread)
{
    const window *w = arg;
    s24_encoder *e = w->encoder;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const s24_text parts[2] = {{e->prompt, strlen(e->prompt)}, w->texts[w->first + i]};
        e->lengths[i] = s24i_tokenizer_encode(e->tokens + i * e->max_tokens, e->max_tokens,
                                              e->tokenizer, parts, 2);
    }
}

static s24_status tokenize_window(const window *w, s24_ctx *ctx)
{
    s24_ctx_parallel_for(ctx, w->count, tokenize, (void *)(uintptr_t)w);
    for (int64_t i = 0; i < w->count; i++)
        if (w->encoder->lengths[i] < 0) return s24i_tokenizer_no_memory(ctx);
    return S24_OK;
}

/* The longest first, equal ones as they came. */
static void sort_by_length(s24_encoder *e, int64_t count)
{
    memset(e->starts, 0, (size_t)(e->max_tokens + 2) * sizeof *e->starts);
    for (int64_t i = 0; i < count; i++)
        e->starts[e->max_tokens - e->lengths[i] + 1]++;
    for (int64_t l = 0; l <= e->max_tokens; l++)
        e->starts[l + 1] += e->starts[l];
    for (int64_t i = 0; i < count; i++)
        e->order[e->starts[e->max_tokens - e->lengths[i]]++] = i;
}

/* Waits for the lane's batch and puts its vectors where they belong. */
static s24_status collect(s24_encoder *e, encoder_lane *lane, s24_ctx *ctx, float *embeddings)
{
    const int64_t texts = lane->texts;
    lane->texts = 0;
    if (!texts) return S24_OK;
    TRY(s24i_session_finish(lane->session, ctx));
    for (int64_t i = 0; i < texts; i++)
        memcpy(embeddings + lane->places[i] * e->width, lane->vectors + i * e->width,
               (size_t)e->width * sizeof(float));
    return S24_OK;
}

/* Sends the texts order[first …] that fit one batch on their way. *done is how many they were. */
static s24_status send_batch(int64_t *done, const window *w, s24_ctx *ctx, int64_t first)
{
    s24_encoder *e = w->encoder;
    encoder_lane *lane = &e->lanes[e->next];
    const s24_outputs outputs = {.embeddings = lane->vectors};
    s24_batch batch = {.offsets = lane->offsets, .ids = lane->ids};
    e->next = (e->next + 1) % e->lane_count;
    TRY(collect(e, lane, ctx, w->embeddings));
    lane->offsets[0] = 0;
    for (int64_t i = first; i < w->count; i++) {
        const int64_t text = e->order[i], start = lane->offsets[batch.texts];
        if (start + e->lengths[text] > e->batch_tokens) break;
        for (int64_t t = 0; t < e->lengths[text]; t++)
            lane->ids[start + t] = e->tokens[text * e->max_tokens + t].id;
        lane->places[batch.texts] = w->first + text;
        lane->offsets[++batch.texts] = start + e->lengths[text];
    }
    lane->session->unpooled = e->prompt_tokens;
    e->most_tokens = s24i_max(e->most_tokens, lane->offsets[batch.texts]);
    TRY(s24i_session_submit(lane->session, ctx, &batch, &outputs));
    lane->texts = batch.texts;
    *done = batch.texts;
    return S24_OK;
}

static s24_status check_texts(const s24_encoder *encoder, s24_ctx *ctx, const s24_text *texts,
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
    sort_by_length(e, w->count);
    for (int64_t i = 0, done; i < w->count; i += done) {
        TRY(send_batch(&done, w, ctx, i));
        TRY(s24_ctx_progress(ctx, "embedding", w->first + i + done, all));
    }
    return S24_OK;
}

s24_status s24_encoder_embed(float *embeddings, int64_t *tokens, s24_encoder *encoder, s24_ctx *ctx,
                             const s24_text *texts, int64_t count)
{
    int64_t total = 0;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, encoder && count >= 0 && (!count || (embeddings && texts)), S24_ERROR_ARGUMENT,
            "%s",
            !encoder      ? "encoder is NULL"
            : count < 0   ? "count is negative"
            : !embeddings ? "embeddings is NULL"
                          : "texts is NULL");
    TRY(check_texts(encoder, ctx, texts, count));
    s24_status status = S24_OK;
    for (int64_t at = 0; at < count && status == S24_OK; at += encoder->window) {
        const window w = {encoder, texts, at, s24i_min(encoder->window, count - at), embeddings};
        status = run_window(&w, ctx, count);
        for (int64_t i = 0; i < w.count; i++)
            total += encoder->lengths[i];
    }
    for (int i = 0; i < encoder->lane_count; i++) {
        encoder_lane *lane = &encoder->lanes[(encoder->next + i) % encoder->lane_count];
        if (status == S24_OK) status = collect(encoder, lane, ctx, embeddings);
        if (lane->texts) (void)s24i_session_finish(lane->session, encoder->ctx);
        lane->texts = 0;
    }
    if (tokens) *tokens = total;
    return status;
}
