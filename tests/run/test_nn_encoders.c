// SPDX-License-Identifier: Apache-2.0
/*
 * Encoders of texts that no golden vectors are of, with random weights, against a model in double
 * that is written here for all of them: gates before and after the rows that they multiply, turned
 * positions, scores that fall or grow by the tokens' distance, norms before and after the layers.
 * Tensors are named by the rows. 2:4 next to the same weights dense, and pruned on texts.
 */
#include "support.h"

#include <math.h>

#include "model/model.h"
#include "nn_language_pass.h"
#include "sparse24/train.h"

enum { W = 48, HEADS = 6, D = 8, OUTER = 40, BLOCKS = 2, WORDS = 53, TYPES = 2, TOKENS = 30 };

typedef struct kind {
    const char *name, *type, *more;
    int before, mean, joint, types; /* norms before the layers, of the mean; one layer; types */
    int gate;                       /* 1: a layer, 2: joint, 3: joint and last */
    int biases;                     /* 1: all, 2: but those before the gate */
    int variant;                    /* of the row */
    char act;                       /* g: GELU, t: with tanh, r: ReLU */
    double theta, slower;           /* of positions that turn; 0: none */
    int slopes, buckets, farthest;
    int positions;
    int span; /* of a table of distances that queries and keys are multiplied with */
    double eps;
} kind;

#define BERT_KEYS                                                                                  \
    ", \"hidden_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 6, "                \
    "\"intermediate_size\": 40, \"max_position_embeddings\": 64, \"layer_norm_eps\": 1e-5"
#define T5_KEYS                                                                                    \
    ", \"d_model\": 48, \"num_layers\": 2, \"num_heads\": 6, \"d_kv\": 8, \"d_ff\": 40, "          \
    "\"layer_norm_epsilon\": 1e-5"

static const kind kinds[] = {
    {"gte", "gte", BERT_KEYS ", \"rope_theta\": 500", .mean = 1, .joint = 1, .types = TYPES,
     .gate = 3, .biases = 2, .act = 'g', .theta = 500},
    {"gte that scales", "new",
     BERT_KEYS ", \"type_vocab_size\": 0, \"rope_theta\": 100, "
               "\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 4}",
     .mean = 1, .joint = 1, .gate = 3, .biases = 2, .act = 'g', .theta = 400,
     .slower = 1.4142135623730951},
    {"jina 2", "bert",
     BERT_KEYS ", \"position_embedding_type\": \"alibi\", \"feed_forward_type\": \"geglu\"",
     .variant = 1, .mean = 1, .types = TYPES, .gate = 2, .biases = 2, .act = 'g', .slopes = 1},
    {"jina 3", "jina_embeddings_v3", BERT_KEYS ", \"hidden_act\": \"relu\"", .mean = 1, .joint = 1,
     .types = TYPES, .biases = 1, .act = 'r', .theta = 20000},
    {"t5", "t5",
     T5_KEYS ", \"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 16",
     .before = 1, .act = 'r', .buckets = 8, .farthest = 16},
    {"gated t5", "t5", T5_KEYS ", \"feed_forward_proj\": \"gated-gelu\"", .variant = 1, .before = 1,
     .gate = 1, .act = 't', .buckets = 32, .farthest = 128},
    {"deberta", "deberta-v2",
     BERT_KEYS ", \"relative_attention\": true, \"share_att_key\": true, \"type_vocab_size\": 0, "
               "\"pos_att_type\": \"p2c|c2p\", \"norm_rel_ebd\": \"layer_norm\", "
               "\"position_biased_input\": false, \"position_buckets\": 8, "
               "\"max_relative_positions\": 20",
     .mean = 1, .biases = 1, .act = 'g', .span = 8, .farthest = 20},
    {"albert", "albert", BERT_KEYS ", \"hidden_act\": \"gelu\", \"embedding_size\": 48", .mean = 1,
     .types = TYPES, .positions = 64, .biases = 1, .act = 'g'},
    {"mt5", "mt5", T5_KEYS, .before = 1, .gate = 1, .act = 't', .buckets = 32, .farthest = 128},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const s24i_architecture *row_of(const kind *k)
{
    const s24i_architecture *a = s24i_architecture_find(k->type);
    return k->variant ? a->variant : a;
}

/* ---- folders --------------------------------------------------------------------------------- */

static void add(lm_writer *w, const char *pattern, int b, int64_t rows, int64_t cols, int bias)
{
    char name[S24I_NAME_BYTES];
    const int is_whole = s24i_ends_with(pattern, ".weight");
    s24i_tensor_name(name, pattern, b, is_whole ? "" : ".weight");
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->names[i], name)) return; /* of all blocks */
    lm_add(w, name, rows, cols);
    if (strstr(pattern, "LayerNorm") || strstr(pattern, "ln"))
        for (int64_t i = 0; !cols && i < rows; i++)
            ((float *)(uintptr_t)w->tensors[w->count - 1].data)[i] += 1.0f;
    if (!bias) return;
    s24i_tensor_name(name, pattern, b, ".bias");
    lm_add(w, name, rows, 0);
}

static void write_block(lm_writer *w, const kind *k, const s24i_architecture *a, int b)
{
    const int gated = k->gate >= 2 ? 2 : 1;
    add(w, a->attention_norm, b, W, 0, k->mean);
    add(w, a->output_norm, b, W, 0, k->mean);
    add(w, a->slots[S24I_QUERY], b, k->joint ? 3 * W : W, W, k->biases > 0);
    if (!k->joint) add(w, a->slots[S24I_KEY], b, W, W, k->biases > 0);
    if (!k->joint) add(w, a->slots[S24I_VALUE], b, W, W, k->biases > 0);
    add(w, a->slots[S24I_ATTENTION], b, W, W, k->biases > 0);
    if (k->gate == 1) add(w, a->slots[S24I_GATE], b, OUTER, W, 0);
    add(w, a->slots[S24I_INTERMEDIATE], b, gated * OUTER, W, k->biases == 1);
    add(w, a->slots[S24I_OUTPUT], b, W, OUTER, k->biases > 0);
}

static const char *write_folder(const kind *k)
{
    char path[600];
    const char *folder = io_path("model");
    const s24i_architecture *a = row_of(k);
    lm_writer *w = calloc(1, sizeof *w);
    w->state = 7;
    io_remove(folder);
    mkdir(folder, 0700);
    add(w, a->words, 0, WORDS, W, 0);
    if (k->types) add(w, a->types, 0, k->types, W, 0);
    if (k->positions) add(w, a->positions, 0, k->positions, W, 0);
    if (a->project) add(w, a->project, 0, W, W, 1);
    if (a->embedding_norm) add(w, a->embedding_norm, 0, W, 0, 1);
    if (k->buckets) add(w, a->relative, 0, k->buckets, HEADS, 0);
    if (k->span) add(w, a->apart, 0, 2 * k->span, W, 0);
    if (k->span) add(w, a->apart_norm, 0, W, 0, 1);
    for (int b = 0; b < BLOCKS; b++)
        write_block(w, k, a, b);
    if (a->final_norm) add(w, a->final_norm, 0, W, 0, 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "{\"model_type\": \"%s\", \"vocab_size\": %d%s}", k->type, WORDS, k->more);
    assert_int_equal(fclose(f), 0);
    return folder;
}

/* ---- the model in double --------------------------------------------------------------------- */

typedef struct plain {
    const kind *k;
    const s24i_architecture *a;
    mini_file file;
} plain;

static const float *find(const plain *p, const char *pattern, int b, const char *suffix)
{
    char name[S24I_NAME_BYTES];
    s24i_tensor_name(name, pattern, b, s24i_ends_with(pattern, ".weight") ? "" : suffix);
    return mini_get(&p->file, name).data;
}

static void multiply(double *y, const plain *p, s24i_slot slot, int b, const double *x)
{
    char name[S24I_NAME_BYTES];
    const int of_outer = slot == S24I_INTERMEDIATE || slot == S24I_GATE;
    const int biased = of_outer ? p->k->biases == 1 : p->k->biases > 0;
    s24i_tensor_name(name, p->a->slots[slot], b, ".weight");
    const mini_tensor w = mini_get(&p->file, name);
    const float *rows = w.data, *bias = biased ? find(p, p->a->slots[slot], b, ".bias") : NULL;
    for (int64_t r = 0; r < w.shape[0]; r++) {
        y[r] = bias ? (double)bias[r] : 0;
        for (int64_t i = 0; i < w.shape[1]; i++)
            y[r] += (double)rows[r * w.shape[1] + i] * x[i];
    }
}

static void norm(double *y, const plain *p, const char *pattern, int b, const double *x)
{
    const float *weight = find(p, pattern, b, ".weight");
    const float *beta = p->k->mean ? find(p, pattern, b, ".bias") : NULL;
    double mean = 0, square = 0, from[W];
    memcpy(from, x, sizeof from);
    for (int i = 0; p->k->mean && i < W; i++)
        mean += from[i] / W;
    for (int i = 0; i < W; i++)
        square += (from[i] - mean) * (from[i] - mean) / W;
    for (int i = 0; i < W; i++)
        y[i] = (from[i] - mean) / sqrt(square + 1e-5) * (double)weight[i] +
               (beta ? (double)beta[i] : 0);
}

static void turn(double *x, const kind *k, int position)
{
    for (int i = 0; k->theta > 0 && i < D / 2; i++) {
        const double slower = k->slower > 0 ? k->slower : 1;
        const double angle = position * pow(k->theta, -2.0 * i / D) / slower;
        const double u = x[i], v = x[i + D / 2];
        x[i] = u * cos(angle) - v * sin(angle);
        x[i + D / 2] = v * cos(angle) + u * sin(angle);
    }
}

typedef struct token {
    double q[W], k[W], v[W];
} token;

static void project(token *t, const plain *p, int b, const double *x, int position)
{
    if (p->k->joint) {
        multiply(t->q, p, S24I_QUERY, b, x);
    } else {
        multiply(t->q, p, S24I_QUERY, b, x);
        multiply(t->k, p, S24I_KEY, b, x);
        multiply(t->v, p, S24I_VALUE, b, x);
    }
    for (int h = 0; h < HEADS; h++) {
        turn(t->q + h * D, p->k, position);
        turn(t->k + h * D, p->k, position);
    }
}

/* As T5's paper has it, and the slopes of six heads as ALiBi's: of four, then every second of
   eight. */
static double grows(const plain *p, int by, int h)
{
    static const double slopes[HEADS] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
    const kind *k = p->k;
    const int apart = abs(by);
    if (k->slopes) return -slopes[h] * apart;
    if (!k->buckets) return 0;
    const int side = k->buckets / 2, near = side / 2;
    int bucket = apart;
    if (apart >= near)
        bucket = near +
                 (int)(log((double)apart / near) / log((double)k->farthest / near) * (side - near) +
                       1e-9);
    if (bucket >= side) bucket = side - 1;
    return (double)find(p, p->a->relative, 0, "")[(bucket + (by > 0 ? side : 0)) * HEADS + h];
}

/* What a query's and a key's products with the rows of their distance are, as DeBERTa's paper has
   it: so many near distances one by one, then by their logarithm. */
static double compares(const plain *p, const token *rows, const token *query, const token *key,
                       int by, int h)
{
    const int span = p->k->span, near = span / 2, apart = abs(by);
    double sum = 0;
    int bucket = apart;
    if (!span) return 0;
    if (apart > near)
        bucket = near + (int)ceil(log((double)apart / near) /
                                  log((double)(p->k->farthest - 1) / near) * (near - 1));
    int row = span + (by > 0 ? bucket : -bucket);
    row = row < 0 ? 0 : row < 2 * span ? row : 2 * span - 1;
    for (int i = h * D; i < (h + 1) * D; i++)
        sum += query->q[i] * rows[row].k[i] + key->k[i] * rows[row].q[i];
    return sum;
}

/* Queries and keys that a block makes of its table's rows. */
static void make_rows(token *rows, const plain *p, int b)
{
    for (int r = 0; r < 2 * p->k->span; r++) {
        double row[W];
        for (int i = 0; i < W; i++)
            row[i] = (double)find(p, p->a->apart, 0, "")[r * W + i];
        norm(row, p, p->a->apart_norm, 0, row);
        project(&rows[r], p, b, row, 0);
    }
}

static void attend(double *y, const plain *p, int b, const token *tokens, int count, int t)
{
    const double scale = p->k->buckets ? 1 : 1 / sqrt(p->k->span ? 3 * D : D);
    const token *rows = tokens + count;
    double context[W] = {0};
    for (int h = 0; h < HEADS; h++) {
        double weights[TOKENS], sum = 0;
        for (int s = 0; s < count; s++) {
            double x = 0;
            for (int i = h * D; i < (h + 1) * D; i++)
                x += tokens[t].q[i] * tokens[s].k[i] * scale;
            x += scale * compares(p, rows, &tokens[t], &tokens[s], t - s, h);
            weights[s] = exp(x + grows(p, s - t, h));
            sum += weights[s];
        }
        for (int s = 0; s < count; s++)
            for (int i = h * D; i < (h + 1) * D; i++)
                context[i] += weights[s] / sum * tokens[s].v[i];
    }
    multiply(y, p, S24I_ATTENTION, b, context);
}

static double activate(const kind *k, double x)
{
    if (k->act == 'r') return x > 0 ? x : 0;
    if (k->act == 'g') return x / 2 * (1 + erf(x / sqrt(2)));
    return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void outer(double *y, const plain *p, int b, const double *x)
{
    const kind *k = p->k;
    double up[2 * OUTER], gate[OUTER], inner[OUTER];
    multiply(up, p, S24I_INTERMEDIATE, b, x);
    if (k->gate == 1) multiply(gate, p, S24I_GATE, b, x);
    for (int i = 0; i < OUTER; i++) {
        const double first = k->gate == 1 ? gate[i] : up[i];
        const double second = k->gate == 1 ? up[i] : up[OUTER + i];
        inner[i] = !k->gate       ? activate(k, first)
                   : k->gate == 3 ? first * activate(k, second)
                                  : activate(k, first) * second;
    }
    multiply(y, p, S24I_OUTPUT, b, inner);
}

static void run_block(double (*x)[W], const plain *p, int b, int count)
{
    token *tokens = calloc((size_t)(count + 2 * p->k->span), sizeof *tokens);
    double read[W], made[W];
    make_rows(tokens + count, p, b);
    for (int t = 0; t < count; t++) {
        memcpy(read, x[t], sizeof read);
        if (p->k->before) norm(read, p, p->a->attention_norm, b, x[t]);
        project(&tokens[t], p, b, read, t);
    }
    for (int t = 0; t < count; t++) {
        attend(made, p, b, tokens, count, t);
        for (int i = 0; i < W; i++)
            x[t][i] += made[i];
        if (!p->k->before) norm(x[t], p, p->a->attention_norm, b, x[t]);
        memcpy(read, x[t], sizeof read);
        if (p->k->before) norm(read, p, p->a->output_norm, b, x[t]);
        outer(made, p, b, read);
        for (int i = 0; i < W; i++)
            x[t][i] += made[i];
        if (!p->k->before) norm(x[t], p, p->a->output_norm, b, x[t]);
    }
    free(tokens);
}

/* The layer between embeddings and blocks. */
static void widen(double x[W], const plain *p)
{
    const float *w = find(p, p->a->project, 0, ".weight");
    const float *bias = find(p, p->a->project, 0, ".bias");
    double from[W];
    memcpy(from, x, sizeof from);
    for (int r = 0; r < W; r++) {
        x[r] = (double)bias[r];
        for (int i = 0; i < W; i++)
            x[r] += (double)w[r * W + i] * from[i];
    }
}

static void run_plain(float *states, const kind *k, const char *folder, const int32_t *ids)
{
    char path[600];
    double(*x)[W] = calloc(TOKENS, sizeof *x);
    plain p = {.k = k, .a = row_of(k)};
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    p.file = mini_open(path);
    const float *words = find(&p, p.a->words, 0, "");
    const float *types = k->types ? find(&p, p.a->types, 0, "") : NULL;
    const float *positions = k->positions ? find(&p, p.a->positions, 0, "") : NULL;
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < W; i++)
            x[t][i] = (double)words[ids[t] * W + i] + (types ? (double)types[i] : 0);
        for (int i = 0; positions && i < W; i++)
            x[t][i] += (double)positions[t * W + i];
        if (p.a->embedding_norm) norm(x[t], &p, p.a->embedding_norm, 0, x[t]);
        if (p.a->project) widen(x[t], &p);
    }
    for (int b = 0; b < BLOCKS; b++)
        run_block(x, &p, b, TOKENS);
    for (int t = 0; t < TOKENS; t++) {
        if (p.a->final_norm) norm(x[t], &p, p.a->final_norm, 0, x[t]);
        for (int i = 0; i < W; i++)
            states[t * W + i] = (float)x[t][i];
    }
    mini_close(&p.file);
    free(x);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static void fill_ids(int32_t ids[TOKENS])
{
    uint64_t state = 9;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)(test_random(&state) % WORDS);
}

/* The states of the text, next to a shorter one before it whose tokens are not looked at. */
static void pass(float *states, s24_ctx *ctx, const s24_model *model, const int32_t *ids)
{
    enum { BEFORE = 7 };
    const int64_t offsets[] = {0, BEFORE, BEFORE + TOKENS};
    float *both = calloc((BEFORE + TOKENS) * W, sizeof *both);
    int32_t all[BEFORE + TOKENS];
    s24_session *session;
    memcpy(all, ids, BEFORE * sizeof *all);
    memcpy(all + BEFORE, ids, TOKENS * sizeof *all);
    const s24_batch batch = {.texts = 2, .offsets = offsets, .ids = all};
    const s24_outputs outputs = {.hidden = both};
    OK(ctx, s24_session_create(&session, ctx, model, BEFORE + TOKENS));
    OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    s24_session_destroy(session);
    memcpy(states, both + BEFORE * W, TOKENS * W * sizeof *states);
    free(both);
}

static void as_in_double(void **state)
{
    static const struct {
        s24_dtype dtype;
        double bound;
    } dtypes[] = {{S24_F32, 2e-5}, {S24_BF16, 8e-2}};
    float *want = calloc(TOKENS * W, sizeof *want), *got = calloc(TOKENS * W, sizeof *got);
    int32_t ids[TOKENS];
    (void)state;
    fill_ids(ids);
    for (int i = 0; i < KINDS; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const char *folder = write_folder(&kinds[i]);
            const s24_model_opts opts = {.size = sizeof opts, .dtype = dtypes[d].dtype};
            s24_ctx *ctx = new_ctx(NULL, 1 + i % 2);
            s24_model *model;
            OK(ctx, load(&model, ctx, folder, &opts));
            run_plain(want, &kinds[i], folder, ids);
            pass(got, ctx, model, ids);
            near(want, got, TOKENS * W, dtypes[d].bound, kinds[i].name);
            s24_model_destroy(model);
            s24_ctx_destroy(ctx);
        }
    free(want);
    free(got);
}

/* 2:4 by magnitude runs as the same weights dense, and so does what texts chose. */
static void two_four(void **state)
{
    static const char *const criteria[] = {"magnitude", "wanda", "sparsegpt"};
    float *want = calloc(TOKENS * W, sizeof *want), *got = calloc(TOKENS * W, sizeof *got);
    int32_t ids[TOKENS];
    const int64_t offsets[] = {0, TOKENS};
    const s24_batch texts = {.texts = 1, .offsets = offsets, .ids = ids};
    (void)state;
    fill_ids(ids);
    for (int i = 0; i < KINDS * 3; i++) {
        const kind *k = &kinds[i / 3];
        s24_ctx *ctx = new_ctx(NULL, 2);
        const s24_model_prune_opts how = {
            .size = sizeof how,
            .prune = {.size = sizeof how.prune, .criterion = criteria[i % 3]},
            .packed = 1,
            .ids = i % 3 ? &texts : NULL};
        s24_checkpoint *dense;
        const char *folder = io_path("pruned");
        OK(ctx, s24_checkpoint_open(&dense, ctx, write_folder(k)));
        io_remove(folder);
        OK(ctx, s24_model_prune(ctx, dense, folder, &how));
        s24_checkpoint_close(dense);
        const s24_model_opts opts[] = {{.size = sizeof *opts, .dense = 1},
                                       {.size = sizeof *opts, .all_sparse = 1}};
        for (int sparse = 0; sparse < 2; sparse++) {
            s24_model *model;
            s24_model_info info;
            OK(ctx, load(&model, ctx, folder, &opts[sparse]));
            s24_model_describe(&info, model);
            assert_int_equal(info.sparse_layers, sparse ? info.linear_layers : 0);
            pass(sparse ? got : want, ctx, model, ids);
            s24_model_destroy(model);
        }
        near(want, got, TOKENS * W, 1e-5, k->name);
        s24_ctx_destroy(ctx);
    }
    free(want);
    free(got);
}

/* Training runs the same. */
static void trained(void **state)
{
    float *want = calloc(TOKENS * W, sizeof *want);
    float *got = calloc((BLOCKS + 1) * TOKENS * W, sizeof *got);
    const int64_t offsets[] = {0, TOKENS};
    int32_t ids[TOKENS];
    (void)state;
    fill_ids(ids);
    for (int i = 0; i < KINDS; i++) {
        s24_ctx *ctx = new_ctx(NULL, 2);
        const char *folder = write_folder(&kinds[i]);
        const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = TOKENS, .train = 1};
        const s24_examples examples = {.texts = {.texts = 1, .offsets = offsets, .ids = ids}};
        const s24_pass_outputs outputs = {.states = got};
        s24_transformer *transformer;
        s24_checkpoint *checkpoint;
        OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
        OK(ctx, s24_transformer_load(&transformer, ctx, checkpoint, &opts));
        OK(ctx, s24_transformer_forward(transformer, ctx, &examples, &outputs));
        run_plain(want, &kinds[i], folder, ids);
        near(want, got + BLOCKS * TOKENS * W, TOKENS * W, 2e-5, kinds[i].name);
        s24_transformer_destroy(transformer);
        s24_checkpoint_close(checkpoint);
        s24_ctx_destroy(ctx);
    }
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_in_double), cmocka_unit_test(two_four),
                                       cmocka_unit_test(trained)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
