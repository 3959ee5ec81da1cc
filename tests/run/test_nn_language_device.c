// SPDX-License-Identifier: Apache-2.0
/*
 * Small language models on a device next to the CPU: hidden states, pooled vectors, logits and
 * losses, alone and from graphs. Says in a line where there is no GPU.
 */
#include "support.h"

#include <math.h>

#include "device_here.h"
#include "nn_language.h"
#include "nn_load.h"

enum { TEXTS = 3, TOKENS = 96 + 1 + 30, SOME = 4 };

static const int64_t chosen[SOME] = {9, 10, 0, 125};

typedef struct given {
    float hidden[TOKENS * LM_WIDTH], vectors[TEXTS * LM_WIDTH], losses[TOKENS];
    float logits[TOKENS * LM_VOCABULARY], some[SOME * LM_VOCABULARY];
    double loss, mean; /* with losses of tokens, and alone */
} given;

static void forward(io_env *env, s24_session *session, given *g)
{
    static const int64_t offsets[TEXTS + 1] = {0, 96, 97, TOKENS};
    static int32_t ids[TOKENS], targets[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 29 + t / 7) % LM_VOCABULARY;
        targets[t] = t % 5 ? (t * 13) % LM_VOCABULARY : -1;
    }
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    const s24_outputs all = {.hidden = g->hidden,
                             .embeddings = g->vectors,
                             .logits = g->logits,
                             .targets = targets,
                             .loss = &g->loss,
                             .losses = g->losses};
    const s24_outputs some = {.logits = g->some,
                              .tokens = chosen,
                              .token_count = SOME,
                              .targets = targets,
                              .loss = &g->mean};
    memset(g, 0xff, sizeof *g);
    assert_ok(env, s24_session_forward(session, env->ctx, &batch, &all));
    assert_ok(env, s24_session_forward(session, env->ctx, &batch, &some));
}

static void compare(io_env *env, s24_device *device, const lm_spec *spec, s24_dtype dtype)
{
    const double bound = dtype == S24_BF16 ? 6e-2 : 8e-3;
    const s24_model_opts here = {.size = sizeof here};
    const s24_model_opts there = {.size = sizeof there, .dtype = dtype, .device = device};
    given *g = malloc(2 * sizeof *g);
    s24_model *models[2];
    s24_session *sessions[2];
    io_remove(io_path("lm"));
    lm_write(spec, io_path("lm"));
    for (int i = 0; i < 2; i++) {
        assert_ok(env, load(&models[i], env->ctx, io_path("lm"), i ? &there : &here));
        assert_ok(env, s24_session_create(&sessions[i], env->ctx, models[i], TOKENS));
    }
    forward(env, sessions[0], &g[0]);
    for (int turn = 0; turn < 3; turn++) {
        forward(env, sessions[1], &g[1]);
        near(g[0].hidden, g[1].hidden, TOKENS * LM_WIDTH, bound, "hidden states");
        near(g[0].vectors, g[1].vectors, TEXTS * LM_WIDTH, bound, "vectors");
        near(g[0].logits, g[1].logits, TOKENS * LM_VOCABULARY, bound, "logits");
        near(g[0].some, g[1].some, SOME * LM_VOCABULARY, bound, "logits of some tokens");
        near(g[0].losses, g[1].losses, TOKENS, bound, "losses");
        assert_true(fabs(g[0].loss - g[1].loss) <= bound * g[0].loss);
        assert_true(fabs(g[1].mean - g[1].loss) <= 1e-5 * g[1].loss);
    }
    for (int i = 0; i < 2; i++) {
        s24_session_destroy(sessions[i]);
        s24_model_destroy(models[i]);
    }
    free(g);
}

static void test_same_as_here(void **state)
{
    (void)state;
    static const lm_spec specs[] = {
        {.heads = 6}, {.llama = 1}, {.llama = 1, .tied = 1}, LM_KIN, LM_OTHERS};
    io_env env;
    io_begin(&env);
    s24_device *device = device_here(env.ctx);
    for (size_t i = 0; device && i < sizeof specs / sizeof *specs; i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            compare(&env, device, &specs[i], bf16 ? S24_BF16 : S24_F16);
    s24_device_destroy(device);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_here)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
