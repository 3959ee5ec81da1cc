// SPDX-License-Identifier: Apache-2.0
/*
 * Packed 2:4 matrices in a file (docs/format.md section 3): what is read, and each point of the
 * list of what a reader must refuse. Also which tensors are selected.
 */
#include "nn_io.h"

#define META(version, packed)                                                                      \
    "\"__metadata__\":{\"sparse24.version\":\"" version "\",\"sparse24.packed\":\"" packed "\"},"
#define VALUES(dtype, shape, offsets)                                                              \
    "\"w.s24_values\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "},"
#define INDICES(dtype, shape, offsets)                                                             \
    "\"w.s24_indices\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define W_2X12 META("1", "{\\\"w\\\":[2,12]}")
#define GOOD   "{" W_2X12 VALUES("I8", "[2,6]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}"

static const uint8_t good_data[16] = {5, 7, 1, 2, 0xfd, 0,    1,    2,
                                      3, 4, 5, 6, 0x4d, 0x09, 0xe4, 0x08};

static void reads_a_packed_matrix(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    s24_matrix *matrix;
    int8_t dense[24];
    const int8_t expected[24] = {0, 5, 0, 7, 1, 2, 0, 0, 0, -3, 0, 0,
                                 1, 2, 0, 0, 0, 0, 3, 4, 5, 0,  6, 0};
    (void)state;
    io_begin(&env);
    io_write_tensors(io_path("packed.safetensors"), GOOD, good_data, 16);
    assert_int_equal(s24_checkpoint_open(&checkpoint, env.ctx, io_path("packed.safetensors")),
                     S24_OK);
    assert_int_equal(s24_checkpoint_count(checkpoint), 1);
    const s24_tensor *w = s24_checkpoint_find(checkpoint, "w");
    assert_non_null(w);
    assert_int_equal(w->packed, 1);
    assert_int_equal(w->dtype, S24_I8);
    assert_int_equal(w->shape[0], 2);
    assert_int_equal(w->shape[1], 12);
    assert_int_equal(w->bytes, 16);
    assert_null(w->data);
    assert_null(s24_checkpoint_find(checkpoint, "w.s24_values"));
    assert_null(s24_checkpoint_find(checkpoint, "w.s24_indices"));
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "sparse24.version"), "1");
    assert_int_equal(s24_matrix_from_packed(&matrix, env.ctx, w->values, w->indices, w->dtype,
                                            w->shape[0], w->shape[1]),
                     S24_OK);
    const s24_dense dst = {.data = dense, .dtype = S24_I8, .rows = 2, .cols = 12, .ld = 12};
    assert_int_equal(s24_matrix_to_dense(env.ctx, &dst, matrix), S24_OK);
    assert_memory_equal(dense, expected, 24);
    s24_matrix_destroy(matrix);
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

static void unaligned_values_are_copied(void **state)
{
    io_env env;
    char header[512] = "{" META("1", "{\\\"w\\\":[1,4]}") VALUES("F16", "[1,2]", "[1,5]") INDICES(
        "U8", "[1,1]", "[5,6]") ",\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    const uint8_t data[6] = {7, 0x00, 0x3c, 0x00, 0xc0, 0x0d};
    (void)state;
    io_begin(&env);
    for (int padding = 0; padding < 2; padding++) {
        s24_checkpoint *checkpoint;
        io_write_tensors(io_path("unaligned.safetensors"), header, data, 6);
        assert_int_equal(
            s24_checkpoint_open(&checkpoint, env.ctx, io_path("unaligned.safetensors")), S24_OK);
        const s24_tensor *w = s24_checkpoint_find(checkpoint, "w");
        assert_int_equal((uintptr_t)w->values % 2, 0);
        assert_memory_equal(w->values, data + 1, 4);
        assert_int_equal(w->indices[0], 0x0d);
        assert_int_equal(w->bytes, 5);
        s24_checkpoint_close(checkpoint);
        strcat(header, " ");
    }
    assert_int_equal(env.log_lines, 1);
    io_end(&env);
}

static const struct {
    const char *header;
    const char *says;
} refused[] = {
    /* 1: the keys */
    {"{\"__metadata__\":{\"sparse24.version\":\"1\"}," VALUES("I8", "[2,6]", "[0,12]")
         INDICES("U8", "[2,2]", "[12,16]") "}",
     "have \"sparse24.version\" without \"sparse24.packed\""},
    {"{\"__metadata__\":{\"sparse24.packed\":\"{}\"}," VALUES("I8", "[2,6]", "[0,12]")
         INDICES("U8", "[2,2]", "[12,16]") "}",
     "have \"sparse24.packed\" without \"sparse24.version\""},
    {"{" META("11", "{}") VALUES("I8", "[2,6]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}",
     "\"sparse24.version\" is \"11\", this build reads \"1\" to \"10\""},
    {"{" META("", "{}") VALUES("I8", "[2,6]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}",
     "is \"\", this build reads \"1\""},
/* 2: the description */
#define DESCRIBED(packed)                                                                          \
    "{" META("1", packed) VALUES("I8", "[2,6]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}"
    {DESCRIBED(""), "not a JSON object"},
    {DESCRIBED("[]"), "not a JSON object"},
    {DESCRIBED("{\\\"w\\\":[2,12],\\\"w\\\":[2,12]}"), "distinct names"},
    {DESCRIBED("{\\\"\\\":[2,12]}"), "without a name"},
    {DESCRIBED("{\\\"w\\\":12}"), "tensor \"w\" a shape of two integers"},
    {DESCRIBED("{\\\"w\\\":[2]}"), "tensor \"w\" a shape of two integers"},
    {DESCRIBED("{\\\"w\\\":[2,12,1]}"), "tensor \"w\" a shape of two integers"},
    {DESCRIBED("{\\\"w\\\":[2,12.0]}"), "tensor \"w\" a shape of two integers"},
    {DESCRIBED("{\\\"w\\\":[0,12]}"), "\"w\" has shape [0, 12]"},
    {DESCRIBED("{\\\"w\\\":[-2,12]}"), "\"w\" has shape [-2, 12]"},
    {DESCRIBED("{\\\"w\\\":[2,0]}"), "\"w\" has shape [2, 0]"},
    {DESCRIBED("{\\\"w\\\":[2,14]}"), "\"w\" has shape [2, 14]"},
    {DESCRIBED("{\\\"w\\\":[4611686018427387904,4]}"), "fewer than 2^63"},
    /* 3: the parts */
    {DESCRIBED("{\\\"v\\\":[2,12]}"), "lacks its part \"v.s24_values\""},
    {"{" W_2X12 "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[2,6],\"data_offsets\":[0,12]},"
     "\"x\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[12,16]}}",
     "lacks its part \"w.s24_indices\""},
    {"{" W_2X12 VALUES("U8", "[2,6]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}",
     "\"w.s24_values\" is U8, expected F32, F16, BF16, I8, F8_E4M3 or F8_E5M2"},
    {"{" W_2X12 VALUES("I8", "[2,6]", "[0,12]") INDICES("I8", "[2,2]", "[12,16]") "}",
     "\"w.s24_indices\" is I8, expected U8"},
    {"{" W_2X12 VALUES("I8", "[6,2]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}",
     "\"w.s24_values\" has shape [6, 2], expected [2, 6]"},
    {"{" W_2X12 VALUES("I8", "[12]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}",
     "\"w.s24_values\" has rank 1, expected 2"},
    {"{" W_2X12 VALUES("I8", "[2,6]", "[0,12]") INDICES("U8", "[1,4]", "[12,16]") "}",
     "\"w.s24_indices\" has shape [1, 4], expected [2, 2]"},
    {DESCRIBED("{\\\"w\\\":[2,16]}"), "\"w.s24_values\" has shape [2, 6], expected [2, 8]"},
    /* 4: parts that nothing describes */
    {"{" VALUES("I8", "[2,6]", "[0,12]") INDICES("U8", "[2,2]", "[12,16]") "}",
     "\"w.s24_indices\" is part of a packed tensor that"},
    {"{\"__metadata__\":{\"sparse24.version\":\"1\",\"sparse24.packed\":\"{}\"}," VALUES(
         "I8", "[2,8]", "[0,16]") "\"z\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     "\"w.s24_values\" is part of a packed tensor that"},
    /* 5: a plain tensor of the same name */
    {"{" W_2X12 VALUES("I8", "[2,6]", "[0,12]") "\"w\":{\"dtype\":\"I8\",\"shape\":[0],\"data_"
                                                "offsets\":[0,0]}," INDICES("U8", "[2,2]",
                                                                            "[12,16]") "}",
     "\"w\" is there packed and dense"},
};

static void refuses_what_the_format_forbids(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_write_tensors(io_path("bad.safetensors"), refused[i].header, good_data, 16);
        assert_refused(&env, io_path("bad.safetensors"), S24_ERROR_FORMAT, refused[i].says,
                       "bad.safetensors: ");
    }
    io_end(&env);
}

/* Every half byte, used and unused, with each of its sixteen values. */
static void refuses_illegal_codes(void **state)
{
    static const int is_legal[16] = {[4] = 1, [8] = 1, [9] = 1, [12] = 1, [13] = 1, [14] = 1};
    io_env env;
    int opened = 0;
    (void)state;
    io_begin(&env);
    for (int half = 0; half < 8; half++) {
        for (int code = 0; code < 16; code++) {
            s24_checkpoint *checkpoint;
            uint8_t data[16];
            char place[64];
            memcpy(data, good_data, 16);
            uint8_t *byte = &data[12 + half / 2];
            *byte = (uint8_t)(half % 2 ? (*byte & 0x0f) | code << 4 : (*byte & 0xf0) | code);
            io_write_tensors(io_path("code.safetensors"), GOOD, data, 16);
            int is_unused = half % 4 == 3;
            if (is_unused ? code == 0 : is_legal[code]) {
                assert_int_equal(
                    s24_checkpoint_open(&checkpoint, env.ctx, io_path("code.safetensors")), S24_OK);
                s24_checkpoint_close(checkpoint);
                opened++;
                continue;
            }
            snprintf(place, sizeof place, "row %d, column %d", half / 4,
                     is_unused ? 8 : half % 4 * 4);
            assert_refused(&env, io_path("code.safetensors"), S24_ERROR_FORMAT, place,
                           "code.safetensors: packed tensor \"w\"");
        }
    }
    assert_int_equal(opened, 6 * 6 + 2);
    io_end(&env);
}

static const char *const linear[] = {
    "encoder.layer.0.attention.self.query.weight",
    "bert.encoder.layer.3.output.dense.weight",
    "encoder.layer.11.intermediate.dense.weight",
    "vit.encoder.layer.0.attention.attention.key.weight",
    "distilbert.transformer.layer.5.ffn.lin1.weight",
    "model.layers.31.self_attn.q_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "transformer.h.7.self_attention.dense.weight",
    "vision_model.encoder.layers.2.mlp.fc1.weight",
    "blocks.1.attn.qkv.weight",
    "encoder.block.0.layer.0.SelfAttention.q.weight",
    "roberta_prelayernorm.encoder.layer.0.intermediate.dense.weight",
};
static const char *const not_linear[] = {
    "embeddings.word_embeddings.weight",
    "bert.pooler.dense.weight",
    "cls.predictions.transform.dense.weight",
    "classifier.weight",
    "qa_outputs.weight",
    "lm_head.weight",
    "encoder.layer.0.attention.output.LayerNorm.weight",
    "roberta_prelayernorm.encoder.layer.0.intermediate.LayerNorm.weight",
    "encoder.layer.0.attention.self.query.bias",
    "model.layers.0.input_layernorm.weight",
    "model.layers.0.block_sparse_moe.gate.weight",
    "encoder.layer.0.attention.self.distance_embedding.weight",
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "transformer.h.0.attn.c_attn.weight",
    "h.0.mlp.c_fc.weight",
    "h.0.mlp.c_proj.weight",
    "transformer.ln_f.weight",
    "encoder.layer.weight",
    "encoder.layer.x.dense.weight",
    "encoder.mylayer.0.dense.weight",
    "encoder.layer.0.weight2",
    "weight",
    "",
};

static void select_by_default_what_is_linear_in_a_block(void **state)
{
    s24_tensor tensor = {.dtype = S24_F32, .rank = 2, .shape = {8, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
        tensor.name = linear[i];
        if (!s24_tensor_is_selected(&tensor, NULL, NULL)) fail_msg("%s", linear[i]);
    }
    for (size_t i = 0; i < sizeof not_linear / sizeof *not_linear; i++) {
        tensor.name = not_linear[i];
        if (s24_tensor_is_selected(&tensor, NULL, NULL)) fail_msg("%s", not_linear[i]);
    }
    /* GPT-2's are taken where it is known that they are GPT-2's. */
    tensor.name = "h.0.mlp.c_fc.weight";
    for (int transposed = -1; transposed <= 1; transposed++) {
        tensor.transposed = transposed;
        assert_int_equal(s24_tensor_is_selected(&tensor, NULL, NULL), transposed == 1);
        assert_true(s24_tensor_is_selected(&tensor, "*c_fc*", NULL));
    }
    tensor.transposed = 0;
    tensor.name = linear[0];
    for (int dtype = S24_DTYPE_NONE; dtype < S24_DTYPE_COUNT; dtype++) {
        tensor.dtype = (s24_dtype)dtype;
        assert_int_equal(s24_tensor_is_selected(&tensor, NULL, NULL),
                         s24_dtype_can_be_two_four(tensor.dtype));
        assert_int_equal(s24_tensor_is_selected(&tensor, "*", NULL),
                         s24_dtype_can_be_two_four(tensor.dtype));
    }
    tensor.dtype = S24_F32;
    tensor.rank = 1;
    assert_false(s24_tensor_is_selected(&tensor, NULL, NULL));
    assert_false(s24_tensor_is_selected(&tensor, "*", NULL));
    assert_false(s24_tensor_is_selected(NULL, "*", NULL));
}

static void select_by_globs(void **state)
{
    static const struct {
        const char *include, *exclude, *name;
        int is_selected;
    } cases[] = {
        {"*", NULL, "anything.at.all", 1},
        {"*", NULL, "", 1},
        {"", NULL, "a", 0},
        {"", NULL, "", 0},
        {"a", NULL, "a", 1},
        {"a", NULL, "ab", 0},
        {"ab", NULL, "a", 0},
        {"a?c", NULL, "abc", 1},
        {"a?c", NULL, "ac", 0},
        {"a*c", NULL, "ac", 1},
        {"a*c", NULL, "a.b.c", 1},
        {"a*c", NULL, "a.b.cd", 0},
        {"*.weight", NULL, "x.weight", 1},
        {"*a*b*c*", NULL, "xxaxxbxxcxx", 1},
        {"*a*b*c*", NULL, "xxaxxcxxbxx", 0},
        {"x,y", NULL, "y", 1},
        {",,y,", NULL, "y", 1},
        {"x,y", NULL, "x,y", 0},
        {"layer.[0-3].*", NULL, "layer.2.w", 1},
        {"layer.[0-3].*", NULL, "layer.4.w", 0},
        {"layer.[!0-3].*", NULL, "layer.4.w", 1},
        {"layer.[^04].*", NULL, "layer.4.w", 0},
        {"[]x]", NULL, "]", 1},
        {"[a-]", NULL, "-", 1},
        {"[", NULL, "[", 1},
        {"[abc", NULL, "[abc", 1},
        {"a[b", NULL, "ab", 0},
        {"*", "*.bias", "x.bias", 0},
        {"*", "*.bias", "x.weight", 1},
        {NULL, "*query*", "encoder.layer.0.attention.self.query.weight", 0},
        {NULL, "*query*", "encoder.layer.0.attention.self.key.weight", 1},
        {"*embeddings*", NULL, "embeddings.word_embeddings.weight", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_tensor tensor = {.name = cases[i].name, .dtype = S24_F16, .rank = 2};
        if (s24_tensor_is_selected(&tensor, cases[i].include, cases[i].exclude) !=
            cases[i].is_selected)
            fail_msg("\"%s\" for \"%s\"", cases[i].include, cases[i].name);
    }
}

/* A matcher that tries every split would take longer than the universe has. */
static void globs_take_bounded_time(void **state)
{
    char name[4096], pattern[2001];
    const s24_tensor tensor = {.name = name, .dtype = S24_F16, .rank = 2};
    (void)state;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t i = 0; i < 2000; i++)
        pattern[i] = i % 2 ? 'a' : '*';
    strcpy(pattern + 1999, "b");
    assert_false(s24_tensor_is_selected(&tensor, pattern, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_packed_matrix),
        cmocka_unit_test(unaligned_values_are_copied),
        cmocka_unit_test(refuses_what_the_format_forbids),
        cmocka_unit_test(refuses_illegal_codes),
        cmocka_unit_test(select_by_default_what_is_linear_in_a_block),
        cmocka_unit_test(select_by_globs),
        cmocka_unit_test(globs_take_bounded_time),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
