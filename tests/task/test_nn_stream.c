// SPDX-License-Identifier: Apache-2.0
/* Text files as one stream of tokens: all of them, in order, and nothing lost in silence. */
#include "nn_bpe.h"
#include "sparse24/task.h"

static void make_tokenizers(void)
{
    const s24_text text = {"ab\n c\u00e9", 7};
    unlink(io_path("chars.json"));
    assert_int_equal(s24_tokenizer_write_characters(ctx, io_path("chars.json"), &text, 1), S24_OK);
    io_write_text(io_path("llama.json"), "{" LLAMA_NORM "," LLAMA_MODEL "," LLAMA_POST
                                         "," LLAMA_ADDED ",\"pre_tokenizer\":null}");
}

static s24_stream *read_files(const char *tokenizer_name, const char *a, const char *b)
{
    char first[512], second[512];
    snprintf(first, sizeof first, "%s", io_path(a));
    snprintf(second, sizeof second, "%s", io_path(b));
    const char *const paths[] = {first, second};
    s24_stream *stream;
    s24_tokenizer *tokenizer = load(io_path(tokenizer_name));
    if (s24_stream_read(&stream, ctx, tokenizer, paths, 2) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    s24_tokenizer_destroy(tokenizer);
    return stream;
}

static void test_files(void **state)
{
    static const int32_t characters[] = {2, 3, 0, 4, 5}; /* \n, blank, a, b, c, é */
    static const int32_t llama[] = {1, 10, 11, 1, 7};
    (void)state;
    make_tokenizers();
    io_write_text(io_path("one.txt"), "ab\n");
    io_write_text(io_path("two.txt"), "c\u00e9");
    io_write_text(io_path("three.txt"), "a");
    s24_stream *stream = read_files("chars.json", "one.txt", "two.txt");
    assert_int_equal(s24_stream_count(stream), 5);
    assert_int_equal(s24_stream_bytes(stream), 6);
    assert_memory_equal(s24_stream_tokens(stream), characters, sizeof characters);
    s24_stream_destroy(stream);
    /* Every file begins as a text does. */
    stream = read_files("llama.json", "one.txt", "three.txt");
    assert_int_equal(s24_stream_count(stream), 5);
    assert_memory_equal(s24_stream_tokens(stream), llama, sizeof llama);
    s24_stream_destroy(stream);
}

static void test_shakespeare(void **state)
{
    char path[512];
    (void)state;
    if (!data_path(path, sizeof path, "text/tinyshakespeare.txt")) SKIP_WITHOUT(path);
    FILE *file = fopen(path, "rb");
    char *text = malloc(1200000);
    const size_t bytes = fread(text, 1, 1200000, file);
    fclose(file);
    const s24_text all = {text, bytes};
    const char *const paths[] = {path};
    s24_stream *stream;
    assert_int_equal(s24_tokenizer_write_characters(ctx, io_path("play.json"), &all, 1), S24_OK);
    s24_tokenizer *tokenizer = load(io_path("play.json"));
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 65);
    assert_int_equal(s24_stream_read(&stream, ctx, tokenizer, paths, 1), S24_OK);
    assert_int_equal(s24_stream_count(stream), 1115394);
    char *back = malloc(bytes);
    size_t room = bytes;
    assert_int_equal(s24_tokenizer_decode(back, &room, tokenizer, ctx, s24_stream_tokens(stream),
                                          s24_stream_count(stream)),
                     S24_OK);
    assert_int_equal(room, bytes);
    assert_memory_equal(back, text, bytes);
    free(back);
    free(text);
    s24_stream_destroy(stream);
    s24_tokenizer_destroy(tokenizer);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
        s24_status status;
        const char *part;
    } cases[] = {
        {"a\nb\n\xff", 5, S24_ERROR_FORMAT, "bad.txt: line 2 is not UTF-8 at byte 4"},
        {"a\nb\u4e2d", 6, S24_ERROR_FORMAT,
         "bad.txt: line 1: the tokenizer has no token for the character U+4E2D"},
        {"\u4e2d", 3, S24_ERROR_FORMAT, "line 0: the tokenizer has no token"},
        {"", 0, S24_ERROR_FORMAT, "bad.txt: there is no text in it"},
    };
    char path[512];
    s24_stream *stream;
    (void)state;
    make_tokenizers();
    snprintf(path, sizeof path, "%s", io_path("bad.txt"));
    const char *const paths[] = {path};
    s24_tokenizer *tokenizer = load(io_path("chars.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        io_write_file(path, cases[i].text, cases[i].bytes);
        assert_int_equal(s24_stream_read(&stream, ctx, tokenizer, paths, 1), cases[i].status);
        assert_null(stream);
        assert_sentence(ctx, cases[i].part);
    }
    unlink(path);
    assert_int_equal(s24_stream_read(&stream, ctx, tokenizer, paths, 1), S24_ERROR_IO);
    assert_int_equal(s24_stream_read(&stream, ctx, tokenizer, paths, 0), S24_ERROR_ARGUMENT);
    s24_tokenizer_destroy(tokenizer);
}

static s24_status read_one(s24_ctx *failing_ctx)
{
    char path[512];
    s24_tokenizer *tokenizer = NULL;
    s24_stream *stream = NULL;
    snprintf(path, sizeof path, "%s", io_path("one.txt"));
    const char *const paths[] = {path};
    s24_status status = s24_tokenizer_load(&tokenizer, failing_ctx, io_path("llama.json"));
    if (status == S24_OK) status = s24_stream_read(&stream, failing_ctx, tokenizer, paths, 1);
    s24_stream_destroy(stream);
    s24_tokenizer_destroy(tokenizer);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    make_tokenizers();
    io_write_text(io_path("one.txt"), "ab\n");
    assert_true(count_failures(read_one) >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_shakespeare),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
