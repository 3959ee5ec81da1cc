// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning whole checkpoints: a tiny BERT through every criterion and option. What is written is
 * checked against the core library run by hand on statistics gathered from the pruned model itself,
 * for each layer's inputs depend on the layers before it alone.
 */
#include <math.h>

#include "nn_prune_support.h"
#include "run/session.h"

/* ---- against the core library, by hand ------------------------------------------------------- */

typedef struct gathering {
    s24_ctx *ctx;
    s24_stats *stats[S24I_SLOTS];
} gathering;

static s24_status gather(void *user, s24i_slot slot, const s24_dense *x)
{
    gathering *g = user;
    return s24_stats_add(g->stats[slot], g->ctx, x);
}

static void compare_layer(s24_ctx *ctx, const s24_tensor *before, const s24_tensor *after,
                          const s24_stats *stats, const s24_prune_opts *opts)
{
    const int64_t count = before->shape[0] * before->shape[1];
    float *w = malloc((size_t)count * sizeof *w);
    memcpy(w, before->data, (size_t)count * sizeof *w);
    const s24_dense dense = {w, S24_F32, before->shape[0], before->shape[1], 0};
    OK(ctx, s24_prune(NULL, ctx, &dense, stats, opts));
    for (int64_t i = 0; i < count; i++) {
        const float written = ((const float *)after->data)[i];
        if (!(fabsf(w[i] - written) <= 1e-3f))
            fail_msg("%s: element %lld is %g, by hand %g", after->name, (long long)i,
                     (double)written, (double)w[i]);
    }
    free(w);
}

static void compare_block(gathering *g, const s24_checkpoint *in, const s24_checkpoint *out,
                          int block, const s24_prune_opts *opts)
{
    for (int layer = 0; layer < BLOCK_LAYERS; layer++) {
        const char *name = layer_name(block, layer);
        const s24i_slot slot = layer_slots[layer], input = slot <= S24I_VALUE ? S24I_QUERY : slot;
        compare_layer(g->ctx, s24_checkpoint_find(in, name), s24_checkpoint_find(out, name),
                      g->stats[input], opts);
    }
}

static void compare_model(s24_ctx *ctx, const char *in_path, const char *out_path,
                          const s24_prune_opts *opts)
{
    s24_checkpoint *in, *out;
    s24_model *model;
    s24_session *session;
    int64_t offsets[TEXTS + 1];
    int32_t ids[TEXTS * TINY_POSITIONS];
    float hidden[TEXTS * TINY_POSITIONS * TINY_WIDTH];
    OK(ctx, s24_checkpoint_open(&in, ctx, in_path));
    OK(ctx, s24_checkpoint_open(&out, ctx, out_path));
    OK(ctx, s24_model_load(&model, ctx, out, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, TEXTS * TINY_POSITIONS));
    const s24_batch batch = tokenize(ctx, in_path, offsets, ids);
    OK(ctx, s24i_session_embed(session, ctx, &batch, hidden));
    for (int block = 0; block < TINY_LAYERS; block++) {
        gathering g = {.ctx = ctx};
        const s24i_observer observer = {.input = gather, .user = &g};
        for (int slot = 0; slot < S24I_SLOTS; slot++)
            OK(ctx, s24_stats_create(&g.stats[slot], ctx,
                                     slot == S24I_OUTPUT ? TINY_OUTER : TINY_WIDTH));
        OK(ctx, s24i_session_block(session, ctx, &batch, block, hidden, &observer));
        compare_block(&g, in, out, block, opts);
        for (int slot = 0; slot < S24I_SLOTS; slot++)
            s24_stats_destroy(g.stats[slot]);
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_checkpoint_close(out);
    s24_checkpoint_close(in);
}

static void every_layer_is_pruned_on_what_the_pruned_ones_give(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("hand", S24_F32);
    for (int c = 0; s24_criterion_name(c); c++) {
        if (s24_criterion_needs_gradients(s24_criterion_name(c))) continue;
        const char *out = io_path(s24_criterion_name(c));
        reports r;
        const s24_model_prune_opts opts = options(s24_criterion_name(c), &r);
        OK(ctx, prune_path(ctx, in, out, &opts));
        assert_pruned(ctx, in, out);
        assert_int_equal(r.count, LAYERS);
        const s24_prune_opts prune = {.size = sizeof prune, .criterion = s24_criterion_name(c)};
        compare_model(ctx, in, out, &prune);
    }
    s24_ctx_destroy(ctx);
}

/* Query, key and value of the first block see the same inputs whatever the criterion. */
static void better_criteria_leave_less_error(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("errors", S24_F32);
    double error[3] = {0};
    for (int c = 0; c < 3; c++) {
        reports r;
        s24_model_prune_opts opts = options(s24_criterion_name(c), &r);
        opts.force = 1;
        OK(ctx, prune_path(ctx, in, io_path("errors-out"), &opts));
        for (int slot = S24I_QUERY; slot <= S24I_VALUE; slot++) {
            const s24_layer_report *layer = report_of(&r, layer_name(0, slot));
            assert_int_equal(layer->rows, TINY_WIDTH);
            assert_int_equal(layer->cols, TINY_WIDTH);
            assert_true(layer->kept_l1 > 0.5 && layer->kept_l1 < 1.0);
            assert_true(layer->output_error > 0.0 && layer->output_error < 1.0);
            error[c] += layer->output_error;
        }
    }
    assert_true(error[2] < error[1]); /* sparsegpt below wanda */
    assert_true(error[1] < error[0]); /* below magnitude */
    s24_ctx_destroy(ctx);
}

/* Of a layer that is left out nothing changes; all others stay 2:4, twice with the same bits. */
static void reconstruction_trains_what_was_pruned(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("trained", S24_F32);
    const char *out[3] = {"trained-not", "trained-once", "trained-twice"};
    s24_checkpoint *from, *to[3];
    OK(ctx, s24_checkpoint_open(&from, ctx, in));
    for (int i = 0; i < 3; i++) {
        reports r;
        s24_model_prune_opts opts = options("wanda", &r);
        opts.exclude = "*.layer.0.attention.self.key.*,*.layer.1.output.dense.*";
        opts.reconstruct = i ? 20 : 0;
        OK(ctx, prune_path(ctx, in, io_path(out[i]), &opts));
        assert_int_equal(r.count, LAYERS - 2);
        OK(ctx, s24_checkpoint_open(&to[i], ctx, io_path(out[i])));
    }
    for (int64_t i = 0; i < s24_checkpoint_count(from); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(from, i), *with[3];
        for (int j = 0; j < 3; j++)
            with[j] = s24_checkpoint_find(to[j], t->name);
        assert_memory_equal(with[1]->data, with[2]->data, t->bytes);
        const int learns = is_layer(t->name) && strcmp(t->name, layer_name(0, S24I_KEY)) &&
                           strcmp(t->name, layer_name(1, BLOCK_LAYERS - 1));
        assert_int_equal(learns, memcmp(with[0]->data, with[1]->data, t->bytes) != 0);
        if (!learns) assert_memory_equal(t->data, with[1]->data, t->bytes);
        const s24_dense trained = dense_of(with[1]);
        int two_four = 1;
        if (learns) OK(ctx, s24_check(&two_four, NULL, ctx, &trained));
        assert_true(two_four);
    }
    for (int i = 0; i < 3; i++)
        s24_checkpoint_close(to[i]);
    s24_checkpoint_close(from);
    s24_ctx_destroy(ctx);
}

/* What moves weights while it chooses shares zeros out among layers by what each weight costs. */
static void a_global_share_is_exact_after_every_calibrated_criterion(void **state)
{
    static const char *const criteria[] = {"wanda", "sparsegpt", "alps"};
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("shares", S24_F32), *out = io_path("shares-out");
    for (size_t c = 0; c < sizeof criteria / sizeof *criteria; c++) {
        int64_t zeros = 0, count = 0;
        s24_checkpoint *made;
        s24_model_prune_opts opts = options(criteria[c], NULL);
        opts.prune.pattern = "unstructured:0.6";
        opts.global = opts.force = 1;
        OK(ctx, prune_path(ctx, in, out, &opts));
        OK(ctx, s24_checkpoint_open(&made, ctx, out));
        for (int i = 0; i < LAYERS; i++) {
            const s24_tensor *t =
                s24_checkpoint_find(made, layer_name(i / BLOCK_LAYERS, i % BLOCK_LAYERS));
            for (int64_t e = 0; e < t->shape[0] * t->shape[1]; e++, count++)
                zeros += ((const float *)t->data)[e] == 0.0f;
        }
        assert_int_equal(zeros, (int64_t)nearbyint(0.6 * (double)count));
        s24_checkpoint_close(made);
    }
    s24_ctx_destroy(ctx);
}

/* ---- without a model ------------------------------------------------------------------------- */

static void magnitude_needs_no_model(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    char in[600], out[600], with[600];
    const char *folder = write_folder("plain", S24_F32);
    reports r = {0};
    s24_model_prune_opts opts = options(NULL, &r);
    opts.texts = NULL;
    opts.text_count = 0;
    snprintf(in, sizeof in, "%s/model.safetensors", folder);
    snprintf(out, sizeof out, "%s/pruned.safetensors", folder);
    OK(ctx, prune_path(ctx, in, out, &opts));
    assert_pruned(ctx, in, out);
    assert_int_equal(r.count, LAYERS);
    for (int i = 0; i < r.count; i++)
        assert_true(r.layers[i].output_error == -1.0);
    /* The same weights as with calibration, which only measures here. */
    snprintf(with, sizeof with, "%s", io_path("plain-out"));
    opts = options("magnitude", &r);
    OK(ctx, prune_path(ctx, folder, with, &opts));
    s24_checkpoint *a, *b;
    OK(ctx, s24_checkpoint_open(&a, ctx, out));
    OK(ctx, s24_checkpoint_open(&b, ctx, with));
    for (int64_t i = 0; i < s24_checkpoint_count(a); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(a, i), *u = s24_checkpoint_tensor(b, i);
        assert_int_equal(t->bytes, u->bytes);
        assert_memory_equal(t->data, u->data, t->bytes);
    }
    s24_checkpoint_close(b);
    s24_checkpoint_close(a);
    s24_ctx_destroy(ctx);
}

typedef struct logged {
    int lines;
    char last[512];
} logged;

static void keep_log(void *user, s24_log_level level, const char *text)
{
    logged *l = user;
    (void)level;
    l->lines++;
    snprintf(l->last, sizeof l->last, "%s", text);
}

static void odd_columns_are_passed_through_by_name(void **state)
{
    (void)state;
    logged l = {0};
    s24_ctx *ctx;
    const s24_ctx_opts ctx_opts = {.size = sizeof ctx_opts, .log = keep_log, .user = &l};
    assert_int_equal(s24_ctx_create(&ctx, &ctx_opts), S24_OK);
    const float odd[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, even[4] = {4, 1, 2, 3};
    const mini_tensor tensors[] = {{"layers.0.odd.weight", S24_F32, 2, {2, 6}, odd, sizeof odd},
                                   {"layers.0.even.weight", S24_F32, 2, {1, 4}, even, sizeof even},
                                   {"layers.0.none.weight", S24_F32, 2, {0, 4}, even, 0}};
    char in[600], out[600];
    snprintf(in, sizeof in, "%s", io_path("odd.safetensors"));
    snprintf(out, sizeof out, "%s", io_path("odd-out.safetensors"));
    mini_write(in, tensors, 3, NULL);
    const s24_model_prune_opts opts = {.size = sizeof opts};
    OK(ctx, prune_path(ctx, in, out, &opts));
    assert_int_equal(l.lines, 2);
    assert_non_null(strstr(l.last, "'layers.0.odd.weight' [2, 6] is passed through"));
    mini_file file = mini_open(out);
    const float expected[4] = {4, 0, 0, 3};
    assert_memory_equal(mini_get(&file, "layers.0.odd.weight").data, odd, sizeof odd);
    assert_memory_equal(mini_get(&file, "layers.0.even.weight").data, expected, sizeof expected);
    mini_close(&file);
    s24_ctx_destroy(ctx);
}

/* ---- options --------------------------------------------------------------------------------- */

/* Does b hold what the strict packing of a gives? */
static void assert_is_pack_of(s24_ctx *ctx, const s24_tensor *b, const s24_tensor *a)
{
    const s24_dense from = dense_of(a);
    const size_t values = (size_t)(a->shape[0] * a->shape[1] / 2) * s24_dtype_bytes(a->dtype);
    s24_matrix *matrix;
    assert_int_equal(b->dtype, a->dtype);
    OK(ctx, s24_matrix_create(&matrix, ctx, &from, NULL));
    assert_int_equal(b->bytes, s24_matrix_bytes(matrix));
    assert_memory_equal(b->values, s24_matrix_values(matrix), values);
    assert_memory_equal(b->indices, s24_matrix_indices(matrix), b->bytes - values);
    s24_matrix_destroy(matrix);
}

/* Of the tensors of two checkpoints, as many as are packed, all of a dtype; NONE: of any. */
static void assert_packs(s24_ctx *ctx, const char *packed_path, const char *dense_path,
                         int expected, s24_dtype dtype)
{
    s24_checkpoint *dense, *packed;
    int count = 0;
    OK(ctx, s24_checkpoint_open(&dense, ctx, dense_path));
    OK(ctx, s24_checkpoint_open(&packed, ctx, packed_path));
    for (int64_t i = 0; i < s24_checkpoint_count(packed); i++) {
        const s24_tensor *b = s24_checkpoint_tensor(packed, i);
        if (b->packed) assert_is_pack_of(ctx, b, s24_checkpoint_find(dense, b->name));
        if (b->packed && dtype != S24_DTYPE_NONE) assert_int_equal(b->dtype, dtype);
        count += b->packed != 0;
    }
    assert_int_equal(count, expected);
    s24_checkpoint_close(packed);
    s24_checkpoint_close(dense);
}

static void packed_equals_pack_of_dense(void **state)
{
    static const s24_dtype dtypes[] = {S24_DTYPE_NONE, S24_F16, S24_BF16};
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("pack", S24_F32);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        s24_model_prune_opts opts = options("sparsegpt", NULL);
        opts.dtype = dtypes[d];
        opts.force = 1;
        OK(ctx, prune_path(ctx, in, io_path("pack-dense"), &opts));
        opts.packed = 1;
        OK(ctx, prune_path(ctx, in, io_path("pack-packed"), &opts));
        assert_packs(ctx, io_path("pack-packed"), io_path("pack-dense"), LAYERS,
                     dtypes[d] ? dtypes[d] : S24_F32);
    }
    s24_ctx_destroy(ctx);
}

/* Numbers of any floats, ties and zeros of either sign among them, by a byte each. */
static void *draw_numbers(s24_dtype dtype, int64_t count, uint32_t seed)
{
    static const float numbers[] = {0.0f, -0.0f, 0.25f, -0.25f, 0.5f, -1.5f, 3.0f, -0.125f};
    float *wide = malloc((size_t)count * sizeof *wide);
    void *out = malloc((size_t)count * s24_dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        wide[i] = numbers[seed >> 29];
    }
    assert_int_equal(s24_convert(out, dtype, wide, S24_F32, count), S24_OK);
    free(wide);
    return out;
}

/* By magnitude: in pieces of rows that threads share, of any shape and dtype of floats. */
static void packed_by_magnitude_equals_pack_of_dense(void **state)
{
    enum { SHAPES = 4, DTYPES = 3, COUNT = SHAPES * DTYPES };
    static const int64_t shapes[SHAPES][2] = {{1, 4}, {3, 20}, {70, 264}, {2100, 1028}};
    static const s24_dtype dtypes[DTYPES] = {S24_F32, S24_F16, S24_BF16};
    char in[600], out[600], dense[600], spelled[COUNT][32];
    mini_tensor tensors[COUNT];
    (void)state;
    s24_ctx *ctx = make_ctx();
    for (int i = 0; i < COUNT; i++) {
        const s24_dtype dtype = dtypes[i % DTYPES];
        const int64_t rows = shapes[i / DTYPES][0], cols = shapes[i / DTYPES][1];
        snprintf(spelled[i], sizeof spelled[i], "layers.%d.some.weight", i);
        tensors[i] = (mini_tensor){spelled[i],
                                   dtype,
                                   2,
                                   {rows, cols},
                                   draw_numbers(dtype, rows * cols, 7),
                                   (size_t)(rows * cols) * s24_dtype_bytes(dtype)};
    }
    snprintf(in, sizeof in, "%s", io_path("any.safetensors"));
    snprintf(dense, sizeof dense, "%s", io_path("any-dense.safetensors"));
    snprintf(out, sizeof out, "%s", io_path("any-packed.safetensors"));
    mini_write(in, tensors, COUNT, NULL);
    s24_model_prune_opts opts = {.size = sizeof opts, .force = 1};
    OK(ctx, prune_path(ctx, in, dense, &opts));
    opts.packed = 1;
    for (int threads = 1; threads <= 3; threads++) {
        s24_ctx_set_threads(ctx, threads);
        OK(ctx, prune_path(ctx, in, out, &opts));
        assert_packs(ctx, out, dense, COUNT, S24_DTYPE_NONE);
    }
    for (int i = 0; i < COUNT; i++)
        free((void *)(uintptr_t)tensors[i].data);
    s24_ctx_destroy(ctx);
}

/* A packed checkpoint is an input like any other: nothing is left to drop. */
static void packed_checkpoints_are_pruned_again(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("again", S24_BF16);
    reports r;
    s24_model_prune_opts opts = options("wanda", &r);
    opts.packed = 1;
    OK(ctx, prune_path(ctx, in, io_path("again-packed"), &opts));
    opts = options("magnitude", &r);
    OK(ctx, prune_path(ctx, io_path("again-packed"), io_path("again-dense"), &opts));
    assert_int_equal(r.count, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        assert_true(r.layers[i].kept_l1 == 1.0 && r.layers[i].output_error == 0.0);
    assert_pruned(ctx, in, io_path("again-dense"));
    s24_ctx_destroy(ctx);
}

static void what_is_excluded_stays(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("globs", S24_F32);
    reports r;
    s24_model_prune_opts opts = options("sparsegpt", &r);
    opts.exclude = "*.query.*,encoder.layer.1.*,*intermediate*";
    OK(ctx, prune_path(ctx, in, io_path("globs-out"), &opts));
    assert_int_equal(r.count, 4);
    s24_checkpoint *a, *b;
    OK(ctx, s24_checkpoint_open(&a, ctx, in));
    OK(ctx, s24_checkpoint_open(&b, ctx, io_path("globs-out")));
    for (int64_t i = 0; i < s24_checkpoint_count(a); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(a, i), *u = s24_checkpoint_tensor(b, i);
        int reported = 0;
        for (int l = 0; l < r.count; l++)
            reported |= !strcmp(r.names[l], t->name);
        assert_int_equal(memcmp(t->data, u->data, t->bytes) != 0, reported);
    }
    s24_checkpoint_close(b);
    s24_checkpoint_close(a);
    s24_ctx_destroy(ctx);
}

static void nothing_selected_is_a_copy(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("none", S24_F32);
    reports r;
    s24_model_prune_opts opts = options("wanda", &r);
    opts.include = "nothing*";
    OK(ctx, prune_path(ctx, in, io_path("none-out"), &opts));
    assert_int_equal(r.count, 0);
    s24_ctx_destroy(ctx);
}

/* Magnitude may be asked for a matrix outside the blocks even while it measures the others. */
static void magnitude_prunes_outside_the_blocks(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("outside", S24_F32);
    reports r;
    s24_model_prune_opts opts = options("magnitude", &r);
    opts.include = "*pooler*,*.query.weight";
    OK(ctx, prune_path(ctx, in, io_path("outside-out"), &opts));
    assert_int_equal(r.count, 3);
    assert_true(report_of(&r, "pooler.dense.weight")->output_error == -1.0);
    assert_true(report_of(&r, layer_name(1, S24I_QUERY))->output_error > 0.0);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_is_pruned_on_what_the_pruned_ones_give),
        cmocka_unit_test(better_criteria_leave_less_error),
        cmocka_unit_test(reconstruction_trains_what_was_pruned),
        cmocka_unit_test(a_global_share_is_exact_after_every_calibrated_criterion),
        cmocka_unit_test(magnitude_needs_no_model),
        cmocka_unit_test(odd_columns_are_passed_through_by_name),
        cmocka_unit_test(packed_equals_pack_of_dense),
        cmocka_unit_test(packed_by_magnitude_equals_pack_of_dense),
        cmocka_unit_test(packed_checkpoints_are_pruned_again),
        cmocka_unit_test(what_is_excluded_stays),
        cmocka_unit_test(nothing_selected_is_a_copy),
        cmocka_unit_test(magnitude_prunes_outside_the_blocks),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
