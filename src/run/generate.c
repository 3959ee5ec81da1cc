// SPDX-License-Identifier: Apache-2.0
/*
 * Texts that go on: passes over what each text has that the model has not seen, which is first its
 * prompt and then its newest token, and a choice for each text whose tokens are all seen.
 */
#include <math.h>

#include "run/cpu/kv_cache.h"
#include "run/sample.h"

enum { MOST_LIKELY = 1000 };

typedef struct growing {
    int64_t first, most; /* of its new tokens: where they stand, and room for them */
    int64_t made, seen;  /* seen: tokens that the model has had, of prompt and text */
    int ended;
} growing;

/* Tokens that go through the model at once. */
typedef struct growth {
    int32_t *ids;             /* [tokens of the session] */
    int64_t *offsets;         /* [rows + 1] */
    int64_t *places;          /* [rows] which text each is of */
    int64_t *ready, *ends;    /* [rows] texts that are seen whole, and their last tokens here */
    s24_new_token *next;      /* [rows] theirs */
    s24_likely_token *likely; /* [rows, likely_count] */
    int64_t count, ready_count;
} growth;

typedef struct generation {
    s24_session *session;
    s24_ctx *ctx;
    s24_cache *cache;
    const s24_batch *prompts;
    s24_generate_opts opts;
    growing *texts;
    int32_t *ids; /* [most] new tokens of all texts, one text after the other */
    int64_t most;
    int64_t made, live; /* tokens; texts that have not ended */
    growth pass;
    int64_t words, likely_count;
    float *logits;              /* [rows, words], or */
    s24i_pick *picks;           /* [rows] the likeliest tokens, where a device finds them */
    s24i_candidate *candidates; /* [threads, words] */
} generation;

static int64_t prompt_tokens(const s24_batch *prompts, int64_t text)
{
    return prompts->offsets[text + 1] - prompts->offsets[text];
}

/* ---- checks ---------------------------------------------------------------------------------- */

static s24_status check_opts(s24_ctx *ctx, const s24_generate_opts *o)
{
    REQUIRE(ctx, o->max_new > 0, S24_ERROR_ARGUMENT, "max_new is %lld; at least 1 was expected",
            (long long)o->max_new);
    REQUIRE(ctx, o->temperature >= 0 && isfinite(o->temperature), S24_ERROR_ARGUMENT,
            "temperature is %g; a number of at least 0 was expected", o->temperature);
    REQUIRE(ctx, o->top_k >= 0, S24_ERROR_ARGUMENT, "top_k is %lld; at least 0 was expected",
            (long long)o->top_k);
    REQUIRE(ctx, o->top_p > 0 && o->top_p <= 1, S24_ERROR_ARGUMENT,
            "top_p is %g; over 0 and at most 1 was expected", o->top_p);
    REQUIRE(ctx, o->min_p >= 0 && o->min_p <= 1, S24_ERROR_ARGUMENT,
            "min_p is %g; 0 to 1 was expected", o->min_p);
    REQUIRE(ctx, o->repeat_penalty > 0 && isfinite(o->repeat_penalty), S24_ERROR_ARGUMENT,
            "repeat_penalty is %g; a number over 0 was expected", o->repeat_penalty);
    REQUIRE(ctx, o->likeliest >= 0 && o->likeliest <= MOST_LIKELY, S24_ERROR_ARGUMENT,
            "likeliest is %lld; 0 to %d was expected", (long long)o->likeliest, MOST_LIKELY);
    REQUIRE(ctx, o->stop_count >= 0 && (o->stops || !o->stop_count), S24_ERROR_ARGUMENT,
            "stop_count is %lld, and stops is %s", (long long)o->stop_count,
            o->stops ? "there" : "NULL");
    return S24_OK;
}

static s24_status read_opts(s24_ctx *ctx, s24_generate_opts *o, const s24_generate_opts *given)
{
    TRY(s24i_opts_read(ctx, o, sizeof *o, given, "s24_generate_opts"));
    if (!o->max_new) o->max_new = 128;
    if (o->top_p == 0) o->top_p = 1;
    if (o->repeat_penalty == 0) o->repeat_penalty = 1;
    return check_opts(ctx, o);
}

static s24_status check_room(s24_ctx *ctx, const s24_cache *cache, const s24_batch *prompts,
                             int64_t text)
{
    const int64_t count = prompt_tokens(prompts, text), there = cache->counts[text];
    REQUIRE(ctx, count <= cache->room - there, S24_ERROR_ARGUMENT,
            "prompt %lld has %lld tokens; its text of the cache has room for %lld, and the model "
            "for %lld",
            (long long)text, (long long)count, (long long)(cache->room - there),
            (long long)(cache->model->shape.positions - there));
    return S24_OK;
}

static s24_status check_prompts(s24_ctx *ctx, const s24_session *session, const s24_cache *cache,
                                const s24_batch *prompts)
{
    REQUIRE(ctx, session->model->lm_head.n > 0, S24_ERROR_UNSUPPORTED,
            "a %s model has no head that gives the next token",
            session->model->architecture->model_type);
    REQUIRE(ctx, prompts->texts > 0 && prompts->offsets && prompts->ids && !prompts->offsets[0],
            S24_ERROR_ARGUMENT, "the batch has no prompts, no offsets from 0 on, or no ids");
    REQUIRE(ctx, !prompts->mask && !prompts->types, S24_ERROR_ARGUMENT,
            "the prompts have %s, which a text that goes on has not",
            prompts->mask ? "a mask" : "types");
    REQUIRE(ctx, prompts->texts <= cache->texts, S24_ERROR_ARGUMENT,
            "there are %lld prompts; the cache has room for %lld texts", (long long)prompts->texts,
            (long long)cache->texts);
    for (int64_t b = 0; b < prompts->texts; b++)
        TRY(check_room(ctx, cache, prompts, b));
    return s24i_batch_check(ctx, prompts, &session->model->shape, INT64_MAX, "session");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A text's last token needs no room: the model does not see it. */
static int64_t most_new(const generation *g, int64_t text)
{
    const int64_t there = g->cache->counts[text] + prompt_tokens(g->prompts, text);
    return s24i_min(g->opts.max_new, g->cache->room - there + 1);
}

static s24_status lay_out_texts(generation *g)
{
    const int64_t count = g->prompts->texts;
    int64_t ids = 0;
    TRY(s24i_alloc_elems(&g->texts, g->ctx, count, sizeof *g->texts, "texts"));
    for (int64_t b = 0; b < count; b++) {
        g->texts[b] = (growing){.first = ids, .most = most_new(g, b)};
        ids += g->texts[b].most;
    }
    g->most = ids;
    return s24i_alloc_elems(&g->ids, g->ctx, ids, sizeof *g->ids, "new tokens");
}

/* Does the device find the next tokens? Nothing but the likeliest ones is asked for then. */
static int picks_there(const generation *g)
{
    return g->session->gpu && g->opts.temperature == 0 && g->opts.repeat_penalty == 1 &&
           !g->likely_count;
}

/* Room for what decides about the next token of each text. */
static s24_status lay_out_choice(generation *g, int64_t texts)
{
    if (picks_there(g))
        return s24i_alloc_elems(&g->picks, g->ctx, texts, sizeof *g->picks, "new tokens");
    TRY(s24i_alloc_elems(&g->logits, g->ctx, texts * g->words, sizeof(float), "logits"));
    return s24i_alloc_elems(&g->candidates, g->ctx, s24_ctx_threads(g->ctx) * g->words,
                            sizeof(s24i_candidate), "candidates");
}

static s24_status lay_out(generation *g)
{
    const int64_t tokens = g->session->max_tokens, texts = s24i_min(g->prompts->texts, tokens);
    g->words = g->session->model->lm_head.n;
    g->likely_count = s24i_min(g->opts.likeliest, g->words);
    TRY(lay_out_texts(g));
    TRY(s24i_alloc_elems(&g->pass.ids, g->ctx, tokens, sizeof(int32_t), "tokens"));
    TRY(s24i_alloc_elems(&g->pass.offsets, g->ctx, texts + 1, sizeof(int64_t), "tokens"));
    TRY(s24i_alloc_elems(&g->pass.places, g->ctx, texts, sizeof(int64_t), "texts"));
    TRY(s24i_alloc_elems(&g->pass.ready, g->ctx, texts, sizeof(int64_t), "texts"));
    TRY(s24i_alloc_elems(&g->pass.ends, g->ctx, texts, sizeof(int64_t), "texts"));
    TRY(s24i_alloc_elems(&g->pass.next, g->ctx, texts, sizeof(s24_new_token), "new tokens"));
    TRY(s24i_alloc_elems(&g->pass.likely, g->ctx, texts * g->likely_count, sizeof(s24_likely_token),
                         "likely tokens"));
    return lay_out_choice(g, texts);
}

static void give_back(generation *g)
{
    s24_ctx_free(g->ctx, g->texts);
    s24_ctx_free(g->ctx, g->ids);
    s24_ctx_free(g->ctx, g->pass.ids);
    s24_ctx_free(g->ctx, g->pass.offsets);
    s24_ctx_free(g->ctx, g->pass.places);
    s24_ctx_free(g->ctx, g->pass.ready);
    s24_ctx_free(g->ctx, g->pass.ends);
    s24_ctx_free(g->ctx, g->pass.next);
    s24_ctx_free(g->ctx, g->pass.likely);
    s24_ctx_free(g->ctx, g->logits);
    s24_ctx_free(g->ctx, g->picks);
    s24_ctx_free(g->ctx, g->candidates);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* The text's token at a place: of its prompt, or of what came after it. */
static int32_t token_at(const generation *g, int64_t text, int64_t at)
{
    const int64_t count = prompt_tokens(g->prompts, text);
    if (at < count) return g->prompts->ids[g->prompts->offsets[text] + at];
    return g->ids[g->texts[text].first + at - count];
}

/* Takes tokens that the model has not seen, from text *next on; 0: there are none. */
static int64_t take(generation *g, int64_t *next)
{
    growth *p = &g->pass;
    int64_t used = 0;
    p->count = p->ready_count = p->offsets[0] = 0;
    for (; *next < g->prompts->texts && used < g->session->max_tokens; ++*next) {
        growing *text = &g->texts[*next];
        const int64_t all = prompt_tokens(g->prompts, *next) + text->made;
        if (text->ended) continue;
        while (text->seen < all && used < g->session->max_tokens)
            p->ids[used++] = token_at(g, *next, text->seen++);
        p->places[p->count++] = *next;
        p->offsets[p->count] = used;
        if (text->seen < all) break; /* a long prompt goes on in the next pass */
        p->ready[p->ready_count] = *next;
        p->ends[p->ready_count++] = used - 1;
    }
    return used;
}

static s24_status run_pass(generation *g)
{
    const growth *p = &g->pass;
    const s24_batch batch = {.texts = p->count, .offsets = p->offsets, .ids = p->ids};
    const s24_extension extension = {.batch = &batch, .texts = p->places};
    const s24_outputs outputs = {.logits = p->ready_count ? g->logits : NULL,
                                 .tokens = p->ends,
                                 .token_count = p->ready_count};
    g->session->picks = g->picks;
    const s24_status status =
        s24_session_extend(g->session, g->ctx, g->cache, &extension, &outputs);
    g->session->picks = NULL;
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static s24_end end_of(const generation *g, const growing *text, int32_t id)
{
    for (int64_t i = 0; i < g->opts.stop_count; i++)
        if (g->opts.stops[i] == id) return S24_END_STOP;
    return text->made + 1 == text->most ? S24_END_LENGTH : S24_END_NONE;
}

static void take_pick(const generation *g, int64_t row)
{
    const int64_t b = g->pass.ready[row];
    const growing *text = &g->texts[b];
    const s24i_pick *pick = &g->picks[row];
    g->pass.next[row] = (s24_new_token){.prompt = b,
                                        .index = text->made,
                                        .id = pick->id,
                                        .log_probability = pick->log_probability,
                                        .end = end_of(g, text, pick->id)};
}

static void choose(const generation *g, int64_t row, s24i_candidate *candidates)
{
    const int64_t b = g->pass.ready[row];
    const growing *text = &g->texts[b];
    const float *logits = g->logits + row * g->words;
    const int64_t number = g->opts.numbers ? g->opts.numbers[b] : b;
    const s24i_sample sample = {.logits = logits,
                                .words = g->words,
                                .prompt = g->prompts->ids + g->prompts->offsets[b],
                                .prompt_tokens = prompt_tokens(g->prompts, b),
                                .text = g->ids + text->first,
                                .text_tokens = text->made,
                                .draw = s24i_sample_draw(g->opts.seed, number, text->made),
                                .candidates = candidates};
    const int32_t id = s24i_sample_next(&sample, &g->opts);
    s24_new_token *token = &g->pass.next[row];
    *token = (s24_new_token){.prompt = b, .index = text->made, .id = id};
    if (id < 0) return;
    const float sum = g->session->vec->log_sum(logits, g->words);
    token->log_probability = logits[id] - sum;
    token->end = end_of(g, text, id);
    if (!g->likely_count) return;
    s24_likely_token *likely = g->pass.likely + row * g->likely_count;
    s24i_sample_likeliest(likely, g->likely_count, logits, g->words, candidates);
    for (int64_t i = 0; i < g->likely_count; i++)
        likely[i].log_probability -= sum;
    token->likeliest = likely;
    token->likeliest_count = g->likely_count;
}

static void choose_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const generation *g = arg;
    for (int64_t row = begin; row < end; row++)
        if (g->picks)
            take_pick(g, row);
        else
            choose(g, row, g->candidates + thread * g->words);
}

/* Adds the tokens to their texts and tells the caller. */
static s24_status deliver(generation *g)
{
    for (int64_t row = 0; row < g->pass.ready_count; row++) {
        const s24_new_token *token = &g->pass.next[row];
        growing *text = &g->texts[token->prompt];
        REQUIRE(g->ctx, token->id >= 0, S24_ERROR_NOT_FINITE,
                "the logits of new token %lld of prompt %lld have a NaN or an infinite largest one",
                (long long)token->index, (long long)token->prompt);
        g->ids[text->first + text->made++] = token->id;
        g->made++;
        const int enough = g->opts.token && g->opts.token(g->opts.user, token);
        text->ended = enough || token->end != S24_END_NONE;
        g->live -= text->ended;
    }
    return S24_OK;
}

static s24_status run_texts(generation *g)
{
    int64_t next = 0;
    while (g->live > 0) {
        if (next == g->prompts->texts) next = 0;
        if (!take(g, &next)) continue; /* those that are left have ended */
        TRY(s24_ctx_progress(g->ctx, "new tokens", g->made, g->most));
        TRY(run_pass(g));
        s24_ctx_parallel_for(g->ctx, g->pass.ready_count, choose_range, g);
        TRY(deliver(g));
    }
    return S24_OK;
}

static s24_status generate(generation *g, const s24_generate_opts *opts)
{
    TRY(read_opts(g->ctx, &g->opts, opts));
    TRY(check_prompts(g->ctx, g->session, g->cache, g->prompts));
    g->live = g->prompts->texts;
    s24_status status = lay_out(g);
    if (status == S24_OK) status = run_texts(g);
    give_back(g);
    return status;
}

s24_status s24_generate(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                        const s24_batch *prompts, const s24_generate_opts *opts)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, session && cache && prompts, S24_ERROR_ARGUMENT, "%s is NULL",
            !session ? "session"
            : !cache ? "cache"
                     : "prompts");
    generation g = {.session = session, .ctx = ctx, .cache = cache, .prompts = prompts};
    return generate(&g, opts);
}
