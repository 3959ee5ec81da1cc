// SPDX-License-Identifier: Apache-2.0
/*
 * What an answer thinks apart from what it says, by the marks of the chat template. Both are told
 * as they come, without the marks and the white space around them; what may still become a mark
 * waits. Calls of tools in what it says are told apart, too, each when it is whole.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_language.h"

static const char thoughts_key[] = "reasoning_content", answer_key[] = "content",
                  calls_key[] = "tool_calls";

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A part of the answer as JSON's string; one that goes on after something else is a line of its
   own, for which the last byte of what stood between gives its place. */
static json_t *part_json(serve_generation *g, size_t from, size_t end)
{
    if (g->resumed) g->text.text[--from] = '\n';
    g->resumed = 0;
    json_t *part = generate_bytes_json(g->text.text + from, end - from);
    g->lost |= !part;
    return part;
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
    g->resumed = next == SERVE_THINKING ? g->thoughts > 0 : g->told > 0;
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
        g->thoughts++;
        return;
    }
    const size_t whole = t->stopped ? end : maybe_mark(t, mark, t->shown, end);
    *last = strip_space(t, t->shown, whole);
    *next = t->stopped ? end : *last;
}

/* Where calls may begin; SIZE_MAX: nowhere yet. */
static size_t find_calls(const serve_generation *g, size_t end)
{
    const generate_text *t = &g->text;
    const char *mark = g->model->language.calls->begin;
    if (*mark) return find_mark(t, mark, t->shown, end);
    const size_t at = skip_space(t, t->shown, end);
    return (!g->told || g->called) && at < end && t->text[at] == '{' ? at : SIZE_MAX;
}

/* What the answer says up to a byte, which goes on at `next`. */
static json_t *tell_text(serve_generation *g, size_t last, size_t next)
{
    const size_t from = g->text.shown;
    g->text.shown = next;
    if (last <= from) return NULL;
    g->resumed |= g->told && g->called;
    g->told++;
    g->called = 0;
    return part_json(g, from, last);
}

/* Where the next thought of an answer in channels begins; SIZE_MAX: nowhere yet. */
static size_t find_thought(const serve_generation *g, size_t end)
{
    const serve_language *l = &g->model->language;
    return l->channels.known ? find_mark(&g->text, l->marks[0], g->text.shown, end) : SIZE_MAX;
}

static json_t *next_part(serve_generation *g, const char **key);

/* Tells what stands before a thought, then that. */
static json_t *think_again(serve_generation *g, size_t at, const char **key)
{
    json_t *said = tell_text(g, strip_space(&g->text, g->text.shown, at), at);
    if (said) return said;
    g->text.shown = at + strlen(g->model->language.marks[0]);
    g->phase = SERVE_OPENED;
    return next_part(g, key);
}

/* The next part of an answer in which calls are looked for. */
static json_t *next_answer(serve_generation *g, size_t end, const char **key)
{
    generate_text *t = &g->text;
    const char *mark = g->model->language.calls->begin;
    size_t next;
    if (g->called || (!*mark && !g->told)) t->shown = skip_space(t, t->shown, end);
    if (g->called && !*mark && t->shown < end && t->text[t->shown] == ';')
        t->shown = skip_space(t, t->shown + 1, end);
    const size_t at = find_calls(g, end), thought = find_thought(g, end);
    if (thought < at) return think_again(g, thought, key);
    if (at == SIZE_MAX) {
        const size_t whole = *mark ? maybe_mark(t, mark, t->shown, end) : end;
        const size_t last = t->stopped ? end : strip_space(t, t->shown, whole);
        return tell_text(g, last, last);
    }
    json_t *said = tell_text(g, strip_space(t, t->shown, at), at);
    if (said) return said;
    json_t *calls = serve_calls_read(g, &next, at, end);
    if (calls) {
        t->shown = next;
        g->called = 1;
        *key = calls_key;
        return calls;
    }
    if (!t->stopped) return NULL;
    g->sought = 0; /* it is none: the mark is text */
    return tell_text(g, end, end);
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
    if (*key == answer_key && g->sought) return next_answer(g, end, key);
    const size_t from = t->shown;
    t->shown = next;
    if (last > from) return part_json(g, from, last);
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
    const int is_call = g->sought && id == l->call_id;
    if (id < 0 || !(is_begin || is_end || is_call)) return CLI_OK;
    const char *mark = is_call ? l->calls->begin : l->marks[is_end];
    return generate_text_put(&g->model->cli, &g->text, mark, strlen(mark));
}

json_t *serve_part_json(serve_generation *generation)
{
    serve_generation *g = generation;
    const char *key = answer_key;
    json_t *part;
    if (g->phase == SERVE_PLAIN) {
        part = generate_text_rest(&g->text, g->stops);
        g->lost |= !part;
        if (json_string_length(part) > 0) return part;
        json_decref(part);
        return NULL;
    }
    part = next_part(g, &key);
    return part ? json_pack("{s:o}", key, part) : NULL;
}

/* Both, one after the other; either may have a byte of 0. */
static json_t *joined(const json_t *first, const json_t *second)
{
    const size_t before = json_string_length(first), more = json_string_length(second);
    char *both = malloc(before + more + 1);
    if (!both) return NULL;
    memcpy(both, json_string_value(first), before);
    memcpy(both + before, json_string_value(second), more);
    json_t *string = json_stringn(both, before + more);
    free(both);
    return string;
}

/* Adds a part to an answer that has what came before it. */
static void join_part(serve_generation *g, json_t *answer, json_t *part)
{
    const char *key;
    json_t *more;
    json_object_foreach (part, key, more) {
        json_t *before = json_object_get(answer, key);
        if (json_is_array(before))
            json_array_extend(before, more);
        else if (json_string_length(before))
            g->lost |= json_object_set_new(answer, key, joined(before, more)) != 0;
        else
            json_object_set(answer, key, more);
    }
}

json_t *serve_answer_json(serve_generation *generation)
{
    serve_generation *g = generation;
    json_t *part, *answer;
    if (g->phase == SERVE_PLAIN) return generate_text_json(&g->text, 0);
    answer = json_pack("{s:s}", answer_key, "");
    while ((part = serve_part_json(g)) != NULL) {
        join_part(g, answer, part);
        json_decref(part);
    }
    if (json_object_get(answer, calls_key) &&
        !json_string_length(json_object_get(answer, answer_key)))
        json_object_set_new(answer, answer_key, json_null());
    return answer;
}
