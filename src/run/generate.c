// SPDX-License-Identifier: Apache-2.0
/* Prompts of a batch that go on until the last of them has ended: a generator that all of them join
   before its first pass, and none after. */
#include "run/cpu/kv_cache.h"
#include "run/generator.h"

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
    REQUIRE(ctx, prompts->texts <= cache->texts, S24_ERROR_ARGUMENT,
            "there are %lld prompts; the cache has room for %lld texts", (long long)prompts->texts,
            (long long)cache->texts);
    for (int64_t b = 0; b < prompts->texts; b++)
        TRY(s24i_generator_room(ctx, cache, b, prompt_tokens(prompts, b), b));
    return s24i_batch_check(ctx, prompts, &session->model->shape, INT64_MAX, "session");
}

static s24_status run_all(s24_generator *g, s24_ctx *ctx, const s24_batch *prompts,
                          const s24_generate_opts *o)
{
    for (int64_t b = 0; b < prompts->texts; b++) {
        const s24i_joining joining = {.text = b,
                                      .ids = prompts->ids + prompts->offsets[b],
                                      .count = prompt_tokens(prompts, b),
                                      .number = o->numbers ? o->numbers[b] : b};
        s24i_generator_add(g, &joining, o);
    }
    while (s24_generator_live(g))
        TRY(s24_generator_step(g, ctx));
    return S24_OK;
}

s24_status s24_generate(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                        const s24_batch *prompts, const s24_generate_opts *opts)
{
    s24_generate_opts known;
    s24_generator *g;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, session && cache && prompts, S24_ERROR_ARGUMENT, "%s is NULL",
            !session ? "session"
            : !cache ? "cache"
                     : "prompts");
    TRY(s24i_generate_opts_read(ctx, &known, opts));
    TRY(check_prompts(ctx, session, cache, prompts));
    const s24_generator_opts as = {.size = sizeof as, .likeliest = known.likeliest};
    TRY(s24i_generator_create(&g, ctx, session, cache, prompts->texts, &as));
    const s24_status status = run_all(g, ctx, prompts, &known);
    s24_generator_destroy(g);
    return status;
}
