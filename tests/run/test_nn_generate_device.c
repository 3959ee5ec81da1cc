// SPDX-License-Identifier: Apache-2.0
/*
 * Texts that go on on a device: a text in passes of any number of tokens is the text in one pass
 * on the CPU, alone and with others, dense and 2:4; the same bits each time; greedy texts are what
 * the CPU's logits say. Says in a line where there is no GPU.
 */
#include "support.h"

#include "device_here.h"
#include "nn_generate.h"

enum { LENGTH = 70, PIECES = 5 };

static const lm_spec specs[] = {
    {.heads = 6}, {.llama = 1}, {.llama = 1, .tied = 1, .biased = 1}, LM_KIN, LM_OTHERS};

/* A model here in f32, and there. */
typedef struct pair {
    s24_ctx *ctx;
    s24_model *here, *there;
    s24_session *session; /* of the one there */
    int64_t words;
    double bound; /* relative, of logits */
} pair;

static void open_pair(pair *p, s24_ctx *ctx, s24_device *device, const char *folder,
                      s24_dtype dtype, const char *scheme)
{
    const s24_model_opts opts = {.size = sizeof opts,
                                 .dtype = dtype,
                                 .device = device,
                                 .sparse = 1,
                                 .all_sparse = 1,
                                 .quantize = scheme,
                                 .quantize_head = scheme};
    const s24_model_opts plain = {
        .size = sizeof plain, .dense = 1, .quantize = scheme, .quantize_head = scheme};
    s24_model_info info;
    *p = (pair){.ctx = ctx, .bound = dtype == S24_BF16 ? 6e-2 : 8e-3};
    OK(ctx, load(&p->here, ctx, folder, &plain));
    OK(ctx, load(&p->there, ctx, folder, &opts));
    OK(ctx, s24_session_create(&p->session, ctx, p->there, 2 * LENGTH));
    s24_model_describe(&info, p->here);
    p->words = info.vocabulary;
}

static void close_pair(pair *p)
{
    s24_session_destroy(p->session);
    s24_model_destroy(p->there);
    s24_model_destroy(p->here);
}

static s24_cache *cache_of(const pair *p, int64_t count, int64_t tokens)
{
    const s24_cache_opts opts = {.size = sizeof opts, .texts = count, .tokens = tokens};
    s24_cache *cache;
    OK(p->ctx, s24_cache_create(&cache, p->ctx, p->session, &opts));
    return cache;
}

/* Logits [count, words] of a text in one pass on the CPU. */
static float *whole(const pair *p, const int32_t *ids, int64_t count)
{
    const int64_t ends[2] = {0, count};
    const s24_batch batch = {.texts = 1, .offsets = ends, .ids = ids};
    float *logits = malloc((size_t)(count * p->words) * sizeof *logits);
    s24_session *session;
    OK(p->ctx, s24_session_create(&session, p->ctx, p->here, count));
    OK(p->ctx, s24_session_forward(session, p->ctx, &batch, &(s24_outputs){.logits = logits}));
    s24_session_destroy(session);
    return logits;
}

static void fill_ids(int32_t *ids, int64_t count)
{
    uint64_t state = 11;
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)(test_random(&state) % LM_VOCABULARY);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The text in pieces, the rest token by token. */
static void in_pieces(const pair *p, float *logits, const int32_t *ids, const int64_t *pieces)
{
    s24_cache *cache = cache_of(p, 2, LENGTH);
    const int64_t place = 1;
    for (int64_t at = 0, i = 0, count; at < LENGTH; at += count, i++) {
        count = i < PIECES && pieces[i] ? pieces[i] : 1;
        const int64_t ends[2] = {0, count};
        const s24_batch batch = {.texts = 1, .offsets = ends, .ids = ids + at};
        const s24_outputs outputs = {.logits = logits + at * p->words};
        OK(p->ctx,
           s24_session_extend(p->session, p->ctx, cache,
                              &(s24_extension){.batch = &batch, .texts = &place}, &outputs));
        assert_int_equal(s24_cache_tokens(cache, place), at + count);
    }
    s24_cache_destroy(cache);
}

static void check_pieces(const pair *p)
{
    static const int64_t pieces[][PIECES] = {{LENGTH}, {31, 1, 20}, {1, 30, 2, 17}, {9, 40}};
    int32_t ids[LENGTH];
    fill_ids(ids, LENGTH);
    float *want = whole(p, ids, LENGTH), *got[2];
    const size_t bytes = (size_t)(LENGTH * p->words) * sizeof *want;
    for (int i = 0; i < 2; i++)
        got[i] = malloc(bytes);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        for (int turn = 0; turn < 2; turn++)
            in_pieces(p, got[turn], ids, pieces[i]);
        near(want, got[0], LENGTH * p->words, p->bound, "logits");
        assert_memory_equal(got[0], got[1], bytes);
    }
    for (int i = 0; i < 2; i++)
        free(got[i]);
    free(want);
}

/* ---- together -------------------------------------------------------------------------------- */

/* Prompts of different lengths, then a token of each, or of two, whose order is turned. */
static void check_together(const pair *p)
{
    static const int64_t first[4] = {0, 5, 6, 45}, ones[4] = {0, 1, 2, 3}, turned[2] = {2, 0};
    int32_t all[3 * LENGTH], ids[45];
    float *want[3], *got = malloc((size_t)(45 * p->words) * sizeof *got);
    s24_cache *cache = cache_of(p, 3, LENGTH);
    const s24_outputs outputs = {.logits = got};
    fill_ids(all, 3 * LENGTH);
    for (int b = 0; b < 3; b++) {
        want[b] = whole(p, all + b * LENGTH, LENGTH);
        memcpy(ids + first[b], all + b * LENGTH, (size_t)(first[b + 1] - first[b]) * sizeof *ids);
    }
    const s24_batch prompts = {.texts = 3, .offsets = first, .ids = ids};
    OK(p->ctx, s24_session_extend(p->session, p->ctx, cache, &(s24_extension){.batch = &prompts},
                                  &outputs));
    for (int b = 0; b < 3; b++)
        near(want[b], got + first[b] * p->words, (first[b + 1] - first[b]) * p->words, p->bound,
             "prompts");
    for (int s = 0; s < 20; s++) {
        const int count = s % 2 ? 2 : 3;
        for (int b = 0; b < count; b++) {
            const int64_t text = count == 2 ? turned[b] : b;
            ids[b] = all[text * LENGTH + s24_cache_tokens(cache, text)];
        }
        const s24_batch batch = {.texts = count, .offsets = ones, .ids = ids};
        const s24_extension e = {.batch = &batch, .texts = count == 2 ? turned : NULL};
        OK(p->ctx, s24_session_extend(p->session, p->ctx, cache, &e, &outputs));
        for (int b = 0; b < count; b++) {
            const int64_t text = count == 2 ? turned[b] : b;
            near(want[text] + (s24_cache_tokens(cache, text) - 1) * p->words, got + b * p->words,
                 p->words, p->bound, "steps");
        }
    }
    for (int b = 0; b < 3; b++)
        free(want[b]);
    free(got);
    s24_cache_destroy(cache);
}

/* So many that integers may be widened first. */
static void check_many(const pair *p)
{
    static const int64_t ends[3] = {0, LENGTH, 2 * LENGTH};
    int32_t ids[2 * LENGTH];
    float *got = malloc((size_t)(2 * LENGTH * p->words) * sizeof *got);
    const s24_batch batch = {.texts = 2, .offsets = ends, .ids = ids};
    fill_ids(ids, 2 * LENGTH);
    OK(p->ctx, s24_session_forward(p->session, p->ctx, &batch, &(s24_outputs){.logits = got}));
    for (int b = 0; b < 2; b++) {
        float *want = whole(p, ids + b * LENGTH, LENGTH);
        near(want, got + b * LENGTH * p->words, LENGTH * p->words, p->bound, "many");
        free(want);
    }
    free(got);
}

/* ---- generated ------------------------------------------------------------------------------- */

/* How far a text's tokens stand below the largest logits of the CPU, which has read it. */
static void check_text(const pair *p, const s24_batch *prompts, const texts *t, int64_t b)
{
    const int64_t prompt = prompts->offsets[b + 1] - prompts->offsets[b],
                  all = prompt + t->count[b];
    int32_t ids[400];
    memcpy(ids, prompts->ids + prompts->offsets[b], (size_t)prompt * sizeof *ids);
    for (int64_t i = 0; i < t->count[b]; i++)
        ids[prompt + i] = t->tokens[b][i].id;
    float *logits = whole(p, ids, all);
    for (int64_t i = 0; i < t->count[b]; i++) {
        const s24_new_token *token = &t->tokens[b][i];
        const float *row = logits + (prompt + i - 1) * p->words;
        double sum = 0, most = -INFINITY, size = 0;
        for (int64_t w = 0; w < p->words; w++) {
            sum += exp((double)row[w]);
            most = fmax(most, (double)row[w]);
            size = fmax(size, fabs((double)row[w]));
        }
        assert_in_range(token->id, 0, p->words - 1);
        assert_true((double)row[token->id] > most - 2 * p->bound * size);
        assert_true(fabs((double)token->log_probability - ((double)row[token->id] - log(sum))) <
                    2 * p->bound * size + 1e-3);
    }
    free(logits);
}

static void same_texts(const texts *a, const texts *b)
{
    assert_int_equal(a->all, b->all);
    for (int i = 0; i < TEXTS; i++)
        for (int64_t t = 0; t < a->count[i]; t++) {
            assert_int_equal(a->tokens[i][t].id, b->tokens[i][t].id);
            assert_true(a->tokens[i][t].log_probability == b->tokens[i][t].log_probability);
        }
}

static void check_generated(const pair *p)
{
    static texts t[2];
    int32_t ids[MOST];
    fill_ids(ids, MOST);
    fixture f = {.ctx = p->ctx, .session = p->session, .cache = cache_of(p, TEXTS, 96)};
    f.prompts = (s24_batch){.texts = TEXTS, .offsets = offsets, .ids = ids};
    for (int turn = 0; turn < 2; turn++)
        go_on(&f, &t[turn], (s24_generate_opts){.max_new = NEW});
    same_texts(&t[0], &t[1]);
    for (int b = 0; b < TEXTS; b++) {
        assert_int_equal(t[0].count[b], NEW);
        assert_int_equal(s24_cache_tokens(f.cache, b), offsets[b + 1] - offsets[b] + NEW - 1);
        check_text(p, &f.prompts, &t[0], b);
    }
    /* The same tokens by logits that are handed back. */
    go_on(&f, &t[1], (s24_generate_opts){.max_new = NEW, .likeliest = 1});
    for (int b = 0; b < TEXTS; b++)
        for (int i = 0; i < NEW; i++)
            assert_int_equal(t[0].tokens[b][i].id, t[1].tokens[b][i].id);
    for (int turn = 0; turn < 2; turn++)
        go_on(&f, &t[turn], (s24_generate_opts){.max_new = NEW, .temperature = 1, .seed = 5});
    same_texts(&t[0], &t[1]);
    s24_cache_destroy(f.cache);
}

static void check_folder(s24_ctx *ctx, s24_device *device, const char *folder, const char *scheme)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        pair p;
        open_pair(&p, ctx, device, folder, bf16 ? S24_BF16 : S24_F16, scheme);
        check_pieces(&p);
        check_together(&p);
        check_many(&p);
        check_generated(&p);
        close_pair(&p);
    }
}

static void every_model(void **state)
{
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    (void)state;
    for (size_t i = 0; device && i < sizeof specs / sizeof *specs; i++)
        check_folder(ctx, device, folder_of_spec(&specs[i]), NULL);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void two_four(void **state)
{
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    (void)state;
    for (int llama = 0; device && llama < 2; llama++)
        check_folder(ctx, device, prune(ctx, folder_of_spec(&specs[llama]), llama, NULL), NULL);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Weights and the head in integers, of every scheme, dense and 2:4. */
static void integers(void **state)
{
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    const char *scheme;
    (void)state;
    for (int i = 0; device && (scheme = s24_scheme_name(i, NULL, NULL)); i++) {
        const lm_spec *spec = &specs[1 + i % 2];
        check_folder(ctx, device, folder_of_spec(spec), scheme);
        check_folder(ctx, device, prune(ctx, folder_of_spec(spec), 1, NULL), scheme);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* ---- long texts ------------------------------------------------------------------------------ */

/* A text of so many tokens that attention takes it in several pieces goes on token by token, alone
   and next to a short one. */
static void check_long(const pair *p, int64_t count, int64_t prompt)
{
    enum { SHORT = 9, STEPS = 12 };
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    fill_ids(ids, count);
    float *want = whole(p, ids, count), *got = malloc((size_t)(count * p->words) * sizeof *got);
    float *other = whole(p, ids, SHORT + STEPS);
    const int64_t ends[3] = {0, prompt, prompt + SHORT}, ones[3] = {0, 1, 2};
    s24_session *session;
    OK(p->ctx, s24_session_create(&session, p->ctx, p->there, count + SHORT));
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 2, .tokens = count};
    s24_cache *cache;
    OK(p->ctx, s24_cache_create(&cache, p->ctx, session, &opts));
    int32_t *both = malloc((size_t)(count + SHORT) * sizeof *both);
    memcpy(both, ids, (size_t)prompt * sizeof *ids);
    memcpy(both + prompt, ids, SHORT * sizeof *ids);
    s24_batch batch = {.texts = 2, .offsets = ends, .ids = both};
    const s24_outputs outputs = {.logits = got};
    OK(p->ctx,
       s24_session_extend(session, p->ctx, cache, &(s24_extension){.batch = &batch}, &outputs));
    near(want, got, prompt * p->words, p->bound, "a long prompt");
    batch.offsets = ones;
    for (int64_t s = 0; s < STEPS; s++) {
        both[0] = ids[prompt + s];
        both[1] = ids[SHORT + s];
        OK(p->ctx,
           s24_session_extend(session, p->ctx, cache, &(s24_extension){.batch = &batch}, &outputs));
        near(want + (prompt + s) * p->words, got, p->words, p->bound, "a long text's step");
        near(other + (SHORT + s) * p->words, got + p->words, p->words, p->bound, "a short one's");
    }
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    free(both);
    free(other);
    free(got);
    free(want);
    free(ids);
}

static void long_texts(void **state)
{
    static const lm_spec tall = {.llama = 1, .positions = 1300},
                         near_by = {.llama = 1,
                                    .model_type = "mistral",
                                    .more = ", \"sliding_window\": 300",
                                    .positions = 1300};
    const lm_spec *const each[] = {&tall, &near_by};
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    (void)state;
    for (int i = 0; device && i < 4; i++) {
        pair p;
        open_pair(&p, ctx, device, folder_of_spec(each[i / 2]), i % 2 ? S24_BF16 : S24_F16, NULL);
        check_long(&p, 1200, 1188);
        check_long(&p, 520, 506); /* into the second piece */
        close_pair(&p);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* ---- golden ---------------------------------------------------------------------------------- */

/* Goes on with the prompts of a folder; how many tokens are transformers' own. */
static void check_golden(const pair *p, const mini_file *io, int64_t *same, int64_t *all)
{
    int64_t ends[TEXTS + 1] = {0};
    int32_t ids[200];
    static texts t;
    for (int i = 0; i < TEXTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "prompt.%d", i);
        const mini_tensor prompt = mini_get(io, name);
        ends[i + 1] = ends[i] + (int64_t)(prompt.bytes / sizeof *ids);
        memcpy(ids + ends[i], prompt.data, prompt.bytes);
    }
    fixture f = {.ctx = p->ctx, .session = p->session, .cache = cache_of(p, TEXTS, 0)};
    f.prompts = (s24_batch){.texts = TEXTS, .offsets = ends, .ids = ids};
    const int32_t stop = 2;
    go_on(&f, &t, (s24_generate_opts){.max_new = 32, .stops = &stop, .stop_count = 1});
    for (int i = 0; i < TEXTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "greedy.%d", i);
        const mini_tensor greedy = mini_get(io, name);
        const int64_t count = (int64_t)(greedy.bytes / sizeof *ids);
        check_text(p, &f.prompts, &t, i);
        for (int64_t n = 0; n < count && n < t.count[i]; n++) {
            if (t.tokens[i][n].id != ((const int32_t *)greedy.data)[n]) break; /* from there on */
            ++*same;
        }
        *all += count;
    }
    s24_cache_destroy(f.cache);
}

static void golden_texts(void **state)
{
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    (void)state;
    for (size_t i = 0; device && i < sizeof lm_golden / sizeof *lm_golden; i++) {
        char folder[512], path[600];
        int64_t same = 0, all = 0;
        if (!golden_path(folder, sizeof folder, lm_golden[i])) SKIP_WITHOUT(folder);
        snprintf(path, sizeof path, "%s/io.safetensors", folder);
        mini_file io = mini_open(path);
        pair p;
        open_pair(&p, ctx, device, folder, S24_F16, NULL);
        check_golden(&p, &io, &same, &all);
        print_message("%s: %lld of %lld tokens are transformers' own\n", lm_golden[i],
                      (long long)same, (long long)all);
        assert_true(2 * same > all);
        close_pair(&p);
        mini_close(&io);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_model), cmocka_unit_test(two_four),
                                       cmocka_unit_test(integers), cmocka_unit_test(long_texts),
                                       cmocka_unit_test(golden_texts)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
