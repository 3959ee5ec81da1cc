// SPDX-License-Identifier: Apache-2.0
/* Encoders: every spelling of a folder, and everything that can be wrong. */
#include "support.h"

#include "nn_failing.h"
#include "nn_load.h"
#include "nn_tiny.h"
#include "run/session.h"

static s24_ctx *new_ctx(void)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

/* ---- folders and configurations -------------------------------------------------------------- */

static const int64_t tiny_offsets[] = {0, 1, 6, 15};
static const int32_t tiny_ids[15] = {3, 1, 2, 10, 0, 5, 7, 7, 8, 9, 10, 1, 4, 6, 2};
static const int32_t tiny_types[15] = {0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 1, 0};
static const uint8_t tiny_mask[15] = {1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0};

typedef struct tiny_results {
    float hidden[15 * TINY_WIDTH], embeddings[3 * TINY_WIDTH], starts[15], ends[15];
} tiny_results;

/* The folder's forward pass, hidden states compared with f64 arithmetic. */
static void check_tiny(tiny_results *r, const tiny *t, int typed, int masked)
{
    s24_ctx *ctx = new_ctx();
    const char *folder = tiny_write(t, "tiny");
    const s24_model_opts opts = {.size = sizeof opts, .dtype = S24_F32};
    s24_model *model;
    s24_session *session;
    OK(ctx, load(&model, ctx, folder, &opts));
    OK(ctx, s24_session_create(&session, ctx, model, 15));
    const s24_batch batch = {
        3, tiny_offsets, tiny_ids, typed ? tiny_types : NULL, masked ? tiny_mask : NULL, NULL};
    const s24_outputs outputs = {.hidden = r->hidden,
                                 .embeddings = r->embeddings,
                                 .start_logits = t->qa_head ? r->starts : NULL,
                                 .end_logits = t->qa_head ? r->ends : NULL};
    OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    for (int b = 0; b < 3; b++) {
        const int64_t first = tiny_offsets[b];
        tiny_rows expected;
        tiny_forward(expected, t, (int)(tiny_offsets[b + 1] - first), tiny_ids + first,
                     typed ? tiny_types + first : NULL, masked ? tiny_mask + first : NULL);
        for (int64_t i = first; i < tiny_offsets[b + 1]; i++)
            for (int c = 0; c < TINY_WIDTH; c++)
                if (!(fabs(expected[i - first][c] - r->hidden[i * TINY_WIDTH + c]) < 2e-5))
                    fail_msg("text %d token %lld: expected %g, got %g", b, (long long)(i - first),
                             expected[i - first][c], (double)r->hidden[i * TINY_WIDTH + c]);
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static void spellings(void **state)
{
    (void)state;
    const tiny variants[] = {
        {0},
        {.prefix = "bert."},
        {.prefix = "bert.", .old_norms = 1, .activation = "gelu"},
        {.activation = "relu"},
        {.activation = "gelu_new"},
        {.activation = "gelu_pytorch_tanh", .dtype = S24_F16},
        {.dtype = S24_BF16, .old_norms = 1},
        {.types = -1},
        {.types = -2},
        {.types = 3, .drop = "pooler.dense.weight"},
    };
    tiny_results r;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        for (int masked = 0; masked <= 1; masked++)
            check_tiny(&r, &variants[i], variants[i].types >= 0 && i % 2 == 0, masked);
}

static void qa_head(void **state)
{
    (void)state;
    tiny_results r;
    check_tiny(&r, &(tiny){.prefix = "bert.", .qa_head = 1}, 1, 1);
    for (int t = 0; t < 15; t++) {
        double start = (double)tiny_value("qa_outputs.bias", 0),
               end = (double)tiny_value("qa_outputs.bias", 1);
        for (int c = 0; c < TINY_WIDTH; c++) {
            start +=
                (double)r.hidden[t * TINY_WIDTH + c] * (double)tiny_value("qa_outputs.weight", c);
            end += (double)r.hidden[t * TINY_WIDTH + c] *
                   (double)tiny_value("qa_outputs.weight", TINY_WIDTH + c);
        }
        assert_true(fabs(start - (double)r.starts[t]) < 1e-5 &&
                    fabs(end - (double)r.ends[t]) < 1e-5);
    }
}

#define MODULE(type, path)                                                                         \
    "{\"idx\": 0, \"name\": \"0\", \"path\": \"" path                                              \
    "\", \"type\": \"sentence_transformers.models." type "\"}"
#define POOLED     "[" MODULE("Transformer", "") ", " MODULE("Pooling", "1_Pooling") "]"
#define NORMALISED "[" MODULE("Pooling", "1_Pooling") ", " MODULE("Normalize", "2_Normalize") "]"

static double pooled(const tiny_results *r, int text, int c, char mode)
{
    double value = mode == 'x' ? -INFINITY : 0;
    int count = 0;
    for (int64_t t = tiny_offsets[text]; t < tiny_offsets[text + 1]; t++) {
        const double x = r->hidden[t * TINY_WIDTH + c];
        if (mode == 'c') return x;
        if (!tiny_mask[t]) continue;
        value = mode == 'm' ? value + x : x > value ? x : value;
        count++;
    }
    return mode == 'm' ? value / count : value;
}

static void pooling(void **state)
{
    (void)state;
    const struct {
        char mode;
        int normalise;
        const char *modules, *pooling;
    } ways[] = {
        {'m', 1, NULL, NULL},
        {'m', 0, POOLED, "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": false}"},
        {'m', 0, POOLED,
         "{\"pooling_mode_mean_tokens\": false, \"pooling_mode_cls_token\": false}"},
        {'m', 1, NORMALISED, "{}"},
        {'c', 0, POOLED, "{\"pooling_mode\": \"cls\", \"pooling_mode_max_tokens\": true}"},
        {'x', 1, NORMALISED, "{\"pooling_mode\": [\"max\"], \"pooling_mode_cls_token\": false}"},
        {'c', 1, NORMALISED, "{\"pooling_mode_cls_token\": true}"},
        {'x', 0, POOLED, "{\"pooling_mode_max_tokens\": true}"},
        {'x', 1, NORMALISED, "{\"pooling_mode_max_tokens\": true}"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        tiny_results r;
        check_tiny(&r, &(tiny){.modules = ways[i].modules, .pooling = ways[i].pooling}, 0, 1);
        for (int text = 0; text < 3; text++) {
            double norm = 0;
            for (int c = 0; c < TINY_WIDTH; c++)
                norm += pooled(&r, text, c, ways[i].mode) * pooled(&r, text, c, ways[i].mode);
            for (int c = 0; c < TINY_WIDTH; c++) {
                const double expected =
                    pooled(&r, text, c, ways[i].mode) / (ways[i].normalise ? sqrt(norm) : 1);
                if (!(fabs(expected - r.embeddings[text * TINY_WIDTH + c]) < 1e-6))
                    fail_msg("way %zu text %d: expected %g, got %g", i, text, expected,
                             (double)r.embeddings[text * TINY_WIDTH + c]);
            }
        }
    }
}

#define CONFIG(act, extra)                                                                         \
    "{\"model_type\": \"bert\", \"vocab_size\": 11, \"hidden_size\": 12, "                         \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"intermediate_size\": 20, "            \
    "\"max_position_embeddings\": 9, \"hidden_act\": \"" act "\"" extra "}"
static const struct {
    tiny t;
    s24_status status;
    const char *sentence;
} refused[] = {
    {{.config = "{\"model_type\": \"xlnet\"}"},
     S24_ERROR_UNSUPPORTED,
     "model_type 'xlnet' is not supported"},
    {{.config = "{\"vocab_size\": 11}"}, S24_ERROR_FORMAT, "model_type is missing"},
    {{.config = "{\"model_type\": \"bert\", \"vocab_size\": 11}"},
     S24_ERROR_FORMAT,
     "max_position_embeddings"},
    {{.config = CONFIG("mish", "")}, S24_ERROR_UNSUPPORTED, "hidden_act is 'mish'"},
    {{.config = CONFIG("gelu", ", \"position_embedding_type\": \"relative_key\"")},
     S24_ERROR_UNSUPPORTED,
     "relative_key"},
    {{.config = CONFIG("gelu", ", \"layer_norm_eps\": \"small\"")},
     S24_ERROR_FORMAT,
     "layer_norm_eps"},
    {{.drop = "embeddings.word_embeddings.weight"},
     S24_ERROR_FORMAT,
     "embeddings.word_embeddings.weight' is missing"},
    {{.drop = "encoder.layer.1.output.LayerNorm.bias"},
     S24_ERROR_FORMAT,
     "encoder.layer.1.output.LayerNorm.bias' is missing"},
    {{.drop = "encoder.layer.1.attention.self.key.weight"},
     S24_ERROR_FORMAT,
     "encoder.layer.1.attention.self.key.weight' is missing"},
    {{.qa_head = 1, .drop = "qa_outputs.bias"}, S24_ERROR_FORMAT, "qa_outputs.bias"},
    {{.bend = "encoder.layer.0.intermediate.dense.weight"},
     S24_ERROR_FORMAT,
     "encoder.layer.0.intermediate.dense.weight' is [21, 12]; [20, 12] was expected"},
    {{.bend = "embeddings.LayerNorm.weight"}, S24_ERROR_FORMAT, "is [13]; [12] was expected"},
    {{.retype = "encoder.layer.0.output.dense.bias"},
     S24_ERROR_FORMAT,
     "encoder.layer.0.output.dense.bias' is i64; f32, f16 or bf16 was expected"},
    {{.retype = "encoder.layer.0.output.dense.weight"}, S24_ERROR_FORMAT, "is i64"},
    {{.modules = "[" MODULE("LSTM", "2_LSTM") "]"}, S24_ERROR_UNSUPPORTED, "models.LSTM'"},
    {{.modules = POOLED, .pooling = "{\"pooling_mode\": \"first\"}"},
     S24_ERROR_UNSUPPORTED,
     "pooling_mode is 'first'; cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken"},
    {{.modules = POOLED, .pooling = "{\"pooling_mode\": [\"cls\", 3]}"},
     S24_ERROR_UNSUPPORTED,
     "pooling_mode is 'no string'"},
    {{.modules = POOLED, .pooling = "{\"pooling_mode\": [\"cls\", \"max\", \"cls\"]}"},
     S24_ERROR_UNSUPPORTED,
     "pooling_mode has cls twice"},
    {{.modules = POOLED, .pooling = "{\"pooling_mode\": []}"},
     S24_ERROR_FORMAT,
     "pooling_mode is an empty list"},
    {{.modules = "[" MODULE("Pooling", "1_Pooling") ", " MODULE("Transformer", "") "]",
      .pooling = "{}"},
     S24_ERROR_UNSUPPORTED,
     "module 1 is a Transformer; one Transformer at the beginning"},
    {{.modules = "[" MODULE("Pooling", "1_Pooling") ", " MODULE("Pooling", "1_Pooling") "]",
      .pooling = "{}"},
     S24_ERROR_UNSUPPORTED,
     "module 1 is another Pooling"},
    {{.modules = "[" MODULE("Transformer", "") ", " MODULE("Dense", "1_Dense") "]"},
     S24_ERROR_UNSUPPORTED,
     "module 1 stands before Pooling"},
    {{.modules = "[{\"type\": \"custom.Normalize\"}]"},
     S24_ERROR_UNSUPPORTED,
     "module 'custom.Normalize' is not supported"},
    {{.modules = "{}"}, S24_ERROR_FORMAT, "an array of modules"},
    {{.modules = "[3]"}, S24_ERROR_FORMAT, "module 0 is not an object"},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_env env;
        io_begin(&env);
        s24_model *model;
        const char *folder = tiny_write(&refused[i].t, "bad");
        const s24_status status = load(&model, env.ctx, folder, NULL);
        if (status != refused[i].status) fail_msg("case %zu: %s", i, s24_ctx_error(env.ctx));
        assert_null(model);
        assert_sentence(env.ctx, refused[i].sentence);
        io_end(&env);
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void session_errors(void **state)
{
    (void)state;
    io_env env;
    io_begin(&env);
    s24_model *model;
    s24_session *session;
    OK(env.ctx, load(&model, env.ctx, tiny_write(&(tiny){0}, "tiny"), NULL));
    assert_int_equal(s24_session_create(&session, env.ctx, model, 0), S24_ERROR_ARGUMENT);
    assert_null(session);
    assert_int_equal(s24_session_create(&session, env.ctx, NULL, 12), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "model is NULL");
    OK(env.ctx, s24_session_create(&session, env.ctx, model, 12));
    const int64_t one[] = {0, 3}, empty[] = {0, 3, 3}, late[] = {1, 3}, longest[] = {0, 10},
                  many[] = {0, 9, 13};
    const int32_t ids[13] = {0}, high[] = {0, 11, 0}, low[] = {0, 0, -1}, types[] = {0, 1, 2};
    const struct {
        s24_batch batch;
        const char *sentence;
    } cases[] = {
        {{1, one, high, NULL, NULL, NULL}, "token 1 of text 0 is 11; the vocabulary has 11"},
        {{1, one, low, NULL, NULL, NULL}, "token 2 of text 0 is -1"},
        {{1, one, ids, types, NULL, NULL}, "token 2 of text 0 has type 2; the model has 2"},
        {{2, empty, ids, NULL, NULL, NULL}, "text 1 has no tokens"},
        {{1, late, ids, NULL, NULL, NULL}, "offsets[0] of the batch is 1"},
        {{1, longest, ids, NULL, NULL, NULL}, "text 0 has 10 tokens; the model has 9 positions"},
        {{2, many, ids, NULL, NULL, NULL}, "text 1 ends at token 13; the session was made for 12"},
        {{0, one, ids, NULL, NULL, NULL}, "no texts"},
    };
    float logits[13];
    const s24_outputs none = {0}, answers = {.start_logits = logits};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(s24_session_forward(session, env.ctx, &cases[i].batch, &none),
                         S24_ERROR_ARGUMENT);
        assert_sentence(env.ctx, cases[i].sentence);
    }
    const s24_batch good = {1, one, ids, NULL, NULL, NULL};
    assert_int_equal(s24_session_forward(session, env.ctx, &good, NULL), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "outputs is NULL");
    assert_int_equal(s24_session_forward(session, env.ctx, &good, &answers), S24_ERROR_ARGUMENT);
    OK(env.ctx, s24_session_forward(session, env.ctx, &good, &none));
    s24_ctx_set_threads(env.ctx, 2);
    assert_int_equal(s24_session_forward(session, env.ctx, &good, &none), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "the context has 2 threads; the session was made for 1");
    s24_session_destroy(session);
    s24_model_destroy(model);
    io_end(&env);
}

typedef struct seen {
    int64_t rows[S24I_SLOTS], cols[S24I_SLOTS];
    int calls;
    s24_status status;
} seen;

static s24_status note_input(void *user, s24i_slot slot, const s24_dense *x)
{
    seen *s = user;
    s->rows[slot] += x->rows;
    s->cols[slot] = x->cols;
    s->calls++;
    return s->status;
}

/* Embeddings, blocks and pooling one by one give the bits of the whole pass, and every input of a
   linear layer is shown; a status of the observer ends the block. */
static void steps(void **state)
{
    (void)state;
    io_env env;
    io_begin(&env);
    s24_model *model;
    s24_session *session;
    OK(env.ctx, load(&model, env.ctx, tiny_write(&(tiny){0}, "tiny"), NULL));
    OK(env.ctx, s24_session_create(&session, env.ctx, model, 15));
    const s24_batch batch = {3, tiny_offsets, tiny_ids, tiny_types, tiny_mask, NULL};
    float whole[15 * TINY_WIDTH], hidden[15 * TINY_WIDTH];
    float pooled_whole[3 * TINY_WIDTH], pooled_hidden[3 * TINY_WIDTH];
    const s24_outputs outputs = {.hidden = whole, .embeddings = pooled_whole};
    OK(env.ctx, s24_session_forward(session, env.ctx, &batch, &outputs));
    seen s = {.status = S24_OK};
    s24i_observer observer = {.input = note_input, .user = &s};
    OK(env.ctx, s24i_session_embed(session, env.ctx, &batch, hidden));
    for (int b = 0; b < TINY_LAYERS; b++)
        OK(env.ctx, s24i_session_block(session, env.ctx, &batch, b, hidden, b ? NULL : &observer));
    s24i_session_pool(session, env.ctx, &batch, hidden, pooled_hidden);
    assert_memory_equal(whole, hidden, sizeof whole);
    assert_memory_equal(pooled_whole, pooled_hidden, sizeof pooled_whole);
    const s24i_slot slots[] = {S24I_QUERY, S24I_ATTENTION, S24I_INTERMEDIATE, S24I_OUTPUT};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s.rows[slots[i]], 15);
        assert_int_equal(s.cols[slots[i]], slots[i] == S24I_OUTPUT ? TINY_OUTER : TINY_WIDTH);
    }
    assert_int_equal(s.calls, 4);
    observer.last = 1u << S24I_ATTENTION;
    OK(env.ctx, s24i_session_block(session, env.ctx, &batch, 0, hidden, &observer));
    assert_int_equal(s.calls, 6);
    assert_int_equal(s.rows[S24I_INTERMEDIATE], 15);
    s.status = S24_ERROR_INTERRUPTED;
    assert_int_equal(s24i_session_block(session, env.ctx, &batch, 0, hidden, &observer),
                     S24_ERROR_INTERRUPTED);
    assert_int_equal(s.calls, 7);
    s24_session_destroy(session);
    s24_model_destroy(model);
    io_end(&env);
}

static void linear_names(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int found, block;
        s24i_slot slot;
    } names[] = {
        {"encoder.layer.0.attention.self.query.weight", 1, 0, S24I_QUERY},
        {"bert.encoder.layer.1.output.dense.weight", 1, 1, S24I_OUTPUT},
        {"encoder.layer.1.attention.output.dense.weight", 1, 1, S24I_ATTENTION},
        {"encoder.layer.2.output.dense.weight", 0, 0, 0},
        {"encoder.layer.99999999999999999999.output.dense.weight", 0, 0, 0},
        {"encoder.layer..output.dense.weight", 0, 0, 0},
        {"encoder.layer.1.output.dense.bias", 0, 0, 0},
        {"encoder.layer.1.output.dense.weight2", 0, 0, 0},
        {"x.encoder.layer.1.output.dense.weight", 0, 0, 0},
        {"embeddings.word_embeddings.weight", 0, 0, 0},
        {"", 0, 0, 0},
    };
    s24_ctx *ctx = new_ctx();
    s24_model *model;
    OK(ctx, load(&model, ctx, tiny_write(&(tiny){0}, "tiny"), NULL));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t block = -1;
        s24i_slot slot;
        assert_int_equal(s24i_model_find_linear(&block, &slot, model, names[i].name),
                         names[i].found);
        if (!names[i].found) continue;
        assert_int_equal(block, names[i].block);
        assert_int_equal(slot, names[i].slot);
    }
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* A pass allocates nothing, nor does one of another shape; where layers are dense their engine may,
   once for a shape. The same batch gives the same bits. */
static void check_no_allocation(const s24_model_opts *opts, int threads)
{
    io_env env;
    io_begin(&env);
    s24_model *model;
    s24_session *session;
    s24_ctx_set_threads(env.ctx, threads);
    OK(env.ctx, s24_model_preset(&model, env.ctx, "bert-tiny", opts));
    OK(env.ctx, s24_session_create(&session, env.ctx, model, 700));
    int64_t offsets[] = {0, 300, 700};
    int32_t ids[700];
    for (int i = 0; i < 700; i++)
        ids[i] = i * 37 % 30522;
    float embeddings[2 * 128], again[2 * 128];
    s24_batch batch = {2, offsets, ids, NULL, NULL, NULL};
    const s24_outputs outputs = {.embeddings = embeddings};
    int64_t calls = env.memory.calls;
    OK(env.ctx, s24_session_forward(session, env.ctx, &batch, &outputs));
    if (opts->dense) calls = env.memory.calls;
    memcpy(again, embeddings, sizeof again);
    OK(env.ctx, s24_session_forward(session, env.ctx, &batch, &outputs));
    assert_memory_equal(again, embeddings, sizeof again);
    batch.texts = 1, offsets[1] = 3;
    if (!opts->dense) OK(env.ctx, s24_session_forward(session, env.ctx, &batch, &outputs));
    assert_int_equal(env.memory.calls, calls);
    s24_model_info info;
    s24_model_describe(&info, model);
    assert_int_equal(info.sparse_layers, opts->dense ? 0 : 12);
    s24_session_destroy(session);
    s24_model_destroy(model);
    io_end(&env);
}

static void no_allocation(void **state)
{
    (void)state;
    static const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_I8};
    for (int i = 0; i < 6; i++) {
        s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dtype = dtypes[i % 3]};
        *(i < 3 ? &opts.all_sparse : &opts.dense) = 1;
        for (int threads = 1; threads <= 2; threads++)
            check_no_allocation(&opts, threads);
    }
}

/* Word embeddings are read from the file's map, whatever becomes of its name. */
static void file_may_go(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx();
    s24_model *model;
    s24_session *session;
    float before[15 * TINY_WIDTH], after[15 * TINY_WIDTH];
    const char *folder = tiny_write(&(tiny){0}, "goes");
    char path[600];
    const s24_batch batch = {3, tiny_offsets, tiny_ids, NULL, NULL, NULL};
    OK(ctx, load(&model, ctx, folder, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, 15));
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.hidden = before}));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.hidden = after}));
    assert_memory_equal(before, after, sizeof after);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

static char failing_folder[512];
static s24_status load_and_run(s24_ctx *ctx)
{
    s24_model *model;
    s24_session *session = NULL;
    float hidden[15 * TINY_WIDTH];
    const s24_batch batch = {3, tiny_offsets, tiny_ids, NULL, NULL, NULL};
    const s24_outputs outputs = {.hidden = hidden};
    s24_status status = load(&model, ctx, failing_folder, NULL);
    if (status == S24_OK) status = s24_session_create(&session, ctx, model, 15);
    if (status == S24_OK) status = s24_session_forward(session, ctx, &batch, &outputs);
    s24_session_destroy(session);
    s24_model_destroy(model);
    return status;
}
static void out_of_memory(void **state)
{
    (void)state;
    const tiny t = {
        .modules = POOLED, .pooling = "{\"pooling_mode_cls_token\": true}", .dtype = S24_F16};
    snprintf(failing_folder, sizeof failing_folder, "%s", tiny_write(&t, "tiny"));
    assert_true(count_failures(load_and_run) > 20);
}

static void presets(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx();
    s24_model *model;
    assert_int_equal(s24_model_preset(&model, ctx, "bert-huge", NULL), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "'bert-huge'");
    const s24_model_opts bad = {.size = sizeof bad, .dtype = S24_F16};
    assert_int_equal(s24_model_preset(&model, ctx, "minilm", &bad), S24_ERROR_UNSUPPORTED);
    /* The same 2:4 weights as dense ones: what a bench compares with. */
    for (int dense = 0; dense < 2; dense++) {
        const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dense = dense};
        s24_model_info info;
        OK(ctx, s24_model_preset(&model, ctx, "bert-tiny", &opts));
        s24_model_describe(&info, model);
        assert_int_equal(info.sparse_layers, dense ? 0 : info.linear_layers);
        s24_model_destroy(model);
    }
    int count = 0;
    while (s24_model_preset_name(count))
        count++;
    assert_true(count >= 3);
    assert_null(s24_model_preset_name(-1));
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings),      cmocka_unit_test(qa_head),
        cmocka_unit_test(pooling),        cmocka_unit_test(refusals),
        cmocka_unit_test(session_errors), cmocka_unit_test(steps),
        cmocka_unit_test(linear_names),   cmocka_unit_test(no_allocation),
        cmocka_unit_test(out_of_memory),  cmocka_unit_test(presets),
        cmocka_unit_test(file_may_go),
    };
    return cmocka_run_group_tests_name("nn_model", tests, io_folder_setup, io_folder_teardown);
}
