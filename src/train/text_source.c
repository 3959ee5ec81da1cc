// SPDX-License-Identifier: Apache-2.0
/* Texts as examples. They are tokenized once, by all threads, into rows of the longest length, and
   then moved together. */
#include <string.h>

#include "io/checkpoint/config.h"
#include "io/file/io.h"
#include "io/tokenizer/tokenizer.h"
#include "model/model.h"
#include "sparse24/train.h"

enum { WINDOW = 1024 /* texts that are tokenized at a time */ };

struct s24_text_source {
    s24_ctx *ctx;
    s24_train_source source;
    int next_token;
    int64_t room;
    int64_t *starts; /* [count + 1] of each text's ids */
    int32_t *ids, *lengths;
};

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    const s24_text_source *s = user;
    const int64_t first = s->starts[index], n = s->lengths[index];
    (void)ctx;
    memcpy(example->ids, s->ids + first, (size_t)n * sizeof *example->ids);
    if (s->next_token)
        memcpy(example->targets, s->ids + first + 1, (size_t)(n - 1) * sizeof *example->targets);
    return S24_OK;
}

/* The most tokens of a text: what is asked for, else what the folder says. */
static s24_status read_limit(int64_t *limit, s24_ctx *ctx, const char *folder)
{
    s24i_config config;
    if (*limit) return S24_OK;
    *limit = 512;
    s24_status status = s24i_config_load(&config, ctx, folder, "config.json", S24I_OPTIONAL);
    for (int i = 0; status == S24_OK && config.json && s24i_architecture_at(i); i++)
        if (s24i_architecture_at(i)->key_positions)
            status = s24i_config_int(limit, &config, s24i_architecture_at(i)->key_positions,
                                     S24I_OPTIONAL, 2, INT32_MAX);
    s24i_config_free(&config);
    TRY(status);
    return s24i_text_limit_read(limit, ctx, folder, *limit);
}

typedef struct window {
    const s24_tokenizer *tokenizer;
    const s24_text *texts;
    s24_token *tokens; /* [WINDOW, limit] */
    int64_t *counts;   /* [WINDOW] */
    int64_t limit;
} window;

/* A context says one sentence at a time: what fails here leaves a count below 0. */
static void encode_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const window *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        w->counts[i] = s24i_tokenizer_encode(w->tokens + i * w->limit, w->limit, w->tokenizer,
                                             &w->texts[i], 1);
}

static s24_status take_window(s24_text_source *s, const window *w, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t used = s->starts[first + i], n = w->counts[i];
        if (n < 0) return s24i_tokenizer_no_memory(s->ctx);
        TRY(s24i_reserve_elems(&s->ids, &s->room, s->ctx, used + n, sizeof *s->ids,
                               "texts' tokens"));
        for (int64_t k = 0; k < n; k++)
            s->ids[used + k] = w->tokens[i * w->limit + k].id;
        s->lengths[first + i] = (int32_t)n;
        s->starts[first + i + 1] = used + n;
    }
    return S24_OK;
}

static s24_status tokenize(s24_text_source *s, s24_ctx *ctx, window *w, int64_t count)
{
    const s24_text *texts = w->texts;
    TRY(s24i_alloc_elems(&w->tokens, ctx, WINDOW * w->limit, sizeof *w->tokens, "tokens"));
    TRY(s24i_alloc_elems(&w->counts, ctx, WINDOW, sizeof *w->counts, "tokens"));
    for (int64_t first = 0; first < count; first += WINDOW) {
        const int64_t n = s24i_min(WINDOW, count - first);
        w->texts = texts + first;
        s24_ctx_parallel_for(ctx, n, encode_range, w);
        TRY(take_window(s, w, first, n));
        TRY(s24_ctx_progress(ctx, "tokenizing", first + n, count));
    }
    return S24_OK;
}

static s24_status fill(s24_text_source *s, s24_ctx *ctx, const char *folder, const s24_text *texts,
                       int64_t count, int64_t limit)
{
    s24_tokenizer *tokenizer;
    TRY(read_limit(&limit, ctx, folder));
    REQUIRE(ctx, limit >= 2 && limit <= 1 << 20, S24_ERROR_ARGUMENT,
            "max_tokens is %lld, 2 to %d is expected", (long long)limit, 1 << 20);
    for (int64_t i = 0; i < count; i++)
        REQUIRE(ctx, texts[i].bytes <= INT32_MAX, S24_ERROR_ARGUMENT,
                "text %lld has %zu bytes, at most %d are expected", (long long)i, texts[i].bytes,
                INT32_MAX);
    TRY(s24i_alloc_elems(&s->starts, ctx, count + 1, sizeof *s->starts, "texts"));
    TRY(s24i_alloc_elems(&s->lengths, ctx, count, sizeof *s->lengths, "texts"));
    s->starts[0] = 0;
    TRY(s24_tokenizer_load(&tokenizer, ctx, folder));
    window w = {.tokenizer = tokenizer, .texts = texts, .limit = limit};
    const s24_status status = tokenize(s, ctx, &w, count);
    s24_ctx_free(ctx, w.tokens);
    s24_ctx_free(ctx, w.counts);
    s24_tokenizer_destroy(tokenizer);
    s->source = (s24_train_source){count, s->lengths, write_example, s};
    return status;
}

s24_status s24_text_source_create(s24_text_source **out, s24_ctx *ctx, const char *folder,
                                  const s24_text *texts, int64_t count, int64_t max_tokens,
                                  int next_token)
{
    s24_text_source *s;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, folder && texts && count > 0, S24_ERROR_ARGUMENT, "%s",
            !folder ? "folder is NULL" : "there are no texts");
    TRY(s24i_zeroed(&s, ctx, sizeof *s));
    s->ctx = ctx;
    s->next_token = next_token;
    GIVE(out, s, s24_text_source_destroy, fill(s, ctx, folder, texts, count, max_tokens));
}

void s24_text_source_destroy(s24_text_source *s)
{
    if (!s) return;
    s24_ctx_free(s->ctx, s->starts);
    s24_ctx_free(s->ctx, s->lengths);
    s24_ctx_free(s->ctx, s->ids);
    s24_ctx_free(s->ctx, s);
}

const s24_train_source *s24_text_source_get(const s24_text_source *source)
{
    return source ? &source->source : NULL;
}
