// SPDX-License-Identifier: Apache-2.0
/*
 * Lines as they come: what is there is given at once, and a read is waited for only when no whole
 * line is. What must stay true: no text is given that is not UTF-8, and the lines before a bad one
 * are given before its error.
 */
#include "io/file/io.h"
#include "io/tokenizer/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define FIRST_ROOM ((size_t)1 << 16)

struct s24_line_reader {
    s24_ctx *ctx;
    char *name; /* for sentences */
    int fd;
    int owns_fd;
    int ended;    /* read gave its end */
    int started;  /* the first bytes were looked at */
    char *memory; /* [room]; begin … end is not given yet, begin … scanned has been searched */
    size_t room, begin, scanned, end;
    int64_t whole;   /* ends of lines in begin … scanned */
    int64_t line;    /* number of the first line not given */
    s24_text *texts; /* [text_room] */
    int64_t text_room;
};

static s24_status open_input(s24_line_reader *reader, s24_ctx *ctx, const char *path)
{
    const int is_input = !strcmp(path, "-");
    TRY(s24i_copy_string(&reader->name, ctx, is_input ? "standard input" : path));
    reader->owns_fd = !is_input;
    reader->fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    return reader->fd < 0 ? s24i_fail_errno(ctx, "open", path) : S24_OK;
}

s24_status s24_line_reader_open(s24_line_reader **out, s24_ctx *ctx, const char *path)
{
    s24_line_reader *reader;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, path, S24_ERROR_ARGUMENT, "path is NULL, a file or - is expected");
    TRY(s24i_zeroed(&reader, ctx, sizeof *reader));
    reader->ctx = ctx;
    reader->fd = -1;
    GIVE(out, reader, s24_line_reader_close, open_input(reader, ctx, path));
}

void s24_line_reader_close(s24_line_reader *reader)
{
    if (!reader) return;
    if (reader->owns_fd && reader->fd >= 0) close(reader->fd);
    s24_ctx_free(reader->ctx, reader->name);
    s24_ctx_free(reader->ctx, reader->memory);
    s24_ctx_free(reader->ctx, reader->texts);
    s24_ctx_free(reader->ctx, reader);
}

/* Makes room after what is kept: moves it to the front, or else doubles the block. */
static s24_status make_room(s24_line_reader *r)
{
    const size_t kept = r->end - r->begin;
    if (r->end < r->room) return S24_OK;
    char *memory = r->memory;
    size_t room = r->room;
    if (kept > room / 2 || !room) {
        room = room ? room * 2 : FIRST_ROOM;
        memory = s24_ctx_alloc(r->ctx, room);
        REQUIRE(r->ctx, memory, S24_ERROR_MEMORY, "out of memory after %zu bytes of text", kept);
    }
    if (kept) memmove(memory, r->memory + r->begin, kept);
    if (memory != r->memory) s24_ctx_free(r->ctx, r->memory);
    r->memory = memory;
    r->room = room;
    r->scanned -= r->begin;
    r->end = kept;
    r->begin = 0;
    return S24_OK;
}

static s24_status read_more(s24_line_reader *r)
{
    TRY(make_room(r));
    const ssize_t got = read(r->fd, r->memory + r->end, r->room - r->end);
    /* The signal may be the user's wish to stop, which the progress callback knows. */
    if (got < 0 && errno == EINTR) return s24_ctx_progress(r->ctx, "reading text", 0, 1);
    if (got < 0) return s24i_fail_errno(r->ctx, "read", r->name);
    r->ended = got == 0;
    r->end += (size_t)got;
    return S24_OK;
}

s24_status s24i_line_reader_all(s24_text *all, s24_line_reader *reader)
{
    while (!reader->ended)
        TRY(read_more(reader));
    *all = (s24_text){reader->memory, reader->end};
    return S24_OK;
}

/* The mark that may stand at the front is no text; it may arrive in pieces. */
static int skip_mark(s24_line_reader *r)
{
    static const char mark[3] = "\xef\xbb\xbf";
    const size_t have = r->end - r->begin;
    if (r->started) return 1;
    if (!r->ended && have < sizeof mark && !memcmp(r->memory, mark, have)) return 0;
    if (have >= sizeof mark && !memcmp(r->memory, mark, sizeof mark)) r->begin += sizeof mark;
    r->scanned = r->begin;
    r->started = 1;
    return 1;
}

/* Counts ends of lines up to `most`. */
static void scan(s24_line_reader *r, int64_t most)
{
    while (r->whole < most) {
        const char *end = memchr(r->memory + r->scanned, '\n', r->end - r->scanned);
        r->scanned = end ? (size_t)(end - r->memory) + 1 : r->end;
        if (!end) return;
        r->whole++;
    }
}

/* Is there something to read, or the end, without waiting? */
static int is_ready(const s24_line_reader *r)
{
    struct pollfd input = {.fd = r->fd, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

static s24_status fill(s24_line_reader *r, int64_t most)
{
    for (;;) {
        if (r->memory && skip_mark(r)) scan(r, most);
        if (r->ended || r->whole >= most) return S24_OK;
        if (r->whole > 0 ? !is_ready(r) : r->end - r->begin > INT32_MAX) return S24_OK;
        TRY(read_more(r));
    }
}

s24_status s24i_line_take(s24_text *line, s24_ctx *ctx, const char *name, int64_t number, int ended)
{
    if (ended && line->bytes > 0 && line->data[line->bytes - 1] == '\r') line->bytes--;
    REQUIRE(ctx, line->bytes <= INT32_MAX, S24_ERROR_FORMAT,
            "%s: line %lld has %zu bytes, at most %d are expected", name, (long long)number,
            line->bytes, INT32_MAX);
    const size_t valid = s24i_utf8_valid(line->data, line->bytes);
    REQUIRE(ctx, valid == line->bytes, S24_ERROR_FORMAT,
            "%s: line %lld is not UTF-8 (byte %zu of the line; both counted from 0)", name,
            (long long)number, valid);
    return S24_OK;
}

/* Gives up to `most` lines, fewer before a bad one; the error when that is the first. */
static s24_status cut(int64_t *count, s24_line_reader *r, int64_t most)
{
    for (*count = 0; *count < most && r->begin < r->end; ++*count) {
        const char *line = r->memory + r->begin;
        const char *end = memchr(line, '\n', r->end - r->begin);
        if (!end && !r->ended && r->end - r->begin <= INT32_MAX) break;
        const size_t bytes = end ? (size_t)(end - line) : r->end - r->begin;
        s24_text text = {line, bytes};
        const s24_status status = s24i_line_take(&text, r->ctx, r->name, r->line, end != NULL);
        if (status != S24_OK) return *count ? S24_OK : status;
        r->texts[*count] = text;
        r->begin += bytes + (end != NULL);
        r->whole -= end != NULL;
        r->line++;
    }
    return S24_OK;
}

s24_status s24_line_reader_next(const s24_text **texts, int64_t *count, s24_line_reader *reader,
                                int64_t most)
{
    if (!reader) return S24_ERROR_ARGUMENT;
    REQUIRE(reader->ctx, texts && count && most > 0, S24_ERROR_ARGUMENT, "%s",
            !texts   ? "texts is NULL"
            : !count ? "count is NULL"
                     : "most is under 1");
    *count = 0;
    if (most > reader->text_room) {
        void *memory;
        TRY(s24i_zeroed(&memory, reader->ctx, (size_t)most * sizeof **texts));
        s24_ctx_free(reader->ctx, reader->texts);
        reader->texts = memory;
        reader->text_room = most;
    }
    *texts = reader->texts;
    TRY(fill(reader, most));
    return cut(count, reader, most);
}
