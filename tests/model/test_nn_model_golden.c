// SPDX-License-Identifier: Apache-2.0
/* Encoders against the hidden states and logits of transformers, dense and 2:4. */
#include "support.h"

#include <math.h>

#include "nn_load.h"
#include "run/session.h"
#include "safetensors_mini.h"

static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512bf16"};
enum { LEVELS = sizeof levels / sizeof *levels };

static s24_ctx *new_ctx(int level, int threads)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(levels[level])};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

enum { TEXTS = 3, LENGTH = 40, TOKENS = TEXTS * LENGTH, WIDTH = 64, LAYERS = 3 };
enum { BLOCK_LAYERS = 6, EVERY = (1 << S24I_SLOTS) - 1 - (1 << S24I_LATENT) };

typedef struct golden {
    char folder[512];
    mini_file io;
    int64_t offsets[TEXTS + 1];
    int32_t ids[TOKENS], types[TOKENS];
    uint8_t mask[TOKENS];
    s24_batch batch;
} golden;

static int golden_open(golden *g)
{
    char path[512];
    if (!golden_path(g->folder, sizeof g->folder, "models/bert-qa")) return 0;
    golden_path(path, sizeof path, "models/bert-qa/io.safetensors");
    g->io = mini_open(path);
    const int64_t *ids = mini_get(&g->io, "input.input_ids").data;
    const int64_t *types = mini_get(&g->io, "input.token_type_ids").data;
    const int64_t *mask = mini_get(&g->io, "input.attention_mask").data;
    for (int t = 0; t < TOKENS; t++) {
        g->ids[t] = (int32_t)ids[t];
        g->types[t] = (int32_t)types[t];
        g->mask[t] = (uint8_t)mask[t];
    }
    for (int b = 0; b <= TEXTS; b++)
        g->offsets[b] = b * LENGTH;
    g->batch = (s24_batch){
        .texts = TEXTS, .offsets = g->offsets, .ids = g->ids, .types = g->types, .mask = g->mask};
    return 1;
}

typedef struct results {
    float hidden[TOKENS * WIDTH], blocks[(LAYERS + 1) * TOKENS * WIDTH];
    float embeddings[TEXTS * WIDTH], starts[TOKENS], ends[TOKENS];
} results;

static void run_golden(results *r, s24_ctx *ctx, const s24_model *model, const golden *g)
{
    s24_session *session;
    const s24_outputs outputs = {.hidden = r->hidden,
                                 .blocks = r->blocks,
                                 .embeddings = r->embeddings,
                                 .start_logits = r->starts,
                                 .end_logits = r->ends};
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    OK(ctx, s24_session_forward(session, ctx, &g->batch, &outputs));
    s24_session_destroy(session);
}

/* Within `bound` of the expected tensor's largest magnitude. */
static void assert_near(const float *expected, const float *got, int64_t count, double bound,
                        const char *what)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabs(expected[i]) > most ? fabs(expected[i]) : most;
    assert_true(most > 0);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)expected[i] - got[i]) <= bound * most))
            fail_msg("%s at %lld: expected %g, got %g, largest %g", what, (long long)i,
                     (double)expected[i], (double)got[i], most);
}

static void golden_states(void **state)
{
    (void)state;
    golden g;
    if (!golden_open(&g)) SKIP_WITHOUT(g.folder);
    results *r = malloc(sizeof *r);
    for (int level = 0; level < LEVELS; level++)
        for (int threads = 1; threads <= 2; threads++) {
            s24_ctx *ctx = new_ctx(level, threads);
            s24_model *model;
            OK(ctx, load(&model, ctx, g.folder, NULL));
            run_golden(r, ctx, model, &g);
            for (int b = 0; b <= LAYERS; b++) {
                char name[16];
                snprintf(name, sizeof name, "hidden.%d", b);
                assert_near(mini_get(&g.io, name).data, r->blocks + b * TOKENS * WIDTH,
                            TOKENS * WIDTH, 1e-4, name);
            }
            assert_memory_equal(r->hidden, r->blocks + LAYERS * TOKENS * WIDTH, sizeof r->hidden);
            assert_near(mini_get(&g.io, "output.start_logits").data, r->starts, TOKENS, 1e-4,
                        "start");
            assert_near(mini_get(&g.io, "output.end_logits").data, r->ends, TOKENS, 1e-4, "end");
            s24_model_destroy(model);
            s24_ctx_destroy(ctx);
        }
    mini_close(&g.io);
    free(r);
}

/* Every linear layer pruned by magnitude: of the slots in `plans` as 2:4 plans, the others
   dense. */
static void prune_blocks(s24_model *model, s24_ctx *ctx, const golden *g, unsigned plans)
{
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, g->folder));
    for (int64_t b = 0; b < LAYERS; b++) {
        s24i_source sources[S24I_SLOTS];
        memset(sources, 0, sizeof sources);
        for (int slot = 0; slot < S24I_SLOTS; slot++) {
            if (!model->architecture->slots[slot]) continue;
            char pattern[96], name[112];
            snprintf(pattern, sizeof pattern, "bert.%s.weight", model->architecture->slots[slot]);
            const char *number = strchr(pattern, '%');
            snprintf(name, sizeof name, "%.*s%d%s", (int)(number - pattern), pattern, (int)b,
                     number + 2);
            const s24_tensor *t = s24_checkpoint_find(checkpoint, name);
            assert_non_null(t);
            const s24_dense w = {(void *)(uintptr_t)t->data, S24_F32, t->shape[0], t->shape[1], 0};
            const s24_matrix_opts opts = {
                .size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = model->dtype};
            s24_matrix *matrix;
            OK(ctx, s24_matrix_create(&matrix, ctx, &w, &opts));
            if (plans >> slot & 1) {
                sources[slot].matrix = matrix;
                continue;
            }
            sources[slot].dense = w;
            sources[slot].dense.data = malloc(t->bytes);
            OK(ctx, s24_matrix_to_dense(ctx, &sources[slot].dense, matrix));
            s24_matrix_destroy(matrix);
        }
        OK(ctx, s24i_block_build(model, ctx, b, sources));
        for (int slot = 0; slot < S24I_SLOTS; slot++) {
            s24_matrix_destroy(sources[slot].matrix);
            free(sources[slot].dense.data);
        }
    }
    s24_checkpoint_close(checkpoint);
}

static void run_pruned(results *r, s24_ctx *ctx, const golden *g, unsigned plans, s24_dtype dtype)
{
    s24_model *model;
    s24_model_info info;
    const s24_model_opts opts = {.size = sizeof opts, .dtype = dtype};
    OK(ctx, load(&model, ctx, g->folder, &opts));
    prune_blocks(model, ctx, g, plans);
    s24_model_describe(&info, model);
    assert_int_equal(info.linear_layers, BLOCK_LAYERS * LAYERS);
    assert_int_equal(info.sparse_layers, __builtin_popcount(plans) * LAYERS);
    run_golden(r, ctx, model, g);
    s24_model_destroy(model);
}

static void pruned_layers(void **state)
{
    (void)state;
    golden g;
    if (!golden_open(&g)) SKIP_WITHOUT(g.folder);
    results *dense = malloc(sizeof *dense), *sparse = malloc(sizeof *sparse);
    /* All; query alone (three products beside each other); key and output alone. */
    const unsigned plans[] = {EVERY, 1 << S24I_QUERY, 1 << S24I_KEY | 1 << S24I_OUTPUT};
    for (int level = 0; level < LEVELS; level++)
        for (int threads = 1; threads <= 2; threads++) {
            s24_ctx *ctx = new_ctx(level, threads);
            run_pruned(dense, ctx, &g, 0, S24_F32);
            for (int i = 0; i < 3; i++) {
                run_pruned(sparse, ctx, &g, plans[i], S24_F32);
                assert_near(dense->blocks, sparse->blocks, (LAYERS + 1) * TOKENS * WIDTH, 1e-5,
                            "hidden");
                assert_near(dense->starts, sparse->starts, TOKENS, 1e-5, "start");
            }
            s24_ctx_destroy(ctx);
        }
    mini_close(&g.io);
    free(dense);
    free(sparse);
}

static void bf16_products(void **state)
{
    (void)state;
    golden g;
    if (!golden_open(&g)) SKIP_WITHOUT(g.folder);
    results *exact = malloc(sizeof *exact), *narrow = malloc(sizeof *narrow);
    for (unsigned plans = 0; plans <= EVERY; plans += EVERY) {
        s24_ctx *ctx = new_ctx(LEVELS - 1, 2);
        run_pruned(exact, ctx, &g, plans, S24_F32);
        run_pruned(narrow, ctx, &g, plans, S24_BF16);
        /* Weights and activations of 8 bits: 2^−8 a product, averaged over sums of 64. */
        assert_near(exact->hidden, narrow->hidden, TOKENS * WIDTH, 0.02, "bf16 hidden");
        s24_ctx_destroy(ctx);
    }
    mini_close(&g.io);
    free(exact);
    free(narrow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_states),
        cmocka_unit_test(pruned_layers),
        cmocka_unit_test(bf16_products),
    };
    return cmocka_run_group_tests_name("nn_model_golden", tests, NULL, NULL);
}
