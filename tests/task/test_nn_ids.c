// SPDX-License-Identifier: Apache-2.0
/* Lines of token ids: what is one, what is none, and where that is said to be. */
#include "support.h"

#include <stdlib.h>

#include "nn_ctx.h"
#include "sparse24/task.h"

static s24_text text_of(const char *text)
{
    return (s24_text){text, strlen(text)};
}

static void test_ids_lie_end_to_end(void **state)
{
    static const char *const lines[] = {"5", "  0\t007  319 ", "", " \t ",
                                        "00000000000000000012 3"};
    static const int64_t offsets[] = {0, 1, 4, 4, 4, 6};
    static const int32_t ids[] = {5, 0, 7, 319, 12, 3};
    const s24_id_lines_opts opts = {.size = sizeof opts, .vocabulary = 320, .allow_empty = 1};
    s24_text texts[5];
    s24_id_lines *found;
    (void)state;
    for (int i = 0; i < 5; i++)
        texts[i] = text_of(lines[i]);
    assert_int_equal(s24_id_lines_create(&found, ctx, texts, 5, &opts), S24_OK);
    const s24_batch batch = s24_id_lines_batch(found);
    assert_int_equal(batch.texts, 5);
    assert_memory_equal(batch.offsets, offsets, sizeof offsets);
    assert_memory_equal(batch.ids, ids, sizeof ids);
    assert_null(batch.types);
    assert_null(batch.mask);
    s24_id_lines_destroy(found);
    assert_int_equal(s24_id_lines_create(&found, ctx, NULL, 0, &opts), S24_OK);
    assert_int_equal(s24_id_lines_batch(found).texts, 0);
    assert_int_equal(s24_id_lines_batch(found).offsets[0], 0);
    s24_id_lines_destroy(found);
    s24_id_lines_destroy(NULL);
    assert_int_equal(s24_id_lines_batch(NULL).texts, 0);
}

static void test_refused(void **state)
{
    static const struct {
        const char *line;
        size_t bytes; /* 0: to its end */
        const char *sentence;
    } cases[] = {
        {"1 320", 0, "file: line 8: '320' is not a token id, 0 to 319 is expected"},
        {"-1", 0, "file: line 8: '-1' is not a token id"},
        {"+1", 0, "'+1'"},
        {"1.0", 0, "'1.0'"},
        {"0x1", 0, "'0x1'"},
        {"1,2", 0, "'1,2'"},
        {"2147483648", 0, "'2147483648'"},
        {"18446744073709551617", 0, "'18446744073709551617'"}, /* 1, were it cut to 64 bits */
        {"12\0 3", 5, "'12\\x00'"},
        {"\0", 1, "'\\x00'"},
        {"1\r", 0, "'1\\r'"},
        {"\xef\xbc\x91", 0, "'\xef\xbc\x91'"}, /* a digit of full width */
        {"", 0, "file: line 8 has no token id"},
        {" \t", 0, "file: line 8 has no token id"},
    };
    const s24_id_lines_opts opts = {
        .size = sizeof opts, .name = "file", .first = 7, .vocabulary = 320};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_text lines[] = {
            {"4", 1}, {cases[i].line, cases[i].bytes ? cases[i].bytes : strlen(cases[i].line)}};
        s24_id_lines *found = (void *)&found;
        assert_int_equal(s24_id_lines_create(&found, ctx, lines, 2, &opts), S24_ERROR_FORMAT);
        assert_null(found);
        assert_sentence(ctx, cases[i].sentence);
    }
    char word[3000];
    memset(word, '9', sizeof word);
    const s24_text line = {word, sizeof word};
    s24_id_lines *found;
    assert_int_equal(s24_id_lines_create(&found, ctx, &line, 1, &opts), S24_ERROR_FORMAT);
    assert_sentence(ctx, "999…' is not a token id"); /* a bearable length of it */
}

static void test_arguments(void **state)
{
    const s24_text line = text_of("1");
    s24_id_lines_opts opts = {.size = sizeof opts};
    s24_id_lines *found;
    (void)state;
    assert_int_equal(s24_id_lines_create(&found, ctx, &line, 1, &opts), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "vocabulary is 0, 1 to 2147483647 is expected");
    opts.vocabulary = 8;
    assert_int_equal(s24_id_lines_create(&found, ctx, NULL, 1, &opts), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "lines is NULL");
    assert_int_equal(s24_id_lines_create(&found, ctx, &line, -1, &opts), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "count is negative");
    assert_int_equal(s24_id_lines_create(NULL, ctx, &line, 1, &opts), S24_ERROR_ARGUMENT);
}

static s24_status many(s24_ctx *failing_ctx)
{
    const s24_id_lines_opts opts = {.size = sizeof opts, .vocabulary = 10};
    s24_text lines[40];
    s24_id_lines *found;
    for (int i = 0; i < 40; i++)
        lines[i] = text_of("1 2 3 4 5 6 7 8 9");
    const s24_status status = s24_id_lines_create(&found, failing_ctx, lines, 40, &opts);
    s24_id_lines_destroy(found);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(count_failures(many) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_lie_end_to_end),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, ctx_setup, ctx_teardown);
}
