// SPDX-License-Identifier: Apache-2.0
/*
 * Transformers on a device against the same on the CPU and against transformers' own figures:
 * passes, gradients, objectives with a teacher, 2:4 layers. Says in a line where there is no GPU.
 * The plugin is this build's, or the one that SPARSE24_CUDA_PLUGIN names.
 */
#include "support.h"

#include "nn_device_train.h"

/* ---- golden models --------------------------------------------------------------------------- */

static void check_outputs(s24_transformer *t, const golden *g, double bound)
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
        close_to(h.data, states + b * count_of(&h), count_of(&h), 2e-2 * bound, 0, name);
    }
    if (info.head == S24_HEAD_QA) {
        const mini_tensor s = mini_get(&g->io, "output.start_logits");
        const mini_tensor e = mini_get(&g->io, "output.end_logits");
        float both[2 * MOST];
        for (int64_t i = 0; i < count_of(&s); i++) {
            both[2 * i] = ((const float *)s.data)[i];
            both[2 * i + 1] = ((const float *)e.data)[i];
        }
        close_to(both, logits, 2 * count_of(&s), 4e-2 * bound, 0, "logits");
    } else {
        const mini_tensor l = mini_get(&g->io, "output.logits");
        close_to(l.data, logits, count_of(&l), 4e-2 * bound, 0, "logits");
    }
    const float expected = *(const float *)mini_get(&g->io, "loss").data;
    const float got = (float)loss;
    close_to(&expected, &got, 1, 2e-2 * bound, 0, "loss");
    free(states);
    free(logits);
}

/* Twice half of them: gradients add up. */
static void check_gradients(s24_transformer *t, const golden *g, double bound)
{
    s24_objective half = {.size = sizeof half, .labels = 1};
    s24_parameter p;
    double loss, most = 0;
    half.label_count = g->examples.starts ? 6 : g->examples.pixels ? 4 : 128;
    s24_transformer_clear(t, ctx);
    for (int i = 0; i < 2; i++)
        OK(ctx, s24_transformer_gradients(&loss, t, ctx, &g->examples, &half));
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
            char name[200];
            gradient_name(name, sizeof name, p.name);
            const mini_tensor want = mini_get(&g->io, name);
            if (pass == 0) {
                most = fmax(most, length(want.data, p.count));
                continue;
            }
            float *got = malloc(sizeof(float) * (size_t)p.count);
            OK(ctx, s24_transformer_read(got, t, ctx, i, 1));
            close_to(want.data, got, p.count, 6e-2 * bound, 0.02 * most, name);
            free(got);
        }
}

static void check_model(golden *g)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16};
    for (int d = 0; d < 2; d++)
        for (int train = 0; train < 3; train++) {
            const how h = {.dtype = dtypes[d], .train = train > 0, .recompute = train > 1};
            const double bound = bound_of(dtypes[d]);
            s24_transformer *t = make(g->folder, &h);
            worst = 0;
            check_outputs(t, g, bound);
            const double outputs = worst;
            worst = 0;
            if (train) check_gradients(t, g, bound);
            print_message("%s: outputs %.1e off, gradients %.1e\n", s24_dtype_name(dtypes[d]),
                          outputs, worst);
            s24_transformer_destroy(t);
        }
    mini_close(&g->io);
}

static void bert(void **state)
{
    golden g;
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    check_model(&g);
}
static void gpt2(void **state)
{
    golden g;
    (void)state;
    SKIP_HERE(g, open_text(&g, "models/gpt2"));
    check_model(&g);
}
static void llama(void **state)
{
    golden g;
    (void)state;
    SKIP_HERE(g, open_text(&g, "models/llama"));
    check_model(&g);
}
static void vit(void **state)
{
    golden g;
    (void)state;
    SKIP_HERE(g, open_vit(&g));
    check_model(&g);
}

/* ---- objectives ------------------------------------------------------------------------------ */

/* The golden model, its weights changed a little. */
static s24_transformer *make_teacher(const char *folder, s24_dtype dtype)
{
    const how h = {.dtype = dtype};
    s24_transformer *t = make(folder, &h);
    move_weights(ctx, t, 0.02f);
    return t;
}

typedef struct outcome {
    double loss;
    float *gradients;
    int64_t count;
} outcome;

static outcome objective_of(const golden *g, const s24_objective *wanted, s24_dtype dtype,
                            int recompute)
{
    outcome o;
    const how h = {.dtype = dtype, .train = 1, .recompute = recompute};
    s24_transformer *t = make(g->folder, &h), *teacher = NULL;
    s24_objective objective = *wanted;
    if (wanted->logits + wanted->hidden + wanted->cosine > 0)
        objective.teacher = teacher = make_teacher(g->folder, dtype);
    OK(ctx, s24_transformer_gradients(&o.loss, t, ctx, &g->examples, &objective));
    o.gradients = all_of(t, 1, &o.count);
    s24_transformer_destroy(t);
    s24_transformer_destroy(teacher);
    return o;
}

/* Against the CPU in f32; computed again and again, the bits are the same. */
static void check_objective(const golden *g, const s24_objective *objective, double bound)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16};
    outcome want = objective_of(g, objective, S24_DTYPE_NONE, 0);
    for (int d = 0; d < 2; d++) {
        outcome got = objective_of(g, objective, dtypes[d], 0);
        outcome again = objective_of(g, objective, dtypes[d], 1);
        const double limit = bound * bound_of(dtypes[d]);
        assert_true(fabs(got.loss - want.loss) <= limit * fabs(want.loss));
        close_to(want.gradients, got.gradients, want.count, limit, 0, "gradients");
        assert_memory_equal(got.gradients, again.gradients, (size_t)got.count * sizeof(float));
        assert_memory_equal(&got.loss, &again.loss, sizeof got.loss);
        free(got.gradients);
        free(again.gradients);
    }
    free(want.gradients);
}

static void objectives(void **state)
{
    golden g;
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    const s24_objective objectives[] = {
        {.labels = 1, .dropout = 0.1, .attention_dropout = 0.2, .seed = 7},
        {.labels = 0.5, .logits = 1, .temperature = 2},
        {.hidden = 1},
        {.cosine = 20, .hidden = 1},
        {.labels = 1, .logits = 1, .hidden = 1, .dropout = 0.1, .seed = 9}};
    for (size_t i = 0; i < sizeof objectives / sizeof *objectives; i++) {
        s24_objective o = objectives[i];
        o.size = sizeof o;
        worst = 0;
        check_objective(&g, &o, 8e-2);
        print_message("objective %d: gradients %.1e off\n", (int)i, worst);
    }
    mini_close(&g.io);
    if (!open_text(&g, "models/llama")) return;
    check_objective(&g, &(s24_objective){.size = sizeof(s24_objective), .logits = 1, .hidden = 1},
                    8e-2);
    mini_close(&g.io);
}

/* ---- 2:4 layers ------------------------------------------------------------------------------ */

/* Gradients of the pruned model with its 2:4 products planned as said. */
static outcome pruned_outcome(const golden *g, s24_dtype dtype, int both, int64_t plan)
{
    outcome o;
    s24i_optimiser optimiser;
    const s24_objective labels = {.size = sizeof labels, .labels = 1};
    s24_transformer *t = make(g->folder, &(how){.dtype = dtype, .train = 1});
    prune(t, both);
    const s24i_range all = {0, t->elems};
    OK(ctx, s24i_optimiser_create(&optimiser, t, ctx, &(s24_train_opts){.fixed = 1}, all));
    OK(ctx, s24i_optimiser_fix(&optimiser, t, ctx, &plan));
    if (dtype) assert_int_equal(t->machine.two_four, plan ? 4 * t->shape.layers : 0);
    OK(ctx, s24_transformer_gradients(&o.loss, t, ctx, &g->examples, &labels));
    o.gradients = all_of(t, 1, &o.count);
    s24i_optimiser_free(&optimiser, t, ctx);
    s24_transformer_destroy(t);
    return o;
}

/* The 2:4 kernels give what dense products give, in the pass forward alone and in both. */
static void two_four(void **state)
{
    enum { FORWARD = 0x55, BOTH = 0xff };
    golden g;
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    for (int both = 0; both < 2; both++) {
        outcome want = pruned_outcome(&g, S24_DTYPE_NONE, both, 0);
        for (s24_dtype dtype = S24_F16; dtype <= S24_BF16; dtype++) {
            static const int64_t plans[] = {0, FORWARD, BOTH};
            for (int i = 0; i < 3; i++) {
                outcome got = pruned_outcome(&g, dtype, both, plans[i]);
                worst = 0;
                assert_true(fabs(got.loss - want.loss) <= 2e-2 * bound_of(dtype) * want.loss);
                close_to(want.gradients, got.gradients, want.count, 6e-2 * bound_of(dtype), 0,
                         "gradients");
                print_message("2:4 %s plan %d: gradients %.1e off\n", s24_dtype_name(dtype), i,
                              worst);
                free(got.gradients);
            }
        }
        free(want.gradients);
    }
    mini_close(&g.io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert), cmocka_unit_test(gpt2),     cmocka_unit_test(llama),
        cmocka_unit_test(vit),  cmocka_unit_test(two_four), cmocka_unit_test(objectives),
    };
    return cmocka_run_group_tests(tests, device_setup, device_teardown);
}
