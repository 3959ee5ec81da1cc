// SPDX-License-Identifier: Apache-2.0
/* Weights of words (SPLADE) of a small BERT: against the same in f64, in pieces that texts cross,
   with fewer words than there are, and what is refused. */
#include "support.h"

#include <math.h>

#include "nn_failing.h"
#include "nn_tiny.h"

#include "nn_encoder_support.h"

#define MODULE(name, path)                                                                         \
    "{\"type\": \"sentence_transformers.sparse_encoder.models." name "\", \"path\": \"" path "\"}"
#define SPLADE "[" MODULE("MLMTransformer", "") ", " MODULE("SpladePooling", "1_Pooling") "]"

enum { TEXTS = 100, LETTERS = 7, WORDS = TINY_VOCABULARY };

static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\n";

static const char *make(const tiny *t)
{
    const char *folder = tiny_write(t, "words");
    char path[700];
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    tiny_write_text(path, vocabulary);
    return folder;
}

/* "a b c": text i has i % 7 letters, from the i-th on. */
static s24_text letters(char text[32], int i)
{
    size_t bytes = 0;
    for (int l = 0; l < i % 7; l++) {
        text[bytes++] = (char)('a' + (i + l) % LETTERS);
        text[bytes++] = ' ';
    }
    return (s24_text){text, bytes};
}

static void token_logits(double logits[WORDS], const double state[TINY_WIDTH],
                         const char *activation)
{
    double bent[TINY_WIDTH];
    tiny_linear(bent, state, TINY_WIDTH, TINY_WIDTH, "cls.predictions.transform.dense");
    for (int c = 0; c < TINY_WIDTH; c++)
        bent[c] = tiny_activate(bent[c], activation);
    tiny_norm(bent, "cls.predictions.transform.LayerNorm");
    for (int w = 0; w < WORDS; w++) {
        logits[w] = (double)tiny_value("cls.predictions.bias", w);
        for (int c = 0; c < TINY_WIDTH; c++)
            logits[w] += bent[c] * (double)tiny_value("embeddings.word_embeddings.weight",
                                                      w * TINY_WIDTH + c);
    }
}

/* What text i's words weigh. */
static void expected(double weights[WORDS], const tiny *t, int i, int sums, int twice)
{
    static tiny_rows x;
    int32_t ids[TINY_POSITIONS] = {2};
    const int tokens = i % 7 + 2;
    for (int l = 0; l < i % 7; l++)
        ids[1 + l] = 4 + (i + l) % LETTERS;
    ids[tokens - 1] = 3;
    tiny_forward(x, t, tokens, ids, NULL, NULL);
    for (int w = 0; w < WORDS; w++)
        weights[w] = 0;
    for (int at = 0; at < tokens; at++) {
        double logits[WORDS];
        token_logits(logits, x[at], t->activation);
        for (int w = 0; w < WORDS; w++) {
            double weight = log1p(logits[w] > 0 ? logits[w] : 0);
            if (twice) weight = log1p(weight);
            weights[w] = sums ? weights[w] + weight : fmax(weights[w], weight);
        }
    }
}

typedef struct found {
    int32_t ids[TEXTS * WORDS];
    float weights[TEXTS * WORDS];
    int64_t counts[TEXTS];
} found;

static s24_status weigh(found *f, s24_encoder *encoder, s24_ctx *own, int64_t most)
{
    static char room[TEXTS][32];
    s24_text texts[TEXTS];
    const s24_word_weights out = {f->ids, f->weights, f->counts, most};
    for (int i = 0; i < TEXTS; i++)
        texts[i] = letters(room[i], i);
    return s24_encoder_weigh(&out, NULL, encoder, own, texts, TEXTS);
}

/* Ids of the texts weigh what the texts do. */
static void check_ids(s24_encoder *encoder, const found *right)
{
    enum { ROOM = 64 };
    static found f;
    const s24_word_weights out = {f.ids, f.weights, f.counts, WORDS};
    int32_t ids[TEXTS * ROOM];
    int64_t offsets[TEXTS + 1] = {0};
    for (int i = 0; i < TEXTS; i++) {
        char room[32];
        s24_token tokens[ROOM];
        int64_t count;
        const s24_text text = letters(room, i);
        assert_int_equal(s24_tokenizer_encode(tokens, &count, s24_encoder_max_tokens(encoder),
                                              s24_encoder_tokenizer(encoder), ctx, text.data,
                                              text.bytes, NULL, 0),
                         S24_OK);
        for (int64_t t = 0; t < count; t++)
            ids[offsets[i] + t] = tokens[t].id;
        offsets[i + 1] = offsets[i] + count;
    }
    s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    int64_t tokens = 0;
    assert_int_equal(s24_encoder_weigh_ids(&out, &tokens, encoder, ctx, &batch), S24_OK);
    assert_int_equal(tokens, offsets[TEXTS]);
    assert_memory_equal(&f, right, sizeof f);
    ids[0] = -1;
    assert_int_equal(s24_encoder_weigh_ids(&out, NULL, encoder, ctx, &batch), S24_ERROR_ARGUMENT);
    batch.ids = NULL;
    assert_int_equal(s24_encoder_weigh_ids(&out, NULL, encoder, ctx, &batch), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_encoder_weigh_ids(&out, NULL, encoder, ctx, NULL), S24_ERROR_ARGUMENT);
}

static void check(const tiny *t, int sums, int twice)
{
    const s24_encoder_opts opts = {
        .size = sizeof opts, .model = {.dtype = S24_F32}, .pooling = t->modules ? NULL : "splade"};
    s24_encoder *encoder = open_with(make(t), &opts);
    static found all, few;
    assert_true(s24_encoder_weighs(encoder));
    assert_int_equal(s24_encoder_width(encoder), WORDS);
    assert_int_equal(weigh(&all, encoder, ctx, WORDS), S24_OK);
    assert_int_equal(weigh(&few, encoder, ctx, 2), S24_OK);
    check_ids(encoder, &all);
    for (int i = 0; i < TEXTS; i++) {
        double want[WORDS];
        int positive = 0;
        const float *weights = all.weights + i * WORDS;
        expected(want, t, i, sums, twice);
        for (int w = 0; w < WORDS; w++)
            positive += want[w] > 0;
        assert_int_equal(all.counts[i], positive);
        for (int w = 0; w < positive; w++) {
            const double right = want[all.ids[i * WORDS + w]];
            if (!(fabs((double)weights[w] - right) < 1e-4))
                fail_msg("text %d, word %d: %g, not %g", i, (int)all.ids[i * WORDS + w],
                         (double)weights[w], right);
            assert_true(!w || weights[w] <= weights[w - 1]);
        }
        assert_int_equal(few.counts[i], positive < 2 ? positive : 2);
        assert_memory_equal(few.ids + i * 2, all.ids + i * WORDS, (size_t)few.counts[i] * 4);
        assert_memory_equal(few.weights + i * 2, weights, (size_t)few.counts[i] * 4);
    }
    s24_encoder_close(encoder);
}

static void weights_of_words(void **state)
{
    (void)state;
    check(&(tiny){.words_head = 1}, 0, 0);
    check(&(tiny){.words_head = 1, .prefix = "bert.", .activation = "relu"}, 0, 0);
    check(&(tiny){.words_head = 1, .old_norms = 1, .modules = SPLADE, .pooling = "{}"}, 0, 0);
    check(&(tiny){.words_head = 1,
                  .modules = SPLADE,
                  .pooling = "{\"pooling_strategy\": \"sum\", \"activation_function\": \"relu\"}"},
          1, 0);
    check(&(tiny){.words_head = 1,
                  .modules = SPLADE,
                  .dtype = S24_BF16,
                  .pooling = "{\"pooling_strategy\": \"max\", "
                             "\"activation_function\": \"log1p_relu\", "
                             "\"embedding_dimension\": null}"},
          0, 1);
    check(&(tiny){.words_head = 1,
                  .modules = SPLADE,
                  .pooling = "{\"pooling_strategy\": \"sum\", "
                             "\"activation_function\": \"log1p_relu\"}"},
          1, 1);
}

static void refused(const tiny *t, const s24_encoder_opts *opts, s24_status status,
                    const char *sentence)
{
    s24_encoder *encoder;
    assert_int_equal(s24_encoder_open(&encoder, ctx, make(t), opts), status);
    assert_null(encoder);
    if (!strstr(s24_ctx_error(ctx), sentence))
        fail_msg("'%s' is not in '%s'", sentence, s24_ctx_error(ctx));
}

static void folders_that_are_refused(void **state)
{
    const s24_encoder_opts splade = {.size = sizeof splade, .pooling = "splade"},
                           cut = {.size = sizeof cut, .dimensions = 3},
                           ids = {.size = sizeof ids, .ids = 1};
    const tiny whole = {.words_head = 1, .modules = SPLADE, .pooling = "{}"};
    tiny t = whole;
    (void)state;
    refused(&whole, &cut, S24_ERROR_ARGUMENT, "dimensions is 3, which is of vectors");
    refused(&whole, &ids, S24_ERROR_UNSUPPORTED, "the option ids is given");
    refused(&(tiny){.words_head = 0}, &splade, S24_ERROR_FORMAT,
            "'cls.predictions.transform.dense.weight' is missing");
    t.drop = "cls.predictions.bias";
    refused(&t, NULL, S24_ERROR_FORMAT, "'cls.predictions.bias' is missing");
    t = whole;
    t.bend = "cls.predictions.transform.LayerNorm.bias";
    refused(&t, NULL, S24_ERROR_FORMAT, "LayerNorm.bias' is [13]; [12] was expected");
    t = whole;
    t.pooling = "{\"pooling_strategy\": \"mean\"}";
    refused(&t, NULL, S24_ERROR_UNSUPPORTED, "pooling_strategy is 'mean'; max or sum was expected");
    t.pooling = "{\"activation_function\": \"gelu\"}";
    refused(&t, NULL, S24_ERROR_UNSUPPORTED,
            "activation_function is 'gelu'; relu or log1p_relu was expected");
    t = whole;
    t.modules = "[" MODULE("MLMTransformer", "") ", " MODULE(
        "SpladePooling", "1_Pooling") ", " MODULE("Normalize", "2") "]";
    refused(&t, NULL, S24_ERROR_UNSUPPORTED, "a module stands after SpladePooling");
    t.modules = "[" MODULE("MLMTransformer", "") ", " MODULE(
        "SpladePooling", "1_Pooling") ", " MODULE("SpladePooling", "1_Pooling") "]";
    refused(&t, NULL, S24_ERROR_UNSUPPORTED, "module 2 is another Pooling");
}

static void fails(s24_status status, const char *sentence)
{
    assert_int_equal(status, S24_ERROR_ARGUMENT);
    if (!strstr(s24_ctx_error(ctx), sentence))
        fail_msg("'%s' is not in '%s'", sentence, s24_ctx_error(ctx));
}

static void calls_that_are_refused(void **state)
{
    const tiny t = {.words_head = 1, .modules = SPLADE, .pooling = "{}"};
    const s24_encoder_opts mean = {.size = sizeof mean, .pooling = "mean"};
    const char *folder = make(&t);
    s24_encoder *encoder = open_with(folder, NULL), *vectors = open_with(folder, &mean), *shared;
    const s24_text text = {"a", 1};
    int32_t ids[WORDS];
    float weights[WORDS];
    int64_t counts[1];
    s24_word_weights out = {ids, weights, counts, WORDS};
    (void)state;
    fails(s24_encoder_embed(weights, NULL, encoder, ctx, &text, 1), "gives weights of words");
    fails(s24_encoder_weigh(&out, NULL, vectors, ctx, &text, 1), "the encoder gives vectors");
    fails(s24_encoder_weigh(&out, NULL, NULL, ctx, &text, 1), "encoder is NULL");
    fails(s24_encoder_weigh(NULL, NULL, encoder, ctx, &text, 1), "out is NULL");
    fails(s24_encoder_weigh(&out, NULL, encoder, ctx, NULL, 1), "texts is NULL");
    fails(s24_encoder_weigh(&out, NULL, encoder, ctx, &text, -1), "count is negative");
    out.counts = NULL;
    fails(s24_encoder_weigh(&out, NULL, encoder, ctx, &text, 1), "out has no ids, weights");
    out.counts = counts;
    out.most = 0;
    fails(s24_encoder_weigh(&out, NULL, encoder, ctx, &text, 1), "out.most is 0");
    assert_int_equal(s24_encoder_share(&shared, ctx, encoder), S24_ERROR_UNSUPPORTED);
    assert_false(s24_encoder_weighs(vectors));
    assert_false(s24_encoder_weighs(NULL));
    s24_encoder_close(vectors);
    s24_encoder_close(encoder);
}

static s24_status open_and_weigh(s24_ctx *own)
{
    static found f;
    s24_encoder *encoder;
    s24_status status = s24_encoder_open(&encoder, own, io_path("words"), NULL);
    if (status == S24_OK) status = weigh(&f, encoder, own, WORDS);
    s24_encoder_close(encoder);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    make(&(tiny){.words_head = 1, .modules = SPLADE, .pooling = "{}"});
    assert_true(count_failures(open_and_weigh) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_words), cmocka_unit_test(folders_that_are_refused),
        cmocka_unit_test(calls_that_are_refused), cmocka_unit_test(failing_allocations)};
    return cmocka_run_group_tests(tests, encoder_setup, encoder_teardown);
}
