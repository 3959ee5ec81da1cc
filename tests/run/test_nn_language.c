// SPDX-License-Identifier: Apache-2.0
/*
 * Language models in sessions: against transformers' golden values, against the passes of training
 * on small random models, 2:4 against dense, in every dtype of the CPU.
 */
#include "support.h"

#include <math.h>

#include "nn_close.h"
#include "nn_failing.h"
#include "nn_language_pass.h"
#include "nn_train_golden.h"

static const char *const levels[] = {"baseline", "avx2", "avx512"};
enum { LEVELS = sizeof levels / sizeof *levels, TEXTS = 4, TOKENS = 96 + 1 + 30 + 7 };
static const int64_t offsets[TEXTS + 1] = {0, 96, 97, 127, TOKENS};

/* What can be said of any pass: logits of some tokens and of all agree, losses are those of
   logits. */
static void check_whole(const given *g, const s24_model_info *info, int64_t tokens,
                        const int32_t *targets)
{
    const int64_t n = info->vocabulary;
    double sum = 0;
    int64_t count = 0;
    for (int i = 0; i < SOME; i++)
        near(g->logits + chosen[i] * n, g->some + i * n, n, 1e-5, "chosen logits");
    near(g->hidden, g->blocks + info->layers * tokens * info->width, tokens * info->width, 0,
         "the last hidden state");
    for (int64_t t = 0; t < tokens; t++) {
        double total = 0, top = -1e30;
        if (targets[t] < 0) {
            assert_true(g->losses[t] == 0.0f);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            top = fmax(top, (double)g->logits[t * n + i]);
        for (int64_t i = 0; i < n; i++)
            total += exp((double)g->logits[t * n + i] - top);
        const double loss = log(total) + top - (double)g->logits[t * n + targets[t]];
        assert_true(fabs(loss - (double)g->losses[t]) < 1e-4 * (1 + fabs(loss)));
        sum += loss;
        count++;
    }
    assert_true(fabs(g->loss - sum / (double)count) < 1e-4 * (1 + fabs(g->loss)));
}

/* ---- golden ---------------------------------------------------------------------------------- */

static void check_golden(const golden *g, s24_dtype dtype, double bound)
{
    for (int level = 0; level < LEVELS; level++)
        for (int threads = 1; threads <= 2; threads++) {
            s24_ctx *ctx = new_ctx(levels[level], threads);
            const s24_model_opts opts = {.size = sizeof opts, .dtype = dtype};
            s24_model *model;
            s24_model_info info;
            const int64_t tokens = g->offsets[g->examples.texts.texts];
            OK(ctx, load(&model, ctx, g->folder, &opts));
            s24_model_describe(&info, model);
            given out = room_of(&info, tokens);
            OK(ctx, run(&out, ctx, model, &g->examples.texts, g->targets));
            check_whole(&out, &info, tokens, g->targets);
            for (int b = 0; b <= info.layers; b++) {
                char name[32];
                snprintf(name, sizeof name, "hidden.%d", b);
                const mini_tensor h = mini_get(&g->io, name);
                near(h.data, out.blocks + b * count_of(&h), count_of(&h), bound, name);
            }
            const mini_tensor l = mini_get(&g->io, "output.logits");
            near(l.data, out.logits, count_of(&l), bound, "logits");
            const float loss = *(const float *)mini_get(&g->io, "loss").data;
            assert_true(fabs(out.loss - (double)loss) <= bound * (double)loss);
            give_back(&out);
            s24_model_destroy(model);
            s24_ctx_destroy(ctx);
        }
}

static void golden_models(void **state)
{
    static const char *const names[] = {"models/gpt2", "models/llama"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        golden g;
        if (!open_text(&g, names[i])) SKIP_WITHOUT(g.folder);
        check_golden(&g, S24_F32, 1e-4);
        check_golden(&g, S24_BF16, 3e-2);
        check_golden(&g, S24_I8, 3e-2);
        mini_close(&g.io);
    }
}

/* Prompts of 5 to 70 tokens, each alone. */
static void golden_prompts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lm_golden / sizeof *lm_golden; i++) {
        char folder[512], path[600];
        if (!golden_path(folder, sizeof folder, lm_golden[i])) SKIP_WITHOUT(folder);
        snprintf(path, sizeof path, "%s/io.safetensors", folder);
        const mini_file io = mini_open(path);
        s24_ctx *ctx = new_ctx(NULL, 2);
        s24_model *model;
        s24_session *session;
        OK(ctx, load(&model, ctx, folder, NULL));
        OK(ctx, s24_session_create(&session, ctx, model, 70));
        for (int p = 0; p < 4; p++) {
            char ids_name[16], logits_name[16];
            snprintf(ids_name, sizeof ids_name, "prompt.%d", p);
            snprintf(logits_name, sizeof logits_name, "logits.%d", p);
            const mini_tensor ids = mini_get(&io, ids_name), want = mini_get(&io, logits_name);
            const int64_t ends[] = {0, count_of(&ids)};
            const s24_batch batch = {.texts = 1, .offsets = ends, .ids = ids.data};
            float *logits = malloc((size_t)count_of(&want) * sizeof *logits);
            const s24_outputs outputs = {.logits = logits};
            OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
            near(want.data, logits, count_of(&want), 1e-4, logits_name);
            free(logits);
        }
        s24_session_destroy(session);
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
        mini_file done = io;
        mini_close(&done);
    }
}

/* ---- random models --------------------------------------------------------------------------- */

static const lm_spec specs[] = {{.llama = 0},
                                {.activation = "relu2"},
                                {.llama = 1},
                                {.llama = 1, .tied = 1, .biased = 1},
                                {.llama = 1, .activation = "relu2"},
                                LM_KIN,
                                LM_OTHERS};
enum { SPECS = sizeof specs / sizeof *specs };

typedef struct texts {
    int32_t ids[TOKENS], targets[TOKENS];
    s24_batch batch;
} texts;

static void fill_texts(texts *t)
{
    uint64_t state = 3;
    for (int64_t i = 0; i < TOKENS; i++) {
        t->ids[i] = (int32_t)(test_random(&state) % LM_VOCABULARY);
        t->targets[i] = i % 5 == 4 ? -1 : (int32_t)(test_random(&state) % LM_VOCABULARY);
    }
    t->batch = (s24_batch){.texts = TEXTS, .offsets = offsets, .ids = t->ids};
}

static const char *folder_of(const lm_spec *spec)
{
    const char *folder = io_path("model");
    io_remove(folder);
    lm_write(spec, folder);
    return folder;
}

/* The same by the passes of training: states [layers + 1, tokens, width], logits, loss. */
static void reference(given *g, s24_ctx *ctx, const char *folder, const texts *t)
{
    const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = TOKENS};
    const s24_examples examples = {.texts = t->batch, .targets = t->targets};
    const s24_pass_outputs outputs = {
        .states = g->blocks, .logits = g->logits, .loss = &g->loss, .embeddings = g->embeddings};
    s24_transformer *transformer;
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_transformer_load(&transformer, ctx, checkpoint, &opts));
    OK(ctx, s24_transformer_forward(transformer, ctx, &examples, &outputs));
    s24_transformer_destroy(transformer);
    s24_checkpoint_close(checkpoint);
}

static void compare(const given *want, const given *got, const s24_model_info *info, double bound)
{
    near(want->blocks, got->blocks, (info->layers + 1) * TOKENS * info->width, bound, "states");
    near(want->logits, got->logits, TOKENS * info->vocabulary, bound, "logits");
    near(want->embeddings, got->embeddings, TEXTS * info->width, bound, "embeddings");
    /* A mean of many: nearer than any of them. */
    assert_true(fabs(want->loss - got->loss) <= 0.1 * bound * want->loss);
}

/* Integers all over, of which a number or two are far off: by the length of what is off. */
static void compare_lengths(const given *want, const given *got, const s24_model_info *info,
                            double bound)
{
    const int64_t states = TOKENS * info->width;
    for (int64_t l = 0; l <= info->layers; l++)
        close_to(want->blocks + l * states, got->blocks + l * states, states, bound, 0, "states");
    close_to(want->logits, got->logits, TOKENS * info->vocabulary, bound, 0, "logits");
    close_to(want->embeddings, got->embeddings, TEXTS * info->width, bound, 0, "embeddings");
    assert_true(fabs(want->loss - got->loss) <= 0.1 * bound * want->loss);
}

static void by_training(void **state)
{
    static const struct {
        s24_dtype dtype;
        double bound;
    } dtypes[] = {{S24_F32, 1e-4}, {S24_BF16, 4e-2}, {S24_I8, 5e-2}};
    texts t;
    (void)state;
    fill_texts(&t);
    for (int i = 0; i < SPECS; i++) {
        const char *folder = folder_of(&specs[i]);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int threads = 1; threads <= 3; threads++) {
                s24_ctx *ctx = new_ctx(NULL, threads);
                const s24_model_opts opts = {.size = sizeof opts, .dtype = dtypes[d].dtype};
                s24_model *model;
                s24_model_info info;
                OK(ctx, load(&model, ctx, folder, &opts));
                s24_model_describe(&info, model);
                assert_int_equal(info.linear_layers, LM_LAYERS * lm_block_layers(&specs[i]));
                given want = room_of(&info, TOKENS), got = room_of(&info, TOKENS);
                reference(&want, ctx, folder, &t);
                OK(ctx, run(&got, ctx, model, &t.batch, t.targets));
                check_whole(&got, &info, TOKENS, t.targets);
                (dtypes[d].dtype == S24_I8 ? compare_lengths : compare)(&want, &got, &info,
                                                                        dtypes[d].bound);
                give_back(&want);
                give_back(&got);
                s24_model_destroy(model);
                s24_ctx_destroy(ctx);
            }
    }
}

static void check_sparse(s24_ctx *ctx, const char *folder, const texts *t, int64_t layers)
{
    static const struct {
        s24_dtype dtype;
        double bound;
    } dtypes[] = {{S24_F32, 1e-4}, {S24_BF16, 4e-2}, {S24_I8, 8e-2}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const s24_model_opts sparse = {
            .size = sizeof sparse, .dtype = dtypes[d].dtype, .sparse = 1, .all_sparse = d == 1};
        s24_model *model;
        s24_model_info info;
        OK(ctx, load(&model, ctx, folder, &sparse));
        s24_model_describe(&info, model);
        assert_int_equal(info.sparse_layers, layers);
        given want = room_of(&info, TOKENS), got = room_of(&info, TOKENS);
        reference(&want, ctx, folder, t);
        OK(ctx, run(&got, ctx, model, &t->batch, t->targets));
        compare(&want, &got, &info, dtypes[d].bound);
        give_back(&want);
        give_back(&got);
        s24_model_destroy(model);
    }
}

static void two_four(void **state)
{
    /* What is left dense of a block: nothing; the keys and the gate, whose products then stand
       alone; the rest of those. */
    static const struct {
        const char *exclude;
        int64_t layers[LM_KINDS]; /* that are left */
    } parts[] = {
        {NULL, {4, 6, 7, 4, 6, 6}},
        {"*.k_proj.*,*.gate_proj.*,*.c_fc.*", {3, 5, 5, 4, 5, 4}},
        {"*.q_proj.*,*.v_proj.*,*.up_proj.*,*.down_proj.*,*.c_attn.*", {3, 4, 3, 3, 2, 4}}};
    texts t;
    (void)state;
    fill_texts(&t);
    for (int i = 0; i < SPECS; i++)
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            for (int threads = 1; threads <= 2; threads++) {
                s24_ctx *ctx = new_ctx(NULL, threads);
                const int packed = threads == 2;
                const char *folder = folder_of(&specs[i]);
                check_sparse(ctx, prune(ctx, folder, packed, parts[p].exclude), &t,
                             LM_LAYERS * parts[p].layers[lm_kind_of(&specs[i])]);
                s24_ctx_destroy(ctx);
            }
}

/* Hidden states and logits of a folder's model, multiplied 2:4 or dense. */
static given given_by(s24_model_info *info, s24_ctx *ctx, const char *folder, int dense,
                      const texts *t)
{
    const s24_model_opts opts = {.size = sizeof opts, .dense = dense, .all_sparse = !dense};
    s24_model *model;
    OK(ctx, load(&model, ctx, folder, &opts));
    s24_model_describe(info, model);
    given out = room_of(info, TOKENS);
    OK(ctx, run(&out, ctx, model, &t->batch, t->targets));
    s24_model_destroy(model);
    return out;
}

/* GPT-2's weights as they are packed are the pruned ones: from the packed folder, run 2:4 and
   dense, comes what comes from the dense one. */
static void packed_gpt2(void **state)
{
    char folder[512];
    texts t;
    s24_model_info info;
    (void)state;
    if (!golden_path(folder, sizeof folder, "language/gpt2")) SKIP_WITHOUT(folder);
    fill_texts(&t);
    s24_ctx *ctx = new_ctx(NULL, 2);
    given want = given_by(&info, ctx, prune(ctx, folder, 0, NULL), 1, &t);
    assert_int_equal(info.sparse_layers, 0);
    for (int dense = 0; dense < 2; dense++) {
        given got = given_by(&info, ctx, prune(ctx, folder, 1, NULL), dense, &t);
        assert_int_equal(info.sparse_layers, dense ? 0 : info.linear_layers);
        near(want.hidden, got.hidden, TOKENS * info.width, 1e-5, "hidden states");
        near(want.logits, got.logits, TOKENS * info.vocabulary, 1e-5, "logits");
        assert_true(fabs(want.loss - got.loss) < 1e-5 * want.loss);
        give_back(&got);
    }
    give_back(&want);
    s24_ctx_destroy(ctx);
}

/* The layers that are named, made 2:4 into a folder of their own. */
static const char *prune_some(s24_ctx *ctx, const char *from, const char *to, const char *include,
                              int packed)
{
    const s24_model_prune_opts opts = {
        .size = sizeof opts, .packed = packed, .dtype = S24_F16, .include = include, .force = 1};
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, from));
    OK(ctx, s24_model_prune(ctx, checkpoint, to, &opts));
    s24_checkpoint_close(checkpoint);
    return to;
}

static s24_status load_trained(s24_ctx *ctx, const char *folder)
{
    const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = TOKENS, .train = 1};
    s24_transformer *transformer;
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    const s24_status status = s24_transformer_load(&transformer, ctx, checkpoint, &opts);
    s24_transformer_destroy(transformer);
    s24_checkpoint_close(checkpoint);
    return status;
}

static void check_packed_head(s24_ctx *ctx, const char *dense, const texts *t)
{
    s24_model_info info;
    given want = given_by(&info, ctx, dense, 0, t);
    const char *packed = prune_some(ctx, dense, io_path("packed"), "lm_head.weight", 1);
    given got = given_by(&info, ctx, packed, 0, t), trained = room_of(&info, TOKENS);
    near(want.logits, got.logits, TOKENS * info.vocabulary, 0, "logits");
    reference(&trained, ctx, packed, t);
    near(want.logits, trained.logits, TOKENS * info.vocabulary, 1e-4, "training's logits");
    OK(ctx, load_trained(ctx, dense));
    assert_int_equal(load_trained(ctx, packed), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(ctx), "'lm_head.weight' is packed, but a head that "));
    give_back(&want);
    give_back(&got);
    give_back(&trained);
}

/* The head's weight may be packed: it is the same dense one, whether words are mapped or, in f16,
   are not. Training, which would not keep it 2:4, refuses it by name. */
static void a_packed_head(void **state)
{
    static const char *const pruned[] = {"lm_head.weight",
                                         "lm_head.weight,model.embed_tokens.weight"};
    texts t;
    s24_model *model;
    (void)state;
    fill_texts(&t);
    s24_ctx *ctx = new_ctx(NULL, 2);
    for (int i = 0; i < 2; i++)
        check_packed_head(
            ctx, prune_some(ctx, folder_of(&specs[2]), io_path("dense"), pruned[i], 0), &t);
    /* Words are no linear layer. */
    const char *words =
        prune_some(ctx, folder_of(&specs[2]), io_path("packed"), "model.embed_tokens.weight", 1);
    assert_int_equal(load(&model, ctx, words, NULL), S24_ERROR_FORMAT);
    assert_non_null(strstr(s24_ctx_error(ctx), "'model.embed_tokens.weight' is packed; only the "));
    s24_ctx_destroy(ctx);
}

/* Whole passes run as many chunks as they need; a text's result is its own. */
static void alone(void **state)
{
    texts t;
    (void)state;
    fill_texts(&t);
    const char *folder = folder_of(&specs[3]);
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_model *model;
    s24_model_info info;
    OK(ctx, load(&model, ctx, folder, NULL));
    s24_model_describe(&info, model);
    given all = room_of(&info, TOKENS), one = room_of(&info, TOKENS);
    OK(ctx, run(&all, ctx, model, &t.batch, t.targets));
    for (int b = 0; b < TEXTS; b++) {
        const int64_t n = offsets[b + 1] - offsets[b], ends[] = {0, n};
        const s24_batch batch = {.texts = 1, .offsets = ends, .ids = t.ids + offsets[b]};
        if (n < 10) continue; /* the tokens that are chosen are not there */
        OK(ctx, run(&one, ctx, model, &batch, t.targets + offsets[b]));
        near(all.hidden + offsets[b] * info.width, one.hidden, n * info.width, 1e-5, "alone");
    }
    give_back(&all);
    give_back(&one);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* A bias that is not there among others that are is 0. */
static void a_bias_left_out(void **state)
{
    texts t;
    float *hidden[2];
    (void)state;
    fill_texts(&t);
    for (int i = 0; i < 2; i++) {
        const lm_spec spec = {.llama = 1, .biased = 1 + i};
        s24_ctx *ctx = new_ctx(NULL, 1);
        s24_model *model;
        s24_model_info info;
        OK(ctx, load(&model, ctx, folder_of(&spec), NULL));
        s24_model_describe(&info, model);
        given out = room_of(&info, TOKENS);
        OK(ctx, run(&out, ctx, model, &t.batch, t.targets));
        hidden[i] = out.hidden;
        out.hidden = NULL;
        give_back(&out);
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
    }
    assert_memory_equal(hidden[0], hidden[1], sizeof(float) * TOKENS * LM_WIDTH);
    free(hidden[0]);
    free(hidden[1]);
}

/* The same 2:4 weights multiplied as 2:4 and as dense ones. */
static void presets(void **state)
{
    static const char *const names[] = {"gpt2-tiny", "llama-tiny"};
    texts t;
    (void)state;
    fill_texts(&t);
    for (int i = 0; i < 2; i++) {
        given out[2];
        s24_model_info info;
        s24_ctx *ctx = new_ctx(NULL, 2);
        for (int dense = 0; dense < 2; dense++) {
            const s24_model_opts opts = {
                .size = sizeof opts, .sparse = 1, .dense = dense, .all_sparse = !dense};
            s24_model *model;
            OK(ctx, s24_model_preset(&model, ctx, names[i], &opts));
            s24_model_describe(&info, model);
            assert_int_equal(info.sparse_layers, dense ? 0 : info.linear_layers);
            assert_int_equal(s24_model_kv_heads(model), 2); /* of two, and of four */
            out[dense] = room_of(&info, TOKENS);
            OK(ctx, run(&out[dense], ctx, model, &t.batch, t.targets));
            s24_model_destroy(model);
        }
        compare(&out[0], &out[1], &info, 1e-4);
        give_back(&out[0]);
        give_back(&out[1]);
        s24_ctx_destroy(ctx);
    }
}

/* Whichever threads made a preset's numbers, they are the same. */
static void preset_numbers(void **state)
{
    texts t;
    given out[2];
    s24_model_info info;
    (void)state;
    fill_texts(&t);
    for (int many = 0; many < 2; many++) {
        const s24_model_opts opts = {.size = sizeof opts, .dense = 1};
        s24_ctx *ctx = new_ctx(NULL, many ? 3 : 1);
        s24_model *model;
        OK(ctx, s24_model_preset(&model, ctx, "llama-tiny", &opts));
        s24_model_describe(&info, model);
        s24_ctx_set_threads(ctx, 1);
        out[many] = room_of(&info, TOKENS);
        OK(ctx, run(&out[many], ctx, model, &t.batch, t.targets));
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
    }
    assert_memory_equal(out[0].hidden, out[1].hidden, sizeof(float) * TOKENS * (size_t)info.width);
    give_back(&out[0]);
    give_back(&out[1]);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void refusals(void **state)
{
    texts t;
    (void)state;
    fill_texts(&t);
    float logits[2 * LM_VOCABULARY], losses[TOKENS];
    double loss = 0;
    const int64_t outside[] = {0, TOKENS};
    int32_t targets[TOKENS] = {0};
    targets[7] = LM_VOCABULARY;
    const struct {
        s24_outputs outputs;
        const char *sentence;
    } bad[] = {
        {{.loss = &loss}, "a loss was asked for without targets"},
        {{.losses = losses, .targets = targets}, "targets[7] is 53; -1 to 52 was expected"},
        {{.logits = logits, .tokens = outside, .token_count = 2},
         "tokens[1] is 134; 0 to 133 was expected"},
        {{.logits = logits, .tokens = outside, .token_count = -1}, "token_count is -1"},
    };
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_model *model;
    s24_session *session;
    s24_encoder *encoder;
    const char *folder = folder_of(&specs[2]);
    OK(ctx, load(&model, ctx, folder, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(s24_session_forward(session, ctx, &t.batch, &bad[i].outputs),
                         S24_ERROR_ARGUMENT);
        assert_string_equal(s24_ctx_error(ctx), bad[i].sentence);
    }
    for (int i = 0; i < TOKENS; i++)
        targets[i] = -1;
    const s24_outputs none = {.loss = &loss, .targets = targets};
    OK(ctx, s24_session_forward(session, ctx, &t.batch, &none));
    assert_true(isnan(loss));
    s24_session_destroy(session);
    s24_model_destroy(model);
    for (int i = 0; i < 3; i += 2) { /* without modules.json, with and without architectures */
        assert_int_equal(s24_encoder_open(&encoder, ctx, folder_of(&specs[i]), NULL),
                         S24_ERROR_UNSUPPORTED);
        assert_non_null(strstr(s24_ctx_error(ctx), "says that the model continues a text"));
    }
    s24_ctx_destroy(ctx);
}

static const char *failing_folder;
static s24_status load_and_run(s24_ctx *ctx)
{
    s24_model *model;
    const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .all_sparse = 1};
    texts t;
    float logits[SOME * LM_VOCABULARY];
    double loss;
    const s24_outputs outputs = {.logits = logits,
                                 .tokens = chosen,
                                 .token_count = SOME,
                                 .targets = t.targets,
                                 .loss = &loss};
    fill_texts(&t);
    s24_status status = load(&model, ctx, failing_folder, &opts);
    if (status != S24_OK) return status;
    s24_session *session;
    status = s24_session_create(&session, ctx, model, TOKENS);
    if (status == S24_OK) status = s24_session_forward(session, ctx, &t.batch, &outputs);
    if (session) s24_session_destroy(session);
    s24_model_destroy(model);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i += 2) {
        s24_ctx *ctx = new_ctx(NULL, 1);
        failing_folder = prune(ctx, folder_of(&specs[i]), 1, "*.1.*gate_proj*");
        s24_ctx_destroy(ctx);
        assert_true(count_failures(load_and_run) > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_models),
                                       cmocka_unit_test(golden_prompts),
                                       cmocka_unit_test(by_training),
                                       cmocka_unit_test(two_four),
                                       cmocka_unit_test(packed_gpt2),
                                       cmocka_unit_test(a_packed_head),
                                       cmocka_unit_test(alone),
                                       cmocka_unit_test(a_bias_left_out),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(presets),
                                       cmocka_unit_test(failing_allocations),
                                       cmocka_unit_test(preset_numbers)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
