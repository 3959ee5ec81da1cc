// SPDX-License-Identifier: Apache-2.0
/*
 * Changes of JSON that leave it JSON: a value becomes another of the same input, of another input
 * or of a list, a member goes, comes twice or gets another's key, a number moves. What is no JSON
 * is scanned for as much as looks like it.
 */
#include "grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

enum { NODES = 2048, DEPTH = 64 };

/* A value, and its key where it has one. */
typedef struct node {
    size_t whole, begin, end; /* whole: where its key begins */
    size_t key_end;           /* whole: it has none */
} node;

typedef struct tree {
    node nodes[NODES];
    size_t count;
} tree;

static size_t string_end(const uint8_t *text, size_t at, size_t bytes)
{
    for (at++; at < bytes && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < bytes ? at + 1 : bytes;
}

static size_t word_end(const uint8_t *text, size_t at, size_t bytes)
{
    while (at < bytes && !strchr(" \t\r\n,:[]{}\"", text[at]))
        at++;
    return at;
}

static int is_key(const uint8_t *text, size_t at, size_t bytes)
{
    while (at < bytes && (text[at] == ' ' || text[at] == '\n'))
        at++;
    return at < bytes && text[at] == ':';
}

static void scan(tree *t, const uint8_t *text, size_t bytes)
{
    size_t open[DEPTH], depth = 0, key = 0, key_end = 0;
    int has_key = 0;
    t->count = 0;
    for (size_t at = 0, end; at < bytes && t->count < NODES; at = end) {
        end = at + 1;
        if (text[at] == '"') end = string_end(text, at, bytes);
        if (text[at] == '"' && is_key(text, end, bytes)) {
            has_key = 1;
            key = at;
            key_end = end;
            continue;
        }
        if (text[at] == ']' || text[at] == '}') {
            if (depth) t->nodes[open[--depth]].end = end;
            continue;
        }
        if (strchr(" \t\r\n,:", text[at])) continue;
        const int opens = text[at] == '[' || text[at] == '{';
        if (!opens && text[at] != '"') end = word_end(text, at, bytes);
        if (opens && depth < DEPTH) open[depth++] = t->count;
        t->nodes[t->count++] =
            (node){has_key ? key : at, at, opens ? bytes : end, has_key ? key_end : at};
        has_key = 0;
    }
}

/* ---- changes of one value -------------------------------------------------------------------- */

static void put_literal(grammar_input *in, const node *n)
{
    static const char *const words[] = {"0",
                                        "1",
                                        "-1",
                                        "2",
                                        "3",
                                        "7",
                                        "8",
                                        "64",
                                        "255",
                                        "65536",
                                        "2147483647",
                                        "2147483648",
                                        "4294967296",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "18446744073709551616",
                                        "0.5",
                                        "1e-300",
                                        "1e308",
                                        "1e999",
                                        "-0.0",
                                        "null",
                                        "true",
                                        "false",
                                        "\"\"",
                                        "[]",
                                        "{}",
                                        "[[]]",
                                        "\"\\u0000\"",
                                        "\"\\ud800\"",
                                        "\"a\"",
                                        "[0,0]"};
    const char *word = words[grammar_random(in, sizeof words / sizeof *words)];
    (void)grammar_splice(in, n->begin, n->end, word, strlen(word));
}

static void take_away(grammar_input *in, const node *n)
{
    size_t begin = n->whole, end = n->end;
    if (end < in->bytes && in->data[end] == ',')
        end++;
    else if (begin > 0 && in->data[begin - 1] == ',')
        begin--;
    (void)grammar_splice(in, begin, end, "", 0);
}

static void put_twice(grammar_input *in, const node *n)
{
    const size_t count = n->end - n->whole;
    if (grammar_splice(in, n->end, n->end, in->data + n->whole, count))
        (void)grammar_splice(in, n->end, n->end, ",", 1);
}

static void move_number(grammar_input *in, const node *n)
{
    char text[64], *stopped;
    const size_t count = n->end - n->begin;
    if (count >= sizeof text) return;
    memcpy(text, in->data + n->begin, count);
    text[count] = '\0';
    unsigned long long value = (unsigned long long)strtoll(text, &stopped, 10);
    if (stopped == text) {
        put_literal(in, n);
        return;
    }
    static const int steps[] = {1, -1, 2, -2, 4, 8, -8, 64};
    value = grammar_random(in, 4) ? value + (unsigned long long)steps[grammar_random(in, 8)]
                                  : value / 2;
    const int used = snprintf(text, sizeof text, "%lld", (long long)value);
    (void)grammar_splice(in, n->begin, n->end, text, (size_t)used);
}

/* Bytes of a string or a word. */
static void change_inside(grammar_input *in, const node *n)
{
    uint8_t text[512];
    const size_t quoted = in->data[n->begin] == '"';
    const size_t begin = n->begin + quoted, end = n->end > begin ? n->end - quoted : begin;
    if (end < begin || end - begin > sizeof text / 2) return;
    memcpy(text, in->data + begin, end - begin);
    const size_t count = LLVMFuzzerMutate(text, end - begin, sizeof text);
    (void)grammar_splice(in, begin, end, text, count);
}

static void put_in_list(grammar_input *in, const node *n)
{
    if (grammar_splice(in, n->end, n->end, "]", 1))
        (void)grammar_splice(in, n->begin, n->begin, "[", 1);
}

/* ---- changes by another value ---------------------------------------------------------------- */

static void take_value(grammar_input *in, const node *n, const node *other)
{
    (void)grammar_splice(in, n->begin, n->end, in->data + other->begin, other->end - other->begin);
}

static void take_key(grammar_input *in, const node *n, const node *other)
{
    if (n->key_end > n->whole && other->key_end > other->whole)
        (void)grammar_splice(in, n->whole, n->key_end, in->data + other->whole,
                             other->key_end - other->whole);
}

static void add_member(grammar_input *in, const node *n, const node *other)
{
    const size_t count = other->end - other->whole;
    if (grammar_splice(in, n->whole, n->whole, ",", 1))
        (void)grammar_splice(in, n->whole, n->whole,
                             in->data + other->whole + (other->whole >= n->whole), count);
}

/* A value, or a member, of the other input. */
static int cross(grammar_input *in, const node *n)
{
    static tree others;
    if (!in->other) return 0;
    scan(&others, in->other, in->other_bytes);
    if (!others.count) return 0;
    const node *other = &others.nodes[grammar_random(in, others.count)];
    if (grammar_random(in, 2))
        return grammar_splice(in, n->begin, n->end, in->other + other->begin,
                              other->end - other->begin);
    return grammar_splice(in, n->whole, n->end, in->other + other->whole,
                          other->end - other->whole);
}

void grammar_json(grammar_input *in)
{
    static void (*const alone[])(grammar_input *, const node *) = {
        put_literal, take_away, put_twice, move_number, change_inside, put_in_list};
    static void (*const together[])(grammar_input *, const node *,
                                    const node *) = {take_value, take_key, add_member};
    enum { ALONE = 6, TOGETHER = 3, RAW = 1 };
    static tree t;
    scan(&t, in->data, in->bytes);
    const size_t way = grammar_random(in, ALONE + TOGETHER + RAW);
    if (!t.count || way == ALONE + TOGETHER) {
        grammar_bytes(in);
        return;
    }
    const node *n = &t.nodes[grammar_random(in, t.count)];
    if (cross(in, n)) return;
    if (way < ALONE)
        alone[way](in, n);
    else
        together[way - ALONE](in, n, &t.nodes[grammar_random(in, t.count)]);
}
