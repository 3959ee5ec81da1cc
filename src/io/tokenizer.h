// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a WordPiece tokenizer. It is immutable once loaded, and encoding allocates nothing,
 * so that any number of threads may encode with one.
 *
 *     text ─ added tokens cut out ─ clean, CJK padded ─ NFD, marks dropped ─ lower case
 *          ─ words at spaces and punctuation ─ longest pieces of the vocabulary
 */
#ifndef S24_IO_TOKENIZER_H
#define S24_IO_TOKENIZER_H

#include "io/io.h"

/* The most characters of a word that a tokenizer may ask to look up (BERT: 100). */
#define S24I_WORD_CHARS 512
/* The longest token of a vocabulary in bytes; no word has longer pieces. */
#define S24I_TOKEN_BYTES 4096
/* The most different ids. */
#define S24I_MAX_IDS (1 << 24)

typedef enum s24i_class {
    S24I_LETTER = 0, /* anything that has no other class */
    S24I_SPACE,
    S24I_DROP,       /* control, format, private use, U+0000, U+FFFD: clean_text removes it */
    S24I_DROP_SPACE, /* a control character that is white space where nothing cleans */
    S24I_PUNCT,
    S24I_MARK, /* a nonspacing mark: strip_accents removes it */
    S24I_CJK,  /* an ideograph: handle_chinese_chars makes it a word */
    S24I_NEWER /* a letter that normalisation does not touch, see tokenizer_unicode.c */
} s24i_class;

s24i_class s24i_classify(uint32_t character);

/* Tokens by their bytes: open addressing, at most half full, never shrinking. */
typedef struct s24i_token_slot {
    uint32_t hash;
    uint32_t offset; /* of the bytes in pool */
    uint32_t bytes;
    int32_t id; /* −1: free */
} s24i_token_slot;

typedef struct s24i_vocabulary {
    s24i_token_slot *slots;
    size_t mask; /* slots − 1, a power of two less one */
    char *pool;
    size_t pool_bytes;
    uint32_t longest;
} s24i_vocabulary;

/* FNV-1a, byte by byte: the hash of a piece is also the hash of its beginning carried on. */
#define S24I_HASH_SEED UINT64_C(0xcbf29ce484222325)
static inline uint64_t s24i_hash(uint64_t hash, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Room for count tokens of pool_bytes bytes together. MEMORY. */
s24_status s24i_vocabulary_create(s24i_vocabulary *vocabulary, s24_ctx *ctx, size_t count,
                                  size_t pool_bytes);
void s24i_vocabulary_free(s24i_vocabulary *vocabulary, s24_ctx *ctx);
/* Of two equal tokens the later one's id stays. */
void s24i_vocabulary_add(s24i_vocabulary *vocabulary, const char *token, size_t bytes, int32_t id);
/* The id of the token `prefix` + `text`, whose hash (of both) is given; −1 when there is none. */
int32_t s24i_vocabulary_find(const s24i_vocabulary *vocabulary, uint64_t hash, const char *prefix,
                             size_t prefix_bytes, const char *text, size_t bytes);
/* The id of a whole token, −1 when there is none. */
int32_t s24i_vocabulary_id(const s24i_vocabulary *vocabulary, const char *token);

/* A token found in the raw text before anything else happens ("[MASK]"). */
typedef struct s24i_added {
    char *text;
    size_t bytes;
    int32_t id;
} s24i_added;

struct s24_tokenizer {
    s24_ctx *ctx;
    s24i_vocabulary vocabulary;
    int32_t count; /* largest id + 1 */
    int32_t cls, sep, unknown;
    char *prefix; /* of a piece that continues a word */
    size_t prefix_bytes;
    uint64_t prefix_hash;
    int word_chars; /* a word of more is unknown */
    int clean, chinese, strip, lower;
    s24i_added *added;
    size_t added_count;
    uint8_t added_first[256]; /* 1: an added token begins with this byte */
};

/* Fills a zeroed tokenizer (ctx is set) from tokenizer.json, or from vocab.txt and the
   tokenizer_config.json beside it. Errors as s24_tokenizer_load; what is there then is freed by
   s24_tokenizer_destroy. */
s24_status s24i_tokenizer_read_json(s24_tokenizer *tokenizer, const char *folder, const char *name);
s24_status s24i_tokenizer_read_vocab(s24_tokenizer *tokenizer, const char *folder,
                                     const char *name);
/* What a run over a text gives. tokens NULL: it is only counted. */
typedef struct s24i_run {
    s24_token *tokens;
    int64_t room;
    int32_t type;
} s24i_run;

/* The tokens of the parts laid end to end, without [CLS] and [SEP]; the first `room` of them.
   Offsets count from the first part on. Together at most INT32_MAX bytes. Returns their number. */
int64_t s24i_tokenizer_run(const s24_tokenizer *tokenizer, const s24i_run *run,
                           const s24_text *parts, int part_count);
/* [CLS] parts [SEP], at most max_tokens ≥ 2 of them. Returns their number. */
int64_t s24i_tokenizer_encode(s24_token *tokens, int64_t max_tokens, const s24_tokenizer *tokenizer,
                              const s24_text *parts, int part_count);

#endif
