// SPDX-License-Identifier: Apache-2.0
/*
 * A head and word embeddings that are used in rows where the file has them: the numbers of a model
 * whose file holds the same values in f32, for few tokens and for many, on any number of threads.
 */
#include "support.h"

#include "nn_language.h"
#include "nn_load.h"

enum { TOKENS = 30 };

typedef struct fixture {
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
} fixture;

static void set_up(fixture *f, const lm_spec *spec, s24_dtype dtype, int threads, const char *cpu)
{
    const char *folder = io_path("model");
    const s24_model_opts opts = {.size = sizeof opts, .dtype = dtype};
    const s24_ctx_opts as = {
        .size = sizeof as, .threads = threads, .cpu_mask = cpu ? s24_cpu_parse(cpu) : 0};
    io_remove(folder);
    lm_write(spec, folder);
    assert_int_equal(s24_ctx_create(&f->ctx, &as), S24_OK);
    OK(f->ctx, load(&f->model, f->ctx, folder, &opts));
    io_remove(folder); /* its pages stay */
    OK(f->ctx, s24_session_create(&f->session, f->ctx, f->model, TOKENS));
}

static void tear_down(fixture *f)
{
    s24_session_destroy(f->session);
    s24_model_destroy(f->model);
    s24_ctx_destroy(f->ctx);
}

static void run(const fixture *f, float *logits, const int64_t *tokens, int64_t count)
{
    int32_t ids[TOKENS];
    const int64_t offsets[2] = {0, TOKENS};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.logits = logits, .tokens = tokens, .token_count = count};
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i * 7 % LM_VOCABULARY;
    OK(f->ctx, s24_session_forward(f->session, f->ctx, &batch, &outputs));
}

/* All tokens' logits, and those of 1, 2, … of them, which other products make. */
static void compare(const fixture *want, const fixture *got, double bound)
{
    static float all[TOKENS * LM_VOCABULARY], some[TOKENS * LM_VOCABULARY];
    int64_t tokens[TOKENS];
    run(want, all, NULL, 0);
    run(got, some, NULL, 0);
    near(all, some, TOKENS * LM_VOCABULARY, bound, "all logits");
    for (int64_t count = 1; count <= TOKENS; count += count < 10 ? 1 : 10) {
        for (int64_t i = 0; i < count; i++)
            tokens[i] = TOKENS - 1 - i;
        run(got, some, tokens, count);
        for (int64_t i = 0; i < count; i++)
            near(all + tokens[i] * LM_VOCABULARY, some + i * LM_VOCABULARY, LM_VOCABULARY, bound,
                 "chosen logits");
    }
}

static void as_in_f32(void **state)
{
    static const s24_dtype dtypes[] = {S24_F32, S24_BF16};
    static const char *const cpus[] = {NULL, "avx2", "baseline"};
    (void)state;
    for (int tied = 0; tied < 2; tied++)
        for (int d = 0; d < 2; d++)
            for (int threads = 1; threads <= 3; threads++)
                for (int c = 0; c < 3; c++) {
                    const lm_spec wide = {.llama = 1, .tied = tied, .bf16 = 1};
                    const lm_spec narrow = {.llama = 1, .tied = tied, .bf16 = 2};
                    fixture want, got;
                    set_up(&want, &wide, dtypes[d], threads, cpus[c]);
                    set_up(&got, &narrow, dtypes[d], threads, cpus[c]);
                    compare(&want, &got, 1e-5);
                    tear_down(&want);
                    tear_down(&got);
                }
}

/* What is not bf16 is rounded where the model computes in it. */
static void rounded(void **state)
{
    const lm_spec spec = {.llama = 0};
    fixture want, got;
    (void)state;
    set_up(&want, &spec, S24_F32, 1, NULL);
    set_up(&got, &spec, S24_BF16, 2, NULL);
    compare(&want, &got, 4e-2);
    tear_down(&want);
    tear_down(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_in_f32), cmocka_unit_test(rounded)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
