// SPDX-License-Identifier: Apache-2.0
/*
 * A folder of Segment Anything's encoder, of a few thousand weights, against the same arithmetic in
 * double, and what such a folder may not be.
 */
#include "support.h"

#include "nn_grid_support.h"
#include "nn_io.h"
#include "nn_load.h"
#include "safetensors_mini.h"

enum {
    IMAGE = 10,
    PATCH = 2,
    CHANNELS = 3,
    GRID = IMAGE / PATCH,
    TOKENS = GRID * GRID,
    WIDTH = 16,
    HEADS = 2,
    HEAD = WIDTH / HEADS,
    OUTER = 24,
    WINDOW = 3, /* does not divide the grid */
    LAYERS = 2, /* the second without windows */
    IMAGES = 2,
    ROW = CHANNELS * PATCH * PATCH,
    MOST_TENSORS = 40
};

static const char *const config =
    "{\"model_type\": \"sam_vision_model\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 2, \"mlp_dim\": 24, \"image_size\": 10, \"patch_size\": 2, "
    "\"num_channels\": 3, \"layer_norm_eps\": 1e-6, "
    "\"global_attn_indexes\": [%s], \"window_size\": %s}";

typedef struct weights {
    mini_tensor tensors[MOST_TENSORS];
    char names[MOST_TENSORS][128];
    int count;
} weights;

static float *add(weights *w, const char *name, int rank, const int64_t *shape)
{
    static uint64_t state = 5;
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= shape[i];
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((int64_t)(test_random(&state) % 2001) - 1000) / 2500.0f;
    snprintf(w->names[w->count], sizeof w->names[0], "vision_encoder.%s", name);
    mini_tensor *t = &w->tensors[w->count];
    *t = (mini_tensor){.name = w->names[w->count],
                       .dtype = S24_F32,
                       .rank = rank,
                       .data = x,
                       .bytes = (size_t)count * sizeof *x};
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    w->count++;
    return x;
}

static float *add_2(weights *w, const char *name, int64_t rows, int64_t cols)
{
    const int64_t shape[2] = {rows, cols};
    return add(w, name, cols ? 2 : 1, shape);
}

static const float *get(const weights *w, const char *name)
{
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->names[i] + strlen("vision_encoder."), name)) return w->tensors[i].data;
    fail_msg("no tensor %s", name);
    return NULL;
}

static const float *of_block(const weights *w, int block, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "layers.%d.%s", block, name);
    return get(w, full);
}

static void make(weights *w)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
    } layers[] = {{"layer_norm1.weight", WIDTH, 0},      {"layer_norm1.bias", WIDTH, 0},
                  {"layer_norm2.weight", WIDTH, 0},      {"layer_norm2.bias", WIDTH, 0},
                  {"attn.qkv.weight", 3 * WIDTH, WIDTH}, {"attn.qkv.bias", 3 * WIDTH, 0},
                  {"attn.proj.weight", WIDTH, WIDTH},    {"attn.proj.bias", WIDTH, 0},
                  {"mlp.lin1.weight", OUTER, WIDTH},     {"mlp.lin1.bias", OUTER, 0},
                  {"mlp.lin2.weight", WIDTH, OUTER},     {"mlp.lin2.bias", WIDTH, 0}};
    const int64_t patches[] = {WIDTH, CHANNELS, PATCH, PATCH}, places[] = {1, GRID, GRID, WIDTH};
    add(w, "patch_embed.projection.weight", 4, patches);
    add_2(w, "patch_embed.projection.bias", WIDTH, 0);
    add(w, "pos_embed", 4, places);
    for (int b = 0; b < LAYERS; b++) {
        char name[96];
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            snprintf(name, sizeof name, "layers.%d.%s", b, layers[i].name);
            add_2(w, name, layers[i].rows, layers[i].cols);
        }
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "layers.%d.attn.rel_pos_%s", b, i ? "w" : "h");
            add_2(w, name, 2 * (b ? GRID : WINDOW) - 1, HEAD);
        }
    }
}

static const char *write_folder(const weights *w, const char *name, const char *globals,
                                const char *window)
{
    char path[600], text[1024];
    const char *folder = io_path(name);
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_write(path, w->tensors, w->count, NULL);
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(text, sizeof text, config, globals, window);
    io_write_text(path, text);
    return folder;
}

/* ---- the same in double ---------------------------------------------------------------------- */

static void linear(double *y, const double *x, const float *w, const float *bias, int n, int k)
{
    for (int o = 0; o < n; o++) {
        y[o] = bias ? (double)bias[o] : 0;
        for (int i = 0; i < k; i++)
            y[o] += x[i] * (double)w[o * k + i];
    }
}

static void norm(double *y, const double *x, const float *gamma, const float *beta)
{
    double mean = 0, variance = 0;
    for (int i = 0; i < WIDTH; i++)
        mean += x[i] / WIDTH;
    for (int i = 0; i < WIDTH; i++)
        variance += (x[i] - mean) * (x[i] - mean) / WIDTH;
    for (int i = 0; i < WIDTH; i++)
        y[i] = (x[i] - mean) / sqrt(variance + 1e-6) * (double)gamma[i] + (double)beta[i];
}

static void embed(double *x, const weights *w, const float *pixels)
{
    for (int t = 0; t < TOKENS; t++) {
        double row[ROW];
        for (int i = 0; i < ROW; i++) {
            const int c = i / (PATCH * PATCH), y = t / GRID * PATCH + i / PATCH % PATCH;
            row[i] = (double)pixels[(c * IMAGE + y) * IMAGE + t % GRID * PATCH + i % PATCH];
        }
        linear(x + t * WIDTH, row, get(w, "patch_embed.projection.weight"),
               get(w, "patch_embed.projection.bias"), WIDTH, ROW);
        for (int i = 0; i < WIDTH; i++)
            x[t * WIDTH + i] += (double)get(w, "pos_embed")[t * WIDTH + i];
    }
}

static void block(double *x, const weights *w, int b)
{
    float qkv[TOKENS * 3 * WIDTH];
    const s24i_attention_grid job = {.qkv = qkv,
                                     .bias = of_block(w, b, "attn.qkv.bias"),
                                     .rel_h = of_block(w, b, "attn.rel_pos_h"),
                                     .rel_w = of_block(w, b, "attn.rel_pos_w"),
                                     .images = 1,
                                     .grid = GRID,
                                     .side = b ? GRID : WINDOW,
                                     .heads = HEADS,
                                     .d = HEAD};
    for (int t = 0; t < TOKENS; t++) {
        double y[WIDTH], row[3 * WIDTH];
        norm(y, x + t * WIDTH, of_block(w, b, "layer_norm1.weight"),
             of_block(w, b, "layer_norm1.bias"));
        linear(row, y, of_block(w, b, "attn.qkv.weight"), job.bias, 3 * WIDTH, WIDTH);
        for (int i = 0; i < 3 * WIDTH; i++)
            qkv[t * 3 * WIDTH + i] = (float)row[i];
    }
    double *context = grid_expected(&job, 1);
    for (int t = 0; t < TOKENS; t++) {
        double y[WIDTH], outer[OUTER];
        linear(y, context + t * WIDTH, of_block(w, b, "attn.proj.weight"),
               of_block(w, b, "attn.proj.bias"), WIDTH, WIDTH);
        for (int i = 0; i < WIDTH; i++)
            x[t * WIDTH + i] += y[i];
        norm(y, x + t * WIDTH, of_block(w, b, "layer_norm2.weight"),
             of_block(w, b, "layer_norm2.bias"));
        linear(outer, y, of_block(w, b, "mlp.lin1.weight"), of_block(w, b, "mlp.lin1.bias"), OUTER,
               WIDTH);
        for (int i = 0; i < OUTER; i++)
            outer[i] = 0.5 * outer[i] * (1 + erf(outer[i] / sqrt(2.0)));
        linear(y, outer, of_block(w, b, "mlp.lin2.weight"), of_block(w, b, "mlp.lin2.bias"), WIDTH,
               OUTER);
        for (int i = 0; i < WIDTH; i++)
            x[t * WIDTH + i] += y[i];
    }
    free(context);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void same_as_in_double(void **state)
{
    (void)state;
    s24_ctx *ctx;
    weights w = {.count = 0};
    float pixels[IMAGES * CHANNELS * IMAGE * IMAGE];
    float blocks[(LAYERS + 1) * IMAGES * TOKENS * WIDTH];
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        pixels[i] = sinf((float)i);
    make(&w);
    const char *folder = write_folder(&w, "sam", "1", "3");
    const s24_batch batch = {.texts = IMAGES, .pixels = pixels};
    const s24_outputs outputs = {.blocks = blocks};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_model *model;
    s24_session *session;
    OK(ctx, load(&model, ctx, folder, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, IMAGES * TOKENS));
    OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    for (int image = 0; image < IMAGES; image++) {
        double x[TOKENS * WIDTH];
        embed(x, &w, pixels + image * CHANNELS * IMAGE * IMAGE);
        for (int b = 0; b <= LAYERS; b++) {
            const float *got = blocks + (b * IMAGES + image) * TOKENS * WIDTH;
            for (int i = 0; i < TOKENS * WIDTH; i++)
                if (!(fabs((double)got[i] - x[i]) <= 2e-5))
                    fail_msg("image %d, state %d, element %d: %g, expected %g", image, b, i,
                             (double)got[i], x[i]);
            if (b < LAYERS) block(x, &w, b);
        }
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
    for (int i = 0; i < w.count; i++)
        free((void *)(uintptr_t)w.tensors[i].data);
}

static void count_layer(void *user, const s24_layer_report *layer)
{
    assert_true(layer->output_error > 0.0 && layer->output_error < 1.0);
    ++*(int *)user;
}

/* All layers are pruned by what images show them; attention over a grid is not trained. */
static void calibrated_on_images(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_checkpoint *in;
    weights w = {.count = 0};
    float pixels[IMAGES * CHANNELS * IMAGE * IMAGE];
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        pixels[i] = sinf((float)i);
    make(&w);
    const char *folder = write_folder(&w, "calibrated", "1", "3");
    const s24_batch images = {.texts = IMAGES, .pixels = pixels};
    int count = 0;
    s24_model_prune_opts opts = {.size = sizeof opts,
                                 .prune = {.criterion = "sparsegpt", .refine = "all"},
                                 .images = &images,
                                 .report = count_layer,
                                 .user = &count,
                                 .force = 1};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    OK(ctx, s24_checkpoint_open(&in, ctx, folder));
    OK(ctx, s24_model_prune(ctx, in, io_path("sam-24"), &opts));
    assert_int_equal(count, 4 * LAYERS);
    opts.reconstruct = 2;
    assert_int_equal(s24_model_prune(ctx, in, io_path("sam-24"), &opts), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(ctx), "'sam_vision_model' is not trained"));
    s24_checkpoint_close(in);
    s24_ctx_destroy(ctx);
    for (int i = 0; i < w.count; i++)
        free((void *)(uintptr_t)w.tensors[i].data);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *globals, *window, *sentence;
    } cases[] = {
        {"2", "3", "element 0 of global_attn_indexes is no number of a block, 0 to 1"},
        {"1, \"x\"", "3", "element 1 of global_attn_indexes is no number"},
        {"1", "3, \"use_rel_pos\": false", "use_rel_pos is false"},
        {"1", "6", "\"window_size\" is 6, expected 0 to 5"},
        {"0", "3", "'vision_encoder.layers.0.attn.rel_pos_h' is [5, 8]; [9, 8] was expected"},
    };
    s24_ctx *ctx;
    weights w = {.count = 0};
    make(&w);
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[16];
        s24_model *model;
        snprintf(name, sizeof name, "bad%d", (int)i);
        const char *folder = write_folder(&w, name, cases[i].globals, cases[i].window);
        assert_int_not_equal(load(&model, ctx, folder, NULL), S24_OK);
        if (!strstr(s24_ctx_error(ctx), cases[i].sentence))
            fail_msg("\"%s\" says nothing of \"%s\"", s24_ctx_error(ctx), cases[i].sentence);
    }
    s24_ctx_destroy(ctx);
    for (int i = 0; i < w.count; i++)
        free((void *)(uintptr_t)w.tensors[i].data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_in_double),
                                       cmocka_unit_test(calibrated_on_images),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
