// SPDX-License-Identifier: Apache-2.0
/* Declares what the files of generate share: its options, its prompts, and the texts that follow
   them. */
#ifndef SPARSE24_CLI_GENERATE_GENERATE_H
#define SPARSE24_CLI_GENERATE_GENERATE_H

#include "cli.h"
#include "sparse24/language.h"
#include "sparse24/task.h"
#include "sparse24/train.h"

struct generate_options {
    cli_common common;
    const char *prompt, *input, *stop, *dtype, *system;
    int64_t max_new, top_k, seed, logprobs, texts;
    double temperature, top_p, min_p, repeat_penalty;
    int ids, chat, no_think;
};

/* ---- generate_channels.c: answers in channels ------------------------------------------------ */

enum { GENERATE_CHANNEL_TOKENS = 6 };

/* What stands in a text where messages begin and end. */
typedef struct generate_marks {
    const char *thought[2];
    const char *call[3]; /* before the name of a tool, between it and what it is told, and after */
} generate_marks;

typedef struct generate_channels {
    int known; /* 0: the model has none */
    int32_t ids[GENERATE_CHANNEL_TOKENS];
    const generate_marks *marks;
} generate_channels;

typedef enum generate_part {
    GENERATE_BETWEEN, /* no message is open, nor its head */
    GENERATE_HEAD,
    GENERATE_THOUGHT,
    GENERATE_SAID,
    GENERATE_CALL
} generate_part;

/* Makes what the chat template writes, the caller's to free; NULL: it does not, or there is no
   memory. */
char *generate_chat_text(cli_app *cli, const s24_chat *chat, const s24_text *request);
/* Gives the token that a text is by itself, −1: none is. */
int32_t generate_mark_id(cli_app *cli, const s24_tokenizer *tokenizer, const char *mark);
/* Finds out whether the chat template writes answers in channels. */
int generate_channels_find(generate_channels *out, cli_app *cli, const s24_chat *chat,
                           const s24_tokenizer *tokenizer);
/* Gives the token that ends an answer with a call, −1: there are no channels. */
int32_t generate_channels_end(const generate_channels *channels);

/* ---- generate_prompts.c ---------------------------------------------------------------------- */

/* Holds the prompts as tokens, end to end. */
typedef struct generate_prompts {
    s24_tokenizer *tokenizer;          /* NULL with --ids */
    s24_chat *chat;                    /* with --chat */
    const generate_channels *channels; /* in which its answers come, NULL: in none */
    generate_channels own;             /* theirs, if they are read here */
    const char *system;                /* and what the system says, NULL: as the template has it */
    s24_id_lines *lines;               /* with --ids */
    int32_t *made;                     /* else, and their offsets */
    int64_t *offsets;
    s24_batch batch;
    int64_t longest;
} generate_prompts;

/* Reads them for a model of that shape; release with generate_prompts_free, also after an error. */
int generate_prompts_read(cli_app *cli, generate_prompts *out, const struct generate_options *o,
                          const s24_transformer_info *info);
void generate_prompts_free(generate_prompts *prompts);

/* ---- generate_text.c ------------------------------------------------------------------------- */

/* Holds what follows a prompt. */
typedef struct generate_text {
    int32_t anchor; /* a token before the next one that has text, −1: none has yet */
    int32_t *ids;
    int64_t count, room;
    char *text; /* its bytes as the tokens give them, without --ids */
    size_t bytes, text_room;
    size_t shown;                      /* bytes of it that were printed, or with --ids tokens */
    const char *stopped;               /* why it ended, as JSON says; NULL: it goes on */
    const generate_channels *channels; /* NULL: it has none */
    generate_part part;                /* where the last token was */
    int spoke;                         /* the last message was said */
    char head[256];                    /* of the next message, as far as there is room */
    size_t head_bytes;
    json_t *rates; /* with --logprobs: of each token */
} generate_text;

/* Begins the text that follows a prompt. */
int generate_text_begin(cli_app *cli, generate_text *text, const generate_prompts *prompts,
                        int64_t prompt);
/* Adds a token to the text, which ends before the first of `stops` that it comes to; these end with
   a NULL, and a NULL in their place is none, here and below. */
int generate_text_add(cli_app *cli, generate_text *text, const s24_tokenizer *tokenizer, int32_t id,
                      const char *const *stops);
/* Takes a token of the channels; 0: it is none. */
int generate_channels_take(cli_app *cli, generate_text *text, int32_t id, int *code);
/* Adds the bytes of another token where they belong. */
int generate_channels_add(cli_app *cli, generate_text *text, const char *piece, size_t bytes);
/* Adds bytes that are no token's. */
int generate_text_put(cli_app *cli, generate_text *text, const char *bytes, size_t count);
/* Counts the bytes that can be shown, of all: they can change no more. */
size_t generate_text_ready(const generate_text *text, const char *const *stops);
/* Makes the bytes of both[1] as it stands after both[0] (−1: nothing), for a blank may be lost at
   the front of a text; the caller frees *piece, which is NULL for a token without a text. */
int generate_token_bytes(cli_app *cli, char **piece, size_t *bytes, const s24_tokenizer *tokenizer,
                         const int32_t both[2]);
/* Keeps a token's log probability, and those of the likeliest in its place. */
void generate_text_rate(generate_text *text, const s24_new_token *token);
/* Prints what was not printed yet, as far as it can change no more; `line`: as a part of one line,
   with line ends as escapes. */
void generate_text_print(generate_text *text, const char *const *stops, int ids, int line);
/* Makes JSON's string of what would be printed now, which counts as shown. */
json_t *generate_text_rest(generate_text *text, const char *const *stops);
/* Makes JSON's string of bytes, with U+FFFD in the place of those that are no text. */
json_t *generate_bytes_json(const char *from, size_t count);
/* Makes JSON's string of the text, or list of its tokens. */
json_t *generate_text_json(const generate_text *text, int ids);
void generate_text_free(generate_text *text);

#endif
