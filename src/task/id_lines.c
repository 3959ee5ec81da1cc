// SPDX-License-Identifier: Apache-2.0
/* Reads lines of token ids. Every id is checked here against the vocabulary, so that nobody after
   needs to know from which file and line it came. */
#include <string.h>

#include "io/file/io.h"
#include "sparse24/task.h"

struct s24_id_lines {
    s24_ctx *ctx;
    int64_t count, room;
    int64_t *offsets; /* [count + 1] */
    int32_t *ids;     /* [room], offsets[count] of them are there */
};

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The number that a word spells, -1 for none below the limit. */
static int64_t parse(const char *word, size_t bytes, int64_t limit)
{
    int64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (word[i] < '0' || word[i] > '9') return -1;
        value = value * 10 + (word[i] - '0');
        if (value >= limit) return -1;
    }
    return value;
}

static s24_status refuse(s24_ctx *ctx, const s24_text *word, int64_t line,
                         const s24_id_lines_opts *opts)
{
    char shown[64];
    const size_t written = s24_text_escape(shown, sizeof shown, word->data, word->bytes);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: line %lld: '%s%s' is not a token id, 0 to %lld is expected",
                        opts->name, (long long)(opts->first + line), shown,
                        written < word->bytes ? "…" : "", (long long)opts->vocabulary - 1);
}

/* Adds the ids of line `number` after those that are there. */
static s24_status take_line(s24_id_lines *l, const s24_text *line, int64_t number,
                            const s24_id_lines_opts *opts)
{
    int64_t used = l->offsets[number];
    for (size_t at = 0; at < line->bytes;) {
        size_t end = at;
        while (end < line->bytes && !is_blank(line->data[end]))
            end++;
        const s24_text word = {line->data + at, end - at};
        at = end + 1;
        if (!word.bytes) continue;
        const int64_t id = parse(word.data, word.bytes, opts->vocabulary);
        if (id < 0) return refuse(l->ctx, &word, number, opts);
        TRY(s24i_reserve_elems(&l->ids, &l->room, l->ctx, used + 1, sizeof *l->ids, "token ids"));
        l->ids[used++] = (int32_t)id;
    }
    REQUIRE(l->ctx, used > l->offsets[number] || opts->allow_empty, S24_ERROR_FORMAT,
            "%s: line %lld has no token id", opts->name, (long long)(opts->first + number));
    l->offsets[number + 1] = used;
    return S24_OK;
}

static s24_status take_lines(s24_id_lines *l, const s24_text *lines, const s24_id_lines_opts *opts)
{
    TRY(s24i_alloc_elems(&l->offsets, l->ctx, l->count + 1, sizeof *l->offsets, "lines"));
    l->offsets[0] = 0;
    for (int64_t i = 0; i < l->count; i++)
        TRY(take_line(l, &lines[i], i, opts));
    return S24_OK;
}

s24_status s24_id_lines_create(s24_id_lines **out, s24_ctx *ctx, const s24_text *lines,
                               int64_t count, const s24_id_lines_opts *opts)
{
    s24_id_lines_opts known;
    s24_id_lines *l;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, count >= 0 && (lines || !count), S24_ERROR_ARGUMENT, "%s",
            count < 0 ? "count is negative" : "lines is NULL");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_id_lines_opts"));
    REQUIRE(ctx, known.vocabulary >= 1 && known.vocabulary <= INT32_MAX, S24_ERROR_ARGUMENT,
            "vocabulary is %lld, 1 to %d is expected", (long long)known.vocabulary, INT32_MAX);
    if (!known.name) known.name = "token ids";
    TRY(s24i_zeroed(&l, ctx, sizeof *l));
    l->ctx = ctx;
    l->count = count;
    GIVE(out, l, s24_id_lines_destroy, take_lines(l, lines, &known));
}

void s24_id_lines_destroy(s24_id_lines *lines)
{
    if (!lines) return;
    s24_ctx_free(lines->ctx, lines->offsets);
    s24_ctx_free(lines->ctx, lines->ids);
    s24_ctx_free(lines->ctx, lines);
}

s24_batch s24_id_lines_batch(const s24_id_lines *lines)
{
    if (!lines) return (s24_batch){0};
    return (s24_batch){.texts = lines->count, .offsets = lines->offsets, .ids = lines->ids};
}
