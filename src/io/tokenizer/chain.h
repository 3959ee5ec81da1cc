// SPDX-License-Identifier: Apache-2.0
/*
 * The way of any tokenizer.json: a list of steps that normalise a text and cut it into words, read
 * from the file. It is taken where a kind's own fast way has no row for what the file names.
 *
 *     text ─ added tokens cut out ─ steps of the normalizer ─ normalised added tokens cut out
 *          ─ steps of the pre_tokenizer ─ the kind's pieces of each word
 *
 * normalizers.def and pretokenizers.def have a row for each "type". A row adds steps; a step
 * changes characters, or finds where a text is cut.
 */
#ifndef S24_IO_TOKENIZER_CHAIN_H
#define S24_IO_TOKENIZER_CHAIN_H

#include "io/checkpoint/config.h"
#include "io/tokenizer/bpe.h"
#include "io/tokenizer/glyphs.h"
#include "io/tokenizer/regex.h"
#include "io/tokenizer/unigram.h"

/* Characters begin … end − 1 of a word; matched: the pattern's, else what is between. */
typedef struct s24i_cut {
    size_t begin, end;
    int matched;
} s24i_cut;

typedef struct s24i_cuts {
    s24_ctx *ctx;
    s24i_cut *at;
    size_t count, room;
    int failed;
} s24i_cuts;

void s24i_cuts_put(s24i_cuts *cuts, size_t begin, size_t end, int matched);

typedef enum s24i_behaviour {
    S24I_ISOLATED,
    S24I_REMOVED,
    S24I_MERGED_WITH_PREVIOUS,
    S24I_MERGED_WITH_NEXT,
    S24I_CONTIGUOUS
} s24i_behaviour;

typedef struct s24i_chain_step s24i_chain_step;
struct s24i_chain_step {
    /* Writes what characters become. One of both is there. */
    void (*change)(const s24i_chain_step *step, s24i_edit *edit);
    /* Lists matches and what is between them, all of the text from its begin to its end. */
    void (*find)(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text, size_t count);
    s24i_behaviour behaviour;
    int invert;            /* what matches and what does not change places */
    int (*is)(uint32_t c); /* of steps of single characters */
    s24i_split *split;     /* of one that a fast pattern finds */
    s24i_regex *regex;     /* of another */
    uint32_t *from, *to;   /* of strings: what is looked for, what stands in its place */
    size_t from_count, to_count;
    int option; /* each step's own */
    int begins; /* a change that is made only of what begins the text */
    s24i_rules rules;
};

enum { S24I_CHAIN_STEPS = 32 };

/* An added token as it is looked for: characters of the raw text, or of the normalised one. */
typedef struct s24i_chain_added {
    uint32_t *text;
    size_t count;
    size_t index; /* of the tokenizer's added tokens */
} s24i_chain_added;

typedef struct s24i_chain {
    s24_ctx *ctx;
    s24i_chain_step steps[S24I_CHAIN_STEPS];
    int normalizers, count; /* the normalizer's steps come first */
    s24i_chain_added *added;
    size_t added_count;
    uint8_t first[2][256]; /* raw, normalised: 1: an added token's first character ends so */
} s24i_chain;

/* A step that is added, zeroed; NULL: there are too many, which *status then says. */
s24i_chain_step *s24i_chain_add(s24_status *status, s24i_chain *chain, const s24i_config *part);

/* The steps of a file's normalizer and pre_tokenizer. What has no row is refused by its name. */
s24_status s24i_chain_read(s24i_chain **out, s24_ctx *ctx, const s24i_config *root);
/* After the tokenizer's added tokens are read. */
s24_status s24i_chain_read_added(s24_tokenizer *tokenizer, const char *file);
void s24i_chain_free(s24i_chain *chain);
/* As s24i_tokenizer_run. */
struct s24i_run;
int64_t s24i_chain_run(const s24_tokenizer *tokenizer, const struct s24i_run *run,
                       const s24_text *parts, int part_count);

/* Steps that several rows are made of. */
s24_status s24i_step_change(s24i_chain *chain, const s24i_config *part,
                            void (*change)(const s24i_chain_step *step, s24i_edit *edit),
                            int option);
s24_status s24i_step_is(s24i_chain *chain, const s24i_config *part, int (*is)(uint32_t c),
                        s24i_behaviour behaviour);
void s24i_change_form(const s24i_chain_step *step, s24i_edit *edit);
void s24i_change_lower(const s24i_chain_step *step, s24i_edit *edit);
/* Two strings of a step, as characters. MEMORY. */
s24_status s24i_step_strings(s24i_chain_step *step, s24_ctx *ctx, const char *from, const char *to);
/* Occurrences of step->from. */
void s24i_find_string(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text,
                      size_t count);
void s24i_change_replace(const s24i_chain_step *step, s24i_edit *edit);
/* step->to before what does not begin with it. */
void s24i_change_prepend(const s24i_chain_step *step, s24i_edit *edit);

/* Runs the pattern of a regular expression. UNSUPPORTED by its text. */
s24_status s24i_step_regex(s24i_chain_step *step, s24i_chain *chain, const s24i_config *part,
                           const char *pattern);
void s24i_find_split(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text,
                     size_t count);
/* What a step makes of a text that stands at the begin of all. */
void s24i_chain_change(const s24i_chain_step *step, s24i_glyphs *text);

enum { S24I_FORM_COMPOSED = 1, S24I_FORM_COMPATIBLE = 2 };

int s24i_is_space(uint32_t c);
int s24i_is_number(uint32_t c);
int s24i_is_word(uint32_t c);

#define NORMALIZER(name)                                                                           \
    s24_status s24i_normalizer_##name(s24i_chain *chain, const s24i_config *part);
#include "io/tokenizer/normalizers.def"
#undef NORMALIZER
#define PRETOKENIZER(name)                                                                         \
    s24_status s24i_pretokenizer_##name(s24i_chain *chain, const s24i_config *part);
#include "io/tokenizer/pretokenizers.def"
#undef PRETOKENIZER

#endif
