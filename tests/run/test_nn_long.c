// SPDX-License-Identifier: Apache-2.0
/*
 * Ten thousand steps of texts that join, go on and leave: by the context's own allocator nothing is
 * taken from memory that the first fifth of them had not taken. And a cache that memory has no room
 * for, which says what it has room for.
 */
#include "support.h"

#include "nn_language_pass.h"
#include "sparse24/language.h"

enum { STEPS = 10000, TEXTS = 3, ROOM = 400 };

/* Memory that is counted, and gives no more than `most` bytes at once where that is not 0. */
typedef struct counted {
    int64_t bytes;
    size_t most;
} counted;

static void *counted_alloc(void *user, size_t bytes, size_t alignment)
{
    counted *c = user;
    if (c->most && bytes > c->most) return NULL;
    c->bytes += (int64_t)bytes;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void counted_free(void *user, void *memory, size_t bytes)
{
    ((counted *)user)->bytes -= (int64_t)bytes;
    free(memory);
}

typedef struct long_run {
    counted h;
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
} long_run;

static void begin(long_run *r, s24_dtype dtype)
{
    const lm_spec spec = {.llama = 1, .positions = ROOM};
    const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dtype = dtype};
    s24_checkpoint *checkpoint;
    *r = (long_run){.ctx = NULL};
    const s24_ctx_opts as = {
        .size = sizeof as, .allocator = {counted_alloc, counted_free, &r->h}, .threads = 1};
    assert_int_equal(s24_ctx_create(&r->ctx, &as), S24_OK);
    io_remove(io_path("model"));
    lm_write(&spec, io_path("model"));
    OK(r->ctx, s24_checkpoint_open(&checkpoint, r->ctx, io_path("model")));
    OK(r->ctx, s24_model_load(&r->model, r->ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    OK(r->ctx, s24_session_create(&r->session, r->ctx, r->model, 64));
}

static void end(long_run *r)
{
    s24_session_destroy(r->session);
    s24_model_destroy(r->model);
    s24_ctx_destroy(r->ctx);
    assert_int_equal(r->h.bytes, 0);
}

/* What the texts tell: how many tokens in all, which have ended. */
typedef struct told {
    int64_t tokens;
    int ended[TEXTS];
} told;

static int tell(void *user, const s24_new_token *token)
{
    told *t = user;
    t->tokens++;
    t->ended[token->prompt] = token->end != S24_END_NONE;
    return 0;
}

/* A text of its own length takes the place of each that has ended. */
static void check_flat(s24_dtype dtype, s24_dtype cache_dtype)
{
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11};
    long_run r;
    s24_cache *cache;
    s24_generator *g;
    told t = {0, {1, 1, 1}};
    s24_generate_opts how = {.size = sizeof how, .token = tell, .user = &t};
    int64_t joined = 0;
    begin(&r, dtype);
    const s24_cache_opts room = {
        .size = sizeof room, .texts = TEXTS, .tokens = ROOM, .dtype = cache_dtype};
    const s24_generator_opts opts = {.size = sizeof opts, .prompt_tokens = 16};
    OK(r.ctx, s24_cache_create(&cache, r.ctx, r.session, &room));
    OK(r.ctx, s24_generator_create(&g, r.ctx, r.session, cache, &opts));
    int64_t most = 0;
    while (t.tokens < STEPS) {
        for (int64_t b = 0; b < TEXTS; b++) {
            if (!t.ended[b]) continue;
            how.max_new = 40 + joined * 37 % 300;
            how.temperature = (float)(joined % 2);
            how.seed = (uint64_t)joined;
            OK(r.ctx, s24_cache_truncate(cache, r.ctx, b, 0));
            OK(r.ctx, s24_generator_join(g, r.ctx, b, ids, 1 + joined % 7, &how));
            t.ended[b] = 0;
            joined++;
        }
        OK(r.ctx, s24_generator_step(g, r.ctx));
        if (t.tokens < STEPS / 5 && r.h.bytes > most) most = r.h.bytes;
        assert_true(r.h.bytes <= most);
    }
    assert_true(joined > 10 * TEXTS);
    s24_generator_destroy(g);
    s24_cache_destroy(cache);
    end(&r);
}

static void memory_stays_flat(void **state)
{
    (void)state;
    check_flat(S24_F32, S24_DTYPE_NONE);
    check_flat(S24_BF16, S24_I8);
}

/* A token takes two layers' keys and values of three heads of eight, in f32. */
static void what_would_fit_is_said(void **state)
{
    enum { TOKEN_BYTES = 2 * 2 * 3 * 8 * 4, MANY = 1000 };
    const s24_cache_opts room = {.size = sizeof room, .texts = MANY, .tokens = ROOM};
    const s24_cache_opts less = {.size = sizeof less, .texts = 7, .tokens = ROOM};
    long_run r;
    s24_cache *cache;
    (void)state;
    begin(&r, S24_F32);
    r.h.most = TOKEN_BYTES * (size_t)ROOM * 8; /* of eight texts */
    assert_int_equal(s24_cache_create(&cache, r.ctx, r.session, &room), S24_ERROR_MEMORY);
    assert_null(cache);
    assert_sentence(r.ctx,
                    "keys and values of 1000 texts of 400 tokens take 153600000 bytes, which "
                    "memory has no room for; those of 3125 tokens in all would fit: 3 of each "
                    "text, or 7 whole texts");
    OK(r.ctx, s24_cache_create(&cache, r.ctx, r.session, &less));
    s24_cache_destroy(cache);
    r.h.most = 1 << 10;
    assert_int_equal(s24_cache_create(&cache, r.ctx, r.session, &less), S24_ERROR_MEMORY);
    r.h.most = 0;
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_stays_flat),
        cmocka_unit_test(what_would_fit_is_said),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
