// SPDX-License-Identifier: Apache-2.0
/*
 * The C library's own allocator is counted, whoever calls it: a pass through 2:4 layers calls it
 * not once, from the first on; nor does a step of a text that goes on.
 */
#include "support.h"

#include "nn_load.h"
#include "sparse24/language.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1
#else
#define COUNTS 0
#endif

#if COUNTS
/* A program's own functions of these names are everyone's in it. Other threads count for
   themselves. */
static _Thread_local int64_t calls;
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    calls++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    calls++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    calls++;
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    calls++;
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    calls++;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : 12; /* ENOMEM */
}
#else
static int64_t calls;
#endif

static void check(const char *preset, s24_dtype dtype)
{
    enum { TEXTS = 2, TOKENS = 300, WIDTH = 128 };
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    static int32_t ids[TEXTS * TOKENS];
    float embeddings[TEXTS * WIDTH];
    const int64_t offsets[] = {0, 7, TEXTS * TOKENS / 2};
    const s24_ctx_opts as = {.size = sizeof as, .threads = 1};
    const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dtype = dtype, .all_sparse = 1};
    for (int i = 0; i < TEXTS * TOKENS; i++)
        ids[i] = i * 37 % 1000;
    assert_int_equal(s24_ctx_create(&ctx, &as), S24_OK);
    OK(ctx, s24_model_preset(&model, ctx, preset, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, TEXTS * TOKENS));
    const s24_outputs outputs = {.embeddings = embeddings};
    for (int texts = 1; texts <= TEXTS; texts++) {
        const s24_batch batch = {texts, offsets, ids, NULL, NULL, NULL};
        const int64_t before = calls;
        const s24_status status = s24_session_forward(session, ctx, &batch, &outputs);
        const int64_t after = calls;
        assert_int_equal(status, S24_OK);
        if (after != before)
            fail_msg("%s in %s, %d texts: %d calls of malloc and its like", preset,
                     s24_dtype_name(dtype), texts, (int)(after - before));
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct steps {
    int64_t before, most; /* calls at the last token; the most between two */
    int tokens;
} steps;

static int count_calls(void *user, const s24_new_token *token)
{
    steps *s = user;
    if (s->tokens++ > 0 && calls - s->before > s->most) s->most = calls - s->before;
    s->before = calls;
    (void)token;
    return 0;
}

/* Two texts that go on, greedily and drawn. */
static void check_steps(const char *preset, s24_dtype dtype, s24_dtype bytes)
{
    enum { TEXTS = 2, TOKENS = 9 };
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    s24_cache *cache;
    static const int32_t ids[TOKENS] = {5, 6, 7, 8, 9, 10, 11, 12, 13};
    static const int64_t offsets[] = {0, 4, TOKENS};
    const s24_ctx_opts as = {.size = sizeof as, .threads = 2};
    const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dtype = dtype, .all_sparse = 1};
    const s24_cache_opts room = {.size = sizeof room, .texts = TEXTS, .tokens = 64, .dtype = bytes};
    const s24_batch prompts = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    assert_int_equal(s24_ctx_create(&ctx, &as), S24_OK);
    OK(ctx, s24_model_preset(&model, ctx, preset, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    OK(ctx, s24_cache_create(&cache, ctx, session, &room));
    for (int drawn = 0; drawn < 2; drawn++) {
        steps s = {.most = 0};
        const s24_generate_opts how = {.size = sizeof how,
                                       .max_new = 20,
                                       .temperature = drawn,
                                       .top_p = 0.9,
                                       .token = count_calls,
                                       .user = &s};
        for (int b = 0; b < TEXTS; b++)
            OK(ctx, s24_cache_truncate(cache, ctx, b, 0));
        OK(ctx, s24_generate(session, ctx, cache, &prompts, &how));
        assert_int_equal(s.tokens, 40);
        if (s.most)
            fail_msg("a step of %s in %s: %d calls of malloc and its like", preset,
                     s24_dtype_name(dtype), (int)s.most);
    }
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static void steps_call_no_malloc(void **state)
{
    (void)state;
    if (!COUNTS) skip();
    const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    for (int d = 0; d < 6; d++)
        check_steps(d < 3 ? "gpt2-tiny" : "llama-tiny", dtypes[d % 3],
                    d % 2 ? S24_E4M3 : S24_DTYPE_NONE);
}

/* ---- many steps ------------------------------------------------------------------------------ */

/* What a context has, counted by its allocator. */
typedef struct held {
    int64_t bytes, blocks;
} held;

static void *hold(void *user, size_t bytes, size_t alignment)
{
    held *h = user;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, bytes)) return NULL;
    h->bytes += (int64_t)bytes;
    h->blocks++;
    return memory;
}

static void let_go(void *user, void *memory, size_t bytes)
{
    held *h = user;
    if (!memory) return;
    h->bytes -= (int64_t)bytes;
    h->blocks--;
    free(memory);
}

/* Texts that go on again and again leave nothing. */
static void ten_thousand_steps(void **state)
{
    enum { TOKENS = 512, TURNS = WATCHED ? 2 : 20 };
    held h = {0}, first = {0};
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    s24_cache *cache;
    static const int32_t ids[1] = {5};
    static const int64_t offsets[] = {0, 1};
    const s24_ctx_opts as = {.size = sizeof as, .allocator = {hold, let_go, &h}, .threads = 2};
    const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dtype = S24_BF16};
    const s24_batch prompt = {.texts = 1, .offsets = offsets, .ids = ids};
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &as), S24_OK);
    OK(ctx, s24_model_preset(&model, ctx, "llama-tiny", &opts));
    OK(ctx, s24_session_create(&session, ctx, model, 8));
    OK(ctx, s24_cache_create(&cache, ctx, session, NULL));
    for (int turn = 0; turn < TURNS; turn++) {
        steps s = {.most = 0};
        const s24_generate_opts how = {.size = sizeof how,
                                       .max_new = TOKENS,
                                       .temperature = 1,
                                       .top_p = 0.9,
                                       .repeat_penalty = 1.1,
                                       .seed = (uint64_t)turn,
                                       .likeliest = 5,
                                       .token = count_calls,
                                       .user = &s};
        OK(ctx, s24_cache_truncate(cache, ctx, 0, 0));
        OK(ctx, s24_generate(session, ctx, cache, &prompt, &how));
        assert_int_equal(s.tokens, TOKENS);
        if (turn == 0) first = h;
        assert_int_equal(h.bytes, first.bytes);
        assert_int_equal(h.blocks, first.blocks);
    }
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
    assert_int_equal(h.blocks, 0);
}

static void passes_call_no_malloc(void **state)
{
    (void)state;
    if (!COUNTS) {
        print_message("skipped: a sanitizer or another C library has the allocator\n");
        skip();
    }
    void *probe = malloc(64);
    assert_int_not_equal(calls, 0); /* it is ours that is called */
    free(probe);
    const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    static const char *const presets[] = {"bert-tiny", "gpt2-tiny", "llama-tiny"};
    for (int d = 0; d < 9; d++)
        check(presets[d / 3], dtypes[d % 3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_call_no_malloc),
                                       cmocka_unit_test(steps_call_no_malloc),
                                       cmocka_unit_test(ten_thousand_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
