// SPDX-License-Identifier: Apache-2.0
/*
 * Encoders on a small random BERT folder: what pooling, limits and batches make of a text
 * is compared with the same done by hand on s24_session_forward.
 */
#include "support.h"

#include <math.h>

#include "nn_failing.h"
#include "safetensors_mini.h"

#include "nn_encoder_support.h"

enum { WIDTH = 16, LAYERS = 2, INTERMEDIATE = 32, POSITIONS = 40, VOCABULARY = 34 };

/* ---- the folder ------------------------------------------------------------------------------ */

typedef struct tiny {
    mini_tensor tensors[64];
    char names[64][80];
    int count;
    uint64_t seed;
} tiny;

static void add(tiny *t, const char *name, int64_t rows, int64_t cols)
{
    const size_t elems = (size_t)(rows * (cols ? cols : 1));
    mini_tensor *tensor = &t->tensors[t->count];
    float *data = malloc(elems * sizeof *data);
    const int is_norm = strstr(name, "LayerNorm.weight") != NULL;
    for (size_t i = 0; i < elems; i++)
        data[i] = 0.4f * test_uniform(&t->seed) + (is_norm ? 1.0f : 0.0f);
    snprintf(t->names[t->count], sizeof t->names[0], "%s", name);
    *tensor = (mini_tensor){t->names[t->count], S24_F32, cols ? 2 : 1,
                            {rows, cols},       data,    elems * sizeof *data};
    t->count++;
}

static void add_linear(tiny *t, const char *name, int64_t rows, int64_t cols)
{
    char full[80];
    snprintf(full, sizeof full, "%s.weight", name);
    add(t, full, rows, cols);
    snprintf(full, sizeof full, "%s.bias", name);
    add(t, full, rows, 0);
}

static void add_layer(tiny *t, int layer)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
    } parts[] = {
        {"attention.self.query", WIDTH, WIDTH},   {"attention.self.key", WIDTH, WIDTH},
        {"attention.self.value", WIDTH, WIDTH},   {"attention.output.dense", WIDTH, WIDTH},
        {"attention.output.LayerNorm", WIDTH, 0}, {"intermediate.dense", INTERMEDIATE, WIDTH},
        {"output.dense", WIDTH, INTERMEDIATE},    {"output.LayerNorm", WIDTH, 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "encoder.layer.%d.%s", layer, parts[i].name);
        add_linear(t, name, parts[i].rows, parts[i].cols);
    }
}

static void write_weights(const char *path)
{
    tiny t = {.seed = 7};
    add(&t, "embeddings.word_embeddings.weight", VOCABULARY, WIDTH);
    add(&t, "embeddings.position_embeddings.weight", POSITIONS, WIDTH);
    add(&t, "embeddings.token_type_embeddings.weight", 2, WIDTH);
    add_linear(&t, "embeddings.LayerNorm", WIDTH, 0);
    for (int layer = 0; layer < LAYERS; layer++)
        add_layer(&t, layer);
    mini_write(path, t.tensors, t.count, NULL);
    for (int i = 0; i < t.count; i++)
        free((void *)(uintptr_t)t.tensors[i].data);
}

/* A folder with the letters as vocabulary, pooled as `mode` says ("mean_tokens" …). */
static const char *make_folder(const char *mode, int normalise)
{
    static char folder[256];
    char text[1024] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (char c = 'a'; c <= 'z'; c++)
        sprintf(text + strlen(text), "%c\n", c);
    strcat(text, ":\nA\n");
    snprintf(folder, sizeof folder, "%s/model", io_root);
    io_remove(folder);
    mkdir(folder, 0700);
    mkdir(io_path("model/1_Pooling"), 0700);
    io_write_text(io_path("model/vocab.txt"), text);
    snprintf(text, sizeof text,
             "{\"model_type\":\"bert\",\"vocab_size\":%d,\"hidden_size\":%d,"
             "\"num_hidden_layers\":%d,\"num_attention_heads\":2,\"intermediate_size\":%d,"
             "\"max_position_embeddings\":%d,\"type_vocab_size\":2}",
             VOCABULARY, WIDTH, LAYERS, INTERMEDIATE, POSITIONS);
    io_write_text(io_path("model/config.json"), text);
    snprintf(text, sizeof text,
             "[{\"type\":\"sentence_transformers.models.Transformer\",\"path\":\"\"},"
             "{\"type\":\"sentence_transformers.models.Pooling\",\"path\":\"1_Pooling\"}%s]",
             normalise ? ",{\"type\":\"sentence_transformers.models.Normalize\",\"path\":\"2\"}"
                       : "");
    io_write_text(io_path("model/modules.json"), text);
    snprintf(text, sizeof text, "{\"pooling_mode_%s\":true}", mode);
    io_write_text(io_path("model/1_Pooling/config.json"), text);
    write_weights(io_path("model/model.safetensors"));
    return folder;
}

static void assert_near(const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f))
            fail_msg("element %lld: %g and %g", (long long)i, (double)a[i], (double)b[i]);
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* [tokens, WIDTH] hidden states → [WIDTH], in f64. */
static void pool(float *out, const float *hidden, int64_t tokens, const char *mode, int normalise)
{
    double v[WIDTH], norm = 0;
    for (int c = 0; c < WIDTH; c++) {
        v[c] = hidden[c];
        for (int64_t t = 1; t < tokens; t++) {
            const double x = hidden[t * WIDTH + c];
            if (!strcmp(mode, "mean_tokens")) v[c] += x;
            if (!strcmp(mode, "max_tokens") && x > v[c]) v[c] = x;
        }
        if (!strcmp(mode, "mean_tokens")) v[c] /= (double)tokens;
        norm += v[c] * v[c];
    }
    for (int c = 0; c < WIDTH; c++)
        out[c] = (float)(normalise ? v[c] / sqrt(norm) : v[c]);
}

static void check_pooling(const char *mode, int normalise, const char *text)
{
    s24_token tokens[POSITIONS];
    int32_t ids[POSITIONS];
    int64_t offsets[2] = {0, 0};
    float hidden[POSITIONS * WIDTH], expected[WIDTH], got[WIDTH];
    const char *folder = make_folder(mode, normalise);
    s24_encoder *encoder = open_with(folder, NULL);
    s24_tokenizer *tokenizer;
    s24_session *session;
    assert_int_equal(s24_encoder_width(encoder), WIDTH);
    assert_int_equal(s24_tokenizer_load(&tokenizer, ctx, folder), S24_OK);
    assert_int_equal(s24_tokenizer_encode(tokens, &offsets[1], POSITIONS, tokenizer, ctx, text,
                                          strlen(text), NULL, 0),
                     S24_OK);
    for (int64_t i = 0; i < offsets[1]; i++)
        ids[i] = tokens[i].id;
    const s24_model *model = s24_encoder_model(encoder);
    assert_int_equal(s24_session_create(&session, ctx, model, POSITIONS), S24_OK);
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.hidden = hidden};
    assert_int_equal(s24_session_forward(session, ctx, &batch, &outputs), S24_OK);
    pool(expected, hidden, offsets[1], mode, normalise);
    assert_int_equal(embed_one(got, encoder, text), offsets[1]);
    assert_near(got, expected, WIDTH);
    s24_session_destroy(session);
    s24_tokenizer_destroy(tokenizer);
    s24_encoder_close(encoder);
}

static void test_pooling(void **state)
{
    static const char *const modes[] = {"mean_tokens", "cls_token", "max_tokens"};
    (void)state;
    for (int m = 0; m < 3; m++)
        for (int normalise = 0; normalise < 2; normalise++) {
            check_pooling(modes[m], normalise, "a b c: z");
            check_pooling(modes[m], normalise, ""); /* [CLS] [SEP] */
        }
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Letters with blanks; some are longer than the positions. */
static void make_texts(s24_text *texts, char (*room)[128], int64_t count)
{
    uint64_t seed = 3;
    for (int64_t i = 0; i < count; i++) {
        const size_t letters = test_random(&seed) % 60;
        for (size_t l = 0; l < letters; l++) {
            room[i][2 * l] = (char)('a' + test_random(&seed) % 26);
            room[i][2 * l + 1] = ' ';
        }
        texts[i] = (s24_text){room[i], 2 * letters};
    }
}

static void check_batches(const s24_encoder_opts *opts, int threads, int64_t count)
{
    s24_text *texts = malloc((size_t)count * sizeof *texts);
    char(*room)[128] = malloc((size_t)count * sizeof *room);
    float *all = malloc((size_t)(count * WIDTH) * sizeof *all), one[WIDTH];
    int64_t tokens, total = 0, few;
    make_texts(texts, room, count);
    s24_ctx_set_threads(ctx, threads);
    s24_encoder *encoder = open_with(make_folder("mean_tokens", 1), opts);
    if (s24_encoder_embed(all, &tokens, encoder, ctx, texts, count) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    for (int64_t i = 0; i < count; i += 1 + count / 100) {
        assert_int_equal(s24_encoder_embed(one, &few, encoder, ctx, &texts[i], 1), S24_OK);
        const int64_t letters = (int64_t)texts[i].bytes / 2;
        assert_int_equal(few, letters + 2 < POSITIONS ? letters + 2 : POSITIONS);
        assert_near(one, all + i * WIDTH, WIDTH);
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t letters = (int64_t)texts[i].bytes / 2;
        total += letters + 2 < POSITIONS ? letters + 2 : POSITIONS;
    }
    assert_int_equal(tokens, total);
    s24_encoder_close(encoder);
    s24_ctx_set_threads(ctx, 1);
    free(texts);
    free(room);
    free(all);
}

static void test_batches(void **state)
{
    const s24_encoder_opts small = {.size = sizeof small, .batch_tokens = 41};
    (void)state;
    check_batches(NULL, 1, 100);
    check_batches(&small, 3, 100);
    check_batches(NULL, 2, 4500); /* more than one window */
}

static void test_nothing_to_do(void **state)
{
    int64_t tokens = 7;
    (void)state;
    s24_encoder *encoder = open_with(make_folder("mean_tokens", 1), NULL);
    assert_int_equal(s24_encoder_embed(NULL, &tokens, encoder, ctx, NULL, 0), S24_OK);
    assert_int_equal(tokens, 0);
    s24_encoder_close(encoder);
    s24_encoder_close(NULL);
}

/* ---- the folder's own settings --------------------------------------------------------------- */

static void test_limits(void **state)
{
    const char *text = "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k "
                       "l m n o p q r s t u v w x y z";
    s24_encoder_opts opts = {.size = sizeof opts, .max_tokens = 12};
    float vector[WIDTH], other[WIDTH];
    (void)state;
    const char *folder = make_folder("mean_tokens", 1);
    s24_encoder *encoder = open_with(folder, NULL);
    assert_int_equal(embed_one(vector, encoder, text), POSITIONS);
    s24_encoder_close(encoder);
    io_write_text(io_path("model/sentence_bert_config.json"), "{\"max_seq_length\": 8}");
    encoder = open_with(folder, NULL);
    assert_int_equal(embed_one(vector, encoder, text), 8);
    assert_int_equal(embed_one(other, encoder, "a b c d e f"), 8);
    assert_near(vector, other, WIDTH);
    s24_encoder_close(encoder);
    encoder = open_with(folder, &opts);
    assert_int_equal(embed_one(vector, encoder, text), 12);
    s24_encoder_close(encoder);
    io_write_text(io_path("model/sentence_bert_config.json"), "{\"max_seq_length\": 512}");
    encoder = open_with(folder, NULL);
    assert_int_equal(embed_one(vector, encoder, text), POSITIONS);
    s24_encoder_close(encoder);
}

/* Since 5.4 sentence-transformers has its limit in the tokenizer's file. */
static void test_tokenizer_limits(void **state)
{
    static const struct {
        const char *said, *sentence_config;
        int limit;
    } cases[] = {{"9", "{}", 9},
                 {"1000000000000000019884624838656", "{\"max_seq_length\": null}", POSITIONS},
                 {"1e30", "{}", POSITIONS},
                 {"512", "{}", POSITIONS},
                 {"null", "{}", POSITIONS},
                 {"9", "{\"max_seq_length\": 11}", 11}};
    const char *text = "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k "
                       "l m n o p q r s t u v w x y z";
    float vector[WIDTH];
    char config[96];
    (void)state;
    const char *folder = make_folder("mean_tokens", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(config, sizeof config, "{\"model_max_length\": %s}", cases[i].said);
        io_write_text(io_path("model/tokenizer_config.json"), config);
        io_write_text(io_path("model/sentence_bert_config.json"), cases[i].sentence_config);
        s24_encoder *encoder = open_with(folder, NULL);
        assert_int_equal(embed_one(vector, encoder, text), cases[i].limit);
        s24_encoder_close(encoder);
    }
}

static void test_lower_case(void **state)
{
    float vector[WIDTH], upper[WIDTH];
    (void)state;
    const char *folder = make_folder("mean_tokens", 1);
    io_write_text(io_path("model/tokenizer_config.json"), "{\"do_lower_case\": false}");
    for (int lower = 0; lower < 2; lower++) {
        io_write_text(io_path("model/sentence_bert_config.json"),
                      lower ? "{\"do_lower_case\": true}" : "{\"do_lower_case\": false}");
        s24_encoder *encoder = open_with(folder, NULL);
        embed_one(vector, encoder, "a");
        embed_one(upper, encoder, "A");
        assert_int_equal(memcmp(vector, upper, sizeof vector) == 0, lower);
        s24_encoder_close(encoder);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void assert_no_encoder(const char *path, const s24_encoder_opts *opts, s24_status status,
                              const char *part)
{
    s24_encoder *encoder = (void *)&encoder;
    s24_status got = s24_encoder_open(&encoder, ctx, path, opts);
    if (got != status) fail_msg("%d: %s (%s)", (int)got, s24_ctx_error(ctx), part);
    assert_null(encoder);
    assert_sentence(ctx, part);
}

static void test_refused(void **state)
{
    s24_encoder_opts opts = {.size = sizeof opts};
    (void)state;
    const char *folder = make_folder("mean_tokens", 1);
    assert_no_encoder(io_path("model/model.safetensors"), NULL, S24_ERROR_ARGUMENT, "is a file");
    assert_no_encoder(io_path("nowhere"), NULL, S24_ERROR_IO, "nowhere");
    opts.max_tokens = POSITIONS + 1;
    assert_no_encoder(folder, &opts, S24_ERROR_ARGUMENT, "max_tokens is 41");
    opts.max_tokens = 1;
    assert_no_encoder(folder, &opts, S24_ERROR_ARGUMENT, "max_tokens is 1");
    opts = (s24_encoder_opts){.size = sizeof opts, .batch_tokens = -1};
    assert_no_encoder(folder, &opts, S24_ERROR_ARGUMENT, "batch_tokens is -1");
    opts = (s24_encoder_opts){.size = 3};
    assert_no_encoder(folder, &opts, S24_ERROR_ARGUMENT, "size is 3");
    opts = (s24_encoder_opts){.size = sizeof opts, .prompt = "query"};
    assert_no_encoder(folder, &opts, S24_ERROR_ARGUMENT, "no prompt \"query\"");
    io_write_text(io_path("model/config_sentence_transformers.json"),
                  "{\"prompts\":{},\"default_prompt_name\":\"x\"}");
    assert_no_encoder(folder, NULL, S24_ERROR_FORMAT, "no prompt \"x\"");
    io_write_text(io_path("model/config_sentence_transformers.json"),
                  "{\"prompts\":{\"x\":4},\"default_prompt_name\":\"x\"}");
    assert_no_encoder(folder, NULL, S24_ERROR_FORMAT, "\"x\" is not a string");
    io_remove(io_path("model/config_sentence_transformers.json"));
    io_write_text(io_path("model/sentence_bert_config.json"), "{\"max_seq_length\": 1}");
    assert_no_encoder(folder, NULL, S24_ERROR_FORMAT, "max_seq_length");
    io_remove(io_path("model/sentence_bert_config.json"));
    io_write_text(io_path("model/tokenizer_config.json"), "{\"model_max_length\": 1}");
    assert_no_encoder(folder, NULL, S24_ERROR_FORMAT, "model_max_length");
    io_write_text(io_path("model/tokenizer_config.json"), "{\"model_max_length\": \"all\"}");
    assert_no_encoder(folder, NULL, S24_ERROR_FORMAT, "model_max_length");
    io_remove(io_path("model/tokenizer_config.json"));
    io_write_text(io_path("model/vocab.txt"), "[UNK]\n[CLS]\n[SEP]\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
                                              "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n1\n2\n3\n4\n5\n6\n7\n"
                                              "8\n9\n10\n11\n12\n13\n");
    assert_no_encoder(folder, NULL, S24_ERROR_FORMAT, "ids go up to 35, but the model has 34");
    io_remove(io_path("model/vocab.txt"));
    assert_no_encoder(folder, NULL, S24_ERROR_IO, "vocab.txt");
}

static void test_bad_texts(void **state)
{
    float vector[WIDTH];
    (void)state;
    s24_encoder *encoder = open_with(make_folder("mean_tokens", 1), NULL);
    s24_text text = {NULL, 4};
    assert_int_equal(s24_encoder_embed(vector, NULL, encoder, ctx, &text, 1), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "texts[0] is NULL");
    text = (s24_text){"a", (size_t)1 << 31};
    assert_int_equal(s24_encoder_embed(vector, NULL, encoder, ctx, &text, 1), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "texts[0] has 2147483648 bytes");
    assert_int_equal(s24_encoder_embed(vector, NULL, encoder, ctx, &text, -1), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "count is negative");
    text = (s24_text){NULL, 0}; /* an empty text needs no address */
    assert_int_equal(s24_encoder_embed(vector, NULL, encoder, ctx, &text, 1), S24_OK);
    s24_encoder_close(encoder);
}

static s24_encoder *open_ids(const char *folder, int64_t max_tokens)
{
    const s24_encoder_opts opts = {.size = sizeof opts, .max_tokens = max_tokens, .ids = 1};
    return open_with(folder, &opts);
}

/* The vectors of texts whose ids are the tokenizer's, whole or cut to five: only [SEP] is not put
   back. */
static void test_ids(void **state)
{
    static const int64_t offsets[] = {0, 5, 9, 16};
    static const int32_t ids[] = {2, 5, 6, 7, 3, 2, 30, 5, 3, 2, 8, 9, 10, 11, 12, 3};
    const s24_batch batch = {.texts = 3, .offsets = offsets, .ids = ids};
    const s24_text texts[] = {{"a b c", 5}, {"z a", 3}, {"d e f g h", 9}};
    float expected[3 * WIDTH], found[3 * WIDTH];
    int64_t tokens;
    (void)state;
    const char *folder = make_folder("mean_tokens", 1);
    s24_encoder *encoder = open_with(folder, NULL);
    assert_int_equal(s24_encoder_embed(expected, NULL, encoder, ctx, texts, 3), S24_OK);
    assert_int_equal(s24_encoder_embed_ids(found, &tokens, encoder, ctx, &batch), S24_OK);
    assert_memory_equal(found, expected, sizeof found);
    assert_int_equal(s24_tokenizer_vocabulary(s24_encoder_tokenizer(encoder)), VOCABULARY - 1);
    assert_int_equal(s24_encoder_max_tokens(encoder), POSITIONS);
    s24_encoder_close(encoder);
    io_remove(io_path("model/vocab.txt"));
    encoder = open_ids(folder, 0);
    assert_null(s24_encoder_tokenizer(encoder));
    assert_int_equal(s24_encoder_embed_ids(found, &tokens, encoder, ctx, &batch), S24_OK);
    assert_int_equal(tokens, 16);
    assert_memory_equal(found, expected, sizeof found);
    s24_encoder *other;
    assert_int_equal(s24_encoder_share(&other, ctx, encoder), S24_OK);
    assert_int_equal(s24_encoder_embed_ids(found, NULL, other, ctx, &batch), S24_OK);
    assert_memory_equal(found, expected, sizeof found);
    s24_encoder_close(other);
    s24_encoder_close(encoder);
    encoder = open_ids(folder, 5);
    assert_int_equal(s24_encoder_embed_ids(found, &tokens, encoder, ctx, &batch), S24_OK);
    assert_int_equal(tokens, 14);
    assert_memory_equal(found, expected, 2 * WIDTH * sizeof *found);
    const s24_batch none = {0};
    assert_int_equal(s24_encoder_embed_ids(NULL, &tokens, encoder, ctx, &none), S24_OK);
    s24_encoder_close(encoder);
}

/* In two halves: the same vectors, whatever length comes first, and a sentence for who errs. */
static void test_two_halves(void **state)
{
    static const int64_t offsets[] = {0, 2, 7, 10}, too_long[] = {0, 50};
    static const int32_t ids[50] = {2, 3, 2, 9, 10, 11, 3, 2, 7, 3};
    const s24_batch batch = {.texts = 3, .offsets = offsets, .ids = ids}, none = {0},
                    one = {.texts = 1, .offsets = offsets, .ids = ids},
                    empty = {.texts = 0, .offsets = offsets, .ids = ids},
                    cut = {.texts = 1, .offsets = too_long, .ids = ids};
    float expected[3 * WIDTH], found[3 * WIDTH];
    int64_t texts, tokens;
    (void)state;
    const char *folder = make_folder("mean_tokens", 1);
    s24_encoder *encoder = open_ids(folder, 0);
    assert_int_equal(s24_encoder_most_begun(encoder, &texts, &tokens), 1);
    assert_true(texts >= 16 && tokens == 4096);
    assert_int_equal(s24_encoder_most_begun(encoder, NULL, NULL), 1);
    assert_int_equal(s24_encoder_most_begun(NULL, &texts, &tokens), 0);
    assert_int_equal(s24_encoder_embed_ids(expected, NULL, encoder, ctx, &batch), S24_OK);
    for (int turn = 0; turn < 3; turn++) {
        memset(found, 0, sizeof found);
        assert_int_equal(s24_encoder_begin_ids(encoder, ctx, &batch), S24_OK);
        assert_int_equal(s24_encoder_begin_ids(encoder, ctx, &one), S24_ERROR_ARGUMENT);
        assert_sentence(ctx, "1 batches are begun, as many as may be");
        assert_int_equal(s24_encoder_embed_ids(found, NULL, encoder, ctx, &one),
                         S24_ERROR_ARGUMENT);
        assert_sentence(ctx, "a batch that was begun has not been ended");
        assert_int_equal(s24_encoder_end(NULL, encoder, ctx), S24_ERROR_ARGUMENT);
        assert_int_equal(s24_encoder_end(found, encoder, ctx), S24_OK);
        assert_memory_equal(found, expected, sizeof found);
        assert_int_equal(s24_encoder_end(found, encoder, ctx), S24_ERROR_ARGUMENT);
        assert_sentence(ctx, "no batch is begun");
        assert_int_equal(s24_encoder_embed_ids(found, NULL, encoder, ctx, &one), S24_OK);
        assert_memory_equal(found, expected, WIDTH * sizeof *found);
    }
    assert_int_equal(s24_encoder_embed_ids(expected, NULL, encoder, ctx, &cut), S24_OK);
    assert_int_equal(s24_encoder_begin_ids(encoder, ctx, &cut), S24_OK);
    assert_int_equal(s24_encoder_end(found, encoder, ctx), S24_OK);
    assert_memory_equal(found, expected, WIDTH * sizeof *found);
    assert_int_equal(s24_encoder_begin_ids(encoder, ctx, &empty), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "0 texts were begun, 1 to");
    assert_int_equal(s24_encoder_begin_ids(encoder, ctx, &none), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "ids has no offsets or no ids");
    assert_int_equal(s24_encoder_begin_ids(encoder, ctx, NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_encoder_begin_ids(NULL, ctx, &one), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_encoder_end(found, NULL, ctx), S24_ERROR_ARGUMENT);
    s24_encoder_close(encoder);
}

static void test_bad_ids(void **state)
{
    static const int64_t offsets[] = {0, 2, 2}, one[] = {0, 2};
    static const int32_t ids[] = {4, VOCABULARY}, negative[] = {-1, 2};
    const struct {
        s24_batch batch;
        const char *sentence;
    } cases[] = {
        {{.texts = 2, .offsets = offsets, .ids = ids}, "text 1 has no token id"},
        {{.texts = 1, .offsets = one, .ids = ids}, "token 1 has id 34, 0 to 33 is expected"},
        {{.texts = 1, .offsets = one, .ids = negative}, "token 0 has id -1, 0 to 33 is expected"},
        {{.texts = 1, .offsets = one}, "ids has no offsets or no ids"},
    };
    const s24_text text = {"a", 1};
    float vector[2 * WIDTH];
    (void)state;
    const char *folder = make_folder("mean_tokens", 1);
    s24_encoder *encoder = open_ids(folder, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(s24_encoder_embed_ids(vector, NULL, encoder, ctx, &cases[i].batch),
                         S24_ERROR_ARGUMENT);
        assert_sentence(ctx, cases[i].sentence);
    }
    assert_int_equal(s24_encoder_embed(vector, NULL, encoder, ctx, &text, 1), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "texts were given to an encoder of token ids");
    assert_int_equal(s24_encoder_set_prompt(encoder, ctx, "q: "), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "a prompt was given to an encoder of token ids");
    s24_encoder_close(encoder);
}

static void test_interrupted(void **state)
{
    io_env env;
    s24_encoder *encoder;
    const s24_encoder_opts opts = {.size = sizeof opts, .batch_tokens = 40};
    s24_text texts[30];
    char room[30][128];
    float vectors[30 * WIDTH];
    (void)state;
    make_texts(texts, room, 30);
    io_begin(&env);
    assert_int_equal(s24_encoder_open(&encoder, env.ctx, make_folder("mean_tokens", 1), &opts),
                     S24_OK);
    env.progress_calls = 0;
    env.stop_at = 2;
    assert_int_equal(s24_encoder_embed(vectors, NULL, encoder, env.ctx, texts, 30),
                     S24_ERROR_INTERRUPTED);
    env.stop_at = 0;
    const int64_t live = env.memory.live, calls = env.memory.calls;
    assert_int_equal(s24_encoder_embed(vectors, NULL, encoder, env.ctx, texts, 30), S24_OK);
    assert_int_equal(env.memory.live, live); /* embedding allocates nothing */
    assert_int_equal(env.memory.calls, calls);
    s24_encoder_close(encoder);
    /* Without the limit all go through at once, in as many steps as one text. */
    assert_int_equal(s24_encoder_open(&encoder, env.ctx, make_folder("mean_tokens", 1), NULL),
                     S24_OK);
    for (int count = 1; count <= 30; count += 29) {
        env.progress_calls = 0;
        assert_int_equal(s24_encoder_embed(vectors, NULL, encoder, env.ctx, texts, count), S24_OK);
        assert_int_equal(env.progress_calls, 1);
    }
    s24_encoder_close(encoder);
    io_end(&env);
}

static s24_status open_and_embed(s24_ctx *failing_ctx)
{
    const s24_text text = {"a b", 3};
    float vector[WIDTH];
    s24_encoder *encoder;
    s24_status status = s24_encoder_open(&encoder, failing_ctx, io_path("model"), NULL);
    if (status != S24_OK) return status;
    s24_encoder *other = NULL;
    status = s24_encoder_share(&other, failing_ctx, encoder);
    if (status == S24_OK) status = s24_encoder_embed(vector, NULL, other, failing_ctx, &text, 1);
    s24_encoder_close(other);
    s24_encoder_close(encoder);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    make_folder("mean_tokens", 1);
    io_write_text(io_path("model/config_sentence_transformers.json"),
                  "{\"prompts\":{\"x\":\"y\"},\"default_prompt_name\":\"x\"}");
    assert_true(count_failures(open_and_embed) >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pooling),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_tokenizer_limits),
        cmocka_unit_test(test_nothing_to_do), cmocka_unit_test(test_lower_case),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_interrupted),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_ids),           cmocka_unit_test(test_bad_ids),
        cmocka_unit_test(test_two_halves),
    };
    return cmocka_run_group_tests(tests, encoder_setup, encoder_teardown);
}
