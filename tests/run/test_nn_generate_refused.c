// SPDX-License-Identifier: Apache-2.0
/*
 * Texts that do not go on: options and prompts that are refused, logits that are no numbers,
 * interruptions, memory that ends; and which ids a folder says end its texts.
 */
#include "support.h"

#include "nn_failing.h"
#include "nn_generate.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static void refuse(const fixture *f, const s24_batch *prompts, s24_generate_opts opts,
                   const char *sentence)
{
    static texts t;
    opts.token = take;
    opts.user = &t;
    opts.size = sizeof opts;
    assert_int_equal(s24_generate(f->session, f->ctx, f->cache, prompts, &opts),
                     S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(f->ctx), sentence);
    assert_int_equal(t.all, 0);
    for (int b = 0; b < TEXTS; b++)
        assert_int_equal(s24_cache_tokens(f->cache, b), 0);
}

static void refused_options(void **state)
{
    static const struct {
        s24_generate_opts opts;
        const char *sentence;
    } cases[] = {
        {{.max_new = -1}, "max_new is -1; at least 1 was expected"},
        {{.temperature = -0.5}, "temperature is -0.5; a number of at least 0 was expected"},
        {{.temperature = NAN}, "temperature is nan; a number of at least 0 was expected"},
        {{.top_k = -2}, "top_k is -2; at least 0 was expected"},
        {{.top_p = -0.1}, "top_p is -0.1; over 0 and at most 1 was expected"},
        {{.top_p = 1.5}, "top_p is 1.5; over 0 and at most 1 was expected"},
        {{.likeliest = -1}, "likeliest is -1; 0 to 1000 was expected"},
        {{.likeliest = 1001}, "likeliest is 1001; 0 to 1000 was expected"},
        {{.min_p = 2}, "min_p is 2; 0 to 1 was expected"},
        {{.repeat_penalty = -1}, "repeat_penalty is -1; a number over 0 was expected"},
        {{.repeat_penalty = INFINITY}, "repeat_penalty is inf; a number over 0 was expected"},
        {{.stop_count = 2}, "stop_count is 2, and stops is NULL"}};
    fixture f;
    (void)state;
    set_up(&f, folder_of(0), 100, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(&f, &f.prompts, cases[i].opts, cases[i].sentence);
    tear_down(&f);
}

static void refused_prompts(void **state)
{
    static const int64_t none[2] = {0, 0}, five[6] = {0, 1, 2, 3, 4, 25}, late[2] = {1, 2};
    static const uint8_t mask[MOST];
    const s24_generate_opts opts = {0};
    fixture f;
    (void)state;
    set_up(&f, folder_of(0), 100, 1);
    open_cache(&f, 20);
    refuse(&f, &f.prompts, opts,
           "prompt 2 has 39 tokens; its text of the cache has room for 20, and the model for 96");
    s24_batch batch = {.texts = 1, .offsets = none, .ids = f.ids};
    refuse(&f, &batch, opts, "text 0 has no tokens");
    batch.offsets = late;
    refuse(&f, &batch, opts, "the batch has no prompts, no offsets from 0 on, or no ids");
    batch = (s24_batch){.texts = 5, .offsets = five, .ids = f.ids};
    refuse(&f, &batch, opts, /* it would wait for a text, which has no room either */
           "prompt 4 has 21 tokens; its text of the cache has room for 20, and the model for 96");
    batch.texts = 3;
    f.ids[1] = LM_VOCABULARY;
    refuse(&f, &batch, opts, "token 0 of text 1 is 53; the vocabulary has 53");
    batch.mask = mask;
    refuse(&f, &batch, opts, "the prompts have a mask, which a text that goes on has not");
    assert_int_equal(s24_generate(f.session, f.ctx, NULL, &batch, NULL), S24_ERROR_ARGUMENT);
    assert_string_equal(s24_ctx_error(f.ctx), "cache is NULL");
    tear_down(&f);
}

/* The last norm's weights beyond all bounds: logits of ±Inf. */
static void logits_without_bounds(void **state)
{
    const char *folder = folder_of(1);
    char path[600];
    fixture f;
    (void)state;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_file io = mini_open(path);
    const mini_tensor norm = mini_get(&io, "model.norm.weight");
    const long place = 8 + (long)strlen(io.header) + (long)((const char *)norm.data - io.data);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    for (int i = 0; i < LM_WIDTH; i++)
        assert_int_equal(fwrite(&(float){3e38f}, sizeof(float), 1, file), 1);
    assert_int_equal(fclose(file), 0);
    mini_close(&io);
    set_up(&f, folder, 100, 1);
    assert_int_equal(s24_generate(f.session, f.ctx, f.cache, &f.prompts, NULL),
                     S24_ERROR_NOT_FINITE);
    assert_string_equal(s24_ctx_error(f.ctx), "the logits of new token 0 of prompt 0 have a NaN or "
                                              "an infinite largest one");
    tear_down(&f);
}

static int stop_at(void *user, const char *stage, int64_t done, int64_t total)
{
    assert_string_equal(stage, "new tokens");
    assert_int_equal(total, TEXTS * NEW);
    return done >= *(const int64_t *)user;
}

/* What has come stays. */
static void interruption(void **state)
{
    int64_t enough = 3 * TEXTS;
    const s24_ctx_opts as = {.size = sizeof as, .threads = 1, .progress = stop_at, .user = &enough};
    static texts t;
    s24_generate_opts opts = {.size = sizeof opts, .max_new = NEW, .token = take, .user = &t};
    fixture f;
    s24_ctx *stopping;
    (void)state;
    set_up(&f, folder_of(0), 100, 1);
    assert_int_equal(s24_ctx_create(&stopping, &as), S24_OK);
    assert_int_equal(s24_generate(f.session, stopping, f.cache, &f.prompts, &opts),
                     S24_ERROR_INTERRUPTED);
    assert_int_equal(t.all, enough);
    assert_int_equal(s24_cache_tokens(f.cache, 1), 1 + 2);
    s24_ctx_destroy(stopping);
    tear_down(&f);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *count_alloc(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    ++*(int *)user;
    return posix_memalign(&memory, alignment, bytes ? bytes : 1) ? NULL : memory;
}

static void count_free(void *user, void *memory, size_t bytes)
{
    (void)bytes;
    if (memory) ++*(int *)user;
    free(memory);
}

typedef struct watched {
    int calls, at[NEW];
} watched;

static int note_calls(void *user, const s24_new_token *token)
{
    watched *w = user;
    w->at[token->index] = w->calls;
    return 0;
}

/* The context's allocator is not called from the first token to the last. */
static void steps_allocate_nothing(void **state)
{
    watched w = {0};
    const s24_ctx_opts as = {
        .size = sizeof as, .allocator = {count_alloc, count_free, &w.calls}, .threads = 1};
    const s24_generate_opts opts = {.size = sizeof opts,
                                    .max_new = NEW,
                                    .temperature = 1,
                                    .top_p = 0.9,
                                    .repeat_penalty = 1.2,
                                    .token = note_calls,
                                    .user = &w};
    fixture f;
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &as), S24_OK);
    set_up_in(&f, ctx, folder_of(1), 100);
    const int before = w.calls;
    OK(f.ctx, s24_generate(f.session, f.ctx, f.cache, &f.prompts, &opts));
    assert_true(w.at[0] > before);
    assert_int_equal(w.at[0], w.at[NEW - 1]);
    tear_down(&f);
}

static const char *failing_folder;

static s24_status load_and_generate(s24_ctx *ctx)
{
    const int32_t ids[4] = {1, 2, 3, 4};
    const int64_t two[3] = {0, 1, 4};
    const s24_batch batch = {.texts = 2, .offsets = two, .ids = ids};
    const s24_cache_opts room = {.size = sizeof room, .texts = 2};
    const s24_generate_opts opts = {.size = sizeof opts, .max_new = 4, .temperature = 1};
    s24_model *model = NULL;
    s24_session *session = NULL;
    s24_cache *cache = NULL;
    s24_status status = load(&model, ctx, failing_folder, NULL);
    if (status == S24_OK) status = s24_session_create(&session, ctx, model, 4);
    if (status == S24_OK) status = s24_cache_create(&cache, ctx, session, &room);
    if (status == S24_OK) status = s24_generate(session, ctx, cache, &batch, &opts);
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    s24_model_destroy(model);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    failing_folder = folder_of(1);
    assert_true(count_failures(load_and_generate) > 30);
}

/* ---- a folder's own ends --------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void end_ids(void **state)
{
    static const struct {
        const char *config, *generation;
        int64_t count;
        int32_t ids[3];
        const char *error;
    } cases[] = {{"{}", NULL, 0, {0}, NULL},
                 {"{\"eos_token_id\": 7}", NULL, 1, {7}, NULL},
                 {"{\"eos_token_id\": 7}", "{\"eos_token_id\": [3, 5, 9]}", 3, {3, 5, 9}, NULL},
                 {"{\"eos_token_id\": [4]}", "{\"eos_token_id\": null}", 1, {4}, NULL},
                 {"{\"eos_token_id\": \"x\"}", "{}", 0, {0}, "config.json"},
                 {"{}", "{\"eos_token_id\": [1, -1]}", 0, {0}, "generation_config.json"}};
    const char *folder = folder_of(0);
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_checkpoint *checkpoint;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t ids[2] = {-1, -1};
        int64_t count = 2;
        write_file(folder, "config.json", cases[i].config);
        if (cases[i].generation) write_file(folder, "generation_config.json", cases[i].generation);
        OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
        const s24_status status = s24_end_ids(ids, &count, ctx, checkpoint);
        s24_checkpoint_close(checkpoint);
        assert_int_equal(status, cases[i].error ? S24_ERROR_FORMAT : S24_OK);
        if (cases[i].error) {
            assert_non_null(strstr(s24_ctx_error(ctx), cases[i].error));
            assert_non_null(strstr(s24_ctx_error(ctx),
                                   ": \"eos_token_id\" is neither an id nor a list of ids"));
            continue;
        }
        assert_int_equal(count, cases[i].count);
        for (int j = 0; j < count && j < 2; j++)
            assert_int_equal(ids[j], cases[i].ids[j]);
    }
    int64_t count = 0;
    assert_int_equal(s24_end_ids(NULL, &count, ctx, NULL), S24_ERROR_ARGUMENT);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_options),
                                       cmocka_unit_test(refused_prompts),
                                       cmocka_unit_test(logits_without_bounds),
                                       cmocka_unit_test(interruption),
                                       cmocka_unit_test(steps_allocate_nothing),
                                       cmocka_unit_test(failing_allocations),
                                       cmocka_unit_test(end_ids)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
