// SPDX-License-Identifier: Apache-2.0
/* Attention over grids and windows, and the encoder of Segment Anything, on the CPU. */
#include "core_support.h"

#include "nn_grid_support.h"
#include "nn_load.h"

static float *numbers(int64_t count, float scale)
{
    static uint64_t state = 7;
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = scale * (float)((int64_t)(test_random(&state) % 2001) - 1000) / 1000.0f;
    return x;
}

static void check(s24_ctx *ctx, int64_t images, int64_t grid, int64_t side, int64_t heads,
                  int64_t d)
{
    const s24i_shape shape = {.grid = grid, .window = side, .head_width = d};
    const int64_t tokens = images * grid * grid, width = heads * d;
    s24i_attention_grid job = {.vec = s24i_vec_find(s24_ctx_cpu(ctx)),
                               .images = images,
                               .grid = grid,
                               .side = side,
                               .heads = heads,
                               .d = d};
    float *qkv = numbers(tokens * 3 * width, 1), *bias = numbers(3 * width, 1);
    float *h = numbers((2 * side - 1) * d, 0.5f), *w = numbers((2 * side - 1) * d, 0.5f);
    job.qkv = qkv;
    job.bias = bias;
    job.rel_h = h;
    job.rel_w = w;
    job.context = numbers(tokens * width, NAN);
    job.scratch_elems = s24i_attention_grid_scratch(&shape);
    job.scratch = malloc((size_t)(job.scratch_elems * s24_ctx_threads(ctx)) * sizeof(float));
    s24i_attention_grid_run(ctx, &job);
    double *expected = grid_expected(&job, 1);
    for (int64_t i = 0; i < tokens * width; i++)
        if (!(fabs((double)job.context[i] - expected[i]) <= 1e-5))
            fail_msg("grid %d, side %d, element %d: %g, expected %g", (int)grid, (int)side, (int)i,
                     (double)job.context[i], expected[i]);
    float *const all[] = {qkv, bias, h, w, job.context, job.scratch};
    for (int i = 0; i < 6; i++)
        free(all[i]);
    free(expected);
}

static void attention(void **state)
{
    (void)state;
    static const char *const levels[] = {"baseline", "avx2", "avx512"};
    for (int level = 0; level < 3; level++) {
        s24_ctx *ctx;
        const s24_ctx_opts opts = {
            .size = sizeof opts, .threads = 2, .cpu_mask = s24_cpu_parse(levels[level])};
        assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
        check(ctx, 2, 8, 3, 2, 16); /* windows that reach beyond the grid */
        check(ctx, 1, 9, 3, 3, 5);
        check(ctx, 2, 7, 7, 1, 20); /* the whole grid */
        check(ctx, 1, 1, 1, 1, 8);
        s24_ctx_destroy(ctx);
    }
}

/* Joint layers, layers chosen by name, no last norm: 2:4 and dense alike. */
static void encoder(void **state)
{
    (void)state;
    enum { PIXELS = 3 * 1024 * 1024, WIDTH = 160 };
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    float *pixels = numbers(PIXELS, 1), *vectors[2];
    const s24_batch batch = {.texts = 1, .pixels = pixels};
    for (int dense = 0; dense < 2; dense++) {
        const s24_model_opts opts = {
            .size = sizeof opts, .sparse = 1, .dense = dense, .include = "*.mlp.*"};
        s24_model *model;
        s24_session *session;
        s24_model_info info;
        OK(ctx, s24_model_preset(&model, ctx, "sam-tiny", &opts));
        s24_model_describe(&info, model);
        assert_int_equal(info.linear_layers, 8);
        assert_int_equal(info.sparse_layers, dense ? 0 : 4);
        assert_int_equal(info.positions, 4096);
        vectors[dense] = calloc(WIDTH, sizeof **vectors);
        const s24_outputs outputs = {.embeddings = vectors[dense]};
        OK(ctx, s24_session_create(&session, ctx, model, info.positions));
        OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
        s24_session_destroy(session);
        s24_model_destroy(model);
    }
    for (int i = 0; i < WIDTH; i++)
        assert_true(fabs((double)vectors[0][i] - (double)vectors[1][i]) < 1e-4);
    free(vectors[0]);
    free(vectors[1]);
    free(pixels);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention), cmocka_unit_test(encoder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
