// SPDX-License-Identifier: Apache-2.0
/*
 * Lines of text: a regular file is mapped, anything else (standard input, a pipe) is read to its
 * end. Every line is checked to be UTF-8 here, so that nobody after it needs to.
 */
#include "io/file/io.h"

#include <string.h>
#include <sys/stat.h>

struct s24_lines {
    s24_ctx *ctx;
    s24i_map map;            /* of a regular file */
    s24_line_reader *stream; /* of anything else */
    s24_text *texts;
    int64_t count;
};

static s24_status read_all(s24_text *all, s24_lines *lines, const char *path)
{
    struct stat info;
    if (strcmp(path, "-") != 0 && stat(path, &info) == 0 &&
        (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) {
        TRY(s24i_map_open(&lines->map, lines->ctx, path));
        *all = (s24_text){(const char *)lines->map.data, lines->map.bytes};
        return S24_OK;
    }
    TRY(s24_line_reader_open(&lines->stream, lines->ctx, path));
    return s24i_line_reader_all(all, lines->stream);
}

static int64_t count_lines(const s24_text *all)
{
    int64_t count = 0;
    for (size_t at = 0; at < all->bytes; count++) {
        const char *end = memchr(all->data + at, '\n', all->bytes - at);
        at = end ? (size_t)(end - all->data) + 1 : all->bytes;
    }
    return count;
}

/* Cuts the text into lines->texts, which has room for all of them. */
static s24_status cut(s24_lines *lines, const s24_text *all, const char *name)
{
    size_t at = 0;
    for (int64_t i = 0; i < lines->count; i++) {
        const char *line = all->data + at;
        const char *end = memchr(line, '\n', all->bytes - at);
        lines->texts[i] = (s24_text){line, end ? (size_t)(end - line) : all->bytes - at};
        at += lines->texts[i].bytes + (end != NULL);
        TRY(s24i_line_take(&lines->texts[i], lines->ctx, name, i, end != NULL));
    }
    return S24_OK;
}

static s24_status read_lines(s24_lines *lines, const char *path)
{
    s24_text all;
    TRY(read_all(&all, lines, path));
    if (all.bytes >= 3 && !memcmp(all.data, "\xef\xbb\xbf", 3)) {
        all.data += 3;
        all.bytes -= 3;
    }
    lines->count = count_lines(&all);
    TRY(s24i_zeroed(&lines->texts, lines->ctx, (size_t)lines->count * sizeof *lines->texts));
    return cut(lines, &all, strcmp(path, "-") ? path : "standard input");
}

s24_status s24_lines_read(s24_lines **out, s24_ctx *ctx, const char *path)
{
    s24_lines *lines;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, path, S24_ERROR_ARGUMENT, "path is NULL, a file or - is expected");
    TRY(s24i_zeroed(&lines, ctx, sizeof *lines));
    lines->ctx = ctx;
    GIVE(out, lines, s24_lines_destroy, read_lines(lines, path));
}

void s24_lines_destroy(s24_lines *lines)
{
    if (!lines) return;
    s24i_map_close(&lines->map);
    s24_line_reader_close(lines->stream);
    s24_ctx_free(lines->ctx, lines->texts);
    s24_ctx_free(lines->ctx, lines);
}

int64_t s24_lines_count(const s24_lines *lines)
{
    return lines ? lines->count : 0;
}

const s24_text *s24_lines_texts(const s24_lines *lines)
{
    return lines ? lines->texts : NULL;
}
