// SPDX-License-Identifier: Apache-2.0
/* Attention over latents next to a plain one in double, whose keys and values are those of every
   head; its cache, in the dtype that it has and in bytes; and what is pruned of it by what. */
#include "support.h"

#include "nn_row_folder.h"
#include "sparse24/language.h"

enum {
    TOKENS = 23,
    WIDTH = 64,
    HEADS = 4,
    RANK = 32,
    PLAIN = 8,
    TURNED = 16,
    VALUE = 12,
    QUERY = PLAIN + TURNED,
    LAYERS = 3,
    INNER = 96
};

static const size with_queries = {"64", "4", "4", "16", "96", "32", "3", "20", NULL},
                  without = {"64", "4", "4", "16", "96", "32", "3", "null", NULL};

/* ---- the reference --------------------------------------------------------------------------- */

static const float *weight(const s24_checkpoint *c, const char *pattern, int64_t block)
{
    char bare[160], name[200];
    snprintf(bare, sizeof bare, pattern, (int)block);
    snprintf(name, sizeof name, "model.%s.weight", bare);
    const s24_tensor *tensor = s24_checkpoint_find(c, name);
    assert_non_null(tensor);
    return tensor->data;
}

static void multiply(double *y, const float *w, const double *x, int n, int k)
{
    for (int r = 0; r < n; r++) {
        y[r] = 0;
        for (int i = 0; i < k; i++)
            y[r] += (double)w[r * k + i] * x[i];
    }
}

static void norm(double *y, const double *x, const float *gamma, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + eps) * (double)gamma[i];
}

static void turn(double *head, int position)
{
    for (int i = 0; i < TURNED / 2; i++) {
        const double angle = position * pow(10000, -2.0 * i / TURNED);
        const double a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cos(angle) - b * sin(angle);
        head[2 * i + 1] = b * cos(angle) + a * sin(angle);
    }
}

typedef struct heads {
    double q[TOKENS][HEADS][QUERY], k[TOKENS][HEADS][QUERY], v[TOKENS][HEADS][VALUE];
} heads;

/* Queries, keys and values of every head of a token. */
static void project(heads *h, const s24_checkpoint *c, int64_t b, int t, const double *x,
                    int queries)
{
    double low[WIDTH], normed[WIDTH], q[HEADS * QUERY], kv[RANK + TURNED],
        expanded[HEADS * (PLAIN + VALUE)];
    if (queries) {
        multiply(low, weight(c, "layers.%d.self_attn.q_a_proj", b), x, queries, WIDTH);
        norm(normed, low, weight(c, "layers.%d.self_attn.q_a_layernorm", b), queries, 1e-6);
        multiply(q, weight(c, "layers.%d.self_attn.q_b_proj", b), normed, HEADS * QUERY, queries);
    } else {
        multiply(q, weight(c, "layers.%d.self_attn.q_proj", b), x, HEADS * QUERY, WIDTH);
    }
    multiply(kv, weight(c, "layers.%d.self_attn.kv_a_proj_with_mqa", b), x, RANK + TURNED, WIDTH);
    norm(normed, kv, weight(c, "layers.%d.self_attn.kv_a_layernorm", b), RANK, 1e-6);
    multiply(expanded, weight(c, "layers.%d.self_attn.kv_b_proj", b), normed,
             HEADS * (PLAIN + VALUE), RANK);
    turn(kv + RANK, t);
    for (int i = 0; i < HEADS; i++) {
        const double *of = expanded + i * (PLAIN + VALUE);
        turn(q + i * QUERY + PLAIN, t);
        memcpy(h->q[t][i], q + i * QUERY, sizeof h->q[t][i]);
        memcpy(h->k[t][i], of, PLAIN * sizeof *of);
        memcpy(h->k[t][i] + PLAIN, kv + RANK, TURNED * sizeof *kv);
        memcpy(h->v[t][i], of + PLAIN, sizeof h->v[t][i]);
    }
}

static void attend(double context[HEADS * VALUE], const heads *h, int t)
{
    memset(context, 0, HEADS * VALUE * sizeof *context);
    for (int i = 0; i < HEADS; i++) {
        double weights[TOKENS], sum = 0;
        for (int u = 0; u <= t; u++) {
            double score = 0;
            for (int j = 0; j < QUERY; j++)
                score += h->q[t][i][j] * h->k[u][i][j];
            sum += weights[u] = exp(score / sqrt(QUERY));
        }
        for (int u = 0; u <= t; u++)
            for (int j = 0; j < VALUE; j++)
                context[i * VALUE + j] += weights[u] / sum * h->v[u][i][j];
    }
}

/* The block's other half, of one token. */
static void feed(double *x, const s24_checkpoint *c, int64_t b)
{
    double normed[WIDTH], gate[INNER], up[INNER], down[WIDTH];
    norm(normed, x, weight(c, "layers.%d.post_attention_layernorm", b), WIDTH, 1e-5);
    multiply(gate, weight(c, "layers.%d.mlp.gate_proj", b), normed, INNER, WIDTH);
    multiply(up, weight(c, "layers.%d.mlp.up_proj", b), normed, INNER, WIDTH);
    for (int i = 0; i < INNER; i++)
        up[i] *= gate[i] / (1 + exp(-gate[i]));
    multiply(down, weight(c, "layers.%d.mlp.down_proj", b), up, WIDTH, INNER);
    for (int i = 0; i < WIDTH; i++)
        x[i] += down[i];
}

static void reference(float *states, const s24_checkpoint *c, const int32_t *ids, int queries)
{
    static double x[TOKENS][WIDTH];
    static heads h;
    double normed[WIDTH], context[HEADS * VALUE], added[WIDTH];
    const float *words = weight(c, "embed_tokens", 0);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            x[t][i] = (double)words[ids[t] * WIDTH + i];
    for (int64_t b = 0; b < LAYERS; b++) {
        for (int t = 0; t < TOKENS; t++) {
            norm(normed, x[t], weight(c, "layers.%d.input_layernorm", b), WIDTH, 1e-5);
            project(&h, c, b, t, normed, queries);
        }
        for (int t = 0; t < TOKENS; t++) {
            attend(context, &h, t);
            multiply(added, weight(c, "layers.%d.self_attn.o_proj", b), context, WIDTH,
                     HEADS * VALUE);
            for (int i = 0; i < WIDTH; i++)
                x[t][i] += added[i];
            feed(x[t], c, b);
        }
    }
    for (int t = 0; t < TOKENS; t++) {
        norm(normed, x[t], weight(c, "norm", 0), WIDTH, 1e-5);
        for (int i = 0; i < WIDTH; i++)
            states[t * WIDTH + i] = (float)normed[i];
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

typedef struct fixture {
    s24_ctx *ctx;
    s24_checkpoint *checkpoint;
    s24_model *model;
    s24_session *session;
    int32_t ids[TOKENS];
    float want[TOKENS * WIDTH];
} fixture;

static fixture open_model(const size *n, s24_dtype dtype, int threads)
{
    fixture f = {.ctx = new_ctx(NULL, threads)};
    const s24_model_opts opts = {.size = sizeof opts, .dtype = dtype};
    const char *folder = row_folder(s24i_architecture_find("youtu"), n);
    uint64_t state = 3;
    for (int t = 0; t < TOKENS; t++)
        f.ids[t] = (int32_t)(test_random(&state) % VOCABULARY);
    OK(f.ctx, s24_checkpoint_open(&f.checkpoint, f.ctx, folder));
    OK(f.ctx, s24_model_load(&f.model, f.ctx, f.checkpoint, &opts));
    OK(f.ctx, s24_session_create(&f.session, f.ctx, f.model, TOKENS));
    reference(f.want, f.checkpoint, f.ids, n == &with_queries ? 20 : 0);
    return f;
}

static void close_model(const fixture *f)
{
    s24_session_destroy(f->session);
    s24_model_destroy(f->model);
    s24_checkpoint_close(f->checkpoint);
    s24_ctx_destroy(f->ctx);
}

static void whole_pass(const fixture *f, double bound, const char *what)
{
    const int64_t offsets[] = {0, TOKENS};
    float states[TOKENS * WIDTH];
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = f->ids};
    OK(f->ctx, s24_session_forward(f->session, f->ctx, &batch, &(s24_outputs){.hidden = states}));
    near(f->want, states, TOKENS * WIDTH, bound, what);
}

/* In pieces of many tokens and of few, in the first text or after a copy in the second. */
static void cached_pass(const fixture *f, s24_dtype dtype, double bound, const char *what)
{
    static const int pieces[] = {9, 1, 2, 5, 1, 1, 4};
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 2, .tokens = 40, .dtype = dtype};
    float states[TOKENS * WIDTH];
    s24_cache *cache;
    OK(f->ctx, s24_cache_create(&cache, f->ctx, f->session, &opts));
    int64_t at = 0, text = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; at += pieces[i++]) {
        const int64_t ends[] = {0, pieces[i]};
        const s24_batch batch = {.texts = 1, .offsets = ends, .ids = f->ids + at};
        if (i == 3) {
            OK(f->ctx, s24_cache_copy(cache, f->ctx, 1, 0, at));
            text = 1;
        }
        OK(f->ctx, s24_session_extend(f->session, f->ctx, cache,
                                      &(s24_extension){.batch = &batch, .texts = &text},
                                      &(s24_outputs){.hidden = states + at * WIDTH}));
    }
    assert_int_equal(at, TOKENS);
    near(f->want, states, TOKENS * WIDTH, bound, what);
    s24_cache_destroy(cache);
}

static void next_to_plain_attention(void **state)
{
    static const size *const both[] = {&with_queries, &without};
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int threads = 1; threads <= 3; threads++) {
            fixture f = open_model(both[i], S24_F32, threads);
            whole_pass(&f, 1e-5, "f32");
            cached_pass(&f, S24_DTYPE_NONE, 1e-5, "f32 by a cache");
            cached_pass(&f, S24_I8, 3e-2, "f32 by a cache of i8");
            cached_pass(&f, S24_E4M3, 2e-1, "f32 by a cache of e4m3");
            close_model(&f);
            f = open_model(both[i], S24_BF16, threads);
            whole_pass(&f, 5e-2, "bf16");
            cached_pass(&f, S24_DTYPE_NONE, 5e-2, "bf16 by a cache");
            close_model(&f);
        }
}

/* A token leaves one row in each layer, whatever the number of heads. */
static void one_row(void **state)
{
    (void)state;
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 1, .tokens = 10};
    const fixture f = open_model(&with_queries, S24_F32, 1);
    s24_cache *cache;
    OK(f.ctx, s24_cache_create(&cache, f.ctx, f.session, &opts));
    assert_int_equal(s24_cache_bytes(cache),
                     LAYERS * 10 * (RANK + TURNED) * (int64_t)sizeof(float));
    s24_cache_destroy(cache);
    close_model(&f);
}

/* ---- pruning --------------------------------------------------------------------------------- */

/* Each layer is 2:4 after a walk that shows it its own inputs. */
static void calibrated(void **state)
{
    enum { PASSAGES = 4 };
    static const char *const layers[] = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
                                         "o_proj"};
    int32_t ids[PASSAGES * TOKENS];
    int64_t offsets[PASSAGES + 1];
    (void)state;
    const fixture f = open_model(&with_queries, S24_F32, 2);
    for (int i = 0; i < PASSAGES * TOKENS; i++)
        ids[i] = (f.ids[i % TOKENS] + i / TOKENS) % VOCABULARY;
    for (int i = 0; i <= PASSAGES; i++)
        offsets[i] = i * TOKENS;
    const s24_batch passages = {.texts = PASSAGES, .offsets = offsets, .ids = ids};
    const s24_model_prune_opts opts = {
        .size = sizeof opts, .prune = {.criterion = "wanda"}, .ids = &passages, .force = 1};
    const char *folder = io_path("wanda");
    OK(f.ctx, s24_model_prune(f.ctx, f.checkpoint, folder, &opts));
    s24_checkpoint *pruned;
    OK(f.ctx, s24_checkpoint_open(&pruned, f.ctx, folder));
    for (int64_t b = 0; b < LAYERS; b++)
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            char name[160];
            int two_four = 0;
            snprintf(name, sizeof name, "model.layers.%d.self_attn.%s.weight", (int)b, layers[i]);
            const s24_tensor *t = s24_checkpoint_find(pruned, name);
            const s24_dense dense = {(void *)(uintptr_t)t->data, S24_F32, t->shape[0], t->shape[1],
                                     0};
            OK(f.ctx, s24_check(&two_four, NULL, f.ctx, &dense));
            assert_true(two_four);
        }
    s24_checkpoint_close(pruned);
    close_model(&f);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuse(const char *model_type, const char *more, const char *sentence)
{
    const s24i_architecture *a = s24i_architecture_find(model_type);
    const char *folder = row_folder(a, &with_queries);
    char path[600], text[4096];
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24i_shape shape;
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "rb+");
    assert_non_null(file);
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    assert_true(bytes > 1 && text[bytes - 1] == '}');
    assert_int_equal(fseek(file, (long)bytes - 1, SEEK_SET), 0);
    fprintf(file, ", %s}", more);
    assert_int_equal(fclose(file), 0);
    assert_true(s24i_shape_read(&shape, ctx, a, folder) != S24_OK);
    if (!strstr(s24_ctx_error(ctx), sentence)) fail_msg("got '%s'", s24_ctx_error(ctx));
    s24_ctx_destroy(ctx);
}

/* A list of how many experts tokens take, of a config.json of nothing else that is wrong. */
static void lists(void **state)
{
    static const struct {
        const char *list, *sentence;
    } cases[] = {{"[2, 2]", NULL},
                 {"[2, 1]", "moe_topk is a list; one number from 1 to 4 for all blocks was"},
                 {"[2, 5]", "moe_topk is a list; one number from 1 to 4 for all blocks was"},
                 {"[\"2\"]", "moe_topk is a list; one number from 1 to 4 for all blocks was"},
                 {"[]", "moe_topk is an empty list"}};
    const char *folder = io_path("lists");
    char path[700];
    s24i_shape shape;
    s24_ctx *ctx = new_ctx(NULL, 1);
    (void)state;
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fprintf(file,
                "{\"model_type\": \"hunyuan_v1_moe\", \"vocab_size\": 61, \"hidden_size\": 32, "
                "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 24, "
                "\"max_position_embeddings\": 80, \"num_experts\": 4, \"moe_topk\": %s}",
                cases[i].list);
        assert_int_equal(fclose(file), 0);
        const s24_status status =
            s24i_shape_read(&shape, ctx, s24i_architecture_find("hunyuan_v1_moe"), folder);
        assert_int_equal(status == S24_OK, !cases[i].sentence);
        if (!cases[i].sentence)
            assert_int_equal(shape.mixture.used, 2);
        else if (!strstr(s24_ctx_error(ctx), cases[i].sentence))
            fail_msg("got '%s'", s24_ctx_error(ctx));
    }
    s24_ctx_destroy(ctx);
}

static void refusals(void **state)
{
    (void)state;
    refuse("deepseek_v2", "\"topk_method\": \"noaux_tc\"",
           "topk_method is 'noaux_tc'; greedy or group_limited_greedy was expected");
    refuse("deepseek_v2", "\"norm_topk_prob\": true", "norm_topk_prob is on");
    refuse("deepseek_v3", "\"n_group\": 2, \"topk_group\": 1",
           "n_group is 2, of which topk_group is 1; groups of 5 experts from which 2 can be taken "
           "were expected");
    refuse("deepseek_v3", "\"n_group\": 5, \"topk_group\": 1",
           "groups of 5 experts from which 2 can be taken were expected");
    refuse("glm4_moe_lite", "\"mlp_layer_types\": [\"dense\", \"odd\", \"sparse\"]",
           "element 1 of mlp_layer_types is odd; dense or sparse was expected");
    refuse("glm4_moe_lite", "\"mlp_layer_types\": [\"dense\"]",
           "mlp_layer_types has 1 elements; one for each of 3 blocks was expected");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(next_to_plain_attention),
                                       cmocka_unit_test(one_row), cmocka_unit_test(calibrated),
                                       cmocka_unit_test(refusals), cmocka_unit_test(lists)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
