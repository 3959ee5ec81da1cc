// SPDX-License-Identifier: Apache-2.0
/* Which side of a matrix is k, and what pruning makes of one that lies transposed, whatever
   fails. */
#include "nn_failing.h"
#include "nn_io.h"
#include "safetensors_mini.h"

enum { K = 8, N = 12 };

/* A file, or a folder of that model type, of one matrix. */
static const char *write_one(const char *name, int64_t rows, int64_t cols, const char *type)
{
    static float data[4 * K * N];
    char text[64];
    const mini_tensor tensor = {name,         S24_F32, 2,
                                {rows, cols}, data,    (size_t)(rows * cols) * sizeof *data};
    for (int i = 0; i < rows * cols; i++)
        data[i] = (float)(i % 7 + 1) * (i % 2 ? 1.0f : -1.0f);
    io_remove(io_path("one"));
    if (!type) {
        mini_write(io_path("one"), &tensor, 1, NULL);
        return io_path("one");
    }
    mkdir(io_path("one"), 0700);
    mini_write(io_path("one/model.safetensors"), &tensor, 1, NULL);
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", type);
    io_write_text(io_path("one/config.json"), text);
    return io_path("one");
}

/* Layers that a row names are taken by default, whatever else their names may mean. */
static void test_what_a_row_names(void **state)
{
    static const struct {
        const char *name, *type;
        int linear;
    } cases[] = {{"model.layers.0.mlp.c_fc.weight", "starcoder2", 1},
                 {"layers.11.mlp.c_proj.weight", "starcoder2", 1},
                 {"model.layers.0.mlp.c_attn.weight", "starcoder2", 0},
                 {"model.layers.0.mlp.c_fc.weight", "llama", 0},
                 {"model.layers.0.mlp.c_fc.weight", "unknown", 0},
                 {"model.layers.0.mlp.c_fc.weight", NULL, 0}};
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_checkpoint *checkpoint;
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx,
                                            write_one(cases[i].name, N, K, cases[i].type)));
        const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, 0);
        assert_int_equal(tensor->linear, cases[i].linear);
        assert_int_equal(s24_tensor_is_selected(tensor, NULL, NULL), cases[i].linear);
        assert_int_equal(s24_tensor_is_selected(tensor, NULL, "*.c_*"), 0);
        s24_checkpoint_close(checkpoint);
    }
    io_end(&env);
}

static void test_what_is_known(void **state)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
        const char *type;
        int transposed;
    } cases[] = {
        {"h.0.mlp.c_fc.weight", K, N, "gpt2", 1},
        {"h.0.mlp.c_fc.weight", N, K, "gpt2", 1}, /* the row outranks the shape */
        {"transformer.h.11.attn.c_proj.weight", K, K, "gpt2", 1},
        {"h.0.crossattention.q_attn.weight", K, K, "gpt2", 1},
        {"wte.weight", N, K, "gpt2", 0},
        {"score.weight", N, K, "gpt2", 0},
        {"h.0.mlp.c_fc.weight", K, N, "llama", 0}, /* a row that says no */
        {"h.0.mlp.c_fc.weight", K, N, NULL, 1},
        {"h.0.mlp.c_fc.weight", N, K, NULL, 0},
        {"h.0.mlp.c_fc.weight", K, K, NULL, -1},
        {"transformer.h.2.attn.c_attn.weight", K, N, "imagegpt", 1},
        {"transformer.h.2.attn.c_attn.weight", N, K, "gpt_bigcode", 0},
        {"model.decoder.h.2.attn.c_attn.weight", K, N, NULL, 1},
        {"h.0.mlp.c_proj.weight", N, K, NULL, -1}, /* widens in no model */
        {"h.0.mlp.dense.weight", K, N, NULL, 0},
        {"h.x.mlp.c_fc.weight", K, N, NULL, 0},
        {"mlp.c_fc.weight", K, N, NULL, 0},
        {"h.0.mlp.c_fc.weight2", K, N, "gpt2", 0},
    };
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_checkpoint *checkpoint;
        const char *path = write_one(cases[i].name, cases[i].rows, cases[i].cols, cases[i].type);
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, path));
        const s24_tensor *tensor = s24_checkpoint_tensor(checkpoint, 0);
        if (tensor->transposed != cases[i].transposed)
            fail_msg("%s [%lld, %lld]: %d", cases[i].name, (long long)cases[i].rows,
                     (long long)cases[i].cols, tensor->transposed);
        const int known = tensor->transposed >= 0;
        assert_int_equal(s24_tensor_check_sides(env.ctx, checkpoint, tensor, 0),
                         known ? S24_OK : S24_ERROR_UNSUPPORTED);
        if (!known) assert_sentence(env.ctx, "may be stored [in, out]");
        assert_int_equal(s24_tensor_check_sides(env.ctx, checkpoint, tensor, 1),
                         known ? S24_OK : S24_ERROR_UNSUPPORTED);
        s24_checkpoint_close(checkpoint);
    }
    assert_int_equal(s24_tensor_check_sides(env.ctx, NULL, NULL, 0), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "tensor is NULL");
    assert_int_equal(s24_tensor_check_sides(NULL, NULL, NULL, 0), S24_ERROR_ARGUMENT);
    io_end(&env);
}

/* A file, or a folder of that model type, of a packed matrix, and of a dense one next to it. */
static const char *write_packed(io_env *env, int transposed, const char *beside, const char *type)
{
    static const float values[(N + K) * K]; /* enough for either */
    uint8_t indices[N * K / 8];
    const s24_tensor w = {.name = "h.0.attn.c_attn.weight",
                          .dtype = S24_F32,
                          .rank = 2,
                          .shape = {N, K},
                          .packed = 1,
                          .transposed = transposed};
    const s24_tensor other = {.name = beside, .dtype = S24_F32, .rank = 2, .shape = {K, K}};
    char text[64];
    memset(indices, 0x44, sizeof indices);
    io_remove(io_path("one"));
    if (type) mkdir(io_path("one"), 0700);
    s24_writer *writer =
        begin_writer(env, io_path(type ? "one/model.safetensors" : "one"), 1, NULL);
    assert_ok(env, s24_writer_declare(writer, &w));
    assert_ok(env, s24_writer_declare(writer, &other));
    assert_ok(env, s24_writer_write_packed(writer, w.name, values, indices));
    assert_ok(env, s24_writer_write(writer, beside, values));
    assert_ok(env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    if (!type) return io_path("one");
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", type);
    io_write_text(io_path("one/config.json"), text);
    return io_path("one");
}

/* What is packed is what its file says it is, and tells of its neighbours; what a model type wants
   otherwise is refused by name. */
static void test_packed_ones(void **state)
{
    static const struct {
        int marked;
        const char *type;
        int transposed, beside;
    } cases[] = {{1, "gpt2", 1, 1},  {0, "gpt2", -1, 1}, {1, NULL, 1, 1},    {0, NULL, 0, 0},
                 {1, "llama", 1, 0}, {0, "llama", 0, 0}, {0, "gpt_x", 0, 0}, {1, "gpt_x", 1, 1}};
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_checkpoint *in;
        const char *beside = "h.0.attn.c_proj.weight";
        const char *path = write_packed(&env, cases[i].marked, beside, cases[i].type);
        assert_ok(&env, s24_checkpoint_open(&in, env.ctx, path));
        const s24_tensor *w = s24_checkpoint_tensor(in, 0);
        assert_int_equal(w->transposed, cases[i].transposed);
        assert_int_equal(s24_checkpoint_find(in, beside)->transposed, cases[i].beside);
        if (cases[i].transposed < 0) {
            assert_int_equal(s24_tensor_check_sides(env.ctx, in, w, 0), S24_ERROR_UNSUPPORTED);
            assert_sentence(env.ctx, "'h.0.attn.c_attn.weight' is packed along its outputs");
            assert_sentence(env.ctx, "layers of model type gpt2 are stored [in, out]");
        } else {
            assert_ok(&env, s24_tensor_check_sides(env.ctx, in, w, 0));
        }
        s24_checkpoint_close(in);
    }
    io_end(&env);
}

static s24_status prune(s24_ctx *ctx)
{
    s24_checkpoint *in;
    const s24_model_prune_opts opts = {.size = sizeof opts, .dtype = S24_F16, .force = 1};
    TRY(s24_checkpoint_open(&in, ctx, io_path("one")));
    const s24_status status = s24_model_prune(ctx, in, io_path("out"), &opts);
    s24_checkpoint_close(in);
    return status;
}

/* Every allocation of it may fail, and what is written in the end is 2:4 along the rows. */
static void test_memory(void **state)
{
    io_env env;
    s24_checkpoint *out;
    int two_four;
    (void)state;
    write_one("h.0.mlp.c_fc.weight", K, N, "gpt2");
    assert_true(count_failures(prune) >= 10);
    io_begin(&env);
    assert_ok(&env, s24_checkpoint_open(&out, env.ctx, io_path("out")));
    const s24_tensor *tensor = s24_checkpoint_tensor(out, 0);
    const s24_dense dense = {(void *)(uintptr_t)tensor->data, S24_F16, K, N, 0};
    assert_int_equal(tensor->shape[0], K);
    assert_ok(&env, s24_check_along_n(&two_four, NULL, env.ctx, &dense));
    assert_true(two_four);
    assert_ok(&env, s24_check(&two_four, NULL, env.ctx, &dense));
    assert_false(two_four);
    s24_checkpoint_close(out);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_row_names),
        cmocka_unit_test(test_what_is_known),
        cmocka_unit_test(test_packed_ones),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
