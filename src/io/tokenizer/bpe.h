// SPDX-License-Identifier: Apache-2.0
/*
 * Byte pair encoding: a word's symbols are merged, the pair that was learnt first before all
 * others, until no pair of the table is left.
 *
 *     byte level (GPT-2, Llama 3): text ─ words by a pattern ─ bytes ─ merges
 *     SentencePiece (Llama 1, 2):  text ─ blanks become ▁ ─ characters, or bytes ─ merges
 */
#ifndef S24_IO_TOKENIZER_BPE_H
#define S24_IO_TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "sparse24/sparse24.h"

/* Bytes of the word that the text, of bytes > 0, begins with. */
typedef size_t s24i_split(const char *text, size_t bytes);
/* The splitter of a pattern as tokenizer.json spells it; NULL when it is another. */
s24i_split *s24i_split_find(const char *pattern);
s24i_split s24i_split_gpt2, s24i_split_llama3, s24i_split_qwen2;
/* A character that is a number, or all that comes before the next one. */
s24i_split s24i_split_digits;
enum { S24I_MOST_SPLITS = 4 };
/* Bytes of the white space that the text begins with; and where that before byte `end` begins, from
   byte `begin` on. */
size_t s24i_space_bytes(const char *text, size_t bytes);
size_t s24i_space_before(const char *text, size_t begin, size_t end);

/* left, right → into; open addressing, at most half full. */
typedef struct s24i_merge {
    int32_t left, right; /* left −1: free */
    uint32_t rank;       /* the least goes first */
    int32_t into;
} s24i_merge;

typedef enum s24i_prepend {
    S24I_PREPEND_NEVER,
    S24I_PREPEND_FIRST,
    S24I_PREPEND_ALWAYS
} s24i_prepend;

/* What Metaspace says. */
typedef struct s24i_metaspace {
    const char *mark; /* borrowed from the file */
    s24i_prepend prepend;
    int split;
} s24i_metaspace;

typedef struct s24i_bpe {
    s24i_merge *merges;
    size_t mask;
    int32_t bytes[256]; /* the token of a byte, −1: none; of "<0x0A>" where bytes stand in for what
                           is unknown */
    uint8_t *whole;     /* a bit an id: its bytes, as a word, become this token alone */
    /* Each cuts what the one before left together. None: words end at blanks or not at all. */
    s24i_split *splits[S24I_MOST_SPLITS];
    int split_count;
    int nfc;   /* text is brought into Unicode's form C */
    int alone; /* nothing merges: characters are tokens */
    int byte_level;
    int fallback;       /* an unknown character becomes its bytes' tokens */
    int fuse;           /* neighbours that are unknown become one */
    int ignores_merges; /* a word that is a token is that one, whatever merges say */
    int blanks;         /* blanks are written ▁ */
    int at_blanks; /* no token has a ▁ after another character: words are merged one by one */
    s24i_prepend prepend;  /* a ▁ before a text, or each part of it between added tokens */
    int unless_blank;      /* but not where one stands already */
    int trim;              /* offsets leave blanks at a token's ends out */
    int trim_but_first;    /* but a single one that the text begins with */
    int32_t blank;         /* the token of ▁, −1: none */
    char *prefix, *suffix; /* of a word's characters but the first, of its last; NULL: none */
} s24i_bpe;

/* A word's symbols: symbol i is bytes at[i] … at[i + 1] − 1 of the text. */
typedef struct s24i_symbols {
    int32_t *ids;
    size_t *at; /* one more than ids */
    size_t count;
} s24i_symbols;

/* Symbols of a word that are merged on the stack; bytes of a prefix or suffix of characters. */
enum { S24I_SHORT_WORD = 192, S24I_AFFIX_BYTES = 64 };

/* Characters begin … end − 1 of a text. */
typedef struct s24i_span {
    int32_t begin, end;
} s24i_span;

/* A text in Unicode's form C, with what each of its characters came from; freed by freeing
   `from`. */
typedef struct s24i_nfc {
    char *text;
    size_t bytes;
    s24i_span *from;
    size_t count;
} s24i_nfc;

/* 1 if a text is in form C, in each character by itself; 0 if it may not be. */
int s24i_nfc_is(const char *text, size_t bytes);
/* 0 where there is no memory, and then nothing is to be freed. */
int s24i_nfc_make(s24i_nfc *out, s24_ctx *ctx, const char *text, size_t bytes);

/* The bytes that a token at byte level spells, at most as many as it has itself; SIZE_MAX when it
   is spelled otherwise. */
size_t s24i_bpe_bytes(char *out, const char *token);

/* The letter that a byte is written as. */
uint32_t s24i_bpe_letter(unsigned char byte);

#define S24I_BLANK       "\xe2\x96\x81" /* ▁, U+2581 */
#define S24I_BLANK_BYTES 3

static inline size_t s24i_merge_place(const s24i_bpe *bpe, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & bpe->mask;
}

/* The row of a pair, NULL when it has none. */
static inline const s24i_merge *s24i_merge_find(const s24i_bpe *bpe, int32_t left, int32_t right)
{
    for (size_t i = s24i_merge_place(bpe, left, right);; i = (i + 1) & bpe->mask) {
        const s24i_merge *merge = &bpe->merges[i];
        if (merge->left == left && merge->right == right) return merge;
        if (merge->left < 0) return NULL;
    }
}

#endif
