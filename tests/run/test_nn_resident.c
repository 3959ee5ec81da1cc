// SPDX-License-Identifier: Apache-2.0
/*
 * What layers take while a model waits for its next pass, by a counting allocator: 2:4 weights stay
 * packed whatever multiplies them, and what they are expanded into lies in the work memory of a
 * session.
 */
#include "core_support.h"
#include "sparse24/nn.h"

enum { WIDTH = 128, TOKENS = 128, LAYERS = 2, WEIGHTS = LAYERS * 12 * WIDTH * WIDTH };
/* Of dense bf16 weights: half the values, 2 bits for each of them, whole blocks of rows. */
static const double MOST = 0.60;

static void pass(s24_ctx *ctx, const s24_model *model)
{
    static int32_t ids[TOKENS];
    float vector[WIDTH];
    const int64_t offsets[] = {0, TOKENS};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    s24_session *session;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i * 37 % 30522;
    assert_ok(ctx, s24_session_create(&session, ctx, model, TOKENS));
    assert_ok(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.embeddings = vector}));
    s24_session_destroy(session);
}

/* Bytes of a model of bf16 with all of its layers 2:4 or all dense, after a pass as before. */
static int64_t bytes_of(int dense, uint32_t cpu)
{
    heap h = {0};
    s24_ctx *ctx;
    s24_model *model;
    const s24_ctx_opts opts = {.size = sizeof opts,
                               .allocator = {heap_alloc, heap_free, &h},
                               .threads = 1,
                               .cpu_mask = cpu};
    const s24_model_opts as = {
        .size = sizeof as, .sparse = 1, .dtype = S24_BF16, .dense = dense, .all_sparse = !dense};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    const int64_t before = h.bytes;
    assert_ok(ctx, s24_model_preset(&model, ctx, "bert-tiny", &as));
    const int64_t loaded = h.bytes;
    pass(ctx, model);
    assert_int_equal(h.bytes, loaded);
    s24_model_destroy(model);
    ctx_off(&h, ctx);
    return loaded - before;
}

static void layers_stay_packed(void **state)
{
    (void)state;
    const int64_t dense = 2 * (int64_t)WEIGHTS;
    for (int i = 0; s24_cpu_level_name(i); i++) {
        const char *level = s24_cpu_level_name(i);
        const uint32_t cpu = s24_cpu_parse(level) & s24_cpu_detect();
        if (strcmp(s24_cpu_name(cpu), level) != 0) continue;
        /* All else is alike in both: what is saved is saved in the layers. */
        const int64_t saved = bytes_of(1, cpu) - bytes_of(0, cpu);
        if ((double)saved < (1 - MOST) * (double)dense)
            fail_msg("%s: 2:4 saves %lld of %lld bytes", level, (long long)saved, (long long)dense);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_stay_packed)};
    return cmocka_run_group_tests_name("nn_resident", tests, NULL, NULL);
}
