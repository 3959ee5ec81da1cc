// SPDX-License-Identifier: Apache-2.0
/* What config.json says of positions and windows: what is read, and what is refused by its name. */
#include "support.h"

#include <math.h>

#include "model/text_config.h"

enum { LAYERS = 4, POSITIONS = 128, HEAD = 16 };

static s24_ctx *ctx;

static s24_status read_from(s24i_shape *shape, const char *model_type, const char *text)
{
    const s24i_architecture *arch = s24i_architecture_find(model_type);
    s24i_config config;
    *shape = (s24i_shape){.layers = LAYERS, .positions = POSITIONS, .head_width = HEAD};
    assert_non_null(arch);
    assert_int_equal(s24i_config_parse(&config, ctx, "config.json", text, strlen(text)), S24_OK);
    s24_status status = s24i_rope_read(shape, &config, arch);
    if (status == S24_OK) status = s24i_windows_read(shape, &config, arch);
    s24i_config_free(&config);
    return status;
}

static s24i_shape shape_of(const char *model_type, const char *text)
{
    s24i_shape shape;
    if (read_from(&shape, model_type, text) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return shape;
}

/* ---- positions ------------------------------------------------------------------------------- */

#define LLAMA3                                                                                     \
    "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "                             \
    "\"original_max_position_embeddings\": 64"

/* By the formulas of transformers' modeling_rope_utils, in double. */
static double llama3_turn(double turn)
{
    const double wave = 2 * 3.14159265358979323846 / turn;
    const double smooth = (64 / wave - 1) / (4 - 1);
    if (wave < 64.0 / 4) return turn;
    if (wave > 64.0 / 1) return turn / 8;
    return (1 - smooth) * turn / 8 + smooth * turn;
}

static void turns(void **state)
{
    static const char *const spelled[] = {
        "{\"rope_theta\": 5000, \"rope_scaling\": {\"type\": \"llama3\", " LLAMA3 "}}",
        "{\"rope_theta\": 5000, \"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3 "}}",
        "{\"rope_parameters\": {\"rope_theta\": 5000, \"rope_type\": \"llama3\", " LLAMA3 "}}"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const s24i_shape shape = shape_of("llama", spelled[i]);
        int slow = 0, between = 0;
        for (int p = 0; p < HEAD / 2; p++) {
            const double turn = pow(5000, -2.0 * p / HEAD), want = llama3_turn(turn);
            assert_true(fabs((double)s24i_rope_turn(&shape.rope, p, HEAD) - want) < 1e-6 * turn);
            slow += want == turn / 8;
            between += want < turn && want > turn / 8;
        }
        assert_true(slow > 0 && between > 0 && slow + between < HEAD / 2);
    }
    const s24i_shape linear =
        shape_of("qwen2", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}");
    assert_true(fabsf(s24i_rope_turn(&linear.rope, 0, HEAD) - 1 / 2.5f) < 1e-7f);
    const s24i_shape usual = shape_of("llama", "{\"rope_scaling\": null}");
    assert_true(s24i_rope_turn(&usual.rope, 0, HEAD) == 1.0f && usual.rope.theta == 10000.0f);
    assert_int_equal(usual.sliding, 0);
}

/* Numbers that transformers' modeling_rope_utils gives for heads of 16. */
static void yarn(void **state)
{
    static const struct {
        const char *text;
        float turns[HEAD / 2], louder;
    } cases[] = {
        {"{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 5000, \"factor\": 4, "
         "\"original_max_position_embeddings\": 64}}",
         {1, 0.258636624f, 0.0594603568f, 0.0102524171f, 0.00353553402f, 0.00121922465f,
          0.000420448196f, 0.000144991063f},
         1.13862944f},
        {"{\"rope_theta\": 5000, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
         "\"original_max_position_embeddings\": 64, \"beta_fast\": 8, \"beta_slow\": 2, "
         "\"truncate\": false, \"mscale\": 0.7, \"mscale_all_dim\": 0.5}}",
         {1, 0.191288486f, 0.0297301784f, 0.0102524171f, 0.00353553402f, 0.00121922465f,
          0.000420448196f, 0.000144991063f},
         1.02592865f}};
    float angles[2 * HEAD];
    (void)state;
    for (int i = 0; i < 2; i++) {
        const s24i_shape shape = shape_of("llama", cases[i].text);
        for (int p = 0; p < HEAD / 2; p++) {
            const float want = cases[i].turns[p];
            assert_true(fabsf(s24i_rope_turn(&shape.rope, p, HEAD) - want) < 2e-6f * want);
        }
        s24i_rotary_fill(angles, &shape.rope, HEAD, 1);
        assert_true(fabsf(angles[0] - cases[i].louder) < 1e-6f);
    }
    /* Left out: the model's positions, their ratio, and what follows from it. */
    const s24i_shape usual = shape_of("qwen3", "{\"rope_scaling\": {\"type\": \"yarn\", "
                                               "\"original_max_position_embeddings\": 32}}");
    assert_true(usual.rope.factor == 4.0f);
    assert_true(fabsf(usual.rope.louder - 1.13862944f) < 1e-6f);
    const s24i_shape said =
        shape_of("qwen3", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, "
                          "\"attention_factor\": 1.5}}");
    assert_true(said.rope.original == POSITIONS && said.rope.louder == 1.5f);
    /* Beyond the model's positions alone, where no text is, it would differ. */
    const s24i_shape dynamic =
        shape_of("llama", "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}");
    assert_true(dynamic.rope.factor == 0.0f && dynamic.rope.theta == 10000.0f);
    /* Hunyuan's base, wider by alpha^(d/(d−2)). */
    const s24i_shape alpha =
        shape_of("hunyuan_v1_dense", "{\"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 50}}");
    assert_true(fabsf(alpha.rope.theta - 10000 * powf(50, 16.0f / 14)) < 1.0f);
    /* Where scores grow beyond the original length, texts end there. */
    const s24i_shape bounded =
        shape_of("ministral3", "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2, "
                               "\"original_max_position_embeddings\": 32, "
                               "\"llama_4_scaling_beta\": 0.1}}");
    assert_int_equal(bounded.positions, 32);
}

static void turned_blocks(void **state)
{
    static const struct {
        const char *model_type, *text;
        int of[LAYERS];
    } cases[] = {{"llama", "{\"no_rope_layers\": [0, 0, 0, 0]}", {1, 1, 1, 1}},
                 {"smollm3", "{}", {1, 1, 1, 0}},
                 {"exaone4", "{\"sliding_window\": 16}", {1, 1, 1, 0}},
                 {"exaone4", "{\"sliding_window\": null}", {1, 1, 1, 1}},
                 {"smollm3", "{\"no_rope_layer_interval\": 2}", {1, 0, 1, 0}},
                 {"smollm3", "{\"no_rope_layers\": [0, 1, 1, 0]}", {0, 1, 1, 0}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24i_shape shape = shape_of(cases[i].model_type, cases[i].text);
        for (int b = 0; b < LAYERS; b++)
            assert_int_equal(s24i_block_turns(&shape, b), cases[i].of[b]);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

/* How much of a head turns, by the row or by what config.json says. */
static void shares(void **state)
{
    static const struct {
        const char *model_type, *text;
        int64_t turned;
    } cases[] = {{"llama", "{}", HEAD},
                 {"llama", "{\"partial_rotary_factor\": 0.5}", HEAD}, /* as transformers' */
                 {"llama", "{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}", HEAD},
                 {"phi3", "{}", HEAD},
                 {"phi3", "{\"partial_rotary_factor\": 0.5}", HEAD / 2},
                 {"minimax_m2", "{\"rotary_dim\": 4}", 4},
                 {"phi", "{}", HEAD / 2},
                 {"stablelm", "{}", HEAD / 4},
                 {"gpt_neox", "{\"rotary_pct\": 0.5}", HEAD / 2},
                 {"glm", "{\"rope_parameters\": {\"partial_rotary_factor\": 0.75}}", 12}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24i_shape shape = shape_of(cases[i].model_type, cases[i].text);
        assert_int_equal(s24i_turned(&shape), cases[i].turned);
    }
}

static void windows(void **state)
{
    static const struct {
        const char *model_type, *text;
        int64_t of[LAYERS];
    } cases[] = {
        {"llama", "{\"sliding_window\": 16}", {0, 0, 0, 0}},
        {"mistral", "{\"sliding_window\": 16}", {16, 16, 16, 16}},
        {"mistral", "{\"sliding_window\": null}", {0, 0, 0, 0}},
        {"cwm", "{\"sliding_window\": 16}", {0, 16, 16, 16}},
        {"exaone4",
         "{\"sliding_window\": 16, \"sliding_window_pattern\": \"LLG\"}",
         {16, 16, 0, 16}},
        {"exaone4", "{\"sliding_window\": 16, \"sliding_window_pattern\": 2}", {16, 0, 16, 0}},
        {"mistral", "{\"sliding_window\": 128}", {0, 0, 0, 0}}, /* no text is longer */
        {"phi3", "{}", {0, 0, 0, 0}},
        {"starcoder2", "{\"sliding_window\": 16}", {16, 16, 16, 16}},
        {"phi3", "{\"sliding_window\": 16}", {16, 16, 16, 16}},
        {"qwen2", "{\"sliding_window\": 16}", {0, 0, 0, 0}},
        {"qwen2",
         "{\"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 2}",
         {0, 0, 16, 16}},
        {"qwen3",
         "{\"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 2, "
         "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\", "
         "\"sliding_attention\"]}",
         {0, 16, 16, 16}},
        {"qwen3",
         "{\"sliding_window\": 16, \"use_sliding_window\": true, \"layer_types\": "
         "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
         "\"full_attention\"]}",
         {16, 0, 16, 0}},
        {"gemma2", "{\"sliding_window\": 16}", {16, 0, 16, 0}},
        {"gemma3_text", "{\"sliding_window\": 16}", {16, 16, 16, 16}},
        {"gemma3_text", "{\"sliding_window\": 16, \"sliding_window_pattern\": 3}", {16, 16, 0, 16}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24i_shape shape = shape_of(cases[i].model_type, cases[i].text);
        for (int b = 0; b < LAYERS; b++)
            assert_int_equal(s24i_block_sliding(&shape, b), cases[i].of[b]);
    }
    /* Without the key a window of transformers' default. */
    s24i_shape shape = {.layers = 1, .positions = 8192, .head_width = HEAD};
    s24i_config config;
    assert_int_equal(s24i_config_parse(&config, ctx, "config.json", "{}", 2), S24_OK);
    assert_int_equal(s24i_windows_read(&shape, &config, s24i_architecture_find("mistral")), S24_OK);
    s24i_config_free(&config);
    assert_int_equal(shape.sliding, 4096);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#define DIVISORS "[1, 1.05, 1.1, 1.25, 1.5, 2, 3, 4.5]"

/* As transformers' _compute_longrope_parameters for texts of up to the original length, which the
   model then has at most. */
static void longrope(void **state)
{
    static const double divisors[] = {1, 1.05, 1.1, 1.25, 1.5, 2, 3, 4.5};
    static const struct {
        const char *text;
        float louder;
    } cases[] = {{"{\"original_max_position_embeddings\": 32, \"rope_scaling\": {\"type\": \"su\", "
                  "\"long_factor\": [], \"short_factor\": " DIVISORS "}}",
                  1.18321596f},
                 {"{\"rope_parameters\": {\"rope_type\": \"longrope\", \"factor\": 32, "
                  "\"original_max_position_embeddings\": 32, \"short_factor\": " DIVISORS "}}",
                  1.41421356f},
                 {"{\"rope_parameters\": {\"rope_type\": \"longrope\", \"attention_factor\": 1.25, "
                  "\"original_max_position_embeddings\": 32, \"short_factor\": " DIVISORS "}}",
                  1.25f}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const s24i_shape shape = shape_of("phi3", cases[i].text);
        assert_int_equal(shape.positions, 32);
        assert_true(fabsf(shape.rope.louder - cases[i].louder) < 1e-6f);
        for (int p = 0; p < HEAD / 2; p++) {
            const double want = 1 / (divisors[p] * pow(10000, -(-2.0 * p / HEAD)));
            assert_true(fabs((double)s24i_rope_turn(&shape.rope, p, HEAD) - want) < 2e-6 * want);
        }
    }
}

static void refusals(void **state)
{
    static const struct {
        const char *model_type, *text, *sentence;
    } cases[] = {
        {"qwen2", "{\"rope_parameters\": {\"rope_type\": \"xpos\"}}",
         "config.json: rope_type is 'xpos'; only default, dynamic, linear, llama3, ntk, yarn and "
         "longrope are supported"},
        {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\"}}", "\"short_factor\" is missing"},
        {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 2, 0]}}",
         "element 2 of short_factor is none of at most 128 numbers from 1e-06 to 1e+06"},
        {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 2]}}",
         "short_factor has 2 numbers; one for each of 8 pairs was expected"},
        {"phi3", "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": " DIVISORS "}}",
         "\"original_max_position_embeddings\" is missing"},
        {"phi3",
         "{\"original_max_position_embeddings\": 1, \"rope_scaling\": {\"type\": \"longrope\", "
         "\"short_factor\": " DIVISORS "}}",
         "\"original_max_position_embeddings\" is 1; 2 or more was expected"},
        {"llama", "{\"rope_scaling\": {\"type\": \"linear\"}}", "the key \"factor\" is missing"},
        {"llama", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}",
         "\"factor\" is 0, expected"},
        {"llama", "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}",
         "the key \"low_freq_factor\" is missing"},
        {"llama",
         "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}",
         "\"high_freq_factor\" is 4; more than \"low_freq_factor\", 4, was expected"},
        {"gte", "{\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2, \"mixed_b\": 0.5}}",
         "mixed_b of the rotary positions is 0.5, which is not supported"},
        {"smollm3", "{\"no_rope_layers\": [1, 0]}", "no_rope_layers has 2 elements; one for each"},
        {"smollm3", "{\"no_rope_layers\": [1, 0, 1, 1, 1]}", "element 4 of no_rope_layers"},
        {"smollm3", "{\"no_rope_layers\": [true]}", "element 0 of no_rope_layers"},
        {"phi3", "{\"partial_rotary_factor\": 0.2}",
         "positions turn 3 of a head's 16 elements; an even number of 2 at least was expected"},
        {"phi3", "{\"rope_parameters\": {\"partial_rotary_factor\": 0}}",
         "positions turn 0 of a head's 16"},
        {"phi3", "{\"partial_rotary_factor\": 1.5}", "is 1.5, expected 0 to 1"},
        {"mistral", "{\"sliding_window\": 0}", "\"sliding_window\" is 0, expected 1"},
        {"qwen3", "{\"layer_types\": [\"full_attention\", \"full_attention\"]}",
         "layer_types has 2 elements; one for each of 4 blocks was expected"},
        {"qwen3", "{\"layer_types\": [\"full_attention\", \"chunked_attention\"]}",
         "element 1 of layer_types is 'chunked_attention'; only full_attention and"},
        {"exaone4", "{\"sliding_window_pattern\": \"LGL\"}",
         "\"sliding_window_pattern\" is not an integer"},
        {"phi3", "{\"rotary_dim\": 18}", "\"rotary_dim\" is 18, expected 2 to 16"},
        {"qwen3", "{\"layer_types\": [7]}", "element 0 of layer_types is 'no string'"},
        {"granitemoehybrid", "{\"layer_types\": [\"attention\", \"mamba\"]}",
         "element 1 of layer_types is 'mamba'; only attention is supported"},
        {"phi3", "{\"layer_types\": [\"sliding_attention\"]}",
         "block 0 of layer_types is sliding_attention, but there is no window"},
        {"qwen2", "{\"layer_types\": [\"sliding_attention\"]}",
         "block 0 of layer_types is sliding_attention, but there is no window"},
    };
    s24i_shape shape;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_not_equal(read_from(&shape, cases[i].model_type, cases[i].text), S24_OK);
        if (!strstr(s24_ctx_error(ctx), cases[i].sentence))
            fail_msg("'%s' has no '%s'", s24_ctx_error(ctx), cases[i].sentence);
    }
}

static int setup(void **state)
{
    (void)state;
    return s24_ctx_create(&ctx, NULL) != S24_OK;
}

static int teardown(void **state)
{
    (void)state;
    s24_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns),    cmocka_unit_test(yarn),
                                       cmocka_unit_test(longrope), cmocka_unit_test(turned_blocks),
                                       cmocka_unit_test(shares),   cmocka_unit_test(windows),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
