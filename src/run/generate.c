// SPDX-License-Identifier: Apache-2.0
/* Prompts of a batch that go on until the last of them has ended: a generator that as many of them
   join as the cache has texts, and each of the others where one has ended. */
#include "run/cpu/kv_cache.h"
#include "run/generator.h"

typedef struct work {
    s24_cache *cache;
    const s24_batch *prompts;
    s24_generate_opts opts;
} work;

static int64_t prompt_tokens(const s24_batch *prompts, int64_t text)
{
    return prompts->offsets[text + 1] - prompts->offsets[text];
}

static s24_status check_prompts(s24_ctx *ctx, const s24_session *session, const s24_cache *cache,
                                const s24_batch *prompts)
{
    REQUIRE(ctx, prompts->texts > 0 && prompts->offsets && prompts->ids && !prompts->offsets[0],
            S24_ERROR_ARGUMENT, "the batch has no prompts, no offsets from 0 on, or no ids");
    REQUIRE(ctx, !prompts->mask && !prompts->types, S24_ERROR_ARGUMENT,
            "the prompts have %s, which a text that goes on has not",
            prompts->mask ? "a mask" : "types");
    for (int64_t b = 0; b < prompts->texts; b++)
        TRY(s24i_generator_room(ctx, cache, b, prompt_tokens(prompts, b), b));
    return s24i_batch_check(ctx, prompts, &session->model->shape, INT64_MAX, "session");
}

/* New tokens that prompt b may have; it waits where the cache has fewer texts. */
static int64_t awaited(const s24_cache *cache, const s24_batch *prompts, int64_t b,
                       const s24_generate_opts *o)
{
    if (b < cache->texts) return 0;
    return s24i_min(o->max_new, cache->room - prompt_tokens(prompts, b) + 1);
}

static s24_status join(s24_generator *g, s24_ctx *ctx, const work *w, int64_t text, int64_t b)
{
    const s24i_joining joining = {.text = text,
                                  .prompt = b,
                                  .ids = w->prompts->ids + w->prompts->offsets[b],
                                  .count = prompt_tokens(w->prompts, b),
                                  .number = w->opts.numbers ? w->opts.numbers[b] : b,
                                  .awaited = awaited(w->cache, w->prompts, b, &w->opts)};
    if (b >= w->cache->texts) TRY(s24_cache_truncate(w->cache, ctx, text, 0));
    s24i_generator_add(g, &joining, &w->opts);
    return S24_OK;
}

static s24_status run_all(s24_generator *g, s24_ctx *ctx, const work *w)
{
    int64_t next = 0, text;
    for (int64_t b = 0; b < w->prompts->texts; b++)
        s24i_generator_awaits(g, awaited(w->cache, w->prompts, b, &w->opts));
    for (;;) {
        while (next < w->prompts->texts && (text = s24i_generator_free(g)) >= 0)
            TRY(join(g, ctx, w, text, next++));
        if (!s24_generator_live(g)) return S24_OK;
        TRY(s24_generator_step(g, ctx));
    }
}

/* Where prompts wait, those that join later are in passes with the texts that go on. */
static int64_t joining_tokens(const s24_session *session, const work *w)
{
    return w->prompts->texts > w->cache->texts ? s24i_max(0, session->max_tokens - w->cache->texts)
                                               : 0;
}

s24_status s24_generate(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                        const s24_batch *prompts, const s24_generate_opts *opts)
{
    work w = {.cache = cache, .prompts = prompts};
    s24_generator *g;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, session && cache && prompts, S24_ERROR_ARGUMENT, "%s is NULL",
            !session ? "session"
            : !cache ? "cache"
                     : "prompts");
    TRY(s24i_generate_opts_read(ctx, &w.opts, opts));
    TRY(check_prompts(ctx, session, cache, prompts));
    const s24_generator_opts as = {.size = sizeof as,
                                   .prompt_tokens = joining_tokens(session, &w),
                                   .likeliest = w.opts.likeliest};
    TRY(s24i_generator_create(&g, ctx, session, cache, s24i_min(prompts->texts, cache->texts),
                              &as));
    const s24_status status = run_all(g, ctx, &w);
    s24_generator_destroy(g);
    return status;
}
