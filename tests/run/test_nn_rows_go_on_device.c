// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of models.def whose texts go on by a head for the next token, on a device: two texts in
 * passes of many tokens and of one give the logits that the CPU gives in one pass in f32, dense and
 * 2:4, and the same bits each time. Heads that are too wide with latents are refused. Says in a
 * line where there is no GPU.
 */
#include "support.h"

#include "device_here.h"
#include "nn_every_row.h"
#include "sparse24/language.h"

enum { LENGTH = 40, PROMPT = 23, SHORT = 5, PASSES = 4 };

/* Tokens of the two texts in each pass: prompts, steps of one token, several at once. */
static const int64_t passes[PASSES][2] = {{PROMPT, SHORT}, {1, 1}, {1, 1}, {7, 4}};

static void fill_ids(int32_t ids[2][LENGTH])
{
    uint64_t state = 3;
    for (int i = 0; i < 2 * LENGTH; i++)
        ids[i / LENGTH][i % LENGTH] = 2 + (int32_t)(test_random(&state) % (VOCABULARY - 2));
}

/* Logits of both texts here, each in one pass. */
static void whole(float want[2][LENGTH * VOCABULARY], s24_ctx *ctx, const char *folder,
                  int32_t ids[2][LENGTH])
{
    static const int64_t offsets[] = {0, LENGTH};
    const s24_model_opts opts = {.size = sizeof opts, .dtype = S24_F32, .dense = 1};
    s24_model *model;
    s24_session *session;
    OK(ctx, load(&model, ctx, folder, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, LENGTH));
    for (int b = 0; b < 2; b++) {
        const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids[b]};
        const s24_outputs outputs = {.logits = want[b]};
        OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
}

/* Both texts go on, pass after pass. */
static void go_on(float got[2][LENGTH * VOCABULARY], s24_ctx *ctx, s24_session *session,
                  int32_t ids[2][LENGTH])
{
    static float logits[2 * LENGTH * VOCABULARY];
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 2, .tokens = LENGTH};
    int64_t at[2] = {0, 0};
    s24_cache *cache;
    OK(ctx, s24_cache_create(&cache, ctx, session, &opts));
    for (int p = 0; p < PASSES; p++) {
        const int64_t *count = passes[p], offsets[] = {0, count[0], count[0] + count[1]};
        int32_t both[2 * LENGTH];
        for (int b = 0; b < 2; b++)
            memcpy(both + offsets[b], ids[b] + at[b], (size_t)count[b] * sizeof *both);
        const s24_batch batch = {.texts = 2, .offsets = offsets, .ids = both};
        const s24_outputs outputs = {.logits = logits};
        OK(ctx,
           s24_session_extend(session, ctx, cache, &(s24_extension){.batch = &batch}, &outputs));
        for (int b = 0; b < 2; b++) {
            memcpy(got[b] + at[b] * VOCABULARY, logits + offsets[b] * VOCABULARY,
                   (size_t)(count[b] * VOCABULARY) * sizeof *logits);
            at[b] += count[b];
        }
    }
    s24_cache_destroy(cache);
}

/* Of the largest logit. Gemma's drawn norms, which multiply by one more than their weight, take
   bf16 on the CPU 1.1e-1 off; f16 has three bits more. */
static double bound_of(const s24i_architecture *a, s24_dtype dtype)
{
    const double wider = a->grown_norms ? 1.6 : 1.0;
    return wider * (dtype == S24_F16 ? 1.5e-2 : 1.2e-1);
}

/* Returns 0 where the device refuses the row, and says why. */
static int check_model(s24_ctx *ctx, const char *folder, const s24_model_opts *opts,
                       const s24i_architecture *a)
{
    static float want[2][LENGTH * VOCABULARY], got[2][2][LENGTH * VOCABULARY];
    static const int64_t tokens[2] = {PROMPT + 2 + 7, SHORT + 2 + 4};
    int32_t ids[2][LENGTH];
    s24_model *model;
    s24_session *session;
    char what[96];
    const s24_status status = load(&model, ctx, folder, opts);
    if (status == S24_ERROR_UNSUPPORTED) {
        print_message("%s: %s\n", a->model_type, s24_ctx_error(ctx));
        assert_true(a->latent && strstr(s24_ctx_error(ctx), "attention heads of 264 elements"));
        return 0;
    }
    OK(ctx, status);
    fill_ids(ids);
    whole(want, ctx, folder, ids);
    OK(ctx, s24_session_create(&session, ctx, model, 2 * LENGTH));
    for (int turn = 0; turn < 2; turn++)
        go_on(got[turn], ctx, session, ids);
    snprintf(what, sizeof what, "%s, dtype %d, %s", a->model_type, (int)opts->dtype,
             opts->dense ? "dense" : "2:4");
    for (int b = 0; b < 2; b++) {
        near(want[b], got[0][b], tokens[b] * VOCABULARY, bound_of(a, opts->dtype), what);
        assert_memory_equal(got[0][b], got[1][b], (size_t)(tokens[b] * VOCABULARY) * sizeof(float));
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    return 1;
}

static int check_row(s24_ctx *ctx, s24_device *device, const s24i_architecture *a, const size *n)
{
    const char *folder = prune(ctx, row_folder(a, n), 1, NULL);
    int runs = use_all_experts(folder, a, n);
    for (int i = 0; i < 4 && runs; i++) {
        const s24_model_opts opts = {.size = sizeof opts,
                                     .dtype = i / 2 ? S24_BF16 : S24_F16,
                                     .device = device,
                                     .sparse = 1,
                                     .dense = i % 2,
                                     .all_sparse = i % 2 == 0};
        runs = check_model(ctx, folder, &opts, a);
    }
    return runs;
}

static void every_row(void **state)
{
    /* Heads of 16 to 256 elements, of which rows that have a key for it get those that no width
       and number of heads make. */
    static const size there[] = {{"64", "4", "2", "32", "96", "64", "3", "24", "16"},
                                 {"128", "4", "4", "160", "192", "128", "2", "null", "40"},
                                 {"128", "2", "1", "256", "64", "128", "2", "40", "16"}};
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    const char *only = getenv("S24_ROW");
    int rows = 0, run = 0;
    (void)state;
    for (int i = 0; device && s24i_architecture_at(i); i++) {
        const s24i_architecture *a = s24i_architecture_at(i);
        if (!a->causal || !a->lm_head || (only && strcmp(only, a->model_type) != 0)) continue;
        for (size_t n = 0; n < sizeof there / sizeof *there; n++) {
            rows++;
            run += check_row(ctx, device, a, &there[n]);
        }
    }
    if (device) print_message("%d of %d models run on the device\n", run, rows);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
