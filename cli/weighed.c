// SPDX-License-Identifier: Apache-2.0
/* Weights of words: made of texts, written, printed and searched. */
#include "weighed.h"

#include <stdlib.h>
#include <string.h>

#include "ragged.h"

enum { TEXTS = 1024, ROOM = 1 << 23 /* the most texts, and words of theirs, at a time */ };

/* ---- making ---------------------------------------------------------------------------------- */

static int reserve(weighed *w, int64_t texts, int64_t words)
{
    const int is_first = !w->offsets;
    int64_t room = w->word_room;
    if (!ragged_grow(&w->offsets, &w->text_room, w->count + texts + 1, sizeof *w->offsets))
        return 0;
    if (is_first) w->offsets[0] = 0;
    const int64_t all = w->offsets[w->count] + words + 1;
    return ragged_grow(&w->ids, &room, all, sizeof *w->ids) &&
           ragged_grow(&w->weights, &w->word_room, all, sizeof *w->weights);
}

int weighed_add(weighed *w, const s24_word_weights *rows, int64_t first, int64_t count)
{
    int64_t words = 0;
    for (int64_t i = first; i < first + count; i++)
        words += rows->counts[i];
    if (!reserve(w, count, words)) return 0;
    for (int64_t i = first; i < first + count; i++) {
        const int64_t at = w->offsets[w->count];
        const size_t some = (size_t)rows->counts[i];
        memcpy(w->ids + at, rows->ids + i * rows->most, some * sizeof *w->ids);
        memcpy(w->weights + at, rows->weights + i * rows->most, some * sizeof *w->weights);
        w->offsets[++w->count] = at + rows->counts[i];
    }
    return 1;
}

static int no_memory(cli_app *cli, int64_t texts)
{
    return cli_fail(cli, CLI_IO, "out of memory for the words of %lld texts", (long long)texts);
}

static int weigh_pieces(cli_app *cli, s24_encoder *encoder, const encode_lines *lines,
                        const s24_word_weights *rows, weighed *out)
{
    const int64_t piece = ROOM / rows->most < TEXTS ? ROOM / rows->most + 1 : TEXTS;
    int code = reserve(out, 0, 0) ? CLI_OK : no_memory(cli, lines->count);
    for (int64_t i = 0, some; code == CLI_OK && i < lines->count; i += some) {
        int64_t tokens = 0;
        some = lines->count - i < piece ? lines->count - i : piece;
        code = cli_status(
            cli, s24_encoder_weigh(rows, &tokens, encoder, cli->ctx, lines->texts + i, some));
        if (code == CLI_OK && !weighed_add(out, rows, 0, some))
            code = no_memory(cli, out->count + some);
        out->tokens += tokens;
    }
    return code;
}

int weigh_texts(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count,
                int64_t top, weighed *out)
{
    const encode_lines lines = {.texts = texts, .count = count};
    s24_word_weights rows = {.most = s24_encoder_width(encoder)};
    out->vocabulary = rows.most;
    if (top && top < rows.most) rows.most = top;
    const size_t piece = (size_t)(ROOM / rows.most < TEXTS ? ROOM / rows.most + 1 : TEXTS);
    const size_t texts_at_once = (size_t)count < piece ? (size_t)count + 1 : piece;
    rows.ids = malloc(texts_at_once * (size_t)rows.most * sizeof *rows.ids);
    rows.weights = malloc(texts_at_once * (size_t)rows.most * sizeof *rows.weights);
    rows.counts = malloc(texts_at_once * sizeof *rows.counts);
    const int code = rows.ids && rows.weights && rows.counts
                         ? weigh_pieces(cli, encoder, &lines, &rows, out)
                         : no_memory(cli, count);
    free(rows.ids);
    free(rows.weights);
    free(rows.counts);
    return code;
}

int weigh_file(cli_app *cli, s24_encoder *encoder, const char *path, int64_t top, weighed *out)
{
    const int code = cli_status(cli, s24_lines_read(&out->lines, cli->ctx, path));
    if (code != CLI_OK) return code;
    return weigh_texts(cli, encoder, s24_lines_texts(out->lines), s24_lines_count(out->lines), top,
                       out);
}

void weighed_free(weighed *w)
{
    s24_lines_destroy(w->lines);
    free(w->offsets);
    free(w->ids);
    free(w->weights);
}

/* ---- writing --------------------------------------------------------------------------------- */

int weighed_may_save(cli_app *cli, const char *path)
{
    return ragged_may_save(cli, path, "weights of words");
}

int weighed_save(cli_app *cli, const char *path, const weighed *w)
{
    enum { TENSORS = 3 };
    const int64_t words = w->offsets[w->count];
    const s24_tensor tensors[TENSORS] = {
        {.name = "offsets", .dtype = S24_I64, .rank = 1, .shape = {w->count + 1}},
        {.name = "ids", .dtype = S24_I32, .rank = 1, .shape = {words}},
        {.name = "weights", .dtype = S24_F32, .rank = 1, .shape = {words}}};
    const void *const data[TENSORS] = {w->offsets, w->ids, w->weights};
    return ragged_save(cli, path, tensors, data, TENSORS, w->vocabulary);
}

/* What a token reads as; U+FFFD stands for bytes that are no character by themselves. */
static json_t *token_json(cli_app *cli, const s24_encoder *encoder, int32_t id)
{
    char text[512];
    size_t bytes = sizeof text;
    if (s24_tokenizer_decode(text, &bytes, s24_encoder_tokenizer(encoder), cli->ctx, &id, 1) !=
            S24_OK ||
        bytes > sizeof text)
        return json_string("");
    json_t *token = json_stringn(text, bytes);
    return token ? token : json_string("\xef\xbf\xbd");
}

int weighed_print(cli_app *cli, const s24_encoder *encoder, const weighed *w, int64_t row)
{
    json_t *line = json_object(), *ids = json_array(), *tokens = json_array(),
           *weights = json_array();
    for (int64_t i = w->offsets[row]; i < w->offsets[row + 1]; i++) {
        json_array_append_new(ids, json_integer(w->ids[i]));
        json_array_append_new(tokens, token_json(cli, encoder, w->ids[i]));
        json_array_append_new(weights, cli_real((double)w->weights[i]));
    }
    json_object_set_new(line, "line", json_integer(row));
    json_object_set_new(line, "ids", ids);
    json_object_set_new(line, "tokens", tokens);
    json_object_set_new(line, "weights", weights);
    const int whole = line && cli_json_is_whole();
    const int failed =
        whole && (json_dumpf(line, stdout, JSON_REAL_PRECISION(9)) || putchar('\n') < 0);
    json_decref(line);
    if (!whole || !cli_json_is_whole())
        return cli_fail(cli, CLI_IO, "out of memory for a line of JSON");
    return failed ? cli_output_failed(cli, 0) : CLI_OK;
}
