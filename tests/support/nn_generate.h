// SPDX-License-Identifier: Apache-2.0
/* What the tests of texts that go on share: a small model with four prompts, and what came after
   them. Include after support.h. */
#ifndef S24_TEST_NN_GENERATE_H
#define S24_TEST_NN_GENERATE_H

#include <math.h>

#include "nn_language_pass.h"
#include "sparse24/language.h"

enum { TEXTS = 4, TOKENS = 60, NEW = 36, MOST = TEXTS * TOKENS };

static const int64_t offsets[TEXTS + 1] = {0, 5, 6, 45, 52};

typedef struct fixture {
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    s24_cache *cache;
    int32_t ids[MOST];
    s24_batch prompts;
} fixture;

/* What came, by prompt. */
typedef struct texts {
    s24_new_token tokens[TEXTS][NEW + 64];
    int64_t count[TEXTS], all;
    int64_t enough; /* tokens after which `take` ends the text; 0: it does not */
} texts;

static inline int take(void *user, const s24_new_token *token)
{
    texts *t = user;
    assert_in_range(token->prompt, 0, TEXTS - 1);
    assert_int_equal(token->index, t->count[token->prompt]);
    t->tokens[token->prompt][t->count[token->prompt]++] = *token;
    t->all++;
    return t->enough && t->count[token->prompt] == t->enough;
}

static inline const char *folder_of_spec(const lm_spec *spec)
{
    const char *folder = io_path("model");
    io_remove(folder);
    lm_write(spec, folder);
    return folder;
}

static inline const char *folder_of(int llama)
{
    return folder_of_spec(&(lm_spec){.llama = llama});
}

static inline void open_cache(fixture *f, int64_t room)
{
    const s24_cache_opts opts = {.size = sizeof opts, .texts = TEXTS, .tokens = room};
    s24_cache_destroy(f->cache);
    OK(f->ctx, s24_cache_create(&f->cache, f->ctx, f->session, &opts));
}

static inline void set_up_in(fixture *f, s24_ctx *ctx, const char *folder, int64_t pass_tokens)
{
    uint64_t state = 11;
    *f = (fixture){.ctx = ctx};
    OK(f->ctx, load(&f->model, f->ctx, folder, NULL));
    OK(f->ctx, s24_session_create(&f->session, f->ctx, f->model, pass_tokens));
    open_cache(f, 0);
    for (int i = 0; i < MOST; i++)
        f->ids[i] = (int32_t)(test_random(&state) % LM_VOCABULARY);
    f->prompts = (s24_batch){.texts = TEXTS, .offsets = offsets, .ids = f->ids};
}

static inline void set_up(fixture *f, const char *folder, int64_t pass_tokens, int threads)
{
    set_up_in(f, new_ctx(NULL, threads), folder, pass_tokens);
}

static inline void tear_down(fixture *f)
{
    s24_cache_destroy(f->cache);
    s24_session_destroy(f->session);
    s24_model_destroy(f->model);
    s24_ctx_destroy(f->ctx);
}

static inline void forget(const fixture *f)
{
    for (int b = 0; b < TEXTS; b++)
        OK(f->ctx, s24_cache_truncate(f->cache, f->ctx, b, 0));
}

/* Goes on with the prompts from an empty cache. */
static inline void go_on(const fixture *f, texts *out, s24_generate_opts opts)
{
    memset(out, 0, offsetof(texts, enough));
    opts.size = sizeof opts;
    opts.token = take;
    opts.user = out;
    forget(f);
    OK(f->ctx, s24_generate(f->session, f->ctx, f->cache, &f->prompts, &opts));
}

#endif
