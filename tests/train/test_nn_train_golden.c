// SPDX-License-Identifier: Apache-2.0
/* Transformers against the hidden states, outputs, losses and gradients of transformers. */
#include "support.h"

#include <math.h>

#include "nn_train_golden.h"

static const char *const levels[] = {"baseline", "avx2", "avx512"};
enum { LEVELS = sizeof levels / sizeof *levels };

/* Within bound of the largest magnitude. What has no gradient but rounding's (a key's bias, the
   last norm's where answers' logits are compared) is below 1e-7 on both sides. */
static void near(const float *expected, const float *got, int64_t count, double bound,
                 const char *what)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabs((double)expected[i]) > most ? fabs((double)expected[i]) : most;
    const double limit = most < 1e-7 ? 1e-7 : bound * most;
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)expected[i] - (double)got[i]) <= limit))
            fail_msg("%s at %lld: expected %g, got %g, largest %g", what, (long long)i,
                     (double)expected[i], (double)got[i], most);
}

/* Looked at or loaded, it is the same. */
static void check_peek(const s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    s24_transformer_info there, seen;
    s24_transformer_describe(&there, t);
    OK(ctx, s24_transformer_peek(&seen, ctx, checkpoint));
    assert_int_equal(seen.parameters + seen.logits, 0);
    assert_string_equal(seen.model_type, there.model_type);
    assert_int_equal(seen.head, there.head);
    assert_int_equal(seen.positions, there.positions);
    assert_int_equal(seen.vocabulary, there.vocabulary);
    assert_int_equal(seen.classes, there.classes);
    assert_int_equal(seen.causal, there.causal);
    assert_int_equal(seen.causal, seen.head == S24_HEAD_LM);
}

static void open_transformer(s24_transformer **out, s24_ctx *ctx, const char *folder, int train)
{
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = MOST,
                                       .max_texts = 8,
                                       .train = train > 0,
                                       .recompute = train > 1};
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_transformer_load(out, ctx, checkpoint, &opts));
    check_peek(*out, ctx, checkpoint);
    s24_checkpoint_close(checkpoint);
}

static void check_outputs(s24_transformer *t, s24_ctx *ctx, const golden *g)
{
    s24_transformer_info info;
    double loss = 0;
    s24_transformer_describe(&info, t);
    float *states = malloc(sizeof(float) * (size_t)((info.layers + 1) * MOST * info.width));
    float *logits = malloc(sizeof(float) * (size_t)(MOST * info.logits));
    const s24_pass_outputs outputs = {.states = states, .logits = logits, .loss = &loss};
    OK(ctx, s24_transformer_forward(t, ctx, &g->examples, &outputs));
    for (int64_t b = 0; b <= info.layers; b++) {
        char name[16];
        snprintf(name, sizeof name, "hidden.%d", (int)b);
        const mini_tensor h = mini_get(&g->io, name);
        near(h.data, states + b * count_of(&h), count_of(&h), 1e-4, name);
    }
    if (info.head == S24_HEAD_QA) {
        const mini_tensor s = mini_get(&g->io, "output.start_logits");
        const float *e = mini_get(&g->io, "output.end_logits").data;
        for (int64_t i = 0; i < count_of(&s); i++) {
            assert_true(fabsf(((const float *)s.data)[i] - logits[2 * i]) < 1e-4f);
            assert_true(fabsf(e[i] - logits[2 * i + 1]) < 1e-4f);
        }
    } else {
        const mini_tensor l = mini_get(&g->io, "output.logits");
        near(l.data, logits, count_of(&l), 1e-4, "logits");
    }
    const float expected = *(const float *)mini_get(&g->io, "loss").data;
    assert_true(fabs(loss - (double)expected) <= 1e-4 * (double)expected);
    free(states);
    free(logits);
}

static void check_gradients(s24_transformer *t, s24_ctx *ctx, const golden *g)
{
    const s24_objective labels = {.size = sizeof labels, .labels = 1};
    s24_parameter p;
    double loss;
    /* Twice half of it: gradients add up. */
    s24_objective half = labels;
    half.label_count = g->examples.starts ? 6 : g->examples.pixels ? 4 : 128;
    s24_transformer_clear(t, ctx);
    OK(ctx, s24_transformer_gradients(&loss, t, ctx, &g->examples, &half));
    OK(ctx, s24_transformer_gradients(&loss, t, ctx, &g->examples, &half));
    const float expected = *(const float *)mini_get(&g->io, "loss").data;
    assert_true(fabs(2 * loss - (double)expected) <= 1e-4 * (double)expected);
    int64_t index = 0;
    for (; s24_transformer_parameter(&p, t, index); index++) {
        char name[200];
        gradient_name(name, sizeof name, p.name);
        const mini_tensor want = mini_get(&g->io, name);
        float *got = malloc(sizeof(float) * (size_t)p.count);
        assert_int_equal(count_of(&want), p.count);
        OK(ctx, s24_transformer_read(got, t, ctx, index, 1));
        near(want.data, got, p.count, 1e-4, name);
        free(got);
    }
    assert_true(index >= 29);
}

static void check_model(golden *g)
{
    for (int level = 0; level < LEVELS; level++)
        for (int threads = 1; threads <= 2; threads++) {
            s24_ctx *ctx;
            s24_transformer *t;
            const s24_ctx_opts opts = {
                .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(levels[level])};
            assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
            for (int train = 0; train <= 2; train++) { /* 2: activations computed again */
                open_transformer(&t, ctx, g->folder, train);
                check_outputs(t, ctx, g);
                if (train) check_gradients(t, ctx, g);
                s24_transformer_destroy(t);
            }
            s24_ctx_destroy(ctx);
        }
    mini_close(&g->io);
}

static void bert(void **state)
{
    golden g;
    (void)state;
    if (!open_bert(&g)) SKIP_WITHOUT(g.folder);
    check_model(&g);
}
static void gpt2(void **state)
{
    golden g;
    (void)state;
    if (!open_text(&g, "models/gpt2")) SKIP_WITHOUT(g.folder);
    check_model(&g);
}
static void llama(void **state)
{
    golden g;
    (void)state;
    if (!open_text(&g, "models/llama")) SKIP_WITHOUT(g.folder);
    check_model(&g);
}
static void vit(void **state)
{
    golden g;
    (void)state;
    if (!open_vit(&g)) SKIP_WITHOUT(g.folder);
    check_model(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bert), cmocka_unit_test(gpt2),
                                       cmocka_unit_test(llama), cmocka_unit_test(vit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
