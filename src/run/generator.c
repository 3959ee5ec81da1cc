// SPDX-License-Identifier: Apache-2.0
/*
 * Texts that go on together: passes over what each text has that the model has not seen, which is
 * first its prompt and then its newest token, and a choice for each text whose tokens are all seen.
 * They join and leave between passes. What must stay true: a text's tokens are its own whatever
 * runs with it, and steps allocate nothing.
 */
#include "run/generator.h"

#include <math.h>
#include <string.h>

#include "run/cpu/kv_cache.h"

enum { MOST_LIKELY = 1000 };

/* A text of the cache. */
typedef struct growing {
    s24_generate_opts opts;
    int32_t *ids;         /* [room of the cache and 1]: its prompt, then its new tokens */
    int64_t prompt, most; /* tokens of the prompt; most new ones */
    int64_t made, seen;   /* seen: tokens that the model has had, of prompt and text */
    int64_t told, number; /* as which prompt its tokens are told; by which it is drawn */
    int live;
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
    int picked; /* a device finds the likeliest tokens */
} growth;

struct s24_generator {
    s24_ctx *ctx; /* whose memory it has */
    s24_session *session;
    s24_cache *cache;
    s24_generator_opts opts;
    growing *texts; /* [count] */
    int64_t count;
    int32_t *ids;
    int64_t *live; /* [live_count] texts that go on, in the order of their coming */
    int64_t live_count, next;
    int64_t made, most; /* new tokens of all that joined, and the most that is known of */
    growth pass;
    int64_t words, likely_count;
    float *logits;              /* [rows, words], or */
    s24i_pick *picks;           /* [rows] the likeliest tokens, where a device finds them */
    s24i_candidate *candidates; /* [threads, words] */
};

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

s24_status s24i_generate_opts_read(s24_ctx *ctx, s24_generate_opts *known,
                                   const s24_generate_opts *given)
{
    TRY(s24i_opts_read(ctx, known, sizeof *known, given, "s24_generate_opts"));
    if (!known->max_new) known->max_new = 128;
    if (known->top_p == 0) known->top_p = 1;
    if (known->repeat_penalty == 0) known->repeat_penalty = 1;
    return check_opts(ctx, known);
}

s24_status s24i_generator_room(s24_ctx *ctx, const s24_cache *cache, int64_t text, int64_t count,
                               int64_t index)
{
    const int64_t there = text < cache->texts ? cache->counts[text] : 0;
    REQUIRE(ctx, count <= cache->room - there, S24_ERROR_ARGUMENT,
            "prompt %lld has %lld tokens; its text of the cache has room for %lld, and the model "
            "for %lld",
            (long long)index, (long long)count, (long long)(cache->room - there),
            (long long)(cache->model->shape.positions - there));
    return S24_OK;
}

static s24_status check_generator(s24_ctx *ctx, const s24_session *session,
                                  const s24_generator_opts *o)
{
    REQUIRE(ctx, session->model->lm_head.n > 0, S24_ERROR_UNSUPPORTED,
            "a %s model has no head that gives the next token",
            session->model->architecture->model_type);
    REQUIRE(ctx, o->prompt_tokens >= 0 && o->prompt_tokens < session->max_tokens,
            S24_ERROR_ARGUMENT,
            "prompt_tokens is %lld; 0 to %lld, fewer than the session's tokens, was expected",
            (long long)o->prompt_tokens, (long long)session->max_tokens - 1);
    REQUIRE(ctx, o->likeliest >= 0 && o->likeliest <= MOST_LIKELY, S24_ERROR_ARGUMENT,
            "likeliest is %lld; 0 to %d was expected", (long long)o->likeliest, MOST_LIKELY);
    return S24_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static s24_status lay_out_texts(s24_generator *g)
{
    const int64_t most = g->cache->room + 1; /* the last token needs no room in the cache */
    TRY(s24i_alloc_elems(&g->texts, g->ctx, g->count, sizeof *g->texts, "texts"));
    memset(g->texts, 0, (size_t)g->count * sizeof *g->texts);
    TRY(s24i_alloc_elems(&g->live, g->ctx, g->count, sizeof *g->live, "texts"));
    TRY(s24i_alloc_elems(&g->ids, g->ctx, g->count * most, sizeof *g->ids, "tokens of texts"));
    for (int64_t i = 0; i < g->count; i++)
        g->texts[i].ids = g->ids + i * most;
    return S24_OK;
}

/* Room for what decides about the next tokens. */
static s24_status lay_out_choice(s24_generator *g, int64_t rows)
{
    if (g->session->gpu)
        TRY(s24i_alloc_elems(&g->picks, g->ctx, rows, sizeof *g->picks, "new tokens"));
    TRY(s24i_alloc_elems(&g->logits, g->ctx, rows * g->words, sizeof(float), "logits"));
    return s24i_alloc_elems(&g->candidates, g->ctx, g->cache->threads * g->words,
                            sizeof(s24i_candidate), "candidates");
}

static s24_status lay_out(s24_generator *g)
{
    const int64_t tokens = g->session->max_tokens, rows = s24i_min(g->count, tokens);
    growth *p = &g->pass;
    g->words = g->session->model->lm_head.n;
    g->likely_count = s24i_min(g->opts.likeliest, g->words);
    TRY(lay_out_texts(g));
    TRY(s24i_alloc_elems(&p->ids, g->ctx, tokens, sizeof(int32_t), "tokens"));
    TRY(s24i_alloc_elems(&p->offsets, g->ctx, rows + 1, sizeof(int64_t), "tokens"));
    TRY(s24i_alloc_elems(&p->places, g->ctx, rows, sizeof(int64_t), "texts"));
    TRY(s24i_alloc_elems(&p->ready, g->ctx, rows, sizeof(int64_t), "texts"));
    TRY(s24i_alloc_elems(&p->ends, g->ctx, rows, sizeof(int64_t), "texts"));
    TRY(s24i_alloc_elems(&p->next, g->ctx, rows, sizeof(s24_new_token), "new tokens"));
    TRY(s24i_alloc_elems(&p->likely, g->ctx, rows * g->likely_count, sizeof(s24_likely_token),
                         "likely tokens"));
    return lay_out_choice(g, rows);
}

void s24_generator_destroy(s24_generator *generator)
{
    if (!generator) return;
    s24_generator *g = generator;
    void *const memory[] = {g->texts,       g->live,
                            g->ids,         g->pass.ids,
                            g->pass.ends,   g->pass.offsets,
                            g->pass.places, g->pass.ready,
                            g->pass.next,   g->pass.likely,
                            g->logits,      g->picks,
                            g->candidates,  g};
    s24_ctx *ctx = g->ctx;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        s24_ctx_free(ctx, memory[i]);
}

s24_status s24i_generator_create(s24_generator **out, s24_ctx *ctx, s24_session *session,
                                 s24_cache *cache, int64_t texts, const s24_generator_opts *opts)
{
    s24_generator_opts known;
    s24_generator *g;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_generator_opts"));
    TRY(check_generator(ctx, session, &known));
    TRY(s24i_alloc_elems(&g, ctx, 1, sizeof *g, "a generator"));
    *g = (s24_generator){
        .ctx = ctx, .session = session, .cache = cache, .opts = known, .count = texts};
    GIVE(out, g, s24_generator_destroy, lay_out(g));
}

s24_status s24_generator_create(s24_generator **out, s24_ctx *ctx, s24_session *session,
                                s24_cache *cache, const s24_generator_opts *opts)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, session && cache, S24_ERROR_ARGUMENT, "%s is NULL", session ? "cache" : "session");
    return s24i_generator_create(out, ctx, session, cache, cache->texts, opts);
}

/* ---- joining and leaving --------------------------------------------------------------------- */

void s24i_generator_add(s24_generator *generator, const s24i_joining *joining,
                        const s24_generate_opts *known)
{
    s24_generator *g = generator;
    growing *text = &g->texts[joining->text];
    const int64_t there = g->cache->counts[joining->text] + joining->count - joining->seen;
    int32_t *ids = text->ids;
    memcpy(ids, joining->ids, (size_t)joining->count * sizeof *ids);
    *text = (growing){.opts = *known,
                      .ids = ids,
                      .prompt = joining->count,
                      .seen = joining->seen,
                      .most = s24i_min(known->max_new, g->cache->room - there + 1),
                      .told = joining->prompt,
                      .number = joining->number,
                      .live = 1};
    g->live[g->live_count++] = joining->text;
    g->most += text->most - joining->awaited;
}

int64_t s24i_generator_free(const s24_generator *generator)
{
    for (int64_t i = 0; i < generator->count; i++)
        if (!generator->texts[i].live) return i;
    return -1;
}

void s24i_generator_awaits(s24_generator *generator, int64_t tokens)
{
    generator->most += tokens;
}

s24_status s24_generator_join(s24_generator *generator, s24_ctx *ctx, int64_t text,
                              const int32_t *ids, int64_t count, const s24_generate_opts *opts)
{
    s24_generate_opts known;
    const int64_t ends[2] = {0, count};
    const s24_batch batch = {.texts = 1, .offsets = ends, .ids = ids};
    s24_generator *g = generator;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, g && ids, S24_ERROR_ARGUMENT, "%s is NULL", g ? "ids" : "generator");
    REQUIRE(ctx, text >= 0 && text < g->count, S24_ERROR_ARGUMENT,
            "the cache has no text %lld; 0 to %lld was expected", (long long)text,
            (long long)g->count - 1);
    REQUIRE(ctx, !g->texts[text].live, S24_ERROR_ARGUMENT, "text %lld goes on already",
            (long long)text);
    TRY(s24i_generate_opts_read(ctx, &known, opts));
    REQUIRE(ctx, known.likeliest <= g->opts.likeliest, S24_ERROR_ARGUMENT,
            "likeliest is %lld; the generator was made for %lld", (long long)known.likeliest,
            (long long)g->opts.likeliest);
    const int64_t there = g->cache->counts[text];
    REQUIRE(ctx, count > there, S24_ERROR_ARGUMENT,
            "the prompt of text %lld has %lld tokens, %lld of which the cache has; one more was "
            "expected",
            (long long)text, (long long)count, (long long)there);
    TRY(s24i_generator_room(ctx, g->cache, text, count - there, text));
    TRY(s24i_batch_check(ctx, &batch, &g->session->model->shape, INT64_MAX, "session"));
    const s24i_joining joining = {.text = text,
                                  .prompt = text,
                                  .ids = ids,
                                  .count = count,
                                  .seen = there,
                                  .number = known.numbers ? *known.numbers : 0};
    s24i_generator_add(g, &joining, &known);
    return S24_OK;
}

/* Takes those that have ended from the list of those that go on. */
static void drop_ended(s24_generator *g)
{
    const int64_t next = g->next;
    int64_t kept = 0;
    for (int64_t i = 0; i < g->live_count; i++) {
        const int64_t text = g->live[i];
        if (g->texts[text].live)
            g->live[kept++] = text;
        else if (i < next)
            g->next--;
    }
    g->live_count = kept;
}

void s24_generator_leave(s24_generator *generator, int64_t text)
{
    if (!generator || text < 0 || text >= generator->count) return;
    generator->texts[text].live = 0;
    drop_ended(generator);
}

int64_t s24_generator_live(const s24_generator *generator)
{
    return generator ? generator->live_count : 0;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* Adds what the model has not seen of a text to the pass, up to `most` tokens in all. */
static int64_t add_tokens(s24_generator *g, int64_t index, int64_t used, int64_t most)
{
    growth *p = &g->pass;
    growing *text = &g->texts[index];
    const int64_t left = text->prompt + text->made - text->seen;
    const int64_t count = s24i_min(left, most - used);
    memcpy(p->ids + used, text->ids + text->seen, (size_t)count * sizeof *p->ids);
    text->seen += count;
    p->places[p->count++] = index;
    p->offsets[p->count] = used + count;
    if (count == left) {
        p->ready[p->ready_count] = index;
        p->ends[p->ready_count++] = used + count - 1;
    }
    return used + count;
}

/* Takes the newest tokens of texts that go on, which take turns where they are too many. */
static int64_t take_newest(s24_generator *g, int64_t most)
{
    int64_t used = 0;
    for (int turn = 0; turn < 2 && !used; turn++) {
        if (g->next >= g->live_count) g->next = 0;
        for (; g->next < g->live_count && used < most; g->next++)
            if (g->texts[g->live[g->next]].made) used = add_tokens(g, g->live[g->next], used, most);
    }
    return used;
}

/* Takes of prompts, the first to come first. */
static void take_prompts(s24_generator *g, int64_t used, int64_t most)
{
    for (int64_t i = 0; i < g->live_count && used < most; i++)
        if (!g->texts[g->live[i]].made) used = add_tokens(g, g->live[i], used, most);
}

static int has_prompts(const s24_generator *g)
{
    for (int64_t i = 0; i < g->live_count; i++)
        if (!g->texts[g->live[i]].made) return 1;
    return 0;
}

static void take(s24_generator *g)
{
    const int64_t room = g->session->max_tokens, joining = g->opts.prompt_tokens;
    const int prompts = has_prompts(g);
    int64_t used = 0;
    g->pass.count = g->pass.ready_count = g->pass.offsets[0] = 0;
    if (!prompts || joining) used = take_newest(g, prompts ? room - joining : room);
    take_prompts(g, used, used ? used + joining : room);
}

/* Does the device find the next tokens? Nothing but the likeliest ones is asked for then. */
static int picks_there(const s24_generator *g)
{
    for (int64_t row = 0; row < g->pass.ready_count; row++) {
        const s24_generate_opts *o = &g->texts[g->pass.ready[row]].opts;
        if (o->temperature != 0 || o->repeat_penalty != 1 || o->likeliest) return 0;
    }
    return g->session->gpu != NULL;
}

static s24_status run_pass(s24_generator *g, s24_ctx *ctx)
{
    growth *p = &g->pass;
    p->picked = picks_there(g);
    const s24_batch batch = {.texts = p->count, .offsets = p->offsets, .ids = p->ids};
    const s24_extension extension = {.batch = &batch, .texts = p->places};
    const s24_outputs outputs = {.logits = p->ready_count && !p->picked ? g->logits : NULL,
                                 .tokens = p->ends,
                                 .token_count = p->ready_count};
    g->session->picks = p->picked ? g->picks : NULL;
    const s24_status status = s24_session_extend(g->session, ctx, g->cache, &extension, &outputs);
    g->session->picks = NULL;
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static s24_end end_of(const growing *text, int32_t id)
{
    for (int64_t i = 0; i < text->opts.stop_count; i++)
        if (text->opts.stops[i] == id) return S24_END_STOP;
    return text->made + 1 == text->most ? S24_END_LENGTH : S24_END_NONE;
}

static void take_pick(const s24_generator *g, int64_t row)
{
    const growing *text = &g->texts[g->pass.ready[row]];
    const s24i_pick *pick = &g->picks[row];
    g->pass.next[row] = (s24_new_token){.prompt = text->told,
                                        .index = text->made,
                                        .id = pick->id,
                                        .log_probability = pick->log_probability,
                                        .end = end_of(text, pick->id)};
}

/* Tells the likeliest tokens in the place of a new one. */
static void add_likeliest(const s24_generator *g, s24_new_token *token, int64_t row, float sum,
                          s24i_candidate *candidates)
{
    const int64_t asked = g->texts[g->pass.ready[row]].opts.likeliest;
    const int64_t count = s24i_min(asked, g->likely_count);
    s24_likely_token *likely = g->pass.likely + row * g->likely_count;
    if (!count) return;
    s24i_sample_likeliest(likely, count, g->logits + row * g->words, g->words, candidates);
    for (int64_t i = 0; i < count; i++)
        likely[i].log_probability -= sum;
    token->likeliest = likely;
    token->likeliest_count = count;
}

static void choose(const s24_generator *g, int64_t row, s24i_candidate *candidates)
{
    const growing *text = &g->texts[g->pass.ready[row]];
    const float *logits = g->logits + row * g->words;
    const s24i_sample sample = {.logits = logits,
                                .words = g->words,
                                .prompt = text->ids,
                                .prompt_tokens = text->prompt,
                                .text = text->ids + text->prompt,
                                .text_tokens = text->made,
                                .draw = s24i_sample_draw(text->opts.seed, text->number, text->made),
                                .candidates = candidates};
    const int32_t id = s24i_sample_next(&sample, &text->opts);
    s24_new_token *token = &g->pass.next[row];
    *token = (s24_new_token){.prompt = text->told, .index = text->made, .id = id};
    if (id < 0) return;
    const float sum = g->session->vec->log_sum(logits, g->words);
    token->log_probability = logits[id] - sum;
    token->end = end_of(text, id);
    add_likeliest(g, token, row, sum, candidates);
}

static void choose_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24_generator *g = arg;
    for (int64_t row = begin; row < end; row++)
        if (g->pass.picked)
            take_pick(g, row);
        else
            choose(g, row, g->candidates + thread * g->words);
}

/* Adds the tokens to their texts and tells those who asked. */
static s24_status deliver(s24_generator *g, s24_ctx *ctx)
{
    for (int64_t row = 0; row < g->pass.ready_count; row++) {
        const s24_new_token *token = &g->pass.next[row];
        growing *text = &g->texts[g->pass.ready[row]];
        if (!text->live) continue; /* it left meanwhile */
        REQUIRE(ctx, token->id >= 0, S24_ERROR_NOT_FINITE,
                "the logits of new token %lld of prompt %lld have a NaN or an infinite largest one",
                (long long)token->index, (long long)token->prompt);
        text->ids[text->prompt + text->made++] = token->id;
        g->made++;
        const int enough = text->opts.token && text->opts.token(text->opts.user, token);
        if (enough || token->end != S24_END_NONE) text->live = 0;
    }
    return S24_OK;
}

static s24_status step(s24_generator *g, s24_ctx *ctx)
{
    take(g);
    TRY(run_pass(g, ctx));
    s24_ctx_parallel_for(ctx, g->pass.ready_count, choose_range, g);
    return deliver(g, ctx);
}

s24_status s24_generator_step(s24_generator *generator, s24_ctx *ctx)
{
    s24_generator *g = generator;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, g, S24_ERROR_ARGUMENT, "generator is NULL");
    if (!g->live_count) return S24_OK;
    TRY(s24_ctx_progress(ctx, "new tokens", g->made, g->most));
    const s24_status status = step(g, ctx);
    for (int64_t i = 0; status != S24_OK && i < g->live_count; i++)
        g->texts[g->live[i]].live = 0;
    drop_ended(g);
    return status;
}
