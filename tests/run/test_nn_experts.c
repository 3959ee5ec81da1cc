// SPDX-License-Identifier: Apache-2.0
/* Mixtures of experts: alike experts that are one plain layer,
   experts that come as one tensor, statistics of those that no token takes, and what is refused. */
#include "support.h"

#include "model/steps.h"
#include "nn_io.h"
#include "nn_language_pass.h"
#include "sparse24/language.h"

enum { WIDTH = 32, INNER = 24, EXPERTS = 5, LAYERS = 2, WORDS = 29, MOST = 128, USED = 2 };

/* ---- folders --------------------------------------------------------------------------------- */

typedef struct maker {
    lm_writer *writer;
    const char *keys; /* more of config.json */
    int alike;        /* experts are the same */
    int plain;        /* there is one layer in their place, of model type llama */
    int stacked;      /* experts are one tensor */
    int odd;          /* of an odd number of rows */
} maker;

static const mini_tensor *last_of(const lm_writer *w)
{
    return &w->tensors[w->count - 1];
}

/* Rows of the tensors that were added from `first` on become one of three dimensions. */
static void stack(lm_writer *w, int first, const char *name, int64_t rows, int64_t cols)
{
    const int64_t count = (w->count - first) * w->tensors[first].shape[0] / rows;
    char *data = malloc((size_t)(count * rows * cols) * sizeof(float)), *to = data;
    for (int i = first; i < w->count; i++) {
        memcpy(to, w->tensors[i].data, w->tensors[i].bytes);
        to += w->tensors[i].bytes;
        free((void *)(uintptr_t)w->tensors[i].data);
    }
    w->count = first;
    snprintf(w->names[first], sizeof w->names[0], "%s", name);
    w->tensors[w->count++] = (mini_tensor){.name = w->names[first],
                                           .dtype = S24_F32,
                                           .rank = 3,
                                           .shape = {count, rows, cols},
                                           .data = data,
                                           .bytes = (size_t)(to - data)};
}

static void add_expert(const maker *m, int b, int e, const char *name, int64_t rows, int64_t cols)
{
    static const char *const own[] = {"gate_proj", "up_proj", "down_proj"};
    char text[160];
    const int which = name[1] == '1' ? 0 : name[1] == '3' ? 1 : 2;
    m->writer->state = (uint64_t)(1000 + b * 100 + which * 10 + (m->alike ? 0 : e));
    if (m->plain)
        snprintf(text, sizeof text, "model.layers.%d.mlp.%s.weight", b, own[which]);
    else
        snprintf(text, sizeof text, "model.layers.%d.block_sparse_moe.experts.%d.%s.weight", b, e,
                 name);
    lm_add(m->writer, text, rows, cols);
}

static void add_experts(const maker *m, int b)
{
    lm_writer *w = m->writer;
    char name[160];
    int first = w->count;
    const int64_t inner = INNER + m->odd;
    snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.gate.weight", b);
    w->state = (uint64_t)(500 + b);
    if (!m->plain) lm_add(w, name, EXPERTS, WIDTH);
    first = w->count;
    for (int e = 0; e < (m->plain ? 1 : EXPERTS); e++) {
        add_expert(m, b, e, "w1", inner, WIDTH);
        if (!m->odd) add_expert(m, b, e, "w3", inner, WIDTH);
    }
    snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.gate_up_proj", b);
    if (m->stacked) stack(w, first, name, m->odd ? inner : 2 * inner, WIDTH);
    first = w->count;
    for (int e = 0; e < (m->plain ? 1 : EXPERTS); e++)
        add_expert(m, b, e, "w2", WIDTH, INNER);
    snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.down_proj", b);
    if (m->stacked) stack(w, first, name, WIDTH, INNER);
}

static const char *make(const maker *of, const char *name)
{
    static const char *const attends[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    static const char *const norms[] = {"input_layernorm", "post_attention_layernorm"};
    const char *folder = io_path(name);
    lm_writer *w = calloc(1, sizeof *w);
    maker m = *of;
    char path[600], config[1024], tensor[160];
    m.writer = w;
    w->state = 7;
    io_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    lm_add(w, "model.embed_tokens.weight", WORDS, WIDTH);
    lm_add(w, "model.norm.weight", WIDTH, 0);
    lm_add(w, "lm_head.weight", WORDS, WIDTH);
    for (int b = 0; b < LAYERS; b++) {
        w->state = (uint64_t)(20 + b);
        for (int i = 0; i < 4; i++) {
            snprintf(tensor, sizeof tensor, "model.layers.%d.self_attn.%s.weight", b, attends[i]);
            lm_add(w, tensor, WIDTH, WIDTH);
        }
        for (int i = 0; i < 2; i++) {
            snprintf(tensor, sizeof tensor, "model.layers.%d.%s.weight", b, norms[i]);
            lm_add(w, tensor, WIDTH, 0);
        }
        add_experts(&m, b);
    }
    assert_non_null(last_of(w)->data);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
    snprintf(config, sizeof config,
             "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, \"intermediate_size\": %d, "
             "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "
             "\"max_position_embeddings\": 64%s}",
             m.plain ? "llama" : "mixtral", WORDS, WIDTH, LAYERS, INNER,
             m.keys    ? m.keys
             : m.plain ? ""
                       : ", \"num_local_experts\": 5, \"num_experts_per_tok\": 2");
    snprintf(path, sizeof path, "%s/config.json", folder);
    io_write_text(path, config);
    return folder;
}

/* ---- passes ---------------------------------------------------------------------------------- */

enum { TOKENS = 40 };

static void states_of(float *hidden, const char *folder, int threads)
{
    s24_ctx *ctx = new_ctx(NULL, threads);
    const s24_model_opts opts = {.size = sizeof opts, .dtype = S24_F32};
    s24_model *model;
    s24_session *session;
    int32_t ids[TOKENS];
    const int64_t offsets[] = {0, 9, TOKENS};
    const s24_batch batch = {.texts = 2, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.hidden = hidden};
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i * 7 % WORDS;
    OK(ctx, load(&model, ctx, folder, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* Weights that add up to 1 of experts that are the same. */
static void alike_experts_are_one(void **state)
{
    static float want[TOKENS * WIDTH], got[TOKENS * WIDTH];
    const maker plain = {.alike = 1, .plain = 1}, mixture = {.alike = 1};
    (void)state;
    states_of(want, make(&plain, "plain"), 1);
    for (int threads = 1; threads <= 4; threads++) {
        states_of(got, make(&mixture, "mixture"), threads);
        near(want, got, TOKENS * WIDTH, 1e-5, "alike experts");
    }
}

static void experts_of_one_tensor(void **state)
{
    static float want[TOKENS * WIDTH], got[TOKENS * WIDTH];
    const maker each = {.alike = 0}, all = {.stacked = 1};
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_checkpoint *a, *b;
    (void)state;
    const char *first = make(&each, "each"), *second = make(&all, "all");
    OK(ctx, s24_checkpoint_open(&a, ctx, first));
    OK(ctx, s24_checkpoint_open(&b, ctx, second));
    assert_int_equal(s24_checkpoint_count(a), s24_checkpoint_count(b));
    for (int64_t i = 0; i < s24_checkpoint_count(a); i++) {
        const s24_tensor *x = s24_checkpoint_tensor(a, i), *y = s24_checkpoint_tensor(b, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->bytes, y->bytes);
        assert_int_equal(x->shape[0], y->shape[0]);
        assert_memory_equal(x->data, y->data, x->bytes);
        assert_int_equal(x->linear, y->linear);
    }
    s24_checkpoint_close(a);
    s24_checkpoint_close(b);
    states_of(want, first, 1);
    states_of(got, second, 2);
    near(want, got, TOKENS * WIDTH, 1e-6, "experts of one tensor");
    s24_ctx_destroy(ctx);
}

/* Token by token after a prompt, with a cache, as in one pass. */
static void decodes_as_it_passes(void **state)
{
    static float want[TOKENS * WIDTH], got[TOKENS * WIDTH];
    const maker each = {.alike = 0};
    const s24_model_opts opts = {.size = sizeof opts, .dtype = S24_F32};
    const s24_cache_opts room = {.size = sizeof room, .texts = 2, .tokens = TOKENS};
    const char *folder = make(&each, "each");
    static const int64_t ends[] = {0, 9, TOKENS};
    s24_ctx *ctx = new_ctx(NULL, 3);
    s24_model *model;
    s24_session *session;
    s24_cache *cache;
    (void)state;
    states_of(want, folder, 1);
    OK(ctx, load(&model, ctx, folder, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    OK(ctx, s24_cache_create(&cache, ctx, session, &room));
    /* Of each text all but its last four tokens, then one of each at a time. */
    for (int pass = 0; pass < 5; pass++) {
        int64_t offsets[] = {0, 0, 0};
        int32_t ids[TOKENS];
        float hidden[TOKENS * WIDTH];
        const s24_batch batch = {.texts = 2, .offsets = offsets, .ids = ids};
        const s24_extension more = {.batch = &batch};
        for (int text = 0; text < 2; text++) {
            const int64_t first = pass ? ends[text + 1] - 5 + pass : ends[text];
            const int64_t count = pass ? 1 : ends[text + 1] - 4 - first;
            for (int64_t i = 0; i < count; i++)
                ids[offsets[text] + i] = (int32_t)((first + i) * 7 % WORDS);
            offsets[text + 1] = offsets[text] + count;
        }
        OK(ctx, s24_session_extend(session, ctx, cache, &more, &(s24_outputs){.hidden = hidden}));
        for (int text = 0; text < 2; text++) {
            const int64_t first = pass ? ends[text + 1] - 5 + pass : ends[text];
            memcpy(got + first * WIDTH, hidden + offsets[text] * WIDTH,
                   (size_t)((offsets[text + 1] - offsets[text]) * WIDTH) * sizeof *got);
        }
    }
    near(want, got, TOKENS * WIDTH, 1e-5, "token by token");
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* ---- calibration ----------------------------------------------------------------------------- */

static void count_warnings(void *user, s24_log_level level, const char *text)
{
    *(int *)user += level == S24_LOG_WARNING && strstr(text, "no calibration token takes") != NULL;
}

static s24_checkpoint *pruned(s24_ctx *ctx, const char *folder, const char *method,
                              const char *name)
{
    static const int32_t ids[] = {3, 5};
    static const int64_t offsets[] = {0, 2};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const int calibrated = strcmp(method, "magnitude") != 0;
    const char *path = io_path(name);
    s24_model_prune_opts opts = {
        .size = sizeof opts, .force = 1, .ids = calibrated ? &batch : NULL};
    s24_checkpoint *in, *out;
    opts.prune.size = sizeof opts.prune;
    opts.prune.criterion = method;
    OK(ctx, s24_checkpoint_open(&in, ctx, folder));
    OK(ctx, s24_model_prune(ctx, in, path, &opts));
    OK(ctx, s24_checkpoint_open(&out, ctx, path));
    s24_checkpoint_close(in);
    return out;
}

/* Two tokens take two of five experts each: at least one expert of each block sees none, and there
   every criterion is magnitude. */
static void an_expert_without_tokens(void **state)
{
    static const char *const methods[] = {"wanda", "sparsegpt"};
    const maker each = {.alike = 0};
    const char *folder = make(&each, "each");
    int warnings = 0;
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .log = count_warnings, .user = &warnings};
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    s24_checkpoint *plain = pruned(ctx, folder, "magnitude", "magnitude");
    assert_int_equal(warnings, 0);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        int alike = 0, other = 0;
        warnings = 0;
        s24_checkpoint *made = pruned(ctx, folder, methods[i], "calibrated");
        for (int64_t t = 0; t < s24_checkpoint_count(made); t++) {
            const s24_tensor *a = s24_checkpoint_tensor(plain, t);
            const s24_tensor *b = s24_checkpoint_tensor(made, t);
            if (!strstr(a->name, ".w1.")) continue;
            *(memcmp(a->data, b->data, a->bytes) ? &other : &alike) += 1;
        }
        assert_in_range(alike, LAYERS, LAYERS * (EXPERTS - USED));
        assert_int_equal(alike + other, LAYERS * EXPERTS);
        assert_int_equal(warnings, 2 * alike); /* of what is before and after the gate */
        s24_checkpoint_close(made);
    }
    s24_checkpoint_close(plain);
    s24_ctx_destroy(ctx);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused_keys(void **state)
{
    static const struct {
        const char *keys, *words;
    } rows[] = {
        {", \"num_local_experts\": 5", "\"num_experts_per_tok\""},
        {", \"num_local_experts\": 5, \"num_experts_per_tok\": 6", "6"},
        {", \"num_local_experts\": 4, \"num_experts_per_tok\": 2",
         "tensor 'model.layers.0.block_sparse_moe.gate.weight' is [5, 32]; [4, 32] was expected"},
        {", \"num_local_experts\": 4096, \"num_experts_per_tok\": 2", "4096"}};
    s24_ctx *ctx = new_ctx(NULL, 1);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const maker m = {.keys = rows[i].keys};
        s24_model *model;
        assert_int_equal(load(&model, ctx, make(&m, "bad"), NULL), S24_ERROR_FORMAT);
        assert_non_null(strstr(s24_ctx_error(ctx), rows[i].words));
    }
    s24_ctx_destroy(ctx);
}

static void refused_stacks(void **state)
{
    const maker odd = {.stacked = 1, .odd = 1};
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_checkpoint *checkpoint;
    (void)state;
    assert_int_equal(s24_checkpoint_open(&checkpoint, ctx, make(&odd, "odd")), S24_ERROR_FORMAT);
    assert_non_null(
        strstr(s24_ctx_error(ctx), "experts.gate_up_proj' has 25 rows for each expert"));
    assert_null(checkpoint);
    s24_ctx_destroy(ctx);
}

static void who_has_no_experts(void **state)
{
    const maker each = {.alike = 0};
    const char *folder = make(&each, "each");
    const s24_model_permute_opts permute = {.size = sizeof permute, .force = 1};
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_checkpoint *in;
    (void)state;
    OK(ctx, s24_checkpoint_open(&in, ctx, folder));
    assert_int_equal(s24_model_permute(ctx, in, io_path("permuted"), &permute),
                     S24_ERROR_UNSUPPORTED);
    assert_string_equal(s24_ctx_error(ctx),
                        "blocks of mixtral have experts, whose layers are not permuted");
    s24_checkpoint_close(in);
    for (int i = 0; s24i_architecture_at(i); i++) {
        const s24i_architecture *arch = s24i_architecture_at(i);
        const unsigned all = (1u << S24I_STEP_KINDS) - 1, has = all & ~(1u << S24I_STEP_EXPERTS);
        assert_int_equal(s24i_steps_require(ctx, arch, has, "training"),
                         arch->mixture ? S24_ERROR_UNSUPPORTED : S24_OK);
        if (arch->mixture)
            assert_non_null(strstr(s24_ctx_error(ctx), "training has no step 'experts'"));
    }
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_experts_are_one),    cmocka_unit_test(refused_keys),
        cmocka_unit_test(experts_of_one_tensor),    cmocka_unit_test(refused_stacks),
        cmocka_unit_test(an_expert_without_tokens), cmocka_unit_test(who_has_no_experts),
        cmocka_unit_test(decodes_as_it_passes)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
