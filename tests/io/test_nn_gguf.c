// SPDX-License-Identifier: Apache-2.0
/*
 * A GGUF file into a folder, from C: memory that ends, files that are cut anywhere or changed in
 * any byte, and arguments that are none. tests/cli/test_cli_convert.py holds what is written
 * against values.
 */
#include "support.h"

#include <unistd.h>

#include "nn_ctx.h"

/* A file that grows at its end. */
static uint8_t file[8192];
static size_t bytes;

static void put(const void *data, size_t count)
{
    assert_true(bytes + count <= sizeof file);
    memcpy(file + bytes, data, count);
    bytes += count;
}

static void put_number(uint64_t number, size_t count)
{
    put(&number, count);
}

static void put_text(const char *text)
{
    put_number(strlen(text), 8);
    put(text, strlen(text));
}

enum { U32 = 4, F32 = 6, STRING = 8, ARRAY = 9 };

static void put_int(const char *key, uint32_t number)
{
    put_text(key);
    put_number(U32, 4);
    put_number(number, 4);
}

static void put_real(const char *key, float number)
{
    put_text(key);
    put_number(F32, 4);
    put(&number, 4);
}

static void put_string(const char *key, const char *text)
{
    put_text(key);
    put_number(STRING, 4);
    put_text(text);
}

static void put_strings(const char *key, const char *const *texts, size_t count)
{
    put_text(key);
    put_number(ARRAY, 4);
    put_number(STRING, 4);
    put_number(count, 8);
    for (size_t i = 0; i < count; i++)
        put_text(texts[i]);
}

typedef struct tensor {
    const char *name;
    uint32_t rows, cols; /* rows 0: of rank 1 */
} tensor;

static const tensor tensors[] = {
    {"token_embd.weight", 4, 2},        {"output_norm.weight", 0, 2},
    {"blk.0.attn_norm.weight", 0, 2},   {"blk.0.attn_q.weight", 2, 2},
    {"blk.0.attn_k.weight", 2, 2},      {"blk.0.attn_v.weight", 2, 2},
    {"blk.0.attn_output.weight", 2, 2}, {"blk.0.ffn_norm.weight", 0, 2},
    {"blk.0.ffn_gate.weight", 2, 2},    {"blk.0.ffn_up.weight", 2, 2},
    {"blk.0.ffn_down.weight", 2, 2},
};
enum { TENSORS = (int)(sizeof tensors / sizeof *tensors) };

/* A llama of two numbers' width. */
static void make_file(void)
{
    static const char *const tokens[] = {"<|end|>", "a", "b", "ab"}, *const merges[] = {"a b"};
    uint64_t offset = 0;
    bytes = 0;
    put("GGUF\3\0\0", 8);
    put_number(TENSORS, 8);
    put_number(14, 8);
    put_string("general.architecture", "llama");
    put_int("llama.block_count", 1);
    put_int("llama.context_length", 8);
    put_int("llama.embedding_length", 2);
    put_int("llama.feed_forward_length", 2);
    put_int("llama.attention.head_count", 1);
    put_real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put_string("tokenizer.ggml.model", "gpt2");
    put_string("tokenizer.ggml.pre", "smollm");
    put_strings("tokenizer.ggml.tokens", tokens, 4);
    put_strings("tokenizer.ggml.merges", merges, 1);
    put_int("tokenizer.ggml.bos_token_id", 0);
    put_int("tokenizer.ggml.eos_token_id", 0);
    put_string("tokenizer.chat_template", "{{ messages }}");
    for (int i = 0; i < TENSORS; i++) {
        put_text(tensors[i].name);
        put_number(tensors[i].rows ? 2 : 1, 4);
        put_number(tensors[i].cols, 8);
        if (tensors[i].rows) put_number(tensors[i].rows, 8);
        put_number(0, 4);
        put_number(offset, 8);
        offset += 32;
    }
    while (bytes % 32)
        put("", 1);
    for (uint64_t i = 0; i < offset / 4; i++) {
        const float number = (float)i / 8;
        put(&number, 4);
    }
}

static s24_status convert(s24_ctx *with)
{
    const s24_gguf_opts opts = {.size = sizeof opts, .dtype = S24_BF16, .force = 1};
    return s24_gguf_convert(with, io_path("in.gguf"), io_path("out"), &opts);
}

static void write_in(void)
{
    io_write_file(io_path("in.gguf"), (const char *)file, bytes);
}

static void test_a_folder(void **state)
{
    s24_checkpoint *folder;
    s24_tokenizer *tokenizer;
    (void)state;
    make_file();
    write_in();
    assert_int_equal(convert(ctx), S24_OK);
    assert_int_equal(s24_checkpoint_open(&folder, ctx, io_path("out")), S24_OK);
    assert_string_equal(s24_checkpoint_model_type(folder), "llama");
    assert_int_equal(s24_checkpoint_count(folder), TENSORS);
    const s24_tensor *t = s24_checkpoint_find(folder, "model.norm.weight");
    assert_int_equal(t->dtype, S24_BF16);
    assert_int_equal(((const uint16_t *)t->data)[1], 0x3f90); /* 1.125 */
    s24_checkpoint_close(folder);
    assert_int_equal(s24_tokenizer_load(&tokenizer, ctx, io_path("out")), S24_OK);
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 4);
    s24_tokenizer_destroy(tokenizer);
}

static void test_memory(void **state)
{
    (void)state;
    make_file();
    write_in();
    assert_true(count_failures(convert) >= 40);
}

/* Whatever is cut off is missed, and nothing is left. */
static void test_cut(void **state)
{
    (void)state;
    make_file();
    const size_t whole = bytes;
    const s24_gguf_opts opts = {.size = sizeof opts};
    /* The last tensor ends 16 bytes before the file. */
    for (bytes = 0; bytes < whole - 16; bytes++) {
        write_in();
        if (s24_gguf_convert(ctx, io_path("in.gguf"), io_path("cut"), &opts) == S24_OK)
            fail_msg("%zu of %zu bytes are taken for a file", bytes, whole);
        assert_sentence(ctx, "in.gguf");
        assert_int_equal(access(io_path("cut"), F_OK), -1);
    }
}

/* A byte that is another may make another model, or an error with a sentence: every third one. */
static void test_changed(void **state)
{
    (void)state;
    make_file();
    for (size_t i = 0; i < bytes; i += 3) {
        const uint8_t was = file[i];
        file[i] = (uint8_t)(i % 2 ? was ^ 0x80 : was + 1);
        write_in();
        if (convert(ctx) != S24_OK) assert_true(*s24_ctx_error(ctx));
        file[i] = was;
    }
}

static void test_arguments(void **state)
{
    s24_gguf_opts opts = {.size = sizeof opts, .dtype = S24_I8};
    (void)state;
    make_file();
    write_in();
    assert_int_equal(s24_gguf_convert(NULL, "a", "b", NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_gguf_convert(ctx, NULL, "b", NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_gguf_convert(ctx, "a", NULL, NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_gguf_convert(ctx, io_path("in.gguf"), "", NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_gguf_convert(ctx, io_path("no.gguf"), io_path("x"), NULL), S24_ERROR_IO);
    assert_int_equal(s24_gguf_convert(ctx, io_path("in.gguf"), io_path("x"), &opts),
                     S24_ERROR_DTYPE);
    assert_sentence(ctx, "f32, f16 or bf16 is expected");
    opts.dtype = S24_F16;
    assert_int_equal(s24_gguf_convert(ctx, io_path("in.gguf"), io_path("f16"), &opts), S24_OK);
    assert_int_equal(s24_gguf_convert(ctx, io_path("in.gguf"), io_path("f16"), &opts),
                     S24_ERROR_EXISTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_cut),       cmocka_unit_test(test_changed),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
