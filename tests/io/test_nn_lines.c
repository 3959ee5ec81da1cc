// SPDX-License-Identifier: Apache-2.0
/* Lines of text: every end of a line, files and pipes alike, and what is not UTF-8. */
#include "support.h"

#include "nn_ctx.h"

static void assert_line(const s24_lines *lines, int64_t index, const char *expected)
{
    const s24_text *text = &s24_lines_texts(lines)[index];
    assert_int_equal(text->bytes, strlen(expected));
    assert_memory_equal(text->data, expected, text->bytes);
}

static void test_ends(void **state)
{
    static const struct {
        const char *text;
        int64_t count;
        const char *lines[4];
    } cases[] = {
        {"", 0, {0}},
        {"\n", 1, {""}},
        {"a", 1, {"a"}},
        {"a\n", 1, {"a"}},
        {"a\n\nb", 3, {"a", "", "b"}},
        {"a\r\nb\r\n\r\n", 3, {"a", "b", ""}},
        {"a\rb\nc\r", 2, {"a\rb", "c\r"}}, /* a CR ends a line only before LF */
        {"\xef\xbb\xbfz\n\xef\xbb\xbf", 2, {"z", "\xef\xbb\xbf"}}, /* the mark at the front drops */
        {"\xef\xbb\xbf", 0, {0}},
        {"  \u4e2d \xf0\x9f\x98\x80\n", 1, {"  \u4e2d \xf0\x9f\x98\x80"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_lines *lines;
        io_write_text(io_path("lines"), cases[i].text);
        assert_int_equal(s24_lines_read(&lines, ctx, io_path("lines")), S24_OK);
        assert_int_equal(s24_lines_count(lines), cases[i].count);
        for (int64_t l = 0; l < cases[i].count; l++)
            assert_line(lines, l, cases[i].lines[l]);
        s24_lines_destroy(lines);
    }
    s24_lines_destroy(NULL);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"good\n\nab\xff\n", "line 2 is not UTF-8 (byte 2"},
        {"\xc3", "line 0"},
        {"a\n\xed\xa0\x80", "line 1 is not UTF-8 (byte 0"},
        {"\xe4\xb8\n", "line 0"},
        {"\xc0\x80", "line 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_lines *lines = (void *)&lines;
        io_write_text(io_path("bad"), cases[i].text);
        assert_int_equal(s24_lines_read(&lines, ctx, io_path("bad")), S24_ERROR_FORMAT);
        assert_null(lines);
        assert_sentence(ctx, "bad");
        assert_sentence(ctx, cases[i].part);
    }
    s24_lines *lines;
    assert_int_equal(s24_lines_read(&lines, ctx, io_path("nowhere")), S24_ERROR_IO);
    assert_sentence(ctx, "nowhere");
    assert_int_equal(s24_lines_read(&lines, ctx, io_root), S24_ERROR_IO);
    assert_sentence(ctx, "it is a folder");
    assert_int_equal(s24_lines_read(&lines, ctx, NULL), S24_ERROR_ARGUMENT);
}

static void test_nul_is_text(void **state)
{
    s24_lines *lines;
    (void)state;
    io_write_file(io_path("nul"), "a\0b\nc", 5);
    assert_int_equal(s24_lines_read(&lines, ctx, io_path("nul")), S24_OK);
    assert_int_equal(s24_lines_count(lines), 2);
    assert_int_equal(s24_lines_texts(lines)[0].bytes, 3);
    s24_lines_destroy(lines);
}

/* Standard input becomes a file with `count` lines that number themselves. */
static void redirect(int64_t count)
{
    FILE *file = fopen(io_path("input"), "w");
    assert_non_null(file);
    for (int64_t i = 0; i < count; i++)
        fprintf(file, "line %lld\n", (long long)i);
    fclose(file);
    int fd = open(io_path("input"), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    close(fd);
}

static void test_standard_input(void **state)
{
    /* More than the first read takes, so that the memory grows; and nothing at all. */
    const int64_t counts[] = {20000, 0};
    (void)state;
    for (int c = 0; c < 2; c++) {
        s24_lines *lines;
        redirect(counts[c]);
        assert_int_equal(s24_lines_read(&lines, ctx, "-"), S24_OK);
        assert_int_equal(s24_lines_count(lines), counts[c]);
        if (counts[c]) assert_line(lines, 0, "line 0");
        if (counts[c]) assert_line(lines, 19999, "line 19999");
        s24_lines_destroy(lines);
    }
}

static void test_pipe(void **state)
{
    int ends[2];
    char path[64];
    s24_lines *lines;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x\ny\xff", 4), 4);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(s24_lines_read(&lines, ctx, path), S24_ERROR_FORMAT);
    assert_sentence(ctx, "line 1");
    close(ends[0]);
}

/* The next lines of a reader must be these, NULL after the last. */
static void assert_next(s24_line_reader *reader, int64_t most, const char *const *expected)
{
    const s24_text *texts;
    int64_t count, i = 0;
    assert_int_equal(s24_line_reader_next(&texts, &count, reader, most), S24_OK);
    for (; expected[i]; i++) {
        assert_true(i < count);
        assert_int_equal(texts[i].bytes, strlen(expected[i]));
        assert_memory_equal(texts[i].data, expected[i], texts[i].bytes);
    }
    assert_int_equal(count, i);
}
#define ASSERT_NEXT(reader, most, ...) assert_next(reader, most, (const char *const[]){__VA_ARGS__})

static void put(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void test_reader_gives_what_is_there(void **state)
{
    int ends[2];
    char path[64];
    s24_line_reader *reader;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(s24_line_reader_open(&reader, ctx, path), S24_OK);
    put(ends[1], "\xef\xbb\xbf"
                 "a\nb\r\n\nhal");
    ASSERT_NEXT(reader, 2, "a", "b", NULL);
    ASSERT_NEXT(reader, 2, "", NULL);
    put(ends[1], "f\nlast\r");
    ASSERT_NEXT(reader, 100, "half", NULL);
    close(ends[1]);
    ASSERT_NEXT(reader, 100, "last\r", NULL);
    ASSERT_NEXT(reader, 100, NULL);
    ASSERT_NEXT(reader, 100, NULL);
    s24_line_reader_close(reader);
    s24_line_reader_close(NULL);
    close(ends[0]);
}

static void test_reader_of_long_lines(void **state)
{
    /* Beyond the first room, in whole lines and in one. */
    char *text = malloc(400001);
    const s24_text *texts;
    s24_line_reader *reader;
    int64_t count;
    (void)state;
    memset(text, 'x', 400000);
    text[300000] = '\n';
    text[399999] = '\n';
    io_write_file(io_path("long"), text, 400000);
    assert_int_equal(s24_line_reader_open(&reader, ctx, io_path("long")), S24_OK);
    assert_int_equal(s24_line_reader_next(&texts, &count, reader, 8), S24_OK);
    assert_int_equal(count, 2);
    assert_int_equal(texts[0].bytes, 300000);
    assert_int_equal(texts[1].bytes, 99998);
    assert_memory_equal(texts[1].data, text, 99998);
    s24_line_reader_close(reader);
    free(text);
    redirect(20000);
    assert_int_equal(s24_line_reader_open(&reader, ctx, "-"), S24_OK);
    for (int64_t line = 0; line < 20000; line += count) {
        char expected[32];
        assert_int_equal(s24_line_reader_next(&texts, &count, reader, 32), S24_OK);
        assert_int_equal(count, 20000 - line < 32 ? 20000 - line : 32);
        snprintf(expected, sizeof expected, "line %lld", (long long)line);
        assert_int_equal(texts[0].bytes, strlen(expected));
        assert_memory_equal(texts[0].data, expected, texts[0].bytes);
    }
    ASSERT_NEXT(reader, 32, NULL);
    s24_line_reader_close(reader);
}

static void test_reader_refuses(void **state)
{
    s24_line_reader *reader;
    const s24_text *texts;
    int64_t count;
    (void)state;
    io_write_text(io_path("bad"), "good\n\nab\xff\nc\n");
    assert_int_equal(s24_line_reader_open(&reader, ctx, io_path("bad")), S24_OK);
    ASSERT_NEXT(reader, 100, "good", "", NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s24_line_reader_next(&texts, &count, reader, 100), S24_ERROR_FORMAT);
        assert_sentence(ctx, "bad: line 2 is not UTF-8 (byte 2");
    }
    assert_int_equal(s24_line_reader_next(&texts, &count, reader, 0), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_line_reader_next(NULL, &count, reader, 1), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_line_reader_next(&texts, &count, NULL, 1), S24_ERROR_ARGUMENT);
    s24_line_reader_close(reader);
    io_write_text(io_path("bad"), "\xef\xbb");
    assert_int_equal(s24_line_reader_open(&reader, ctx, io_path("bad")), S24_OK);
    assert_int_equal(s24_line_reader_next(&texts, &count, reader, 1), S24_ERROR_FORMAT);
    s24_line_reader_close(reader);
    assert_int_equal(s24_line_reader_open(&reader, ctx, io_path("nowhere")), S24_ERROR_IO);
    assert_null(reader);
    assert_int_equal(s24_line_reader_open(&reader, ctx, io_root), S24_OK);
    assert_int_equal(s24_line_reader_next(&texts, &count, reader, 1), S24_ERROR_IO);
    s24_line_reader_close(reader);
    assert_int_equal(s24_line_reader_open(&reader, ctx, NULL), S24_ERROR_ARGUMENT);
}

static s24_status read_by_line(s24_ctx *failing_ctx)
{
    s24_line_reader *reader;
    const s24_text *texts;
    int64_t count = 1;
    redirect(20000);
    s24_status status = s24_line_reader_open(&reader, failing_ctx, "-");
    if (status != S24_OK) return status;
    while (status == S24_OK && count)
        status = s24_line_reader_next(&texts, &count, reader, 20000);
    s24_line_reader_close(reader);
    return status;
}

static s24_status read_both(s24_ctx *failing_ctx)
{
    s24_lines *lines;
    io_write_text(io_path("lines"), "a\nb");
    s24_status status = s24_lines_read(&lines, failing_ctx, io_path("lines"));
    if (status != S24_OK) return status;
    s24_lines_destroy(lines);
    redirect(20000);
    status = s24_lines_read(&lines, failing_ctx, "-");
    if (status == S24_OK) s24_lines_destroy(lines);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(count_failures(read_both) >= 6);
    assert_true(count_failures(read_by_line) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nul_is_text),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_standard_input),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_reader_refuses),
        cmocka_unit_test(test_reader_of_long_lines),
        cmocka_unit_test(test_reader_gives_what_is_there),
    };
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
