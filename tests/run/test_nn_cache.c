// SPDX-License-Identifier: Apache-2.0
/*
 * Keys and values that are kept: a text in several passes is the text in one, alone or with others,
 * in every dtype, 2:4 and dense; what a cache refuses leaves it as it was.
 */
#include "support.h"

#include <math.h>

#include "nn_failing.h"
#include "nn_language_pass.h"
#include "sparse24/language.h"

enum { TOKENS = 70, TEXTS = 3, MOST = TEXTS * TOKENS };

static const lm_spec specs[] = {
    {.llama = 0}, {.llama = 1}, {.llama = 1, .tied = 1, .biased = 1}, LM_KIN, LM_OTHERS};
enum { SPECS = sizeof specs / sizeof *specs };

static const struct {
    s24_dtype dtype;
    double bound; /* of products of few tokens and of many */
} dtypes[] = {{S24_F32, 1e-5}, {S24_BF16, 4e-2}, {S24_I8, 4e-2}};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const char *folder_of(const lm_spec *spec)
{
    const char *folder = io_path("model");
    io_remove(folder);
    lm_write(spec, folder);
    return folder;
}

/* A model with a session, the ids of three texts, and their logits as one pass gives them. */
typedef struct fixture {
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    int32_t ids[TEXTS][TOKENS];
    float *whole[TEXTS]; /* [TOKENS, LM_VOCABULARY] */
} fixture;

static s24_batch one_text(const int32_t *ids, const int64_t ends[2])
{
    return (s24_batch){.texts = 1, .offsets = ends, .ids = ids};
}

static void set_up(fixture *f, const char *folder, const s24_model_opts *opts, int threads)
{
    uint64_t state = 11;
    const int64_t ends[2] = {0, TOKENS};
    f->ctx = new_ctx(NULL, threads);
    OK(f->ctx, load(&f->model, f->ctx, folder, opts));
    OK(f->ctx, s24_session_create(&f->session, f->ctx, f->model, MOST));
    for (int b = 0; b < TEXTS; b++) {
        for (int t = 0; t < TOKENS; t++)
            f->ids[b][t] = (int32_t)(test_random(&state) % LM_VOCABULARY);
        f->whole[b] = malloc(sizeof(float) * TOKENS * LM_VOCABULARY);
        const s24_batch batch = one_text(f->ids[b], ends);
        const s24_outputs outputs = {.logits = f->whole[b]};
        OK(f->ctx, s24_session_forward(f->session, f->ctx, &batch, &outputs));
    }
}

static void tear_down(fixture *f)
{
    for (int b = 0; b < TEXTS; b++)
        free(f->whole[b]);
    s24_session_destroy(f->session);
    s24_model_destroy(f->model);
    s24_ctx_destroy(f->ctx);
}

static s24_cache *cache_of(const fixture *f, int64_t texts, int64_t tokens)
{
    const s24_cache_opts opts = {.size = sizeof opts, .texts = texts, .tokens = tokens};
    s24_cache *cache;
    OK(f->ctx, s24_cache_create(&cache, f->ctx, f->session, &opts));
    return cache;
}

/* The next `count` tokens of text b, which continues text `place` of the cache, against the logits
   of one pass. */
static void step(const fixture *f, s24_cache *cache, int b, int64_t place, int64_t count,
                 double bound)
{
    static float logits[TOKENS * LM_VOCABULARY];
    const int64_t there = s24_cache_tokens(cache, place), ends[2] = {0, count};
    const s24_batch batch = one_text(f->ids[b] + there, ends);
    const s24_extension extension = {.batch = &batch, .texts = &place};
    const s24_outputs outputs = {.logits = logits};
    OK(f->ctx, s24_session_extend(f->session, f->ctx, cache, &extension, &outputs));
    near(f->whole[b] + there * LM_VOCABULARY, logits, count * LM_VOCABULARY, bound, "logits");
    assert_int_equal(s24_cache_tokens(cache, place), there + count);
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* All at once, by pieces, and one by one. */
static void check_alone(const fixture *f, double bound)
{
    static const int64_t pieces[] = {TOKENS, 31, 1, 25, 13, 30, 40};
    s24_cache *cache = cache_of(f, 1, TOKENS);
    step(f, cache, 0, 0, pieces[0], 0);
    for (int first = 1; first < 7; first += first == 1 ? 4 : 2) {
        OK(f->ctx, s24_cache_truncate(cache, f->ctx, 0, 0));
        const int last = first == 1 ? 5 : first + 2;
        for (int i = first; i < last; i++)
            step(f, cache, 0, 0, pieces[i], bound);
    }
    OK(f->ctx, s24_cache_truncate(cache, f->ctx, 0, 7));
    for (int t = 7; t < TOKENS; t++)
        step(f, cache, 0, 0, 1, bound);
    s24_cache_destroy(cache);
}

static void alone(void **state)
{
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        const char *folder = folder_of(&specs[i]);
        for (int d = 0; d < DTYPES; d++)
            for (int threads = 1; threads <= 3; threads++) {
                const s24_model_opts opts = {.size = sizeof opts, .dtype = dtypes[d].dtype};
                fixture f;
                set_up(&f, folder, &opts, threads);
                check_alone(&f, dtypes[d].bound);
                tear_down(&f);
            }
    }
}

static void two_four(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        s24_ctx *ctx = new_ctx(NULL, 1);
        const char *folder = prune(ctx, folder_of(&specs[i]), specs[i].llama, NULL);
        s24_ctx_destroy(ctx);
        for (int d = 0; d < DTYPES; d++) {
            const s24_model_opts opts = {
                .size = sizeof opts, .dtype = dtypes[d].dtype, .sparse = 1, .all_sparse = 1};
            fixture f;
            s24_model_info info;
            set_up(&f, folder, &opts, 2);
            s24_model_describe(&info, f.model);
            assert_true(info.sparse_layers > 0);
            check_alone(&f, dtypes[d].bound);
            tear_down(&f);
        }
    }
}

/* ---- in bytes -------------------------------------------------------------------------------- */

/* What docs/numerics.md says of logits, of the largest of them. */
static const struct {
    s24_dtype dtype;
    double bound;
} narrow[] = {{S24_I8, 3e-2}, {S24_E4M3, 2e-1}};

/* The farthest logit of a text in pieces of `count` tokens from those of one pass, as a share of
   the largest; and how many there are that differ. */
static double farthest(const fixture *f, s24_cache *cache, int64_t place, int64_t count)
{
    static float logits[TOKENS * LM_VOCABULARY];
    double most = 0, apart = 0;
    for (int64_t there = s24_cache_tokens(cache, place); there < TOKENS; there += count) {
        const int64_t now = count < TOKENS - there ? count : TOKENS - there, ends[2] = {0, now};
        const s24_batch batch = one_text(f->ids[0] + there, ends);
        const s24_extension extension = {.batch = &batch, .texts = &place};
        const s24_outputs outputs = {.logits = logits};
        OK(f->ctx, s24_session_extend(f->session, f->ctx, cache, &extension, &outputs));
        for (int64_t i = 0; i < now * LM_VOCABULARY; i++) {
            const double want = (double)f->whole[0][there * LM_VOCABULARY + i];
            most = fmax(most, fabs(want));
            apart = fmax(apart, fabs(want - (double)logits[i]));
        }
    }
    return apart / most;
}

/* All at once, by pieces and one by one; then from a copy of the first tokens. */
static void check_bytes(const fixture *f, s24_dtype dtype, double bound)
{
    static const int64_t pieces[] = {TOKENS, 31, 3, 1};
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 2, .tokens = TOKENS, .dtype = dtype};
    s24_cache *cache;
    OK(f->ctx, s24_cache_create(&cache, f->ctx, f->session, &opts));
    for (int i = 0; i < 4; i++) {
        OK(f->ctx, s24_cache_truncate(cache, f->ctx, 1, 0));
        const double apart = farthest(f, cache, 1, pieces[i]);
        if (!(apart > 0 && apart < bound))
            fail_msg("%s, %d at a time: %g, not over 0 and below %g", s24_dtype_name(dtype),
                     (int)pieces[i], apart, bound);
    }
    OK(f->ctx, s24_cache_copy(cache, f->ctx, 0, 1, 40));
    assert_true(farthest(f, cache, 0, 1) < bound);
    s24_cache_destroy(cache);
}

static void bytes(void **state)
{
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        const char *folder = folder_of(&specs[i]);
        for (int d = 0; d < 4; d++) {
            const s24_model_opts opts = {.size = sizeof opts, .dtype = dtypes[d / 2].dtype};
            const double rounding = d < 2 ? 0 : dtypes[1].bound;
            fixture f;
            set_up(&f, folder, &opts, 2);
            check_bytes(&f, narrow[d % 2].dtype, narrow[d % 2].bound + rounding);
            tear_down(&f);
        }
    }
}

/* ---- with others ----------------------------------------------------------------------------- */

/* Prompts of different lengths in one pass, then a token of each, then of two alone, whose order is
   turned. */
static void together(void **state)
{
    static const int64_t first[TEXTS + 1] = {0, 5, 6, 45}, ones[TEXTS + 1] = {0, 1, 2, 3};
    static const int64_t turned[2] = {2, 0};
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        fixture f;
        set_up(&f, folder_of(&specs[i]), NULL, 2);
        s24_cache *cache = cache_of(&f, TEXTS, TOKENS);
        static float logits[MOST * LM_VOCABULARY];
        const s24_outputs outputs = {.logits = logits};
        int32_t ids[MOST];
        for (int b = 0; b < TEXTS; b++)
            memcpy(ids + first[b], f.ids[b], (size_t)(first[b + 1] - first[b]) * sizeof *ids);
        const s24_batch prompts = {.texts = TEXTS, .offsets = first, .ids = ids};
        OK(f.ctx, s24_session_extend(f.session, f.ctx, cache, &(s24_extension){.batch = &prompts},
                                     &outputs));
        for (int b = 0; b < TEXTS; b++)
            near(f.whole[b], logits + first[b] * LM_VOCABULARY,
                 (first[b + 1] - first[b]) * LM_VOCABULARY, 1e-5, "prompts");
        for (int s = 0; s < 20; s++) {
            const int count = s % 2 ? 2 : TEXTS;
            for (int b = 0; b < count; b++) {
                const int64_t text = count == 2 ? turned[b] : b;
                ids[b] = f.ids[text][s24_cache_tokens(cache, text)];
            }
            const s24_batch batch = {.texts = count, .offsets = ones, .ids = ids};
            const s24_extension e = {.batch = &batch, .texts = count == 2 ? turned : NULL};
            OK(f.ctx, s24_session_extend(f.session, f.ctx, cache, &e, &outputs));
            for (int b = 0; b < count; b++) {
                const int64_t text = count == 2 ? turned[b] : b;
                const int64_t token = s24_cache_tokens(cache, text) - 1;
                near(f.whole[text] + token * LM_VOCABULARY, logits + b * LM_VOCABULARY,
                     LM_VOCABULARY, 1e-5, "steps");
            }
        }
        assert_int_equal(s24_cache_tokens(cache, 1), 1 + 10);
        s24_cache_destroy(cache);
        tear_down(&f);
    }
}

/* Hidden states, chosen logits and losses come of the batch's tokens alone. */
static void other_outputs(void **state)
{
    fixture f;
    float hidden[4 * LM_WIDTH], all[TOKENS * LM_WIDTH], losses[4], logits[LM_VOCABULARY];
    const int64_t whole[2] = {0, TOKENS}, four[2] = {0, 4}, last = 3;
    const int32_t targets[4] = {1, -1, 2, 3};
    double loss;
    (void)state;
    set_up(&f, folder_of(&specs[1]), NULL, 1);
    s24_cache *cache = cache_of(&f, 1, 0);
    const s24_batch batch = one_text(f.ids[0], whole);
    OK(f.ctx, s24_session_forward(f.session, f.ctx, &batch, &(s24_outputs){.hidden = all}));
    step(&f, cache, 0, 0, 20, 0);
    const s24_batch next = one_text(f.ids[0] + 20, four);
    const s24_outputs outputs = {.hidden = hidden,
                                 .logits = logits,
                                 .tokens = &last,
                                 .token_count = 1,
                                 .targets = targets,
                                 .loss = &loss,
                                 .losses = losses};
    OK(f.ctx,
       s24_session_extend(f.session, f.ctx, cache, &(s24_extension){.batch = &next}, &outputs));
    near(all + 20 * LM_WIDTH, hidden, 4 * LM_WIDTH, 1e-5, "hidden states");
    near(f.whole[0] + 23 * LM_VOCABULARY, logits, LM_VOCABULARY, 1e-5, "the last token's logits");
    assert_true(losses[1] == 0.0f && losses[0] > 0);
    assert_true(fabs(loss - ((double)losses[0] + (double)losses[2] + (double)losses[3]) / 3) <
                1e-6);
    /* The session's other passes know nothing of it. */
    OK(f.ctx, s24_session_forward(f.session, f.ctx, &batch, &(s24_outputs){.hidden = all}));
    assert_int_equal(s24_cache_tokens(cache, 0), 24);
    s24_cache_destroy(cache);
    tear_down(&f);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(const fixture *f, s24_cache *cache, const s24_extension *e, const char *sentence)
{
    static float logits[MOST * LM_VOCABULARY];
    const s24_outputs outputs = {.logits = logits};
    assert_int_equal(s24_session_extend(f->session, f->ctx, cache, e, &outputs),
                     S24_ERROR_ARGUMENT);
    if (!strstr(s24_ctx_error(f->ctx), sentence))
        fail_msg("'%s' has no '%s'", s24_ctx_error(f->ctx), sentence);
    assert_int_equal(s24_cache_tokens(cache, 0), 10);
    step(f, cache, 0, 0, 1, 1e-5); /* it goes on */
    OK(f->ctx, s24_cache_truncate(cache, f->ctx, 0, 10));
}

static void refusals(void **state)
{
    static const int64_t ends[3] = {0, 3, 6}, twice[2] = {1, 1}, outside[2] = {0, 2};
    static const uint8_t mask[6] = {1, 1, 1, 1, 1, 1};
    fixture f, other;
    (void)state;
    set_up(&f, folder_of(&specs[1]), NULL, 1);
    set_up(&other, folder_of(&specs[0]), NULL, 1);
    s24_cache *cache = cache_of(&f, 2, 12), *foreign = cache_of(&other, 1, 12);
    s24_batch batch = {.texts = 2, .offsets = ends, .ids = f.ids[0]};
    s24_extension e = {.batch = &batch};
    step(&f, cache, 0, 0, 10, 0);
    refuse(&f, cache, &e,
           "text 0 has 10 tokens in the cache and 3 in the batch; there is room for 12");
    e.texts = twice;
    refuse(&f, cache, &e, "texts 0 and 1 of the batch both continue text 1 of the cache");
    e.texts = outside;
    refuse(&f, cache, &e, "text 1 of the batch continues text 2 of the cache; 0 to 1 was expected");
    e.texts = NULL;
    batch.mask = mask;
    refuse(&f, cache, &e, "the batch has a mask");
    batch.mask = NULL;
    const int64_t three[4] = {0, 1, 2, 3};
    batch = (s24_batch){.texts = 3, .offsets = three, .ids = f.ids[0]};
    refuse(&f, cache, &e, "the batch has 3 texts; the cache has room for 2");
    batch.texts = 0;
    refuse(&f, cache, &e, "the batch has no texts");
    assert_int_equal(s24_session_extend(f.session, f.ctx, foreign, &e, &(s24_outputs){0}),
                     S24_ERROR_ARGUMENT);
    assert_int_equal(s24_cache_truncate(cache, f.ctx, 2, 0), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(f.ctx), "the cache has no text 2; 0 to 1 was expected");
    assert_int_equal(s24_cache_truncate(cache, f.ctx, 0, 11), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(f.ctx),
                        "text 0 of the cache has 10 tokens; it cannot be cut to 11");
    s24_cache_destroy(cache);
    s24_cache_destroy(foreign);
    tear_down(&other);
    tear_down(&f);
}

static void refused_caches(void **state)
{
    static const struct {
        s24_cache_opts opts;
        const char *sentence;
    } cases[] = {{{.texts = -1}, "the option texts of a cache is -1; 1 to 1048576 was expected"},
                 {{.tokens = -2}, "the option tokens of a cache is -2; 1 to 96"},
                 {{.tokens = 97}, "the option tokens of a cache is 97; 1 to 96"}};
    fixture f;
    s24_model *encoder;
    s24_session *session;
    s24_cache *cache;
    (void)state;
    set_up(&f, folder_of(&specs[0]), NULL, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_cache_opts opts = cases[i].opts;
        opts.size = sizeof opts;
        assert_int_equal(s24_cache_create(&cache, f.ctx, f.session, &opts), S24_ERROR_ARGUMENT);
        assert_null(cache);
        assert_non_null(strstr(s24_ctx_error(f.ctx), cases[i].sentence));
    }
    assert_int_equal(s24_cache_create(&cache, f.ctx, NULL, NULL), S24_ERROR_ARGUMENT);
    OK(f.ctx, s24_model_preset(&encoder, f.ctx, "bert-tiny", NULL));
    OK(f.ctx, s24_session_create(&session, f.ctx, encoder, 8));
    assert_int_equal(s24_cache_create(&cache, f.ctx, session, NULL), S24_ERROR_UNSUPPORTED);
    assert_string_equal(s24_ctx_error(f.ctx),
                        "a bert model has no cache: its tokens attend to later ones");
    s24_session_destroy(session);
    s24_model_destroy(encoder);
    s24_cache_destroy(NULL);
    assert_int_equal(s24_cache_tokens(NULL, 0) + s24_cache_bytes(NULL), 0);
    cache = cache_of(&f, 2, 10);
    assert_int_equal(s24_cache_bytes(cache), 2 * LM_LAYERS * 2 * 10 * LM_WIDTH * 4);
    s24_cache_destroy(cache);
    s24_cache_opts opts = {.size = sizeof opts, .texts = 2, .tokens = 10, .dtype = S24_E4M3};
    OK(f.ctx, s24_cache_create(&cache, f.ctx, f.session, &opts));
    const int64_t rows = 2 * LM_LAYERS * 2 * 10;
    assert_int_equal((s24_cache_bytes(cache) - rows * LM_WIDTH) % (rows * 4), 0);
    assert_true(s24_cache_bytes(cache) < rows * LM_WIDTH * 4);
    s24_cache_destroy(cache);
    opts.dtype = S24_BF16;
    assert_int_equal(s24_cache_create(&cache, f.ctx, f.session, &opts), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(f.ctx), "the option dtype of a cache is bf16; none, i8 or "
                                              "e4m3 was expected");
    tear_down(&f);
}

static const char *failing_folder;

static s24_status load_and_extend(s24_ctx *ctx)
{
    const int32_t ids[4] = {1, 2, 3, 4};
    const int64_t ends[2] = {0, 4};
    const s24_batch batch = one_text(ids, ends);
    float logits[4 * LM_VOCABULARY];
    s24_model *model = NULL;
    s24_session *session = NULL;
    s24_cache *cache = NULL;
    s24_status status = load(&model, ctx, failing_folder, NULL);
    if (status == S24_OK) status = s24_session_create(&session, ctx, model, 4);
    const s24_cache_opts opts = {.size = sizeof opts, .dtype = S24_I8};
    if (status == S24_OK) status = s24_cache_create(&cache, ctx, session, &opts);
    for (int i = 0; i < 2 && status == S24_OK; i++)
        status = s24_session_extend(session, ctx, cache, &(s24_extension){.batch = &batch},
                                    &(s24_outputs){.logits = logits});
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    s24_model_destroy(model);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    failing_folder = folder_of(&specs[1]);
    assert_true(count_failures(load_and_extend) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),          cmocka_unit_test(two_four),
        cmocka_unit_test(bytes),          cmocka_unit_test(together),
        cmocka_unit_test(other_outputs),  cmocka_unit_test(refusals),
        cmocka_unit_test(refused_caches), cmocka_unit_test(failing_allocations)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
