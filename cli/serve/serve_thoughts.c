// SPDX-License-Identifier: Apache-2.0
/*
 * What an answer thinks apart from what it says, by the marks of the chat template. Both are told
 * as they come, without the marks and the white space around them; what may still become a mark
 * waits.
 */
#include <string.h>

#include "serve/serve_language.h"

static const char thoughts_key[] = "reasoning_content", answer_key[] = "content";

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The first byte from `at` on that is no white space. */
static size_t skip_space(const generate_text *t, size_t at, size_t end)
{
    while (at < end && is_space(t->text[at]))
        at++;
    return at;
}

static size_t strip_space(const generate_text *t, size_t begin, size_t end)
{
    while (end > begin && is_space(t->text[end - 1]))
        end--;
    return end;
}

/* Where a mark stands; SIZE_MAX: nowhere. */
static size_t find_mark(const generate_text *t, const char *mark, size_t begin, size_t end)
{
    const size_t bytes = strlen(mark);
    for (size_t at = begin; at + bytes <= end; at++)
        if (!memcmp(t->text + at, mark, bytes)) return at;
    return SIZE_MAX;
}

/* Where what may be the begin of a mark stands at the end of a text. */
static size_t maybe_mark(const generate_text *t, const char *mark, size_t begin, size_t end)
{
    size_t most = strlen(mark);
    if (most > end - begin) most = end - begin;
    while (most > 0 && memcmp(t->text + end - most, mark, most) != 0)
        most--;
    return end - most;
}

/* Looks for the mark that begins a thought, before all else. 0: it is too early to tell. */
static int find_begin(serve_generation *g, size_t end)
{
    generate_text *t = &g->text;
    const char *mark = g->model->language.marks[0];
    const size_t at = skip_space(t, t->shown, end), bytes = strlen(mark);
    const size_t there = end - at < bytes ? end - at : bytes;
    const int fits = there == 0 || !memcmp(t->text + at, mark, there);
    if (fits && there < bytes && !t->stopped) return 0;
    if (fits && there == bytes) t->shown = at + bytes;
    g->phase = fits && there == bytes ? SERVE_OPENED : SERVE_ANSWERING;
    return 1;
}

/* Goes over white space to the next phase. 0: there may come more of it. */
static int go_over_space(serve_generation *g, size_t end, serve_phase next)
{
    g->text.shown = skip_space(&g->text, g->text.shown, end);
    if (g->text.shown == end) return 0;
    g->phase = next;
    return 1;
}

/* What of a thought can be told: bytes shown … *last − 1. */
static void tell_thought(serve_generation *g, size_t end, size_t *last, size_t *next)
{
    const generate_text *t = &g->text;
    const char *mark = g->model->language.marks[1];
    const size_t at = find_mark(t, mark, t->shown, end);
    if (at != SIZE_MAX) {
        *last = strip_space(t, t->shown, at);
        *next = at + strlen(mark);
        g->phase = SERVE_AFTER;
        return;
    }
    const size_t whole = t->stopped ? end : maybe_mark(t, mark, t->shown, end);
    *last = strip_space(t, t->shown, whole);
    *next = t->stopped ? end : *last;
}

/* The next part, under its key; NULL: there is none now. */
static json_t *next_part(serve_generation *g, const char **key)
{
    generate_text *t = &g->text;
    const size_t end = generate_text_ready(t, g->stops);
    size_t last = end, next = end;
    if (g->phase == SERVE_BEFORE && !find_begin(g, end)) return NULL;
    if (g->phase == SERVE_OPENED && !go_over_space(g, end, SERVE_THINKING)) return NULL;
    *key = g->phase == SERVE_THINKING ? thoughts_key : answer_key;
    if (g->phase == SERVE_THINKING) tell_thought(g, end, &last, &next);
    if (g->phase == SERVE_AFTER && *key == answer_key && !go_over_space(g, end, SERVE_ANSWERING))
        return NULL;
    const size_t from = t->shown;
    t->shown = next;
    if (last > from) return generate_bytes_json(t->text + from, last - from);
    return g->phase == SERVE_AFTER && next < end ? next_part(g, key) : NULL;
}

int serve_thoughts_add(serve_generation *generation, int32_t id)
{
    serve_generation *g = generation;
    const serve_language *l = &g->model->language;
    const int is_begin = id == l->mark_ids[0] && g->phase == SERVE_BEFORE;
    const int is_end =
        id == l->mark_ids[1] &&
        (g->phase == SERVE_BEFORE || g->phase == SERVE_OPENED || g->phase == SERVE_THINKING);
    if (id < 0 || !(is_begin || is_end)) return CLI_OK;
    const char *mark = l->marks[is_end];
    return generate_text_put(&g->model->cli, &g->text, mark, strlen(mark));
}

json_t *serve_part_json(serve_generation *generation)
{
    serve_generation *g = generation;
    const char *key = answer_key;
    json_t *part;
    if (g->phase == SERVE_PLAIN) {
        part = generate_text_rest(&g->text, g->stops);
        if (json_string_length(part) > 0) return part;
        json_decref(part);
        return NULL;
    }
    part = next_part(g, &key);
    return part ? json_pack("{s:o}", key, part) : NULL;
}

json_t *serve_answer_json(serve_generation *generation)
{
    serve_generation *g = generation;
    json_t *part, *answer;
    if (g->phase == SERVE_PLAIN) return generate_text_json(&g->text, 0);
    answer = json_pack("{s:s}", answer_key, "");
    while ((part = serve_part_json(g)) != NULL) {
        json_object_update(answer, part);
        json_decref(part);
    }
    return answer;
}
