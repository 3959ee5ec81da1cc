// SPDX-License-Identifier: Apache-2.0
/* The steps of each model type's block, and that a step which is not there is refused by its
   name. */
#include "support.h"

#include "model/steps.h"

typedef struct row {
    const char *model_type, *steps;
} row;

/* "product 0>2" reads place 0 and writes place 2; "+" adds; a product's slot and a norm follow. */
static void test_rows(void **state)
{
    static const char after[] = "product 0>2 0, attend 2>3, product 3>0+ 4, norm 0>0 0, "
                                "product 0>4 5, product 4>0+ 6, norm 0>0 1, ";
    static const char before[] = "norm 0>1 0, product 1>2 0, attend 2>3, product 3>0+ 4, "
                                 "norm 0>1 1, product 1>4 5, product 4>0+ 6, ";
    static const char llama[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend 2>3, "
                                "product 3>0+ 4, norm 0>1 1, product 1>4 5, gate 4>4, "
                                "product 4>0+ 6, ";
    static const char plain[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend 2>3, "
                                "product 3>0+ 4, norm 0>1 1, product 1>4 5, product 4>0+ 6, ";
    static const char qwen3[] = "norm 0>1 0, product 1>2 0, head norm 2>2, rotate 2>2, attend 2>3, "
                                "product 3>0+ 4, norm 0>1 1, product 1>4 5, gate 4>4, "
                                "product 4>0+ 6, ";
    static const char mpnet[] =
        "product 0>2 0, attend by distance 2>3, product 3>0+ 4, norm 0>0 0, "
        "product 0>4 5, product 4>0+ 6, norm 0>0 1, ";
    static const char modern[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend near 2>3, "
                                 "product 3>0+ 4, norm 0>1 1, product 1>4 5, gate 4>4, "
                                 "product 4>0+ 6, ";
    static const char nomic[] = "product 0>2 0, rotate 2>2, attend 2>3, product 3>0+ 4, "
                                "norm 0>0 0, product 0>4 5, gate 4>4, product 4>0+ 6, "
                                "norm 0>0 1, ";
    static const char turned[] = "product 0>2 0, rotate 2>2, attend 2>3, product 3>0+ 4, "
                                 "norm 0>0 0, product 0>4 5, product 4>0+ 6, norm 0>0 1, ";
    static const char deberta[] = "product 0>2 0, attend by content and distance 2>3, "
                                  "product 3>0+ 4, norm 0>0 0, product 0>4 5, product 4>0+ 6, "
                                  "norm 0>0 1, ";
    static const char t5[] = "norm 0>1 0, product 1>2 0, attend by distance 2>3, product 3>0+ 4, "
                             "norm 0>1 1, product 1>4 5, product 4>0+ 6, ";
    static const char gated_t5[] = "norm 0>1 0, product 1>2 0, attend by distance 2>3, "
                                   "product 3>0+ 4, norm 0>1 1, product 1>4 5, gate 4>4, "
                                   "product 4>0+ 6, ";
    static const char aside[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend 2>3, "
                                "product 3>1 4, norm 1>1 2, add 1>0, norm 0>1 1, product 1>4 5, "
                                "gate 4>4, product 4>1 6, norm 1>1 3, add 1>0, ";
    static const char gemma3[] = "norm 0>1 0, product 1>2 0, head norm 2>2, rotate 2>2, "
                                 "attend 2>3, product 3>1 4, norm 1>1 2, add 1>0, norm 0>1 1, "
                                 "product 1>4 5, gate 4>4, product 4>1 6, norm 1>1 3, add 1>0, ";
    static const char granite[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend 2>3, "
                                  "product 3>1 4, add 1>0, norm 0>1 1, product 1>4 5, gate 4>4, "
                                  "product 4>1 6, add 1>0, ";
    static const char olmo2[] = "product 0>2 0, head norm 2>2, rotate 2>2, attend 2>3, "
                                "product 3>1 4, norm 1>1 2, add 1>0, product 0>4 5, gate 4>4, "
                                "product 4>1 6, norm 1>1 3, add 1>0, ";
    static const char side[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend 2>3, norm 0>1 1, "
                               "product 1>4 5, product 3>0+ 4, product 4>0+ 6, ";
    static const char gated_side[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend 2>3, "
                                     "norm 0>1 1, product 1>4 5, gate 4>4, product 3>0+ 4, "
                                     "product 4>0+ 6, ";
    static const char latent[] = "norm 0>1 0, latents 1>2, attend 2>3, values of latents 3>5, "
                                 "product 5>0+ 4, norm 0>1 1, product 1>4 5, gate 4>4, "
                                 "product 4>0+ 6, ";
    static const char sinks[] = "norm 0>1 0, product 1>2 0, rotate 2>2, attend with sinks 2>3, "
                                "product 3>0+ 4, norm 0>1 1, product 1>4 5, gate 4>4, "
                                "product 4>0+ 6, ";
    static const row rows[] = {{"youtu", latent},
                               {"deepseek_v2", latent},
                               {"gpt_oss", sinks},
                               {"gemma", llama},
                               {"gemma2", aside},
                               {"gemma3_text", gemma3},
                               {"granite", granite},
                               {"olmo2", olmo2},
                               {"phi", side},
                               {"gpt_neox", side},
                               {"stablelm", llama},
                               {"glm", llama},
                               {"glm4", aside},
                               {"cohere", gated_side},
                               {"cohere2", gated_side},
                               {"roberta", after},
                               {"xlm-roberta", after},
                               {"camembert", after},
                               {"electra", after},
                               {"distilbert", after},
                               {"mpnet", mpnet},
                               {"modernbert", modern},
                               {"nomic_bert", nomic},
                               {"bert", after},
                               {"gpt2", before},
                               {"vit", before},
                               {"sam_vision_model", before},
                               {"llama", llama},
                               {"mistral", llama},
                               {"qwen2", llama},
                               {"qwen3", qwen3},
                               {"ministral", llama},
                               {"seed_oss", llama},
                               {"phi3", llama},
                               {"eurobert", llama},
                               {"arcee", plain},
                               {"starcoder2", plain},
                               {"smollm3", llama},
                               {"opt", before},
                               {"gte", nomic},
                               {"new", nomic},
                               {"jina_embeddings_v3", turned},
                               {"deberta-v2", deberta},
                               {"albert", after},
                               {"t5", t5},
                               {"mt5", gated_t5},
                               {"ernie", after},
                               {"data2vec-text", after},
                               {"umt5", gated_t5},
                               {"luke", after},
                               {"megatron-bert", before},
                               {"rembert", after},
                               {"splinter", after},
                               {"bert-generation", after},
                               {"roformer", turned},
                               {"xlm-roberta-xl", before}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512] = "";
        const s24i_steps steps = s24i_steps_of(s24i_architecture_find(rows[i].model_type));
        for (int s = 0; s < steps.count; s++) {
            const s24i_block_step *step = &steps.step[s];
            char *end = text + strlen(text);
            end += sprintf(end, "%s %d>%d%s", s24i_step_name(step->kind), (int)step->from,
                           (int)step->to, step->adds ? "+" : "");
            if (step->kind == S24I_STEP_PRODUCT) end += sprintf(end, " %d", (int)step->slot);
            if (step->kind == S24I_STEP_NORM) end += sprintf(end, " %d", step->norm);
            sprintf(end, ", ");
        }
        assert_string_equal(text, rows[i].steps);
        assert_non_null(strstr(s24i_step_name(steps.step[steps.attend].kind), "attend"));
    }
}

/* Of a block with experts these stand in the place of its feed-forward layers. */
static void test_mixed(void **state)
{
    (void)state;
    for (int i = 0; s24i_architecture_at(i); i++) {
        const s24i_architecture *arch = s24i_architecture_at(i);
        const s24i_steps plain = s24i_steps_of(arch), mixed = s24i_steps_mixed(arch);
        const s24i_block_step *output = s24i_steps_product(&plain, S24I_OUTPUT);
        const s24i_block_step *inner = s24i_steps_product(&plain, S24I_INTERMEDIATE);
        int experts = 0;
        assert_int_equal(mixed.attend, plain.attend);
        assert_int_equal(plain.count - mixed.count, 1 + s24i_is_gated(arch));
        for (int s = 0; s < mixed.count; s++) {
            const s24i_block_step *step = &mixed.step[s];
            if (step->kind != S24I_STEP_EXPERTS) continue;
            experts++;
            assert_int_equal(step->from, inner->from);
            assert_int_equal(step->to, output->to);
            assert_int_equal(step->adds, output->adds);
        }
        assert_int_equal(experts, 1);
    }
}

static void test_a_missing_step(void **state)
{
    const unsigned all = (1u << S24I_STEP_KINDS) - 1;
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (int i = 0; s24i_architecture_at(i); i++)
        assert_int_equal(s24i_steps_require(ctx, s24i_architecture_at(i), all, "a pass"), S24_OK);
    assert_int_equal(s24i_steps_require(ctx, s24i_architecture_find("llama"),
                                        all & ~(1u << S24I_STEP_GATE), "this pass"),
                     S24_ERROR_UNSUPPORTED);
    assert_string_equal(s24_ctx_error(ctx),
                        "this pass has no step 'gate', which a block of llama needs");
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_mixed),
                                       cmocka_unit_test(test_a_missing_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
