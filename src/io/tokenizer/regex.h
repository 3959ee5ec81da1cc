// SPDX-License-Identifier: Apache-2.0
/*
 * Regular expressions of tokenizers, compiled to a program that a backtracking matcher runs over
 * UTF-8: alternation, groups, (?i:), classes with \p{L}, \p{Lu} …, \s \d \w and their opposites,
 * repetitions (greedy, lazy with ?, possessive with +), (?=…), (?!…), (?>…). What must stay true:
 * a match is what Oniguruma finds, and no text takes unbounded time or stack: an attempt that has
 * taken too many steps fails.
 */
#ifndef S24_IO_TOKENIZER_REGEX_H
#define S24_IO_TOKENIZER_REGEX_H

#include <stddef.h>
#include <stdint.h>

#include "sparse24/sparse24.h"

enum { S24I_REGEX_SETS = 512, S24I_REGEX_ITEMS = 1024, S24I_REGEX_CODE = 2048 };

typedef enum s24i_item_kind {
    S24I_ITEM_RANGE,
    S24I_ITEM_CATEGORY, /* a bit for each of utf8proc's */
    S24I_ITEM_SPACE,
    S24I_ITEM_WORD,
    S24I_ITEM_SET /* another set, `low` */
} s24i_item_kind;

typedef struct s24i_item {
    s24i_item_kind kind;
    int negated;
    uint32_t low, high; /* of a range; the bits of categories */
} s24i_item;

/* Characters: those that an item has, or the others. */
typedef struct s24i_set {
    int first, count; /* items */
    int negated, fold;
    uint8_t ascii[128];
} s24i_set;

typedef enum s24i_op {
    S24I_OP_SET,    /* a character of the set */
    S24I_OP_LOOP,   /* min to max characters of the set */
    S24I_OP_SPLIT,  /* go on at a, or else at b */
    S24I_OP_JUMP,   /* go on at a */
    S24I_OP_AHEAD,  /* what follows must match up to its end, then go on at a; b: must not */
    S24I_OP_ATOMIC, /* what follows matches for good, then go on at a */
    S24I_OP_MATCH
} s24i_op;

typedef enum s24i_mode { S24I_GREEDY, S24I_LAZY, S24I_POSSESSIVE } s24i_mode;

typedef struct s24i_code {
    s24i_op op;
    s24i_mode mode;
    int a, b;
    size_t min, max;
    uint8_t first[16]; /* of SPLIT: ASCII characters that a may begin with */
} s24i_code;

typedef struct s24i_regex {
    s24i_item items[S24I_REGEX_ITEMS];
    s24i_set sets[S24I_REGEX_SETS];
    s24i_code code[S24I_REGEX_CODE];
    int item_count, set_count, code_count;
} s24i_regex;

/* UNSUPPORTED by the pattern's text and what of it is not known, MEMORY. Freed by freeing it. */
s24_status s24i_regex_create(s24i_regex **out, s24_ctx *ctx, const char *file, const char *pattern);
/* Where the match that begins at byte `at` ends; SIZE_MAX: there is none. */
size_t s24i_regex_match(const s24i_regex *regex, const char *text, size_t bytes, size_t at);
int s24i_set_has(const s24i_regex *regex, const s24i_set *set, uint32_t c);

#endif
