// SPDX-License-Identifier: Apache-2.0
/* Late interaction (ColBERT) of a small BERT: vectors of tokens and scores against the same in f64,
   in each kind of folder, and what is refused. */
#include "support.h"

#include <math.h>

#include "nn_failing.h"
#include "nn_tiny.h"

#include "nn_encoder_support.h"
#include "sparse24/late.h"

#define MODULE(type, path) "{\"type\": \"" type "\", \"path\": \"" path "\"}"
#define TRANSFORMER        MODULE("sentence_transformers.models.Transformer", "")
#define PYLATE             "[" TRANSFORMER ", " MODULE("pylate.models.Dense.Dense", "1_Dense") "]"
#define NATIVE(end)                                                                                \
    "[" TRANSFORMER                                                                                \
    ", " MODULE("sentence_transformers.base.modules.dense.Dense", "1_Dense") ", " MODULE(          \
        "sentence_transformers.multi_vector_encoder.modules.MultiVectorMask", "2_Mask") end "]"
#define NORMALIZE                                                                                  \
    ", " MODULE("sentence_transformers.base.modules.normalize.Normalize", "3_Normalize")

enum { TEXTS = 60, LETTERS = 7, OUT = TINY_LATE, MOST = TINY_POSITIONS, CLS = 2, SEP = 3, A = 4 };

static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\n";

/* A folder, and what its texts should become. */
typedef struct kind {
    const char *modules, *theirs, *sentence, *mask, *metadata; /* contents of files; NULL: none */
    int stanford, adds;
    int marker[2], limit[2], floor, filler, attends, normalises, by_mean;
    unsigned skipped[2]; /* bit i: token i has no vector */
} kind;

static const kind pylate = {
    .modules = PYLATE,
    .theirs = "{\"model_type\": \"ColBERT\", \"query_prefix\": \"f\", \"document_prefix\": \"g \", "
              "\"query_expansion\": {\"strategy\": \"fixed\", \"length\": 7, \"token\": \"e\"}, "
              "\"document_length\": 6, \"skiplist_words\": [\"a\", \"zebra\"]}",
    .marker = {9, 10},
    .limit = {7, 6},
    .floor = 7,
    .filler = 8,
    .normalises = 1,
    .skipped = {0, 1 << A}};
static const kind plain = {
    .modules = PYLATE,
    .theirs = "{\"query_prefix\": \"f\", \"do_query_expansion\": false, \"query_length\": 5, "
              "\"similarity_fn_name\": \"MaxSim\", \"skiplist_words\": []}",
    .marker = {9, -1},
    .adds = 1,
    .limit = {5, 9},
    .normalises = 1};
static const kind native = {
    .modules = NATIVE(NORMALIZE),
    .theirs = "{\"model_type\": \"MultiVectorEncoder\", \"similarity_fn_name\": \"meanmaxsim\"}",
    .sentence = "{\"query_length\": 8, \"query_expansion\": {\"strategy\": \"min\", \"length\": 4, "
                "\"attend\": true, \"token\": \"d\"}, \"document_length\": 7}",
    .mask = "{\"skiplist_words\": [\"b\"], \"skiplist_tasks\": [\"query\", \"document\"]}",
    .marker = {-1, -1},
    .limit = {8, 7},
    .floor = 4,
    .filler = 7,
    .attends = 1,
    .normalises = 1,
    .by_mean = 1,
    .skipped = {1 << 5, 1 << 5}};
static const kind bare = {.modules = NATIVE(""),
                          .theirs = "{\"model_type\": \"MultiVectorEncoder\"}",
                          .mask = "{}",
                          .marker = {-1, -1},
                          .limit = {9, 9}};
static const kind stanford = {
    .stanford = 1,
    .metadata = "{\"query_token_id\": \"[PAD]\", \"doc_token_id\": \"c\", \"query_maxlen\": 6, "
                "\"doc_maxlen\": 8, \"attend_to_mask_tokens\": false, \"mask_punctuation\": false}",
    .marker = {0, 6},
    .limit = {6, 8},
    .floor = 6,
    .filler = 1,
    .normalises = 1};

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (text)
        tiny_write_text(path, text);
    else
        (void)remove(path);
}

static void make_folder(const char *folder, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mkdir(path, 0700);
}

static float dense_value(int64_t i)
{
    return tiny_value("linear.weight", i);
}

static float residual_value(int64_t i)
{
    return tiny_value("residual.weight", i);
}

static void write_dense(const char *folder, const kind *k)
{
    static float weight[OUT * TINY_WIDTH], residual[OUT * TINY_WIDTH];
    char path[700];
    for (int i = 0; i < OUT * TINY_WIDTH; i++) {
        weight[i] = dense_value(i);
        residual[i] = residual_value(i);
    }
    const mini_tensor tensors[] = {{.name = "linear.weight",
                                    .dtype = S24_F32,
                                    .rank = 2,
                                    .shape = {OUT, TINY_WIDTH},
                                    .data = weight,
                                    .bytes = sizeof weight},
                                   {.name = "residual.weight",
                                    .dtype = S24_F32,
                                    .rank = 2,
                                    .shape = {OUT, TINY_WIDTH},
                                    .data = residual,
                                    .bytes = sizeof residual}};
    make_folder(folder, "1_Dense");
    snprintf(path, sizeof path, "%s/1_Dense/model.safetensors", folder);
    mini_write(path, tensors, 2, NULL);
    snprintf(path, sizeof path,
             "{\"in_features\": %d, \"out_features\": %d, \"bias\": false, \"use_residual\": %s, "
             "\"activation_function\": \"torch.nn.modules.linear.Identity\"}",
             TINY_WIDTH, OUT, k->adds ? "true" : "false");
    write_file(folder, "1_Dense/config.json", path);
}

static const char config_of_stanford[] =
    "{\"model_type\": \"bert\", \"architectures\": [\"HF_ColBERT\"], \"vocab_size\": 11, "
    "\"hidden_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
    "\"intermediate_size\": 20, \"max_position_embeddings\": 9, \"type_vocab_size\": 2, "
    "\"layer_norm_eps\": 1e-05}";

static const char *make(const kind *k, const char *name)
{
    const tiny t = {.modules = k->modules,
                    .late_head = k->stanford,
                    .config = k->stanford ? config_of_stanford : NULL};
    const char *folder = tiny_write(&t, name);
    write_file(folder, "vocab.txt", vocabulary);
    write_file(folder, "modules.json", k->modules);
    write_file(folder, "tokenizer_config.json",
               k->stanford ? "{\"mask_token\": {\"content\": \"[UNK]\"}}" : "{}");
    write_file(folder, "config_sentence_transformers.json", k->theirs);
    write_file(folder, "sentence_bert_config.json", k->sentence);
    write_file(folder, "artifact.metadata", k->metadata);
    make_folder(folder, "2_Mask");
    make_folder(folder, "3_Normalize");
    write_file(folder, "2_Mask/config.json", k->mask);
    write_file(folder, "3_Normalize/config.json", "{\"module_input_name\": \"token_embeddings\"}");
    if (!k->stanford) write_dense(folder, k);
    return folder;
}

/* "a b c": text i has i % 8 letters, from the i-th on. */
static s24_text letters(char text[32], int i)
{
    size_t bytes = 0;
    for (int l = 0; l < i % 8; l++) {
        text[bytes++] = (char)('a' + (i + l) % LETTERS);
        text[bytes++] = ' ';
    }
    return (s24_text){text, bytes};
}

typedef struct wanted {
    double vectors[MOST][OUT];
    int count;
} wanted;

static void project(double to[OUT], const double state[TINY_WIDTH], const kind *k)
{
    double sum = 0;
    for (int o = 0; o < OUT; o++) {
        to[o] = 0;
        for (int c = 0; c < TINY_WIDTH; c++) {
            const int i = o * TINY_WIDTH + c;
            to[o] +=
                state[c] * ((double)dense_value(i) + (k->adds ? (double)residual_value(i) : 0));
        }
        sum += to[o] * to[o];
    }
    for (int o = 0; o < OUT && k->normalises; o++)
        to[o] /= sqrt(sum);
}

/* What text i becomes on a side, 0: queries. */
static void expect(wanted *w, const kind *k, int i, int side)
{
    static tiny_rows x;
    int32_t ids[MOST] = {CLS};
    uint8_t mask[MOST];
    int count = 1;
    const int most = k->limit[side] - 1; /* [SEP] */
    if (k->marker[side] >= 0) ids[count++] = k->marker[side];
    for (int l = 0; l < i % 8 && count < most; l++)
        ids[count++] = A + (i + l) % LETTERS;
    ids[count++] = SEP;
    memset(mask, 1, sizeof mask);
    for (; !side && count < k->floor; count++) {
        ids[count] = k->filler;
        mask[count] = (uint8_t)k->attends;
    }
    tiny_forward(x, &(tiny){.types = 0}, count, ids, NULL, mask);
    w->count = 0;
    for (int t = 0; t < count; t++)
        if (!(k->skipped[side] >> ids[t] & 1)) project(w->vectors[w->count++], x[t], k);
}

typedef struct found {
    float vectors[TEXTS * MOST * OUT];
    int64_t offsets[TEXTS + 1];
} found;

static s24_status embed(found *f, s24_encoder *encoder, s24_ctx *own)
{
    static char room[TEXTS][32];
    s24_text texts[TEXTS];
    const s24_token_vectors out = {f->vectors, f->offsets, TEXTS * MOST};
    for (int i = 0; i < TEXTS; i++)
        texts[i] = letters(room[i], i);
    return s24_encoder_embed_tokens(&out, NULL, encoder, own, texts, TEXTS);
}

static s24_late_texts view(const found *f)
{
    return (s24_late_texts){.vectors = {.data = (void *)(uintptr_t)f->vectors,
                                        .dtype = S24_F32,
                                        .rows = TEXTS * MOST,
                                        .cols = OUT},
                            .offsets = f->offsets,
                            .texts = TEXTS};
}

static double score(const wanted *query, const wanted *document, int by_mean)
{
    double sum = 0;
    for (int q = 0; q < query->count; q++) {
        double best = -1e30;
        for (int d = 0; d < document->count; d++) {
            double dot = 0;
            for (int o = 0; o < OUT; o++)
                dot += query->vectors[q][o] * document->vectors[d][o];
            best = fmax(best, dot);
        }
        sum += best;
    }
    return by_mean ? sum / query->count : sum;
}

static void check_near(double is, double right, int i, int j)
{
    if (!(fabs(is - right) < 2e-4 * (1 + fabs(right))))
        fail_msg("text %d, %d: %g, not %g", i, j, is, right);
}

static void check_side(const found *f, const wanted *w)
{
    assert_int_equal(f->offsets[0], 0);
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(f->offsets[i + 1] - f->offsets[i], w[i].count);
        for (int v = 0; v < w[i].count; v++)
            for (int o = 0; o < OUT; o++)
                check_near((double)f->vectors[(f->offsets[i] + v) * OUT + o], w[i].vectors[v][o], i,
                           v);
    }
}

/* A head gives what the vectors' scores are: every query with every document, in one call. */
static void check_head(const char *folder, const float *scores)
{
    static char room[TEXTS][32];
    static s24_text queries[TEXTS * TEXTS], documents[TEXTS * TEXTS];
    static float logits[TEXTS * TEXTS];
    const s24_encoder_opts opts = {.size = sizeof opts, .head = 1, .batch_tokens = 64};
    s24_encoder *encoder = open_with(folder, &opts);
    assert_int_equal(s24_encoder_classes(encoder), 1);
    assert_true(s24_encoder_scores_plainly(encoder));
    assert_string_equal(s24_encoder_label(encoder, 0), "LABEL_0");
    for (int i = 0; i < TEXTS; i++)
        letters(room[i], i);
    for (int i = 0; i < TEXTS * TEXTS; i++) {
        queries[i] = letters(room[i / TEXTS], i / TEXTS);
        documents[i] = letters(room[i % TEXTS], i % TEXTS);
    }
    s24_text_pairs pairs = {TEXTS * TEXTS, queries, documents, 0};
    assert_int_equal(s24_encoder_classify(logits, NULL, encoder, ctx, &pairs), S24_OK);
    for (int i = 0; i < TEXTS * TEXTS; i++)
        check_near((double)logits[i], (double)scores[i], i / TEXTS, i % TEXTS);
    pairs = (s24_text_pairs){TEXTS, queries + (int64_t)5 * TEXTS, documents, 1};
    assert_int_equal(s24_encoder_classify(logits, NULL, encoder, ctx, &pairs), S24_OK);
    for (int i = 0; i < TEXTS; i++)
        check_near((double)logits[i], (double)scores[5 * TEXTS + i], 5, i);
    pairs.pairs = NULL;
    assert_int_equal(s24_encoder_classify(logits, NULL, encoder, ctx, &pairs), S24_ERROR_ARGUMENT);
    s24_encoder_close(encoder);
}

static void check(const kind *k)
{
    static found q, d;
    static wanted of_query[TEXTS], of_document[TEXTS];
    static float scores[TEXTS * TEXTS];
    const s24_encoder_opts opts = {.size = sizeof opts, .batch_tokens = 64};
    const char *folder = make(k, "late"), *name;
    s24_encoder *encoder = open_with(folder, &opts), *shared;
    assert_true(s24_encoder_is_late(encoder));
    assert_int_equal(s24_encoder_width(encoder), OUT);
    assert_int_equal(s24_encoder_normalises(encoder), k->normalises);
    assert_int_equal(s24_encoder_scores_by_mean(encoder), k->by_mean);
    (void)s24_encoder_prompt(encoder, &name);
    assert_string_equal(name, "document");
    assert_int_equal(s24_encoder_most_vectors(encoder), k->limit[1]);
    assert_int_equal(embed(&d, encoder, ctx), S24_OK);
    assert_int_equal(s24_encoder_choose_prompt(encoder, ctx, "query"), S24_OK);
    assert_int_equal(s24_encoder_most_vectors(encoder), k->limit[0]);
    assert_int_equal(s24_encoder_share(&shared, ctx, encoder), S24_OK);
    assert_int_equal(embed(&q, shared, ctx), S24_OK);
    s24_encoder_close(shared);
    s24_encoder_close(encoder);
    for (int i = 0; i < TEXTS; i++) {
        expect(&of_query[i], k, i, 0);
        expect(&of_document[i], k, i, 1);
    }
    check_side(&q, of_query);
    check_side(&d, of_document);
    const s24_late_texts queries = view(&q), documents = view(&d);
    assert_int_equal(s24_late_scores(scores, ctx, &queries, &documents, k->by_mean), S24_OK);
    for (int i = 0; i < TEXTS * TEXTS; i++)
        check_near((double)scores[i],
                   score(&of_query[i / TEXTS], &of_document[i % TEXTS], k->by_mean), i / TEXTS,
                   i % TEXTS);
    check_head(folder, scores);
}

static void kinds_of_folders(void **state)
{
    (void)state;
    check(&pylate);
    check(&plain);
    check(&native);
    check(&bare);
    check(&stanford);
}

static void f16_documents_and_texts_without_vectors(void **state)
{
    const float query[] = {1, 2, -1, 0.5f}, documents[] = {1, 1, 3, -1};
    const int64_t of_query[] = {0, 2}, of_documents[] = {0, 1, 1, 2};
    uint16_t half[4];
    float scores[3];
    (void)state;
    s24_late_texts q = {{.data = (void *)(uintptr_t)query, .dtype = S24_F32, .rows = 2, .cols = 2},
                        of_query,
                        1},
                   d = {{.data = half, .dtype = S24_F16, .rows = 2, .cols = 2}, of_documents, 3};
    assert_int_equal(s24_convert(half, S24_F16, documents, S24_F32, 4), S24_OK);
    assert_int_equal(s24_late_scores(scores, ctx, &q, &d, 0), S24_OK);
    const float right[] = {3 - 0.5f, 0, 1 - 3.5f};
    assert_memory_equal(scores, right, sizeof right);
    assert_int_equal(s24_late_scores(scores, ctx, &q, &d, 1), S24_OK);
    assert_true(scores[2] == right[2] / 2);
    d.vectors.cols = 1;
    assert_int_equal(s24_late_scores(scores, ctx, &q, &d, 0), S24_ERROR_SHAPE);
    d.vectors.cols = 2;
    d.vectors.rows = 1;
    assert_int_equal(s24_late_scores(scores, ctx, &q, &d, 0), S24_ERROR_SHAPE);
    d.vectors.rows = 2;
    d.vectors.dtype = S24_I8;
    assert_int_equal(s24_late_scores(scores, ctx, &q, &d, 0), S24_ERROR_DTYPE);
    q.offsets = NULL;
    assert_int_equal(s24_late_scores(scores, ctx, &q, &d, 0), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_late_scores(scores, ctx, NULL, &d, 0), S24_ERROR_ARGUMENT);
}

static void refused(const kind *k, const s24_encoder_opts *opts, s24_status status,
                    const char *sentence)
{
    s24_encoder *encoder;
    assert_int_equal(s24_encoder_open(&encoder, ctx, make(k, "late"), opts), status);
    assert_null(encoder);
    if (!strstr(s24_ctx_error(ctx), sentence))
        fail_msg("'%s' is not in '%s'", sentence, s24_ctx_error(ctx));
}

static void folders_that_are_refused(void **state)
{
    const s24_encoder_opts cut = {.size = sizeof cut, .dimensions = 3},
                           ids = {.size = sizeof ids, .ids = 1};
    kind k = pylate;
    (void)state;
    refused(&k, &cut, S24_ERROR_ARGUMENT, "dimensions is 3, which is of texts' vectors");
    refused(&k, &ids, S24_ERROR_UNSUPPORTED, "the option ids is given");
    k.theirs = "{\"query_prefix\": \"f\"}";
    refused(&k, NULL, S24_ERROR_FORMAT, "queries are filled up with a mask");
    k.theirs = "{\"query_prefix\": \"f\", \"skiplist_words\": [1], \"do_query_expansion\": false}";
    refused(&k, NULL, S24_ERROR_FORMAT, "skiplist_words has what is no string");
    k.theirs =
        "{\"query_expansion\": {\"strategy\": \"most\", \"length\": 4}, \"query_length\": 4}";
    refused(&k, NULL, S24_ERROR_UNSUPPORTED, "strategy is 'most'; fixed or min was expected");
    k.theirs = "{\"query_expansion\": {\"strategy\": \"fixed\", \"length\": 10, \"token\": \"a\"}, "
               "\"query_length\": 4}";
    refused(&k, NULL, S24_ERROR_FORMAT, "filled up to 10 tokens, but the model has 9 positions");
    k = native;
    k.mask = "{\"keep_only_token_ids\": [3]}";
    refused(&k, NULL, S24_ERROR_UNSUPPORTED, "keep_only_token_ids is of images");
    k = native;
    k.modules = "[" TRANSFORMER ", " MODULE(
        "sentence_transformers.multi_vector_encoder.modules.HierarchicalTokenPooling", "1") "]";
    refused(&k, NULL, S24_ERROR_UNSUPPORTED, "HierarchicalTokenPooling' is not supported");
}

static void fails(s24_status status, const char *sentence)
{
    assert_int_equal(status, S24_ERROR_ARGUMENT);
    if (!strstr(s24_ctx_error(ctx), sentence))
        fail_msg("'%s' is not in '%s'", sentence, s24_ctx_error(ctx));
}

static void calls_that_are_refused(void **state)
{
    const char *folder = make(&pylate, "late");
    const s24_encoder_opts mean = {.size = sizeof mean, .pooling = "mean"},
                           head = {.size = sizeof head, .head = 1};
    s24_encoder *encoder = open_with(folder, NULL), *scores = open_with(folder, &head), *other;
    const s24_text text = {"b", 1};
    float vectors[MOST * OUT];
    int64_t offsets[2];
    s24_token_vectors out = {vectors, offsets, 3};
    (void)state;
    fails(s24_encoder_embed(vectors, NULL, encoder, ctx, &text, 1), "a vector for each token");
    fails(s24_encoder_embed_tokens(&out, NULL, encoder, ctx, &text, 1), "out.room is 3");
    fails(s24_encoder_embed_tokens(&out, NULL, scores, ctx, &text, 1), "gives scores");
    fails(s24_encoder_embed_tokens(&out, NULL, NULL, ctx, &text, 1), "encoder is NULL");
    fails(s24_encoder_embed_tokens(NULL, NULL, encoder, ctx, &text, 1), "out is NULL");
    fails(s24_encoder_embed_tokens(&out, NULL, encoder, ctx, NULL, 1), "texts is NULL");
    fails(s24_encoder_embed_tokens(&out, NULL, encoder, ctx, &text, -1), "count is negative");
    fails(s24_encoder_choose_prompt(encoder, ctx, "other"), "there is no prompt \"other\"");
    assert_int_equal(s24_encoder_embed_tokens(&out, NULL, encoder, ctx, &text, 0), S24_OK);
    other = open_with(folder, &mean); /* of texts, as it was asked for */
    assert_false(s24_encoder_is_late(other));
    s24_encoder_close(other);
    assert_false(s24_encoder_is_late(NULL));
    assert_int_equal(s24_encoder_most_vectors(NULL), 0);
    s24_encoder_close(scores);
    s24_encoder_close(encoder);
}

static s24_status open_and_score(s24_ctx *own)
{
    const s24_encoder_opts head = {.size = sizeof head, .head = 1};
    const s24_text text = {"b", 1};
    const s24_text_pairs pairs = {1, &text, &text, 1};
    float logit;
    s24_encoder *encoder;
    s24_status status = s24_encoder_open(&encoder, own, io_path("late"), &head);
    if (status == S24_OK) status = s24_encoder_classify(&logit, NULL, encoder, own, &pairs);
    s24_encoder_close(encoder);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    make(&pylate, "late");
    assert_true(count_failures(open_and_score) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_of_folders),
                                       cmocka_unit_test(f16_documents_and_texts_without_vectors),
                                       cmocka_unit_test(folders_that_are_refused),
                                       cmocka_unit_test(calls_that_are_refused),
                                       cmocka_unit_test(failing_allocations)};
    return cmocka_run_group_tests(tests, encoder_setup, encoder_teardown);
}
