// SPDX-License-Identifier: Apache-2.0
/*
 * Unigram (Kudo, "Subword Regularization", 2018), as XLM-RoBERTa has it: a text is normalised,
 * blanks become ▁, and of all ways to cut a word into pieces the one with the greatest sum of
 * scores is taken.
 *
 *     text ─ added tokens cut out ─ precompiled rules ─ blanks ─ words at ▁ ─ best pieces
 */
#ifndef S24_IO_TOKENIZER_UNIGRAM_H
#define S24_IO_TOKENIZER_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "io/tokenizer/bpe.h"
#include "sparse24/nn.h"

/* A trie whose children of a node lie side by side, by their bytes. */
typedef struct s24i_trie_node {
    uint32_t first; /* child */
    int32_t id;     /* of the token that ends here; −1: none */
    uint16_t count; /* of children */
    uint8_t byte;   /* that leads here */
} s24i_trie_node;

typedef struct s24i_unigram_entry {
    s24_text text;
    double score;
    int32_t id;
} s24i_unigram_entry;

/* SentencePiece's rules of characters: a double array (Aoe, 1989) from what stands in a text to
   where in `strings` stands what it becomes. */
typedef struct s24i_rules {
    char *bytes;  /* all of it */
    size_t units; /* of 4 bytes, the double array; 0: there are no rules */
    const char *strings;
    size_t string_bytes; /* the last of which is a zero */
    uint8_t plain[128];  /* 1: no rule begins with this character */
} s24i_rules;

typedef struct s24i_unigram {
    s24i_trie_node *nodes;
    double *scores; /* [ids] */
    double unknown; /* score of a character that is no token */
    int fallback;   /* an unknown piece becomes its bytes' tokens, where all are there: */
    int32_t bytes[256];
    s24i_rules rules;
    int collapses;              /* blanks that follow one another become one */
    int trims_begin, trims_end; /* white space at a segment's ends is dropped */
    int drops_space;            /* white space ends words and is dropped */
    int marks;                  /* blanks become ▁ */
    int splits;                 /* each ▁ begins a word */
    s24i_prepend prepend;
} s24i_unigram;

/* Takes the bytes of rules (freed with s24i_unigram_free). FORMAT. */
s24_status s24i_rules_read(s24i_rules *rules, s24_ctx *ctx, const char *file, char *bytes,
                           size_t count);
/* From the precompiled_charsmap of a normaliser. */
struct s24i_config;
s24_status s24i_rules_load(s24i_rules *rules, s24_ctx *ctx, const struct s24i_config *part);
/* The string that stands for what the text begins with, NULL: it stays as it is; *length, its
   bytes. */
const char *s24i_rules_find(size_t *length, const s24i_rules *rules, const char *text,
                            size_t bytes);

/* Vocabulary, trie and scores of entries, which are sorted. */
s24_status s24i_unigram_build(s24_tokenizer *tokenizer, const char *file,
                              s24i_unigram_entry *entries, size_t count);
void s24i_unigram_free(s24i_unigram *unigram, s24_ctx *ctx);

#endif
