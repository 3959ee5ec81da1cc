// SPDX-License-Identifier: Apache-2.0
/* Llama's kin in training on a device against the CPU: hidden states, losses and gradients through
   windows, norms of heads and scaled positions. Says in a line where there is no GPU. */
#include "support.h"

#include "nn_device_train.h"
#include "nn_language.h"

enum { TOKENS = 150 };

static const lm_spec specs[] = {LM_KIN, LM_OTHERS};
enum { SPECS = sizeof specs / sizeof *specs };

typedef struct outcome {
    double loss;
    float *states, *gradients;
    int64_t elems, count;
} outcome;

static outcome outcome_of(const char *folder, const s24_examples *examples, const how *h)
{
    const s24_objective labels = {.size = sizeof labels, .labels = 1};
    outcome o;
    s24_transformer_info info;
    s24_transformer *t = make(folder, h);
    s24_transformer_describe(&info, t);
    o.elems = (info.layers + 1) * TOKENS * info.width;
    o.states = malloc((size_t)o.elems * sizeof(float));
    const s24_pass_outputs outputs = {.states = o.states};
    OK(ctx, s24_transformer_forward(t, ctx, examples, &outputs));
    OK(ctx, s24_transformer_gradients(&o.loss, t, ctx, examples, &labels));
    o.gradients = all_of(t, 1, &o.count);
    s24_transformer_destroy(t);
    return o;
}

static void let_go(outcome *o)
{
    free(o->states);
    free(o->gradients);
}

static void check_kin(const lm_spec *spec, const s24_examples *examples)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16};
    const char *folder = io_path("kin");
    io_remove(folder);
    lm_write(spec, folder);
    outcome want = outcome_of(folder, examples, &(how){.train = 1});
    for (int d = 0; d < 4; d++) {
        const how there = {.dtype = dtypes[d % 2], .train = 1, .recompute = d / 2};
        /* A sum that rounds to the other side of 0 has another slope where that is ReLU's. */
        const double bound = bound_of(there.dtype), steep = spec->opt ? 2 : 1;
        outcome got = outcome_of(folder, examples, &there);
        worst = 0;
        close_to(want.states, got.states, want.elems, 3e-2 * bound, 0, "hidden states");
        close_to(want.gradients, got.gradients, want.count, 8e-2 * bound * steep, 0, "gradients");
        assert_true(fabs(got.loss - want.loss) <= 2e-2 * bound * want.loss);
        print_message("%s, %s: %.1e off\n", spec->model_type ? spec->model_type : "llama",
                      s24_dtype_name(there.dtype), worst);
        let_go(&got);
    }
    let_go(&want);
}

static void kin(void **state)
{
    static const int64_t offsets[] = {0, 96, 97, TOKENS};
    int32_t ids[TOKENS], targets[TOKENS];
    (void)state;
    if (!device) skip();
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * i + 3 * i + 2) % LM_VOCABULARY;
        targets[i] = i % 3 ? (i * 5 + 1) % LM_VOCABULARY : -1;
    }
    const s24_examples examples = {.texts = {.texts = 3, .offsets = offsets, .ids = ids},
                                   .targets = targets};
    for (int i = 0; i < SPECS; i++)
        check_kin(&specs[i], &examples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kin)};
    return cmocka_run_group_tests(tests, device_setup, device_teardown);
}
