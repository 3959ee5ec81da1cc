// SPDX-License-Identifier: Apache-2.0
/* Models of Llama's kin whose head classifies texts or tokens: which state it reads, and what it
   makes of it. */
#include "support.h"

#include <math.h>

#include "nn_language_pass.h"

enum { TEXTS = 3, TOKENS = 12, CLASSES = 3, PADDING = 2, W = LM_WIDTH };
static const int64_t offsets[TEXTS + 1] = {0, 5, 6, TOKENS};
/* The first text ends in tokens that pad, the second is one. */
static const int32_t ids[TOKENS] = {7, 9, 4, PADDING, PADDING, PADDING, 3, PADDING, 8, 5, 6, 11};

#define DECODER(of, more_keys)                                                                     \
    {                                                                                              \
        .llama = 1, .tied = 1, .classes = CLASSES, .architecture = of,                             \
        .more = ", \"tie_word_embeddings\": true" more_keys                                        \
    }
#define EURO(more_keys)                                                                            \
    {                                                                                              \
        .llama = 1, .model_type = "eurobert", .tied = 1, .classes = CLASSES, .square = 1,          \
        .architecture = "EuroBertForSequenceClassification", .more = more_keys                     \
    }

static const struct {
    lm_spec spec;
    enum { LAST, FIRST, MEAN, EACH, ALL } reads;
    int64_t last[TEXTS]; /* of LAST */
} cases[] = {{DECODER("LlamaForSequenceClassification", ", \"pad_token_id\": 2"), LAST, {2, 5, 11}},
             {DECODER("LlamaForSequenceClassification", ""), LAST, {4, 5, 11}},
             {DECODER("LlamaForTokenClassification", ""), ALL, {0}},
             {EURO(", \"classifier_pooling\": \"bos\""), FIRST, {0}},
             {EURO(", \"classifier_pooling\": \"mean\""), MEAN, {0}},
             {EURO(""), EACH, {0}}};

typedef struct head {
    mini_file file;
    const float *last, *bias, *square, *square_bias;
} head;

static head open_head(const lm_spec *spec, const char *folder)
{
    char path[600];
    head h = {.last = NULL};
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    h.file = mini_open(path);
    h.last = mini_get(&h.file, spec->square ? "classifier.weight" : "score.weight").data;
    if (!spec->square) return h;
    h.bias = mini_get(&h.file, "classifier.bias").data;
    h.square = mini_get(&h.file, "dense.weight").data;
    h.square_bias = mini_get(&h.file, "dense.bias").data;
    return h;
}

/* to[CLASSES] += share · the head's logits of a state. */
static void add_logits(double *to, const head *h, const double *state, double share)
{
    double room[W];
    for (int i = 0; i < W; i++) {
        room[i] = state[i];
        if (!h->square) continue;
        double x = (double)h->square_bias[i];
        for (int j = 0; j < W; j++)
            x += state[j] * (double)h->square[i * W + j];
        room[i] = x / 2 * (1 + erf(x / sqrt(2)));
    }
    for (int c = 0; c < CLASSES; c++) {
        double x = h->bias ? (double)h->bias[c] : 0;
        for (int i = 0; i < W; i++)
            x += room[i] * (double)h->last[c * W + i];
        to[c] += share * x;
    }
}

static void state_of(double *to, const float *hidden, int64_t first, int64_t count)
{
    for (int i = 0; i < W; i++) {
        to[i] = 0;
        for (int64_t t = first; t < first + count; t++)
            to[i] += (double)hidden[t * W + i] / (double)count;
    }
}

static void expect(double *logits, const head *h, size_t i, const float *hidden)
{
    double state[W];
    memset(logits, 0, sizeof(double) * TOKENS * CLASSES);
    for (int64_t t = 0; cases[i].reads == ALL && t < TOKENS; t++) {
        state_of(state, hidden, t, 1);
        add_logits(logits + t * CLASSES, h, state, 1);
    }
    for (int b = 0; cases[i].reads != ALL && b < TEXTS; b++) {
        const int64_t n = offsets[b + 1] - offsets[b];
        const int each = cases[i].reads == EACH, mean = cases[i].reads == MEAN;
        const int64_t one = cases[i].reads == LAST ? cases[i].last[b] : offsets[b];
        for (int64_t t = 0; t < (each ? n : 1); t++) {
            state_of(state, hidden, mean ? offsets[b] : one + t, mean ? n : 1);
            add_logits(logits + b * CLASSES, h, state, each ? 1.0 / (double)n : 1);
        }
    }
}

static void reads_its_states(void **state)
{
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *folder = io_path("model");
        float hidden[TOKENS * W], logits[TOKENS * CLASSES], rounded[TOKENS * CLASSES];
        double wanted[TOKENS * CLASSES];
        const int64_t rows = cases[i].reads == ALL ? TOKENS : TEXTS;
        const s24_outputs outputs = {.hidden = hidden, .logits = logits};
        s24_ctx *ctx = new_ctx(NULL, 2);
        s24_model *model;
        s24_session *session;
        s24_model_info info;
        io_remove(folder);
        lm_write(&cases[i].spec, folder);
        OK(ctx, load(&model, ctx, folder, NULL));
        s24_model_describe(&info, model);
        assert_int_equal(info.classes, CLASSES);
        OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
        OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
        head h = open_head(&cases[i].spec, folder);
        expect(wanted, &h, i, hidden);
        for (int64_t c = 0; c < rows * CLASSES; c++)
            rounded[c] = (float)wanted[c];
        near(rounded, logits, rows * CLASSES, 1e-5, "logits");
        mini_close(&h.file);
        s24_session_destroy(session);
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
    }
}

static void an_unknown_reading(void **state)
{
    const lm_spec spec = EURO(", \"classifier_pooling\": \"max\"");
    const char *folder = io_path("model");
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_model *model;
    (void)state;
    io_remove(folder);
    lm_write(&spec, folder);
    assert_int_equal(load(&model, ctx, folder, NULL), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(ctx), "config.json: classifier_pooling is 'max'; cls, "
                                               "bos, mean or late was expected"));
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_its_states),
                                       cmocka_unit_test(an_unknown_reading)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
