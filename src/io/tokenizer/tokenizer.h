// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a tokenizer. It is immutable once loaded, and encoding allocates nothing but for
 * words of hundreds of characters, so that any number of threads may encode with one. WordPiece:
 *
 *     text ─ added tokens cut out ─ clean, CJK padded ─ NFD, marks dropped ─ lower case
 *          ─ words at spaces and punctuation ─ longest pieces of the vocabulary
 *
 * Byte pair encoding stands in bpe.h, Unigram in unigram.h. tokenizers.def has a row for each kind.
 */
#ifndef S24_IO_TOKENIZER_TOKENIZER_H
#define S24_IO_TOKENIZER_TOKENIZER_H

#include "io/checkpoint/config.h"
#include "io/file/io.h"
#include "io/tokenizer/bpe.h"
#include "io/tokenizer/chain.h"
#include "io/tokenizer/unigram.h"

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
/* The id of a whole token, −1 when there is none; the second's ends in a zero. */
int32_t s24i_vocabulary_id_of(const s24i_vocabulary *vocabulary, const char *token, size_t bytes);
int32_t s24i_vocabulary_id(const s24i_vocabulary *vocabulary, const char *token);

/* A token found in the raw text before anything else happens ("[MASK]"). */
typedef struct s24i_added {
    const char *text;
    size_t bytes;
    int32_t id;
    int special; /* decoding leaves it out */
    /* 1: it is looked for in what the text is normalised to: of ASCII alone, whose case is then no
       matter where a tokenizer lowers it. */
    int normalized;
    /* White space before or after it belongs to it. */
    int takes_before, takes_after;
    int single; /* it is none next to a letter or digit; in a chain alone */
} s24i_added;

/* What a run over a text gives. tokens NULL: it is only counted. */
typedef struct s24i_run {
    s24_token *tokens;
    int64_t room;
    int32_t type;
    /* 1: special tokens stand at these bytes alone, ascending ones of a single part; what looks
       like one elsewhere is text. */
    int plain;
    const size_t *places;
    size_t place_count;
} s24i_run;

/* A token being decoded; first: nothing stands before it. */
typedef struct s24i_piece {
    s24_text text;
    int32_t id;
    int first;
    s24_text before; /* the piece before it */
} s24i_piece;

/* What a file's decoder says, of a chain. Strings are NULL where it does not. */
typedef struct s24i_decoder {
    int joins;       /* a blank between tokens: there is no decoder */
    int bytes;       /* letters are bytes */
    int fallback;    /* <0x0A> is a byte */
    int cleans;      /* no blank before marks and endings, see clean() */
    int drops_first; /* `from` of the first token becomes nothing */
    size_t strips;   /* blanks at the text's begin */
    char *from, *to; /* one becomes the other */
    char *suffix;    /* ends a word, after which is a blank */
    char *prefix;    /* of a token before which is none */
} s24i_decoder;

/* A row of tokenizers.def. */
typedef struct s24i_tokenizer_kind {
    const char *name; /* "type" of tokenizer.json's model */
    /* Reads normalizer and pre_tokenizer for the kind's own way; UNSUPPORTED where it has none.
       NULL: it has none at all. */
    s24_status (*plan)(s24_tokenizer *tokenizer, const s24i_config *root);
    /* Reads the model. */
    s24_status (*read)(s24_tokenizer *tokenizer, const s24i_config *root, const s24i_config *model);
    /* See s24i_tokenizer_run. */
    int64_t (*run)(const s24_tokenizer *tokenizer, const s24i_run *run, const s24_text *parts,
                   int part_count);
    /* Writes a token's bytes as they stand in a text, at most twice its own and one. Returns their
       number. */
    size_t (*decode)(char *out, const s24_tokenizer *tokenizer, const s24i_piece *piece);
    /* The tokens of a word of a chain, whose offsets are bytes of it; at most `room` of them.
       Returns their number, −1 where there is no memory. */
    int64_t (*word)(s24_token *tokens, int64_t room, const s24_tokenizer *tokenizer,
                    const char *text, size_t bytes);
    int apart; /* parts are words of their own: what is one text is joined before it runs */
    int spelled_as_text; /* tokens are spelled as the word is, the unknown one too */
} s24i_tokenizer_kind;

/* Tokens that stand before a text, between two, and after the last, and the types of all. */
typedef enum s24i_end { S24I_BEFORE, S24I_BETWEEN, S24I_AFTER, S24I_ENDS } s24i_end;
enum { S24I_MOST_END = 16 };
typedef struct s24i_template {
    int32_t ids[S24I_ENDS][S24I_MOST_END], types[S24I_ENDS][S24I_MOST_END];
    int count[S24I_ENDS];
    int32_t text_types[2];
} s24i_template;

struct s24_tokenizer {
    s24_ctx *ctx;
    const s24i_tokenizer_kind *kind;
    s24i_vocabulary vocabulary;
    /* [count] the bytes of each id, none for an added token that decodes to nothing. */
    s24_text *pieces;
    int32_t count; /* largest id + 1 */
    s24i_template single, pair;
    int pairs;         /* two texts can be given together */
    int32_t unknown;   /* −1: none */
    int normalises;    /* 0: the text is taken as it is */
    s24i_chain *chain; /* NULL: the kind's own way */
    s24i_decoder decoder;
    int decodes; /* by the file's decoder, not the kind's own way */
    s24i_bpe bpe;
    s24i_unigram unigram;
    char *prefix; /* of a piece that continues a word */
    size_t prefix_bytes;
    uint64_t prefix_hash;
    int word_chars; /* a word of more is unknown */
    int clean, chinese, strip, lower;
    s24i_added *added;
    size_t added_count;
    uint8_t added_first[256]; /* 1: an added token begins with this byte */
};

extern const s24i_tokenizer_kind s24i_tokenizer_wordpiece, s24i_tokenizer_bpe,
    s24i_tokenizer_unigram, s24i_tokenizer_wordlevel;
int64_t s24i_wordpiece_run(const s24_tokenizer *tokenizer, const s24i_run *run,
                           const s24_text *parts, int part_count);
/* Parts are words of their own. */
int64_t s24i_bpe_run(const s24_tokenizer *tokenizer, const s24i_run *run, const s24_text *parts,
                     int part_count);
/* Parts are words of their own here, too. */
int64_t s24i_unigram_run(const s24_tokenizer *tokenizer, const s24i_run *run, const s24_text *parts,
                         int part_count);
int64_t s24i_bpe_word(s24_token *tokens, int64_t room, const s24_tokenizer *tokenizer,
                      const char *text, size_t bytes);
int64_t s24i_wordpiece_word(s24_token *tokens, int64_t room, const s24_tokenizer *tokenizer,
                            const char *text, size_t bytes);
int64_t s24i_unigram_word(s24_token *tokens, int64_t room, const s24_tokenizer *tokenizer,
                          const char *text, size_t bytes);
/* The symbols of the word that bytes begin … end − 1 are, after a ▁ of its own if `prefix`. */
void s24i_bpe_symbols(const s24_tokenizer *tokenizer, s24i_symbols *symbols, const char *text,
                      size_t begin, size_t end, int prefix);
/* Symbols merged; 0 where there is no memory. */
int s24i_bpe_merge(const s24_tokenizer *tokenizer, s24i_symbols *symbols);
/* 1 if a token's bytes, as a word, become this token alone. */
int s24i_bpe_is_whole(const s24_tokenizer *tokenizer, const char *text, size_t bytes, int32_t id);

/*
 * Fill a zeroed tokenizer (ctx and pairs are set, unknown is −1) from a file of a folder:
 * tokenizer.json; vocab.txt and the tokenizer_config.json next to it; GPT-2's vocab.json and the
 * merges.txt next to it; SentencePiece's tokenizer.model. Errors as s24_tokenizer_load; what is
 * there then is freed by s24_tokenizer_destroy.
 */
s24_status s24i_tokenizer_read_json(s24_tokenizer *tokenizer, const char *folder, const char *name);
s24_status s24i_tokenizer_read_vocab(s24_tokenizer *tokenizer, const char *folder,
                                     const char *name);
s24_status s24i_tokenizer_read_merges(s24_tokenizer *tokenizer, const char *folder,
                                      const char *name);
s24_status s24i_tokenizer_read_model(s24_tokenizer *tokenizer, const char *folder,
                                     const char *name);

/* One token at most before a text and after it, −1: none; how many of the latter stand between two
   texts, and whether both of a pair have type 0. With one of the two tokens there are no pairs. */
typedef struct s24i_usual_ends {
    int32_t cls, sep;
    int middle, alike;
} s24i_usual_ends;
void s24i_template_ends(s24_tokenizer *tokenizer, const s24i_usual_ends *ends);
/* One more token; 0: there is no room for it. */
int s24i_template_put(s24i_template *template, s24i_end end, int32_t id, int32_t type);
/* How many tokens a template adds. */
int64_t s24i_template_tokens(const s24i_template *template);
/* Writes those of an end, the first `room` of them; returns their number. */
int64_t s24i_template_write(s24_token *to, int64_t room, const s24i_template *template,
                            s24i_end end);
/* What tokenizer.json says of these. */
s24_status s24i_post_processor_read(s24_tokenizer *tokenizer, const s24i_config *root);

/* A file's decoder; and a token of a chain as text, as a kind's decode. */
s24_status s24i_decoder_read(s24_tokenizer *tokenizer, const s24i_config *root);
void s24i_decoder_free(s24i_decoder *decoder, s24_ctx *ctx);
size_t s24i_chain_decode(char *out, const s24_tokenizer *tokenizer, const s24i_piece *piece);

/* ---- what the readers share (tokenizer_read.c) ----------------------------------------------- */

/* The "type" of what stands at key, or of the only element of a Sequence there; *part is that
   object. *type is NULL when there is nothing. */
s24_status s24i_tokenizer_type(const char **type, s24i_config *part, const s24i_config *root,
                               const char *key, const char *list);
/* Reads what stands at key, if there is something, or each element of a Sequence there. */
s24_status s24i_tokenizer_each(const s24i_config *root, const char *key, const char *list,
                               s24_status (*read)(void *user, const s24i_config *part), void *user);
/* "FILE: the WHAT TYPE is not supported, only EXPECTED". */
s24_status s24i_tokenizer_refuse(const s24i_config *root, const char *what, const char *type,
                                 const char *expected);
s24_status s24i_metaspace_read(s24i_metaspace *out, const s24i_config *part);
/* The vocabulary from an object of tokens and ids. */
s24_status s24i_tokenizer_read_vocabulary(s24_tokenizer *tokenizer, const s24i_config *vocab);
/* *id = that of a token which every text or many need. */
s24_status s24i_tokenizer_find(int32_t *id, const s24_tokenizer *tokenizer, const char *file,
                               const char *token);
/* Room for count added tokens, and one of them. */
s24_status s24i_added_reserve(s24_tokenizer *tokenizer, size_t count);
s24_status s24i_added_add(s24_tokenizer *tokenizer, const char *text, int32_t id, int special);
/* Adds one of these, whose text is copied. */
s24_status s24i_added_put(s24_tokenizer *tokenizer, const s24i_added *added);
/* Room for count merges, and one of them; of two rows of a pair the later one stays. */
s24_status s24i_merges_create(s24_tokenizer *tokenizer, size_t count);
void s24i_merges_add(s24i_bpe *bpe, const s24i_merge *merge);
/* What follows from vocabulary and merges. whole_words: every word that is a token is taken whole,
   whatever its merges lead to. */
s24_status s24i_bpe_finish(s24_tokenizer *tokenizer, int whole_words);
/* The longest added token that the text begins with, or NULL; plain: of those that are not
   special. */
const s24i_added *s24i_added_find(const s24_tokenizer *tokenizer, const char *text, size_t bytes,
                                  int plain);
/* The next added token of a text from byte `begin` on: the text before it ends at `first`, what
   follows it begins at `end`. 0: there is none. A cut of zeros begins a text. */
typedef struct s24i_added_cut {
    const s24i_added *added;
    size_t first, end;
    size_t place; /* the first of the run's places that is not before it */
} s24i_added_cut;
int s24i_added_next(s24i_added_cut *cut, const s24_tokenizer *tokenizer, const s24i_run *run,
                    const s24_text *text, size_t begin);
/* A vocabulary file mapped into memory may not be larger. */
#define S24I_VOCAB_BYTES ((size_t)1 << 30) /* offsets in the pool are 32 bits */

/* ---- running --------------------------------------------------------------------------------- */

/* The tokens of the parts laid end to end, without [CLS] and [SEP]; the first `room` of them.
   Offsets count from the first part on. Together at most INT32_MAX bytes. Returns their number, −1
   where a long word's memory is not to be had. */
int64_t s24i_tokenizer_run(const s24_tokenizer *tokenizer, const s24i_run *run,
                           const s24_text *parts, int part_count);
/* The parts between what the tokenizer puts around a text; at most max_tokens ≥ 2 tokens.
   Returns their number, or −1 as above. */
int64_t s24i_tokenizer_encode(s24_token *tokens, int64_t max_tokens, const s24_tokenizer *tokenizer,
                              const s24_text *parts, int part_count);

/* Two texts in the tokenizer's template of a pair, cut to max_tokens, which leave room for what
   stands around. Returns their number, or −1 as above. */
int64_t s24i_tokenizer_encode_pair(s24_token *tokens, int64_t max_tokens,
                                   const s24_tokenizer *tokenizer, const s24_text texts[2]);

static inline s24_status s24i_tokenizer_no_memory(s24_ctx *ctx)
{
    return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory for the tokens of a long word");
}

#endif
